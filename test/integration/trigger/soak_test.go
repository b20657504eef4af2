//go:build soak

package trigger

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestSoakSuite is the whole suite, with the kill loops of rollback and undo.
func TestSoakSuite(t *testing.T) {
	halves(t, func(t *testing.T, s suite.Subject) { suite.All(t, s, 8) }, "Expand", "Contract", "ContractWithoutController")
}
