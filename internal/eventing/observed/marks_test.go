package observed

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// TestDrained: only a mark of the same epoch says that NATS holds nothing more, and no mark at all
// that it never held anything.
func TestDrained(t *testing.T) {
	t.Parallel()
	const names = backend.Names("eventing")
	config := func(data map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "data": data}}
		u.SetName(names.NATSConfig())
		u.SetAnnotations(map[string]string{backend.EpochAnnotation: "e2"})
		return u
	}
	servers := &unstructured.Unstructured{Object: map[string]any{"kind": "StatefulSet"}}
	servers.SetName(names.NATS())
	opened, another, drained := map[string]string{backend.EpochAnnotation: "e2"}, map[string]string{backend.EpochAnnotation: "e2", DrainedAnnotation: "e1"}, map[string]string{backend.EpochAnnotation: "e2", DrainedAnnotation: "e2"}
	for _, tc := range []struct {
		reason string
		ours   []*unstructured.Unstructured
		claim  map[string]string
		want   bool
	}{
		{"nothing is there", nil, nil, true},
		{"servers whose ConfigMap is gone", []*unstructured.Unstructured{servers}, nil, false},
		{"a volume that an epoch was written to", nil, opened, false},
		{"a volume that was drained in another epoch", nil, another, false},
		{"a volume that was drained", nil, drained, true},
		{"it was never opened", []*unstructured.Unstructured{servers, config(nil)}, nil, true},
		{"it was never opened, with a volume of before", []*unstructured.Unstructured{servers, config(nil)}, opened, false},
		{"it was opened", []*unstructured.Unstructured{servers, config(map[string]any{OpenedKey: "e2"})}, nil, false},
		{"it was drained", []*unstructured.Unstructured{servers, config(map[string]any{OpenedKey: "e2", DrainedKey: "e2"})}, drained, true},
		{"it was drained in another epoch", []*unstructured.Unstructured{servers, config(map[string]any{OpenedKey: "e2", DrainedKey: "e1"})}, drained, false},
	} {
		w := &World{Ours: map[Key]*unstructured.Unstructured{}}
		for _, u := range tc.ours {
			w.Ours[KeyOf(u)] = u
		}
		if tc.claim != nil {
			w.Claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data-eventing-nats-0", Annotations: tc.claim}}}
		}
		if got := w.Drained(names); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}
