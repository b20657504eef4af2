// Command eventmesh-migrate is the operator's own tool: every job of the migration
// from Kyma's Event Bus to the event mesh in one program, from a laptop or in a
// pod, with or without Helm. As kubectl-eventmesh_migrate on the PATH it is
// "kubectl eventmesh-migrate".
//
// # What it does
//
//	eventmesh-migrate jobs       which jobs there are, and whether each is needed now
//	eventmesh-migrate plan       each change that is left; writes nothing
//	eventmesh-migrate run        makes them, in the order of the hooks
//	eventmesh-migrate status     the last reports, open journals, locks, what is deferred
//	eventmesh-migrate undo JOB   takes the newest run of a job back
//	eventmesh-migrate verify     everything that is wrong with a finished migration
//	eventmesh-migrate map        which event reaches whom, before and after
//	eventmesh-migrate diagnose   one archive for a support ticket, without secrets
//
// Called by the name of a job (by a link of that name), it is that job's own
// binary: so is "eventmesh-migrate job NAME".
//
// # What it never touches
//
// What the jobs do not touch; it writes nothing by itself. Only run, undo and job
// write at all.
//
// # Why it is safe to run again
//
// Because each job is. A job that the cluster's state does not call for does not
// run; on a migrated cluster it only reads.
package main

import (
	"os"
	"path/filepath"

	"github.com/kyma-project/eventmesh-migration/internal/cli"
)

func main() { os.Exit(execute(filepath.Base(os.Args[0]), cli.OS(), os.Stdin)) }
