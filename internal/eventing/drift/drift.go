// Package drift detects whether a live object differs from the applied one. It ignores fields that
// others have added.
package drift

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// appliedAnnotation has a hash of what was applied. If it differs from what is rendered now, a
// field may have been removed since.
const appliedAnnotation = "eventing.kyma-project.io/applied"

// Seal adds the annotations that each rendered object gets at last: the epoch, and the hash of the
// rest.
func Seal(u *unstructured.Unstructured, epoch string) {
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[backend.EpochAnnotation] = epoch
	u.SetAnnotations(annotations)
	raw, err := json.Marshal(u.Object)
	if err != nil {
		panic(err) // it came from YAML
	}
	sum := sha256.Sum256(raw)
	annotations[appliedAnnotation] = hex.EncodeToString(sum[:8])
	u.SetAnnotations(annotations)
}

// Drifted tells whether a live object is not as it is wanted: a field that is wanted has another
// value, or one that was wanted before is not wanted any more. What others have added does not
// count.
func Drifted(want, is *unstructured.Unstructured) bool {
	return !covers(want.Object, is.Object)
}

// covers tells whether is has all that want has. Items of lists of objects may be in any order,
// with others between them, as server-side apply leaves them.
func covers(want, is any) bool { return covered(want, is, false) }

// covered is covers; quantities says that texts are quantities.
func covered(want, is any, quantities bool) bool {
	switch want := want.(type) {
	case map[string]any:
		is, _ := is.(map[string]any)
		for key, value := range want {
			if !covered(value, is[key], quantities || ofQuantities(key)) {
				return false
			}
		}
		return true
	case []any:
		is, _ := is.([]any)
		if len(want) > 0 && isObject(want[0]) {
			for _, item := range want {
				if !slices.ContainsFunc(is, func(has any) bool { return covered(item, has, quantities) }) {
					return false
				}
			}
			return true
		}
		return slices.EqualFunc(want, is, func(a, b any) bool { return covered(a, b, quantities) })
	case nil:
		return is == nil
	case string:
		has, _ := is.(string) // the API server leaves empty texts out
		return want == has || quantities && k8sutil.SameQuantity(want, has)
	case bool:
		has, _ := is.(bool)
		return want == has
	default:
		return k8sutil.SameNumber(want, is)
	}
}

// ofQuantities tells whether a field has quantities, whose texts may differ.
func ofQuantities(key string) bool { return key == "requests" || key == "limits" }

// Overlay is what is, with all that want has. Lists are those of want.
func Overlay(is, want map[string]any) map[string]any {
	out := maps.Clone(is)
	for key, value := range want {
		below, ok := value.(map[string]any)
		under, same := out[key].(map[string]any)
		if ok && same {
			value = Overlay(under, below)
		}
		out[key] = value
	}
	return out
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// LastWrite is when an owner of fields last changed an object, by the clock of the API server; zero
// if that is not known.
func LastWrite(u *unstructured.Unstructured, owner string) (at metav1.Time) {
	for _, m := range u.GetManagedFields() {
		if m.Manager == owner && m.Time != nil && at.Before(m.Time) {
			at = *m.Time
		}
	}
	return at
}
