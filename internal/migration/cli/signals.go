package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// secondSignalError says that work was left running because the same signal
// came twice.
type secondSignalError struct{ signal syscall.Signal }

func (e *secondSignalError) Error() string {
	return fmt.Sprintf("stopped at once by a second %s. The journal has what was begun, and the next run continues",
		signalName(e.signal))
}

// panicError says that the work ended by a bug. Go would exit with 2, which
// here means that the command line is wrong.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("this program has a bug: %v. The journal has what was begun, and the next run continues", e.value)
}

// supervise waits until the work is done. The first signal of a kind
// asks it to stop, by the cause of its context; the second one leaves it where
// it is.
func (p *process) supervise(log *zap.Logger, work func(context.Context) *migration.Report) (*migration.Report, error) {
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
	type outcome struct {
		report *migration.Report
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- outcome{err: &panicError{value: v, stack: debug.Stack()}}
			}
		}()
		done <- outcome{report: work(ctx)}
	}()

	seen := map[syscall.Signal]bool{}
	for {
		select {
		case o := <-done:
			return o.report, o.err
		case s := <-signals:
			sig, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			if seen[sig] {
				return nil, &secondSignalError{signal: sig}
			}
			seen[sig] = true
			log.Warn(fmt.Sprintf("%s: stopping after the current requests. A second %[1]s stops at once,"+
				" which is safe: the journal has what was begun, and the next run continues", signalName(sig)))
			cancel(engine.SignalError{Signal: sig})
		}
	}
}
