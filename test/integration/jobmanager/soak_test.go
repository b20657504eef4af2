//go:build soak

package jobmanager

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestSoakGrowPVC kills the way back, too, of what has one: the StatefulSet.
func TestSoakGrowPVC(t *testing.T) {
	d := newDatabase(t)
	s := growSubject(t, d, d.templateOnly)
	t.Run("KillUndo", func(t *testing.T) { suite.KillUndo(t, s) })
	t.Run("KillThenBack", func(t *testing.T) { suite.KillThenBack(t, s) })
	t.Run("KillRollback", func(t *testing.T) { suite.KillRollback(t, s) })
}
