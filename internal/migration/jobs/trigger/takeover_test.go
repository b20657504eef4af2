package trigger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// mustFind fails the test unless the plan has such a finding.
func mustFind(t *testing.T, plan *migration.Plan, id string, severity migration.Severity, words string) {
	t.Helper()
	if !slices.ContainsFunc(plan.Findings, func(f migration.Finding) bool {
		return f.ID == id && f.Severity == severity && strings.Contains(f.Problem, words) && f.Note != ""
	}) {
		t.Errorf("no finding %s (%s) with %q: %v", id, severity, words, plan.Findings)
	}
}

// busChannel is a Channel of the Event Bus for a kind of event.
func busChannel(name, eventType string) *unstructured.Unstructured {
	u := obj("messaging.knative.dev/v1", "Channel", "kyma-system", name, nil)
	u.SetLabels(map[string]string{kyma.EventSourceLabel: "commerce", kyma.EventTypeLabel: eventType, kyma.EventTypeVersionLabel: "v1"})
	return u
}

// TestUnusedChannels: what a run that was killed left of the Event Bus is found by what is there.
// On f3299ef a Channel was deleted only together with its last subscriber: the next run said that
// there was nothing to do.
func TestUnusedChannels(t *testing.T) {
	const deployment = "Deployment kyma-system/event-bus-subscription-controller"
	channel := []string{"guarded delete Channel kyma-system/left"}
	for name, tc := range map[string]struct {
		reason string
		edit   func(w *world)
		want   []string
	}{
		"Stopped": {"the controller is at 0", func(w *world) {
			w.object("Deployment", "kyma-system", "event-bus-subscription-controller").Object["spec"].(map[string]any)["replicas"] = int64(0)
			w.objects = slices.DeleteFunc(w.objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "pod-0" })
		}, channel},
		"Runs": {"it is stopped first, so that it does not begin to use the Channel", func(*world) {}, slices.Concat([]string{"patch " + deployment, "await " + deployment}, channel)},
		"OptedOut": {"unless it is not to be stopped", func(w *world) {
			w.object("Deployment", "kyma-system", "event-bus-subscription-controller").SetLabels(map[string]string{kyma.OptOutLabel: "true"})
		}, nil},
		"Wanted": {"a Kyma Subscription asks for the events", func(w *world) {
			w.objects = append(w.objects, obj("eventing.kyma-project.io/v1alpha1", "Subscription", "kube-system", "other", map[string]any{"spec": map[string]any{
				"endpoint": "http://x", "source_id": "commerce", "event_type": "order.paid", "event_type_version": "v1",
			}}))
		}, nil},
		"Used": {"somebody's Knative Subscription is on it", func(w *world) {
			w.objects = append(w.objects, obj("messaging.knative.dev/v1", "Subscription", "kyma-system", "own", map[string]any{"spec": map[string]any{"channel": map[string]any{"name": "left"}}}))
		}, nil},
		"Labelled": {"it is no part of the migration", func(w *world) {
			c := w.object("Channel", "kyma-system", "left")
			labels := c.GetLabels()
			labels[kyma.OptOutLabel] = "true"
			c.SetLabels(labels)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := live()
			gone := []string{"Subscription shop/orders", "Subscription kyma-system/orders--shop", "Channel kyma-system/ch"}
			w.objects = slices.DeleteFunc(w.objects, func(o *unstructured.Unstructured) bool {
				return slices.Contains(gone, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
			})
			w.objects = append(w.objects, busChannel("left", "order.paid"))
			tc.edit(w)
			plan, err := New().plan(t.Context(), w, nil, 0, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, verbs(plan.Units)); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, diff, plan.Findings)
			}
		})
	}
}

// TestKnownToCrash: an endpoint that ends the subscription-controller counts before it has done so.
// On f3299ef the plan named it, and handed the deletions to the controller all the same.
func TestKnownToCrash(t *testing.T) {
	plan := func(edit func(s *snapshot)) *migration.Plan {
		s := contracted()
		bad := obj("eventing.kyma-project.io/v1alpha1", "Subscription", "kube-system", "bad", map[string]any{"spec": map[string]any{"endpoint": "http://[::1"}})
		s.unparsable = append(s.unparsable, bad)
		edit(s)
		return planned(s, New().options, time.Hour)
	}
	p := plan(func(*snapshot) {})
	if got := verbs(p.Units)[0]; got != "patch Deployment kyma-system/event-bus-subscription-controller" || len(p.Last) != 1 {
		t.Errorf("it is not stopped: %q, then %q", verbs(p.Units), verbs(p.Last))
	}
	mustFind(t, p, "controller-scaled-down", migration.Warning, "because spec.endpoint of Subscription kube-system/bad is not a URL")
	p = plan(func(s *snapshot) {
		s.bus.Controller.Deployment.SetLabels(map[string]string{kyma.OptOutLabel: "true"})
	})
	if len(p.Units) != 0 {
		t.Errorf("nobody can clean up: %q", verbs(p.Units))
	}
	mustFind(t, p, "controller-not-running", migration.Deferred, "spec.endpoint of Subscription kube-system/bad")
	w := live()
	going := obj("eventing.kyma-project.io/v1alpha1", "Subscription", "kube-system", "bad", map[string]any{"spec": map[string]any{"endpoint": "http://[::1"}})
	going.Object["metadata"].(map[string]any)["deletionTimestamp"] = ago(0)
	w.objects = append(w.objects, going)
	p, err := New().plan(t.Context(), w, nil, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"guarded delete Subscription shop/orders"}, verbs(p.Units)); diff != "" {
		t.Errorf("one that is being deleted is not parsed any more (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(p.Findings, func(f migration.Finding) bool { return f.ID == "endpoint-crashes-controller" }) {
		t.Errorf("it is named: %v", p.Findings)
	}
}

