package decide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// want changes the backend of the spec.
func (s *scene) want(b operatorv1alpha1.BackendType) {
	s.w.Eventing.Spec.Backend.Type = b
	s.w.Eventing.Generation++
}

// report writes the status of a decision, as the operator does.
func (s *scene) report(o *Decision) {
	s.w.Eventing.Status.Conditions, s.w.Eventing.Status.ActiveBackend, s.w.Eventing.Status.Switch = o.Conditions, o.Active, o.Switch
}

// steps are the actions without those that only write the new epoch to an object, and without the
// stream of dead letters, which comes whenever it can.
func steps(actions []string) (all []string) {
	for _, a := range actions {
		if strings.HasSuffix(a, " stream "+backend.DeadLetters) {
			continue
		}
		if !strings.HasPrefix(a, "apply ") || strings.Contains(a, "publisher-proxy") && strings.HasPrefix(a, "apply Deployment") {
			all = append(all, a)
		}
	}
	return all
}

// TestSwitchToTheMeshAndBack: each rule in its order.
func TestSwitchToTheMeshAndBack(t *testing.T) {
	s := installed(t)
	s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true}}
	s.controller()
	s.want(operatorv1alpha1.EventMesh)
	actions, last := s.play()
	want := []string{
		"create Broker eventing", "create ConfigMap eventing-controller-roster", "serve EventMesh,NATS on ConfigMap eventing-backends", "write that events are published on Broker eventing",
		"accept events on ConfigMap eventing-backends", "apply Deployment eventing-publisher-proxy", "accept events for EventMesh alone on ConfigMap eventing-backends", "close stream sap",
	}
	if diff := cmp.Diff(want, compact(steps(actions), "apply Deployment eventing-publisher-proxy")); diff != "" {
		t.Fatalf("until NATS is closed (-want +got):\n%s", diff)
	}
	if c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionSwitching); last.Active != operatorv1alpha1.EventMesh || c.Reason != operatorv1alpha1.ReasonDraining || last.State != operatorv1alpha1.StateReady {
		t.Errorf("%s, %s, %+v", last.State, last.Active, c)
	}
	s.w.NATS.Quiet = true
	actions, last = s.play()
	want = []string{
		"write that it is drained on PersistentVolumeClaim data-eventing-nats-0", "write that NATS is drained on ConfigMap eventing-nats-config",
		"serve EventMesh on ConfigMap eventing-backends", "delete stream sap", "delete StatefulSet eventing-nats", "delete Service eventing-nats", "delete Service eventing-nats-headless",
		"delete Secret eventing-nats-tls", "delete ConfigMap eventing-nats-config",
	}
	if diff := cmp.Diff(want, without(steps(actions), "apply Deployment eventing-publisher-proxy")); diff != "" {
		t.Fatalf("until NATS is gone (-want +got):\n%s", diff)
	}
	if c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionSwitching); c.Reason != operatorv1alpha1.ReasonIdle || last.State != operatorv1alpha1.StateReady || last.Switch != nil || last.Serving.String() != "EventMesh" {
		t.Errorf("%s, %+v, %+v", last.State, c, last.Switch)
	}

	if content := observed.Data(s.w.Object("ConfigMap", "eventing-backends")); content["nats"] != "" || content["mesh"] == "" {
		t.Errorf("the address of a backend that is gone, or none of the one that is there: %v", content)
	}

	s.want(operatorv1alpha1.NATS)
	actions, last = s.play()
	want = []string{"create what Secret eventing-nats-tls lacks", "create ConfigMap eventing-nats-config", "create Service eventing-nats", "create Service eventing-nats-headless", "create StatefulSet eventing-nats"}
	if diff := cmp.Diff(want, without(actions, "apply Deployment eventing-publisher-proxy")); diff != "" || last.State == operatorv1alpha1.StateReady {
		t.Fatalf("%s, NATS is installed again (-want +got):\n%s", last.State, diff)
	}
	s.ready()
	actions, last = s.play()
	want = []string{
		"create stream sap", "serve EventMesh,NATS on ConfigMap eventing-backends", "update stream sap",
		"write the epoch on PersistentVolumeClaim data-eventing-nats-0", "write that the stream was opened on ConfigMap eventing-nats-config",
		"accept events on ConfigMap eventing-backends", "open stream sap", "apply Deployment eventing-publisher-proxy",
		"accept events for NATS alone on ConfigMap eventing-backends", "delete Broker eventing", "serve NATS on ConfigMap eventing-backends", "update stream sap",
		"write the epoch on PersistentVolumeClaim data-eventing-nats-0", "write that the stream was opened on ConfigMap eventing-nats-config", "delete ConfigMap eventing-controller-roster",
	}
	if diff := cmp.Diff(want, compact(steps(actions), "apply Deployment eventing-publisher-proxy")); diff != "" {
		t.Errorf("back to NATS (-want +got):\n%s", diff)
	}
	if last.State != operatorv1alpha1.StateReady || last.Active != operatorv1alpha1.NATS || len(s.w.Triggers) > 0 || last.Serving.String() != "NATS" {
		t.Errorf("%s, %s, %v", last.State, last.Active, last.Serving)
	}
	if content := observed.Data(s.w.Object("ConfigMap", "eventing-backends")); content["nats"] == "" || content["mesh"] != "" {
		t.Errorf("the address of a backend that is gone, or none of the one that is there: %v", content)
	}
}

