package observed

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Data are the values of a ConfigMap; none if there is no ConfigMap.
func Data(u *unstructured.Unstructured) map[string]string {
	if u == nil {
		return nil
	}
	content, _, _ := unstructured.NestedStringMap(u.Object, "data")
	return content
}

// Claim names a volume claim, and the version that was read.
func Claim(c *corev1.PersistentVolumeClaim) *unstructured.Unstructured {
	return named("PersistentVolumeClaim", c)
}

// Pod names a pod, and the version that was read.
func Pod(p *corev1.Pod) *unstructured.Unstructured { return named("Pod", p) }

func named(kind string, is metav1.Object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	u.SetNamespace(is.GetNamespace())
	u.SetName(is.GetName())
	u.SetUID(is.GetUID())
	u.SetResourceVersion(is.GetResourceVersion())
	return u
}
