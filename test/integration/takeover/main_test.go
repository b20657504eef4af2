// Package takeover_test proves the way from Kyma's eventing to this one, and back, on a real API
// server with the real controllers, with real NATS servers on both sides and the real programs of
// ours. Kyma's programs are played by test/standin/kymaeventing.
package takeover_test

import (
	"context"
	"testing"

	eventingmanager "github.com/kyma-project/eventmesh-migration/charts/eventing-manager"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.With(kubernetes.Workloads()), kubernetes.Shared(&cluster), kubernetes.Before(func(ctx context.Context) error {
		return cluster.InstallCRDFiles(ctx, eventingmanager.CRDs, "crds")
	}))
}
