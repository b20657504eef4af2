package drift

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// immutable are the fields of a StatefulSet that the API server does not change, and that a version
// of the operator may render in another way. The selector is none of them: pods with other labels
// would not be found again.
var immutable = [][]string{{"spec", "serviceName"}, {"spec", "podManagementPolicy"}, {"spec", "volumeClaimTemplates"}}

// Unchangeable names the immutable fields in which a StatefulSet is not as it is wanted. It is
// empty if another StatefulSet could not take over the pods, or would give them other volumes: then
// nothing may be replaced.
func Unchangeable(want, is *unstructured.Unstructured) (fields []string) {
	if want.GetKind() != "StatefulSet" || differs(want, is, "spec", "selector") || !slices.Equal(volumes(want), volumes(is)) {
		return nil
	}
	for _, field := range immutable {
		if differs(want, is, field...) {
			fields = append(fields, strings.Join(field, "."))
		}
	}
	return fields
}

func volumes(u *unstructured.Unstructured) (names []string) {
	templates, _, _ := unstructured.NestedSlice(u.Object, "spec", "volumeClaimTemplates")
	for _, template := range templates {
		one, _ := template.(map[string]any)
		name, _, _ := unstructured.NestedString(one, "metadata", "name")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// differs tells whether one field is not as it is wanted.
func differs(want, is *unstructured.Unstructured, path ...string) bool {
	field := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		return &unstructured.Unstructured{Object: map[string]any{"field": value}}
	}
	return Drifted(field(want), field(is))
}
