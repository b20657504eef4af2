package delivery

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics are what Prometheus is told about deliveries. The label subscription is
// <namespace>/<name>.
type Metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	backlog  *prometheus.GaugeVec
	kyma     *kymaMetrics
}

// NewMetrics returns metrics that are registered there.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	const subscription = "subscription"
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventing_delivery_total", Help: "Deliveries, by the status of the answer: error without an answer, invalid for a message that is no event, dead-letter for an event that the dead letter sink took, busy without a slot in time, open while a sink that failed is left alone.",
		}, []string{subscription, "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "eventing_delivery_duration_seconds", Help: "How long a sink took for an event, failures included.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{subscription}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "eventing_delivery_in_flight", Help: "Events that are being posted.",
		}, []string{subscription}),
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "eventing_delivery_backlog", Help: "Events that NATS has to deliver yet, read every 4 seconds. Those that wait for their next try, or are being posted, are among them.",
		}, []string{subscription}),
	}
	registry.MustRegister(m.total, m.duration, m.inFlight, m.backlog)
	m.kyma = newKymaMetrics(registry)
	return m
}

// forget removes what is about a Subscription that is gone.
func (m *Metrics) forget(subscription types.NamespacedName) {
	m.kyma.forget(subscription)
	labels := prometheus.Labels{"subscription": subscription.String()}
	m.total.DeletePartialMatch(labels)
	m.duration.DeletePartialMatch(labels)
	m.inFlight.DeletePartialMatch(labels)
	m.backlog.DeletePartialMatch(labels)
}
