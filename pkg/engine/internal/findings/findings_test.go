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

// TestHint: readers of the hint get what is said in the other fields. A job of an earlier version
// has a hint only.
func TestHint(t *testing.T) {
	found := New(zap.NewNop())
	found.Add(migration.Finding{Note: "Check it", Command: "kubectl get pods"}, migration.Finding{Hint: "wait"})
	if all := found.All(); all[0].Hint != "Check it: kubectl get pods" || all[1].Hint != "wait" {
		t.Errorf("got %v", all)
	}
}

// TestFirstError: an error names its object, if it has one.
func TestFirstError(t *testing.T) {
	warning, of, none := migration.Finding{Severity: migration.Warning, Problem: "w"}, migration.Finding{Severity: migration.Error, Object: "Thing a", Problem: "is bad"}, migration.Finding{Severity: migration.Error, Problem: "all is bad"}
	for want, given := range map[string][]migration.Finding{
		"": {warning}, "Thing a: is bad": {warning, of, none}, "all is bad": {none, of},
	} {
		if got := FirstError(given); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
