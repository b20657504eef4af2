package trigger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/snapshot"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

func want(t *testing.T, r *migration.Report, code int, result migration.Result, exit int) {
	t.Helper()
	if r.Result != result || code != exit {
		t.Fatalf("got result %s, exit code %d; want %s, %d: %s", r.Result, code, result, exit, r.Message)
	}
}

// finds checks that a finding on the object has the words.
func finds(t *testing.T, r *migration.Report, severity migration.Severity, object, words string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Severity == severity && f.Object == object && strings.Contains(f.Problem, words) {
			if f.Severity == migration.Deferred && f.Hint == "" {
				t.Errorf("%s: no hint", f)
			}
			return
		}
	}
	t.Errorf("no finding %s on %s with %q", severity, object, words)
}

func writes(r *migration.Report) []string {
	var all []string
	for _, ch := range r.Changes {
		if ch.Verb != migration.Await {
			all = append(all, fmt.Sprintf("%s %s %s/%s %s", ch.Verb, ch.Kind, ch.Namespace, ch.Name, ch.Result))
		}
	}
	slices.Sort(all)
	return all
}

func onEach(t *testing.T, test func(t *testing.T, p *plane)) {
	for _, version := range versions {
		t.Run(string(version), func(t *testing.T) { test(t, on(t, version)) })
	}
}

// equal returns an endpoint that means the same as that of another Subscription.
func equal(to string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.Object["spec"].(map[string]any)["endpoint"] = "http://" + to + ".shop.svc.cluster.local:8080"
	}
}

// TestOrderOfUpgrades migrates as the upgrade of Kyma does: Triggers first, while
// event-services post to the Event Bus; then they switch; then the same program
// finishes. Another run at any point changes nothing.
func TestOrderOfUpgrades(t *testing.T) {
	onEach(t, func(t *testing.T, p *plane) {
		ctx := t.Context()
		p.load(ctx, t, false,
			subscription("shop", "orders", "order.created"), subscription("shop", "orders-too", "order.created", equal("orders")),
			subscription("shop", "paid", "order.paid", from(otherApp)), subscription("crm", "paid", "order.paid"),
			subscription("crm", "nowhere", "order.paid", func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "spec", "endpoint") }))

		planned, code := p.run(t, "plan")
		want(t, planned, code, migration.Planned, 0)

		expanded, code := p.run(t, "run")
		want(t, expanded, code, migration.DeferredResult, 0)
		if got := writes(expanded); len(got) != 4 {
			t.Errorf("want a Broker and three Triggers, got %q", got)
		}
		if got := p.names(ctx, t, p.triggers(), ""); len(got) != 3 {
			t.Errorf("Triggers: %q", got)
		}
		if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 5 {
			t.Errorf("Subscriptions: %q", got)
		}
		for _, name := range []string{"shop/orders", "shop/orders-too", "shop/paid", "crm/paid"} {
			finds(t, expanded, migration.Deferred, "Subscription "+name, "does not carry --eventMeshURL, so it posts to the Event Bus")
		}
		finds(t, expanded, migration.Deferred, "Subscription crm/nowhere", "there is no spec.endpoint")
		finds(t, expanded, migration.Info, "Subscription shop/orders", "is equal to orders-too")

		before, err := snapshot.Take(ctx, p.Config(), snapshot.Options{Raw: true})
		if err != nil {
			t.Fatal(err)
		}
		again, code := p.run(t, "run")
		want(t, again, code, migration.DeferredResult, 0)
		if again.Requests.Writes != 0 {
			t.Errorf("a second deferred run made %d writes", again.Requests.Writes)
		}
		after, err := snapshot.Take(ctx, p.Config(), snapshot.Options{Raw: true})
		if err != nil {
			t.Fatal(err)
		}
		if diff := snapshot.Diff(before, after); diff != "" {
			t.Errorf("a second deferred run changed something:\n%s", diff)
		}

		// One switches, the other is in the middle of it.
		p.eventService(ctx, t, app, true)
		p.eventService(ctx, t, otherApp, true)
		p.patch(ctx, t, standin.Deployments, standin.IntegrationNamespace, otherApp+"-event-service", `{"status":{"replicas":2}}`, "status")
		half, code := p.run(t, "run")
		want(t, half, code, migration.DeferredResult, 0)
		if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/nowhere", "shop/paid"}) {
			t.Errorf("Subscriptions that are left: %q", got)
		}
		finds(t, half, migration.Deferred, "Subscription shop/paid", "still has 1 of its old pods")

		p.eventService(ctx, t, otherApp, true)
		done, code := p.run(t, "run")
		want(t, done, code, migration.DeferredResult, 0)
		if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/nowhere"}) {
			t.Errorf("Subscriptions that are left: %q", got)
		}
		left, code := p.run(t, "run", "--defer=fail")
		want(t, left, code, migration.FailedResult, 1)
		p.patch(ctx, t, standin.KymaSubscriptions, "crm", "nowhere", `{"metadata":{"labels":{"eventmesh-migration.kyma-project.io/skip":"true"}}}`)
		nothing, code := p.run(t, "run", "--defer=fail")
		want(t, nothing, code, migration.NothingToDo, 0)

		// Backwards: Subscriptions come back, Triggers carry live events and stay.
		for range 2 {
			undone, code := p.run(t, "undo")
			want(t, undone, code, migration.Succeeded, 0)
		}
		if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 5 {
			t.Errorf("Subscriptions after undo: %q", got)
		}
		kept, code := p.run(t, "undo")
		want(t, kept, code, migration.PartlyRestored, 3)
		finds(t, kept, migration.Warning, "Trigger "+p.names(ctx, t, p.triggers(), "crm")[0], "carries live events")
		if got := p.names(ctx, t, p.triggers(), ""); len(got) != 3 {
			t.Errorf("Triggers after undo: %q", got)
		}
		if got := p.names(ctx, t, p.brokers(), ""); len(got) != 2 {
			t.Errorf("Brokers after undo: %q", got)
		}
	})
}

