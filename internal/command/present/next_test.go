package present

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestNext(t *testing.T) {
	caller := Caller{Program: "hats", OneJob: true, Cluster: []Flag{{Name: "size", Value: "58"}, {Name: "context", Value: "prod"}}}
	later := []Finding{{Severity: migration.Deferred, Problem: "it is being worn"}}
	bad := []Finding{{Severity: migration.Error, ID: "not-ready", Problem: "is too large"}}
	protected := []Finding{{Severity: migration.Warning, ID: "protected"}}
	for _, tc := range []struct {
		reason string
		state  State
		want   []Step
	}{
		{"a plan with changes", State{Command: "plan", Changes: 3}, One("Make these changes:", "hats run --size=58 --context=prod")},
		{"a plan with an error", State{Command: "plan", Changes: 3, Findings: bad}, One("Fix the error above, not-ready. Then plan again:", "hats plan --size=58 --context=prod")},
		{"a plan that failed", State{Command: "plan", ExitCode: migration.ExitRefused}, One("Fix the errors above. Then plan again:", "hats plan --size=58 --context=prod")},
		{"a plan that must wait", State{Command: "plan", Findings: later}, One("Follow the advice to the deferred work above, it is being worn. Then plan again:", "hats plan --size=58 --context=prod")},
		{"nothing is left to plan, and the title says so", State{Command: "plan"}, nil},

		{"a run", State{Command: "run"}, One("See whether anything is left to change:", "hats plan --size=58 --context=prod")},
		{"a run of some jobs", State{Command: "run", ExitCode: 1, Findings: bad, Selection: []string{"--job=caps"}}, One("Fix the error above, not-ready. Then run again:", "hats run --job=caps --size=58 --context=prod")},
		{"a signal", State{Command: "run", ExitCode: 130}, One("The run was interrupted. Continue it:", "hats run --size=58 --context=prod")},
		{"no time is left", State{Command: "run", ExitCode: migration.ExitTimedOut}, One("The time limit of 15m was reached. Continue with a longer one:", "hats run --timeout=30m --size=58 --context=prod")},
		{"another run", State{Command: "run", ExitCode: migration.ExitLocked}, One("Another run holds the lock. "+Wait+" Then run again:", "hats run --size=58 --context=prod")},
		{"an object is not ready", State{Command: "run", ExitCode: 1, Changes: 1, Findings: bad, Unready: &migration.ChangeReport{}}, []Step{
			{"Fix the error above, not-ready. Then run again:", "hats run --size=58 --context=prod"},
			{"Or do not roll back what is ready:", "hats run --on-failure=leave --size=58 --context=prod"},
		}},
		{"a run that must wait", State{Command: "run", Findings: later}, One("Follow the advice to the deferred work above, it is being worn. Then run again:", "hats run --size=58 --context=prod")},
		{"what is protected stays", State{Command: "run", ExitCode: migration.ExitPartlyRestored, Findings: protected}, One("No error is left to fix. What is protected stays, and the next run uses it. Run again:", "hats run --size=58 --context=prod")},

		{"an undo", State{Command: "undo"}, One("See what a run would change now:", "hats plan --size=58 --context=prod")},
		{"an undo that failed", State{Command: "undo", ExitCode: migration.ExitPartlyRestored}, One("Fix the errors above. Then undo again:", "hats undo --size=58 --context=prod")},
		{"an undo that left what is protected", State{Command: "undo", ExitCode: migration.ExitPartlyRestored, Findings: protected}, One("No error is left to fix. The warnings say why objects stay. See what a run would change now:", "hats plan --size=58 --context=prod")},
	} {
		tc.state.Caller = caller
		tc.state.Timeout = 15 * time.Minute
		if diff := cmp.Diff(tc.want, Next(tc.state)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestUndoAndExplain: the program of one job does not name it, and explains nothing.
func TestUndoAndExplain(t *testing.T) {
	one, several := Caller{Program: "hats", OneJob: true}, Caller{Program: "hat-tool", Explains: true}
	for _, tc := range []struct{ reason, got, want string }{
		{"one job", one.Undo("hats"), "hats undo"},
		{"several jobs", several.Undo("hats"), "hat-tool undo hats"},
		{"nothing explains", one.Explain("not-ready"), ""},
		{"explain is a command", several.Explain("not-ready"), "hat-tool explain not-ready"},
		{"a finding names its own program", one.Complete("hats run"), "hats run"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, tc.got, tc.want)
		}
	}
}

// TestWaitsHaveATime: who is asked to wait is told how long, where that is known.
func TestWaitsHaveATime(t *testing.T) {
	for note, want := range map[string]string{
		"Wait until it is gone, and run the job again.":         "Wait until it is gone, and run the job again. That takes seconds, unless a finalizer holds it",
		"wait until it ends:":                                   "Wait until it ends. That mostly takes minutes",
		"Wait until it ends, mostly minutes.":                   "Wait until it ends, mostly minutes",
		"Create the Namespace.":                                 "Create the Namespace",
		"Wait for what the report names. Then run again.":       "Wait for what the report names. Then run again",
		"Wait until they are gone. If one stays, look at it.":   "Wait until they are gone. If one stays, look at it. That takes seconds, unless a finalizer holds it",
		"The operator removes it within 5 minutes. Wait for it": "The operator removes it within 5 minutes. Wait for it",
	} {
		if got := sentence(note); got != want {
			t.Errorf("%q: %q, want %q", note, got, want)
		}
	}
}
