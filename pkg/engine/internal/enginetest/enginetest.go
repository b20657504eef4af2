// Package enginetest makes objects for the unit tests of the engine.
package enginetest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Object decodes an object, and gives it a kind and a UID.
func Object(t *testing.T, raw string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(raw), &obj.Object); err != nil {
		t.Fatal(err)
	}
	obj.SetAPIVersion("v1")
	obj.SetKind("Thing")
	obj.SetUID("u")
	return obj
}

// Ref names an object in the namespace shop.
func Ref(kind, name string) migration.Ref {
	return migration.Ref{Resource: migration.Resource{Kind: kind, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: kind}}, Namespace: "shop", Name: name}
}
