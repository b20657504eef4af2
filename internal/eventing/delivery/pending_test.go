package delivery

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestMostIsLessThanNATSSends: nats-server closes a connection for which more than max_pending
// waits. With its own 64 MiB, a Subscription of large events lost the connection of all, and what
// was on the way came 40 seconds later.
func TestMostIsLessThanNATSSends(t *testing.T) {
	raw, err := os.ReadFile("../../../charts/eventing/charts/nats/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ MaxPayload, MaxPending int64 }
	if err := yaml.Unmarshal(raw, &values); err != nil {
		t.Fatal(err)
	}
	if values.MaxPayload == 0 || values.MaxPending < Most+2*values.MaxPayload {
		t.Errorf("max_pending is %d, a controller may have asked for %d", values.MaxPending, Most)
	}
	if b := NewBudget(1 << 40); b.total != Most {
		t.Errorf("a large container has a budget of %d, want %d", b.total, Most)
	}
}
