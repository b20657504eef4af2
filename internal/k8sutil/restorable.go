package k8sutil

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Restorable returns what is created to restore a deleted object: the object as it was,
// without what the server sets.
func Restorable(pre *unstructured.Unstructured) *unstructured.Unstructured {
	obj := pre.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "managedFields", "selfLink",
	} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(obj.Object, "status")
	return obj
}
