package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
)

// Decision is the job's answer that a guarded write acts on.
type Decision struct {
	wait.Answer
	// Once: it is about the first request only; what that one began is finished.
	Once bool

	// sent: a request was sent that may have been carried out.
	sent bool
}

type decisionKey struct{}

// ErrOldDecision is returned instead of a request that would act on an answer of the
// job that is too old.
var ErrOldDecision = errors.New("the reason for it was checked too long ago")

// WithDecision is the context of a guarded write. Waits for a slot, for the Lease and for a busy
// server take time: no request leaves when the answer does not hold any more (see wait.Answer).
func WithDecision(ctx context.Context, d *Decision) context.Context {
	return context.WithValue(ctx, decisionKey{}, d)
}

// checkDecision is called before each request of a write.
func checkDecision(ctx context.Context) error {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok || d.Once && d.sent || d.Holds() {
		return nil
	}
	return k8sutil.Permanent(ErrOldDecision)
}

// answered is called with the answer to a request of a write.
func answered(ctx context.Context, err error) {
	if d, ok := ctx.Value(decisionKey{}).(*Decision); ok && !k8sutil.IsRefusedUnread(err) && !errors.Is(err, ErrOldDecision) {
		d.sent = true
	}
}

// CheckAge returns a transport that lets no write leave which acts on an answer of the job that
// is too old: between the check before a request and the request lie tokens, plugins and
// connections.
func CheckAge(next http.RoundTripper) http.RoundTripper {
	return k8sutil.RoundTripper(func(req *http.Request) (*http.Response, error) {
		if !k8sutil.IsRead(req) {
			if err := checkDecision(req.Context()); err != nil {
				return nil, err
			}
		}
		return next.RoundTrip(req)
	})
}

// Configured returns a copy of cfg for clients that write: what it wraps is the innermost, with
// nothing of this process between it and the server.
func Configured(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(CheckAge)
	cfg.Wrap(k8sutil.WritesOnce)
	return cfg
}

// tooLate is the error of a write that was not sent, with the last answer before it.
func tooLate(err, last error) error {
	if last == nil || !errors.Is(err, ErrOldDecision) {
		return err
	}
	return fmt.Errorf("%w; the last answer of the API server: %s", err, last.Error())
}
