// Command eventbus-purge removes what the NATS-based Event Bus leaves behind in a
// Kyma cluster once its Helm release is gone. It is the last step of the migration
// to the event mesh, with Kyma 1.12.
//
// # What it does
//
// It deletes the Channels and Knative Subscriptions that the Event Bus created in
// kyma-system. It removes the two finalizers of the Event Bus from EventActivations
// and Kyma Subscriptions, so that they and their namespaces can be deleted. Last, it
// deletes the CustomResourceDefinition of Kyma Subscriptions.
//
//	eventbus-purge                         shows what it would remove (the default)
//	eventbus-purge plan --fail-if-in-use   the same; exit code 4 if it would refuse
//	eventbus-purge run --yes               removes it
//	eventbus-purge undo                    restores it
//
// --help lists every flag and exit code.
//
// # What it never changes
//
// Anything while the Event Bus is used: a Kyma Subscription, a pod of it, a
// Trigger that is not ready, or its Helm release, which it never uninstalls; then
// it refuses. EventActivations stay, and so do finalizers of others. The
// CustomResourceDefinition stays if a newer version of Kyma uses it.
//
// # Why it is safe to run again
//
// It decides by what is in the cluster. What it removes is in the journal first.
// A run that fails restores it. A run that was killed is finished, or undone, by
// the next one. When nothing is left to do, it only reads.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/purge"
)

func main() {
	os.Exit(cli.Run(purge.New(), cli.OS()))
}
