package findings

import (
	"testing"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestHasError: one error among the findings is enough, and nothing less is one.
func TestHasError(t *testing.T) {
	found := New(zap.NewNop())
	found.Tell(migration.Finding{Severity: migration.Warning})
	found.Add(migration.Finding{Severity: migration.Deferred})
	if found.HasError() {
		t.Error("neither is an error")
	}
	found.Add(migration.Finding{Severity: migration.Error})
	if !found.HasError() || len(found.All()) != 3 {
		t.Errorf("got %v", found.All())
	}
}
