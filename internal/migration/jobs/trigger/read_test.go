package trigger

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

// world is a reader over some objects, with every kind at the version that the job
// assumes.
type world struct {
	objects view.Of
	// channels is what NATS Streaming answers, once for each read; the last one stays.
	channels []string
	reads    int
}

func (w *world) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	k := assumedKinds()
	for _, kind := range k.all() {
		if kind.GroupKind == gk {
			return kind.Resource, true, nil
		}
	}
	return migration.Resource{}, false, nil
}

func (w *world) List(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	err := w.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
		all = append(all, obj)
		return nil
	})
	return all, err
}

func (w *world) ListEach(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions, fn func(*unstructured.Unstructured)) error {
	return w.Each(ctx, r, namespace, opts, func(obj *unstructured.Unstructured) error {
		fn(obj)
		return nil
	})
}

func (w *world) Each(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions, fn func(*unstructured.Unstructured) error) error {
	for _, obj := range w.objects.List(r.GroupKind(), namespace) {
		obj = obj.DeepCopy()
		if opts.Trim != nil {
			opts.Trim(obj)
		}
		if err := fn(obj); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	return w.objects.Get(ref.Subject()), nil
}

func (w *world) PodGet(context.Context, string, string, int, string, url.Values) ([]byte, error) {
	answer := w.channels[min(w.reads, len(w.channels)-1)]
	w.reads++
	return fmt.Appendf(nil, `{"server_id":"test","count":1,"total":1,"channels":[%s]}`, answer), nil
}

var _ reader = (*world)(nil)

// natsAnswer is the channel of the one Subscription after so many events, of which so
// many were not delivered.
func natsAnswer(last, waiting int) string {
	return fmt.Sprintf(`{"name":"ch.kyma-system","msgs":%d,"first_seq":1,"last_seq":%[1]d,"subscriptions":[{"durable_name":"link","last_sent":%d}]}`, last, last-waiting)
}

// live is the cluster of contracted, as it would be read.
func live() *world {
	s := contracted()
	w := &world{channels: []string{natsAnswer(7, 0)}}
	add := func(objects ...*unstructured.Unstructured) { w.objects = append(w.objects, objects...) }
	add(obj("v1", "Namespace", "", "shop", nil), obj("v1", "Namespace", "", "kyma-integration", nil))
	add(obj("applicationconnector.kyma-project.io/v1alpha1", "Application", "", "commerce", nil))
	add(s.subscriptions...)
	add(triggerOfContracted())
	add(isReady(obj("eventing.knative.dev/v1", "Broker", "shop", "default", nil)))
	source := s.sources["commerce"]
	source.Object["spec"] = map[string]any{"source": "commerce"}
	link := s.links[pair{"commerce", "shop"}][0]
	link.SetLabels(map[string]string{kyma.ApplicationNameLabel: "commerce", kyma.BrokerNamespaceLabel: "shop"})
	add(source, link, s.mesh.channels["commerce"], s.mesh.services["commerce"], s.mesh.eventServices["commerce"])
	add(s.bus.Links["orders--shop"], s.bus.Channels["ch"])
	c := running()
	match := map[string]any{"name": "subscription-controller"}
	c.Deployment.Object["spec"].(map[string]any)["selector"] = map[string]any{"matchLabels": match}
	c.Pods[0].SetLabels(map[string]string{"name": "subscription-controller"})
	add(c.Deployment, c.Pods[0])
	add(obj("v1", "Pod", "natss", "nats-streaming-0", map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"ports": []any{map[string]any{"containerPort": int64(8222)}}},
	}}}))
	return w
}

