package trigger

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// begin starts a run of trigger-sync that goes on.
func (p *plane) begin(t *testing.T, args ...string) *suite.Process {
	t.Helper()
	return suite.Start(t, process.Program{Binary: process.Build(t, "./cmd/trigger-sync"), Args: append([]string{
		"run", "--kubeconfig=" + p.Kubeconfig, "--output=json", "--log-format=json", "--lease-duration=1s",
		"--nats-monitoring-url=" + p.nats.URL, "--observe-publishers=0s",
	}, args...)})
}

// waitsForTrigger returns a run that has created the Trigger of crm/orders, and waits
// for it to be ready before it deletes the Subscription.
func (p *plane) waitsForTrigger(t *testing.T, args ...string) *suite.Process {
	t.Helper()
	ctx := t.Context()
	sub := subscription("crm", "orders", "order.created")
	p.load(ctx, t, true, sub)
	planned, _ := p.run(t, "plan")
	for _, ch := range planned.Changes {
		if ch.Kind == "Trigger" {
			p.mesh.Break(standin.TriggerNeverReady, ch.Namespace+"/"+ch.Name)
		}
	}
	u := p.begin(t, args...)
	p.wait(ctx, t, "the Trigger is created", func(m *standin.Mesh) bool { return m.Has(p.triggers(), 1) })
	return u
}

// TestSwitchRevertedDuringWait: what held when the plan was made does not hold when
// the Subscription would be deleted: application-connector is rolled back, and events
// are in flight. Each case deletes it, without a finding, on the commit before: the
// deletion was decided once.
func TestSwitchRevertedDuringWait(t *testing.T) {
	reverted := func(ctx context.Context, t *testing.T, p *plane) {
		t.Helper()
		p.eventService(ctx, t, app, false)
		p.nats.set(map[string]int{"orders--crm": 3})
	}
	for name, tc := range map[string]struct {
		args []string
		end  func(ctx context.Context, t *testing.T, p *plane, u *suite.Process) (*migration.Report, int)
		want migration.Result
		exit int
	}{
		"Killed": {nil, func(ctx context.Context, t *testing.T, p *plane, u *suite.Process) (*migration.Report, int) {
			t.Helper()
			u.Kill()
			reverted(ctx, t, p)
			p.mesh.HealAll()
			return p.run(t, "run", "--drain-timeout=0s")
		}, migration.DeferredResult, 0},
		"Terminated": {[]string{"--defer=fail"}, func(ctx context.Context, t *testing.T, p *plane, u *suite.Process) (*migration.Report, int) {
			t.Helper()
			u.Signal(syscall.SIGTERM)
			if r, code := u.Report(); code != 128+int(syscall.SIGTERM) {
				t.Fatalf("interrupted: %s, exit code %d", r.Result, code)
			}
			reverted(ctx, t, p)
			p.mesh.HealAll()
			return p.run(t, "run", "--drain-timeout=0s", "--defer=fail")
		}, migration.FailedResult, 1},
		"SameRun": {nil, func(ctx context.Context, t *testing.T, p *plane, u *suite.Process) (*migration.Report, int) {
			t.Helper()
			reverted(ctx, t, p)
			p.mesh.HealAll()
			return u.Report()
		}, migration.DeferredResult, 0},
		"IgnoreOfAKilledRun": {[]string{"--legacy-traffic=ignore"}, func(ctx context.Context, t *testing.T, p *plane, u *suite.Process) (*migration.Report, int) {
			t.Helper()
			u.Kill()
			reverted(ctx, t, p)
			p.mesh.HealAll()
			return p.run(t, "run", "--drain-timeout=0s")
		}, migration.DeferredResult, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := on(t, versions[0])
			ctx := t.Context()
			r, code := tc.end(ctx, t, p, p.waitsForTrigger(t, tc.args...))
			if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/orders"}) {
				t.Errorf("Subscriptions: %q", got)
			}
			if r.Result != tc.want || code != tc.exit {
				t.Errorf("got result %s, exit code %d; want %s, %d: %s", r.Result, code, tc.want, tc.exit, r.Message)
			}
			if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
				return f.Severity == migration.Deferred && f.Object == "Subscription crm/orders" && f.Hint != ""
			}) {
				t.Errorf("no deferral of the Subscription: %v", r.Findings)
			}

			// What was missing comes, and the next run finishes.
			p.eventService(ctx, t, app, true)
			p.nats.set(nil)
			r, code = p.run(t, "run")
			want(t, r, code, migration.Succeeded, 0)
			if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 0 {
				t.Errorf("Subscriptions: %q", got)
			}
		})
	}
}

