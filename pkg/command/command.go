// Package command makes a program of a job (package migration): command line, log, report, signals
// and exit code. A main function is all that is left to write:
//
//	func main() { os.Exit(command.Run(&Job{}, command.Options{Version: version})) }
//
// The program has these commands. Without one it does what [migration.Defaulter] says, which is a
// run if the job is none.
//
//	run         makes the changes that are left
//	plan        shows them, and writes nothing
//	undo        undoes the newest run, finished or interrupted
//	version     shows the version; --version is the same
//	completion  prints a script with which a shell completes commands and flags
//
// Its flags are those of the job ([migration.Configurable]), and those that every job has: cluster,
// time and safety, output, log. --help has them all, with their defaults, examples and exit codes.
//
// # What people and programs see
//
// The report is on stdout: with --output=text a summary and the next command, with wide each change
// and each finding, with json and yaml one object (migration.Report), and with name the changed
// objects, as arguments of kubectl. The log is on stderr: lines for people on a terminal, with one
// line below them that says how far the run is, and JSON elsewhere. In a Pod, the summary is also
// in the termination message of the container.
//
// The first SIGINT, SIGTERM or SIGHUP ends a run in order, and the next run continues it. The
// second one of the same kind ends the process at once, which is safe too: the journal has what
// was begun.
//
// The exit codes are those of [migration.ExitCodes]; 6 and 7 are of no command here.
//
// # What it needs of the process
//
// Of the environment it reads KUBECONFIG and HOME (where the kubeconfig is),
// KUBERNETES_SERVICE_HOST (whether this is a Pod), TERM and NO_COLOR (what the terminal can do). It
// takes over the logger of client-go (klog) and the signals, and ignores SIGPIPE during a run. The
// garbage collector works harder from 40 MiB on, unless GOMEMLIMIT is set.
//
// A program without a terminal, such as a controller or an installer, calls package engine: it
// links neither flags nor a status line then.
package command

import (
	"cmp"
	"fmt"
	"io"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/version"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Options of a program. The zero value of each field means its default.
type Options struct {
	// Names are those of what the job keeps and marks in a cluster. The default of Names.Program is
	// the name of the job. Jobs that must not run at the same time have the same names.
	Names migration.Names
	// Version of the program, for its command version, the journal, and the audit log of the API
	// server. Default: the version of the main module as Go has recorded it, or "devel".
	Version string
	// Args are the command line without the name of the program; nil: those of the process.
	Args []string
	// Env returns a variable of the environment, "" if it is not set; nil: os.Getenv.
	Env func(name string) string
	// Stdout takes the report, Stderr the log; nil: those of the process.
	Stdout, Stderr io.Writer
}

// Run does with the job what the command line says, and returns the exit code of the process. A
// process calls it once. In what it prints, the program has the name of the job: give the binary
// that name.
//
// It writes nothing to the cluster, and returns migration.ExitUsage, if the command line, the
// kubeconfig or the names are wrong. Everything later is in the report.
//
// It panics if a setting of the job has a type that cannot be a flag.
func Run(job migration.Job, o Options) int {
	streams := frame.OS()
	if o.Args != nil {
		streams.Args = o.Args
	}
	if o.Env != nil {
		streams.Env = o.Env
	}
	if o.Stdout != nil {
		streams.Stdout = o.Stdout
	}
	if o.Stderr != nil {
		streams.Stderr = o.Stderr
	}
	o.Names.Program = cmp.Or(o.Names.Program, job.Name())
	if err := o.Names.Validate(); err != nil {
		fmt.Fprintf(streams.Stderr, "%s: %v\n", job.Name(), err)
		return migration.ExitUsage
	}
	return command.Run(&command.Program{Names: o.Names, Version: cmp.Or(o.Version, version.String())}, job, streams)
}
