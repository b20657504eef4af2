// Package view shows objects of a test to conditions.
package view

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Of is a migration.View over some objects. One that is nil is not there.
type Of []*unstructured.Unstructured

var _ migration.View = Of{}

// Get implements migration.View.
func (v Of) Get(s migration.Subject) *unstructured.Unstructured {
	for _, obj := range v.List(s.GroupKind, "") {
		if obj.GetNamespace() == s.Namespace && obj.GetName() == s.Name {
			return obj
		}
	}
	return nil
}

// List implements migration.View.
func (v Of) List(gk schema.GroupKind, namespace string) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, obj := range v {
		if obj != nil && obj.GroupVersionKind().GroupKind() == gk && (namespace == "" || obj.GetNamespace() == namespace) {
			all = append(all, obj)
		}
	}
	return all
}
