package eventservice

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/eventmesh-migration/internal/labelcap"
)

// mostEvents bounds how many types of sources the metrics tell apart.
const mostEvents = 2_000

// kymaMetrics say the same by the names of Kyma's own publisher, so that dashboards and alerts for
// it go on: eventing-publisher-proxy 1f3a16d, pkg/metrics.
type kymaMetrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	backend   *prometheus.HistogramVec
	published *prometheus.CounterVec
	events    *labelcap.Cap
	to        string
}

// kymaPaths are the paths of routes, as Kyma's router has them.
var kymaPaths = map[string]string{
	"publish": "/publish", "v1/events": "/{application}/v1/events", "subscribed": "/{application}/v1/events/subscribed", "health": "/healthz", "ready": "/readyz",
}

func newKymaMetrics(registry prometheus.Registerer, to string) *kymaMetrics {
	request := []string{"code", "method", "path"}
	m := &kymaMetrics{
		events: labelcap.New(mostEvents), to: to,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventing_epp_requests_total", Help: "Requests answered, as Kyma's own publisher names it.",
		}, request),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "eventing_epp_requests_duration_seconds", Help: "From the header of a request until its answer is written, as Kyma's own publisher names it.",
			Buckets: []float64{.001, .002, .004, .008, .016, .032, .05, .075, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1, 1.5, 2, 3, 5},
		}, request),
		backend: prometheus.NewHistogramVec(prometheus.HistogramOpts{ //nolint:promlinter // the name is Kyma's
			Name: "eventing_epp_backend_duration_milliseconds", Help: "How long the backend took for an event, as Kyma's own publisher names it.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 14),
		}, []string{"code", "destination_service"}),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventing_epp_event_type_published_total", Help: "Events by type and source, as Kyma's own publisher names it; other for those beyond 2000 combinations.",
		}, []string{"event_type", "event_source", "code"}),
	}
	registry.MustRegister(m.requests, m.duration, m.backend, m.published, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "eventing_epp_health", Help: "1: the publisher runs, as Kyma's own publisher names it.",
	}, func() float64 { return 1 }))
	return m
}

func (m *kymaMetrics) answered(route, method string, status int, took time.Duration) {
	path := kymaPaths[route]
	if path == "" || method != http.MethodGet && method != http.MethodPost {
		return // Kyma's router counts what it knows
	}
	labels := []string{strconv.Itoa(status), strings.ToLower(method), path}
	m.requests.WithLabelValues(labels...).Inc()
	m.duration.WithLabelValues(labels...).Observe(took.Seconds())
}

func (m *kymaMetrics) sent(source, eventType string, status int, took time.Duration) {
	code, of := strconv.Itoa(status), m.events.Values(eventType, source)
	m.published.WithLabelValues(of[0], of[1], code).Inc()
	m.backend.WithLabelValues(code, m.to).Observe(float64(took) / float64(time.Millisecond))
}
