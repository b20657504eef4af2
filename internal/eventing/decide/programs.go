package decide

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/rollout"
)

// program sets the condition of a Deployment. It is true when each pod has the newest template and
// is available. Later, one available pod is enough.
func (d *Rules) program(w *observed.World, o *Decision, condition, name, component string) (complete bool) {
	dep := rollout.As[appsv1.Deployment](w.Object("Deployment", name))
	if dep == nil {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.Condition(condition, false, operatorv1alpha1.ReasonProcessing, "Deployment %s is being created.", name)
		return false
	}
	r := rollout.Of(dep)
	was := meta.IsStatusConditionTrue(w.Eventing.Status.Conditions, condition)
	message := fmt.Sprintf("%d of %d pods are available.", r.Available, r.Wanted)
	if problem := cmp.Or(r.Refused, rollout.Problem(w.PodsOf(component))); problem != "" {
		message += " " + problem
	}
	if r.Wanted == 0 {
		message = fmt.Sprintf("Somebody has scaled Deployment %s to 0.", name)
	}
	switch {
	case r.Updated && r.Wanted > 0 && (r.Available >= r.Wanted || was && r.Available > 0): // which pods are missing is in PodsReady
		o.Condition(condition, true, operatorv1alpha1.ReasonDeployed, "%s", scaledBy(w.Scaled[name]))
		return true
	case r.Paused:
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(condition, false, operatorv1alpha1.ReasonDeployFailed, "Somebody has paused Deployment %s, so that its pods are not replaced. %s Next: kubectl -n %s rollout resume deployment %s", name, message, d.Namespace, name)
	case r.Failed != "":
		o.AtLeast(operatorv1alpha1.StateError)
		o.Condition(condition, false, operatorv1alpha1.ReasonDeployFailed, "Deployment %s: %s %s Next: kubectl -n %s describe deployment %s", name, r.Failed, message, d.Namespace, name)
	case r.Updated && r.Available == 0 && o.wrongFor(condition) > downLimit:
		o.AtLeast(operatorv1alpha1.StateError)
		o.Condition(condition, false, operatorv1alpha1.ReasonProcessing, "%s Next: kubectl -n %s describe deployment %s", message, d.Namespace, name)
	default:
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.Condition(condition, false, operatorv1alpha1.ReasonProcessing, "%s", message)
		o.look(downLimit)
	}
	return false
}

// scaledBy says that an autoscaler of somebody else decides the number of pods; "" if none does.
func scaledBy(autoscaler string) string {
	if autoscaler == "" {
		return ""
	}
	return fmt.Sprintf("HorizontalPodAutoscaler %s, which is not the operator's, sets the number of pods. That of the Eventing is not used.", autoscaler)
}

// programs sets the conditions of the controller and of the publisher. The backend is active when
// each pod of the publisher sends to it.
func (d *Rules) programs(w *observed.World, o *Decision, target operatorv1alpha1.BackendType) {
	const manager, proxy = operatorv1alpha1.ConditionSubscriptionManagerReady, operatorv1alpha1.ConditionPublisherProxyReady
	if d.program(w, o, manager, d.Names.Controller(), observed.Controller) && !w.Followed(d.Names) {
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
	complete := d.program(w, o, proxy, d.Names.Publisher(), observed.Publisher)
	if complete && observed.SendsTo(publisher) == target && len(w.SendElsewhere(target)) == 0 {
		o.Active = target
	}
}

// degraded says which pods are not ready. That is no problem of events at first, and has a
// condition of its own: it would be missed in the message of one that is true. Somebody has to act
// when it lasts.
func (d *Rules) degraded(w *observed.World, o *Decision) {
	const condition = operatorv1alpha1.ConditionPodsReady
	var messages []string
	add := func(message string) {
		if message != "" {
			messages = append(messages, message)
		}
	}
	for _, c := range d.known() {
		add(c.degraded(d, w))
	}
	for _, p := range []struct{ of, name, component string }{{"Controller", d.Names.Controller(), observed.Controller}, {"Publisher", d.Names.Publisher(), observed.Publisher}} {
		if dep := rollout.As[appsv1.Deployment](w.Object("Deployment", p.name)); dep != nil {
			r := rollout.Of(dep)
			add(shortOf(w, p.of, "pods", p.component, r.Available, r.Wanted, r.Refused))
		}
	}
	if len(messages) == 0 {
		o.Condition(condition, true, operatorv1alpha1.ReasonAllReady, "")
		return
	}
	if left := downLimit - o.wrongFor(condition); left > 0 {
		o.look(left)
	} else if o.State == "" || o.State == operatorv1alpha1.StateReady {
		o.AtLeast(operatorv1alpha1.StateWarning)
		messages = append(messages, fmt.Sprintf("See why: kubectl -n %s get pods --selector=%s=%s", d.Namespace, backend.PodInstanceLabel, d.Names))
	}
	o.Condition(condition, false, operatorv1alpha1.ReasonDegraded, "%s", strings.Join(messages, " "))
}

// shortOf says how many pods of a component are not ready, and why; "" if all are. refused is why
// they cannot be created.
func shortOf(w *observed.World, of, what, component string, ready, wanted int32, refused string) string {
	if ready >= wanted {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %d of %d %s are ready. %s", of, ready, wanted, what, cmp.Or(refused, rollout.Problem(w.PodsOf(component)))))
}

// stopped deletes the pods of a Deployment, and is true when none is left.
func (d *Rules) stopped(w *observed.World, o *Decision, name, component string) bool {
	running := len(w.PodsOf(component)) > 0
	// The autoscaler goes first. It needs a Deployment.
	for _, kind := range []string{observed.Autoscaler.Kind, "Deployment"} {
		if u := w.Object(kind, name); u != nil {
			o.delete(u)
			running = true
		}
	}
	return !running
}
