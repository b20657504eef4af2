package present

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

var prod = Caller{Program: "eventmesh-migrate", Cluster: []Flag{{Name: "context", Value: "prod"}}}

func change(verb migration.Verb, kind, namespace, name, result string) migration.ChangeReport {
	groups := map[string]string{"HTTPSource": "sources.kyma-project.io/v1alpha1", "Trigger": "eventing.knative.dev/v1", "Broker": "eventing.knative.dev/v1", "Namespace": "v1"}
	return migration.ChangeReport{Verb: verb, Kind: kind, APIVersion: groups[kind], Namespace: namespace, Name: name, Result: result}
}

// clusterOf is a plan of so many Applications, with so many Subscriptions for each of them.
func clusterOf(applications, subscriptions int) Report {
	sources := Job{Name: "httpsource-sync", Result: migration.Planned}
	for i := range applications {
		name := fmt.Sprintf("app-%03d", i)
		if i%13 == 0 {
			sources.Changes = append(sources.Changes, change(migration.Create, "HTTPSource", "kyma-integration", name, ""))
			continue
		}
		sources.Findings = append(sources.Findings, migration.Finding{
			Severity: migration.Warning, Object: "HTTPSource kyma-integration/" + name,
			Problem: "not created: application-operator creates it during the upgrade, since its Helm 2 release " + name + "-release lacks HTTPSource kyma-integration/" + name,
			Note:    "Events that are sent before it is ready may be refused. Check the result after the upgrade.",
			Command: "eventmesh-migrate verify",
		})
	}
	triggers := Job{Name: "trigger-sync", Result: migration.Planned, Phase: "pre"}
	for i := range applications {
		namespace := fmt.Sprintf("team-%03d", i/3)
		if i%3 == 0 {
			triggers.Changes = append(triggers.Changes, change(migration.Patch, "Namespace", "", namespace, ""))
		}
		for k := range subscriptions {
			name := fmt.Sprintf("order-%03d-%d", i, k)
			triggers.Changes = append(triggers.Changes,
				change(migration.Await, "Broker", namespace, "default", ""), change(migration.Create, "Trigger", namespace, name, ""))
			triggers.Findings = append(triggers.Findings, migration.Finding{
				Severity: migration.Deferred, Object: "Subscription " + namespace + "/" + name,
				Problem: fmt.Sprintf("not deleted yet: event-service app-%03d still uses the Event Bus (no --eventMeshURL)", i),
				ID:      "event-service-uses-bus",
				Note:    "Upgrade application-connector, then run again.",
			})
		}
	}
	again := triggers
	again.Phase = "post"
	return Report{
		Title: "Plan for https://10.0.0.1 (context prod): " + Changes([]Job{sources, triggers, again}).String(),
		Jobs: []Job{
			{Name: "adopt-by-helm", Result: "not-needed"}, sources, {Name: "serviceinstance-recreate", Result: "not-needed"}, triggers,
			{Name: "grow-pvc", Result: "not-needed"}, again, {Name: "eventbus-purge", Result: "not-needed"},
		},
	}
}

func stateOf(command string, r Report, code int) State {
	s := State{Caller: prod, Command: command, ExitCode: code, Changes: Changes(r.Jobs).Writes}
	for i := range r.Jobs {
		s.Findings = append(s.Findings, Of(r.Jobs[i].Findings)...)
	}
	return s
}

func options(s State) Options {
	return Options{Full: "add -o wide or -o json", Caller: s.Caller, Next: Next(s)}
}

