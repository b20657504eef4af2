package tally

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
)

const traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestTypesAreBounded: beyond the limit, types of a Subscription are one, and nothing is remembered
// of each.
func TestTypesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	s := m.Series(types.NamespacedName{Namespace: "shop", Name: "orders"}, "consumer", "http://orders.shop")
	for n := range mostTypes + 10 {
		s.Posted(http.Header{"Ce-Type": {fmt.Sprintf("order.v%d", n)}}, "204", time.Millisecond)
	}
	if got := len(s.answers); got != mostTypes+1 {
		t.Errorf("%d types are remembered, want %d and one for the others", got, mostTypes)
	}
	for _, f := range gather(t, registry) {
		if f.GetName() == "eventing_ec_nats_delivery_per_subscription_total" && len(f.GetMetric()) != mostTypes+1 {
			t.Errorf("%d types are told apart", len(f.GetMetric()))
		}
		if f.GetName() == "eventing_delivery_total" && f.GetMetric()[0].GetCounter().GetValue() != mostTypes+10 {
			t.Errorf("%v events are counted", f.GetMetric()[0].GetCounter().GetValue())
		}
	}
}

// TestLatency: it is the time since NATS has accepted the event, and never less than nothing.
func TestLatency(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := New(registry).Series(types.NamespacedName{Namespace: "shop", Name: "orders"}, "consumer", "http://orders.shop")
	header := http.Header{"Ce-Type": {"a.b"}, "Traceparent": {traced}}
	s.Taken(header, time.Now().Add(-time.Hour))
	s.Taken(header, time.Now().Add(time.Minute)) // the clock of NATS is ahead
	for _, f := range gather(t, registry) {
		if f.GetName() != "eventing_delivery_latency_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 2 || h.GetSampleSum() < 3600 || h.GetSampleSum() > 3660 {
			t.Errorf("%d values, together %v seconds", h.GetSampleCount(), h.GetSampleSum())
		}
		if first := h.GetBucket()[0]; first.GetCumulativeCount() != 1 {
			t.Errorf("the first bucket is %v", first)
		}
		if !strings.Contains(fmt.Sprint(h.GetBucket()), "4bf92f3577b34da6a3ce929d0e0e4736") {
			t.Errorf("no trace in %v", h.GetBucket())
		}
		return
	}
	t.Error("there is no such metric")
}

func gather(t *testing.T, registry *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// BenchmarkPosted: what the metrics of one delivery cost.
func BenchmarkPosted(b *testing.B) {
	for _, header := range []http.Header{{"Ce-Type": {"order.created.v1"}}, {"Ce-Type": {"order.created.v1"}, "Traceparent": {traced}}} {
		b.Run(fmt.Sprintf("Traced=%v", len(header) > 1), func(b *testing.B) {
			s := New(prometheus.NewRegistry()).Series(types.NamespacedName{Namespace: "shop", Name: "orders"}, "consumer", "http://orders.shop")
			accepted := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				s.Posted(header, "204", time.Millisecond)
				s.Taken(header, accepted)
			}
		})
	}
}
