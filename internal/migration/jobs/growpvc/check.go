package growpvc

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// adopted is the condition that the new StatefulSet owns all the pods.
func adopted(ch *migration.Change) migration.Condition {
	ref := ch.Ref
	selector := selectorOf(ch.Object)
	return migration.Condition{
		Text: "it to adopt its pods", On: []migration.Subject{ref.Subject(), {GroupKind: pods.GroupKind(), Namespace: ref.Namespace}},
		Eval: func(v migration.View) migration.Status {
			set := v.Get(ref.Subject())
			if set == nil {
				// The watch may not have come to the new one yet.
				return migration.Status{Message: "it is not there", Note: "Find out who deletes it, and run the job again.", Command: show(ref)}
			}
			if seen, _, _ := unstructured.NestedInt64(set.Object, "status", "observedGeneration"); seen < set.GetGeneration() {
				return migration.Status{Message: "its controller has not seen it yet", Note: "Check that kube-controller-manager runs.", Command: show(ref)}
			}
			for _, pod := range v.List(pods.GroupKind(), ref.Namespace) {
				if !selector.Matches(labels.Set(pod.GetLabels())) || pod.GetDeletionTimestamp() != nil {
					continue
				}
				if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != set.GetUID() {
					return migration.Status{Message: fmt.Sprintf("Pod %s/%s is not adopted yet", pod.GetNamespace(), pod.GetName())}
				}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

func selectorOf(set *unstructured.Unstructured) labels.Selector {
	raw, _, _ := unstructured.NestedMap(set.Object, "spec", "selector")
	given := metav1.LabelSelector{}
	if b, err := json.Marshal(raw); err != nil || json.Unmarshal(b, &given) != nil {
		return labels.Nothing()
	}
	selector, err := metav1.LabelSelectorAsSelector(&given)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// grown is the condition that a claim's volume has its size. The change says which,
// also in another process; what was growing already goes to the size asked for.
func grown(ch *migration.Change, asked string) migration.Condition {
	ref := ch.Ref
	want := asked
	patch := map[string]any{}
	if len(ch.Patch) > 0 && json.Unmarshal(ch.Patch, &patch) == nil {
		want, _, _ = unstructured.NestedString(patch, "spec", "resources", "requests", "storage")
	}
	size, err := resource.ParseQuantity(want)
	return migration.Condition{
		Text: "its volume to grow to " + want, On: []migration.Subject{ref.Subject()},
		Eval: func(v migration.View) migration.Status {
			claim := v.Get(ref.Subject())
			switch {
			case err != nil:
				return migration.Status{State: migration.Failed, Message: err.Error()}
			case claim == nil:
				return migration.Status{State: migration.Failed, Message: "it was deleted meanwhile"}
			case isGrown(claim, size):
				return migration.Status{State: migration.Met}
			}
			capacity, _, _ := unstructured.NestedString(claim.Object, "status", "capacity", "storage")
			const note = "Its Events say what the provisioner does."
			for _, kind := range []string{"ControllerResizeError", "NodeResizeError"} {
				if c := conditionOf(claim, kind); c != nil {
					return migration.Status{Message: fmt.Sprintf("%s: %v", kind, c["message"]), Note: note, Command: show(ref)}
				}
			}
			return migration.Status{Message: fmt.Sprintf("its volume has %s", capacity), Note: note, Command: show(ref)}
		},
	}
}