// TestMeshThatRefuses: Knative says that the Broker is ready, and the controller that it refuses
// each event. That is an error after a minute, and the backend can be switched.
func TestMeshThatRefuses(t *testing.T) {
	s := installed(t)
	s.w.NATS.Quiet = true
	s.want(operatorv1alpha1.EventMesh)
	s.play()
	is := func(state operatorv1alpha1.State, reason, message string) {
		t.Helper()
		s.controller()
		_, last := s.play()
		c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionBackendAvailable)
		if last.State != state || c.Reason != reason || c.Message != message {
			t.Errorf("%s, %+v", last.State, c)
		}
		s.w.Eventing.Status.Conditions = last.Conditions
	}
	is(operatorv1alpha1.StateReady, operatorv1alpha1.ReasonMeshAvailable, "")
	s.refuses = "a Trigger is gone"
	const message = `a Trigger is gone. Next: kubectl -n kyma-system patch eventings.operator.kyma-project.io eventing --type=merge -p '{"spec":{"backend":{"type":"NATS"}}}', and when that is Ready, the same with EventMesh`
	is(operatorv1alpha1.StateProcessing, operatorv1alpha1.ReasonMeshUnavailable, message)
	s.w.Now = s.w.Now.Add(downLimit + time.Second)
	is(operatorv1alpha1.StateError, operatorv1alpha1.ReasonMeshUnavailable, message)
	s.refuses = ""
	is(operatorv1alpha1.StateReady, operatorv1alpha1.ReasonMeshAvailable, "")
	s.refuses = "a Trigger is gone"
	s.want(operatorv1alpha1.NATS)
	s.play()
	s.ready()
	if _, last := s.play(); last.State != operatorv1alpha1.StateReady || last.Active != operatorv1alpha1.NATS {
		t.Errorf("%s on %s", last.State, last.Active)
	}
}

