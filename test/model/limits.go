package model

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// What an API server does not take: in the words of the real one.
const (
	secretBytes = 1 << 20
	etcdBytes   = 1536 << 10
)

// Refuse makes the server answer requests with an error: refuses returns it, or nil. It is called
// with the server's lock held; nil: nothing is refused.
func (s *Server) Refuse(refuses func(*Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = refuses
}

func (s *Server) refused(r *Request) error {
	if s.refuses == nil {
		return nil
	}
	return s.refuses(r)
}

// Refusals are answers that refuse a request for one of the limits of a cluster, in the words of
// the real API server, by name.
var Refusals = map[string]func(r *Request) error{
	"permission": func(r *Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: r.Group, Resource: r.Plural}, r.Name, fmt.Errorf("User %q cannot %s resource %q in API group %q in the namespace %q", r.Actor, r.Verb, r.Plural, r.Group, r.Namespace)) //nolint:staticcheck // the real server's words
	},
	"account": func(*Request) error { return apierrors.NewUnauthorized("Unauthorized") },
	"quota": func(r *Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: r.Group, Resource: r.Plural}, r.Name, fmt.Errorf("exceeded quota: few, requested: count/%s=1, used: count/%s=5, limited: count/%s=5", r.Plural, r.Plural, r.Plural))
	},
	"limit range": func(r *Request) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: r.Group, Resource: r.Plural}, r.Name, errors.New("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"))
	},
	"policy": func(r *Request) error {
		return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, fmt.Sprintf("%s %q is forbidden: ValidatingAdmissionPolicy 'small.example' with binding 'all' denied request: no", r.Plural, r.Name))
	},
	"webhook": func(*Request) error {
		return status(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "guard.example" denied the request: no`)
	},
	"413": func(*Request) error { return apierrors.NewRequestEntityTooLargeError("limit is 3145728") },
	"etcd": func(*Request) error {
		return status(http.StatusInternalServerError, "", "etcdserver: request is too large")
	},
	"space": func(*Request) error {
		return status(http.StatusInternalServerError, "", "etcdserver: mvcc: database space exceeded")
	},
	"507": func(*Request) error { return status(http.StatusInsufficientStorage, "", "insufficient storage") },
	"load": func(*Request) error {
		return apierrors.NewTooManyRequests("Too many requests, please try again later.", 60)
	},
}

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// tooLarge refuses what the API server or etcd does not store.
func tooLarge(kind *Kind, obj Object) error {
	raw, err := json.Marshal(obj)
	switch {
	case err != nil:
		return err
	case len(raw) > etcdBytes:
		return Refusals["etcd"](nil)
	case kind.Plural != "secrets" || kind.Group != "" || len(raw) < secretBytes:
		return nil
	}
	n := 0
	data, _ := obj["data"].(map[string]any)
	for _, value := range data {
		encoded, _ := value.(string)
		n += len(encoded) / 4 * 3
	}
	if n > secretBytes {
		return invalid(kind, text(obj, "name"), fmt.Sprintf("data: Too long: may not be more than %d bytes", secretBytes))
	}
	return nil
}

// respondStatus answers with a status, and with the header in which an overloaded server says when
// to come again.
func respondStatus(s *metav1.Status) *http.Response {
	resp := respondJSON(int(s.Code), s)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	return resp
}
