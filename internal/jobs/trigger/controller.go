package trigger

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

const (
	// controllerPace is how many Kyma Subscriptions the subscription-controller of
	// Kyma 1.10 deletes in a second. It is measured: the controller may make 15
	// requests a second, and needs 10 of them for each deletion at best.
	controllerPace = 1.5
	// steadyFor is how long no container of the controller may have restarted for it
	// to count as running: one that crashes at each start is ready in between.
	steadyFor = 5 * time.Minute
	// replicasAnnotation keeps on the Deployment how many replicas it had before
	// this job scaled it to 0, in the same patch. A run that finds it restores them.
	replicasAnnotation = "eventmesh-migration.kyma-project.io/trigger-sync-replicas"
)

var controllerRef = migration.Ref{Resource: deployments, Namespace: kyma.SystemNamespace, Name: kyma.SubscriptionController}

// controller is the subscription-controller of the Event Bus as it is now.
type controller struct {
	// deployment is nil if there is none.
	deployment *unstructured.Unstructured
	// pods that exist, terminating ones included.
	pods []*unstructured.Unstructured
}

func newController(deployment *unstructured.Unstructured, sets, pods []*unstructured.Unstructured) controller {
	if deployment != nil && deployment.GetDeletionTimestamp() != nil {
		deployment = nil
	}
	return controller{deployment, k8sutil.PodsOfDeployment(kyma.SubscriptionController, deployment, sets, pods)}
}

// replicas is what it is to have.
func (c controller) replicas() int64 {
	if c.deployment == nil {
		return 0
	}
	return replicas(c.deployment)
}

