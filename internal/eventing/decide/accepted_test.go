package decide

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// TestFormerLabels: what an earlier version has created, and a volume claim of a StatefulSet, lose
// the label that tools for deployments claim, and are found by the other one from then on. Nothing
// else is done to them. On f3299ef each object and claim had the label for ever.
func TestFormerLabels(t *testing.T) {
	former := map[string]string{backend.PlaneLabel: "nats", backend.PodInstanceLabel: "eventing"}
	service := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service"}}
	service.SetName("eventing-nats")
	service.SetLabels(former)
	other := service.DeepCopy()
	other.SetName("present")
	other.SetLabels(map[string]string{backend.PlaneLabel: "nats", backend.InstanceLabel: "eventing"})
	d := &Rules{Identities: identity.Identities{Names: "eventing", Namespace: "kyma-system"}}
	actions := d.relabel(&observed.World{
		Ours:   map[observed.Key]*unstructured.Unstructured{{Kind: "Service", Name: "eventing-nats"}: service, {Kind: "Service", Name: "present"}: other},
		Claims: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data-eventing-nats-0", Labels: former}}},
	})
	var names []string
	for _, a := range actions {
		patch, ok := a.(Patch)
		labels, _, _ := unstructured.NestedMap(patch.Merge, "metadata", "labels")
		if value, removed := labels[backend.PodInstanceLabel]; !ok || !removed || value != nil || labels[backend.InstanceLabel] != "eventing" || len(patch.Merge) != 1 {
			t.Errorf("action %s %v", a, patch.Merge)
		}
		names = append(names, patch.Observed.GetName())
	}
	if !slices.Equal(names, []string{"eventing-nats", "data-eventing-nats-0"}) {
		t.Errorf("patched %v", names)
	}
	for _, tc := range []struct {
		reason string
		labels map[string]string
		want   bool
	}{
		{"of an earlier version", former, true},
		{"of this version", other.GetLabels(), true},
		{"of another operator, with the label of a tool", map[string]string{backend.PlaneLabel: "nats", backend.InstanceLabel: "shop", backend.PodInstanceLabel: "eventing"}, false},
		{"without a plane", map[string]string{backend.InstanceLabel: "eventing"}, false},
	} {
		if got := d.Names.Ours(tc.labels); got != tc.want {
			t.Errorf("%s: ours is %v", tc.reason, got)
		}
	}
}
