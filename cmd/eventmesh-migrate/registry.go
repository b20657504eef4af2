package main

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Release is the version of Kyma that this source belongs to. A job that must be
// gone by then fails the tests.
const Release = "1.11.0"

// Components whose upgrade the migration belongs to, in the installer's order.
const (
	componentCore                 = "core"
	componentEventBus             = "event-bus"
	componentEventSources         = "event-sources"
	componentApplicationConnector = "application-connector"
)

func components() []string {
	return []string{componentCore, componentEventBus, componentEventSources, componentApplicationConnector}
}

// newJobs returns every job of the program, each registered in a file of its own.
func newJobs() []jobmanager.Job {
	return []jobmanager.Job{
		growPVC(),
		adoptByHelm(),
		httpsourceSync(),
		serviceinstanceRecreate(),
		triggerSync(),
		eventserviceVerify(),
		eventbusScaledown(),
		eventbusPurge(),
	}
}

// needs is a requirement without which there is nothing to do.
func needs(kind schema.GroupKind) jobmanager.Requirement {
	return jobmanager.Requirement{Kind: kind, IfMissing: jobmanager.NotNeeded}
}

// notYetUpgraded says that no event-service has been upgraded: whoever only looks,
// or runs what can be done now, does not wait for an upgrade that nobody has begun.
func notYetUpgraded(ctx context.Context, in jobmanager.Input) (string, error) {
	if in.Deploys {
		return "", nil
	}
	deployments := migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Kind: "Deployment"}
	old, switched := 0, 0
	err := in.Cluster.Each(ctx, deployments, kyma.IntegrationNamespace, migration.ListOptions{}, func(u *unstructured.Unstructured) error {
		switch {
		case len(eventpath.ApplicationsOf(u)) == 0:
		case eventpath.PostsToMesh(u):
			switched++
		default:
			old++
		}
		return nil
	})
	if err != nil || switched > 0 || old == 0 {
		return "", err
	}
	return "no event-service is upgraded yet: the upgrade of application-connector does that", nil
}

// unlessAsked takes a job out of every run that does not ask for it.
func unlessAsked(asked func() bool, reason string) func(context.Context, jobmanager.Input) (string, error) {
	return func(context.Context, jobmanager.Input) (string, error) {
		if asked() {
			return "", nil
		}
		return reason, nil
	}
}
