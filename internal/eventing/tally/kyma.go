package tally

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/labelcap"
)

// mostTypes bounds how many types of Subscriptions the metrics tell apart.
const mostTypes = 5_000

// kymaMetrics say the same by the names of Kyma's own eventing, so that dashboards and alerts for
// it go on: eventing-manager 90ca37ae, pkg/backend/metrics.
type kymaMetrics struct {
	deliveries *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	subscribed *prometheus.GaugeVec
	ready      *prometheus.GaugeVec
	types      *labelcap.Cap

	mu sync.Mutex
	// told is what was said last of each Subscription.
	told map[types.NamespacedName]told
}

// The labels of a Subscription.
const (
	kymaName      = "subscription_name"
	kymaNamespace = "subscription_namespace"
)

func newKymaMetrics(registry prometheus.Registerer) *kymaMetrics {
	of := []string{kymaName, kymaNamespace, "event_type", "sink", "response_code", "consumer_name"}
	m := &kymaMetrics{
		types: labelcap.New(mostTypes), told: map[types.NamespacedName]told{},
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventing_ec_nats_delivery_per_subscription_total", Help: "The same as eventing_delivery_total, by type, as Kyma's own eventing names it. No answer is 500.",
		}, of),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "eventing_ec_nats_subscriber_dispatch_duration_seconds", Help: "The same as eventing_delivery_duration_seconds, by type, as Kyma's own eventing names it.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 10),
		}, of),
		subscribed: prometheus.NewGaugeVec(prometheus.GaugeOpts{ //nolint:promlinter // the name is Kyma's
			Name: "eventing_ec_event_type_subscribed_total", Help: "1 for each type of a Subscription, as Kyma's own eventing names it.",
		}, []string{kymaName, kymaNamespace, "event_type", "consumer_name"}),
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "eventing_ec_subscription_status", Help: "1 if the Subscription is ready, otherwise 0, as Kyma's own eventing names it.",
		}, []string{kymaName, kymaNamespace, "consumer_name", "eventing_backend", "stream_name"}),
	}
	registry.MustRegister(m.deliveries, m.duration, m.subscribed, m.ready, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "eventing_ec_health", Help: "1: the controller runs, as Kyma's own eventing names it.",
	}, func() float64 { return 1 }))
	return m
}

// kymaSeries are the metrics of one answer to one type.
type kymaSeries struct {
	deliveries prometheus.Counter
	duration   prometheus.Observer
}

// note notes a try to deliver an event.
func (s kymaSeries) note(took time.Duration) {
	s.deliveries.Inc()
	s.duration.Observe(took.Seconds())
}

func (m *kymaMetrics) series(of *Series, a answer) kymaSeries {
	sink, _, _ := strings.Cut(of.sink, "?") // a query may hold what is nobody else's
	code := a.code
	if code == NoAnswer {
		code = "500"
	}
	labels := []string{of.subscription.Name, of.subscription.Namespace, a.eventType, sink, code, of.consumer}
	return kymaSeries{m.deliveries.WithLabelValues(labels...), m.duration.WithLabelValues(labels...)}
}

// label is a type of a Subscription as the value of a label.
func (m *kymaMetrics) label(key types.NamespacedName, eventType string) string {
	if m.types.Values(key.String(), eventType)[0] == labelcap.Other {
		return labelcap.Other
	}
	return eventType
}

// told is what was said of a Subscription.
type told struct {
	types []string
	ready bool
	on    string
}

// Subscribed tells which types a Subscription has now, and whether it is ready on a backend, "nats"
// or "eventmesh".
func (m *Metrics) Subscribed(key types.NamespacedName, eventTypes []string, ready bool, on string) {
	k, say := m.kyma, told{slices.Clone(eventTypes), ready, on}
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.told[key]
	if before.ready == ready && before.on == on && slices.Equal(before.types, eventTypes) {
		return
	}
	k.told[key] = say
	consumer, value := backend.ConsumerName(key.Namespace, key.Name), 0.0
	if ready {
		value = 1
	}
	// By all of their labels: a part of them is compared with the metrics of all Subscriptions.
	k.ready.DeleteLabelValues(key.Name, key.Namespace, consumer, before.on, backend.Stream)
	for _, eventType := range before.types {
		k.subscribed.DeleteLabelValues(key.Name, key.Namespace, eventType, consumer)
	}
	k.ready.WithLabelValues(key.Name, key.Namespace, consumer, on, backend.Stream).Set(value)
	for _, eventType := range eventTypes {
		if k.label(key, eventType) != labelcap.Other {
			k.subscribed.WithLabelValues(key.Name, key.Namespace, eventType, consumer).Set(1)
		}
	}
}

func (m *kymaMetrics) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.told, key)
	m.types.Forget(key.String())
	for _, vector := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{m.deliveries, m.duration, m.subscribed, m.ready} {
		vector.DeletePartialMatch(labelsOf(key))
	}
}

func labelsOf(key types.NamespacedName) prometheus.Labels {
	return prometheus.Labels{kymaName: key.Name, kymaNamespace: key.Namespace}
}
