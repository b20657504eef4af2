package publisher

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestInterest: what somebody asks for is known by source and type, also of any source, until the
// last Subscription to it is gone.
func TestInterest(t *testing.T) {
	var i interest
	subscription := func(spec string) []kind {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{}}
		if err := yaml.Unmarshal([]byte("spec: "+spec), &u.Object); err != nil {
			t.Fatal(err)
		}
		return kindsOf(u)
	}
	orders := subscription("{source: commerce, types: [order.created.v1, order.changed.v1]}")
	if i.set("shop/orders", orders); i.none("commerce", "bill.created.v1") {
		t.Error("before the Subscriptions were read, nobody knows what nobody wants")
	}
	i.known = true
	i.set("shop/copy", subscription("{source: commerce, types: [order.created.v1]}"))
	i.set("shop/exact", subscription("{typeMatching: exact, types: [crm.customer.moved.v1, sap.kyma.custom.crm.customer.moved.v1]}"))
	i.set("shop/broken", subscription("{source: commerce, types: bill.created.v1}"))
	for _, tc := range []struct {
		reason, source, eventType string
		none                      bool
	}{
		{"a type of a source", "commerce", "order.changed.v1", false},
		{"the same type of another source", "crm", "order.changed.v1", true},
		{"a type that nobody asks for", "commerce", "bill.created.v1", true},
		{"the whole name of an event", "crm", "customer.moved.v1", false},
		{"a type of any source", "kyma", "sap.kyma.custom.crm.customer.moved.v1", false},
	} {
		if got := i.none(tc.source, tc.eventType); got != tc.none {
			t.Errorf("%s: nobody wants it: %v", tc.reason, got)
		}
	}
	i.set("shop/orders", subscription("{source: commerce, types: [order.created.v1]}"))
	if !i.none("commerce", "order.changed.v1") || i.none("commerce", "order.created.v1") {
		t.Error("a type that was taken out is still there, or another one is gone")
	}
	i.set("shop/orders", nil)
	if i.none("commerce", "order.created.v1") {
		t.Error("another Subscription still asks for it")
	}
	i.set("shop/copy", nil)
	i.set("shop/exact", nil)
	if !i.none("commerce", "order.created.v1") || len(i.of) != 0 || len(i.by) != 0 {
		t.Errorf("left: %v, %v", i.of, i.by)
	}
}
