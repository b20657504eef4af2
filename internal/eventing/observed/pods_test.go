package observed

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

func namesOf(pods []corev1.Pod) (all []string) {
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return all
}

// TestOrphans: a pod that a controller has, or that is on its way out, is left to that.
func TestOrphans(t *testing.T) {
	t.Parallel()
	yes, ended := true, metav1.Now()
	server := func(name string, deleted *metav1.Time, owner ...metav1.OwnerReference) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner, DeletionTimestamp: deleted, Labels: map[string]string{NameLabel: Servers}}}
	}
	w := &World{Pods: []corev1.Pod{
		server("left", nil), server("ends", &ended), server("owned", nil, metav1.OwnerReference{Kind: "StatefulSet", Name: "eventing-nats", Controller: &yes}),
		{ObjectMeta: metav1.ObjectMeta{Name: "another", Labels: map[string]string{NameLabel: Publisher}}},
	}}
	if diff := cmp.Diff([]string{"left"}, namesOf(w.Orphans())); diff != "" {
		t.Errorf("orphans (-want +got):\n%s", diff)
	}
}

// TestSendElsewhere: a pod that does not say where it sends may send to each backend.
func TestSendElsewhere(t *testing.T) {
	t.Parallel()
	ended := metav1.Now()
	pod := func(name, component, to string, deleted *metav1.Time) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deleted, Labels: map[string]string{NameLabel: component, backend.BackendLabel: to}}}
	}
	w := &World{Pods: []corev1.Pod{
		pod("here", Publisher, "NATS", nil), pod("there", Publisher, "EventMesh", nil), pod("ends", Publisher, "EventMesh", &ended), pod("unknown", Publisher, "", nil), pod("controller", Controller, "EventMesh", nil),
	}}
	if diff := cmp.Diff([]string{"there", "ends", "unknown"}, namesOf(w.SendElsewhere(operatorv1alpha1.NATS))); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// TestEnded: an evicted pod does nothing any more, once its containers have ended.
func TestEnded(t *testing.T) {
	t.Parallel()
	running := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	terminated := []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	now := metav1.Now()
	for _, tc := range []struct {
		reason     string
		deleted    *metav1.Time
		phase      corev1.PodPhase
		containers []corev1.ContainerStatus
		want       bool
	}{
		{"it runs", nil, corev1.PodRunning, running, false},
		{"it begins", nil, corev1.PodPending, nil, false},
		{"its node does not answer", nil, corev1.PodUnknown, running, false},
		{"it was evicted", nil, corev1.PodFailed, terminated, true},
		{"it was evicted before its containers had begun", nil, corev1.PodFailed, nil, true},
		{"it is evicted by an early kubelet", nil, corev1.PodFailed, running, false},
		{"its node was shut down", nil, corev1.PodSucceeded, terminated, true},
		{"it is being deleted", &now, corev1.PodFailed, terminated, false},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}, Status: corev1.PodStatus{Phase: tc.phase, ContainerStatuses: tc.containers}}
		if got := Ended(&pod); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
}

// TestLingers: a pod has 30 seconds more than it was given.
func TestLingers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	w := &World{Now: now}
	for _, tc := range []struct {
		reason  string
		deleted *metav1.Time
		want    bool
	}{
		{"it runs", nil, false},
		{"it may run on", &metav1.Time{Time: now.Add(time.Minute)}, false},
		{"it is a little late", &metav1.Time{Time: now.Add(-30 * time.Second)}, false},
		{"it hangs", &metav1.Time{Time: now.Add(-31 * time.Second)}, true},
	} {
		if got := w.Lingers(corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}}); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}
