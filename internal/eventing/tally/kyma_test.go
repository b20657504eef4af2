package tally

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
)

// TestMetricsOfKyma: what dashboards for Kyma's own eventing ask for is there, with its labels, and
// is gone with the Subscription.
func TestMetricsOfKyma(t *testing.T) {
	registry := prometheus.NewRegistry()
	gathered := func() string {
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return answer.Body.String()
	}
	m := New(registry)
	orders, bills := types.NamespacedName{Namespace: "shop", Name: "orders"}, types.NamespacedName{Namespace: "shop", Name: "bills"}
	m.Subscribed(orders, []string{"a.b", "c.d"}, false, "nats")
	m.Subscribed(orders, []string{"a.b"}, true, "nats")
	m.Subscribed(bills, []string{"a.b"}, false, "eventmesh")
	of := m.Series(orders, "consumer", "http://orders.shop/x?token=y")
	of.Posted(http.Header{"Ce-Type": {"a.b"}}, "204", time.Millisecond)
	of.Posted(http.Header{"Ce-Type": {"a.b"}}, NoAnswer, time.Millisecond)
	text := gathered()
	for _, line := range []string{
		`eventing_ec_nats_delivery_per_subscription_total{consumer_name="consumer",event_type="a.b",response_code="204",sink="http://orders.shop/x",subscription_name="orders",subscription_namespace="shop"} 1`,
		`eventing_ec_nats_delivery_per_subscription_total{consumer_name="consumer",event_type="a.b",response_code="500",sink="http://orders.shop/x",subscription_name="orders",subscription_namespace="shop"} 1`,
		`eventing_ec_nats_subscriber_dispatch_duration_seconds_count{consumer_name="consumer",event_type="a.b",response_code="204",sink="http://orders.shop/x",subscription_name="orders",subscription_namespace="shop"} 1`,
		`eventing_backend="eventmesh",stream_name="sap",subscription_name="bills",subscription_namespace="shop"} 0`,
		`eventing_backend="nats",stream_name="sap",subscription_name="orders",subscription_namespace="shop"} 1`,
		`event_type="a.b",subscription_name="orders",subscription_namespace="shop"} 1`,
		`eventing_ec_health 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "c.d") {
		t.Errorf("a type that was taken out is still there:\n%s", text)
	}
	m.Forget(orders)
	if text := gathered(); strings.Contains(text, "orders") || !strings.Contains(text, "bills") {
		t.Errorf("after a Subscription is gone:\n%s", text)
	}
}