// TestBrokerKeepsItsDelivery: a Broker of an earlier version, or one that somebody has edited,
// keeps its delivery. The next one has that of this version.
func TestBrokerKeepsItsDelivery(t *testing.T) {
	s := installed(t)
	s.w.NATS.Quiet = true
	s.want(operatorv1alpha1.EventMesh)
	s.play()
	broker := s.w.Object("Broker", "eventing")
	rendered, _, _ := unstructured.NestedMap(broker.Object, "spec", "delivery")
	former := map[string]any{"retry": int64(9), "timeout": "PT12S"}
	if err := unstructured.SetNestedMap(broker.Object, former, "spec", "delivery"); err != nil {
		t.Fatal(err)
	}
	delivery := func(want map[string]any) {
		t.Helper()
		is, _, _ := unstructured.NestedMap(s.w.Object("Broker", "eventing").Object, "spec", "delivery")
		if diff := cmp.Diff(want, is); diff != "" {
			t.Errorf("delivery (-want +got):\n%s", diff)
		}
	}
	s.play() // what it was rendered as is marked on it
	if actions, _ := s.play(); len(actions) > 0 {
		t.Errorf("the edited Broker: %v", actions)
	}
	delivery(former)
	s.d.Version = "1.2.4" // its label differs
	if actions, _ := s.play(); !slices.Contains(actions, "apply Broker eventing") {
		t.Errorf("the next version: %v", actions)
	}
	delivery(former)
	s.want(operatorv1alpha1.NATS)
	s.play()
	s.ready()
	s.play()
	s.want(operatorv1alpha1.EventMesh)
	s.play()
	delivery(rendered)
}

// TestWhatTheControllerMounts: the Secrets that the controller has as volumes are there with both
// backends. They keep nothing of NATS.
func TestWhatTheControllerMounts(t *testing.T) {
	s := newScene(t)
	s.want(operatorv1alpha1.EventMesh)
	s.ended(t, operatorv1alpha1.EventMesh, "an installation")
	for _, name := range []string{"eventing-nats-users", "eventing-nats-ca"} {
		if s.w.Object("Secret", name) == nil {
			t.Errorf("there is no Secret %s", name)
		}
	}
	if s.w.Object("Secret", "eventing-nats-tls") != nil || s.d.exists(s.w, operatorv1alpha1.NATS) {
		t.Errorf("something of NATS is there: %v", s.w.Keys())
	}

	// Servers of the outgoing backend need a certificate of the new authority. Without servers,
	// nothing needs one.
	s = begin(t, toMesh)
	s.until(t, "close stream sap")
	authority := observed.Key{Kind: "Secret", Name: "eventing-nats-ca"}
	delete(s.w.Ours, authority)
	s.until(t, "create what Secret eventing-nats-ca lacks")
	if did := s.step(); did != "create what Secret eventing-nats-tls lacks" {
		t.Errorf("after the authority of the outgoing NATS: %q", did)
	}
	s.ended(t, operatorv1alpha1.EventMesh, "a switch")
	delete(s.w.Ours, authority)
	s.until(t, "create what Secret eventing-nats-ca lacks")
	if did := s.step(); did != "" {
		t.Errorf("after the authority, without NATS: %q", did)
	}
}

// compact leaves the last one of an action that is repeated: the others only write an epoch.
func compact(actions []string, one string) (all []string) {
	seen := false
	for i, a := range actions {
		if a == one && (seen || slices.Contains(actions[i+1:], one) && !strings.HasPrefix(actions[i+1], "accept events for")) {
			continue
		}
		seen = seen || a == one
		all = append(all, a)
	}
	return all
}

func without(actions []string, one string) []string {
	return slices.DeleteFunc(actions, func(a string) bool { return a == one })
}

// TestReportsOfASwitch: while anything of the other backend is there, each look reports one
// beginning, also one that has only something to do. Limits count from it, and the annotation that
// removes NATS by force names it. No step is reported after a later one.
func TestReportsOfASwitch(t *testing.T) {
	s := begin(t, toMesh)
	var since metav1.Time
	var steps []string
	for s.works() {
		s.w.Now = s.w.Now.Add(time.Second)
		is := s.d.Decide(s.w).Switch
		switch {
		case !s.d.exists(s.w, operatorv1alpha1.NATS) || !s.w.Has("Broker"):
			continue
		case is == nil:
			t.Fatalf("after %v no switch is reported", steps)
		case since.IsZero():
			since = is.Since
		case !is.Since.Equal(&since):
			t.Errorf("the switch began at %s, and not at %s", is.Since, since)
		}
		if !slices.Contains(steps, is.Step) {
			steps = append(steps, is.Step)
		} else if steps[len(steps)-1] != is.Step {
			t.Errorf("%s is reported after %v", is.Step, steps)
		}
	}
	if want := []string{"Provisioning", "Closing", "Draining", "Removing"}; !slices.Equal(steps, want) {
		t.Errorf("the steps are %v, want %v: the controller and the pods are quick here", steps, want)
	}
}

