package eventmap

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
)

// TestNothingSecretIsOnTheMap: neither of a Subscription nor of a Trigger, whether its
// address parses or not. It fails on the commit before.
func TestNothingSecretIsOnTheMap(t *testing.T) {
	for _, address := range []string{
		"http://user:hunter2@fn.shop:8080/", "http://user:hunter2%zz@fn.shop:8080/", "http://fn.shop:8080/?code=hunter2", "user:hunter2@fn.shop",
	} {
		sub := &unstructured.Unstructured{Object: map[string]any{
			"kind": "Subscription", "metadata": map[string]any{"namespace": "shop", "name": "old"},
			"spec": map[string]any{"source_id": "commerce", "event_type": "order.created", "event_type_version": "v1", "endpoint": address},
		}}
		trigger := &unstructured.Unstructured{Object: map[string]any{
			"kind": "Trigger", "metadata": map[string]any{"namespace": "shop", "name": "new"},
			"spec":   map[string]any{"filter": map[string]any{"attributes": map[string]any{"source": "erp"}}, "subscriber": map[string]any{"uri": address}},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "message": "no answer from " + address}}},
		}}
		in := &inventory.Inventory{Subscriptions: inventory.Objects{"shop/old": sub}, Triggers: inventory.Objects{"shop/new": trigger}}
		m := New(in, "")
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Flows) != 2 {
			t.Errorf("%d flows: %s", len(m.Flows), raw)
		}
		if text := string(raw); strings.Contains(strings.ReplaceAll(text, "no answer from user:hunter2@fn.shop", ""), "hunter2") {
			t.Errorf("%q is on the map: %s", address, text)
		}
	}
}
