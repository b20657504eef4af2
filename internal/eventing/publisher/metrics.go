package publisher

import "github.com/prometheus/client_golang/prometheus"

// The metrics of the way to the backend, beside those of package eventservice, which adds the
// backend as a label.
var (
	acceptsMetric = prometheus.NewDesc("eventing_publisher_accepts", "1 if events may be sent to the backend of this pod, 0 while the operator does not allow it: each event is refused then.", nil, nil)
	natsMetric    = prometheus.NewDesc("eventing_publisher_nats_connected", "1 if this pod is connected to NATS, otherwise 0. On the mesh there is no such connection.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*Publisher) Describe(to chan<- *prometheus.Desc) {
	to <- acceptsMetric
	to <- natsMetric
}

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(acceptsMetric, prometheus.GaugeValue, one(p.accepts()))
	if is, known := p.transport.connected(); known {
		to <- prometheus.MustNewConstMetric(natsMetric, prometheus.GaugeValue, one(is))
	}
}

// accepts tells whether events may be sent to the backend.
func (p *Publisher) accepts() bool {
	b := p.backends.Load()
	return b != nil && b.Accept.Has(p.backend)
}

func one(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
