// Command eventservice-verify waits until the event-service of every Application of a Kyma cluster
// posts to the event mesh, and says why one does not. It proves the switch of the migration from
// the NATS-based Event Bus.
//
// # What it does
//
// It runs after the upgrade of the component application-connector, while
// application-operator upgrades one Application after the other. For each it waits
// until the event-service is rolled out with --eventMeshURL and no former pod is
// left, and until its HTTPSource, Channel and adapter are ready.
//
//	eventservice-verify plan            shows what is not right yet
//	eventservice-verify                 waits for it (the command run is the default)
//	eventservice-verify --smoke         also asks each event-service for an answer
//
// One report names what is not right in time, with the reason, and the exit code
// is 1. --help lists every flag and exit code.
//
// # What it never changes
//
// Anything: it only reads. Only a report of a failure is stored.
//
// # Why it is safe to run again
//
// For the same reason.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/eventservice"
)

func main() {
	os.Exit(cli.Run(eventservice.New(), cli.OS()))
}
