package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// holding is how long this process may write under the Lease that it renewed last.
type holding struct {
	// duration of the Lease.
	duration time.Duration

	mu sync.Mutex
	// deadline, on both clocks: no write may last beyond it.
	deadline deadline
	renewed  chan struct{} // closed and replaced at each renewal, and when lost
	lost     error
	over     chan struct{} // closed when lost
	held     bool
}

// deadline is a moment on the monotonic clock and on the wall clock.
type deadline struct{ monotonic, wall time.Time }

func deadlineAfter(began time.Time, d time.Duration) deadline {
	// Round strips the reading of the monotonic clock.
	return deadline{began.Add(d), began.Round(0).Add(d)}
}

// left is how long it is until the earlier of the two.
func (d deadline) left() time.Duration {
	now := time.Now()
	return min(d.monotonic.Sub(now), d.wall.Sub(now.Round(0)))
}

// errLockReleased says that a write came after the lock was given back.
var errLockReleased = errors.New("the lock is not held")

// begin holds the Lease from the call on that took it, which began then.
func (h *holding) begin(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held, h.deadline = true, deadlineAfter(began, h.renewDeadline())
}

// end lets nothing more be written, and returns how the Lease was held.
func (h *holding) end() (held bool, lost error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, lost = h.held, h.lost
	h.held = false
	return held, lost
}

// renewDeadline is how long after a renewal began writes are allowed: shorter
// than the lease, so that the next holder finds none of them in flight.
func (h *holding) renewDeadline() time.Duration { return h.duration * 3 / 4 }

func (h *holding) extend(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline = deadlineAfter(began, h.renewDeadline())
	close(h.renewed)
	h.renewed = make(chan struct{})
}

func (h *holding) lose(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil {
		close(h.over)
	}
	h.lost = err
	close(h.renewed)
	h.renewed = make(chan struct{})
}

// Guard returns the context for one write: it ends before the lease does. If the
// lease is nearly over, guard waits for its renewal. ctx ending stops new
// writes, not one in flight.
func (h *holding) Guard(ctx context.Context) (context.Context, context.CancelFunc, error) {
	for {
		h.mu.Lock()
		held, lost, until, renewed := h.held, h.lost, h.deadline, h.renewed
		h.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, nil, k8sutil.Permanent(context.Cause(ctx))
		case lost != nil:
			return nil, nil, k8sutil.Permanent(lost)
		case !held:
			return nil, nil, k8sutil.Permanent(errLockReleased)
		}
		if left := until.left(); left > h.duration/20 {
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(CallTimeout, left))
			return call, cancel, nil
		}
		select {
		case <-ctx.Done():
		case <-renewed:
		}
	}
}

// WasTaken says whether this process has, or had and lost, the lock: then every
// write is guarded by it.
func (h *holding) WasTaken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held || h.lost != nil
}

// Lost is closed when the lock is lost: LossCause says why.
func (h *holding) Lost() <-chan struct{} { return h.over }

// LossCause returns why the lock was lost, nil if it was not.
func (h *holding) LossCause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// While is ctx until the lock is lost: what a run waits for then, it cannot act on.
func While(ctx context.Context, l Lease) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-l.Lost():
			cancel(l.LossCause())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
