// Package rollout reads the progress of the pods of a workload, and the reasons why they are not
// ready.
package rollout

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Rollout is how far a Deployment is.
type Rollout struct {
	// Updated: Kubernetes has seen the newest spec, and no pod of an earlier template is left.
	Updated bool
	// Wanted and available are numbers of pods.
	Wanted, Available int32
	// Paused: pods have to be replaced, and somebody has paused that (kubectl rollout pause).
	Paused bool
	// Failed is why Kubernetes does not expect the roll-out to end any more; "" if it does.
	Failed string
	// Refused is why Kubernetes cannot create pods, such as a quota; "" if it can.
	Refused string
}

// missingAccount is what the API server says of a pod whose ServiceAccount is gone.
var missingAccount = regexp.MustCompile(`serviceaccount "[^"]+" not found`)

// Of reads how far a Deployment is.
func Of(d *appsv1.Deployment) Rollout {
	r := Rollout{Wanted: 1, Available: d.Status.AvailableReplicas}
	if d.Spec.Replicas != nil {
		r.Wanted = *d.Spec.Replicas
	}
	s := d.Status
	r.Updated = d.DeletionTimestamp == nil && s.ObservedGeneration >= d.Generation && s.UpdatedReplicas >= r.Wanted && s.Replicas == s.UpdatedReplicas
	r.Paused = d.Spec.Paused && !r.Updated
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			r.Failed = c.Message
		}
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			r.Refused = "Kubernetes cannot create pods: " + c.Message
			if missingAccount.MatchString(c.Message) {
				// The operator may create no account, so that it can give nobody a permission.
				r.Refused += ". The manifest of the operator has this account. Next: apply it again, as it was installed (kubectl apply --server-side -f eventing-manager.yaml, or helm upgrade)."
			}
		}
	}
	return r
}

// Problem is what keeps a pod from being ready, in the words of Kubernetes; "" if nothing is
// known.
func Problem(pods []corev1.Pod) string {
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

// Awake has a Deployment get pods again that was scaled to 0, if its wanted form leaves their
// number to somebody else: an autoscaler leaves a Deployment without pods as it is. The next apply
// gives the number back. What exists is nil for a new Deployment.
func Awake(wanted, existing *unstructured.Unstructured, least int32) {
	if existing == nil || wanted.GetKind() != "Deployment" {
		return
	}
	replicas := []string{"spec", "replicas"}
	if _, set, _ := unstructured.NestedFieldNoCopy(wanted.Object, replicas...); set {
		return
	}
	if n, set, _ := unstructured.NestedInt64(existing.Object, replicas...); set && n == 0 {
		_ = unstructured.SetNestedField(wanted.Object, int64(least), replicas...) // spec is a map, as it is rendered
	}
}

// measuredAfter is how long an autoscaler may know nothing of pods that have just started: the
// metrics server reads them once in a while.
const measuredAfter = 5 * time.Minute

// Unscaled says of each autoscaler that cannot tell whether pods have to be added, why. nil is an
// autoscaler that is not there.
func Unscaled(now time.Time, autoscalers ...*unstructured.Unstructured) (all []string) {
	for _, u := range autoscalers {
		a := As[autoscalingv2.HorizontalPodAutoscaler](u)
		if a == nil {
			continue
		}
		for _, c := range a.Status.Conditions {
			// Without any pods it is disabled.
			if c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionFalse && c.Reason != "ScalingDisabled" && now.Sub(c.LastTransitionTime.Time) >= measuredAfter {
				all = append(all, fmt.Sprintf("HorizontalPodAutoscaler %s adds no pods: %s. Install the metrics server, or see why it does not answer: kubectl get apiservices v1beta1.metrics.k8s.io", a.Name, c.Message))
			}
		}
	}
	return all
}

// Done says whether a StatefulSet is rolled out: the controller has seen its newest spec, and
// each pod has it and is ready.
func Done(sts *appsv1.StatefulSet) bool {
	return sts != nil && sts.Status.ObservedGeneration >= sts.Generation && sts.Status.UpdateRevision == sts.Status.CurrentRevision &&
		sts.Status.ReadyReplicas == *sts.Spec.Replicas && sts.Status.Replicas == *sts.Spec.Replicas
}

// As is an object as its type, without the templates of its pods and volumes: they say nothing of
// progress, and are most of what there is to convert. nil if there is none.
func As[T any](u *unstructured.Unstructured) *T {
	if u == nil {
		return nil
	}
	fields := u.Object
	if spec, ok := fields["spec"].(map[string]any); ok {
		spec = maps.Clone(spec)
		delete(spec, "template")
		delete(spec, "volumeClaimTemplates")
		fields = maps.Clone(fields)
		fields["spec"] = spec
	}
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, typed); err != nil {
		return nil
	}
	return typed
}
