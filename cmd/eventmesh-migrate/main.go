// Command eventmesh-migrate is the operator's own tool: every job of the migration
// from Kyma's Event Bus to the event mesh in one program, from a laptop or in a
// pod, with or without Helm. As kubectl-eventmesh_migrate on the PATH it is
// "kubectl eventmesh-migrate".
//
// # What it does
//
//	eventmesh-migrate check      what can be known before a run: permissions, webhooks, time
//	eventmesh-migrate jobs       which jobs there are, and whether each is needed now
//	eventmesh-migrate plan       each change that is left to make; writes nothing
//	eventmesh-migrate run        makes them, in the order of the hooks
//	eventmesh-migrate status     the last reports, open journals, locks, what is deferred
//	eventmesh-migrate undo JOB   undoes the newest run of a job
//	eventmesh-migrate verify     everything that is wrong with a finished migration
//	eventmesh-migrate map        which events reach which subscribers, before and after
//	eventmesh-migrate diagnose   one archive for a support ticket, without secrets
//	eventmesh-migrate explain ID what an ID or an exit code in a report means
//
// Called by the name of a job (by a link of that name), it is the binary of that
// job. "eventmesh-migrate job NAME" is the same.
//
// # What it never changes
//
// What the jobs do not change. It writes nothing by itself: only run, undo and job
// write.
//
// # Why it is safe to run again
//
// Because each job is. A job that the state of the cluster does not need does not
// run. On a migrated cluster, this program only reads.
package main

import (
	"os"
	"path/filepath"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
)

func main() { os.Exit(execute(filepath.Base(os.Args[0]), cli.OS(), os.Stdin)) }