// TestAnAsynchronousMesh: what is in its Channels cannot be seen, so the Broker stays for a time
// after the last pod that publishes to it.
func TestAnAsynchronousMesh(t *testing.T) {
	s := newScene(t)
	s.channels = "KafkaChannel"
	s.want(operatorv1alpha1.EventMesh)
	if _, last := s.play(); last.State != operatorv1alpha1.StateReady {
		t.Fatalf("%s: %+v", last.State, last.Conditions)
	}
	s.want(operatorv1alpha1.NATS)
	s.play()
	s.ready()
	_, last := s.play()
	if s.w.Object("Broker", "eventing") == nil || last.Active != operatorv1alpha1.NATS || last.After > s.d.MeshDelay || last.After == 0 {
		t.Fatalf("active %s, next look after %s", last.Active, last.After)
	}
	s.w.Now = s.w.Now.Add(s.d.MeshDelay)
	if _, last = s.play(); s.w.Object("Broker", "eventing") != nil || last.State != operatorv1alpha1.StateReady {
		t.Errorf("%s: %+v", last.State, last.Conditions)
	}
}

// TestAMeshThatWasNeverOpened: a Broker that never took an event is deleted at once, whatever its
// Channels are.
func TestAMeshThatWasNeverOpened(t *testing.T) {
	s := installed(t)
	s.channels = ""
	s.want(operatorv1alpha1.EventMesh)
	if s.play(); !s.w.Has("Broker") {
		t.Fatal("there is no Broker")
	}
	s.want(operatorv1alpha1.NATS)
	if actions, last := s.play(); s.w.Has("Broker") || last.State != operatorv1alpha1.StateReady || last.Serving.String() != "NATS" {
		t.Errorf("%s: %v", last.State, actions)
	}
}

// TestADeletedBroker: somebody deletes the Broker while pods still send to it, and the spec is
// changed back. The new Broker has no Triggers that deliver yet, so no pod may send to it before
// they do, those from before included.
func TestADeletedBroker(t *testing.T) {
	s := begin(t, toNATS)
	s.until(t, "accept events on")
	s.w.Pods = append(s.w.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{observed.NameLabel: observed.Publisher, backend.BackendLabel: "EventMesh"}}})
	delete(s.w.Ours, observed.Key{Kind: "Broker", Name: "eventing"})
	s.until(t, "serve NATS on")
	s.want(operatorv1alpha1.EventMesh)
	s.slow = true
	s.rest(t, "the switch back")
	if b := s.backends(t); !s.w.Has("Broker") || !b.Serving.Has(operatorv1alpha1.EventMesh) || b.Accept.Has(operatorv1alpha1.EventMesh) {
		t.Errorf("serving %s, accepted %s: a pod sends to a Broker without Triggers", b.Serving, b.Accept)
	}
	s.slow = false
	s.controller()
	s.w.Pods = slices.DeleteFunc(s.w.Pods, func(p corev1.Pod) bool { return p.Name == "old" })
	s.ended(t, operatorv1alpha1.EventMesh, "the Triggers deliver")
}

