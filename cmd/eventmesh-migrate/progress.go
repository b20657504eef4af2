package main

import (
	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/command/statusline"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
)

// progress shows on the status line what the job manager says of its jobs.
type progress struct{ line *statusline.Line }

// progressOf is nil if the status line is not shown.
func progressOf(c *command.Connection) jobmanager.Progress {
	if !c.Status.Live() {
		return nil
	}
	return progress{c.Status}
}

// Job implements jobmanager.Progress.
func (p progress) Job(_ jobmanager.Hook, job, state string) {
	switch state {
	case "waiting":
	case "checking", "running":
		p.line.State(job, state)
	default: // a result
		p.line.Ended(job)
	}
}

// For implements jobmanager.Progress.
func (p progress) For(job string) engine.Progress { return p.line.Job(job) }
