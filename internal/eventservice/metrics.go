package eventservice

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what Prometheus is told. Labels have few values: a route and not a path, a status, a
// cause of ours. What a client sent is in those of eventMetrics, which are bounded.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	events      *eventMetrics
	connections prometheus.Counter
	closed      prometheus.Counter
	inFlight    prometheus.Gauge
	kyma        *kymaMetrics // nil for the event-service

	mu      sync.Mutex
	answers map[answer]*answerMetrics
}

// buckets of durations: one is half a millisecond on loopback, and ten seconds is
// the limit of a request.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Metrics says how the metrics of a server are called. The zero value is the event-service.
type Metrics struct {
	// Prefix begins the names, event_service by default.
	Prefix string
	// Backend is the value of the label backend of each metric; "": there is no such label, and the
	// backend is called the mesh.
	Backend string
	// Taken is the result of an event that was taken, in a label. With it, events are told apart by
	// type and source, and the same is said by the names of Kyma's own publisher, too: always
	// (docs/decisions/1451-metrics-and-alerts.md). "": neither.
	Taken string
}

// newMetrics registers the metrics of a server, and those of its sender if that is a Collector.
func newMetrics(named Metrics, sender Sender, taken func() float64) *metrics {
	prefix, backend, help := cmp.Or(named.Prefix, "event_service"), "mesh", "the adapter"
	var labels prometheus.Labels
	if named.Backend != "" {
		backend, help, labels = "backend", "the backend", prometheus.Labels{"backend": named.Backend}
	}
	m := &metrics{
		registry: prometheus.NewRegistry(), answers: map[answer]*answerMetrics{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_request_duration_seconds", Help: "From the header of a request until its answer is written.", Buckets: buckets,
		}, []string{"route"}),
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "_connections_refused_total", Help: "Connections beyond the limit that were answered with 503.",
		}),
		closed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "_connections_closed_total", Help: "Idle or silent connections that were closed at the limit, so that others are served.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "_events_in_flight", Help: "Events that are being handed to " + help + ".",
		}),
	}
	if named.Taken != "" {
		m.kyma = newKymaMetrics(m.registry, named.Backend)
	}
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "_" + backend + "_duration_seconds", Help: "How long " + help + " took for an event, failures included.", Buckets: buckets,
	})
	ours := prometheus.WrapRegistererWith(labels, m.registry)
	m.events = newEventMetrics(named, prefix, ours, took, m.kyma)
	if more, ok := sender.(prometheus.Collector); ok {
		ours.MustRegister(more)
	}
	ours.MustRegister(
		m.requests, m.duration, took, m.connections, m.closed, m.inFlight,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "_body_bytes", Help: "Memory that request bodies take.",
		}, taken),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// answer is one that a route gave. method is "" if metrics do not know it: it is the client's.
type answer struct {
	route, method string
	status        int
}

// answerMetrics are the metrics of one answer, so that none is looked up by its labels for each
// request.
type answerMetrics struct {
	requests prometheus.Counter
	duration prometheus.Observer
	kyma     *kymaAnswer // nil: Kyma's publisher would not count it
}

func (m *metrics) answered(route, method string, status int, took time.Duration) {
	if method != http.MethodGet && method != http.MethodPost {
		method = ""
	}
	of := m.answer(answer{route, method, status})
	of.requests.Inc()
	of.duration.Observe(took.Seconds())
	if of.kyma != nil {
		of.kyma.requests.Inc()
		of.kyma.duration.Observe(took.Seconds())
	}
}

func (m *metrics) answer(a answer) *answerMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.answers[a]
	if of == nil {
		of = &answerMetrics{requests: m.requests.WithLabelValues(a.route, strconv.Itoa(a.status)), duration: m.duration.WithLabelValues(a.route)}
		if m.kyma != nil {
			of.kyma = m.kyma.answer(a)
		}
		m.answers[a] = of
	}
	return of
}

func (m *metrics) handler() http.Handler {
	// Only OpenMetrics has exemplars. Prometheus asks for it.
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, EnableOpenMetrics: true})
}