// TestUndoInOrder undoes a whole migration: out of order it is refused, since a
// Subscription that nobody takes notice of brings nothing; in order it works.
func TestUndoInOrder(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, false, subscription("crm", "orders", "order.created"), subscription("shop", "orders", "order.created"))
	r, code := p.run(t, "run")
	want(t, r, code, migration.DeferredResult, 0)
	p.eventService(ctx, t, app, true)
	p.eventService(ctx, t, otherApp, true)
	r, code = p.run(t, "run")
	want(t, r, code, migration.Succeeded, 0)
	p.observe(ctx, t)
	r, code = p.runJob(t, "eventbus-scaledown", "run")
	want(t, r, code, migration.Succeeded, 0)

	before, err := snapshot.Stable(ctx, p.Config(), snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, code = p.run(t, "undo")
	want(t, r, code, migration.Refused, 4)
	finds(t, r, migration.Error, "Deployment kyma-system/event-bus-subscription-controller", "does not run")
	if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
		return f.Command == "eventmesh-migrate undo eventbus-scaledown"
	}) {
		t.Errorf("the refusal does not tell the order: %v", r.Findings)
	}
	after, err := snapshot.Stable(ctx, p.Config(), snapshot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := snapshot.Diff(before, after); diff != "" {
		t.Errorf("a refused undo changed something:\n%s", diff)
	}

	r, code = p.runJob(t, "eventbus-scaledown", "undo")
	want(t, r, code, migration.Succeeded, 0)
	r, code = p.run(t, "undo")
	want(t, r, code, migration.Succeeded, 0) // the Subscriptions are back
	r, code = p.run(t, "undo")
	want(t, r, code, migration.PartlyRestored, 3) // and the Triggers carry live events
	finds(t, r, migration.Warning, "Trigger "+p.names(ctx, t, p.triggers(), "crm")[0], "carries live events")
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 2 {
		t.Errorf("Subscriptions: %q", got)
	}
	p.wait(ctx, t, "the Event Bus delivers to them", standin.SubscriptionsReady)
	if got := p.names(ctx, t, p.triggers(), ""); len(got) != 2 {
		t.Errorf("Triggers: %q", got)
	}
}

// TestInFlight: what is on the way keeps a Subscription, and so does what cannot
// be known, unless it is to be dropped.
func TestInFlight(t *testing.T) {
	p := on(t, versions[0])
	p.load(t.Context(), t, true, subscription("crm", "orders", "order.created"), subscription("crm", "dead", "order.paid"))
	p.nats.set(map[string]int{"dead--crm": 3})
	r, code := p.run(t, "run", "--drain-timeout=1s")
	want(t, r, code, migration.DeferredResult, 0)
	finds(t, r, migration.Deferred, "Subscription crm/dead", "3 events still in flight to http://dead.crm:8080/ after 1s")
	if got := p.names(t.Context(), t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/dead"}) {
		t.Errorf("Subscriptions: %q", got)
	}
	p.nats.fail()
	r, code = p.run(t, "run", "--drain-timeout=0s")
	want(t, r, code, migration.DeferredResult, 0)
	finds(t, r, migration.Deferred, "Subscription crm/dead", "unknown")
	p.nats.set(map[string]int{"dead--crm": 3})
	r, code = p.run(t, "run", "--legacy-traffic=ignore")
	want(t, r, code, migration.Succeeded, 0)
	finds(t, r, migration.Warning, "Subscription crm/dead", "drops 3 events on the way to http://dead.crm:8080/")
}

