package manager

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
)

// The metrics of the operator, beside those of controller-runtime. docs/eventing.md explains each.
var (
	stateMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "eventing_manager_state", Help: "1 for the state of the Eventing that is served, 0 for each other one.",
	}, []string{"state"})
	pendingMetric = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "eventing_manager_pending_messages", Help: "Events in the stream of NATS.",
	})
	applies = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "eventing_manager_applies_total", Help: "Objects that were applied because they were not as wanted.",
	})
)

func init() { metrics.Registry.MustRegister(stateMetric, pendingMetric, applies) }

func record(d *decide.Decision) {
	for _, s := range decide.States {
		value := 0.0
		if s == d.State {
			value = 1
		}
		stateMetric.WithLabelValues(string(s)).Set(value)
	}
	if d.NATS != nil {
		pendingMetric.Set(float64(d.NATS.Messages))
	}
}
