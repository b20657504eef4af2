package nextstep

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// kindsOfFindings are one for each way in which a finding decides the next step.
func kindsOfFindings() []present.Finding {
	f := func(severity migration.Severity, id, note, command string) present.Finding {
		return present.Finding{Severity: severity, ID: id, Object: "Thing shop/a", Problem: "is odd", Note: note, Command: command}
	}
	const look = "kubectl -n shop describe thing a"
	return []present.Finding{
		f(migration.Warning, "protected", "", ""),
		f(migration.Error, "broken", "Its conditions say why.", look),
		f(migration.Error, "odd", "Correct it.", ""),
		f(migration.Error, "ours", "Remove the finalizer.", "eventmesh-migrate run --job=trigger-sync"),
		f(migration.Error, "permission-missing", "", "eventmesh-migrate check --role"),
		f(migration.Error, "run-running", "", "eventmesh-migrate status"),
		f(migration.Error, "run-open", "To finish it:", "eventmesh-migrate run"),
		f(migration.Error, "run-failed", "To see the error:", "eventmesh-migrate status"),
		f(migration.Warning, "run-deferred", "", "eventmesh-migrate status"),
		f(migration.Error, ofPhasePre[0], "", "eventmesh-migrate run --job=httpsource-sync"),
		f(migration.Error, ofPhasePre[1], "", look),
		f(migration.Error, notSwitched[0], "", look),
		f(migration.Error, ofPhasePost[0], "", "eventmesh-migrate run --job=trigger-sync"),
		f(migration.Deferred, ofSwitch[0], "", look),
		f(migration.Deferred, "held", "Wait until it is gone.", ""),
		f(migration.Deferred, "elsewhere", "", look),
	}
}

// sets are all sets of at most two findings.
func sets() [][]present.Finding {
	all := [][]present.Finding{nil}
	single := kindsOfFindings()
	for i := range single {
		all = append(all, single[i:i+1])
		for k := i + 1; k < len(single); k++ {
			all = append(all, []present.Finding{single[i], single[k]})
		}
	}
	return all
}

// plans are what a plan can find.
func plans() []*State {
	all := []*State{nil}
	for _, changes := range []int{0, 3} {
		for _, found := range sets() {
			p := &State{Caller: prod, Command: "plan", Changes: changes, Findings: found}
			if p.has(migration.Error) {
				p.ExitCode = migration.ExitRefused
			}
			all = append(all, p)
		}
	}
	return all
}

// states are those in which a command can end.
func states() func(func(State) bool) {
	source := change(migration.Create, "HTTPSource", "kyma-integration", "inventory", migration.ChangeFailed)
	selections := []State{{}, {Phases: []string{"pre"}}, {Phases: []string{"post"}}, {Jobs: []string{"trigger-sync"}}, {Jobs: []string{"trigger-sync"}, Namespace: "shop"}}
	codes := []int{0, 1, 3, 4, migration.ExitLocked, migration.ExitTimedOut, 130}
	plans := plans()
	return func(yield func(State) bool) {
		for _, found := range sets() {
			var of []State
			for _, s := range selections {
				for _, code := range codes {
					for _, command := range []string{"plan", "run", "undo"} {
						s.Command, s.ExitCode = command, code
						s.Changes, s.Unready = 0, nil
						of = append(of, s)
						s.Changes, s.Unready = 3, &source
						of = append(of, s)
					}
				}
			}
			for _, flags := range [][3]bool{{}, {true}, {true, true}, {false, false, true}, {true, false, true}} {
				of = append(of, State{Command: "status", Open: flags[0], Running: flags[1], Reported: flags[2]})
			}
			of = append(of, State{Command: "check"}, State{Command: "verify", Namespace: "shop"})
			for _, plan := range plans {
				of = append(of, State{Command: "verify", Plan: plan})
			}
			for _, s := range of {
				s.Caller, s.Findings = prod, found
				s.Timeout = time.Minute
				if !yield(s) {
					return
				}
			}
		}
	}
}

// typed is the command that has ended, as it is printed.
func (s State) typed() string {
	if s.Command == "verify" && s.Namespace != "" {
		return s.Line("verify", "--namespace="+s.Namespace)
	}
	return s.general().Same()
}

