package k8sobject

import (
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TrimAnnotations removes the annotations, unless one of these keys is among them: they may have
// 262,144 bytes, and with the copy of the whole object that kubectl apply keeps they are as long as
// the object. It saves room where an object is only read, never where it may be restored from what
// was read.
func TrimAnnotations(obj *unstructured.Unstructured, unless ...string) {
	meta, _ := obj.Object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if !slices.ContainsFunc(unless, func(key string) bool { return annotations[key] != nil }) {
		delete(meta, "annotations")
	}
}

// TrimMeta removes what the API server sets and nobody here reads. Kind, version and
// namespace are the same in many objects, which then share the strings. What is left is copied: a
// map keeps the room of what was deleted from it, here more than half.
func TrimMeta(obj *unstructured.Unstructured) {
	kept := map[string]any{}
	for key, value := range MapAt(obj.Object, "metadata") {
		if !slices.Contains([]string{"creationTimestamp", "selfLink", "managedFields"}, key) {
			kept[key] = value
		}
	}
	obj.Object["metadata"] = kept
	obj.Object["apiVersion"] = unique.Make(obj.GetAPIVersion()).Value()
	obj.Object["kind"] = unique.Make(obj.GetKind()).Value()
	kept["namespace"] = unique.Make(obj.GetNamespace()).Value()
}

// ReadyStatus is what TrimStatus keeps of what is ready: all share it, and nothing may change it.
var ReadyStatus = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}

// TrimStatus keeps of a status whether the object is ready, and why not, and where it takes and
// sends events.
func TrimStatus(obj *unstructured.Unstructured) {
	status := MapAt(obj.Object, "status")
	if status == nil {
		return
	}
	if address := MapAt(status, "address"); ReadinessOf(obj).OK() && Text(status["subscriberURI"]) == "" && address == nil {
		obj.Object["status"] = ReadyStatus
		return
	}
	kept := map[string]any{}
	for _, key := range []string{"observedGeneration", "subscriberURI", "address"} {
		if v, ok := status[key]; ok {
			kept[key] = v
		}
	}
	conditions, _ := status["conditions"].([]any)
	for _, one := range conditions {
		if condition, _ := one.(map[string]any); condition["type"] == "Ready" {
			delete(condition, "lastTransitionTime")
			kept["conditions"] = []any{condition}
		}
	}
	obj.Object["status"] = kept
}