// TestDrains: a run waits for what is on the way.
func TestDrains(t *testing.T) {
	p := on(t, versions[0])
	p.load(t.Context(), t, true, subscription("crm", "orders", "order.created"))
	p.nats.set(map[string]int{"orders--crm": 3})
	time.AfterFunc(3*time.Second, func() { p.nats.set(nil) })
	r, code := p.run(t, "run", "--drain-timeout=1m")
	want(t, r, code, migration.Succeeded, 0)
}

// TestWithoutController: while the subscription-controller is at 0, the job does
// what it would have done, and an undo brings all of it back.
func TestWithoutController(t *testing.T) {
	onEach(t, func(t *testing.T, p *plane) {
		ctx := t.Context()
		p.load(ctx, t, true,
			subscription("crm", "orders", "order.created"), subscription("shop", "orders", "order.created"),
			subscription("crm", "kept", "order.paid", from(otherApp)), subscription("crm", "gone", "order.paid", from(otherApp)))
		p.scale(ctx, t, 0)
		p.nats.set(map[string]int{"kept--crm": 1})
		p.madeBySomebody(ctx, t)
		created := func(u *unstructured.Unstructured) bool {
			kind := u.GetKind()
			return kind == "Trigger" || kind == "Broker" || kind == "Namespace" || kind == "RoleBinding" || kind == "ServiceAccount"
		}
		options := snapshot.Options{Ignore: created, IgnoreAnnotations: []string{creator, lastModifier}}
		before, err := snapshot.Stable(ctx, p.Config(), options)
		if err != nil {
			t.Fatal(err)
		}
		r, code := p.run(t, "run", "--drain-timeout=0s")
		want(t, r, code, migration.DeferredResult, 0)
		if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/kept"}) {
			t.Errorf("Subscriptions: %q", got)
		}
		if got := p.names(ctx, t, p.links(), standin.SystemNamespace); !slices.Equal(got, []string{"kyma-system/kept--crm"}) {
			t.Errorf("Knative Subscriptions of the Event Bus: %q", got)
		}
		// The Channel of what is kept has a subscriber still.
		if got := p.names(ctx, t, p.channels(), standin.SystemNamespace); len(got) != 1 || !strings.Contains(got[0], otherApp) {
			t.Errorf("Channels of the Event Bus: %q", got)
		}
		r, code = p.run(t, "undo")
		want(t, r, code, migration.PartlyRestored, 3) // Triggers carry live events
		for _, f := range r.Findings {
			if strings.Contains(f.Problem, "was created again") {
				t.Errorf("what is back counts as another one: %s: %s", f.Object, f.Problem)
			}
		}
		settled, err := snapshot.AwaitEqual(ctx, p.Config(), before, options)
		if err != nil {
			t.Fatal(err)
		}
		if settled != "" {
			t.Errorf("undo did not bring back what was deleted:\n%s", settled)
		}
	})
}

// TestFailures: each failure condition rolls back to what was before.
func TestFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  func(ctx context.Context, t testing.TB, p *plane)
		args   []string
		object string
		words  string
	}{
		"BrokerNeverReady": {
			fault: func(_ context.Context, _ testing.TB, p *plane) {
				p.mesh.Break(standin.BrokerNeverReady, "shop/default")
			},
			args:   []string{"--ready-timeout=5s"},
			object: "Broker shop/default", words: "DeploymentUnavailable",
		},
		"TriggerStuck": {
			fault: func(_ context.Context, _ testing.TB, p *plane) {
				p.mesh.Break(standin.TriggerStuck, "crm/paid-d0731c6b3173")
			},
			args:   []string{"--ready-timeout=5s"},
			object: "Trigger crm/paid-d0731c6b3173", words: "object is being deleted",
		},
		"Activation": {
			fault: func(ctx context.Context, t testing.TB, p *plane) {
				ea := standin.EventActivation("crm", "service-1", "app-without-link")
				ea.SetFinalizers(nil)
				p.create(ctx, t, standin.EventActivations, ea)
			},
			args:   []string{"--activation-timeout=2s"},
			object: "EventActivation crm/service-1", words: "no Knative Subscription",
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, p *plane) {
				ctx := t.Context()
				p.load(ctx, t, false, subscription("shop", "orders", "order.created"), subscription("crm", "paid", "order.paid"))
				tc.fault(ctx, t, p)
				before, err := snapshot.Stable(ctx, p.Config(), snapshot.Options{})
				if err != nil {
					t.Fatal(err)
				}
				r, code := p.run(t, "run", tc.args...)
				object := tc.object
				if name == "BrokerNeverReady" && p.version == versions[0] {
					object = "Namespace shop" // it is the label that was changed
				}
				want(t, r, code, migration.RolledBack, 1)
				finds(t, r, migration.Error, object, tc.words)
				diff, err := snapshot.AwaitEqual(ctx, p.Config(), before, snapshot.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if diff != "" {
					t.Errorf("not as before:\n%s", diff)
				}
			})
		})
	}
}

