// Package cli gives the frame of programs of jobs (internal/command) the names of the migration:
// what its jobs keep in a cluster, the program for people, and which command comes next. It has no
// behaviour of its own.
package cli

import (
	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/nextstep"
	"github.com/kyma-project/eventmesh-migration/internal/version"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Names are those of what the jobs keep and mark in a cluster. Earlier versions have them, so that
// their runs are known.
var Names = migration.Names{Program: kyma.Program, Domain: kyma.Domain}

// Program is what the jobs, and the program for all of them, say of themselves.
func Program() *command.Program {
	return &command.Program{
		Names:          Names,
		StateNamespace: kyma.StateNamespace,
		Version:        version.String(),
		Project:        "eventmesh-migration",
		Tool:           "eventmesh-migrate",
		Charts:         true,
		LeftOut:        "the system namespaces",
		Kept:           "carry live events",
		Next: func(r *migration.Report, c present.Caller) []present.Step {
			return nextstep.After(nextstep.OfJob(r, c))
		},
	}
}

// IO is all that a process uses, except the API server.
type IO = frame.IO

// OS returns the IO of this process.
func OS() IO { return frame.OS() }

// Run executes the job as the command line says, and returns the exit code of the process. It is to
// be called once in a process.
func Run(job migration.Job, streams IO) int { return command.Run(Program(), job, streams) }

// NewTool returns the frame of the program for all jobs.
func NewTool(streams IO, jobs ...migration.Job) *command.Tool {
	return command.NewTool(Program(), streams, jobs...)
}

// Caller is how a person calls the program for all jobs: by the name that was typed.
func Caller(typed string) present.Caller {
	return present.Caller{Program: typed, Name: Program().Tool, Explains: true}
}