// TestStoppedAfterTheGuard: SIGTERM ends a run between the first change of a deletion and the
// others. The job was asked before that change, and the journal has it as done. Then events take
// the former path again: before the next run makes its plan, or after that.
func TestStoppedAfterTheGuard(t *testing.T) {
	for _, after := range []string{"BeforeThePlan", "AfterThePlan"} {
		t.Run(after, func(t *testing.T) {
			p := on(t, versions[0])
			ctx := t.Context()
			p.load(ctx, t, true, subscription("crm", "orders", "order.created"))
			p.scale(ctx, t, 0) // trigger-sync does the part of the controller
			guard, kubeconfig := p.proxied(t)
			running := make(chan *suite.Process, 1)
			guard.Use(func(_ context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
				response, err := next()
				if r.Verb == "patch" && r.Resource == "subscriptions" && !r.DryRun {
					(<-running).Signal(syscall.SIGTERM)
					time.Sleep(200 * time.Millisecond) // the run hears of the signal first
				}
				return response, err
			})
			u := p.begin(t, "--kubeconfig="+kubeconfig)
			running <- u
			r, code := u.Report()
			if code != migration.ExitSignal+int(syscall.SIGTERM) || !slices.ContainsFunc(r.Changes, func(ch migration.ChangeReport) bool {
				return ch.Verb == migration.Patch && ch.Result == migration.ChangeDone
			}) {
				t.Fatalf("exit code %d, %+v", code, r.Changes)
			}

			revert := sync.OnceFunc(func() {
				p.eventService(ctx, t, app, false)
				p.nats.set(map[string]int{"orders--crm": 3})
			})
			if after == "BeforeThePlan" {
				revert()
			}
			planned, kubeconfig := p.proxied(t)
			planned.Use(func(_ context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
				if strings.HasPrefix(r.Resource, "selfsubject") {
					revert() // with the plan made, the run looks what it is allowed to do
				}
				return next()
			})
			r, code = p.begin(t, "--drain-timeout=0s", "--kubeconfig="+kubeconfig).Report()
			want(t, r, code, migration.DeferredResult, 0)
			finds(t, r, migration.Deferred, "Subscription crm/orders", "")
			if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/orders"}) {
				t.Errorf("Subscriptions: %q", got)
			}

			p.eventService(ctx, t, app, true)
			p.nats.set(nil)
			r, code = p.run(t, "run")
			want(t, r, code, migration.Succeeded, 0)
			if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 0 {
				t.Errorf("Subscriptions: %q", got)
			}
		})
	}
}

// proxied returns a proxy of the API server, and the path of a kubeconfig of it.
func (p *plane) proxied(t *testing.T) (*faultproxy.Proxy, string) {
	t.Helper()
	proxy, err := faultproxy.Start(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	kubeconfig, err := proxy.Kubeconfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return proxy, kubeconfig
}

// TestEditedAfterAKill: somebody edits the Subscription after its Trigger was made by a
// run that was killed. Fails on the commit before: the Trigger kept the old address, and
// every later run deferred the Subscription.
func TestEditedAfterAKill(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, false, subscription("crm", "orders", "order.created"))
	planned, _ := p.run(t, "plan")
	for _, ch := range planned.Changes {
		p.mesh.Break(standin.TriggerNeverReady, ch.Namespace+"/"+ch.Name)
	}
	u := p.begin(t)
	p.wait(ctx, t, "the Trigger is created", func(m *standin.Mesh) bool { return m.Has(p.triggers(), 1) })
	u.Kill()
	p.patch(ctx, t, standin.KymaSubscriptions, "crm", "orders", `{"spec":{"endpoint":"http://moved.crm:8080/"}}`)
	p.mesh.HealAll()
	r, code := p.run(t, "run")
	want(t, r, code, migration.DeferredResult, 0) // nothing has switched yet
	list, err := p.client.Resource(p.triggers()).Namespace("crm").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if uri, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "subscriber", "uri"); uri != "http://moved.crm:8080/" {
			t.Errorf("Trigger %s sends to %s", list.Items[i].GetName(), uri)
		}
	}
	if len(list.Items) != 1 {
		t.Errorf("%d Triggers", len(list.Items))
	}
}

