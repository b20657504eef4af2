package k8sutil

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// RefusalKind is why the API server does not carry out a request. Its code alone does not tell:
// 403 is that of a missing permission, of a quota, of a LimitRange and of admission policies.
type RefusalKind string

const (
	// NotRefused: the error is no answer of the API server, or says something else.
	NotRefused RefusalKind = ""
	// NoPermission: the account may not.
	NoPermission RefusalKind = "permission"
	// NoAccount: the credentials are not accepted.
	NoAccount RefusalKind = "account"
	// OverQuota: a ResourceQuota does not leave room for the object.
	OverQuota RefusalKind = "quota"
	// OutOfRange: a LimitRange does not allow the object's sizes.
	OutOfRange RefusalKind = "limit range"
	// ByPolicy: an admission policy, or an admission plugin of the API server, denies it.
	ByPolicy RefusalKind = "policy"
	// ByWebhook: an admission webhook denies it.
	ByWebhook RefusalKind = "webhook"
	// TooLarge: the object, or the request, is larger than the API server or etcd takes.
	TooLarge RefusalKind = "size"
	// StorageFull: etcd has reached its quota, or its disk is full. Nothing can be written.
	StorageFull RefusalKind = "storage"
	// Overloaded: the API server takes no more requests for now.
	Overloaded RefusalKind = "load"
)

// Refusal is an answer that refuses a request.
type Refusal struct {
	Kind RefusalKind
	// By is the name of who refuses it: the quota, the policy, the webhook; of a missing
	// permission, the user whom the API server took the request to come from. "" if unknown.
	By string
	// RetryAfter is what an overloaded API server asks to wait, in seconds; 0: it does not say.
	RetryAfter int
}

var (
	deniedByPolicy  = regexp.MustCompile(`AdmissionPolicy '([^']+)'.* denied request`)
	deniedByWebhook = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	podSecurity     = regexp.MustCompile(`violates (PodSecurity) "`)
	overQuota       = regexp.MustCompile(`(?:exceeded|failed|status unknown for) quota: ([^,:]+)|insufficient quota to`)
	outOfRange      = regexp.MustCompile(`(?:maximum|minimum) \S+ usage per |limit to request ratio per `)
	noPermission    = regexp.MustCompile(`User "([^"]*)" cannot `)
	tooLong         = regexp.MustCompile(`Too long: (?:may not be \w+ than|must have at most) (\d+)`)
)

// annotationBytes is the least limit of a whole object that the API server has, that of all
// annotations. A smaller one is about a field.
const annotationBytes = 256 << 10

// RefusalOf tells what refuses a request. An answer that came through several layers is told by
// its text, which admission plugins and etcd leave as it is.
func RefusalOf(err error) Refusal {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Refusal{}
	}
	code, text := status.Status().Code, status.Status().Message
	for _, by := range []struct {
		kind RefusalKind
		text *regexp.Regexp
	}{{ByPolicy, deniedByPolicy}, {ByWebhook, deniedByWebhook}, {ByPolicy, podSecurity}, {OverQuota, overQuota}, {OutOfRange, outOfRange}} {
		if match := by.text.FindStringSubmatch(text); match != nil {
			return Refusal{Kind: by.kind, By: strings.Join(match[1:], "")}
		}
	}
	switch {
	case code == http.StatusRequestEntityTooLarge, strings.Contains(text, "request is too large"),
		strings.Contains(text, "trying to send message larger than max"), isTooLong(text):
		return Refusal{Kind: TooLarge}
	case code == http.StatusInsufficientStorage, strings.Contains(text, "database space exceeded"), strings.Contains(text, "etcdserver: no space"):
		return Refusal{Kind: StorageFull}
	case code == http.StatusTooManyRequests:
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return Refusal{Kind: Overloaded, RetryAfter: seconds}
	case code == http.StatusUnauthorized:
		return Refusal{Kind: NoAccount}
	case code != http.StatusForbidden || NamespaceTerminating(err):
		return Refusal{}
	}
	if match := noPermission.FindStringSubmatch(text); match != nil {
		return Refusal{Kind: NoPermission, By: match[1]}
	}
	return Refusal{Kind: ByPolicy}
}

func isTooLong(text string) bool {
	match := tooLong.FindStringSubmatch(text)
	if match == nil {
		return false
	}
	limit, err := strconv.Atoi(match[1])
	return err == nil && limit >= annotationBytes
}

// IsTooLarge says whether an object, or a request, is larger than the API server takes.
func IsTooLarge(err error) bool { return RefusalOf(err).Kind == TooLarge }
