package manager

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
)

// The metrics of the operator, beside those of controller-runtime. docs/eventing/README.md explains
// each.
var (
	stateMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "eventing_manager_state", Help: "1 for the state of the Eventing that is served, 0 for each other one.",
	}, []string{"state"})
	stepMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "eventing_manager_switch_step", Help: "1 for the step of the switch that is under way, or for Idle without one, 0 for each other one.",
	}, []string{"step"})
	pendingMetric = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "eventing_manager_pending_messages", Help: "Events in the stream of NATS.",
	})
	applies = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "eventing_manager_applies_total", Help: "Objects that were applied because they were not as wanted.",
	})
)

func init() { metrics.Registry.MustRegister(stateMetric, stepMetric, pendingMetric, applies) }

func record(d *decide.Decision) {
	for _, s := range decide.States {
		stateMetric.WithLabelValues(string(s)).Set(one(s == d.State))
	}
	step := operatorv1alpha1.ReasonIdle
	if d.Switch != nil {
		step = d.Switch.Step
	}
	for _, s := range decide.Steps {
		stepMetric.WithLabelValues(s).Set(one(s == step))
	}
	if d.NATS != nil {
		pendingMetric.Set(float64(d.NATS.Messages))
	}
}

func one(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
