package controller

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/connection"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
)

// TestWithoutNATS: on the mesh nobody is told that NATS cannot be reached, which would be a fault.
func TestWithoutNATS(t *testing.T) {
	var now state
	store := &letters.Store{JetStream: lettersIn(connection.New(connection.Options{}), func() state { return now })}
	for _, tc := range []struct {
		reason string
		is     state
		want   error
	}{
		{"the backends are not known yet", state{}, letters.ErrUnavailable},
		{"NATS serves, or did", state{known: true, backends: backend.Backends{NATS: &backend.NATSAddress{URL: "tls://nats"}}}, letters.ErrUnavailable},
		{"the mesh alone", state{known: true}, letters.ErrNotStored},
	} {
		now = tc.is
		if _, err := store.List(t.Context(), wire.Filter{}, 0, 1); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.reason, err, tc.want)
		}
	}
}

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
