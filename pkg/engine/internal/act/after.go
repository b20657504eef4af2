package act

import (
	"fmt"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// After returns what the engine itself waits for after a change, in addition to the
// job's conditions.
func (a *Actor) After(s journal.Step) []migration.Condition {
	switch s.Verb {
	case migration.Delete:
		if s.Pre().Object == nil {
			return nil
		}
		uid := s.Pre().Object.GetUID()
		if discarded := s.Unusable(); discarded != "" {
			uid = discarded
		}
		return []migration.Condition{Gone(s.Ref, uid, s.Change)}
	case migration.Restart:
		replaced := s.Pre().Pods
		return []migration.Condition{{
			Text: "its pods to be replaced", Timeout: s.Timeout,
			On: []migration.Subject{{GroupKind: migration.Pods.GroupKind(), Namespace: s.Ref.Namespace}, s.Ref.Subject()},
			Eval: func(v migration.View) migration.Status {
				for _, pod := range v.List(migration.Pods.GroupKind(), s.Ref.Namespace) {
					for _, uid := range replaced {
						if pod.GetUID() == uid {
							return migration.Status{Message: "Pod " + pod.GetName() + " is terminating"}
						}
					}
				}
				deployment := v.Get(s.Ref.Subject())
				if deployment == nil {
					return migration.Status{State: migration.Failed, Message: "the Deployment is gone"}
				}
				result, err := status.Compute(deployment)
				switch {
				case err != nil:
					return migration.Status{Message: err.Error()}
				case result.Status == status.FailedStatus:
					return migration.Status{State: migration.Failed, Message: result.Message}
				case result.Status != status.CurrentStatus:
					return migration.Status{Message: result.Message}
				}
				if s.Late != nil {
					return replicasReady(v, s.Ref.Namespace, deployment)
				}
				return migration.Status{State: migration.Met}
			},
		}}
	}
	return nil
}

// replicasReady says whether a Deployment has its pods, by the pods themselves:
// its status may be about those that went.
func replicasReady(v migration.View, namespace string, deployment *unstructured.Unstructured) migration.Status {
	want, found, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if err != nil || !found {
		want = 1
	}
	selector, err := write.SelectorOf(deployment)
	if err != nil {
		return migration.Status{State: migration.Failed, Message: err.Error()}
	}
	ready := int64(0)
	for _, pod := range v.List(migration.Pods.GroupKind(), namespace) {
		if pod.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(pod.GetLabels())) && isReady(pod) {
			ready++
		}
	}
	if ready < want {
		return migration.Status{Message: fmt.Sprintf("%d of its %s ready", ready, migration.Count(int(want), "pod"))}
	}
	return migration.Status{State: migration.Met}
}

func isReady(pod *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Ready" && condition["status"] == "True"
	})
}

// Gone is the condition that the object of that UID does not exist any more.
func Gone(ref migration.Ref, uid types.UID, ch *migration.Change) migration.Condition {
	return migration.Condition{
		Text: "its deletion to end", On: []migration.Subject{ref.Subject()}, Timeout: ch.Timeout,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref.Subject())
			if obj == nil || obj.GetUID() != uid {
				return migration.Status{State: migration.Met}
			}
			if finalizers := obj.GetFinalizers(); len(finalizers) > 0 {
				return migration.Status{
					Message: fmt.Sprintf("it still has the finalizers %q", finalizers),
					Note:    "Start the controller that owns the finalizer, and run the job again. If there is none any more, remove the finalizer:",
					Command: removeFinalizersCommand(ref),
				}
			}
			return migration.Status{Message: "it still exists"}
		},
	}
}

// removeFinalizersCommand removes all finalizers of an object.
func removeFinalizersCommand(ref migration.Ref) string {
	return migration.Kubectl(ref.Namespace, "patch", ref.GroupResource().String(), ref.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// Waits says whether any change of the unit is waited for.
func (a *Actor) Waits(u *migration.Unit) bool {
	for i := range u.Changes {
		if u.Changes[i].Verb == migration.Delete || u.Changes[i].Verb == migration.Restart || len(a.Job.Await(&u.Changes[i])) > 0 {
			return true
		}
	}
	return false
}
