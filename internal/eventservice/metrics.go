package eventservice

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what Prometheus is told. Labels have few values: a route and not a
// path, a status, a cause of ours; never what a client sent.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	backend     prometheus.Histogram
	refused     *prometheus.CounterVec
	repeated    prometheus.Counter // only a backend knows it
	connections prometheus.Counter
	closed      prometheus.Counter
	inFlight    prometheus.Gauge
	kyma        *kymaMetrics // nil: Kyma's publisher is not played
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
	// Kyma says the same by the names of Kyma's own publisher, too.
	Kyma bool
}

func newMetrics(named Metrics, taken func() float64) *metrics {
	prefix, backend, help := cmp.Or(named.Prefix, "event_service"), "mesh", "the adapter"
	var labels prometheus.Labels
	if named.Backend != "" {
		backend, help, labels = "backend", "the backend", prometheus.Labels{"backend": named.Backend}
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_request_duration_seconds", Help: "From the header of a request until its answer is written.", Buckets: buckets,
		}, []string{"route"}),
		backend: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "_" + backend + "_duration_seconds", Help: "How long " + help + " took for an event, failures included.", Buckets: buckets,
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_events_refused_total", Help: "Events that were not taken, by cause.",
		}, []string{"cause"}),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "_events_repeated_total", Help: "Events that the backend had already, and dropped: same source, id, type and data.",
		}),
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
	if named.Backend != "" {
		prometheus.WrapRegistererWith(labels, m.registry).MustRegister(m.repeated)
	}
	if named.Kyma {
		m.kyma = newKymaMetrics(m.registry, named.Backend)
	}
	prometheus.WrapRegistererWith(labels, m.registry).MustRegister(
		m.requests, m.duration, m.backend, m.refused, m.connections, m.closed, m.inFlight,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "_body_bytes", Help: "Memory that request bodies take.",
		}, taken),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func (m *metrics) answered(route, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
	if m.kyma != nil {
		m.kyma.answered(route, method, status, took)
	}
}

// sent notes an event that the backend was given.
func (m *metrics) sent(source, eventType string, status int, took time.Duration) {
	m.backend.Observe(took.Seconds())
	if m.kyma != nil {
		m.kyma.sent(source, eventType, status, took)
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
