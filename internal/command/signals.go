package command

import (
	"context"
	"syscall"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// supervise waits until the work is done, or left where it is.
func (p *process) supervise(log *zap.Logger, work func(context.Context) *migration.Report) (*migration.Report, error) {
	var report *migration.Report
	err := frame.Supervisor{
		Log:   log,
		Cause: func(s syscall.Signal) error { return engine.SignalError{Signal: s} },
		Stopping: "%s: stopping after the current requests. A second %[1]s stops at once," +
			" which is safe: the journal has what was begun, and the next run continues",
		State: "The journal has what was begun, and the next run continues",
	}.Supervise(func(ctx context.Context) { report = work(ctx) })
	if err != nil {
		return nil, err // the work may go on, and still write its report
	}
	return report, nil
}
