// Command serviceinstance-recreate gives the ServiceInstances of Applications what
// they lack in the event mesh. It is step II of the migration from the NATS-based
// Event Bus to the event mesh.
//
// # What it does
//
// For each ServiceInstance of a service with events, it checks what
// application-broker creates since Kyma 1.9: an EventActivation, a Knative
// Subscription in kyma-integration, a label and a Broker in the namespace. What is
// missing is created as application-broker would have done. Only an instance that
// cannot be repaired is deleted and recreated, with its ServiceBindings and their
// ServiceBindingUsages, one instance at a time.
//
//	serviceinstance-recreate plan    shows what each instance needs and why, and writes nothing
//	serviceinstance-recreate         does it (the command run is the default)
//	serviceinstance-recreate undo    undoes what a run has done, except finished recreations
//
// If something does not become ready, or is not deleted, in time, the repairs of
// this run are rolled back, a recreation that has begun is finished, and the exit
// code says so. --help lists every flag and exit code.
//
// # What it never changes
//
// Cluster-wide service classes and those of other brokers; system namespaces; what
// is labelled to be left out; an instance that could not be recreated after its
// deletion.
// What it prints and logs holds no parameters and no credentials.
//
// # Why it is safe to run again
//
// It decides by what is in the cluster: an instance that lacks nothing is left
// alone. Before anything is deleted, a journal in the cluster has all that is
// needed to recreate it. A run that was killed at any point is finished by the
// next one. On a migrated cluster it only reads.
package main

import (
	"os"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/serviceinstance"
)

func main() {
	os.Exit(cli.Run(serviceinstance.New(), cli.OS()))
}
