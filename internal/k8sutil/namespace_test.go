package k8sutil

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestNamespaceGone: Kubernetes 1.16 answers without a cause. Fails on the commit before for
// "Terminating116".
func TestNamespaceGone(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	const text = "unable to create new content in namespace kyma because it is being terminated"
	withCause := apierrors.NewForbidden(leases, "lock", errors.New(text))
	withCause.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		reason            string
		err               error
		gone, terminating bool
	}{
		"Missing":        {"there is no such namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "kyma"), true, false},
		"Terminating":    {"it is being deleted", withCause, true, true},
		"Terminating116": {"an old API server says so only in the text", apierrors.NewForbidden(leases, "lock", errors.New(text)), true, true},
		"Forbidden":      {"a permission is missing", apierrors.NewForbidden(leases, "lock", errors.New(`User "job" cannot create resource "leases"`)), false, false},
		"None":           {"the object was created", nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NamespaceTerminating(tc.err); got != tc.terminating {
				t.Errorf("%s: terminating: %t", tc.reason, got)
			}
			if got := NamespaceGone(tc.err); got != tc.gone {
				t.Errorf("%s: gone: %t", tc.reason, got)
			}
		})
	}
}
