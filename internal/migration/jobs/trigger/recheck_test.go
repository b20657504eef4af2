package trigger

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func says(t *testing.T, reason string, got reason, words string) {
	t.Helper()
	if got.holds() != (words == "") || !strings.Contains(got.problem, words) {
		t.Errorf("%s: got %q, want words %q", reason, got.problem, words)
	}
	if !got.holds() && got.advice.Note == "" {
		t.Errorf("%s: no hint", reason)
	}
}

// TestUnchanged: a deletion is for the Subscription that was decided about. Fails on
// the commit before, which did not ask.
func TestUnchanged(t *testing.T) {
	was := contracted().subscriptions[0]
	edit := func(edit func(*unstructured.Unstructured)) *unstructured.Unstructured {
		live := was.DeepCopy()
		edit(live)
		return live
	}
	for name, tc := range map[string]struct {
		reason    string
		was, live *unstructured.Unstructured
		want      string
	}{
		"Same": {"nothing happened", was, was.DeepCopy(), ""},
		"Status": {"status and finalizers are its controller's", was, edit(func(u *unstructured.Unstructured) {
			u.Object["status"] = map[string]any{"conditions": []any{}}
			u.SetFinalizers(nil)
			u.SetResourceVersion("9")
		}), ""},
		"Spec": {"its Trigger is for what it was", was, edit(func(u *unstructured.Unstructured) {
			k8sobject.MapAt(u.Object, "spec")["endpoint"] = "http://other.shop"
		}), "its spec was changed"},
		"UID":    {"it is another one", was, edit(func(u *unstructured.Unstructured) { u.SetUID("other") }), "created again"},
		"OptOut": {"somebody took it out", was, edit(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{kyma.OptOutLabel: "true"}) }), "carries the label"},
		"Gone":   {"what belongs to it is left", was, nil, ""},
		"Blind":  {"nothing to compare with", nil, was, "is not known"},
		"None":   {"nothing is known at all", nil, nil, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			_, why := unchanged(&migration.Change{Object: tc.was}, tc.live)
			says(t, tc.reason, why, tc.want)
		})
	}
}

// TestFits: who is to clean up after a deletion has to be there, or not to be there.
func TestFits(t *testing.T) {
	held := &migration.Change{Object: contracted().subscriptions[0]}
	free := &migration.Change{Object: contracted().subscriptions[0].DeepCopy()}
	free.Object.SetFinalizers(nil)
	failing, ending := controllerAt(1), controllerAt(0)
	failing.Pods = []*unstructured.Unstructured{controllerPod("a", "False", crashed(2, ago(time.Second)))}
	ending.Pods = running().Pods
	for name, tc := range map[string]struct {
		reason string
		ch     *migration.Change
		byHand bool
		c      eventbus.Controller
		want   string
	}{
		"Runs":        {"it cleans up", held, false, running(), ""},
		"Stopped":     {"the deletion would hang on its finalizer", held, false, controllerAt(0), "was scaled to 0 or deleted meanwhile"},
		"Deleted":     {"the same", held, false, eventbus.Controller{}, "was scaled to 0 or deleted meanwhile"},
		"Crashes":     {"the same", held, false, failing, "does not run any more"},
		"Unknown":     {"it never knew the Subscription", free, false, controllerAt(0), ""},
		"ByHand":      {"this job cleans up", held, true, controllerAt(0), ""},
		"ByHandGone":  {"this job cleans up", held, true, eventbus.Controller{}, ""},
		"ByHandRuns":  {"both would", held, true, running(), "was started meanwhile"},
		"ByHandCrash": {"both would, at its next start", held, true, failing, "was started meanwhile"},
		"ByHandPods":  {"its pod has not ended", held, true, ending, "was started meanwhile"},
	} {
		t.Run(name, func(t *testing.T) { says(t, tc.reason, fits(tc.c, tc.ch, tc.byHand, now), tc.want) })
	}
}

// TestPublished: fails on the commit before, which looked at event-services only.
func TestPublished(t *testing.T) {
	wants := route.Delivery{Source: "commerce", EventType: "order.created", Version: "v1"}
	at := func(n uint64, d time.Duration) eventbus.Look { return eventbus.Look{Sequence: n, At: now.Add(d)} }
	says(t, "nobody does", published(at(7, 0), at(7, 30*time.Second), wants), "")
	says(t, "somebody does", published(at(7, 0), at(9, 30*time.Second), wants),
		"somebody still publishes order.created to event-publish-service as commerce: 2 events of order.created v1 within 30s")
	says(t, "the server was replaced", published(at(7, 0), at(0, 30*time.Second), wants), "is unknown")
}

