package frame

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"go.uber.org/zap"
)

// SecondSignalError says that work was left running because the same signal
// came twice.
type SecondSignalError struct {
	Signal syscall.Signal
	// State says what that means, a sentence.
	State string
}

func (e *SecondSignalError) Error() string {
	return joined(fmt.Sprintf("stopped at once by a second %s", SignalName(e.Signal)), e.State)
}

// PanicError says that the work ended by a bug. Go would exit with 2, which
// here means that the command line is wrong.
type PanicError struct {
	Value any
	Stack []byte
	// State says what that means, a sentence.
	State string
}

func (e *PanicError) Error() string {
	return joined(fmt.Sprintf("this program has a bug: %v", e.Value), e.State)
}

func joined(text, sentence string) string {
	if sentence == "" {
		return text
	}
	return text + ". " + sentence
}

// Supervisor ends work by signals.
type Supervisor struct {
	Log *zap.Logger
	// Cause is what a signal makes the cause of the work's context.
	Cause func(syscall.Signal) error
	// Stopping is told at the first signal of a kind. Its %[1]s are the name of the signal.
	Stopping string
	// State is part of errors: what is left when the work does not end in order.
	State string
}

// Supervise waits until the work is done. The first signal of a kind
// asks it to stop, by the cause of its context; the second one leaves it where
// it is.
func (s Supervisor) Supervise(work func(context.Context)) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	kinds := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	// A terminal that was closed is a reason to stop in order, too, except for a
	// process that was started with nohup.
	if !signal.Ignored(syscall.SIGHUP) {
		kinds = append(kinds, syscall.SIGHUP)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, kinds...)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- &PanicError{Value: v, Stack: debug.Stack(), State: s.State}
			}
		}()
		work(ctx)
		done <- nil
	}()

	seen := map[syscall.Signal]bool{}
	for {
		select {
		case err := <-done:
			return err
		case received := <-signals:
			sig, ok := received.(syscall.Signal)
			if !ok {
				continue
			}
			if seen[sig] {
				return &SecondSignalError{Signal: sig, State: s.State}
			}
			seen[sig] = true
			s.Log.Warn(fmt.Sprintf(s.Stopping, SignalName(sig)))
			cancel(s.Cause(sig))
		}
	}
}
