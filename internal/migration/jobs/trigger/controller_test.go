package trigger

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var now = time.Date(2020, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

// crashed is a container that restarted so often, and ended last at that time.
func crashed(n int64, finished string) map[string]any {
	return map[string]any{"restartCount": n, "lastState": map[string]any{"terminated": map[string]any{"finishedAt": finished}}}
}

// planned is the plan of a snapshot in which all else holds, with so much time left.
func planned(s *snapshot, o options, left time.Duration) *migration.Plan {
	for ns := range s.brokers {
		s.brokers[ns] = isReady(obj("eventing.knative.dev/v1", "Broker", ns, "default", nil))
	}
	d := newDecision(s, o)
	d.left = left
	d.expand()
	return d.contract(d.candidates())
}

func verbs(units []migration.Unit) []string {
	var all []string
	for _, u := range units {
		for _, ch := range u.Changes {
			what := string(ch.Verb) + " " + ch.Ref.String()
			if ch.Guard {
				what = "guarded " + what
			}
			all = append(all, what)
		}
	}
	return all
}

// TestWhoDeletes: the subscription-controller and this job never do the same side by
// side. Fails on the commit before, which knew replicas only.
func TestWhoDeletes(t *testing.T) {
	scaled := func(c eventbus.Controller, n string) eventbus.Controller {
		c.Deployment.SetAnnotations(map[string]string{eventbus.ReplicasAnnotation: n})
		return c
	}
	optOut := func(c eventbus.Controller) eventbus.Controller {
		c.Deployment.SetLabels(map[string]string{kyma.OptOutLabel: "true"})
		return c
	}
	withPods := func(c eventbus.Controller, pods ...*unstructured.Unstructured) eventbus.Controller {
		c.Pods = pods
		return c
	}
	const (
		deployment = "Deployment kyma-system/event-bus-subscription-controller"
		problem    = "it crashes"
	)
	it := []string{"guarded delete Subscription shop/orders"}
	hand := []string{
		"guarded patch Subscription kyma-system/orders--shop", "delete Subscription kyma-system/orders--shop",
		"patch Subscription shop/orders", "delete Subscription shop/orders",
		"await Channel kyma-system/ch", "guarded delete Channel kyma-system/ch",
	}
	stopped := append([]string{"patch " + deployment, "await " + deployment}, hand...)
	restored := []string{"guarded patch " + deployment}
	for name, tc := range map[string]struct {
		reason     string
		controller eventbus.Controller
		problem    string
		left       time.Duration
		want, last []string
		severity   migration.Severity
		words      string
		estimate   time.Duration
	}{
		"Runs":          {reason: "It does the rest, in time.", controller: running(), left: time.Hour, want: it, estimate: time.Second},
		"NoSaying":      {reason: "The limit is not known.", controller: running(), want: it, estimate: time.Second},
		"TooSlow":       {reason: "It would not end in time.", controller: controllerAt(2), left: time.Second, want: stopped, last: restored, severity: migration.Info, words: "to 2 again afterwards"},
		"TooSlowOptOut": {reason: "It is not to be touched; what is finished stays.", controller: optOut(running()), left: time.Second, want: it, severity: migration.Warning, words: "so it is not scaled to 0"},
		"Crashes":       {reason: "It may start at any moment.", controller: running(), problem: problem, want: stopped, last: restored, severity: migration.Warning, words: "it does not run: it crashes"},
		"CrashesOptOut": {reason: "Nobody could clean up.", controller: optOut(running()), problem: problem, severity: migration.Deferred, words: "does not run: it crashes"},
		"AtZero":        {reason: "A person scaled it.", controller: controllerAt(0), want: hand},
		"Ending": {
			reason: "Its pod has not ended.", controller: withPods(controllerAt(0), controllerPod("old", "True", nil)),
			want: append([]string{"await " + deployment}, hand...),
		},
		"Killed":     {reason: "A run that was killed left it at 0.", controller: scaled(controllerAt(0), "3"), want: hand, last: restored},
		"Restored":   {reason: "Somebody scaled it up since.", controller: scaled(controllerAt(1), "3"), want: it, estimate: time.Second},
		"Deployment": {reason: "The Event Bus is gone.", controller: eventbus.Controller{}, want: hand},
	} {
		t.Run(name, func(t *testing.T) {
			s := contracted()
			s.bus.Controller, s.bus.Problem, s.controller = tc.controller, tc.problem, tc.controller.Deployment
			plan := planned(s, New().options, tc.left)
			if diff := cmp.Diff(tc.want, verbs(plan.Units)); diff != "" {
				t.Errorf("%s units (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.last, verbs(plan.Last)); diff != "" {
				t.Errorf("%s last (-want +got):\n%s", tc.reason, diff)
			}
			if plan.Estimate != tc.estimate {
				t.Errorf("%s estimate: got %s, want %s", tc.reason, plan.Estimate, tc.estimate)
			}
			for _, u := range plan.Units {
				if !u.Independent {
					t.Errorf("unit %s is not independent", u.ID)
				}
			}
			found := tc.words == ""
			for _, f := range plan.Findings {
				found = found || f.Severity == tc.severity && strings.Contains(f.Problem, tc.words) && f.Note != ""
			}
			if !found {
				t.Errorf("%s: no finding %s with %q: %v", tc.reason, tc.severity, tc.words, plan.Findings)
			}
		})
	}
}

// TestTurns: Subscriptions that share a Channel are deleted one after the other, if the
// controller deletes that with the last of them.
func TestTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		c    eventbus.Controller
		want string
	}{
		"Controlled": {running(), "Channel ch.kyma-system"},
		"ByHand":     {controllerAt(0), ""},
	} {
		s := contracted()
		s.bus.Controller, s.controller = tc.c, tc.c.Deployment
		for _, u := range planned(s, New().options, 0).Units {
			for _, ch := range u.Changes {
				if ch.Guard && ch.Verb == migration.Delete && ch.Ref.GVK().GroupKind() == kyma.Subscription && ch.Turn != tc.want {
					t.Errorf("%s: %s has the turn %q, want %q", name, ch.Ref, ch.Turn, tc.want)
				}
			}
		}
	}
}

