package eventbus

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

const (
	// ControllerPace is how many Kyma Subscriptions the subscription-controller of
	// Kyma 1.10 deletes in a second. It is measured: the controller may make 15
	// requests a second, and needs 10 of them for each deletion at best.
	ControllerPace = 1.5
	// steadyFor is how long no container of the controller may have restarted for it
	// to count as running: one that crashes at each start is ready in between.
	steadyFor = 5 * time.Minute
	// ReplicasAnnotation keeps on the Deployment how many replicas it had before
	// this job scaled it to 0, in the same patch. A run that finds it restores them.
	ReplicasAnnotation = "eventmesh-migration.kyma-project.io/trigger-sync-replicas"
)

// ControllerRef names the subscription-controller.
var ControllerRef = migration.Ref{Resource: deployments, Namespace: kyma.SystemNamespace, Name: kyma.SubscriptionController}

// Show is the command that shows the controller and its pods.
func Show() string {
	return migration.Kubectl(ControllerRef.Namespace, "get", "deployment,pods", "-l", "app.kubernetes.io/name=subscription-controller")
}

// PreviousLog is the command that shows why the controller ended the last time.
func PreviousLog() string {
	return migration.Kubectl(ControllerRef.Namespace, "logs", "deployment/"+ControllerRef.Name, "--previous")
}

// Controller is the subscription-controller of the Event Bus as it is now.
type Controller struct {
	// Deployment is nil if there is none.
	Deployment *unstructured.Unstructured
	// Pods that exist, terminating ones included.
	Pods []*unstructured.Unstructured
}

// NewController returns the controller of a Deployment, which may be nil, with those of
// the Pods that belong to it.
func NewController(deployment *unstructured.Unstructured, sets, pods []*unstructured.Unstructured) Controller {
	if deployment != nil && deployment.GetDeletionTimestamp() != nil {
		deployment = nil
	}
	return Controller{deployment, k8sutil.PodsOfDeployment(kyma.SubscriptionController, deployment, sets, pods)}
}

// ControllerSubjects are the objects that say how the controller is.
func ControllerSubjects() []migration.Subject {
	return []migration.Subject{
		ControllerRef.Subject(), {GroupKind: replicaSets.GroupKind(), Namespace: ControllerRef.Namespace}, {GroupKind: pods.GroupKind(), Namespace: ControllerRef.Namespace},
	}
}

// ControllerOf is the controller in a view of ControllerSubjects.
func ControllerOf(v migration.View) Controller {
	return NewController(v.Get(ControllerRef.Subject()), v.List(replicaSets.GroupKind(), ControllerRef.Namespace), v.List(pods.GroupKind(), ControllerRef.Namespace))
}

// Crashes says which container the kubelet starts only after a pause, since it ended at each
// start; "" if none.
func (c Controller) Crashes() string {
	for _, pod := range c.Pods {
		statuses, _ := k8sobject.MapAt(pod.Object, "status")["containerStatuses"].([]any)
		for _, s := range statuses {
			status, _ := s.(map[string]any)
			if reason := k8sobject.Text(k8sobject.MapAt(status, "state", "waiting")["reason"]); pod.GetDeletionTimestamp() == nil && reason == "CrashLoopBackOff" {
				return fmt.Sprintf("container %s of Pod %s/%s, %s", k8sobject.Text(status["name"]), pod.GetNamespace(), pod.GetName(), reason)
			}
		}
	}
	return ""
}

// Replicas is what it is to have.
func (c Controller) Replicas() int64 {
	if c.Deployment == nil {
		return 0
	}
	return Replicas(c.Deployment)
}

