//go:build slow || soak

package serviceinstance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// two are an instance with a binding and a usage, with an owner and a finalizer of
// somebody else, and one without.
func (w *world) two() {
	w.t.Helper()
	owner := w.get(standin.Namespaces, "", ns)
	w.instance("orders", "orders", func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"team": "till"})
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns, UID: owner.GetUID()}})
	})
	w.patch(standin.ServiceInstances, ns, "orders", `{"metadata":{"finalizers":["kubernetes-incubator/service-catalog","example.com/audit"]}}`)
	w.instance("stock", "stock")
	w.bind("till", "orders")
}

// killedAt runs the job, kills it at its n-th write, and says where that was;
// false if it made fewer.
func (w *world) killedAt(n int, when faultproxy.When, args ...string) (at string, killed bool) {
	w.t.Helper()
	proxy, kubeconfig := w.proxied()
	defer proxy.Close()
	running := make(chan *suite.Process, 1)
	kill := proxy.KillAt(n, when, func() { (<-running).Kill() })
	p := w.begin(kubeconfig, "run", append([]string{"--output=json"}, args...)...)
	running <- p
	<-p.Exited()
	if _, killed := kill.At(); !killed && p.Wait() < 0 {
		<-kill.Dead()
	}
	request, killed := kill.At()
	return fmt.Sprintf("%s write %d, %s", when, n, request), killed
}

// killedAfter runs the job, and kills it some time after its n-th write was
// answered: while it waits for what that has brought about.
func (w *world) killedAfter(n int32, later time.Duration, args ...string) (at string, killed bool) {
	w.t.Helper()
	proxy, kubeconfig := w.proxied()
	defer proxy.Close()
	due := make(chan string, 1)
	var writes atomic.Int32
	proxy.Use(func(_ context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
		response, err := next()
		if r.Writes() && !r.Renews && writes.Add(1) == n {
			due <- r.String()
		}
		return response, err
	})
	p := w.begin(kubeconfig, "run", append([]string{"--output=json"}, args...)...)
	select {
	case <-p.Exited():
		return "", false
	case at = <-due:
	}
	select {
	case <-p.Exited():
		return "", false
	case <-time.After(later):
		p.Kill()
		return fmt.Sprintf("%s after write %d, %s", later, n, at), true
	}
}

// finish runs the job until it has nothing left to do, and holds that all is there
// that was there before.
func (w *world) finish(before map[string]any, what string, runs int) {
	w.t.Helper()
	for i := 1; ; i++ {
		report, code := w.run("run")
		if code == migration.ExitOK && report.Result != migration.DeferredResult {
			break
		}
		if i == runs {
			w.t.Fatalf("%s: run %d after it: exit code %d, %s: %s\n%v", what, i, code, report.Result, report.Message, report.Findings)
		}
	}
	if diff := cmp.Diff(before, w.census()); diff != "" {
		w.t.Fatalf("%s: lost or changed (-before +after):\n%s", what, diff)
	}
	for _, secret := range w.list(standin.Secrets, kyma.StateNamespace, "eventmesh-migration.kyma-project.io/phase in (forward,rollback,undo)") {
		w.t.Fatalf("%s: journal %s is still open", what, secret.GetName())
	}
}

// TestKill kills runs at some of their writes, before and after, and holds that the
// next run brings back everything that was there. make soak does so at every write
// and in every wait.
func TestKill(t *testing.T) {
	w := on(t)
	w.two()
	before := w.census()
	for n, round := 4, 0; ; n, round = n+4, round+1 {
		at, killed := w.killedAt(n, faultproxy.When(round%2), "--strategy=always")
		if !killed {
			if n < 12 {
				t.Fatalf("it made fewer than %d writes", n)
			}
			return
		}
		t.Log("killed ", at)
		w.finish(before, "killed "+at, 1)
	}
}

