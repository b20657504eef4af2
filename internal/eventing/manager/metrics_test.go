package manager

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
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
