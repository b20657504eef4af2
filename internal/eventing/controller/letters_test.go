package controller

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// TestDeadLetters: what is counted is what NATS says now; a Subscription without dead letters is no
// series that stays at its last number.
func TestDeadLetters(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := newDeadLetters(registry)
	d.set(map[string]uint64{"dead-letters.shop.orders": 3, "dead-letters.shop.my.bills": 1, "else": 7})
	d.set(map[string]uint64{"dead-letters.shop.my.bills": 2})
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	if m := families[0].GetMetric()[0]; m.GetLabel()[0].GetValue() != "shop/my.bills" || m.GetGauge().GetValue() != 2 {
		t.Errorf("%v", m)
	}
	if n := d.count(types.NamespacedName{Namespace: "shop", Name: "my.bills"}); n != 2 {
		t.Errorf("%d, want 2", n)
	}
	if n := d.count(types.NamespacedName{Namespace: "shop", Name: "orders"}); n != 0 {
		t.Errorf("%d dead letters of a Subscription without any", n)
	}
}
