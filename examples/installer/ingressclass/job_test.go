package ingressclass_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.org/installer/ingressclass"
)

func ingress(name, annotation, class string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	obj.SetNamespace("shop")
	obj.SetName(name)
	if annotation != "" {
		obj.SetAnnotations(map[string]string{ingressclass.Annotation: annotation})
	}
	if class != "" {
		obj.Object["spec"] = map[string]any{"ingressClassName": class}
	}
	return obj
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		reason string
		obj    *unstructured.Unstructured
		// patch is that of the one change, "" if nothing is to be done.
		patch    string
		findings int
	}{
		{
			reason: "the annotation goes, and the field comes", obj: ingress("web", "nginx", ""),
			patch: `{"metadata":{"annotations":{"kubernetes.io/ingress.class":null}},"spec":{"ingressClassName":"nginx"}}`,
		},
		{
			reason: "both say the same: the annotation goes", obj: ingress("web", "nginx", "nginx"),
			patch: `{"metadata":{"annotations":{"kubernetes.io/ingress.class":null}},"spec":{"ingressClassName":"nginx"}}`,
		},
		{reason: "a migrated one is left alone", obj: ingress("web", "", "nginx")},
		{reason: "one without any class is left alone", obj: ingress("web", "", "")},
		{reason: "nobody but a person knows which of two classes is right", obj: ingress("web", "nginx", "gateway"), findings: 1},
	} {
		plan := ingressclass.Decide([]*unstructured.Unstructured{tc.obj})
		var patch string
		for _, u := range plan.Units {
			patch += string(u.Changes[0].Patch)
		}
		if diff := cmp.Diff(tc.patch, patch); diff != "" || len(plan.Findings) != tc.findings {
			t.Errorf("%s: %d findings, want %d (-want +got):\n%s", tc.reason, len(plan.Findings), tc.findings, diff)
		}
	}
}

func ExampleDecide() {
	plan := ingressclass.Decide([]*unstructured.Unstructured{ingress("web", "nginx", ""), ingress("done", "", "nginx")})
	for _, unit := range plan.Units {
		for _, change := range unit.Changes {
			fmt.Printf("%s %s: %s\n", change.Verb, change.Ref, change.Why)
		}
	}
	// Output:
	// patch Ingress shop/web: its class nginx is an annotation
}
