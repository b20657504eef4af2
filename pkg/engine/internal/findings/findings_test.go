package findings

import (
	"testing"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestHasError: one error among the findings is enough, and nothing less is one.
func TestHasError(t *testing.T) {
	found := &List{Log: zap.NewNop()}
	found.Tell(migration.Finding{Severity: migration.Warning})
	found.AddFinding(migration.Finding{Severity: migration.Deferred})
	if found.HasError() {
		t.Error("neither is an error")
	}
	found.AddFinding(migration.Finding{Severity: migration.Error})
	if !found.HasError() || len(found.AllFindings()) != 3 {
		t.Errorf("got %v", found.AllFindings())
	}
}
