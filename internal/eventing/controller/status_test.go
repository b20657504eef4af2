package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
)

// subscription is a valid one, but for what is changed.
func subscription(change func(*eventingv1alpha2.SubscriptionSpec)) *eventingv1alpha2.Subscription {
	s := &eventingv1alpha2.Subscription{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", Generation: 3},
		Spec: eventingv1alpha2.SubscriptionSpec{
			Sink: "http://orders.shop.svc.cluster.local", TypeMatching: eventingv1alpha2.Standard, Source: "commerce", Types: []string{"order.created.v1"},
			Config: map[string]string{eventingv1alpha2.MaxInFlight: "7"},
		},
	}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func TestStatusOf(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	const nats, mesh = operatorv1alpha1.NATS, operatorv1alpha1.EventMesh
	works := health.Health{Known: true}
	for _, tc := range []struct {
		reason string
		findings
		ready    bool
		backends string // type=ready of each
		reasons  []string
	}{
		{
			"ready", findings{known: true, serving: backend.Backends{Epoch: "e", Serving: backend.Set{nats}}, ready: map[operatorv1alpha1.BackendType]bool{nats: true}, health: works},
			true, "NATS=true ", []string{eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonNATSActive, eventingv1alpha2.ReasonDelivering},
		},
		{
			"ready, and the sink takes nothing", findings{
				known: true, serving: backend.Backends{Epoch: "e", Serving: backend.Set{nats}},
				ready: map[operatorv1alpha1.BackendType]bool{nats: true}, health: health.Health{Known: true, Problem: "no"},
			},
			true, "NATS=true ", []string{eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonNATSActive, eventingv1alpha2.ReasonRetrying},
		},
		{
			"two backends serve, one does not deliver", findings{known: true, serving: backend.Backends{Serving: backend.Set{nats, mesh}}, ready: map[operatorv1alpha1.BackendType]bool{nats: true}, service: true},
			false, "EventMesh=false NATS=true ", []string{eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonMeshNotActive, eventingv1alpha2.ReasonDelivering},
		},
		{
			"only the mesh serves", findings{known: true, serving: backend.Backends{Serving: backend.Set{mesh}}, ready: map[operatorv1alpha1.BackendType]bool{mesh: true}, health: works},
			true, "EventMesh=true ", []string{eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonMeshActive, eventingv1alpha2.ReasonDelivering},
		},
		{
			"two backends serve and deliver", findings{known: true, serving: backend.Backends{Serving: backend.Set{nats, mesh}}, ready: map[operatorv1alpha1.BackendType]bool{nats: true, mesh: true}, health: works},
			true, "EventMesh=true NATS=true ", []string{eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonNATSActive, eventingv1alpha2.ReasonDelivering},
		},
		{
			"invalid", findings{known: true, serving: backend.Backends{Serving: backend.Set{nats}}, ready: map[operatorv1alpha1.BackendType]bool{nats: true}, problems: []string{"a", "b"}},
			false, "NATS=false ", []string{eventingv1alpha2.ReasonSpecInvalid, eventingv1alpha2.ReasonNATSNotActive},
		},
		{
			"no backend", findings{service: true},
			false, "", []string{eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonNATSNotActive, eventingv1alpha2.ReasonDelivering},
		},
		{
			"no backend serves any more", findings{known: true, service: true},
			false, "", []string{eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonNATSNotActive, eventingv1alpha2.ReasonDelivering},
		},
	} {
		s := subscription(nil)
		s.Status = statusOf(s, tc.findings, now)
		var backends string
		for _, b := range s.Status.Backends {
			backends += b.Type + "=" + map[bool]string{true: "true", false: "false"}[b.Ready] + " "
			if b.ObservedGeneration != 3 || b.Serving != tc.serving.Serving.String() || b.Epoch != tc.serving.Epoch {
				t.Errorf("%s: %+v", tc.reason, b)
			}
		}
		var reasons []string
		for _, c := range s.Status.Conditions {
			reasons = append(reasons, c.Reason)
		}
		if diff := cmp.Diff(tc.reasons, reasons); diff != "" || s.Status.Ready != tc.ready || backends != tc.backends {
			t.Errorf("%s: ready %v, backends %s, reasons (-want +got):\n%s", tc.reason, s.Status.Ready, backends, diff)
		}
		if again := statusOf(s, tc.findings, now.Add(time.Hour)); !sameStatus(s.Status, again) {
			t.Errorf("%s: the same findings are written again:\n%s", tc.reason, cmp.Diff(s.Status, again))
		}
	}
}

// TestConditionsStay: a condition of somebody else stays, and the time of one of ours changes with
// its status only.
func TestConditionsStay(t *testing.T) {
	was := metav1.NewTime(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC))
	now := was.Add(time.Hour)
	all := []eventingv1alpha2.Condition{{Type: "theirs", Status: corev1.ConditionTrue, LastTransitionTime: was}, {Type: "ours", Status: corev1.ConditionFalse, LastTransitionTime: was}}
	all = withCondition(all, eventingv1alpha2.Condition{Type: "ours", Status: corev1.ConditionFalse, Reason: "another"}, now)
	if !all[1].LastTransitionTime.Equal(&was) || all[1].Reason != "another" {
		t.Errorf("another reason: %+v", all[1])
	}
	all = withCondition(all, eventingv1alpha2.Condition{Type: "ours", Status: corev1.ConditionTrue}, now)
	if all[1].LastTransitionTime.Time != now || len(all) != 2 || all[0].Type != "theirs" {
		t.Errorf("another status: %+v", all)
	}
}

