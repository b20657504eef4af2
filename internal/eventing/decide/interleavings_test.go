package decide

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// copyOf is the world as an operator has read it. What happens after that does not change it.
func copyOf(w *observed.World) *observed.World {
	c := *w
	c.Eventing, c.Ours = w.Eventing.DeepCopy(), map[observed.Key]*unstructured.Unstructured{}
	for key, u := range w.Ours {
		c.Ours[key] = u.DeepCopy()
	}
	c.Claims = slices.Clone(w.Claims)
	for i := range c.Claims {
		c.Claims[i] = *c.Claims[i].DeepCopy()
	}
	c.Pods, c.Triggers, c.Subscriptions = slices.Clone(w.Pods), slices.Clone(w.Triggers), slices.Clone(w.Subscriptions)
	for i := range c.Subscriptions {
		c.Subscriptions[i].Epochs = maps.Clone(c.Subscriptions[i].Epochs)
	}
	if w.NATS.Stream != nil {
		info := *w.NATS.Stream
		c.NATS.Stream = &info
	}
	return &c
}

// copied is a scene that goes on from here by itself.
func (s *scene) copied() *scene {
	c := *s
	c.w, c.made, c.promised = copyOf(s.w), maps.Clone(s.made), maps.Clone(s.promised)
	return &c
}

// accepts tells whether the API server, or NATS, does what an operator asks for that has read the
// world some time ago: each write has the version of what it changes.
func (s *scene) accepts(a Action) bool {
	same := func(u *unstructured.Unstructured) bool {
		if u.GetKind() == "PersistentVolumeClaim" {
			return len(s.w.Claims) > 0 && s.w.Claims[0].ResourceVersion == u.GetResourceVersion()
		}
		is := s.w.Ours[observed.KeyOf(u)]
		return is != nil && reflect.DeepEqual(is.Object, u.Object)
	}
	switch a := a.(type) {
	case Create:
		return s.w.Ours[observed.KeyOf(a.Object)] == nil
	case Credentials:
		return s.w.Object("Secret", a.Name) == nil
	case Apply:
		return same(a.Observed)
	case Patch:
		return same(a.Observed)
	case Remove:
		return same(a.Observed)
	case Orphan:
		return same(a.Observed)
	case CreateStream:
		return s.w.NATS.Connected && s.streamOf(a.Config.Name) == nil
	case DeleteStream:
		is := s.streamOf(a.Observed.Config.Name)
		return s.w.NATS.Connected && is != nil && is.Created.Equal(a.Observed.Created) && !stream.Differs(is.Config, a.Observed.Config) && is.State.Msgs == 0
	case UpdateStream:
		is := s.streamOf(a.Config.Name)
		return s.w.NATS.Connected && is != nil && is.Created.Equal(a.Observed.Created) && !stream.Differs(is.Config, a.Observed.Config)
	}
	return true
}

// streamOf is a stream by its name; nil if there is none.
func (s *scene) streamOf(name string) *jetstream.StreamInfo {
	if name == backend.DeadLetters {
		return s.w.NATS.DeadLetters
	}
	return s.w.NATS.Stream
}

// step does the first action of a new look, as an operator that is killed after each write, and
// then what Kubernetes, NATS and the controller do. It is "" if there is nothing to do.
func (s *scene) step() string {
	s.t.Helper()
	if s.w.Has("StatefulSet") {
		s.ready()
	}
	s.w.NATS.Quiet = s.w.NATS.Stream != nil && !stream.Open(s.w.NATS.Stream.Config)
	o := s.d.Decide(s.w)
	s.report(o)
	for _, a := range o.Actions {
		s.follow(a)
		s.controller()
		if _, tells := a.(Tell); !tells {
			return a.String()
		}
	}
	return ""
}

// begin is a scene with one Subscription, in which a switch begins. NATS was there before, so that
// there are volumes of it, unless it has no part in the switch.
func begin(t *testing.T, c change, others ...operatorv1alpha1.BackendType) *scene {
	t.Helper()
	first := operatorv1alpha1.NATS
	if c.to != first {
		first = c.from
	}
	s := newScene(t).of(append(members{first, c.from, c.to}, others...)).on(t)
	s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true}}
	s.controller()
	s.made, s.promised = map[string]bool{}, map[string]bool{}
	if c.from != first {
		s.want(c.from)
		s.ended(t, c.from, "a switch")
	}
	s.want(c.to)
	return s
}

// until steps until an action was done whose text begins so.
func (s *scene) until(t *testing.T, text string) {
	t.Helper()
	for range mostActions {
		if did := s.step(); strings.HasPrefix(did, text) {
			return
		}
	}
	t.Fatalf("it never comes to %q: %+v", text, s.d.Decide(s.w).Conditions)
}

