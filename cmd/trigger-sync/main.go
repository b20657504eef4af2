// Command trigger-sync turns every Kyma Subscription of a Kyma 1.10 cluster into
// a Trigger of the event mesh, and deletes it once that is safe. It is step III of
// the migration from the NATS-based Event Bus to the event mesh.
//
// # What it does
//
// Expand: for each Subscription without an equal one, it creates a Trigger in the
// same namespace, and a Broker where there is none, and waits until both are
// ready. Until the switch the old path delivers: no event takes both.
//
// Contract: it deletes a Subscription when the mesh takes the events of its
// source and brings them to the namespace, its Trigger is ready, all that posts
// the events has switched to the mesh, and NATS Streaming has none left.
// Until then the deletion is deferred, and the report names the first thing that
// is missing: run the job again.
//
//	trigger-sync plan    shows what each Subscription becomes, and writes nothing
//	trigger-sync         does it (the command run is the default)
//	trigger-sync undo    undoes what a run has done
//
// If something does not become ready, or is not deleted, in time, this run is
// rolled back, and the exit code says so. --help lists every flag and exit
// code.
//
// # What it never changes
//
// Triggers, Brokers and Knative Subscriptions of others; system namespaces; what
// is labelled to be left out; finalizers of controllers other than the Event
// Bus's own. In a rollback and an undo, whatever carries live
// events.
//
// # Why it is safe to run again
//
// It decides by what is in the cluster: nothing is created that exists, under
// whatever name. Before each write, a journal in the cluster says what is about
// to happen; a run that was killed at any point is finished, or undone, by
// the next one. On a migrated cluster it only reads.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger"
)

func main() {
	os.Exit(cli.Run(trigger.New(), cli.OS()))
}
