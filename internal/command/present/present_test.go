package present

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var prod = Caller{Program: "hat-tool", Cluster: []Flag{{Name: "context", Value: "prod"}}}

// TestErrorsStay: however many warnings there are, and however few lines, each error ID is told.
func TestErrorsStay(t *testing.T) {
	for _, errors := range []int{3, 9, 30, 60} {
		var all []Finding
		for i := range 50 {
			all = append(all, Finding{Severity: migration.Warning, ID: fmt.Sprintf("warning-%02d", i), Object: "Trigger shop/a", Problem: "is odd", Note: "Nothing to do."})
		}
		for i := range errors {
			for k := range 100 {
				all = append(all, Finding{
					Severity: migration.Error, ID: fmt.Sprintf("error-%02d", i), Object: fmt.Sprintf("Trigger shop/t-%d", k), Problem: "is not ready",
					Command: fmt.Sprintf("kubectl -n shop describe trigger t-%d", k), Note: "Check its Broker.",
				})
			}
		}
		got := Findings([]string{"1 thing."}, all, Options{Full: "add -o wide", Caller: prod, Next: []Step{{"Fix the errors above. Then:", "hat-tool verify"}}})
		if lines := strings.Count(got, "\n"); lines > DefaultLines {
			t.Errorf("%d errors: %d lines\n%s", errors, lines, got)
		}
		for i := range errors {
			if id := fmt.Sprintf("error-%02d", i); !strings.Contains(got, id) {
				t.Errorf("%d errors: %s is not told\n%s", errors, id, got)
			}
		}
		if !strings.Contains(got, "Warnings (50") || !strings.HasSuffix(got, "\n  hat-tool verify\n") {
			t.Errorf("%d errors: the count of warnings or the next command is missing\n%s", errors, got)
		}
	}
}

// TestUnready: the object is told by the finding, since the run may have rolled its change back.
// What every object would meet has no object that could be left out.
func TestUnready(t *testing.T) {
	for _, tc := range []struct {
		reason, id, object string
		severity           migration.Severity
		want               bool
	}{
		{"not ready in time", "not-ready", "Hat wardrobe/new", migration.Error, true},
		{"only deferred", "not-ready", "Hat wardrobe/new", migration.Deferred, false},
		{"another object", "not-ready", "Hat wardrobe/old", migration.Error, false},
		{"a webhook is down", "webhook-down", "Hat wardrobe/new", migration.Error, false},
	} {
		got := Unready(&migration.Report{
			Changes:  []migration.ChangeReport{{Verb: migration.Create, Kind: "Hat", Namespace: "wardrobe", Name: "new", Result: migration.ChangeRolledBack}},
			Findings: []migration.Finding{{ID: tc.id, Severity: tc.severity, Object: tc.object}},
		})
		if (got != nil) != tc.want {
			t.Errorf("%s: %v, want one: %t", tc.reason, got, tc.want)
		}
	}
}

func TestKind(t *testing.T) {
	for _, tc := range []struct{ reason, object, a, b string }{
		{"namespaced names", "", "Trigger shop/orders is not ready", "Trigger crm/leads is not ready"},
		{"the object's own name", "Application crm", "its release crm has failed", "its release … has failed"},
		{"names after a kind", "", "waits for events of Application crm, but nothing brings them", "waits for events of Application shop, but nothing brings them"},
		{"numbers", "", "has 3 replicas", "has 12 replicas"},
		{"limits", "", "was not ready within 2m0s", "was not ready within 30s"},
		{"quoted words", "", `its source "crm" is no Application`, `its source "shop" is no Application`},
	} {
		if got, want := Kind(tc.a, tc.object), Kind(tc.b, ""); got != want {
			t.Errorf("%s: %q and %q", tc.reason, got, want)
		}
	}
	for _, tc := range []struct{ reason, a, b string }{
		{"another problem", "Trigger shop/orders is not ready", "Trigger shop/orders does not exist"},
		{"a verb after a kind is no name", "the Broker is missing", "the Broker has failed"},
	} {
		if Kind(tc.a, "") == Kind(tc.b, "") {
			t.Errorf("%s: %q is told as %q", tc.reason, tc.a, tc.b)
		}
	}
}

func TestFlagsAreRepeated(t *testing.T) {
	c := Caller{Program: "kubectl hat-tool", Name: "hat-tool", Cluster: []Flag{{Name: "context", Value: "my prod"}, {Name: "state-namespace", Value: "state"}}, Work: []Flag{{Name: "hats.on-conflict", Value: "create"}}}
	for _, tc := range []struct{ reason, got, want string }{
		{"settings of jobs are for work", c.WorkLine("run"), "kubectl hat-tool run --hats.on-conflict=create '--context=my prod' --state-namespace=state"},
		{"and not for verify", c.Line("verify"), "kubectl hat-tool verify '--context=my prod' --state-namespace=state"},
		{"kubectl knows the context only", c.Complete("kubectl -n shop get pods"), "kubectl -n shop get pods '--context=my prod'"},
		{"a finding knows the program only", c.Complete("hat-tool verify"), "kubectl hat-tool verify '--context=my prod' --state-namespace=state"},
		{"a pipe cannot be completed", c.Complete("helm list"), "helm list"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, tc.got, tc.want)
		}
	}
}
