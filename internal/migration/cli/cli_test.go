package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/command/commandtest"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/version"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var update = flag.Bool("update", false, "write the help that the test got into testdata")

func call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(commandtest.New(), IO{Args: args, Env: func(string) string { return "" }, Stdout: &out, Stderr: &err})
	return code, out.String(), err.String()
}

// TestHelp: people and pages quote the help of the jobs, so that no word of it changes by chance.
func TestHelp(t *testing.T) {
	code, stdout, _ := call("--help")
	path := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.WriteFile(path, []byte(stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), stdout); diff != "" || code != 0 {
		t.Errorf("exit code %d (-want +got):\n%s", code, diff)
	}
	if code, stdout, _ := call("version"); code != 0 || !strings.HasPrefix(stdout, "test-job "+version.String()+" (") {
		t.Errorf("exit code %d, version %q", code, stdout)
	}
}

// TestCommandOfTheCharts: the first hook of the charts has a command that no other program has.
func TestCommandOfTheCharts(t *testing.T) {
	const want = "test-job: no cluster is given: this is not a Pod, and neither KUBECONFIG nor HOME is set"
	if code, _, stderr := call("create-state-namespace"); code != migration.ExitUsage || !strings.HasPrefix(stderr, want) {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

// TestTellsOurNames: what a report says in the end leads to the program for people.
func TestTellsOurNames(t *testing.T) {
	caller := Caller("kubectl eventmesh-migrate")
	for _, tc := range []struct {
		reason string
		report migration.Report
		want   []string
	}{
		{"a run that has ended well", migration.Report{Result: migration.NothingToDo}, []string{"Next: Check the result:\n  kubectl eventmesh-migrate verify\n"}},
		{
			"a run that has failed",
			migration.Report{Result: migration.RolledBack, Findings: []migration.Finding{{ID: "not-ready", Severity: migration.Error, Object: "Hat a/b", Problem: "is too large", Command: "eventmesh-migrate verify"}}},
			[]string{
				"    kubectl eventmesh-migrate verify\n", "About an ID: kubectl eventmesh-migrate explain not-ready\n",
				"What to do: eventmesh-migrate explain exit-1\nNext: Fix the error above, not-ready (Hat a/b). Then run again:\n  kubectl eventmesh-migrate run --job=trigger-sync\n",
			},
		},
		{"work is deferred", migration.Report{Result: migration.DeferredResult}, []string{"What to do: eventmesh-migrate explain deferred\n"}},
	} {
		tc.report.Job, tc.report.Command = "trigger-sync", "run"
		text := Program().Text(&tc.report, "prod", present.Options{Caller: caller, Next: Program().Next(&tc.report, caller)})
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in:\n%s", tc.reason, want, text)
			}
		}
	}
}
