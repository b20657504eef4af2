package eventpath

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// readyAddressedStatus is k8sobject.ReadyStatus of what has an address, too: all share it, and
// nothing may change it.
var readyAddressedStatus = map[string]any{
	"conditions": k8sobject.ReadyStatus["conditions"],
	"address":    map[string]any{"url": "trimmed:"},
}

// TrimTo keeps of an object what this package reads and what identifies it, so
// that 5,000 of each kind take some 20 MiB: a map takes a third of a KiB however
// little is in it, and what is left of a ready Channel or adapter is three. All of
// the objects are of the same namespace.
//
// If whole, all that people edit is kept, too: of what is written, the engine compares it
// with its journal before it deletes one.
func TrimTo(of schema.GroupVersion, kind, namespace string, whole bool) func(*unstructured.Unstructured) {
	// Made once, since turning a string into an interface value allocates.
	var apiVersion, name, ns any = of.String(), kind, namespace
	return func(obj *unstructured.Unstructured) {
		trimmed := map[string]any{"apiVersion": apiVersion, "kind": name, "metadata": trimMeta(obj, ns, whole)}
		if spec, ok := obj.Object["spec"]; ok && whole {
			trimmed["spec"] = spec
		}
		trimStatus(obj)
		if status, ok := obj.Object["status"]; ok {
			trimmed["status"] = status
		}
		obj.Object = trimmed
	}
}

func trimMeta(obj *unstructured.Unstructured, namespace any, whole bool) map[string]any {
	from, _ := obj.Object["metadata"].(map[string]any)
	meta := map[string]any{"namespace": namespace}
	keep := []string{"name", "uid", "resourceVersion", "generation", "deletionTimestamp", "finalizers"}
	if whole {
		keep = append(keep, "labels", "annotations", "ownerReferences")
	}
	for _, key := range keep {
		if v, ok := from[key]; ok {
			meta[key] = v
		}
	}
	if whole {
		return meta
	}
	references, _ := from["ownerReferences"].([]any)
	for _, r := range references {
		if reference, _ := r.(map[string]any); reference["controller"] == true {
			meta["ownerReferences"] = []any{trimOwner(reference, meta["name"])}
		}
	}
	return meta
}

// trimOwner copies an owner reference, sharing what is the same in all: an owner
// of the kind HTTPSource mostly has the name of the object.
func trimOwner(reference map[string]any, name any) map[string]any {
	owner := map[string]any{"controller": true, "uid": reference["uid"]}
	for key, likely := range map[string]any{"kind": kyma.HTTPSource.Kind, "name": name, "apiVersion": kyma.HTTPSource.Group + "/v1alpha1"} {
		if owner[key] = reference[key]; owner[key] == likely {
			owner[key] = likely
		}
	}
	return owner
}

// trimStatus is k8sobject.TrimStatus. Of what is ready, that it has an address is all that is read
// of the address.
func trimStatus(obj *unstructured.Unstructured) {
	if kyma.Addressed(obj) && k8sobject.ReadinessOf(obj).OK() {
		obj.Object["status"] = readyAddressedStatus
		return
	}
	k8sobject.TrimStatus(obj)
}
