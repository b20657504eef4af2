package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// set changes a field of an object.
func (s *scene) set(kind, name string, value any, path ...string) {
	s.t.Helper()
	if err := unstructured.SetNestedField(s.w.Object(kind, name).Object, value, path...); err != nil {
		s.t.Fatal(err)
	}
}

func TestPrograms(t *testing.T) {
	const publisher, controller = operatorv1alpha1.ConditionPublisherProxyReady, operatorv1alpha1.ConditionSubscriptionManagerReady
	failed := []any{map[string]any{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "it has timed out."}}
	// As the controller of Deployments writes it.
	noAccount := []any{map[string]any{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": `pods "x" is forbidden: error looking up service account kyma-system/eventing-controller: serviceaccount "eventing-controller" not found`}}
	overQuota := []any{map[string]any{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": `pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3`}}
	for _, tc := range []struct {
		reason    string
		change    func(s *scene)
		later     time.Duration
		state     operatorv1alpha1.State
		condition string
		status    metav1.ConditionStatus
		says      string // in the message
	}{
		{reason: "all pods are available", change: func(*scene) {}, state: operatorv1alpha1.StateReady, condition: publisher, status: metav1.ConditionTrue},
		{
			reason: "one pod of two takes events", state: operatorv1alpha1.StateReady, condition: publisher, status: metav1.ConditionTrue,
			change: func(s *scene) {
				s.set("Deployment", "eventing-publisher-proxy", int64(1), "status", "availableReplicas")
			},
		},
		{
			reason: "which one is missing has a condition of its own", state: operatorv1alpha1.StateReady, condition: operatorv1alpha1.ConditionPodsReady, status: metav1.ConditionFalse, says: "Publisher: 1 of 2",
			change: func(s *scene) {
				s.set("Deployment", "eventing-publisher-proxy", int64(1), "status", "availableReplicas")
			},
		},
		{
			reason: "that lasts", state: operatorv1alpha1.StateWarning, condition: operatorv1alpha1.ConditionPodsReady, status: metav1.ConditionFalse, says: "kubectl -n kyma-system get pods --selector=app.kubernetes.io/instance=eventing",
			change: func(s *scene) {
				s.set("Deployment", "eventing-publisher-proxy", int64(1), "status", "availableReplicas")
			}, later: time.Minute + time.Second,
		},
		{
			reason: "no pod delivers", state: operatorv1alpha1.StateProcessing, condition: controller, status: metav1.ConditionFalse, says: "0 of 2",
			change: func(s *scene) { s.set("Deployment", "eventing-controller", int64(0), "status", "availableReplicas") },
		},
		{
			reason: "no pod delivers for more than a minute", state: operatorv1alpha1.StateError, condition: controller, status: metav1.ConditionFalse, says: "kubectl -n kyma-system describe deployment eventing-controller",
			change: func(s *scene) { s.set("Deployment", "eventing-controller", int64(0), "status", "availableReplicas") }, later: time.Minute + time.Second,
		},
		{
			reason: "a quota leaves no room for a pod", state: operatorv1alpha1.StateProcessing, condition: controller, status: metav1.ConditionFalse, says: "exceeded quota: few",
			change: func(s *scene) {
				s.set("Deployment", "eventing-controller", int64(0), "status", "availableReplicas")
				s.set("Deployment", "eventing-controller", overQuota, "status", "conditions")
			},
		},
		{
			reason: "the account of the pods was deleted", state: operatorv1alpha1.StateProcessing, condition: controller, status: metav1.ConditionFalse, says: "apply it again",
			change: func(s *scene) {
				s.set("Deployment", "eventing-controller", int64(0), "status", "availableReplicas")
				s.set("Deployment", "eventing-controller", noAccount, "status", "conditions")
			},
		},
		{
			reason: "nor for the second one", state: operatorv1alpha1.StateReady, condition: operatorv1alpha1.ConditionPodsReady, status: metav1.ConditionFalse, says: "exceeded quota: few",
			change: func(s *scene) {
				s.set("Deployment", "eventing-controller", int64(1), "status", "availableReplicas")
				s.set("Deployment", "eventing-controller", overQuota, "status", "conditions")
			},
		},
		{
			reason: "a new template is rolled out", state: operatorv1alpha1.StateProcessing, condition: publisher, status: metav1.ConditionFalse, says: "2 of 2",
			change: func(s *scene) {
				s.set("Deployment", "eventing-publisher-proxy", int64(1), "status", "updatedReplicas")
			},
		},
		{
			reason: "that is paused", state: operatorv1alpha1.StateWarning, condition: publisher, status: metav1.ConditionFalse, says: "kubectl -n kyma-system rollout resume deployment eventing-publisher-proxy",
			change: func(s *scene) {
				s.set("Deployment", "eventing-publisher-proxy", int64(1), "status", "updatedReplicas")
				s.set("Deployment", "eventing-publisher-proxy", true, "spec", "paused")
			},
		},
		{
			reason: "nothing is to be rolled out, and that is paused", state: operatorv1alpha1.StateReady, condition: publisher, status: metav1.ConditionTrue,
			change: func(s *scene) { s.set("Deployment", "eventing-publisher-proxy", true, "spec", "paused") },
		},
		{
			reason: "Kubernetes has given up", state: operatorv1alpha1.StateError, condition: publisher, status: metav1.ConditionFalse, says: "it has timed out.",
			change: func(s *scene) {
				s.set("Deployment", "eventing-publisher-proxy", int64(1), "status", "updatedReplicas")
				s.set("Deployment", "eventing-publisher-proxy", failed, "status", "conditions")
			},
		},
		{
			reason: "an image that cannot be pulled", state: operatorv1alpha1.StateProcessing, condition: controller, status: metav1.ConditionFalse, says: "Pod eventing-controller-1 does not start: ErrImagePull not there",
			change: func(s *scene) {
				s.set("Deployment", "eventing-controller", int64(0), "status", "availableReplicas")
				i := slices.IndexFunc(s.w.Pods, func(p corev1.Pod) bool { return p.Name == "eventing-controller-1" })
				s.w.Pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not there"}}}}
			},
		},
		{
			reason: "the controller follows other backends", state: operatorv1alpha1.StateProcessing, condition: controller, status: metav1.ConditionFalse, says: "ConfigMap eventing-backends",
			change: func(s *scene) { s.set("ConfigMap", "eventing-controller-state", "e0", "data", "epoch") },
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := installed(t)
			s.w.Eventing.Status.Conditions = s.d.Decide(s.w).Conditions
			tc.change(s)
			s.w.Eventing.Status.Conditions = s.d.Decide(s.w).Conditions
			s.w.Now = s.w.Now.Add(tc.later)
			got := s.d.Decide(s.w)
			c := meta.FindStatusCondition(got.Conditions, tc.condition)
			if got.State != tc.state || c.Status != tc.status || !strings.Contains(c.Message, tc.says) || len(got.Actions) > 0 {
				t.Errorf("%s, %+v, %v", got.State, c, got.Actions)
			}
			if got.PublisherService != "eventing-publisher-proxy.kyma-system" {
				t.Errorf("publisher %q", got.PublisherService)
			}
		})
	}
}

// TestActiveBackend: the backend is active when the last pod that sends elsewhere is gone.
func TestActiveBackend(t *testing.T) {
	s := installed(t)
	s.w.Eventing.Status.ActiveBackend = ""
	s.w.Pods = append(s.w.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "eventing-publisher-proxy-old", Labels: map[string]string{observed.NameLabel: observed.Publisher, backend.BackendLabel: "EventMesh"}, DeletionTimestamp: &metav1.Time{},
	}})
	if got := s.d.Decide(s.w); got.Active != "" {
		t.Errorf("%s, while a terminating pod sends to the mesh", got.Active)
	}
	s.w.Pods = s.w.Pods[:len(s.w.Pods)-1]
	if got := s.d.Decide(s.w); got.Active != operatorv1alpha1.NATS {
		t.Errorf("%q", got.Active)
	}
}

// TestThePublisherStays: it is created when events can be stored. It is created again if somebody
// deletes it, also without NATS, but not while the stream waits for consumers.
func TestThePublisherStays(t *testing.T) {
	publisher := observed.Key{Kind: "Deployment", Name: "eventing-publisher-proxy"}
	s := installed(t)
	delete(s.w.Ours, publisher)
	s.w.NATS = observed.NATS{Problem: "refused"}
	if s.play(); s.w.Ours[publisher] == nil {
		t.Error("without NATS, the publisher is not created again")
	}
	s = installed(t)
	delete(s.w.Ours, publisher)
	s.slow = true
	s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true}}
	s.w.NATS.Stream, s.w.NewEpoch = nil, "e2"
	if s.play(); s.w.Ours[publisher] != nil || stream.Open(s.w.NATS.Stream.Config) {
		t.Error("the publisher is created while the stream waits for a consumer")
	}
}