// TestPlanFitsTheScreen: what fills a plan is the number of kinds, not that of objects.
func TestPlanFitsTheScreen(t *testing.T) {
	for _, tc := range []struct {
		name                        string
		applications, subscriptions int
		lines                       int
	}{{"plan-sample", 8, 3, 30}, {"plan-large", 327, 6, 40}} {
		r := clusterOf(tc.applications, tc.subscriptions)
		got := Text(r, options(stateOf("plan", r, 0)))
		if lines := strings.Count(got, "\n"); lines > tc.lines {
			t.Errorf("%s: %d lines, want at most %d", tc.name, lines, tc.lines)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > frame.DefaultWidth && !strings.Contains(line, "eventmesh-migrate ") {
				t.Errorf("%s: a line of %d columns: %s", tc.name, n, line)
			}
		}
		golden(t, tc.name, got)
	}
}

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
		got := Findings([]string{"1 thing."}, all, Options{Full: "add -o wide", Caller: prod, Next: []Step{{"Fix the errors above. Then:", "eventmesh-migrate verify"}}})
		if lines := strings.Count(got, "\n"); lines > DefaultLines {
			t.Errorf("%d errors: %d lines\n%s", errors, lines, got)
		}
		for i := range errors {
			if id := fmt.Sprintf("error-%02d", i); !strings.Contains(got, id) {
				t.Errorf("%d errors: %s is not told\n%s", errors, id, got)
			}
		}
		if !strings.Contains(got, "Warnings (50") || !strings.HasSuffix(got, "\n  eventmesh-migrate verify\n") {
			t.Errorf("%d errors: the count of warnings or the next command is missing\n%s", errors, got)
		}
	}
}

// TestCauseIsToldOnce: a change, a finding and a job tell one cause; a person reads it once.
func TestCauseIsToldOnce(t *testing.T) {
	cause := "was not ready within 2m0s: Service inventory: Revision failed"
	failed := change(migration.Create, "HTTPSource", "kyma-integration", "inventory", migration.ChangeFailed)
	failed.Message = cause
	job := Job{Name: "httpsource-sync", Result: migration.RolledBack, Message: "rolled back: HTTPSource kyma-integration/inventory " + cause, Failed: true,
		Changes: []migration.ChangeReport{failed, change(migration.Create, "HTTPSource", "kyma-integration", "crm", migration.ChangeRolledBack)},
		Findings: []migration.Finding{{Severity: migration.Error, Object: "HTTPSource kyma-integration/inventory", Problem: cause,
			Command: "kubectl -n kyma-integration describe service.serving.knative.dev inventory", Note: "If the old revision hangs, delete the Service."}},
	}
	r := Report{Title: "Run on https://10.0.0.1 (context prod): 1 rolled-back", Jobs: []Job{job}, Last: []string{"Exit code 1: failed, and rolled back."}}
	s := stateOf("run", r, 1)
	s.Unready = &failed
	got := Text(r, options(s))
	if n := strings.Count(strings.Join(strings.Fields(got), " "), "Revision failed"); n != 1 {
		t.Errorf("the cause is told %d times", n)
	}
	golden(t, "run-failed", got)
}

// TestUnready: the object is told by the finding, since the run may have rolled its change back.
// What every object would meet has no object that could be left out.
func TestUnready(t *testing.T) {
	for _, tc := range []struct {
		reason, id, object string
		severity           migration.Severity
		want               bool
	}{
		{"not ready in time", "not-ready", "HTTPSource kyma-integration/crm", migration.Error, true},
		{"only deferred", "not-ready", "HTTPSource kyma-integration/crm", migration.Deferred, false},
		{"another object", "not-ready", "HTTPSource kyma-integration/shop", migration.Error, false},
		{"a webhook is down", "webhook-down", "HTTPSource kyma-integration/crm", migration.Error, false},
	} {
		got := Unready(&migration.Report{
			Changes:  []migration.ChangeReport{change(migration.Create, "HTTPSource", "kyma-integration", "crm", migration.ChangeRolledBack)},
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

// TestDocsShowWhatIsPrinted: the example of the documentation is the output of these tests.
func TestDocsShowWhatIsPrinted(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/migration/eventmesh-migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join("testdata", "plan-sample.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docs), "```text\n"+string(example)+"```") {
		t.Errorf("docs/migration/eventmesh-migrate.md does not show plan-sample.golden:\n%s", example)
	}
}
