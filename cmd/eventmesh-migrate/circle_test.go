package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame/manual"
	"github.com/kyma-project/eventmesh-migration/internal/migration/nextstep"
	"github.com/kyma-project/eventmesh-migration/internal/migration/runbook"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var (
	// alsoSee is a command below an explanation.
	alsoSee = regexp.MustCompile(`(?m)^  eventmesh-migrate explain (\S+)$`)
	// onlySee is advice that is nothing but a reference to another entry.
	onlySee = regexp.MustCompile(`^(?:What to do: )?(?:See )?(?:(?:and|or|,) )?\[[^]]+\]\(#[^)]+\)(?:, \[[^]]+\]\(#[^)]+\))*\.?$`)
	// ownCommand is one of ours in an entry.
	ownCommand = regexp.MustCompile("`((?:eventmesh-migrate|kubectl) [^`…]+)`")
)

// advice is the last paragraph of an entry of a table, and the whole text of another one.
func advice(e runbook.Entry) string {
	if e.Section == manual.ExitCodes || e.Section == manual.Topics {
		return e.Text
	}
	parts := strings.Split(e.Text, "\n\n")
	return parts[len(parts)-1]
}

// TestExplainLeadsOn: from every entry of the runbook, who follows nothing but its references
// reaches one that says what to do, and no entry twice.
func TestExplainLeadsOn(t *testing.T) {
	references := 0
	for _, e := range runbook.Entries() {
		seen := map[string]bool{}
		for now := e; onlySee.MatchString(advice(now)); references++ {
			if seen[now.Page] {
				t.Errorf("%s: its references lead in a circle", e.ID)
				break
			}
			seen[now.Page] = true
			found := alsoSee.FindStringSubmatch(now.Render(80, program+" explain"))
			if found == nil || len(runbook.Find(found[1])) == 0 {
				t.Errorf("%s: it refers to something that cannot be explained: %q", e.ID, found)
				break
			}
			now = runbook.Find(found[1])[0]
		}
	}
	if references < 5 {
		t.Errorf("only %d entries are references, so the test sees none", references)
	}
	for _, text := range []string{"See [exit 3](#exit-3).", "What to do: [Exit 3](#exit-3)", "See [a](#a), [b](#b)"} {
		if !onlySee.MatchString(text) {
			t.Errorf("%q is no reference", text)
		}
	}
	if onlySee.MatchString("See [exit 3](#exit-3). Recreate the account.") {
		t.Error("an action is taken for a reference")
	}
}

// TestFailuresLeadOn: whatever of the runbook a command ends with, its next commands exist, and the
// first of them does not lead back to it.
func TestFailuresLeadOn(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	caller := present.Caller{Program: program, Explains: true}
	problems := map[string]string{}
	for _, e := range runbook.Entries() {
		f := present.Finding{Severity: migration.Error, ID: e.ID, Object: "Thing shop/a", Problem: e.Summary, Note: "Correct it."}
		if found := ownCommand.FindStringSubmatch(advice(e)); found != nil && problem(found[1]) == "" {
			f.Command = found[1]
		}
		for _, command := range []string{"check", "plan", "run", "undo", "verify", "status"} {
			s := nextstep.State{Caller: caller, Command: command, Reported: true, Findings: []present.Finding{f}, Plan: &nextstep.State{}}
			if command == "undo" {
				s.Jobs = []string{"trigger-sync"}
			}
			if command == "plan" || command == "run" || command == "undo" {
				s.ExitCode = migration.ExitFailed
			}
			steps := nextstep.After(s)
			for _, step := range steps {
				if _, known := problems[step.Command]; !known {
					problems[step.Command] = problem(step.Command)
				}
				if why := problems[step.Command]; why != "" {
					t.Errorf("%s, after %s: %s: %s", e.ID, command, step.Command, why)
				}
			}
			words := strings.Fields(steps[0].Command)
			back := words[0] == program && words[1] == command
			named := strings.Contains(steps[0].Note, e.ID) || e.ID == "run-running" || e.ID == "permission-missing"
			if back && !named {
				t.Errorf("%s, after %s: %q leads back to it, and does not say what comes first", e.ID, command, steps[0])
			}
		}
	}
}