// TestEditedWithinARun: somebody edits the Subscription while the run that has made its Trigger
// waits. That run leaves the Subscription, and the next one lets the Trigger follow. On f3299ef
// each later run left both, and the events went to the former address.
func TestEditedWithinARun(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true, subscription("crm", "orders", "order.created"))
	planned, _ := p.run(t, "plan")
	for _, ch := range planned.Changes {
		p.mesh.Break(standin.TriggerNeverReady, ch.Namespace+"/"+ch.Name)
	}
	u := p.begin(t)
	p.wait(ctx, t, "the Trigger is created", func(m *standin.Mesh) bool { return m.Has(p.triggers(), 1) })
	p.patch(ctx, t, standin.KymaSubscriptions, "crm", "orders", `{"spec":{"endpoint":"http://moved.crm:8080/"}}`)
	p.mesh.HealAll()
	r, code := u.Report()
	want(t, r, code, migration.DeferredResult, 0)
	finds(t, r, migration.Deferred, "Subscription crm/orders", "its spec was changed meanwhile")

	goes := func(to string) {
		t.Helper()
		list, err := p.client.Resource(p.triggers()).Namespace("crm").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 {
			t.Fatalf("%d Triggers", len(list.Items))
		}
		if uri, _, _ := unstructured.NestedString(list.Items[0].Object, "spec", "subscriber", "uri"); uri != to {
			t.Errorf("Trigger %s sends to %s, not to %s", list.Items[0].GetName(), uri, to)
		}
	}
	r, code = p.run(t, "run")
	want(t, r, code, migration.Succeeded, 0)
	goes("http://moved.crm:8080/")
	if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != 0 {
		t.Errorf("Subscriptions: %q", got)
	}
}

// TestPublisher: all event-services have switched, and somebody posts straight to
// event-publish-service as one of them. Fails on the commit before: the Subscription
// was deleted, and each later event was dropped.
func TestPublisher(t *testing.T) {
	for name, skips := range map[string]bool{"Switched": false, "SkipInstallation": true} {
		t.Run(name, func(t *testing.T) {
			p := on(t, versions[0])
			ctx := t.Context()
			p.load(ctx, t, true, subscription("crm", "orders", "order.created"), subscription("crm", "quiet", "order.paid", from(otherApp)))
			if skips {
				p.skipInstallation(ctx, t)
			}
			p.nats.publish("ordercreat-" + app)
			r, code := p.run(t, "run", "--observe-publishers=2s")
			want(t, r, code, migration.DeferredResult, 0)
			finds(t, r, migration.Deferred, "Subscription crm/orders", "somebody still publishes order.created to event-publish-service as "+app)
			if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, []string{"crm/orders"}) {
				t.Errorf("Subscriptions: %q", got)
			}
			p.nats.set(nil)
			r, code = p.run(t, "run", "--observe-publishers=2s")
			want(t, r, code, migration.Succeeded, 0)
		})
	}
}

// skipInstallation makes the Application one that never had an event-service.
func (p *plane) skipInstallation(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := p.client.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace).Delete(ctx, app+"-event-service", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.patch(ctx, t, standin.Applications, "", app, `{"spec":{"skipInstallation":true},"status":{"installationStatus":{"status":"INSTALLATION_SKIPPED"}}}`)
	t.Cleanup(func() {
		p.patch(context.WithoutCancel(ctx), t, standin.Applications, "", app, `{"spec":{"skipInstallation":null},"status":{"installationStatus":{"status":"DEPLOYED"}}}`)
	})
}

// many are Subscriptions of different kinds of events.
func many(n int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range n {
		all = append(all, subscription("crm", fmt.Sprintf("orders-%02d", i), fmt.Sprintf("%c%c%c.created", 'a'+i/676, 'a'+i/26%26, 'a'+i%26)))
	}
	return all
}

