package serviceinstance

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// trapped are instances of before application-broker's last restart.
func (w *world) trapped() (before map[string]any) {
	w.t.Helper()
	w.instance("orders", "orders")
	w.instance("stock", "stock")
	w.bind("till", "orders")
	w.check(w.broker.Restart(w.ctx))
	return w.census()
}

// TestRestartTrap: application-broker has restarted since the instances were
// provisioned. It has forgotten the operations, but not the instances, and would
// refuse each for good that comes in the place of another.
func TestRestartTrap(t *testing.T) {
	w := on(t)
	before := w.trapped()
	w.succeeds(migration.Succeeded, "--strategy=always")
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed (-before +after):\n%s", diff)
	}
	// It has deprovisioned these external IDs before, in the same life.
	w.succeeds(migration.Succeeded, "--strategy=always")
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed by the second recreation (-before +after):\n%s", diff)
	}
	w.isOnTheMesh("orders", orders)
}