// TestWhatTheStatusSays: each backend says what it waits for, and what becomes of events depends on
// the backend.
func TestWhatTheStatusSays(t *testing.T) {
	const nats, mesh = operatorv1alpha1.NATS, operatorv1alpha1.EventMesh
	for _, tc := range []struct {
		reason        string
		serving       backend.Set
		active, sinks string
	}{
		{"NATS", backend.Set{nats}, "one; two", "no. Events wait, and are sent again"},
		{"the mesh", backend.Set{mesh}, "one; two", "no. Events are refused, and clients send them again"},
		{"both", backend.Set{mesh, nats}, "one; two", "no. Events wait, and are sent again"},
	} {
		f := findings{known: true, serving: backend.Backends{Serving: tc.serving}, health: health.Health{Known: true, Problem: "no"}}
		f.because("one")
		f.because("two")
		said := map[eventingv1alpha2.ConditionType]string{}
		for _, c := range statusOf(subscription(nil), f, time.Now()).Conditions {
			said[c.Type] = c.Message
		}
		if said[eventingv1alpha2.ConditionActive] != tc.active || said[eventingv1alpha2.ConditionDelivering] != tc.sinks {
			t.Errorf("%s: %q", tc.reason, said)
		}
	}
}

// TestPatience: what the mesh waits for is written when it has been the same for a while. A status
// that would be wrong meanwhile is written at once.
func TestPatience(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	const mesh, nats = operatorv1alpha1.EventMesh, operatorv1alpha1.NATS
	said := func(epoch string, ready bool, generation int64, types ...operatorv1alpha1.BackendType) (all []eventingv1alpha2.BackendReadiness) {
		for _, b := range types {
			all = append(all, eventingv1alpha2.BackendReadiness{Type: string(b), Ready: ready, ObservedGeneration: generation, Epoch: epoch})
		}
		return all
	}
	waits := func(why string, change ...func(*findings)) findings {
		f := findings{known: true, serving: backend.Backends{Epoch: "2", Serving: backend.Set{mesh, nats}}, why: why, ready: map[operatorv1alpha1.BackendType]bool{nats: true}}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	for _, tc := range []struct {
		reason string
		said   []eventingv1alpha2.BackendReadiness
		f      findings
		want   time.Duration
	}{
		{"NATS delivers, and the mesh does not yet", said("1", true, 1, nats), waits("a"), meshPatience},
		{"the status says already that the mesh is not ready", said("2", false, 1, mesh), waits("a"), messagePatience},
		{"a new Subscription", nil, waits("a"), 0},
		{"an earlier generation", said("1", true, 0, nats), waits("a"), 0},
		{"the status says that the mesh is ready", said("1", true, 1, mesh), waits("a"), 0},
		{"the mesh is ready", said("2", false, 1, mesh), waits("", func(f *findings) { f.ready[mesh] = true }), 0},
		{"the mesh does not serve", said("1", true, 1, nats), waits("a", func(f *findings) { f.serving.Serving = backend.Set{nats} }), 0},
		{"an error", said("1", true, 1, nats), waits("a", func(f *findings) { f.failed = true }), 0},
	} {
		p := patience{of: map[types.NamespacedName]waiting{}}
		s := &eventingv1alpha2.Subscription{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", Generation: 1}, Status: eventingv1alpha2.SubscriptionStatus{Backends: tc.said}}
		if got := p.left(s, tc.f, nil, began); got != tc.want {
			t.Errorf("%s: put off for %s, want %s", tc.reason, got, tc.want)
		}
		if tc.want == 0 {
			continue
		}
		if left := p.left(s, tc.f, backend.Versions{mesh: "7"}, began); left > 0 {
			t.Errorf("%s: what is not true any more that was said of all is put off for %s", tc.reason, left)
		}
		p.left(s, tc.f, nil, began)
		if left := p.left(s, tc.f, nil, began.Add(tc.want)); left > 0 {
			t.Errorf("%s: still put off for %s", tc.reason, left)
		}
		tc.f.why = "b"
		if left := p.left(s, tc.f, nil, began.Add(tc.want)); left != tc.want {
			t.Errorf("%s: another message is put off for %s", tc.reason, left)
		}
		for i := range 200 {
			p.of[types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i)}] = waiting{"a", began}
		}
		if left := p.left(s, tc.f, nil, began.Add(tc.want)); left != 201*waitingPatience {
			t.Errorf("%s: one of 201 that wait is put off for %s", tc.reason, left)
		}
	}
}

// TestConfigWithoutEffect: keys that Kyma's own eventing knows and nothing here reads are named as
// long as they are there, and change nothing else.
func TestConfigWithoutEffect(t *testing.T) {
	f := findings{
		known: true, serving: backend.Backends{Serving: backend.Set{operatorv1alpha1.NATS}},
		ready: map[operatorv1alpha1.BackendType]bool{operatorv1alpha1.NATS: true}, health: health.Health{Known: true},
	}
	s := subscription(func(spec *eventingv1alpha2.SubscriptionSpec) {
		spec.Config["qos"], spec.Config["exemptHandshake"] = "AT_LEAST_ONCE", "true"
	})
	said := func() string {
		s.Status = statusOf(s, f, time.Now())
		if !s.Status.Ready {
			t.Errorf("it is not ready: %+v", s.Status.Conditions)
		}
		for _, c := range s.Status.Conditions {
			if c.Type == eventingv1alpha2.ConditionConfigUsed {
				return string(c.Status) + ": " + c.Message
			}
		}
		return ""
	}
	if got := said(); got != "False: config has no effect here: exemptHandshake, qos. Remove what you do not need" {
		t.Errorf("said %q", got)
	}
	s.Spec.Config = map[string]string{eventingv1alpha2.MaxInFlight: "7"}
	if got := said(); got != "" {
		t.Errorf("said %q of keys that are gone", got)
	}
}