// TestTimeoutTooShort: a run in which no deletion can finish says so. Nothing said that on f3299ef.
func TestTimeoutTooShort(t *testing.T) {
	for name, tc := range map[string]struct {
		left    time.Duration
		traffic string
		says    bool
	}{
		"Equal": {30 * time.Second, respect, true}, "Longer": {time.Minute, respect, false}, "Unknown": {0, respect, false}, "NotObserved": {30 * time.Second, ignore, false},
	} {
		o := New().options
		o.legacyTraffic = tc.traffic
		s := contracted()
		s.bus.Controller = eventbus.Controller{}
		says := slices.ContainsFunc(planned(s, o, tc.left).Findings, func(f migration.Finding) bool { return f.ID == "timeout-too-short" })
		if says != tc.says {
			t.Errorf("%s: says so: %t", name, says)
		}
	}
}

// TestHanded: a Subscription that is being deleted is this job's to finish only if it waits for the
// subscription-controller, and a Trigger that is ready brings the same.
func TestHanded(t *testing.T) {
	endpoint := "http://orders.shop.svc.cluster.local/"
	sub := func(namespace string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		u := obj("eventing.kyma-project.io/v1alpha1", "Subscription", namespace, "orders", map[string]any{"spec": map[string]any{
			"source_id": "commerce", "event_type": "order.created", "event_type_version": "v1", "endpoint": endpoint,
		}})
		u.SetFinalizers([]string{kyma.SubscriptionFinalizer})
		u.SetDeletionTimestamp(new(metav1.Now()))
		if change != nil {
			change(u)
		}
		return u
	}
	for name, tc := range map[string]struct {
		reason    string
		namespace string
		change    func(*unstructured.Unstructured)
		trigger   func(*existing)
		handed    bool
	}{
		"Handed":         {reason: "its Trigger is ready", handed: true},
		"NotDeleted":     {reason: "nobody has deleted it", change: func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(nil) }},
		"Unwatched":      {reason: "it does not wait for the controller", change: func(u *unstructured.Unstructured) { u.SetFinalizers(nil) }},
		"Terminating":    {reason: "its namespace goes, and with it all of it", namespace: "leaving"},
		"NotConvertible": {reason: "no Trigger can bring it", change: func(u *unstructured.Unstructured) { k8sobject.MapAt(u.Object, "spec")["event_type"] = map[string]any{} }},
		"OtherBroker":    {reason: "the Trigger has another Broker", trigger: func(e *existing) { e.selected = nil }},
		"NotReady":       {reason: "the Trigger is not ready", trigger: func(e *existing) { e.problem = "it is not ready" }},
		"Going":          {reason: "the Trigger is being deleted", trigger: func(e *existing) { e.deleting = true }},
		"Other":          {reason: "the Trigger brings other events", trigger: func(e *existing) { e.selected.EventType = "order.deleted" }},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := tc.namespace
			if namespace == "" {
				namespace = "shop"
			}
			u := sub(namespace, tc.change)
			s := corpusSnapshot(u.Object, nil)
			d := newDecision(s, New().options)
			wants, why := route.DeliveryOf(sub(namespace, nil))
			if why != nil {
				t.Fatal(why)
			}
			trigger := &existing{namespace: namespace, name: "orders", selected: &route.Selection{Terms: route.TermsOf(wants, s.isNamespace)}}
			if tc.trigger != nil {
				tc.trigger(trigger)
			}
			s.triggers[namespace] = []*existing{trigger}
			g := d.handed(u)
			if (g != nil) != tc.handed {
				t.Errorf("%s: handed: %t", tc.reason, g != nil)
			}
			if g != nil && (!g.handed || g.trigger != trigger || g.namespace != namespace || len(g.subscriptions) != 1) {
				t.Errorf("%s: %+v", tc.reason, g)
			}
		})
	}
}