// TestPlanned: each object that is rendered is looked for before it is created, so that one of
// others is seen.
func TestPlanned(t *testing.T) {
	s := newScene(t)
	spec := &s.w.Eventing.Spec
	spec.Backend.Config.NATSStreamReplicas, spec.Publisher.Replicas.Max, spec.Controller.MaxReplicas = 3, 5, 5
	values, err := s.d.Values(spec, map[string]string{}, nil, nil, nil, operatorv1alpha1.NATS)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := s.d.Chart.Render(chart.Release{Name: "eventing", Namespace: "kyma-system"}, values)
	if err != nil {
		t.Fatal(err)
	}
	planned := s.d.Planned(spec)
	for _, u := range rendered {
		if key := observed.KeyOf(u); !slices.Contains(planned, key) {
			t.Errorf("%s %s is rendered, and not planned", key.Kind, key.Name)
		}
	}
}

// TestUnscaled: an autoscaler that cannot measure pods for long is said, and changes no state: all
// that is there goes on. The words are those of a cluster without a metrics server.
func TestUnscaled(t *testing.T) {
	s := installed(t)
	of := &s.w.Eventing.Spec.Controller
	of.MaxReplicas, of.Resources.Limits = 5, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	s.play()
	for _, tc := range []struct {
		reason, status, of string
		since              time.Duration
		said               bool
	}{
		{"pods have just started", "False", "FailedGetResourceMetric", time.Minute, false},
		{"there is no metrics server", "False", "FailedGetResourceMetric", 5 * time.Minute, true},
		{"the Deployment is at 0", "False", "ScalingDisabled", time.Hour, false},
		{"it can measure", "True", "ValidMetricFound", time.Hour, false},
	} {
		s.set("HorizontalPodAutoscaler", "eventing-controller", []any{map[string]any{
			"type": "ScalingActive", "status": tc.status, "reason": tc.of, "lastTransitionTime": s.w.Now.Add(-tc.since).Format(time.RFC3339),
			"message": "the HPA was unable to compute the replica count: unable to fetch metrics from resource metrics API",
		}}, "status", "conditions")
		_, last := s.play()
		c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionOptionalFeatures)
		if said := c.Status == metav1.ConditionFalse && strings.HasPrefix(c.Message, "HorizontalPodAutoscaler eventing-controller adds no pods: the HPA was"); said != tc.said || last.State != operatorv1alpha1.StateReady {
			t.Errorf("%s: %s, %+v", tc.reason, last.State, c)
		}
	}
}