// TestRollback holds that a recreation which fails is not left half done: it is
// brought to its end, and if that cannot be, the journal keeps everything, the
// exit code is 3, and the report says how to go on.
func TestRollback(t *testing.T) {
	w := on(t)
	w.two()
	before := w.census()
	w.broker.Break(standin.FailProvision, ns+"/"+orders)
	report, code := w.run("run", "--strategy=always")
	if code != migration.ExitPartlyRestored {
		t.Fatalf("exit code %d, %s: %s", code, report.Result, report.Message)
	}
	var next []string
	for _, f := range report.Findings {
		flags, ok := strings.CutPrefix(f.Command, "eventmesh-migrate undo serviceinstance-recreate ")
		if f.Object == "ServiceInstance shop/orders" && ok {
			// The binary of the job has its own flags without the prefix.
			next = strings.Fields("undo " + strings.ReplaceAll(flags, "--serviceinstance-recreate.", "--"))
		}
	}
	if len(next) == 0 || next[0] != "undo" {
		t.Fatalf("the report does not say what to do next: %v", report.Findings)
	}
	w.broker.HealAll()
	// That command.
	if report, code := w.run(next[0], next[1:]...); code != migration.ExitOK {
		t.Fatalf("%v: exit code %d, %s: %s\n%v", next, code, report.Result, report.Message, report.Findings)
	}
	w.finish(before, "healed", 1)
	w.isOnTheMesh("orders", orders)
}

// TestLostOperation: application-broker is restarted in the midst of a provisioning
// and forgets it. Service Catalog would ask for the outcome for seven days, and
// not even delete the instance meanwhile.
func TestLostOperation(t *testing.T) {
	w := on(t)
	w.two()
	before := w.census()
	w.broker.Break(standin.HangProvision, ns+"/"+orders)
	p := w.begin(w.Kubeconfig, "run", "--output=json", "--strategy=always")
	w.until(standin.ServiceInstances, ns, "orders", "being provisioned", func(u *unstructured.Unstructured) bool {
		return u != nil && u.GetDeletionTimestamp() == nil && text(u, "status", "currentOperation") == "Provision" && text(u, "status", "lastOperation") != ""
	})
	w.broker.HealAll()
	w.check(w.broker.Restart(w.ctx))
	if report, code := p.Report(); code != migration.ExitFailed && code != migration.ExitOK {
		t.Fatalf("exit code %d, %s: %s\n%v", code, report.Result, report.Message, report.Findings)
	}
	w.finish(before, "its operation was lost", 1)
}

// TestStalledDeletion: without the cascade, a binding that is made in the last
// moment keeps an instance from going, and its own deletion does not set that
// going again.
func TestStalledDeletion(t *testing.T) {
	w := on(t)
	w.check(w.catalog.SetCascadingDeletion(w.ctx, false))
	w.instance("orders", "orders")
	before := w.census()
	proxy, kubeconfig := w.proxied()
	hold := proxy.Hold(func(r faultproxy.Request) bool { return r.Is("serviceinstances", "delete") })
	p := w.begin(kubeconfig, "run", "--output=json", "--strategy=always")
	select {
	case <-hold.Arrived():
	case <-p.Exited():
		t.Fatal("it ended before it deleted anything")
	}
	w.create(standin.ServiceBindings, standin.ServiceBinding(ns, "late", "orders"))
	w.untilReady(standin.ServiceBindings, "late")
	hold.Release()
	w.until(standin.ServiceInstances, ns, "orders", "blocked", func(u *unstructured.Unstructured) bool {
		return u != nil && reason(u, "Ready") == "DeprovisionBlockedByExistingCredentials"
	})
	w.delete(standin.ServiceBindings, ns, "late")
	if report, code := p.Report(); code != migration.ExitOK {
		t.Fatalf("exit code %d, %s: %s\n%v", code, report.Result, report.Message, report.Findings)
	}
	w.finish(before, "its deletion stalled", 1)
	touched := false
	for _, e := range proxy.Log() {
		touched = touched || e.Is("serviceinstances", "patch")
	}
	if !touched {
		t.Error("it went without being touched: this test proves nothing")
	}
}

func reason(u *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == kind {
			reason, _ := c["reason"].(string)
			return reason
		}
	}
	return ""
}
