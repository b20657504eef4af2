package observed

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// TestForced: the annotation names the backend that is left and the beginning of the switch, as it
// was reported. That of another switch does nothing.
func TestForced(t *testing.T) {
	t.Parallel()
	const nats, mesh = operatorv1alpha1.NATS, operatorv1alpha1.EventMesh
	now := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	began := metav1.NewTime(now.Add(-time.Hour))
	for _, tc := range []struct {
		reason, asked string
		from, to      operatorv1alpha1.BackendType
		want          bool
	}{
		{"nobody asks", "", nats, mesh, false},
		{"this switch", "NATS/2026-11-23T03:00:00Z", nats, mesh, true},
		{"a switch that began now", "NATS/2026-11-23T04:00:00Z", nats, mesh, false},
		{"the way back", "NATS/2026-11-23T03:00:00Z", mesh, nats, false},
		{"yes", "true", nats, mesh, false},
	} {
		e := &operatorv1alpha1.Eventing{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{operatorv1alpha1.ForceTeardownAnnotation: tc.asked}}}
		e.Status.Switch = &operatorv1alpha1.Switch{From: nats, To: mesh, Since: began}
		w := &World{Now: now, Eventing: e}
		if got := w.Forced(tc.from, tc.to); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}
