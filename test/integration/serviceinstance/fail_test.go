//go:build slow || soak

package serviceinstance

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// limits are short: what they bound does not come true.
var limits = []string{"--ready-timeout=3s", "--activation-timeout=3s", "--delete-timeout=10s", "--rollback-timeout=12s"}

// TestNotInTime holds what becomes of a recreation that something keeps from
// ending: it fails in time, says what it waited for, and nothing is lost; when the
// cause is mended, everything is there again.
func TestNotInTime(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		fault        standin.BrokerFault
		code         int
		problem      string
	}{
		{"Instance", "an instance is not provisioned in time", standin.HangProvision, migration.ExitPartlyRestored, "to be provisioned: "},
		{
			"Unknown", "application-broker does not know the Application, and keeps the operation", standin.UnknownService,
			migration.ExitPartlyRestored, "did not know its Application",
		},
		{"Binding", "a binding is refused", standin.FailBind, migration.ExitPartlyRestored, "ServiceBinding shop/till to be ready"},
		{
			"Link", "there is an EventActivation, and no Knative Subscription: what was there is back, so it is rolled back",
			standin.SkipLink, migration.ExitFailed, "no Knative Subscription in kyma-integration brings them",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := on(t)
			w.instance("orders", "orders")
			w.bind("till", "orders")
			before := w.census()
			w.broker.Break(tc.fault, ns+"/"+orders)
			report, code := w.run("run", append(limits, "--strategy=always")...)
			if code != tc.code {
				t.Errorf("%s: exit code %d, %s: %s, want %d", tc.reason, code, report.Result, report.Message, tc.code)
			}
			if !slices.ContainsFunc(report.Findings, func(f migration.Finding) bool { return strings.Contains(f.Problem, tc.problem) }) &&
				!strings.Contains(report.Message, tc.problem) {
				t.Errorf("%s: it does not say what it waited for: %s\n%v", tc.reason, report.Message, report.Findings)
			}
			w.broker.HealAll()
			w.finish(before, tc.reason, 2)
			w.isOnTheMesh("orders", orders)
		})
	}
}

// unknown runs the job until application-broker was to provision the instance orders
// again, and did not know its Application.
func (w *world) unknown() *suite.Process {
	w.t.Helper()
	w.broker.Break(standin.UnknownService, ns+"/"+orders)
	p := w.begin(w.Kubeconfig, "run", append(limits, "--output=json", "--strategy=always", "--ready-timeout=5s", "--activation-timeout=5s", "--rollback-timeout=1m")...)
	w.until(standin.ServiceInstances, ns, "orders", "refused", func(u *unstructured.Unstructured) bool {
		return u != nil && reason(u, "Ready") == "DeprovisionCallFailed"
	})
	return p
}

// TestUnknownForATime: application-broker knows the Application again before the run
// ends. The rollback of that run creates the instance again.
func TestUnknownForATime(t *testing.T) {
	w := on(t)
	w.two()
	before := w.census()
	p := w.unknown()
	w.broker.HealAll()
	if report, code := p.Report(); code != migration.ExitFailed {
		t.Errorf("exit code %d, %s: %s\n%v", code, report.Result, report.Message, report.Findings)
	}
	w.finish(before, "known again", 1)
	w.isOnTheMesh("orders", orders)
}

// TestUnknownAndRestarted: somebody restarts application-broker by hand, as the report
// says. It remembers the instance then, and would refuse each that comes in its place.
func TestUnknownAndRestarted(t *testing.T) {
	w := on(t)
	w.two()
	before := w.census()
	report, code := w.unknown().Report()
	if code != migration.ExitPartlyRestored {
		t.Errorf("exit code %d, %s: %s\n%v", code, report.Result, report.Message, report.Findings)
	}
	const command = "kubectl -n kyma-integration rollout restart deployment application-broker"
	if !slices.ContainsFunc(report.Findings, func(f migration.Finding) bool {
		return f.Object == "ServiceInstance shop/orders" && f.Command == command
	}) {
		t.Errorf("the report does not say %q: %v", command, report.Findings)
	}
	w.broker.HealAll()
	w.check(w.broker.Restart(w.ctx))
	w.finish(before, "restarted", 1)
	w.isOnTheMesh("orders", orders)
}

// TestUnknownWhileBusy: application-broker is not restarted while it provisions for
// somebody else, who would have to wait for seven days then.
func TestUnknownWhileBusy(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	before := w.census()
	p := w.unknown()
	w.broker.Break(standin.HangProvision, ns+"/"+stock)
	w.create(standin.ServiceInstances, standin.ServiceInstance(ns, "stock", "stock"))
	w.until(standin.ServiceInstances, ns, "stock", "being provisioned", func(u *unstructured.Unstructured) bool {
		return u != nil && reason(u, "Ready") == "Provisioning"
	})
	if report, code := p.Report(); code != migration.ExitPartlyRestored {
		t.Errorf("exit code %d, %s: %s\n%v", code, report.Result, report.Message, report.Findings)
	}
	w.broker.HealAll()
	w.untilReady(standin.ServiceInstances, "stock")
	before["ServiceInstance stock"] = w.census()["ServiceInstance stock"]
	w.finish(before, "no longer busy", 1)
	w.isOnTheMesh("orders", orders)
}

// TestFinishedStays: a recreation that has ended stays when a later one fails.
func TestFinishedStays(t *testing.T) {
	w := on(t)
	w.two()
	before, uids := w.census(), w.uids(standin.ServiceInstances)
	w.broker.Break(standin.FailProvision, ns+"/"+stock)
	report, code := w.run("run", "--strategy=always")
	if code != migration.ExitPartlyRestored {
		t.Errorf("exit code %d, %s: %s", code, report.Result, report.Message)
	}
	after := w.uids(standin.ServiceInstances)
	if after["orders"] == uids["orders"] {
		t.Error("orders was not recreated before stock failed: this test proves nothing")
	}
	kept := 0
	for _, ch := range report.Changes {
		if ch.Result == migration.ChangeProtected {
			kept++
		}
	}
	if kept == 0 {
		t.Errorf("the report does not say that a finished recreation stays: %v", report.Changes)
	}
	w.broker.HealAll()
	w.finish(before, "healed", 2)
	if diff := cmp.Diff(after["orders"], w.uids(standin.ServiceInstances)["orders"]); diff != "" {
		t.Errorf("what was finished was recreated once more (-before +after):\n%s", diff)
	}
	if report, code := w.run("undo"); code != migration.ExitOK || w.uids(standin.ServiceInstances)["orders"] != after["orders"] {
		t.Errorf("undo: exit code %d, %s: %s", code, report.Result, report.Message)
	}
}
