package trigger

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestCrashingController: one endpoint that does not parse ends the real
// subscription-controller at every start. On the commit before, each other
// Subscription was deleted and hung on its finalizer, and so did every later run.
func TestCrashingController(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true, subscription("crm", "orders", "order.created"), subscription("shop", "paid", "order.paid"))
	p.mesh.BreakController(standin.ControllerFaults{Crashes: true})
	p.create(ctx, t, standin.KymaSubscriptions, subscription("shop", "bad", "order.created", func(u *unstructured.Unstructured) {
		u.Object["spec"].(map[string]any)["endpoint"] = "http://user:hunter2@[::1"
	}))
	p.wait(ctx, t, "the controller crashes", func(m *standin.Mesh) bool { return !m.ControllerRuns() })
	r, code := p.run(t, "run")
	want(t, r, code, migration.DeferredResult, 0)
	if f := r.Findings[0]; f.Object != "Subscription shop/bad" || f.Command != "kubectl -n shop edit subscription.eventing.kyma-project.io/bad" {
		t.Errorf("the first finding is %s", f)
	}
	finds(t, r, migration.Warning, "Deployment kyma-system/event-bus-subscription-controller", "it does not run")
	if raw, err := json.Marshal(r); err != nil || bytes.Contains(raw, []byte("hunter2")) {
		t.Errorf("the report has the password: %s", raw)
	}
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"shop/bad"}) {
		t.Errorf("Subscriptions: %q", got)
	}
	p.restored(ctx, t)
	p.patch(ctx, t, standin.KymaSubscriptions, "shop", "bad", `{"spec":{"endpoint":"http://bad.shop:8080/"}}`)
	// It may begin to serve it at any moment: TestServedMeanwhile has that.
	p.wait(ctx, t, "the controller serves it", standin.SubscriptionsReady)
	p.migrates(ctx, t)
	p.restored(ctx, t)
}

// TestServedMeanwhile: the controller starts between two crashes, right after the plan
// was made and before it is stopped, and begins to serve a Subscription that it did not
// know. Fails on the commit before: the Subscription was deleted, and hung on the
// finalizer that the plan had not seen.
func TestServedMeanwhile(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true)
	p.mesh.BreakController(standin.ControllerFaults{Crashes: true})
	p.create(ctx, t, standin.KymaSubscriptions, subscription("shop", "bad", "order.created", func(u *unstructured.Unstructured) {
		u.Object["spec"].(map[string]any)["endpoint"] = "http://[::1"
	}))
	p.wait(ctx, t, "the controller crashes", func(m *standin.Mesh) bool { return !m.ControllerRuns() })
	p.create(ctx, t, standin.KymaSubscriptions, subscription("crm", "fresh", "order.paid"), subscription("crm", "fresh-too", "order.paid"))
	planned, _ := p.run(t, "plan")
	for _, ch := range planned.Changes {
		if ch.Kind == "Trigger" {
			p.mesh.Break(standin.TriggerNeverReady, ch.Namespace+"/"+ch.Name)
		}
	}
	u := p.begin(t, "--delete-timeout=5s", "--rollback-timeout=5s")
	p.wait(ctx, t, "the Triggers are created, and the controller is stopped", func(m *standin.Mesh) bool {
		n, _ := p.replicas(ctx, t)
		return n == 0 && m.Has(p.triggers(), 2)
	})
	// What the controller would have written until it was stopped: a finalizer for one,
	// a Knative Subscription for the other.
	p.patch(ctx, t, standin.KymaSubscriptions, "crm", "fresh", `{"metadata":{"finalizers":["subscription.finalizers.kyma-project.io"]}}`)
	link := standin.BusSubscription(standin.BusChannel(string(p.version), app, "order.paid"), "crm", "fresh-too")
	p.create(ctx, t, p.links(), link)
	p.mesh.HealAll()
	r, code := u.Report()
	want(t, r, code, migration.DeferredResult, 0)
	for _, name := range []string{"crm/fresh", "crm/fresh-too"} {
		finds(t, r, migration.Deferred, "Subscription "+name, "began to serve it after the plan was made, and does not run any more")
	}
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/fresh", "crm/fresh-too", "shop/bad"}) {
		t.Errorf("Subscriptions: %q", got)
	}
	p.restored(ctx, t)
	p.patch(ctx, t, standin.KymaSubscriptions, "shop", "bad", `{"spec":{"endpoint":"http://bad.shop:8080/"}}`)
	p.wait(ctx, t, "the controller serves them", standin.SubscriptionsReady)
	p.migrates(ctx, t)
}

// TestControllerDiesInTheMiddle: somebody creates a Subscription that ends the controller while it
// has deletions to finish. On f3299ef each run ended with exit code 3 after --delete-timeout, and
// named neither that Subscription nor the crash; nobody removed the finalizers.
func TestControllerDiesInTheMiddle(t *testing.T) {
	const n = 12
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true, many(n)...)
	p.mesh.BreakController(standin.ControllerFaults{Requests: 15, Crashes: true})
	u := p.begin(t)
	p.wait(ctx, t, "some are deleted", func(*standin.Mesh) bool { return len(p.names(ctx, t, standin.KymaSubscriptions, "crm")) <= n-3 })
	p.create(ctx, t, standin.KymaSubscriptions, subscription("shop", "bad", "order.created", func(u *unstructured.Unstructured) {
		u.Object["spec"].(map[string]any)["endpoint"] = "http://[::1"
	}))
	r, code := u.Report()
	want(t, r, code, migration.FailedResult, 3)
	if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
		return f.ID == "controller-crashes" && strings.Contains(f.Problem, "spec.endpoint of Subscription shop/bad is not a URL") && f.Command == "kubectl -n shop edit subscription.eventing.kyma-project.io/bad"
	}) || !strings.Contains(r.Message, "are done and stay") {
		t.Errorf("it does not say what to do: %s, %v", r.Message, r.Findings)
	}
	left := p.names(ctx, t, standin.KymaSubscriptions, "crm")
	if len(left) == 0 {
		t.Fatal("nothing was left to do")
	}
	r, code = p.run(t, "run")
	want(t, r, code, migration.DeferredResult, 0) // for shop/bad
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"shop/bad"}) {
		t.Errorf("Subscriptions: %q, of %q", got, left)
	}
	p.restored(ctx, t)
	p.clear(ctx, t, standin.KymaSubscriptions, "shop")
	p.mesh.BreakController(standin.ControllerFaults{})
	p.nothingOfTheBus(ctx, t)
}
