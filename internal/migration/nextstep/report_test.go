package nextstep

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
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

var prod = present.Caller{Program: "eventmesh-migrate", Explains: true, Cluster: []present.Flag{{Name: "context", Value: "prod"}}}

func change(verb migration.Verb, kind, namespace, name, result string) migration.ChangeReport {
	groups := map[string]string{"HTTPSource": "sources.kyma-project.io/v1alpha1", "Trigger": "eventing.knative.dev/v1", "Broker": "eventing.knative.dev/v1", "Namespace": "v1"}
	return migration.ChangeReport{Verb: verb, Kind: kind, APIVersion: groups[kind], Namespace: namespace, Name: name, Result: result}
}

// clusterOf is a plan of so many Applications, with so many Subscriptions for each of them.
func clusterOf(applications, subscriptions int) present.Report {
	sources := present.Job{Name: "httpsource-sync", Result: migration.Planned}
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
	triggers := present.Job{Name: "trigger-sync", Result: migration.Planned, Phase: "pre"}
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
	return present.Report{
		Title: "Plan for https://10.0.0.1 (context prod): " + present.Changes([]present.Job{sources, triggers, again}).String(),
		Jobs: []present.Job{
			{Name: "adopt-by-helm", Result: "not-needed"}, sources, {Name: "serviceinstance-recreate", Result: "not-needed"}, triggers,
			{Name: "grow-pvc", Result: "not-needed"}, again, {Name: "eventbus-purge", Result: "not-needed"},
		},
	}
}

func stateOf(command string, r present.Report, code int) State {
	s := State{Caller: prod, Command: command, ExitCode: code, Changes: present.Changes(r.Jobs).Writes}
	for i := range r.Jobs {
		s.Findings = append(s.Findings, present.Of(r.Jobs[i].Findings)...)
	}
	return s
}

func options(s State) present.Options {
	return present.Options{Full: "add -o wide or -o json", Caller: s.Caller, Next: After(s)}
}

// TestPlanFitsTheScreen: what fills a plan is the number of kinds, not that of objects.
func TestPlanFitsTheScreen(t *testing.T) {
	for _, tc := range []struct {
		name                        string
		applications, subscriptions int
		lines                       int
	}{{"plan-sample", 8, 3, 30}, {"plan-large", 327, 6, 40}} {
		r := clusterOf(tc.applications, tc.subscriptions)
		got := present.Text(r, options(stateOf("plan", r, 0)))
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

// TestCauseIsToldOnce: a change, a finding and a job tell one cause; a person reads it once.
func TestCauseIsToldOnce(t *testing.T) {
	cause := "was not ready within 2m0s: Service inventory: Revision failed"
	failed := change(migration.Create, "HTTPSource", "kyma-integration", "inventory", migration.ChangeFailed)
	failed.Message = cause
	job := present.Job{Name: "httpsource-sync", Result: migration.RolledBack, Message: "rolled back: HTTPSource kyma-integration/inventory " + cause, Failed: true,
		Changes: []migration.ChangeReport{failed, change(migration.Create, "HTTPSource", "kyma-integration", "crm", migration.ChangeRolledBack)},
		Findings: []migration.Finding{{Severity: migration.Error, Object: "HTTPSource kyma-integration/inventory", Problem: cause,
			Command: "kubectl -n kyma-integration describe service.serving.knative.dev inventory", Note: "If the old revision hangs, delete the Service."}},
	}
	r := present.Report{Title: "Run on https://10.0.0.1 (context prod): 1 rolled-back", Jobs: []present.Job{job}, Last: []string{"Exit code 1: failed, and rolled back."}}
	s := stateOf("run", r, 1)
	s.Unready = &failed
	got := present.Text(r, options(s))
	if n := strings.Count(strings.Join(strings.Fields(got), " "), "Revision failed"); n != 1 {
		t.Errorf("the cause is told %d times", n)
	}
	golden(t, "run-failed", got)
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