// Former is how many replicas it had before this job scaled it to 0; 0 if this job
// did not.
func (c Controller) Former() int64 {
	if c.Deployment == nil {
		return 0
	}
	n, err := strconv.ParseInt(c.Deployment.GetAnnotations()[ReplicasAnnotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// Stopped says whether nothing of it runs, or will.
func (c Controller) Stopped() bool { return c.Replicas() == 0 && len(c.Pods) == 0 }

// Problem says why it does not run, although it has replicas; "" if it runs.
func (c Controller) Problem(now time.Time) string {
	if len(c.Pods) == 0 {
		return "none of its pods exists"
	}
	ready := 0
	for _, pod := range c.Pods {
		if pod.GetDeletionTimestamp() != nil {
			continue
		}
		if why := restarted(pod, now); why != "" {
			return why
		}
		if k8sobject.ConditionOf(pod, "Ready").True() {
			ready++
		}
	}
	if ready == 0 {
		return fmt.Sprintf("none of its pods is ready (Pod %s/%s)", c.Pods[0].GetNamespace(), c.Pods[0].GetName())
	}
	return ""
}

// restarted says which container of a Pod restarted lately, "" if none did.
func restarted(pod *unstructured.Unstructured, now time.Time) string {
	statuses, _ := k8sobject.MapAt(pod.Object, "status")["containerStatuses"].([]any)
	for _, s := range statuses {
		status, _ := s.(map[string]any)
		count, _ := status["restartCount"].(int64)
		if count == 0 {
			continue
		}
		for _, at := range []string{
			k8sobject.Text(k8sobject.MapAt(status, "lastState", "terminated")["finishedAt"]),
			k8sobject.Text(k8sobject.MapAt(status, "state", "terminated")["finishedAt"]),
			k8sobject.Text(k8sobject.MapAt(status, "state", "running")["startedAt"]),
		} {
			if when, err := time.Parse(time.RFC3339, at); err == nil && now.Sub(when) < steadyFor {
				return fmt.Sprintf("container %s of Pod %s/%s restarted %s, the last time less than %s ago",
					k8sobject.Text(status["name"]), pod.GetNamespace(), pod.GetName(), migration.Count(int(count), "time"), strings.TrimSuffix(steadyFor.String(), "0s"))
			}
		}
	}
	return ""
}

// ScaleDown takes the controller to 0 for the run.
func (c Controller) ScaleDown(why string) migration.Unit {
	n := strconv.FormatInt(c.Replicas(), 10)
	return migration.Unit{ID: ControllerRef.String(), Independent: true, Changes: []migration.Change{{
		Verb: migration.Patch, Ref: ControllerRef, UID: c.Deployment.GetUID(), Why: why,
		Patch:  scalePatch(n, 0),
		Object: c.basis(c.Deployment.GetAnnotations()[ReplicasAnnotation], c.Replicas()),
	}}}
}

// Restore gives it its former replicas again. It is asked first whether it is still
// as this job left it: who scaled it meanwhile has decided.
func (c Controller) Restore(n int64) migration.Unit {
	return migration.Unit{ID: ControllerRef.String() + " again", Independent: true, Changes: []migration.Change{{
		Verb: migration.Patch, Ref: ControllerRef, UID: c.Deployment.GetUID(), Guard: true,
		Why:    "it was scaled to 0 for the deletions only",
		Patch:  scalePatch(nil, n),
		Object: c.basis(strconv.FormatInt(n, 10), 0),
	}}}
}

func scalePatch(annotation any, replicas int64) json.RawMessage {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{ReplicasAnnotation: annotation}},
		"spec":     map[string]any{"replicas": replicas},
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return patch
}

// basis is what a patch of the replicas is decided on.
func (c Controller) basis(annotation string, replicas int64) *unstructured.Unstructured {
	basis := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": replicas},
	}}
	basis.SetNamespace(ControllerRef.Namespace)
	basis.SetName(ControllerRef.Name)
	basis.SetUID(c.Deployment.GetUID())
	if annotation != "" {
		basis.SetAnnotations(map[string]string{ReplicasAnnotation: annotation})
	}
	return basis
}

// Stops says whether a change scales to 0.
func Stops(ch *migration.Change) bool {
	var patch struct {
		Spec struct {
			Replicas *int64 `json:"replicas"`
		} `json:"spec"`
	}
	return json.Unmarshal(ch.Patch, &patch) == nil && patch.Spec.Replicas != nil && *patch.Spec.Replicas == 0
}

// AtZero is met when the controller is at 0 and no pod of it exists. What waits for
// it (an Await) is also let go when somebody scales it up again after this job
// scaled it down: the recheck then says that it runs.
func AtZero(ch *migration.Change) migration.Condition {
	var wasDown atomic.Bool
	return migration.Condition{
		Text: fmt.Sprintf("the pods of %s to end", ControllerRef),
		On:   ControllerSubjects(),
		Eval: func(v migration.View) migration.Status {
			c := ControllerOf(v)
			pending := func(format string, args ...any) migration.Status {
				return migration.Status{Message: fmt.Sprintf(format, args...), Note: "Check why its pods do not end.", Command: Show()}
			}
			switch {
			case c.Replicas() == 0:
				wasDown.Store(true)
			case ch.Verb == migration.Await && c.Former() > 0:
				return migration.Status{State: migration.Met}
			case wasDown.Load():
				return migration.Status{State: migration.Failed, Message: fmt.Sprintf("somebody scaled it up again, to %d", c.Replicas()),
					Note: "Find out what scales it: an upgrade of the event-bus chart, an autoscaler, or a GitOps tool. Then run the job again.", Command: Show()}
			default:
				return pending("it still has %s", migration.Count(int(c.Replicas()), "replica"))
			}
			if c.Deployment != nil {
				if observed, _, _ := unstructured.NestedInt64(c.Deployment.Object, "status", "observedGeneration"); observed < c.Deployment.GetGeneration() {
					return pending("the controller of Deployments has not noticed the change yet")
				}
			}
			if len(c.Pods) > 0 {
				return pending("Pod %s/%s still exists", c.Pods[0].GetNamespace(), c.Pods[0].GetName())
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// trimPod keeps of a Pod what says whose it is, and whether it runs.
func trimPod(obj *unstructured.Unstructured) {
	k8sobject.TrimMeta(obj)
	delete(k8sobject.MapAt(obj.Object, "metadata"), "annotations")
	delete(obj.Object, "spec")
	status := k8sobject.MapAt(obj.Object, "status")
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
	k8sobject.TrimMeta(obj)
	delete(obj.Object, "spec")
	delete(obj.Object, "status")
}

// trimScaled keeps of a Deployment how many pods it is to have.
func trimScaled(obj *unstructured.Unstructured) {
	k8sobject.TrimMeta(obj)
	delete(k8sobject.MapAt(obj.Object, "spec"), "template")
}

// Replicas is what a Deployment must have; the API server's default is 1.
func Replicas(deployment *unstructured.Unstructured) int64 {
	n, found, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if err != nil || !found {
		return 1
	}
	return n
}
