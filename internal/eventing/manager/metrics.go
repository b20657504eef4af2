package manager

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// The metrics of the operator, beside those of controller-runtime. docs/eventing/metrics.md has
// all.
// volumeName is the metric that the page shows, too.
const volumeName = "eventing_manager_volume_used_ratio"

var (
	stateMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "eventing_manager_state", Help: "1 for the state of the Eventing that is served, 0 for each other one.",
	}, []string{"state"})
	stepMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "eventing_manager_switch_step", Help: "1 for the step of the switch that is under way, or for Idle without one, 0 for each other one.",
	}, []string{"step"})
	applies = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "eventing_manager_applies_total", Help: "Objects that were applied because they were not as wanted.",
	})
)

// Statistics that NATS reports, as the operator has last seen them. nats-server has no metrics for
// Prometheus.
var (
	connectedMetric = prometheus.NewDesc("eventing_manager_nats_connected", "1 if NATS answers the operator, otherwise 0. There is none while NATS is not installed.", nil, nil)
	pendingMetric   = prometheus.NewDesc("eventing_manager_pending_messages", "Events in the stream of NATS.", nil, nil)
	bytesMetric     = prometheus.NewDesc("eventing_manager_stream_bytes", "Size of the events in the stream of NATS.", nil, nil)
	limitMetric     = prometheus.NewDesc("eventing_manager_stream_limit_bytes", "Size at which the stream of NATS refuses events.", nil, nil)
	fullMetric      = prometheus.NewDesc("eventing_manager_storage_full", "1 if NATS refuses events of each type, because the stream or its volume is full or cannot be written, otherwise 0.", nil, nil)
	fullTypesMetric = prometheus.NewDesc("eventing_manager_stream_full_types", "Types of a source of which NATS refuses events, because natsMaxMsgsPerTopic of them wait.", nil, nil)
	lettersMetric   = prometheus.NewDesc("eventing_manager_dead_letters_bytes", "Size of the dead letters in NATS.", nil, nil)
	mostMetric      = prometheus.NewDesc("eventing_manager_dead_letters_limit_bytes", "Size at which NATS takes no more dead letters: events that would be given up wait then.", nil, nil)
	volumeMetric    = prometheus.NewDesc(volumeName, "Part of the volume of NATS that is taken, 1 is all; of several servers, that of the one that leads. There is none with storage in memory.", nil, nil)
)

// natsMetrics are those of NATS. They are gone while nothing is known of it: a number of before
// would be taken for one of now.
type natsMetrics struct {
	seen atomic.Pointer[map[*prometheus.Desc]float64]
}

var ofNATS natsMetrics

// note takes what was seen of NATS.
func (m *natsMetrics) note(is observed.NATS) {
	now := map[*prometheus.Desc]float64{connectedMetric: one(is.Connected)}
	if is.Stream != nil {
		now[pendingMetric] = float64(is.Stream.State.Msgs)
		now[bytesMetric] = float64(is.Stream.State.Bytes)
		now[limitMetric] = float64(is.Stream.Config.MaxBytes)
		now[fullMetric] = one(stream.LevelOf(is.Stream, is.Volume) == stream.None)
		now[fullTypesMetric] = float64(len(is.Full))
	}
	if is.DeadLetters != nil {
		now[lettersMetric] = float64(is.DeadLetters.State.Bytes)
		now[mostMetric] = float64(is.DeadLetters.Config.MaxBytes)
	}
	if is.Volume.Percent > 0 {
		now[volumeMetric] = float64(is.Volume.Percent) / 100
	}
	m.seen.Store(&now)
}

// forget notes that NATS is not installed.
func (m *natsMetrics) forget() { m.seen.Store(nil) }

// Describe implements prometheus.Collector.
func (*natsMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectedMetric, pendingMetric, bytesMetric, limitMetric, fullMetric, fullTypesMetric, lettersMetric, mostMetric, volumeMetric} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *natsMetrics) Collect(to chan<- prometheus.Metric) {
	if seen := m.seen.Load(); seen != nil {
		for of, value := range *seen {
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value)
		}
	}
}

func init() { metrics.Registry.MustRegister(stateMetric, stepMetric, applies, &ofNATS) }

// released removes what was said of an Eventing that is gone.
func released() {
	stateMetric.Reset()
	stepMetric.Reset()
	ofNATS.forget()
}

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
}

func one(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