// TestRestoredWithoutSubscriptions: the run that deleted the last Subscription was
// killed before it scaled the controller up again.
func TestRestoredWithoutSubscriptions(t *testing.T) {
	s := contracted()
	s.subscriptions, s.bus = nil, nil
	s.controller = controllerAt(0).Deployment
	s.controller.SetAnnotations(map[string]string{eventbus.ReplicasAnnotation: "2"})
	d := newDecision(s, New().options)
	d.expand()
	plan := d.contract(nil)
	if len(plan.Units) != 0 || len(plan.Last) != 1 {
		t.Fatalf("got %q and then %q", verbs(plan.Units), verbs(plan.Last))
	}
	ch := plan.Last[0].Changes[0]
	if got, want := string(ch.Patch), `{"metadata":{"annotations":{"`+eventbus.ReplicasAnnotation+`":null}},"spec":{"replicas":2}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if eventbus.Stops(&ch) {
		t.Error("to scale up counts as a stop")
	}
}

// TestCrashingEndpoint: a Subscription at which the controller crashes is named
// first, wherever it is, and without its endpoint. Fails on the commit before: it was
// one deferral among many, and quoted the password.
func TestCrashingEndpoint(t *testing.T) {
	s := contracted()
	bad := obj("eventing.kyma-project.io/v1alpha1", "Subscription", "kube-system", "bad", map[string]any{"spec": map[string]any{"endpoint": "http://user:hunter2@[::1"}})
	if !route.Unparsable(bad) || route.Unparsable(s.subscriptions[0]) {
		t.Fatal("what crashes the controller is not told from what does not")
	}
	s.unparsable = append(s.unparsable, bad)
	s.bus.Problem = "it crashes"
	plan := planned(s, New().options, 0)
	first := plan.Findings[0]
	if first.Object != "Subscription kube-system/bad" || !strings.Contains(first.Problem, "spec.endpoint is not a URL") {
		t.Errorf("the first finding is %s", first)
	}
	if want := "kubectl -n kube-system edit subscription.eventing.kyma-project.io/bad"; first.Command != want {
		t.Errorf("the command is %s, want %s", first.Command, want)
	}
	if raw, err := json.Marshal(plan); err != nil || strings.Contains(string(raw), "hunter2") {
		t.Errorf("the plan has the password: %s, %v", raw, err)
	}
	if got := redact.URL("http://user:hunter2@[::1"); strings.Contains(got, "hunter2") {
		t.Errorf("redact.URL has the password: %s", got)
	}
}
