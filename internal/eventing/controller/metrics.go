package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// openMetrics lets Prometheus have exemplars, which its own text format does not have. The server
// of controller-runtime knows that format alone by itself.
func openMetrics(o *promhttp.HandlerOpts) { o.EnableOpenMetrics = true }

var natsMetric = prometheus.NewDesc("eventing_controller_nats_connected",
	"1 if the controller that delivers is connected to NATS, otherwise 0. There is none of a controller that stands by, or while NATS is no backend.", nil, nil)

// natsConnected is a metric of whether the leader can be reached by events of NATS.
type natsConnected struct{ *Controller }

// Describe implements prometheus.Collector.
func (natsConnected) Describe(to chan<- *prometheus.Desc) { to <- natsMetric }

// Collect implements prometheus.Collector.
func (n natsConnected) Collect(to chan<- prometheus.Metric) {
	n.mu.Lock()
	serves := n.state.serves(operatorv1alpha1.NATS) // only a leader has asked for the state
	n.mu.Unlock()
	if !serves {
		return
	}
	is := 0.0
	if n.connection.Connected() {
		is = 1
	}
	to <- prometheus.MustNewConstMetric(natsMetric, prometheus.GaugeValue, is)
}
