// Package poll waits for conditions that cannot be watched: decisions that an API server makes from
// its own cache, state that only a request shows, and conditions that span several kinds. Tests
// watch everything else.
package poll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// The pause between two questions is short at first, as a test waits for the answer. It grows with
// the wait, to a fiftieth of it: some tests wait for minutes, and questions that are asked 50 times
// a second were half of what the API servers of all tests had to do.
const (
	shortest = 20 * time.Millisecond
	longest  = 250 * time.Millisecond
)

// patience is the least time that one question may take.
const patience = 5 * time.Second

// Until asks again and again, and returns when the answer is nil: it holds. Any other answer says
// what the state is. A question that gets no answer in a quarter of the limit is asked again. If
// the limit is over before, the test fails, with what was awaited and the last state. It can be
// used while a test cleans up. The limit is that of an idle machine: see Within.
func Until(t testing.TB, limit time.Duration, what string, holds func(ctx context.Context) error) {
	t.Helper()
	if err := For(context.WithoutCancel(t.Context()), Within(limit), what, holds); err != nil {
		t.Fatal(err)
	}
}

// For is Until for what is no test: it returns an error, after the limit as it is. It also ends
// when its context does.
func For(ctx context.Context, limit time.Duration, what string, holds func(ctx context.Context) error) error {
	var last, stopped error
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := wait.DelayFunc(func() time.Duration { return min(max(time.Since(began)/50, shortest), longest) })
	err := pause.Until(limited, true, false, func(ctx context.Context) (bool, error) {
		question, cancel := context.WithTimeout(ctx, max(limit/4, patience))
		defer cancel()
		now := holds(question)
		if stop, ok := errors.AsType[*stop](now); ok {
			stopped = stop.err
		}
		if ctx.Err() == nil || last == nil { // the end of the wait is no state
			last = now
		}
		return now == nil, stopped
	})
	switch {
	case err == nil:
		return nil
	case stopped != nil:
		return fmt.Errorf("%s: cannot become so: %w", what, stopped)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: not so before the wait ended (%w); last state: %w", what, context.Cause(ctx), last)
	default:
		return fmt.Errorf("%s: not so after %s; last state: %w", what, time.Since(began).Round(time.Millisecond), last)
	}
}

// Gone is the answer to a read of what is awaited to be gone.
func Gone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("it is there")
	default:
		return err
	}
}

// Stop is an answer that ends the wait at once: the state cannot become as awaited, or
// cannot be read.
func Stop(err error) error { return &stop{err} }

type stop struct{ err error }

func (s *stop) Error() string { return s.err.Error() }

func (s *stop) Unwrap() error { return s.err }
