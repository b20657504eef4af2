// Command httpsource-sync gives every Application of a Kyma 1.10 cluster the
// HTTPSource it lacks, so that its events can enter the mesh. It is step I of
// the migration from the NATS-based Event Bus to the event mesh.
//
// # What it does
//
// For each Application without one, it creates the HTTPSource that the
// Application's own chart would have created (kyma-integration/<application>),
// in a form that Helm 3 can adopt later. Then it waits until every HTTPSource,
// its Channel and its adapter are ready; it looks at each of the three, because
// the Ready condition of an HTTPSource can be stale.
//
//	httpsource-sync plan    shows what is missing, and writes nothing
//	httpsource-sync         creates it (the command run is the default)
//	httpsource-sync undo    deletes what a run has created
//
// If something does not become ready in time or cannot be created, the run is
// rolled back: what it created is deleted, and the exit code says so. --help lists every
// flag and exit code.
//
// # What it never changes
//
// An HTTPSource that it has not created, whatever is wrong with it. Applications,
// Channels, adapters and everything else are only read. Where Tiller manages an
// Application and its last release lacks the HTTPSource, it creates nothing: one
// that is not of the release would break the next upgrade of that release.
//
// # Why it is safe to run again
//
// It decides by what is in the cluster: nothing is created that exists. Before
// each write, a journal in the cluster says what is about to happen; a run that
// was killed at any point is finished, or undone, by the next one. Two runs
// never work at the same time: the second waits, then ends with exit code 5. On a
// migrated cluster it only reads.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/httpsource"
)

func main() {
	os.Exit(cli.Run(httpsource.New(), cli.OS()))
}
