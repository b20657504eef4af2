package k8sutil

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Basis returns what of an object the decision about a patch rests on: what
// identifies the object, and of the fields those that it has.
func Basis(obj *unstructured.Unstructured, fields ...[]string) *unstructured.Unstructured {
	// Without kind and version, nothing is read back from the journal.
	basis := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	basis.SetAPIVersion(obj.GetAPIVersion())
	basis.SetKind(obj.GetKind())
	basis.SetName(obj.GetName())
	if namespace := obj.GetNamespace(); namespace != "" {
		basis.SetNamespace(namespace)
	}
	basis.SetUID(obj.GetUID())
	for _, field := range fields {
		value, found, err := unstructured.NestedFieldCopy(obj.Object, field...)
		if err == nil && found {
			// What leads to the field are maps: it was found through them.
			_ = unstructured.SetNestedField(basis.Object, value, field...)
		}
	}
	return basis
}

// Image returns a copy of an object to delete it by, and to create it from again:
// whole, but for what the API server keeps for itself.
func Image(obj *unstructured.Unstructured) *unstructured.Unstructured {
	image := obj.DeepCopy()
	unstructured.RemoveNestedField(image.Object, "metadata", "managedFields")
	return image
}