// TestScaledToNothing: no autoscaler gives pods to a Deployment that was scaled to 0, so the
// operator does, and does not call it ready.
func TestScaledToNothing(t *testing.T) {
	s := installed(t)
	s.w.Eventing.Spec.Publisher.Replicas.Max = 5
	s.play()
	number := []string{"spec", "replicas"}
	s.set("Deployment", "eventing-publisher-proxy", int64(0), number...)
	s.set("Deployment", "eventing-publisher-proxy", int64(0), "status", "availableReplicas")
	last := s.d.Decide(s.w)
	c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionPublisherProxyReady)
	if last.State != operatorv1alpha1.StateProcessing || c.Status != metav1.ConditionFalse || c.Message != "Somebody has scaled Deployment eventing-publisher-proxy to 0." {
		t.Errorf("%s, %+v", last.State, c)
	}
	if len(last.Actions) != 1 {
		t.Fatalf("%v", last.Actions)
	}
	apply, _ := last.Actions[0].(Apply)
	if n, _, _ := unstructured.NestedInt64(apply.Object.Object, number...); n != 2 {
		t.Errorf("%v gives it %d pods", last.Actions, n)
	}
	s.set("Deployment", "eventing-publisher-proxy", int64(1), number...)
	for _, a := range s.d.Decide(s.w).Actions {
		t.Errorf("%s, where the autoscaler has left one", a)
	}
}

