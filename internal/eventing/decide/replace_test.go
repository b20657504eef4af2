package decide

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// TestReplacedStatefulSet: a StatefulSet with another value in a field that cannot be changed is
// deleted without its pods, and created again. Where the pods could not be taken over, or would get
// other volumes, nothing is deleted.
func TestReplacedStatefulSet(t *testing.T) {
	key := observed.Key{Kind: "StatefulSet", Name: "eventing-nats"}
	replaced := func(field string) []string {
		return []string{"delete StatefulSet eventing-nats without its pods, to change " + field, "create StatefulSet eventing-nats"}
	}
	applied := []string{"apply StatefulSet eventing-nats"}
	set := func(value any, path ...string) func(*scene) {
		return func(s *scene) { s.set("StatefulSet", "eventing-nats", value, path...) }
	}
	template := func(change func(map[string]any)) func(*scene) {
		return func(s *scene) {
			all, _, _ := unstructured.NestedSlice(s.w.Ours[key].Object, "spec", "volumeClaimTemplates")
			one, _ := all[0].(map[string]any)
			change(one)
			s.set("StatefulSet", "eventing-nats", all, "spec", "volumeClaimTemplates")
		}
	}
	nested := func(value any, path ...string) func(*scene) {
		return template(func(one map[string]any) {
			if err := unstructured.SetNestedField(one, value, path...); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, tc := range []struct {
		reason string
		was    func(*scene)
		want   []string
	}{
		{"as it is", func(*scene) {}, nil},
		{"another Service", set("eventing-nats-former", "spec", "serviceName"), replaced("spec.serviceName")},
		{"another order of pods", set("OrderedReady", "spec", "podManagementPolicy"), replaced("spec.podManagementPolicy")},
		{"labels of volumes", nested("former", "metadata", "labels", "app.kubernetes.io/name"), replaced("spec.volumeClaimTemplates")},
		{"smaller volumes", nested("500Mi", "spec", "resources", "requests", "storage"), replaced("spec.volumeClaimTemplates")},
		{"the same size in other digits", nested("1024Mi", "spec", "resources", "requests", "storage"), nil},
		{"what the API server adds", nested("Pending", "status", "phase"), nil},
		{"two of them", func(s *scene) {
			set("eventing-nats-former", "spec", "serviceName")(s)
			set("OrderedReady", "spec", "podManagementPolicy")(s)
		}, replaced("spec.serviceName, spec.podManagementPolicy")},
		{"what a webhook makes of each new one", func(s *scene) {
			want := s.w.Ours[key].DeepCopy()
			set("OrderedReady", "spec", "podManagementPolicy")(s)
			s.w.Kept = drift.Kept{}
			s.w.Kept.Note(want, s.w.Ours[key], s.w.Now.Add(-time.Hour))
		}, nil},
		{"what a webhook makes of each template of pods, an hour later", func(s *scene) {
			want := s.w.Ours[key].DeepCopy()
			set(int64(1), "spec", "template", "spec", "terminationGracePeriodSeconds")(s)
			s.w.Kept = drift.Kept{}
			s.w.Kept.Note(want, s.w.Ours[key], s.w.Now.Add(-time.Hour))
		}, applied},
		{"the template of pods, which can be changed", set(int64(1), "spec", "template", "spec", "terminationGracePeriodSeconds"), applied},
		{"another selector: its pods would be lost", set("former", "spec", "selector", "matchLabels", "app.kubernetes.io/name"), applied},
		{"another name of volumes: events would be lost", nested("former", "metadata", "name"), applied},
		{"no volumes: events would be lost", set([]any{}, "spec", "volumeClaimTemplates"), applied},
		{"a new one, which somebody changes each time", func(s *scene) {
			set("eventing-nats-former", "spec", "serviceName")(s)
			s.w.Ours[key].SetCreationTimestamp(metav1.NewTime(s.w.Now.Add(-replaceAgain + time.Second)))
		}, applied},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := installed(t)
			tc.was(s)
			connected := s.w.NATS
			got, last := s.play()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if last.State != operatorv1alpha1.StateReady || len(s.w.Claims) != 1 || s.w.NATS.Stream != connected.Stream {
				t.Errorf("%s, %d volumes, stream %+v", last.State, len(s.w.Claims), s.w.NATS.Stream)
			}
		})
	}
}

// TestDeletedWhileReplaced: the Eventing is deleted when its StatefulSet is gone and the next one
// is not there. No other controller ends the pods.
func TestDeletedWhileReplaced(t *testing.T) {
	server := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kyma-system", Name: "eventing-nats-0", Labels: map[string]string{observed.NameLabel: observed.Servers}}}
	s := installed(t)
	delete(s.w.Ours, observed.Key{Kind: "StatefulSet", Name: "eventing-nats"})
	s.w.Pods = append(s.w.Pods, server)
	deleted := metav1.NewTime(s.w.Now)
	s.w.Eventing.DeletionTimestamp = &deleted
	if _, last := s.play(); len(s.w.Orphans()) != 1 || last.State != operatorv1alpha1.StateDeleting {
		t.Fatalf("before NATS is known to be empty: %s, %v", last.State, s.w.Pods)
	}
	s.w.NATS.Quiet = true
	if all, _ := s.play(); len(s.w.Pods) > 0 || all[len(all)-1] != (Release{}).String() {
		t.Errorf("%v are left after %v", s.w.Pods, all)
	}
}

// TestGuardOfPods: a pod of NATS is never deleted while its events may not be taken.
func TestGuardOfPods(t *testing.T) {
	s := installed(t)
	deleted := metav1.NewTime(s.w.Now)
	for _, tc := range []struct {
		reason    string
		deletion  *metav1.Time
		forced    string
		isRefused bool
	}{
		{"an Eventing that stays", nil, "", true},
		{"one that is deleted, and may hold events", &deleted, "", true},
		{"by force", &deleted, "true", false},
	} {
		s.w.Eventing.DeletionTimestamp = tc.deletion
		s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceDeletionAnnotation: tc.forced}
		if why := s.d.broken(s.w, Remove{observed.Pod(&corev1.Pod{})}); (why != "") != tc.isRefused {
			t.Errorf("%s: %q", tc.reason, why)
		}
	}
}
