package eventservice

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// kymaMetrics say the same by the names of Kyma's own publisher, so that dashboards and alerts for
// it go on: eventing-publisher-proxy 1f3a16d, pkg/metrics.
type kymaMetrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	backend   *prometheus.HistogramVec
	published *prometheus.CounterVec
	to        string
}

// kymaOutcome are the metrics of one kind of events and one status.
type kymaOutcome struct {
	published prometheus.Counter
	backend   prometheus.Observer
}

// kymaPaths are the paths of routes, as Kyma's router has them.
var kymaPaths = map[string]string{
	"publish": "/publish", "v1/events": "/{application}/v1/events", "subscribed": "/{application}/v1/events/subscribed", "health": "/healthz", "ready": "/readyz",
}

func newKymaMetrics(registry prometheus.Registerer, to string) *kymaMetrics {
	request := []string{"code", "method", "path"}
	m := &kymaMetrics{
		to: to,
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

// kymaAnswer are the metrics of one answer.
type kymaAnswer struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

// answer are the metrics of an answer; nil if Kyma's router does not know the request, and counts
// it not.
func (m *kymaMetrics) answer(a answer) *kymaAnswer {
	path := kymaPaths[a.route]
	if path == "" || a.method == "" {
		return nil
	}
	labels := []string{strconv.Itoa(a.status), strings.ToLower(a.method), path}
	return &kymaAnswer{m.requests.WithLabelValues(labels...), m.duration.WithLabelValues(labels...)}
}

func (m *kymaMetrics) outcome(of kind, code string) kymaOutcome {
	return kymaOutcome{m.published.WithLabelValues(of.eventType, of.source, code), m.backend.WithLabelValues(code, m.to)}
}

// count counts an event for which the backend took so long.
func (o kymaOutcome) count(took time.Duration) {
	o.published.Inc()
	o.backend.Observe(float64(took) / float64(time.Millisecond))
}