// TestBlockedSwitches: what stops a switch, and what it says. The outgoing backend goes on.
func TestBlockedSwitches(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(s *scene)
		later  time.Duration
		state  operatorv1alpha1.State
		step   string
		says   string
		moved  bool // the publisher sends to the mesh
	}{
		{
			reason: "a Subscription is not ready on the mesh", state: operatorv1alpha1.StateProcessing, step: operatorv1alpha1.ReasonAwaiting, says: "shop/orders",
			change: func(s *scene) { s.slow = true },
		},
		{
			reason: "a Subscription is not ready for 5 minutes", state: operatorv1alpha1.StateWarning, step: operatorv1alpha1.ReasonBlocked, says: "shop/orders", later: 5 * time.Minute,
			change: func(s *scene) { s.slow = true },
		},
		{
			reason: "a Subscription that is taken out", state: operatorv1alpha1.StateReady, step: operatorv1alpha1.ReasonDraining, moved: true,
			change: func(s *scene) { s.slow = true; s.w.Subscriptions[0].Skipped = true },
		},
		{
			reason: "a pod still sends to NATS", state: operatorv1alpha1.StateReady, step: operatorv1alpha1.ReasonRollingOut, says: "old", moved: true,
			change: func(s *scene) {
				s.w.Pods = append(s.w.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{observed.NameLabel: observed.Publisher, backend.BackendLabel: "NATS"}}})
			},
		},
		{
			reason: "a pod hangs on a dead node: NATS refuses what it sends", state: operatorv1alpha1.StateReady, step: operatorv1alpha1.ReasonDraining, moved: true,
			change: func(s *scene) {
				gone := metav1.NewTime(s.w.Now.Add(-31 * time.Second))
				s.w.Pods = append(s.w.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old", DeletionTimestamp: &gone, Labels: map[string]string{observed.NameLabel: observed.Publisher, backend.BackendLabel: "NATS"}}})
			},
		},
		{
			reason: "events wait in NATS", state: operatorv1alpha1.StateReady, step: operatorv1alpha1.ReasonDraining, says: "7 events", moved: true,
			change: func(s *scene) { s.w.NATS.Stream.State.Msgs = 7 },
		},
		{
			reason: "events wait in NATS for half an hour", state: operatorv1alpha1.StateWarning, step: operatorv1alpha1.ReasonDraining, says: "force-teardown=NATS/", moved: true, later: 31 * time.Minute,
			change: func(s *scene) { s.w.NATS.Stream.State.Msgs = 7 },
		},
		{
			reason: "NATS is away, and the Subscriptions are ready on the mesh", state: operatorv1alpha1.StateWarning, step: operatorv1alpha1.ReasonDraining, says: "does not answer. It is refused. To remove", moved: true,
			change: func(s *scene) { s.w.NATS = observed.NATS{Problem: "It is refused", Away: silence} },
		},
		{
			reason: "NATS is away for some seconds: no command is shown", state: operatorv1alpha1.StateReady, step: operatorv1alpha1.ReasonDraining, says: "does not answer now. It is refused.", moved: true,
			change: func(s *scene) { s.w.NATS = observed.NATS{Problem: "It is refused"} },
		},
		{
			reason: "a server of NATS is behind the others", state: operatorv1alpha1.StateWarning, step: operatorv1alpha1.ReasonDraining, moved: true,
			says:   "These servers are not up to date: eventing-nats-2. To remove it nevertheless: kubectl",
			change: func(s *scene) { s.w.NATS.Behind, s.w.NATS.BehindFor = []string{"eventing-nats-2"}, silence },
		},
		{
			reason: "a server of NATS is behind the others for some seconds", state: operatorv1alpha1.StateReady, step: operatorv1alpha1.ReasonDraining, moved: true,
			change: func(s *scene) { s.w.NATS.Behind = []string{"eventing-nats-2"} },
		},
		{
			reason: "the Broker never becomes ready", state: operatorv1alpha1.StateWarning, step: operatorv1alpha1.ReasonProvisioning, later: time.Minute + time.Second,
			change: func(s *scene) { s.channels = "" },
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := installed(t)
			s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true}}
			s.controller()
			s.want(operatorv1alpha1.EventMesh)
			tc.change(s)
			_, last := s.play()
			s.report(last)
			s.w.Now = s.w.Now.Add(tc.later)
			_, last = s.play()
			c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionSwitching)
			moved := observed.SendsTo(s.w.Object("Deployment", "eventing-publisher-proxy")) == operatorv1alpha1.EventMesh
			if last.State != tc.state || c == nil || c.Reason != tc.step || !strings.Contains(c.Message, tc.says) || last.State == operatorv1alpha1.StateReady && strings.Contains(c.Message, "kubectl") || moved != tc.moved || last.Switch == nil {
				t.Errorf("%s, moved %v, %+v\n%+v", last.State, moved, c, last.Conditions)
			}
			if s.w.Object("StatefulSet", "eventing-nats") == nil {
				t.Error("NATS was removed")
			}
		})
	}
}

