package present

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// State is what the choice of the next command depends on.
type State struct {
	Caller
	// Command is that which has ended: plan, run or undo.
	Command string
	// Selection are the words by which the command was limited, such as a flag with jobs.
	Selection []string
	ExitCode  int
	// Changes that a plan has found to make.
	Changes  int
	Findings []Finding
	// Unready is the object that was not ready in time, if a run failed by one.
	Unready *migration.ChangeReport
}

// Step is a next step. Without a command there is nothing to type.
type Step struct{ Note, Command string }

// One is a single step.
func One(note, command string) []Step { return []Step{{note, command}} }

// Next returns what to do after a command. There is one step, or several of which a person
// chooses one; none if the work is done.
func Next(s State) []Step {
	if steps := s.ended(); steps != nil {
		return steps
	}
	switch s.Command {
	case "plan":
		return s.afterPlan()
	case "undo":
		return s.afterUndo()
	default:
		return s.afterRun()
	}
}

func (s State) afterPlan() []Step {
	switch {
	case s.ExitCode != migration.ExitOK || Has(s.Findings, migration.Error):
		return s.Fix("Then plan again:", s.Same())
	case s.Changes > 0:
		return One("Make these changes:", s.WorkLine(slices.Concat([]string{"run"}, s.Selection)...))
	case Has(s.Findings, migration.Deferred):
		return s.Help("Then plan again:", s.Same())
	default:
		return nil
	}
}

func (s State) afterRun() []Step {
	switch {
	case s.ExitCode != migration.ExitOK && s.Unready != nil && s.Changes > 0:
		return append(s.Fix("Then run again:", s.Same()), Step{"Or do not roll back what is ready:", s.Same("--on-failure=leave")})
	case s.onlyProtected():
		return One("No error is left to fix. What is protected stays, and the next run uses it. Run again:", s.Same())
	case s.ExitCode != migration.ExitOK:
		return s.Fix("Then run again:", s.Same())
	case Has(s.Findings, migration.Deferred):
		return s.Help("Then run again:", s.Same())
	default:
		return One("See whether anything is left to change:", s.Line("plan"))
	}
}

// onlyProtected says that a rollback or undo has left what is protected, and nothing else: it may
// have ended an earlier run, after which this one has made its changes.
func (s State) onlyProtected() bool {
	return s.ExitCode == migration.ExitPartlyRestored && Found(s.Findings, "protected") && !Has(s.Findings, migration.Error)
}

func (s State) afterUndo() []Step {
	if s.onlyProtected() {
		return One("No error is left to fix. The warnings say why objects stay. See what a run would change now:", s.Line("plan"))
	}
	if s.ExitCode != migration.ExitOK {
		return s.Fix("Then undo again:", s.Same())
	}
	return One("See what a run would change now:", s.Line("plan"))
}

// Same is the command that has ended, with more words at its end.
func (s State) Same(more ...string) string {
	return s.WorkLine(slices.Concat([]string{s.Command}, s.Selection, more)...)
}

// Has says whether there is a finding of that severity.
func Has(findings []Finding, severity migration.Severity) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == severity })
}

// Found says whether there is a finding with one of the IDs.
func Found(findings []Finding, ids ...string) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return slices.Contains(ids, f.ID) })
}