// TestNeverGone: a Subscription that does not go in time fails the run; what can
// be restored is, and the rest is named.
func TestNeverGone(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true, subscription("crm", "orders", "order.created"), subscription("crm", "stuck", "order.paid"))
	p.mesh.Break(standin.NeverFinalized, "crm/stuck")
	r, code := p.run(t, "run", "--delete-timeout=2s", "--rollback-timeout=10s")
	want(t, r, code, migration.PartlyRestored, 3)
	finds(t, r, migration.Error, "Subscription crm/stuck", "subscription.finalizers.kyma-project.io")
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/orders", "crm/stuck"}) {
		t.Errorf("Subscriptions: %q", got)
	}
}

// TestEqualGoOneByOne: the subscription-controller deletes a Channel with the only
// subscriber that it lists, so that none does if two go at once. Fails on the commit
// before: the Channel stayed for ever.
func TestEqualGoOneByOne(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true,
		subscription("shop", "orders", "order.created"), subscription("shop", "stock", "order.created"), subscription("crm", "orders", "order.created"))
	if got := p.names(ctx, t, p.channels(), standin.SystemNamespace); len(got) != 1 {
		t.Fatalf("Channels: %q", got)
	}
	p.migrates(ctx, t)
}

// TestNotActivated: where no EventActivation of the source is in the namespace, the
// subscription-controller serves nobody, and only puts its finalizer on. The events that
// the Trigger brings are then the first.
func TestNotActivated(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true, subscription("crm", "orders", "order.created"))
	p.clear(ctx, t, standin.EventActivations, "crm")
	gone := func(what string, left func() []string) {
		p.wait(ctx, t, what, func(*standin.Mesh) bool { return len(left()) == 0 })
	}
	gone("the Knative Subscription goes", func() []string { return p.names(ctx, t, p.links(), standin.SystemNamespace) })
	gone("the Channel goes", func() []string { return p.names(ctx, t, p.channels(), standin.SystemNamespace) })
	p.migrates(ctx, t)
}

// TestFirstOfEqual: of equal Subscriptions of a namespace only the first becomes
// is-ready, which says nothing about the others.
func TestFirstOfEqual(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true, subscription("shop", "orders", "order.created"), subscription("shop", "stock", "order.created"))
	ready := map[string]string{}
	p.wait(ctx, t, "both have a status", func(*standin.Mesh) bool {
		list, err := p.client.Resource(standin.KymaSubscriptions).Namespace("shop").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions")
			for _, c := range conditions {
				if condition := c.(map[string]any); condition["type"] == "is-ready" {
					ready[list.Items[i].GetName()] = condition["status"].(string)
				}
			}
		}
		return len(ready) == 2
	})
	if ready["orders"] != "True" || ready["stock"] != "False" {
		t.Errorf("is-ready: %v", ready)
	}
	p.migrates(ctx, t)
}

// TestKnative010: the Knative Eventing of Kyma 1.10 says of no object which generation of
// it has been seen, that of 1.11 not of Channels.
func TestKnative010(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	swap := func(ctx context.Context, o standin.Options) {
		p.scale(ctx, t, 0) // its pod is of the stand-in that stops
		p.mesh.Stop()
		var err error
		if p.mesh, err = standin.StartMesh(context.Background(), p.Config(), o); err != nil {
			t.Fatal(err)
		}
		p.scale(ctx, t, 1)
	}
	t.Cleanup(func() { swap(context.WithoutCancel(ctx), standin.Options{ControllerPods: true}) })
	swap(ctx, standin.Options{ControllerPods: true, Knative010: true})
	p.load(ctx, t, false, subscription("shop", "orders", "order.created"), subscription("crm", "orders", "order.created"))
	r, code := p.run(t, "run")
	want(t, r, code, migration.DeferredResult, 0)
	for _, gvr := range []schema.GroupVersionResource{p.brokers(), p.triggers(), p.links(), p.channels()} {
		list, err := p.client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			t.Fatalf("%d %s: %v", len(list.Items), gvr.Resource, err)
		}
		for i := range list.Items {
			if _, told, _ := unstructured.NestedInt64(list.Items[i].Object, "status", "observedGeneration"); told {
				t.Errorf("%s %s has an observedGeneration", gvr.Resource, list.Items[i].GetName())
			}
		}
	}
	p.eventService(ctx, t, app, true)
	p.migrates(ctx, t)
}