// TestNothingIsLost plays random schedules of the operator, the controller, pods, clients and
// people. In each state, an event that a pod of the publisher can store reaches each Subscription
// that is ready; NATS is never removed while it holds one; and the guard never has to act.
func TestNothingIsLost(t *testing.T) {
	t.Parallel() // its worlds are its own
	const usual, longer = 100, 250
	schedules := uint64(20)
	if testing.Short() {
		schedules = 5
	}
	for seed := range schedules + uint64(len(withThird))*(schedules/5) {
		of, length := thePair, usual
		if seed >= schedules { // fewer, in which more switches end
			length = longer
			of = withThird[seed%uint64(len(withThird))]
		}
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // reproducible
		s := newScene(t).of(of).on(t)
		s.slow = true // Subscriptions become ready one by one, below
		s.made, s.promised = map[string]bool{}, map[string]bool{}
		s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "a", Generation: 1, Valid: true}, {Namespace: "shop", Name: "b", Generation: 1, Valid: true}}
		var trace []string
		for range length {
			event := s.random(r)
			trace = append(trace, event)
			if why := s.loss(); why != "" || strings.HasPrefix(event, "the guard") {
				t.Fatalf("seed %d, %v: %s after %v", seed, of, why, trace[max(0, len(trace)-30):])
			}
		}
	}
}

// random does one thing, and says what.
func (s *scene) random(r *rand.Rand) string {
	s.t.Helper()
	things := 22
	if slices.Contains(s.members, third) {
		things += 3
	}
	switch n := r.IntN(things); {
	case n < 10: // the operator does some of what it has decided
		o := s.d.Decide(s.w)
		if c := meta.FindStatusCondition(o.Conditions, operatorv1alpha1.ConditionBackendAvailable); c != nil && strings.Contains(c.Message, "fault of the operator") {
			return "the guard: " + c.Message
		}
		s.report(o)
		var did []string
		for i, a := range o.Actions {
			if i > 0 && r.IntN(4) == 0 {
				break // it was killed
			}
			s.follow(a)
			did = append(did, a.String())
		}
		return "operator: " + strings.Join(did, ", ")
	case n < 14:
		i := r.IntN(len(s.w.Subscriptions))
		s.slow = false
		s.controllerFor(i)
		s.slow = true
		return fmt.Sprintf("controller: %s", s.w.Subscriptions[i])
	case n == 14:
		s.want(s.members[r.IntN(len(s.members))])
		return "spec: " + string(s.w.Eventing.Spec.Backend.Type)
	case n == 15 && s.w.Has("StatefulSet"):
		s.ready()
		return "NATS is ready"
	case n == 16 && s.w.NATS.Stream != nil:
		info := *s.w.NATS.Stream
		if info.State.Msgs = uint64(r.IntN(2)); stream.Open(info.Config) || s.w.NATS.Stream.State.Msgs > 0 {
			s.w.NATS.Stream = &info
		}
		s.w.NATS.Quiet = s.w.NATS.Stream.State.Msgs == 0 && !stream.Open(info.Config)
		return fmt.Sprintf("NATS holds %d", s.w.NATS.Stream.State.Msgs)
	case n == 17:
		s.w.NATS.Connected = s.w.Has("StatefulSet") && r.IntN(2) == 0
		return fmt.Sprintf("NATS answers: %v", s.w.NATS.Connected)
	case n == 18 && len(s.w.Pods) > 0: // a pod is replaced by one of the present template
		s.w.Pods = slices.DeleteFunc(s.w.Pods, func(p corev1.Pod) bool { return p.Name == "slow" })
		return "a slow pod is gone"
	case n == 19:
		s.w.Now = s.w.Now.Add(time.Duration(r.IntN(60)) * time.Second)
		if to := observed.SendsTo(s.w.Object("Deployment", "eventing-publisher-proxy")); to != "" && r.IntN(2) == 0 {
			s.w.Pods = append(s.w.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "slow", Labels: map[string]string{observed.NameLabel: observed.Publisher, backend.BackendLabel: string(to)}}})
		}
		return "time goes on"
	case n == 20 && s.paused == nil:
		w := copyOf(s.w)
		w.NewEpoch = fmt.Sprintf("paused%d", s.created)
		s.paused = s.d.Decide(w)
		return fmt.Sprintf("an operator is paused before it does %v", s.paused.Actions)
	case n == 21 && s.paused != nil:
		var did []string
		for _, a := range s.paused.Actions {
			if !s.accepts(a) {
				did = append(did, "refused: "+a.String())
				break
			}
			s.follow(a)
			did = append(did, a.String())
		}
		s.paused = nil
		return "the paused operator goes on: " + strings.Join(did, ", ")
	case n == 22:
		key := memory{}.record(s.d.Names)
		if observed.Data(s.w.Ours[key])[memoryDoor] == "open" {
			s.write(key, memoryHolds, "1")
		}
		return "Memory holds " + observed.Data(s.w.Ours[key])[memoryHolds]
	case n == 23 && r.IntN(4) == 0:
		s.write(memory{}.record(s.d.Names), memoryHolds, "0")
		return "Memory holds nothing"
	case n == 24:
		state := []string{"ready", "ready", "ready", "away"}[r.IntN(4)]
		s.write(memory{}.record(s.d.Names), memoryState, state)
		return "Memory is " + state
	}
	return ""
}

