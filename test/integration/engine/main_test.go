// Package engine_test proves the engine on a real API server.
package engine_test

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) { kubernetes.Main(m, kubernetes.Shared(&cluster)) }
