package eventservice

import (
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
	mesh        prometheus.Histogram
	refused     *prometheus.CounterVec
	connections prometheus.Counter
	closed      prometheus.Counter
	inFlight    prometheus.Gauge
}

// buckets of durations: one is half a millisecond on loopback, and ten seconds is
// the limit of a request.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newMetrics(taken func() float64) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "event_service_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "event_service_request_duration_seconds", Help: "From the header of a request until its answer is written.", Buckets: buckets,
		}, []string{"route"}),
		mesh: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "event_service_mesh_duration_seconds", Help: "How long the adapter took for an event, failures included.", Buckets: buckets,
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "event_service_events_refused_total", Help: "Events that were not taken, by cause.",
		}, []string{"cause"}),
		connections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "event_service_connections_refused_total", Help: "Connections beyond the limit that were answered with 503.",
		}),
		closed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "event_service_connections_closed_total", Help: "Idle or silent connections that were closed at the limit, so that others are served.",
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "event_service_events_in_flight", Help: "Events that are being posted to the adapter.",
		}),
	}
	m.registry.MustRegister(
		m.requests, m.duration, m.mesh, m.refused, m.connections, m.closed, m.inFlight,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "event_service_body_bytes", Help: "Memory that request bodies take.",
		}, taken),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func (m *metrics) answered(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
