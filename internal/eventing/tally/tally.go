// Package tally exports the metrics of deliveries by Subscription, also under the names of Kyma's
// own eventing.
package tally

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/exemplar"
)

// Metrics are what Prometheus is told about deliveries. The label subscription is
// <namespace>/<name>.
type Metrics struct {
	total     *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	latency   *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	backlog   *prometheus.GaugeVec
	repeating *prometheus.GaugeVec
	oldest    *prometheus.GaugeVec
	kyma      *kymaMetrics
	// answers and ends are of the traces of events.
	answers, ends exemplar.Pace
}

// NoAnswer is the code of a delivery that the sink did not answer.
const NoAnswer = "error"

// New returns metrics that are registered there.
func New(registry prometheus.Registerer) *Metrics {
	const subscription = "subscription"
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventing_delivery_total", Help: "Deliveries, by the status of the answer. Without one it is error. A message that is no event is invalid, and an event that became a dead letter is dead-letter. On the mesh, busy means no slot in time, and open that a sink which failed is left alone. A repeat is an event that the sink has taken a moment ago.",
		}, []string{subscription, "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "eventing_delivery_duration_seconds", Help: "How long a sink took for an event, failures included.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{subscription}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "eventing_delivery_latency_seconds", Help: "From the acceptance of an event by NATS until its sink has taken it, all tries included. On the mesh nobody knows when an event was accepted.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 15, 60, 300, 3600, 86400},
		}, []string{subscription}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "eventing_delivery_in_flight", Help: "Events that are being posted.",
		}, []string{subscription}),
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "eventing_delivery_backlog", Help: "Events that NATS has to deliver yet, read every 4 seconds. Those that wait for their next try, or are being posted, are among them.",
		}, []string{subscription}),
		repeating: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "eventing_delivery_repeating", Help: "Events of the backlog that the sink has refused, or not answered, at least once. A controller that has just begun to deliver does not know those of before until their next try.",
		}, []string{subscription}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "eventing_delivery_oldest_age_seconds", Help: "How long ago the oldest event of the backlog was published, or, while nobody has it, how long no event was taken. 0 without a backlog.",
		}, []string{subscription}),
	}
	registry.MustRegister(m.total, m.duration, m.latency, m.inFlight, m.backlog, m.repeating, m.oldest)
	m.kyma = newKymaMetrics(registry)
	return m
}

// Forget removes what is about a Subscription that is gone.
func (m *Metrics) Forget(subscription types.NamespacedName) {
	m.kyma.forget(subscription)
	labels := prometheus.Labels{"subscription": subscription.String()}
	for _, vector := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{m.total, m.duration, m.latency, m.inFlight, m.backlog, m.repeating, m.oldest} {
		vector.DeletePartialMatch(labels)
	}
}

// Waiting tells how many events of a Subscription wait in NATS, how many of them a sink has
// refused, and how long ago the oldest one was published.
func (m *Metrics) Waiting(subscription types.NamespacedName, backlog uint64, repeating int, age time.Duration) {
	m.backlog.WithLabelValues(subscription.String()).Set(float64(backlog))
	m.repeating.WithLabelValues(subscription.String()).Set(float64(repeating))
	m.oldest.WithLabelValues(subscription.String()).Set(age.Seconds())
}

// Count counts an event that was not posted to the sink.
func (m *Metrics) Count(subscription types.NamespacedName, code string) {
	m.total.WithLabelValues(subscription.String(), code).Inc()
}

// Series are the metrics of one Subscription with one sink, so that none is looked up by its labels
// for each event.
type Series struct {
	// InFlight is for events that are being posted.
	InFlight prometheus.Gauge

	metrics              *Metrics
	subscription         types.NamespacedName
	name, consumer, sink string
	duration, latency    prometheus.Observer

	mu      sync.Mutex
	codes   map[string]prometheus.Counter
	answers map[answer]kymaSeries
}

// answer is what a sink said to events of a type.
type answer struct{ eventType, code string }

// Series returns those of a Subscription with a sink, as it is in the Subscription.
func (m *Metrics) Series(subscription types.NamespacedName, consumer, sink string) *Series {
	name := subscription.String()
	return &Series{
		metrics: m, subscription: subscription, name: name, consumer: consumer, sink: sink,
		InFlight: m.inFlight.WithLabelValues(name), duration: m.duration.WithLabelValues(name), latency: m.latency.WithLabelValues(name),
		codes: map[string]prometheus.Counter{}, answers: map[answer]kymaSeries{},
	}
}

// Count counts an event that was not posted to the sink.
func (s *Series) Count(code string) { s.code(code).Inc() }

func (s *Series) code(code string) prometheus.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.codes[code]
	if c == nil {
		c = s.metrics.total.WithLabelValues(s.name, code)
		s.codes[code] = c
	}
	return c
}

// Posted notes a try to deliver an event with this header.
func (s *Series) Posted(header http.Header, code string, took time.Duration) {
	trace := s.metrics.answers.Of(header[exemplar.Header])
	exemplar.Count(s.code(code), trace)
	exemplar.Observe(s.duration, took.Seconds(), trace)
	s.kyma(answer{header["Ce-Type"][0], code}).note(took)
}

// Taken notes that the sink has taken an event that was accepted at a time. The clocks of NATS and
// of this process may differ.
func (s *Series) Taken(header http.Header, accepted time.Time) {
	exemplar.Observe(s.latency, max(time.Since(accepted), 0).Seconds(), s.metrics.ends.Of(header[exemplar.Header]))
}

// kyma are the metrics of an answer by the names of Kyma's own eventing.
func (s *Series) kyma(a answer) kymaSeries {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, known := s.answers[a]
	if known {
		return of
	}
	a.eventType = s.metrics.kyma.label(s.subscription, a.eventType)
	if of, known = s.answers[a]; !known {
		of = s.metrics.kyma.series(s, a)
		s.answers[a] = of
	}
	return of
}