// former is how many replicas it had before this job scaled it to 0; 0 if this job
// did not.
func (c controller) former() int64 {
	if c.deployment == nil {
		return 0
	}
	n, err := strconv.ParseInt(c.deployment.GetAnnotations()[replicasAnnotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// stopped says whether nothing of it runs, or will.
func (c controller) stopped() bool { return c.replicas() == 0 && len(c.pods) == 0 }

// problem says why it does not run, although it has replicas; "" if it runs.
func (c controller) problem(now time.Time) string {
	if len(c.pods) == 0 {
		return "none of its pods exists"
	}
	ready := 0
	for _, pod := range c.pods {
		if pod.GetDeletionTimestamp() != nil {
			continue
		}
		if why := restarted(pod, now); why != "" {
			return why
		}
		if podReady(pod) {
			ready++
		}
	}
	if ready == 0 {
		return fmt.Sprintf("none of its pods is ready (Pod %s/%s)", c.pods[0].GetNamespace(), c.pods[0].GetName())
	}
	return ""
}

func podReady(pod *unstructured.Unstructured) bool {
	conditions, _ := kyma.MapAt(pod.Object, "status")["conditions"].([]any)
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Ready" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// restarted says which container of a Pod restarted lately, "" if none did.
func restarted(pod *unstructured.Unstructured, now time.Time) string {
	statuses, _ := kyma.MapAt(pod.Object, "status")["containerStatuses"].([]any)
	for _, s := range statuses {
		status, _ := s.(map[string]any)
		count, _ := status["restartCount"].(int64)
		if count == 0 {
			continue
		}
		for _, at := range []string{
			kyma.Text(kyma.MapAt(status, "lastState", "terminated")["finishedAt"]),
			kyma.Text(kyma.MapAt(status, "state", "terminated")["finishedAt"]),
			kyma.Text(kyma.MapAt(status, "state", "running")["startedAt"]),
		} {
			if when, err := time.Parse(time.RFC3339, at); err == nil && now.Sub(when) < steadyFor {
				return fmt.Sprintf("container %s of Pod %s/%s restarted %d times, the last time less than %s ago",
					kyma.Text(status["name"]), pod.GetNamespace(), pod.GetName(), count, round(steadyFor))
			}
		}
	}
	return ""
}

// scaleDown takes the controller to 0 for the run.
func (c controller) scaleDown(why string) migration.Unit {
	n := strconv.FormatInt(c.replicas(), 10)
	return migration.Unit{ID: controllerRef.String(), Independent: true, Changes: []migration.Change{{
		Verb: migration.Patch, Ref: controllerRef, UID: c.deployment.GetUID(), Why: why,
		Patch:  scalePatch(n, 0),
		Object: c.basis(c.deployment.GetAnnotations()[replicasAnnotation], c.replicas()),
	}}}
}

// restore gives it its former replicas again. It is asked first whether it is still
// as this job left it: who scaled it meanwhile has decided.
func (c controller) restore(n int64) migration.Unit {
	return migration.Unit{ID: controllerRef.String() + " again", Independent: true, Changes: []migration.Change{{
		Verb: migration.Patch, Ref: controllerRef, UID: c.deployment.GetUID(), Guard: true,
		Why:    "it was scaled to 0 for the deletions only",
		Patch:  scalePatch(nil, n),
		Object: c.basis(strconv.FormatInt(n, 10), 0),
	}}}
}

func scalePatch(annotation any, replicas int64) json.RawMessage {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{replicasAnnotation: annotation}},
		"spec":     map[string]any{"replicas": replicas},
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return patch
}

// basis is what a patch of the replicas is decided on.
func (c controller) basis(annotation string, replicas int64) *unstructured.Unstructured {
	basis := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": replicas},
	}}
	basis.SetNamespace(controllerRef.Namespace)
	basis.SetName(controllerRef.Name)
	basis.SetUID(c.deployment.GetUID())
	if annotation != "" {
		basis.SetAnnotations(map[string]string{replicasAnnotation: annotation})
	}
	return basis
}

// stops says whether a change scales to 0.
func stops(ch *migration.Change) bool {
	var patch struct {
		Spec struct {
			Replicas *int64 `json:"replicas"`
		} `json:"spec"`
	}
	return json.Unmarshal(ch.Patch, &patch) == nil && patch.Spec.Replicas != nil && *patch.Spec.Replicas == 0
}

// atZero is met when the controller is at 0 and no pod of it exists. What waits for
// it (an Await) is also let go when somebody scales it up again after this job
// scaled it down: the recheck then says that it runs.
func atZero(ch *migration.Change) migration.Condition {
	var wasDown atomic.Bool
	return migration.Condition{
		Text: fmt.Sprintf("the pods of %s to end", controllerRef),
		On: []migration.Subject{
			controllerRef.Subject(), {GroupKind: replicaSets.GroupKind(), Namespace: controllerRef.Namespace}, {GroupKind: pods.GroupKind(), Namespace: controllerRef.Namespace},
		},
		Eval: func(v migration.View) migration.Status {
			c := newController(v.Get(controllerRef.Subject()), v.List(replicaSets.GroupKind(), controllerRef.Namespace), v.List(pods.GroupKind(), controllerRef.Namespace))
			hint := fmt.Sprintf("kubectl -n %s get deployment,pods -l app.kubernetes.io/name=subscription-controller", controllerRef.Namespace)
			switch {
			case c.replicas() == 0:
				wasDown.Store(true)
			case ch.Verb == migration.Await && c.former() > 0:
				return migration.Status{State: migration.Met}
			case wasDown.Load():
				return migration.Status{State: migration.Failed, Message: fmt.Sprintf("somebody scaled it up again, to %d", c.replicas()),
					Hint: "find out who: an upgrade of the event-bus chart, an autoscaler, or a GitOps tool; then run again"}
			default:
				return migration.Status{Message: fmt.Sprintf("it still has %d replicas", c.replicas()), Hint: hint}
			}
			if c.deployment != nil {
				if observed, _, _ := unstructured.NestedInt64(c.deployment.Object, "status", "observedGeneration"); observed < c.deployment.GetGeneration() {
					return migration.Status{Message: "the controller of Deployments has not noticed the change yet", Hint: hint}
				}
			}
			if len(c.pods) > 0 {
				return migration.Status{Message: fmt.Sprintf("Pod %s/%s still exists", c.pods[0].GetNamespace(), c.pods[0].GetName()), Hint: hint}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// trimPod keeps of a Pod what says whose it is, and whether it runs.
func trimPod(obj *unstructured.Unstructured) {
	trimMeta(obj)
	delete(kyma.MapAt(obj.Object, "metadata"), "annotations")
	delete(obj.Object, "spec")
	status := kyma.MapAt(obj.Object, "status")
	kept := map[string]any{}
	for _, key := range []string{"phase", "conditions", "containerStatuses"} {
		if v, ok := status[key]; ok {
			kept[key] = v
		}
	}
	obj.Object["status"] = kept
}

// trimOwned keeps of a ReplicaSet whose it is.
func trimOwned(obj *unstructured.Unstructured) {
	trimMeta(obj)
	delete(obj.Object, "spec")
	delete(obj.Object, "status")
}

// trimScaled keeps of a Deployment how many pods it is to have.
func trimScaled(obj *unstructured.Unstructured) {
	trimMeta(obj)
	delete(kyma.MapAt(obj.Object, "spec"), "template")
}
