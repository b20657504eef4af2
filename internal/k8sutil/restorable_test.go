package k8sutil

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRestorable(t *testing.T) {
	pre := objectOf(t, `{"metadata":{"name":"n","resourceVersion":"1","generation":2,"creationTimestamp":"t","managedFields":[],"finalizers":["f"],"labels":{"a":"1"}},"spec":{"x":1},"status":{"y":1}}`)
	want := objectOf(t, `{"metadata":{"name":"n","finalizers":["f"],"labels":{"a":"1"}},"spec":{"x":1}}`)
	unstructured.RemoveNestedField(want.Object, "metadata", "uid")
	if diff := cmp.Diff(want.Object, Restorable(pre).Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func objectOf(t *testing.T, raw string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(raw), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}
