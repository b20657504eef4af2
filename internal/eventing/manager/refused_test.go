package manager

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefused: what the API server refuses for good is in the status, with who refuses it, whatever
// the code is. On a979837 only 403 and 422 were: a webhook that denied with 400, as those do that
// name no code, was repeated for ever and the status said nothing of it.
func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		code    int32
		message string
		refused bool
		remedy  string
	}{
		{"a webhook", http.StatusBadRequest, `admission webhook "sizes.example.org" denied the request: too large`, true, "kubectl get validatingwebhookconfigurations"},
		{"a quota", http.StatusForbidden, `secrets "x" is forbidden: exceeded quota: few, requested: count/secrets=1, used: count/secrets=5, limited: count/secrets=5`, true, "kubectl -n kyma-system describe resourcequotas"},
		{"a LimitRange", http.StatusForbidden, `pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi`, true, "kubectl -n kyma-system describe limitranges"},
		{"a permission", http.StatusForbidden, `secrets is forbidden: User "system:serviceaccount:kyma-system:eventing-manager" cannot create resource "secrets"`, true, "Apply the manifest"},
		{"a policy", http.StatusUnprocessableEntity, `ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no`, true, ""},
		{"a size", http.StatusInternalServerError, "etcdserver: request is too large", true, ""},
		{"a full etcd", http.StatusInternalServerError, "etcdserver: mvcc: database space exceeded", false, ""},
		{"the load", http.StatusTooManyRequests, "too many requests", false, ""},
		{"an expired token", http.StatusUnauthorized, "Unauthorized", false, ""},
		{"a conflict", http.StatusConflict, "the object has been modified", false, ""},
		{"a failure", http.StatusInternalServerError, "etcdserver: leader changed", false, ""},
	} {
		reason := map[int32]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid}[tc.code]
		err := fmt.Errorf("cannot apply Secret x: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: tc.code, Reason: reason, Message: tc.message}})
		if got := refused(err); got != tc.refused {
			t.Errorf("%s: refused %v", tc.reason, got)
		}
		if got := remedy(err, "kyma-system"); !strings.Contains(got, tc.remedy) || (got == "") != (tc.remedy == "") {
			t.Errorf("%s: %q", tc.reason, got)
		}
	}
}