// protectedOnly: an earlier run was ended, and the next one uses what is left of it.
func protectedOnly(s State) bool {
	return s.ExitCode == migration.ExitPartlyRestored && s.found("protected") && !s.has(migration.Error)
}

var (
	// first says that the command comes after what the note says.
	first = regexp.MustCompile(`(^|[.:] )Then( [a-z, ]+)?:$`)
	// subject is what a note is about.
	subject = regexp.MustCompile(`\(Thing shop/a\)|application-connector|Another run|A run is working`)
	// limited says how long it takes.
	limited = regexp.MustCompile(`until .* at most `)
)

// why says what is wrong with the steps after a state; "" if they are right.
func why(s State, steps []present.Step) string {
	if len(steps) == 0 || steps[0].Note == "" {
		return "nothing is said"
	}
	for _, step := range steps[1:] {
		if step.Command == "" || step.Note == "" {
			return "a second step is not complete"
		}
	}
	next := steps[0]
	conditional := first.MatchString(next.Note)
	switch {
	case next.Command == "" && (s.Command != "verify" || s.has(migration.Error) || s.Namespace != ""):
		return "there is something left, and no command"
	case s.Command != "undo" && strings.Contains(next.Command, " undo "):
		return "an undo is suggested, and nobody asked for one"
	case strings.Contains(next.Note, "Wait until it ends") && !limited.MatchString(next.Note):
		return "it does not say for what to wait, and how long"
	case conditional && !subject.MatchString(next.Note):
		return "it does not say what comes before the command"
	case next.Command == s.typed() && !conditional && s.ExitCode < migration.ExitSignal && !protectedOnly(s):
		return "it is the command that has ended"
	}
	return ""
}

// TestNoCommandTwice: after a command, the same one is next only if something has to be done before
// it, or time has to pass, and the note says what. It is so for every state of every command.
func TestNoCommandTwice(t *testing.T) {
	count, wrong := 0, map[string]bool{}
	for s := range states() {
		count++
		steps := After(s)
		problem := why(s, steps)
		if problem == "" {
			continue
		}
		if about := fmt.Sprint(s.Command, problem); !wrong[about] {
			wrong[about] = true
			t.Errorf("%s: %+v\n  after %+v", problem, steps, s)
		}
	}
	if count < 50000 {
		t.Errorf("only %d states", count)
	}
}

// TestPlanAndVerifyAgree: verify leads to plan or run only if these lead on. Who does nothing but
// what is next comes back to verify after changes only.
func TestPlanAndVerifyAgree(t *testing.T) {
	for _, plan := range plans()[1:] {
		for _, found := range sets() {
			s := State{Caller: prod, Command: "verify", Findings: found, Plan: plan}
			next := After(s)[0]
			idle := plan.Changes == 0 && plan.ExitCode == migration.ExitOK
			switch {
			case next.Command == prod.Line("plan"):
				if then := After(*plan)[0]; then.Command == prod.Line("verify") {
					t.Errorf("verify leads to plan, and plan to verify: %+v and %+v", s, plan)
				}
			case strings.HasPrefix(next.Command, "eventmesh-migrate run") && !first.MatchString(next.Note) && idle && !s.found("run-open", "run-failed"):
				t.Errorf("verify leads to a run that changes nothing: %+v and %+v", s, plan)
			}
		}
	}
}

// TestFinishedIsTrue: the migration is finished if there is no error, and no work that waits.
func TestFinishedIsTrue(t *testing.T) {
	for s := range states() {
		for _, step := range After(s) {
			if step.Command != "" {
				continue
			}
			waits := s.found("run-deferred") && (s.Plan == nil || s.mayChange() || s.Plan.has(migration.Deferred))
			if s.Command != "verify" || s.has(migration.Error) || waits || s.found("run-open", "run-running") {
				t.Fatalf("%q after %+v", step.Note, s)
			}
		}
	}
	if got := After(State{Command: "verify"}); !slices.Equal(got, present.One("The migration is finished.", "")) {
		t.Errorf("nothing is wrong, and %+v is next", got)
	}
}
