// Package eventing_test proves the API of eventing on a real API server: which objects it takes,
// which it refuses, and what it says.
package eventing_test

import (
	"context"
	"testing"

	eventingmanager "github.com/kyma-project/eventmesh-migration/charts/eventing-manager"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.With(kind), kubernetes.Shared(&cluster), kubernetes.Before(func(ctx context.Context) error {
		if err := prepare(ctx); err != nil {
			return err
		}
		return cluster.InstallCRDFiles(ctx, eventingmanager.CRDs, "crds")
	}))
}