// TestOddObjects: an object of which a part cannot be read changes nothing for the others. A
// Subscription is named with the field.
func TestOddObjects(t *testing.T) {
	plan := func(w *world) *migration.Plan {
		t.Helper()
		p, err := New().plan(t.Context(), w, nil, 0, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := plan(live())
	w := live()
	k := assumedKinds()
	for _, one := range k.all() {
		for _, namespace := range []string{"shop", "kyma-integration", "kyma-system"} {
			version := one.Resource.GroupVersion().String()
			w.objects = append(w.objects, obj(version, one.Kind, namespace, "a-odd", map[string]any{"spec": "text", "status": map[string]any{"conditions": "text"}}))
		}
	}
	for field, spec := range map[string]map[string]any{
		"spec.source_id":          {"source_id": int64(5)},
		"spec.event_type:":        {"source_id": "commerce", "event_type": []any{"a"}},
		"spec.event_type_version": {"source_id": "commerce", "event_type": "a", "event_type_version": map[string]any{}},
		"spec.endpoint":           {"source_id": "commerce", "event_type": "a", "event_type_version": "v1", "endpoint": true},
	} {
		name := "odd" + strings.Trim(strings.ReplaceAll(field, "_", "-"), ":")
		w.objects = append(w.objects, obj("eventing.kyma-project.io/v1alpha1", "Subscription", "shop", name, map[string]any{"spec": spec}))
		if p := plan(w); !slices.ContainsFunc(p.Findings, func(f migration.Finding) bool {
			return f.ID == "subscription-not-convertible" && f.Object == "Subscription shop/"+name && strings.Contains(f.Problem, field)
		}) {
			t.Errorf("no finding names %s of Subscription shop/%s: %v", field, name, p.Findings)
		}
	}
	odd := plan(w)
	if diff := cmp.Diff(verbs(good.Units), verbs(odd.Units)); diff != "" || len(good.Units) == 0 {
		t.Errorf("odd objects change what is done (-want +got):\n%s", diff)
	}
}

// TestRead: what is read of a cluster decides as it should.
func TestRead(t *testing.T) {
	gone := []string{"guarded delete Subscription shop/orders"}
	formerPod := func(phase, deleted string) *unstructured.Unstructured {
		pod := obj("v1", "Pod", "kyma-integration", "old", map[string]any{
			"spec":   map[string]any{"containers": []any{map[string]any{"name": "commerce-event-service", "args": []any{"--sourceId=commerce"}}}},
			"status": map[string]any{"phase": phase},
		})
		pod.SetLabels(map[string]string{"app": "commerce-event-service", "release": "commerce"})
		if deleted != "" {
			pod.Object["metadata"].(map[string]any)["deletionTimestamp"] = deleted
		}
		return pod
	}
	for name, tc := range map[string]struct {
		reason string
		edit   func(*world)
		want   []string
		waits  string
	}{
		"All":       {"nothing is missing", func(*world) {}, gone, ""},
		"FormerPod": {"it posts until it ends", func(w *world) { w.objects = append(w.objects, formerPod("Running", ago(0))) }, nil, "Pod kyma-integration/old"},
		"LaterKind": {"later versions of Kyma use the kind for something else", func(w *world) {
			w.object("Subscription", "shop", "orders").Object["spec"] = map[string]any{"sink": "http://fn.shop", "types": []any{"order.created"}}
		}, nil, ""},
		"SinkToo": {"T27: one of the Event Bus is known by its own fields, whatever else it has", func(w *world) {
			w.object("Subscription", "shop", "orders").Object["spec"].(map[string]any)["sink"] = "http://fn.shop"
		}, gone, ""},
		"Crashing": {"the controller is read by its pods", func(w *world) {
			pod := w.object("Pod", "kyma-system", "pod-0")
			pod.Object["status"] = controllerPod("x", "False", nil).Object["status"]
		}, []string{
			"patch Deployment kyma-system/event-bus-subscription-controller", "await Deployment kyma-system/event-bus-subscription-controller",
			"guarded patch Subscription kyma-system/orders--shop", "delete Subscription kyma-system/orders--shop", "patch Subscription shop/orders", "delete Subscription shop/orders",
			"await Channel kyma-system/ch", "guarded delete Channel kyma-system/ch",
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := live()
			tc.edit(w)
			plan, err := New().plan(t.Context(), w, nil, 0, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, verbs(plan.Units)); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, diff, plan.Findings)
			}
			found := tc.waits == "" && (tc.want != nil || len(plan.Findings) == 0)
			for _, f := range plan.Findings {
				found = found || tc.waits != "" && f.Severity == migration.Deferred && strings.Contains(f.Problem, tc.waits)
			}
			if !found {
				t.Errorf("%s: no deferral with %q: %v", tc.reason, tc.waits, plan.Findings)
			}
		})
	}
}