// TestFirstLook: the window begins with the first look that succeeded, and no later
// one moves it.
func TestFirstLook(t *testing.T) {
	j := New()
	seen := func(n uint64, at time.Time) eventbus.InFlight {
		return eventbus.InFlight{Channels: map[string]eventbus.Channel{"ch": {LastSequence: n}}, At: at}
	}
	if got := j.looks.First("ch", eventbus.InFlight{Unreadable: "no", At: now}); got != (eventbus.Look{}) {
		t.Errorf("unreadable: got %v", got)
	}
	if got := j.looks.First("other", seen(7, now)); got != (eventbus.Look{}) {
		t.Errorf("no such channel: got %v", got)
	}
	first := eventbus.Look{Sequence: 7, At: now}
	for _, f := range []eventbus.InFlight{seen(7, now), seen(9, now.Add(time.Minute)), {Unreadable: "no"}} {
		if got := j.looks.First("ch", f); got != first {
			t.Errorf("got %v, want %v", got, first)
		}
	}
}

func TestUndelivered(t *testing.T) {
	says(t, "nothing is", undelivered(0, "", "http://fn"), "")
	says(t, "something is", undelivered(2, "", "http://user:hunter2@fn/"), "2 events in flight to http://fn/")
	says(t, "what is not known is not nothing", undelivered(0, "forbidden", "http://fn"), "it: forbidden")
}

// TestGuards: each deletion of a Subscription is guarded once, at its first change,
// and the guard finds what it is about in the unit alone: it may come from a journal.
func TestGuards(t *testing.T) {
	for name, tc := range map[string]struct {
		c    eventbus.Controller
		edit func(*snapshot)
		want []string // the subjects
	}{
		"Controlled":  {running(), func(*snapshot) {}, []string{"Subscription shop/orders"}},
		"ByHand":      {controllerAt(0), func(*snapshot) {}, []string{"Subscription shop/orders", "Channel kyma-system/ch"}},
		"WithTrigger": {controllerAt(0), func(s *snapshot) { s.triggers["shop"] = nil }, []string{"Subscription shop/orders", "Channel kyma-system/ch"}},
		"Two": {running(), func(s *snapshot) {
			s.triggers["shop"] = nil
			second := s.subscriptions[0].DeepCopy()
			second.SetName("orders-too")
			s.subscriptions = append(s.subscriptions, second)
		}, []string{"Subscription shop/orders", "Subscription shop/orders-too"}},
		"TwoByHand": {controllerAt(0), func(s *snapshot) {
			s.triggers["shop"] = nil
			second := s.subscriptions[0].DeepCopy()
			second.SetName("orders-too")
			s.subscriptions = append(s.subscriptions, second)
		}, []string{"Subscription shop/orders", "Subscription shop/orders-too", "Channel kyma-system/ch"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := contracted()
			s.bus.Controller, s.controller = tc.c, tc.c.Deployment
			tc.edit(s)
			plan := planned(s, New().options, 0)
			var got []string
			for i := range plan.Units {
				u := &plan.Units[i]
				guarded := false
				for n := range u.Changes {
					ch := &u.Changes[n]
					if ch.Guard {
						guarded = true
						subject := subjectOf(u, n)
						got = append(got, subject.Ref.String())
						if subject.Verb != migration.Delete || subject.Object == nil || subject.UID != subject.Object.GetUID() {
							t.Errorf("the guard of %s is about %s %s", u.ID, subject.Verb, subject.Ref)
						}
					}
					if goes := ch.Verb == migration.Delete || ch.Verb == migration.Patch && ch.Ref.Kind == "Subscription"; goes && !guarded {
						t.Errorf("%s %s is not guarded", ch.Verb, ch.Ref)
					}
				}
			}
			if strings.Join(got, ", ") != strings.Join(tc.want, ", ") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestDeletionInsists: a deletion is of the version that the plan read, and a
// finalizer is removed without the others of its list. The second half fails on the
// commit before, which wrote the whole list.
func TestDeletionInsists(t *testing.T) {
	s := contracted()
	s.bus.Controller, s.controller = controllerAt(0), controllerAt(0).Deployment
	for _, o := range []*unstructured.Unstructured{s.subscriptions[0], s.bus.Links["orders--shop"], s.bus.Channels["ch"]} {
		o.SetResourceVersion("4711")
	}
	n := 0
	for _, u := range planned(s, New().options, 0).Units {
		for _, ch := range u.Changes {
			switch ch.Verb {
			case migration.Delete:
				n++
				if ch.Object.GetResourceVersion() != "4711" || ch.UID != ch.Object.GetUID() {
					t.Errorf("%s is deleted at version %q, UID %q", ch.Ref, ch.Object.GetResourceVersion(), ch.UID)
				}
			case migration.Patch:
				if len(ch.Patch) > 0 || len(ch.Lists) != 1 || len(ch.Lists[0].Remove) != 1 || ch.Lists[0].Remove[0] != kyma.SubscriptionFinalizer {
					t.Errorf("%s: patch %s, lists %v", ch.Ref, ch.Patch, ch.Lists)
				}
			}
		}
	}
	if n != 3 {
		t.Errorf("%d deletions, want 3", n)
	}
}
