package observed

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// TestControllerState: what the controller says of Subscriptions is not believed if it cannot have
// written it in this cluster.
func TestControllerState(t *testing.T) {
	t.Parallel()
	const names = backend.Names("eventing")
	backends := backend.Backends{Epoch: "e1", Serving: backend.Set{operatorv1alpha1.NATS}}
	for _, tc := range []struct {
		reason, version, ready string
		want                   bool
	}{
		{"all up to version 90 are ready", "100", "NATS=90", true},
		{"all up to an earlier one", "100", "NATS=40", false},
		{"the ConfigMap comes from a backup", "60", "NATS=90", false},
		{"it has no version", "", "NATS=90", false},
		{"nothing is said", "100", "", false},
	} {
		config := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{
			"epoch": "e1", "observedServing": "NATS", "at": "2026-11-23T04:00:00Z", "ready": tc.ready,
		}}}
		config.SetName(names.ControllerState())
		config.SetResourceVersion(tc.version)
		w := &World{Ours: map[Key]*unstructured.Unstructured{KeyOf(config): config}}
		if got := w.ControllerState(names).AllReady(backends, operatorv1alpha1.NATS, "50"); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}
