package write

import (
	"context"
	"errors"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
)

// Decision is the job's answer that a guarded write acts on.
type Decision struct {
	Asked time.Time
	// once: it is about the first request only; what that one began is finished.
	Once, sent bool
}

type decisionKey struct{}

// ErrOldDecision is returned instead of a request that would act on an answer of the
// job that is older than freshFor.
var ErrOldDecision = errors.New("the reason for it was checked too long ago")

// WithDecision is the context of a guarded write. Waits for a slot, and attempts that fail
// for a moment, take time: no request is sent later than freshFor after the answer.
func WithDecision(ctx context.Context, d *Decision) context.Context {
	return context.WithValue(ctx, decisionKey{}, d)
}

// checkDecision is called before each request of a write.
func checkDecision(ctx context.Context) error {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok || d.Once && d.sent {
		return nil
	}
	if time.Since(d.Asked) > wait.FreshFor {
		return k8sutil.Permanent(ErrOldDecision)
	}
	d.sent = true
	return nil
}