// controllerFor is what the controller does for one Subscription.
func (s *scene) controllerFor(i int) {
	all := s.w.Subscriptions
	s.w.Subscriptions = all[i : i+1]
	s.controller()
	s.w.Subscriptions = all
	backends, err := s.w.Backends(s.d.Names)
	if err != nil || s.w.Object("Deployment", "eventing-controller") == nil {
		return
	}
	for _, b := range backends.Serving {
		s.made[all[i].Name+string(b)] = true
	}
	s.promised[all[i].Name] = s.promised[all[i].Name] || len(backends.Serving) > 0
}

// loss says how an event would be lost now; "" if none would.
func (s *scene) loss() string {
	for _, sub := range s.w.Subscriptions {
		if s.w.NATS.Stream == nil { // consumers go with it
			delete(s.made, sub.Name+string(operatorv1alpha1.NATS))
		}
		if len(s.w.Triggers) == 0 {
			delete(s.made, sub.Name+string(operatorv1alpha1.EventMesh))
		}
		if s.w.Ours[memory{}.record(s.d.Names)] == nil {
			delete(s.made, sub.Name+string(third))
		}
	}
	backends, err := s.w.Backends(s.d.Names)
	if err != nil {
		return ""
	}
	for _, p := range s.w.PodsOf(observed.Publisher) {
		to := operatorv1alpha1.BackendType(p.Labels[backend.BackendLabel])
		t := &reconciliation{Rules: s.d, w: s.w, target: to}
		if !backends.Accept.Has(to) || to == operatorv1alpha1.NATS && !s.w.Available() || to != operatorv1alpha1.NATS && !t.taking() {
			continue // it is refused
		}
		for _, sub := range s.w.Subscriptions {
			if s.promised[sub.Name] && !s.made[sub.Name+string(to)] {
				return fmt.Sprintf("%s was ready, and nothing delivers what Pod %s stores in %s", sub, p.Name, to)
			}
		}
	}
	if s.w.NATS.Stream != nil && s.w.NATS.Stream.State.Msgs > 0 && !s.w.Has("StatefulSet") {
		return "NATS was removed with an event"
	}
	return s.lost
}
