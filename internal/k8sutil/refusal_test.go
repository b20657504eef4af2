package k8sutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// saying is what client-go makes of an answer of that code and message.
func saying(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// TestRefusalOf: on f3299ef each 403 was a missing permission, and what etcd cannot take was an API
// server in trouble, so that it was sent for a minute. The texts are those of API servers from 1.16
// to 1.35, and of etcd 3.4 to 3.6.
func TestRefusalOf(t *testing.T) {
	secrets := corev1.Resource("secrets")
	for name, tc := range map[string]struct {
		reason    string
		err       error
		want      Refusal
		transient bool
	}{
		"Nil":   {"no error", nil, Refusal{}, false},
		"EOF":   {"no answer", io.EOF, Refusal{}, true},
		"Other": {"another answer", apierrors.NewNotFound(secrets, "x"), Refusal{}, false},
		"RBAC": {
			"the account may not", apierrors.NewForbidden(secrets, "x", errors.New(`User "system:serviceaccount:kyma-system:job" cannot patch resource "secrets" in API group "" in the namespace "state"`)),
			Refusal{Kind: NoPermission, By: "system:serviceaccount:kyma-system:job"}, false,
		},
		"Unauthorized": {"not even known", apierrors.NewUnauthorized("Unauthorized"), Refusal{Kind: NoAccount}, false},
		"Quota": {
			"403, too", apierrors.NewForbidden(secrets, "x", errors.New("exceeded quota: few, requested: count/secrets=1, used: count/secrets=5, limited: count/secrets=5")),
			Refusal{Kind: OverQuota, By: "few"}, false,
		},
		"QuotaAsks": {"a quota that wants to be told", apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("failed quota: cpu: must specify limits.cpu")), Refusal{Kind: OverQuota, By: "cpu"}, false},
		"QuotaNew":  {"a quota that was just made", apierrors.NewForbidden(secrets, "x", errors.New("status unknown for quota: few, resources: count/secrets")), Refusal{Kind: OverQuota, By: "few"}, false},
		"LimitRange": {
			"of a claim", apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "x", errors.New("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi")),
			Refusal{Kind: OutOfRange}, false,
		},
		"LimitRatio": {"of a pod", apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000")), Refusal{Kind: OutOfRange}, false},
		"Policy": {
			"422 by default", saying(422, metav1.StatusReasonInvalid, `secrets "x" is forbidden: ValidatingAdmissionPolicy 'small.example' with binding 'all' denied request: no`),
			Refusal{Kind: ByPolicy, By: "small.example"}, false,
		},
		"PolicyTooLarge": {
			"it may say that the request is too large", saying(413, metav1.StatusReasonRequestEntityTooLarge, `secrets "x" is forbidden: ValidatingAdmissionPolicy 'small.example' with binding 'all' denied request: no`),
			Refusal{Kind: ByPolicy, By: "small.example"}, false,
		},
		"PolicyUnauthorized": {
			"and 401", saying(401, metav1.StatusReasonUnauthorized, `secrets "x" is forbidden: ValidatingAdmissionPolicy 'small.example' with binding 'all' denied request: no`),
			Refusal{Kind: ByPolicy, By: "small.example"}, false,
		},
		"PodSecurity": {"built in", apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New(`violates PodSecurity "restricted:latest": runAsNonRoot != true`)), Refusal{Kind: ByPolicy, By: "PodSecurity"}, false},
		"Plugin":      {"some other plugin of the API server", apierrors.NewForbidden(secrets, "x", errors.New("not yet ready to handle request")), Refusal{Kind: ByPolicy}, false},
		"Webhook":     {"it denies", saying(403, metav1.StatusReasonForbidden, `admission webhook "guard.example" denied the request: no`), Refusal{Kind: ByWebhook, By: "guard.example"}, false},
		"Webhook400":  {"with 400", saying(400, "", `admission webhook "guard.example" denied the request: no`), Refusal{Kind: ByWebhook, By: "guard.example"}, false},
		"WebhookDown": {"it does not answer: it may in a moment", apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example": connection refused`)), Refusal{}, true},
		"Etcd":        {"etcd takes 1.5 MiB", saying(500, "", "etcdserver: request is too large"), Refusal{Kind: TooLarge}, false},
		"Grpc":        {"the client of etcd", apierrors.NewInternalError(errors.New("rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100000 vs. 2097152)")), Refusal{Kind: TooLarge}, false},
		"Body":        {"the API server takes 3 MiB", apierrors.NewRequestEntityTooLargeError("limit is 3145728"), Refusal{Kind: TooLarge}, false},
		"Secret":      {"a Secret takes 1 MiB", saying(422, metav1.StatusReasonInvalid, `Secret "x" is invalid: data: Too long: may not be more than 1048576 bytes`), Refusal{Kind: TooLarge}, false},
		"Secret116":   {"and did in 1.16", saying(422, metav1.StatusReasonInvalid, `Secret "x" is invalid: data: Too long: must have at most 1048576 characters`), Refusal{Kind: TooLarge}, false},
		"Field":       {"a field has its own limits", saying(422, metav1.StatusReasonInvalid, `Thing "x" is invalid: spec.a: Too long: may not be more than 10 bytes`), Refusal{}, false},
		"Space":       {"etcd's quota", saying(500, "", "etcdserver: mvcc: database space exceeded"), Refusal{Kind: StorageFull}, false},
		"507":         {"another storage", saying(http.StatusInsufficientStorage, "", "no room"), Refusal{Kind: StorageFull}, false},
		"Load":        {"it says when", apierrors.NewTooManyRequests("later", 60), Refusal{Kind: Overloaded, RetryAfter: 60}, true},
		"Terminating": {
			"of the namespace", apierrors.NewForbidden(secrets, "x", errors.New("unable to create new content in namespace state because it is being terminated")), Refusal{}, false,
		},
		"Wrapped": {"in the words of a caller", fmt.Errorf("cannot write: %w", saying(500, "", "etcdserver: request is too large")), Refusal{Kind: TooLarge}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, RefusalOf(tc.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got := IsTransient(tc.err); got != tc.transient {
				t.Errorf("%s: transient %t", tc.reason, got)
			}
		})
	}
}

// TestPolicyIsNoAccount: a policy may deny an object with 401. On f3299ef the account counted as
// gone.
func TestPolicyIsNoAccount(t *testing.T) {
	account := &Account{accepted: true, refused: time.Now().Add(-time.Minute)}
	denied := saying(401, metav1.StatusReasonUnauthorized, `things.example "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'all' denied request: no`)
	err := account.Watch(func(context.Context) error { return denied })(t.Context())
	if _, gone := errors.AsType[*AccountGoneError](err); gone || IsTransient(err) {
		t.Errorf("got %v", err)
	}
	if RefusalOf(err).Kind != ByPolicy {
		t.Errorf("got %v", err)
	}
}

// TestUnreadable: a list that cannot be decoded names the objects that keep it from it.
func TestUnreadable(t *testing.T) {
	raw := []byte(`{"items":[{"metadata":{"namespace":"shop","name":"good"}},{"metadata":{"namespace":"shop","name":"bad"},"spec":{"n":1e400}},"odd"]}`)
	if got := unreadable(raw); got != " (shop/bad, number 3)" {
		t.Errorf("got %q", got)
	}
	if got := unreadable([]byte(`{`)); got != "" {
		t.Errorf("no list: %q", got)
	}
}
