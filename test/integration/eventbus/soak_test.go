//go:build soak

package eventbus

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// The whole suite, with the kill loops of rollback and undo.

func TestSoakPurge(t *testing.T) { suite.All(t, purgeSubject(t), 8) }

func TestSoakScaleDown(t *testing.T) { suite.All(t, scaleDownSubject(t), 8) }