// works does a step, in a second look if there is nothing to do in the first: the controller may
// have done something between them. It is false if there is nothing to do in both.
func (s *scene) works() bool {
	for range 2 {
		if s.step() != "" {
			return true
		}
	}
	return false
}

// rest steps until there is nothing to do.
func (s *scene) rest(t *testing.T, after any) {
	t.Helper()
	for n := 0; s.works(); n++ {
		if n > mostActions {
			t.Fatalf("after %v: it never ends", after)
		}
	}
}

// ended rests, and checks that a backend is active and nothing of another one is left.
func (s *scene) ended(t *testing.T, to operatorv1alpha1.BackendType, after any) {
	t.Helper()
	s.rest(t, after)
	last := s.d.Decide(s.w)
	if last.State != operatorv1alpha1.StateReady || last.Active != to || last.Serving.String() != string(to) || newReconciliation(s.d, s.w, last, to).leaving != nil {
		t.Fatalf("after %v: %s, active %s, serving %s\n%+v", after, last.State, last.Active, last.Serving, last.Conditions)
	}
}

// atEach plays something after each number of actions of a switch; without the build tag slow,
// after some of them, and after fewer with the third backend.
func atEach(t *testing.T, s *scene, nth int, play func(t *testing.T, s *scene, done []string)) {
	t.Helper()
	switch {
	case all:
		nth = 1
	case slices.Contains(s.members, third):
		nth *= 4
	}
	var done []string
	for did := "begin"; did != "" || s.step() != ""; did = s.step() { // twice nothing to do: it is the end
		if len(done)%nth == 0 {
			play(t, s.copied(), done)
		}
		if done = append(done, did); len(done) > mostActions {
			t.Fatalf("it never ends: %v", done)
		}
	}
	play(t, s, done)
}

