package k8sobject

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestTrimAnnotations(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "a", "annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"},
	}}}
	TrimAnnotations(u, "ours", "a")
	if len(u.GetAnnotations()) != 2 { // of what a run has made, all counts: somebody may have edited it
		t.Errorf("TrimAnnotations of ours: %v", u.Object)
	}
	TrimAnnotations(u, "ours")
	if len(u.GetAnnotations()) != 0 || u.GetName() != "a" {
		t.Errorf("TrimAnnotations: %v", u.Object)
	}
	TrimAnnotations(&unstructured.Unstructured{Object: map[string]any{}}) // nothing to remove
}