// replicas of the subscription-controller, and the annotation this job keeps.
func (p *plane) replicas(ctx context.Context, t *testing.T) (n int64, kept string) {
	t.Helper()
	d, err := p.client.Resource(standin.Deployments).Namespace(standin.SystemNamespace).Get(ctx, standin.SubscriptionController, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, _, _ = unstructured.NestedInt64(d.Object, "spec", "replicas")
	return n, d.GetAnnotations()["eventmesh-migration.kyma-project.io/trigger-sync-replicas"]
}

func (p *plane) restored(ctx context.Context, t *testing.T) {
	t.Helper()
	if n, kept := p.replicas(ctx, t); n != 1 || kept != "" {
		t.Errorf("the subscription-controller has %d replicas, annotation %q", n, kept)
	}
}

// migrates holds that one run does all that is left to do.
func (p *plane) migrates(ctx context.Context, t *testing.T) {
	t.Helper()
	r, code := p.run(t, "run")
	want(t, r, code, migration.Succeeded, 0)
	p.nothingOfTheBus(ctx, t)
}

func (p *plane) nothingOfTheBus(ctx context.Context, t *testing.T) {
	t.Helper()
	for what, left := range map[string][]string{
		"Subscriptions":                         p.names(ctx, t, standin.KymaSubscriptions, ""),
		"Knative Subscriptions of the old path": p.names(ctx, t, p.links(), standin.SystemNamespace),
		"Channels of the old path":              p.names(ctx, t, p.channels(), standin.SystemNamespace),
	} {
		if len(left) > 0 {
			t.Errorf("%s: %q", what, left)
		}
	}
}

// TestSlowController: the real subscription-controller deletes 1.5 Subscriptions a
// second. On the commit before, a run of many ended at --timeout, recreated all, and
// began at zero the next time.
func TestSlowController(t *testing.T) {
	const n = 60
	faults := standin.ControllerFaults{Requests: 15}
	t.Run("ScaledDown", func(t *testing.T) {
		p := on(t, versions[0])
		ctx := t.Context()
		p.load(ctx, t, true, many(n)...)
		p.mesh.BreakController(faults)
		r, code := p.run(t, "run", "--timeout=35s")
		want(t, r, code, migration.Succeeded, 0)
		finds(t, r, migration.Info, "Deployment kyma-system/event-bus-subscription-controller", "it is scaled to 0 while this job does its part")
		p.nothingOfTheBus(ctx, t)
		p.restored(ctx, t)
		p.mesh.BreakController(standin.ControllerFaults{})
		r, code = p.run(t, "undo")
		want(t, r, code, migration.PartlyRestored, 3) // Triggers carry live events
		if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != n {
			t.Errorf("%d Subscriptions after undo", len(got))
		}
		p.restored(ctx, t)
		p.wait(ctx, t, "the Event Bus delivers to all", standin.SubscriptionsReady)
	})
	t.Run("Refused", func(t *testing.T) {
		p := on(t, versions[0])
		ctx := t.Context()
		p.load(ctx, t, true, many(n)...)
		label := func(value string) {
			p.patch(context.WithoutCancel(ctx), t, standin.Deployments, standin.SystemNamespace, standin.SubscriptionController,
				`{"metadata":{"labels":{"eventmesh-migration.kyma-project.io/skip":`+value+`}}}`)
		}
		label(`"true"`)
		t.Cleanup(func() { label("null") })
		p.mesh.BreakController(faults)
		r, code := p.run(t, "run", "--timeout=20s")
		if code != 124 {
			t.Fatalf("got result %s, exit code %d: %s", r.Result, code, r.Message)
		}
		finds(t, r, migration.Warning, "Deployment kyma-system/event-bus-subscription-controller", "so it is not scaled to 0")
		left := len(p.names(ctx, t, standin.KymaSubscriptions, ""))
		if left == 0 || left > n-10 {
			t.Errorf("%d of %d Subscriptions are left", left, n)
		}
		p.mesh.BreakController(standin.ControllerFaults{Requests: 100})
		r, code = p.run(t, "run", "--timeout=1m")
		want(t, r, code, migration.Succeeded, 0)
		p.nothingOfTheBus(ctx, t)
		p.mesh.BreakController(standin.ControllerFaults{})
		r, code = p.run(t, "undo")
		want(t, r, code, migration.PartlyRestored, 3) // Triggers carry live events
		if got := p.names(ctx, t, standin.KymaSubscriptions, ""); len(got) != n {
			t.Errorf("%d Subscriptions after one undo", len(got))
		}
	})
}

// TestStuckOnAFinalizer: the controller crashes in the middle of a deletion. Once it
// runs again, the command that the report prints finishes the rollback, and the
// migration.
func TestStuckOnAFinalizer(t *testing.T) {
	p := on(t, versions[0])
	ctx := t.Context()
	p.load(ctx, t, true, subscription("crm", "orders", "order.created"), subscription("crm", "stuck", "order.paid"))
	p.mesh.Break(standin.NeverFinalized, "crm/stuck")
	r, code := p.run(t, "run", "--delete-timeout=2s", "--rollback-timeout=5s")
	want(t, r, code, migration.PartlyRestored, 3)
	finds(t, r, migration.Error, "Subscription crm/stuck", "subscription.finalizers.kyma-project.io")
	p.mesh.HealAll()
	r, code = p.run(t, "run")
	want(t, r, code, migration.PartlyRestored, 3) // of the rollback: Triggers carry live events
	p.nothingOfTheBus(ctx, t)
	r, code = p.run(t, "run")
	want(t, r, code, migration.NothingToDo, 0)
}