// TestScaledByAnother: an autoscaler of somebody else, such as KEDA's, decides the number of pods,
// and the operator's goes: Kubernetes lets neither of two on one Deployment scale it.
func TestScaledByAnother(t *testing.T) {
	s := installed(t)
	of := &s.w.Eventing.Spec.Controller
	of.MaxReplicas, of.Resources.Limits = 5, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	s.play()
	if !s.w.Has("HorizontalPodAutoscaler") {
		t.Fatal("there is no autoscaler")
	}
	message := func() string {
		s.t.Helper()
		_, last := s.play()
		c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionSubscriptionManagerReady)
		if last.State != operatorv1alpha1.StateReady || c.Status != metav1.ConditionTrue {
			t.Errorf("%s, %+v", last.State, c)
		}
		return c.Message
	}
	number := func() int64 {
		n, _, _ := unstructured.NestedInt64(s.w.Object("Deployment", "eventing-controller").Object, "spec", "replicas")
		return n
	}
	s.w.Scaled = map[string]string{"eventing-controller": "keda-hpa-backlog"}
	if got := message(); !strings.HasPrefix(got, "HorizontalPodAutoscaler keda-hpa-backlog") || s.w.Has("HorizontalPodAutoscaler") {
		t.Errorf("%q, with an autoscaler of the operator: %t", got, s.w.Has("HorizontalPodAutoscaler"))
	}
	s.set("Deployment", "eventing-controller", int64(4), "spec", "replicas")
	s.set("Deployment", "eventing-controller", int64(4), "status", "availableReplicas")
	s.set("Deployment", "eventing-controller", int64(4), "status", "updatedReplicas")
	s.set("Deployment", "eventing-controller", int64(4), "status", "replicas")
	for _, most := range []int32{5, 0} { // 0: the Eventing has one number
		of.MaxReplicas = most
		if message(); number() != 4 {
			t.Errorf("maxReplicas %d: it has %d pods, where the autoscaler wants 4", most, number())
		}
	}
	s.w.Scaled = nil
	s.play()
	s.ready()
	if got := message(); got != "" || number() != 2 {
		t.Errorf("%q, %d pods, without an autoscaler", got, number())
	}
}

// TestAForcedDeletion: a controller that works gets time to delete what it created; one that does
// not is not awaited.
func TestAForcedDeletion(t *testing.T) {
	deleting := func(t *testing.T) *scene {
		t.Helper()
		s := installed(t)
		now := metav1.NewTime(s.w.Now)
		s.w.Eventing.DeletionTimestamp = &now
		s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceDeletionAnnotation: "true"}
		s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders", Finalizer: true}}
		return s
	}
	written := func(s *scene) {
		at := metav1.NewTime(s.w.Now)
		s.w.Object("ConfigMap", "eventing-backends").SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: s.d.Names.Marks(), Time: &at}})
	}
	waits := []string{"delete Deployment eventing-publisher-proxy", "serve no backend on ConfigMap eventing-backends"}
	goesOn := []string{"delete Deployment eventing-controller", "remove the finalizer of Subscription shop/orders"}

	s := deleting(t)
	written(s)
	if actions, _ := s.play(); cmp.Diff(waits, actions) != "" {
		t.Errorf("first (-want +got):\n%s", cmp.Diff(waits, actions))
	}
	s.w.Now = s.w.Now.Add(31 * time.Second)
	if actions := s.some(2); cmp.Diff(goesOn, actions) != "" {
		t.Errorf("after 30 seconds (-want +got):\n%s", cmp.Diff(goesOn, actions))
	}

	s = deleting(t)
	written(s)
	s.play()
	s.w.Subscriptions[0].Finalizer = false
	if actions := s.some(1); cmp.Diff(goesOn[:1], actions) != "" {
		t.Errorf("when the controller is done (-want +got):\n%s", cmp.Diff(goesOn[:1], actions))
	}

	s = deleting(t)
	written(s)
	s.set("Deployment", "eventing-controller", int64(0), "status", "availableReplicas")
	if actions := s.some(4); cmp.Diff(slices.Concat(waits, goesOn), actions) != "" {
		t.Errorf("without a controller (-want +got):\n%s", cmp.Diff(slices.Concat(waits, goesOn), actions))
	}

	// A Subscription that somebody deletes while the Eventing waits for that is not held by a
	// controller that is gone.
	s = deleting(t)
	s.w.Eventing.Annotations = nil
	delete(s.w.Ours, observed.Key{Kind: "Deployment", Name: "eventing-controller"})
	if actions, _ := s.play(); len(actions) > 0 {
		t.Errorf("a Subscription that nobody deletes: %v", actions)
	}
	s.w.Subscriptions[0].Deleting = true
	if actions := s.some(1); cmp.Diff(goesOn[1:], actions) != "" {
		t.Errorf("a Subscription that is being deleted: %v", actions)
	}
}

// some are the first actions.
func (s *scene) some(n int) (all []string) {
	s.t.Helper()
	for len(all) < n {
		actions := s.d.Decide(s.w).Actions
		if len(actions) == 0 {
			return all
		}
		for _, a := range actions {
			all = append(all, a.String())
			s.follow(a)
			s.controller()
		}
	}
	return all[:n]
}
