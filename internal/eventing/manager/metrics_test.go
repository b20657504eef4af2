package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// TestStepMetric: exactly one step has 1, whichever was recorded before.
func TestStepMetric(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change *operatorv1alpha1.Switch
		want   string
	}{
		{"a switch begins", &operatorv1alpha1.Switch{Step: operatorv1alpha1.ReasonProvisioning}, "Provisioning"},
		{"it goes on", &operatorv1alpha1.Switch{Step: operatorv1alpha1.ReasonDraining}, "Draining"},
		{"it holds what nobody waits for", &operatorv1alpha1.Switch{Step: operatorv1alpha1.ReasonDangling}, "Dangling"},
		{"it waits for too long", &operatorv1alpha1.Switch{Step: operatorv1alpha1.ReasonBlocked}, "Blocked"},
		{"it is over", nil, "Idle"},
	} {
		record(&decide.Decision{State: operatorv1alpha1.StateReady, Switch: tc.change})
		want := map[string]float64{
			"Idle": 0, "Provisioning": 0, "AwaitingSubscriptions": 0, "RollingOutPublisher": 0, "Closing": 0, "Draining": 0, "Dangling": 0, "Removing": 0, "Blocked": 0,
		}
		want[tc.want] = 1
		families, err := metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range families {
			if family.GetName() != "eventing_manager_switch_step" {
				continue
			}
			for _, m := range family.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestNATSMetrics: what is known of NATS now is there, and nothing of before.
func TestNATSMetrics(t *testing.T) {
	info := func(bytes uint64, messages uint64) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxBytes: 100 << 20}, State: jetstream.StreamState{Bytes: bytes, Msgs: messages}}
	}
	for _, tc := range []struct {
		reason string
		is     *observed.NATS
		want   map[string]float64
	}{
		{"a stream with events", &observed.NATS{Connected: true, Stream: info(50<<20, 7), Volume: stream.Volume{Percent: 30}}, map[string]float64{
			"nats_connected": 1, "pending_messages": 7, "stream_bytes": 50 << 20, "stream_limit_bytes": 100 << 20, "storage_full": 0, "stream_full_types": 0, "volume_used_ratio": 0.3,
		}},
		{"a volume that refuses events, and one type that is full", &observed.NATS{
			Connected: true, Stream: info(50<<20, 7), Volume: stream.Volume{Percent: 88, Refuses: true}, Full: map[string]time.Time{"kyma.commerce.order.created": {}},
		}, map[string]float64{
			"nats_connected": 1, "pending_messages": 7, "stream_bytes": 50 << 20, "stream_limit_bytes": 100 << 20, "storage_full": 1, "stream_full_types": 1, "volume_used_ratio": 0.88,
		}},
		{"dead letters", &observed.NATS{Connected: true, Stream: info(0, 0), DeadLetters: info(1<<20, 3)}, map[string]float64{
			"nats_connected": 1, "pending_messages": 0, "stream_bytes": 0, "stream_limit_bytes": 100 << 20, "storage_full": 0, "stream_full_types": 0,
			"dead_letters_bytes": 1 << 20, "dead_letters_limit_bytes": 100 << 20,
		}},
		{"storage in memory", &observed.NATS{Connected: true, Stream: info(0, 0)}, map[string]float64{
			"nats_connected": 1, "pending_messages": 0, "stream_bytes": 0, "stream_limit_bytes": 100 << 20, "storage_full": 0, "stream_full_types": 0,
		}},
		{"NATS does not answer", &observed.NATS{Problem: "it does not answer"}, map[string]float64{"nats_connected": 0}},
		{"NATS is not installed", nil, map[string]float64{}},
	} {
		ofNATS.forget()
		if tc.is != nil {
			ofNATS.note(*tc.is)
		}
		registry, got := prometheus.NewPedanticRegistry(), map[string]float64{}
		registry.MustRegister(&ofNATS)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			got[strings.TrimPrefix(f.GetName(), "eventing_manager_")] = f.GetMetric()[0].GetGauge().GetValue()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
