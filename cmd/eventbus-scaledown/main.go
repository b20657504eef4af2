// Command eventbus-scaledown scales the NATS-based Event Bus of a Kyma cluster to
// zero once nothing uses it any more. It is step IV of the migration to the event
// mesh.
//
// # What it does
//
// When every event-service posts to the mesh and no Kyma Subscription is left, it
// scales the publisher and then the subscription-controller to 0, and waits until
// no pod of either exists. Then it removes the finalizer of that controller from the
// EventActivations, which could never be deleted otherwise.
//
//	eventbus-scaledown plan    shows what it would do, and writes nothing
//	eventbus-scaledown         does it (the command run is the default)
//	eventbus-scaledown undo    restores the replicas and the finalizers
//
// If a pod does not end in time, everything is rolled back, and the exit code says
// so. --help lists every flag and exit code.
//
// # What it never changes
//
// Anything while the Event Bus is still used: that is reported as deferred.
// Subscriptions, Channels, the Helm release and its other objects; they are the
// business of eventbus-purge. Finalizers of others.
//
// # Why it is safe to run again
//
// It decides by what is in the cluster: what is at 0 stays at 0. The former
// number of replicas is in the journal before the change, and in an annotation
// written by the change itself, and is never 0. A run that was killed at any
// point is finished, or undone, by the next one. On a cluster where it is done
// it only reads.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/scaledown"
)

func main() {
	os.Exit(cli.Run(scaledown.New(), cli.OS()))
}
