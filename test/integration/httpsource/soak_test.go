//go:build soak

package httpsource

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestSoakKills kills the job before and after every write of a plan of 40
// changes, forward, in its rollback and in its undo.
func TestSoakKills(t *testing.T) {
	s := on(t, kubernetes.KnativeV1alpha1).subject(t, 40)
	t.Run("Forward", func(t *testing.T) { suite.KillForward(t, s) })
	t.Run("ThenBack", func(t *testing.T) { suite.KillThenBack(t, s) })
	t.Run("Rollback", func(t *testing.T) { suite.KillRollback(t, s) })
	t.Run("Undo", func(t *testing.T) { suite.KillUndo(t, s) })
}

// TestSoakKillForwardV1 kills the job before and after every write where Knative is served
// at v1; TestSuite does so at v1alpha1.
func TestSoakKillForwardV1(t *testing.T) {
	suite.KillForward(t, on(t, kubernetes.KnativeV1).subject(t, 4))
}

// TestSoakFaults runs the job 60 times through an API server that answers badly
// in a fifth of all requests.
func TestSoakFaults(t *testing.T) {
	s := on(t, kubernetes.KnativeV1).subject(t, 12)
	suite.RandomFaults(t, s, 1, 60)
}
