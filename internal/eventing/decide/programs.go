package decide

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// The label app.kubernetes.io/name of pods.
const (
	nameLabel          = "app.kubernetes.io/name"
	publisherComponent = "publisher-proxy"
	controllerName     = "controller"
	natsComponent      = "nats"
)

// podsOf are the pods of a component, terminating ones included.
func (w *World) podsOf(component string) (pods []corev1.Pod) {
	for _, p := range w.Pods {
		if p.Labels[nameLabel] == component {
			pods = append(pods, p)
		}
	}
	return pods
}

// rollout is how far a Deployment is.
type rollout struct {
	// updated: Kubernetes has seen the newest spec, and no pod of an earlier template is left.
	updated bool
	// wanted and available are numbers of pods.
	wanted, available int32
	// failed is why Kubernetes does not expect the roll-out to end any more; "" if it does.
	failed string
	// refused is why Kubernetes cannot create pods, such as a quota; "" if it can.
	refused string
}

// missingAccount is what the API server says of a pod whose ServiceAccount is gone.
var missingAccount = regexp.MustCompile(`serviceaccount "[^"]+" not found`)

func rolloutOf(d *appsv1.Deployment) rollout {
	r := rollout{wanted: 1, available: d.Status.AvailableReplicas}
	if d.Spec.Replicas != nil {
		r.wanted = *d.Spec.Replicas
	}
	s := d.Status
	r.updated = d.DeletionTimestamp == nil && s.ObservedGeneration >= d.Generation && s.UpdatedReplicas >= r.wanted && s.Replicas == s.UpdatedReplicas
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			r.failed = c.Message
		}
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			r.refused = "Kubernetes cannot create pods: " + c.Message
			if missingAccount.MatchString(c.Message) {
				// The operator may create no account, so that it can give nobody a permission.
				r.refused += ". The manifest of the operator has this account. Next: apply it again, as it was installed (kubectl apply --server-side -f eventing-manager.yaml, or helm upgrade)."
			}
		}
	}
	return r
}

// program sets the condition of a Deployment. It is true when each pod has the newest template and
// is available. Later, one available pod is enough.
func (d *Rules) program(w *World, o *Decision, condition, name, component string) (complete bool) {
	dep := convert[appsv1.Deployment](w.Object("Deployment", name))
	if dep == nil {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.Condition(condition, false, operatorv1alpha1.ReasonProcessing, "Deployment %s is being created.", name)
		return false
	}
	r := rolloutOf(dep)
	was := meta.IsStatusConditionTrue(w.Eventing.Status.Conditions, condition)
	message := fmt.Sprintf("%d of %d pods are available.", r.available, r.wanted)
	if problem := cmp.Or(r.refused, podProblem(w.podsOf(component))); problem != "" {
		message += " " + problem
	}
	switch {
	case r.updated && r.available >= r.wanted:
		o.Condition(condition, true, operatorv1alpha1.ReasonDeployed, "")
		return true
	case r.updated && was && r.available > 0:
		o.Condition(condition, true, operatorv1alpha1.ReasonDeployed, "") // which pods are missing is in PodsReady
		return true
	case r.failed != "":
		o.AtLeast(operatorv1alpha1.StateError)
		o.Condition(condition, false, operatorv1alpha1.ReasonDeployFailed, "Deployment %s: %s %s Next: kubectl -n %s describe deployment %s", name, r.failed, message, d.Namespace, name)
	case r.updated && r.available == 0 && o.wrongFor(condition) > downLimit:
		o.AtLeast(operatorv1alpha1.StateError)
		o.Condition(condition, false, operatorv1alpha1.ReasonProcessing, "%s Next: kubectl -n %s describe deployment %s", message, d.Namespace, name)
	default:
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.Condition(condition, false, operatorv1alpha1.ReasonProcessing, "%s", message)
		o.look(downLimit)
	}
	return false
}

// programs sets the conditions of the controller and of the publisher. The backend is active when
// each pod of the publisher sends to it.
func (d *Rules) programs(w *World, o *Decision, target operatorv1alpha1.BackendType) {
	const manager, proxy = operatorv1alpha1.ConditionSubscriptionManagerReady, operatorv1alpha1.ConditionPublisherProxyReady
	if d.program(w, o, manager, d.Names.Controller(), controllerName) && !w.followed(d.Names) {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.Condition(manager, false, operatorv1alpha1.ReasonProcessing, "The controller has not read ConfigMap %s yet.", d.Names.Backends())
	}
	publisher := w.Object("Deployment", d.Names.Publisher())
	if publisher == nil {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.Condition(proxy, false, operatorv1alpha1.ReasonProcessing, "The publisher starts when the backend takes events.")
		return
	}
	o.PublisherService = d.Names.Publisher() + "." + d.Namespace
	complete := d.program(w, o, proxy, d.Names.Publisher(), publisherComponent)
	if complete && sendsTo(publisher) == target && len(w.sendElsewhere(target)) == 0 {
		o.Active = target
	}
}

// followed tells whether the controller says that it follows the present backends.
func (w *World) followed(names backend.Names) bool {
	contract, err := backend.ParseBackends(contractData(w.Object("ConfigMap", names.Backends())))
	if err != nil {
		return false
	}
	state, err := backend.ParseControllerState(contractData(w.Object("ConfigMap", names.ControllerState())))
	return err == nil && state.Follows(contract)
}

// sendsTo is the backend that the template of the publisher has; "" if there is no publisher.
func sendsTo(publisher *unstructured.Unstructured) operatorv1alpha1.BackendType {
	if publisher == nil {
		return ""
	}
	to, _, _ := unstructured.NestedString(publisher.Object, "spec", "template", "metadata", "labels", backend.BackendLabel)
	return operatorv1alpha1.BackendType(to)
}

// sendElsewhere are the pods of the publisher that send to another backend, terminating ones
// included.
func (w *World) sendElsewhere(target operatorv1alpha1.BackendType) (pods []string) {
	for _, p := range w.podsOf(publisherComponent) {
		if operatorv1alpha1.BackendType(p.Labels[backend.BackendLabel]) != target {
			pods = append(pods, p.Name)
		}
	}
	return pods
}

// stopped deletes the pods of a Deployment, and is true when none is left.
func (d *Rules) stopped(w *World, o *Decision, name, component string) bool {
	running := len(w.podsOf(component)) > 0
	// The autoscaler goes first. It needs a Deployment.
	for _, kind := range []string{"HorizontalPodAutoscaler", "Deployment"} {
		if u := w.Object(kind, name); u != nil {
			o.delete(u)
			running = true
		}
	}
	return !running
}

// podProblem is what keeps a pod from being ready, in the words of Kubernetes; "" if nothing is
// known.
func podProblem(pods []corev1.Pod) string {
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return fmt.Sprintf("Pod %s is not scheduled: %s", p.Name, c.Message)
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
				return strings.TrimSpace(fmt.Sprintf("Pod %s does not start: %s %s", p.Name, waiting.Reason, waiting.Message))
			}
		}
	}
	return ""
}
