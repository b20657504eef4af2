package observed

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// Since is when a switch began, by the last report.
func (w *World) Since(from, to operatorv1alpha1.BackendType) metav1.Time {
	if s := w.Eventing.Status.Switch; s != nil && s.From == from && s.To == to {
		return s.Since
	}
	return metav1.NewTime(w.Now)
}

// Forced tells whether somebody has asked to remove a backend with what it holds, in a switch.
func (w *World) Forced(from, to operatorv1alpha1.BackendType) bool {
	asked := w.Eventing.Annotations[operatorv1alpha1.ForceTeardownAnnotation]
	return asked != "" && asked == w.ForceValue(from, to)
}

// ForceValue is the value of the annotation that asks for it: one of another switch does nothing.
func (w *World) ForceValue(from, to operatorv1alpha1.BackendType) string {
	return string(from) + "/" + w.Since(from, to).UTC().Format(time.RFC3339)
}