func (s *scene) backends(t *testing.T) backend.Backends {
	t.Helper()
	b, err := s.w.Backends(s.d.Names)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mostActions is more than any switch has.
const mostActions = 80

// TestInterleavings: what may happen between a look and a write, or between two writes of a switch.
// The numbers are those of the corrections in the specification; what the controller does, 10, is
// shown by TestTriggers, TestTriggersOfNobody and TestPausedController.
func TestInterleavings(t *testing.T) {
	const nats, mesh = operatorv1alpha1.NATS, operatorv1alpha1.EventMesh
	config := observed.Key{Kind: "ConfigMap", Name: "eventing-nats-config"}
	for _, tc := range []struct {
		name string
		play func(t *testing.T)
	}{
		{"01 what was drained is known until nothing of NATS is left", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "write that NATS is drained")
			for s.d.exists(s.w, nats) {
				if !s.d.finished(s.w, nats) {
					t.Fatalf("NATS is drained, and the operator does not know: %v", s.w.Keys())
				}
				if s.step() == "" {
					t.Fatal("NATS is never removed")
				}
			}
		}},
		{"01 the mark that NATS is drained goes before anything else of a switch back", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "serve EventMesh on")
			s.want(nats)
			if did := s.step(); !strings.HasPrefix(did, "remove the mark that NATS is drained") {
				t.Errorf("the first action is %q", did)
			}
		}},
		{"01 volumes that are left are no backend", func(t *testing.T) {
			s := begin(t, toMesh)
			s.ended(t, mesh, "a switch")
			if len(s.w.Claims) == 0 || s.d.exists(s.w, nats) {
				t.Errorf("%d volumes, and NATS exists: %v", len(s.w.Claims), s.d.exists(s.w, nats))
			}
		}},
		{"01 Triggers go after the Broker", func(t *testing.T) {
			s := begin(t, toNATS)
			for did := "begin"; did != "" || s.step() != ""; did = s.step() {
				if broker := s.w.Object("Broker", "eventing"); broker != nil && broker.GetAnnotations()[openedAnnotation] != "" && (len(s.w.Triggers) == 0 || !s.backends(t).Serving.Has(mesh)) {
					t.Fatalf("after %q there is a Broker without Triggers", did)
				}
			}
		}},
		{"02 an answer of the controller to the same backends, from before, does not count", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "close stream")
			state := observed.Key{Kind: "ConfigMap", Name: "eventing-controller-state"}
			before, old := s.w.Ours[state].DeepCopy(), s.w.Subscriptions[0].Epochs
			s.until(t, "serve EventMesh on")
			s.want(nats)
			s.silent = true // a controller that was paused writes what it saw then
			s.w.Ours[state], s.w.Subscriptions[0].Epochs = before, old
			s.rest(t, "the old answer")
			if b := s.backends(t); !b.Serving.Has(nats) || b.Accept.Has(nats) || stream.Open(s.w.NATS.Stream.Config) {
				t.Errorf("serving %s, accepted %s: the old answer counts", b.Serving, b.Accept)
			}
			s.silent = false
			s.controller()
			s.ended(t, nats, "the controller goes on")
		}},
		{"03 a stream that is lost, at each step of a switch to NATS", func(t *testing.T) {
			atEach(t, begin(t, toNATS), 4, func(t *testing.T, s *scene, done []string) {
				s.w.NATS.Stream, s.silent, s.slow = nil, true, true
				s.rest(t, done)
				if s.w.NATS.Stream != nil && stream.Open(s.w.NATS.Stream.Config) {
					t.Fatalf("after %v a new stream is open without consumers", done)
				}
				s.silent, s.slow = false, false
				s.controller()
				s.ended(t, nats, done)
			})
		}},
		{"04 an operator is paused before an action, and goes on when another one has switched back for a while", func(t *testing.T) {
			for _, c := range slices.Concat(changes, more) {
				atEach(t, begin(t, c), 9, func(t *testing.T, s *scene, done []string) {
					w := copyOf(s.w)
					w.NewEpoch = "paused"
					paused := s.d.Decide(w).Actions
					s.want(c.from)
					for n := 0; n < 40; n += 13 { // so far has the other one come
						woken := s.copied()
						for _, a := range paused {
							if !woken.accepts(a) {
								break
							}
							woken.follow(a)
							if why := woken.loss(); why != "" {
								t.Fatalf("after %v, and %d actions of another operator, the first one does %v: %s", done, n, a, why)
							}
						}
						woken.ended(t, c.from, done)
						for range 13 {
							s.step()
						}
					}
				})
			}
		}},
		{"04 an operator that is paused before it deletes NATS does not delete one that holds an event again", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "serve EventMesh on")
			deletes := func(a Action) bool { return a.String() == "delete StatefulSet eventing-nats" }
			paused := s.d.Decide(copyOf(s.w)).Actions
			for !slices.ContainsFunc(paused, deletes) && s.step() != "" {
				paused = s.d.Decide(copyOf(s.w)).Actions
			}
			s.want(nats)
			s.until(t, "open stream")
			s.w.NATS.Stream.State.Msgs = 1
			for _, a := range paused {
				if s.accepts(a) {
					s.follow(a)
				}
			}
			if !slices.ContainsFunc(paused, deletes) || s.w.NATS.Stream == nil || !s.w.Has("StatefulSet") {
				t.Errorf("NATS is gone with an event after %v", paused)
			}
		}},
		{"05 both backends take events until the last pod has moved", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "apply Deployment eventing-publisher-proxy")
			s.w.Pods = append(s.w.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: map[string]string{observed.NameLabel: observed.Publisher, backend.BackendLabel: string(nats)}}})
			s.rest(t, "the others have moved")
			if b := s.backends(t); b.Accept.String() != "EventMesh,NATS" || !stream.Open(s.w.NATS.Stream.Config) {
				t.Errorf("a pod sends to NATS, and %s is accepted", b.Accept)
			}
			s.w.Pods = slices.DeleteFunc(s.w.Pods, func(p corev1.Pod) bool { return p.Name == "late" })
			s.ended(t, mesh, "the pod has ended")
		}},
		{"06 a new Subscription that is not ready stops nothing after the publisher has moved", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "accept events for EventMesh alone")
			s.slow = true
			s.w.Subscriptions = append(s.w.Subscriptions, observed.Subscription{Namespace: "shop", Name: "new", Generation: 1, Valid: true})
			s.d.PublisherImage = "eventing-publisher-proxy:2"
			s.until(t, "apply Deployment eventing-publisher-proxy")
			s.until(t, "write that NATS is drained")
		}},
		{"07 a backend is not closed while a pod sends to it, whatever was decided", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "accept events for EventMesh alone")
			closes := UpdateStream{Observed: s.w.NATS.Stream, Config: stream.Closed(s.w.NATS.Stream.Config, s.w.Now)}
			gone := metav1.NewTime(s.w.Now.Add(-31 * time.Second)) // 30 seconds are for the end of a pod
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old", Labels: map[string]string{observed.NameLabel: observed.Publisher, backend.BackendLabel: string(nats)}}}
			s.w.Pods = append(s.w.Pods, pod)
			if s.d.broken(s.w, closes) == "" {
				t.Error("NATS may be closed while Pod old sends to it")
			}
			s.w.Pods[len(s.w.Pods)-1].DeletionTimestamp = &gone
			if why := s.d.broken(s.w, closes); why != "" {
				t.Errorf("a pod hangs on a dead node, and NATS refuses what it sends: %s", why)
			}
			s.w.Pods[len(s.w.Pods)-1].Labels[backend.BackendLabel] = string(mesh)
			if s.d.broken(s.w, Remove{s.w.Object("Broker", "eventing")}) == "" {
				t.Error("the Broker may be deleted while a pod hangs that sends to it")
			}
		}},
		{"08 a force-teardown of another switch does nothing", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "close stream")
			s.w.NATS.Stream.State.Msgs = 1
			s.report(s.d.Decide(s.w))
			since := s.w.Eventing.Status.Switch.Since
			for value, removed := range map[string]bool{
				"NATS/" + since.Add(-time.Hour).UTC().Format(time.RFC3339): false, "EventMesh/" + since.UTC().Format(time.RFC3339): false, "true": false,
				"NATS/" + since.UTC().Format(time.RFC3339): true,
			} {
				s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceTeardownAnnotation: value}
				if actions := s.d.Decide(s.w).Actions; slices.ContainsFunc(actions, func(a Action) bool { return a.String() == "delete StatefulSet eventing-nats" }) != removed {
					t.Errorf("force-teardown=%s: %v", value, actions)
				}
			}
		}},
		{"08 marks of another epoch prove nothing", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "close stream")
			s.set(config.Kind, config.Name, "another", "data", observed.DrainedKey)
			s.w.NATS = observed.NATS{Problem: "refused"}
			if _, last := s.play(); s.d.finished(s.w, nats) || last.Switch == nil || !s.w.Has("StatefulSet") {
				t.Errorf("an old mark counts: %+v", last.Conditions)
			}
		}},
		{"09 NATS that is empty in one look, or does not answer, is not drained", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "close stream")
			s.w.NATS.Quiet = false
			if _, last := s.play(); s.d.finished(s.w, nats) || last.After == 0 {
				t.Errorf("one look is enough: %+v", last.Conditions)
			}
			s.w.NATS = observed.NATS{Problem: "refused"}
			if s.play(); s.d.finished(s.w, nats) || !s.w.Has("StatefulSet") {
				t.Error("NATS does not answer, and is removed")
			}
		}},
		{"09 events that no Subscription waits for", func(t *testing.T) {
			s := begin(t, toMesh)
			s.until(t, "close stream")
			s.w.NATS.Stream.State.Msgs, s.w.NATS.Stream.State.FirstSeq, s.w.NATS.Stream.State.LastSeq, s.w.NATS.Dangling = 2, 17, 20, true
			o := s.d.Decide(s.w)
			if c := meta.FindStatusCondition(o.Conditions, operatorv1alpha1.ConditionSwitching); c.Reason != operatorv1alpha1.ReasonDangling || o.State != operatorv1alpha1.StateWarning ||
				!strings.Contains(c.Message, "from 17 to 20") || !strings.Contains(c.Message, "force-teardown=NATS/") {
				t.Errorf("%s, %+v", o.State, c)
			}
		}},
		{"11 the Eventing is deleted at each step of a switch", func(t *testing.T) {
			for _, c := range slices.Concat(changes, more) {
				atEach(t, begin(t, c), 5, func(t *testing.T, s *scene, done []string) {
					now := metav1.NewTime(s.w.Now)
					s.w.Eventing.DeletionTimestamp = &now
					if o := s.d.Decide(s.w); len(o.Actions) > 0 || o.State != operatorv1alpha1.StateWarning {
						t.Fatalf("after %v: with a Subscription %s, %v", done, o.State, o.Actions)
					}
					s.w.Subscriptions = nil
					for n := 0; s.step() != ""; n++ {
						if n > mostActions {
							t.Fatalf("after %v: it never ends", done)
						}
						if s.w.NATS.Stream != nil && stream.Open(s.w.NATS.Stream.Config) && s.w.Object("Deployment", "eventing-controller") == nil && s.w.Has("StatefulSet") {
							t.Fatalf("after %v: events are taken, and nobody delivers them", done)
						}
					}
					if len(s.w.Eventing.Finalizers) > 0 || len(s.w.Ours)+len(s.w.Triggers) > 0 || len(s.w.Undrained()) > 0 {
						t.Fatalf("after %v: left are %v, undrained %v\n%+v", done, s.w.Keys(), s.w.Undrained(), s.d.Decide(s.w).Conditions)
					}
				})
			}
		}},
		{"12 the spec is changed back at each step, and again", func(t *testing.T) {
			for _, c := range slices.Concat(changes, more) {
				atEach(t, begin(t, c), 9, func(t *testing.T, s *scene, done []string) {
					s.want(c.from)
					s.ended(t, c.from, done)
					s.want(c.to)
					s.ended(t, c.to, done)
				})
			}
		}},
		{"14 sinks that refuse are named before events go to the mesh", func(t *testing.T) {
			s := begin(t, toMesh)
			s.w.Subscriptions[0].Refused = true
			for range mostActions {
				for _, a := range s.d.Decide(s.w).Actions {
					if told, ok := a.(Tell); ok && told.Reason == "SinksRefuse" && strings.Contains(told.Message, "shop/orders") {
						return
					}
				}
				s.step()
			}
			t.Error("nobody is told")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // each has a world of its own
			tc.play(t)
		})
	}
}
