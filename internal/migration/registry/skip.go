package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// needs is a requirement without which there is nothing to do.
func needs(kind schema.GroupKind) []jobmanager.Requirement {
	return []jobmanager.Requirement{{Kind: kind, IfMissing: jobmanager.NotNeeded}}
}

// unless takes a job out of every run that does not ask for it.
func unless(asked func() bool, reason string) func(context.Context, jobmanager.Input) (string, error) {
	return func(context.Context, jobmanager.Input) (string, error) {
		if asked() {
			return "", nil
		}
		return reason, nil
	}
}

// notYetUpgraded says that no event-service has been upgraded. A plan, or a run of
// what can be done now, does not wait for an upgrade that has not begun.
func notYetUpgraded(ctx context.Context, in jobmanager.Input) (string, error) {
	if in.Deploys {
		return "", nil
	}
	deployments := migration.CoreResource("apps", "deployments", "Deployment")
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
	return "no event-service is upgraded yet: upgrade application-connector first", nil
}
