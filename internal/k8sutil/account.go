package k8sutil

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// goneAfter is how long an account that was accepted before may be refused before
// it counts as gone: long enough for a rotated token to appear in its file, and for
// an API server to learn of a new signing key.
const goneAfter = 5 * time.Second

// Account tells an account that is gone from a token that was just rotated. It
// belongs to one process and one set of credentials, is for use by any number of
// goroutines, and its zero value is ready. Its operations go through Watch:
//
//	k8sutil.Retry(ctx, budget, notify, account.Watch(op))
type Account struct {
	mu       sync.Mutex
	accepted bool
	// refused is when the first 401 came to which no later request was accepted; the
	// zero time if there is none.
	refused time.Time
}

// AccountGoneError says that the API server accepted this account and does not any
// more. Repeating a request cannot help.
type AccountGoneError struct{ Err error }

func (e *AccountGoneError) Error() string {
	return fmt.Sprintf("the API server does not accept this account any more: %v", e.Err)
}

// Unwrap returns the last answer, a 401.
func (e *AccountGoneError) Unwrap() error { return e.Err }

// refusedForNow is a 401 that may be about a token that was just rotated.
type refusedForNow struct{ err error }

func (e *refusedForNow) Error() string { return e.err.Error() }
func (e *refusedForNow) Unwrap() error { return e.err }

// Watch returns op with its 401s judged. On the first request of a process a 401 is
// final, as it is without an Account: the credentials are wrong. Once any request
// was accepted, a 401 is transient at first, and is AccountGoneError when the
// account is still refused 5 s later.
func (a *Account) Watch(op func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		began := time.Now()
		return a.judge(began, op(ctx))
	}
}

func (a *Account) judge(began time.Time, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Policies and webhooks may answer 401, too: they speak of the object.
	if RefusalOf(err).Kind != NoAccount {
		// What came before the first 401 says nothing about what is after it, and a
		// request that got no answer says nothing at all.
		if answered(err) && !began.Before(a.refused) {
			a.accepted, a.refused = true, time.Time{}
		}
		return err
	}
	now := time.Now()
	switch {
	case !a.accepted:
		return err
	case a.refused.IsZero():
		a.refused = now
	case !began.Before(a.refused.Add(goneAfter)):
		return &AccountGoneError{Err: err}
	}
	return &refusedForNow{err}
}

// answered says whether the API server itself has dealt with the request: it looks
// at the account before anything else.
func answered(err error) bool {
	return err == nil || !IsTransient(err) && apierrors.ReasonForError(err) != ""
}

// ReloadTokenFile returns a copy of cfg whose token file, if it has one, is read
// again at the first request after a 401. client-go itself reads it once a minute,
// so that a rotated token would be refused for that long.
func ReloadTokenFile(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	if cfg.BearerTokenFile == "" {
		return out
	}
	source := transport.NewCachedFileTokenSource(cfg.BearerTokenFile)
	out.BearerToken, out.BearerTokenFile = "", ""
	out.Wrap(transport.ResettableTokenSourceWrapTransport(source))
	return out
}

// IsPluginFailure says whether a request was not sent since the credential plugin of the kubeconfig
// failed. client-go has no type for that.
func IsPluginFailure(err error) bool {
	return err != nil && strings.Contains(err.Error(), "getting credentials: ")
}