// object finds an object by kind and name.
func (w *world) object(kind, namespace, name string) *unstructured.Unstructured {
	for _, obj := range w.objects {
		if obj.GetKind() == kind && obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj
		}
	}
	panic("no " + kind + " " + name)
}

// TestDrain: a run gives what is in flight its time, and a plan does not wait; the
// window for publishers begins with the first read.
func TestDrain(t *testing.T) { synctest.Test(t, testDrain) }

func testDrain(t *testing.T) {
	w := live()
	w.channels = []string{natsAnswer(7, 2), natsAnswer(8, 0)}
	j := New()
	plan, err := j.plan(t.Context(), w, nil, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if w.reads != 2 || len(plan.Units) != 1 {
		t.Errorf("read %d times, %d units: %v", w.reads, len(plan.Units), plan.Findings)
	}
	// What was looked at first is what a later look returns.
	if got := j.looks.First("ch.kyma-system", eventbus.InFlight{Unreadable: "not asked"}); got.Sequence != 7 || got.At.IsZero() {
		t.Errorf("the first look is %v", got)
	}
	w.reads = 0
	if got := []time.Duration{j.patience(false), j.patience(true)}; got[0] != j.options.drainTimeout || got[1] != 0 {
		t.Errorf("a run and a plan wait %v", got)
	}
	j.options.drainTimeout = 0
	plan, err = j.plan(t.Context(), w, nil, 0, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if w.reads != 1 || len(plan.Units) != 0 || len(plan.Findings) != 1 {
		t.Errorf("without a wait: read %d times, %d units: %v", w.reads, len(plan.Units), plan.Findings)
	}
	j.options.drainTimeout, j.options.legacyTraffic = time.Minute, ignore
	if got := j.patience(false); got != 0 {
		t.Errorf("what is dropped is waited for: %s", got)
	}
}

// TestInjectionInsists: the label of a namespace is set only while it is what the
// plan read; one with another value is somebody's decision. The first half fails on
// the commit before: the patch had no basis.
func TestInjectionInsists(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		labels map[string]any
		want   map[string]any // of the basis
		left   string
	}{
		"None":    {"it had no label", nil, nil, ""},
		"Empty":   {"it had an empty one", map[string]any{kyma.InjectionLabel: ""}, map[string]any{kyma.InjectionLabel: ""}, ""},
		"Refused": {"it is to have no Broker", map[string]any{kyma.InjectionLabel: "disabled"}, nil, "says that it is to have none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := contracted()
			s.kinds.broker.Resource.Version = "v1alpha1"
			delete(s.brokers, "shop")
			ns := obj("v1", "Namespace", "", "shop", nil)
			ns.SetUID("ns")
			if tc.labels != nil {
				ns.Object["metadata"].(map[string]any)["labels"] = tc.labels
			}
			s.addNamespace(ns, kyma.LeftOut(nil))
			d := newDecision(s, New().options)
			d.expand()
			if tc.left != "" {
				if len(d.units.brokers) != 0 || len(d.groups) != 0 || len(d.plan.Findings) != 1 || !strings.Contains(d.plan.Findings[0].Problem, tc.left) {
					t.Errorf("%s: %v, %v", tc.reason, d.units.brokers, d.plan.Findings)
				}
				return
			}
			ch := d.units.brokers[0].Changes[0]
			want := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "uid": "ns"}}
			if tc.want != nil {
				want["metadata"].(map[string]any)["labels"] = tc.want
			}
			if diff := cmp.Diff(want, ch.Object.Object); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTriggerVanishes: what was seen and is gone was deleted; what was never seen may
// be to come.
func TestTriggerVanishes(t *testing.T) {
	ref := assumedKinds().trigger.Ref("shop", "t")
	trigger := notReady(obj("eventing.knative.dev/v1", "Trigger", "shop", "t", nil))
	for _, tc := range []struct {
		reason string
		verb   migration.Verb
		views  []view.Of
		want   migration.State
	}{
		{"a view lags behind a create", migration.Create, []view.Of{nil}, migration.Pending},
		{"somebody deletes it", migration.Create, []view.Of{nil, {trigger}, nil}, migration.Failed},
		{"somebody deletes it", migration.Await, []view.Of{{trigger}, nil}, migration.Failed},
		{"it is to come", migration.Await, []view.Of{nil}, migration.Pending},
	} {
		c := ready(&migration.Change{Verb: tc.verb, Ref: ref}, ref.Subject())
		var got migration.Status
		for _, v := range tc.views {
			got = c.Eval(v)
		}
		if got.State != tc.want {
			t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
		}
	}
}

// TestChannelAwaited: a Channel of the Event Bus is deleted after its last
// subscriber, and by a condition that this job gives the engine.
func TestChannelAwaited(t *testing.T) {
	j := New()
	ch := &migration.Change{Verb: migration.Await, Ref: assumedKinds().channel.Ref("kyma-system", "ch")}
	conditions := j.Await(ch)
	if len(conditions) != 1 {
		t.Fatalf("%d conditions", len(conditions))
	}
	link := contracted().bus.Links["orders--shop"]
	if got := conditions[0].Eval(view.Of{link}); got.State != migration.Pending {
		t.Errorf("with a subscriber: %v", got)
	}
	if got := conditions[0].Eval(view.Of{}); got.State != migration.Met {
		t.Errorf("without: %v", got)
	}
	if conditions[0].Timeout != j.options.deleteTimeout {
		t.Errorf("limit %s", conditions[0].Timeout)
	}
}

// TestRefuseUndo: a restored Subscription brings events only if somebody takes notice
// of it, or what that makes is restored, too.
func TestRefuseUndo(t *testing.T) {
	k := assumedKinds()
	sub := migration.Change{Verb: migration.Delete, Ref: k.subscription.Ref("shop", "orders")}
	link := migration.Change{Verb: migration.Delete, Ref: k.link.Ref("kyma-system", "orders--shop")}
	trigger := migration.Change{Verb: migration.Create, Ref: k.trigger.Ref("shop", "t")}
	for name, tc := range map[string]struct {
		reason  string
		c       eventbus.Controller
		changes []migration.Change
		refused bool
	}{
		"Runs":    {"it takes notice", running(), []migration.Change{sub}, false},
		"Stopped": {"nobody does", controllerAt(0), []migration.Change{sub}, true},
		"Gone":    {"nobody does", eventbus.Controller{}, []migration.Change{sub}, true},
		"ByHand":  {"the Knative Subscription is restored, too", controllerAt(0), []migration.Change{sub, link}, false},
		"Nothing": {"no Subscription is restored", controllerAt(0), []migration.Change{trigger}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{}
			if tc.c.Deployment != nil {
				w.objects = view.Of{tc.c.Deployment}
			}
			findings, err := eventbus.RefuseUndo(t.Context(), w, tc.changes)
			if err != nil || (len(findings) > 0) != tc.refused {
				t.Errorf("%s: %v, %v", tc.reason, findings, err)
			}
		})
	}
}

// TestObservePublishersIsChecked: a negative window is a mistake.
func TestObservePublishersIsChecked(t *testing.T) {
	j := New()
	if err := j.Validate(); err != nil || j.options.observePublishers != 30*time.Second {
		t.Errorf("default %s: %v", j.options.observePublishers, err)
	}
	j.options.observePublishers = -1
	if j.Validate() == nil {
		t.Error("a negative window is taken")
	}
}
