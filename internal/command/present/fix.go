package present

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Wait says how long another run takes.
const Wait = "Wait until it ends: mostly minutes, at most the time limits of its jobs."

// Fix names the error to begin with. The same command again would only fail again, so what helps
// against the error comes first.
func (s State) Fix(then, command string) []Step {
	if !Has(s.Findings, migration.Error) && Has(s.Findings, migration.Deferred) { // with --defer=fail
		return s.Help(then, command)
	}
	return s.first(migration.Error, "Fix the error above, ", "Fix the errors above, first ", then, command)
}

// Help is Fix for deferred work.
func (s State) Help(then, command string) []Step {
	return s.first(migration.Deferred, "Follow the advice to the deferred work above, ", "Follow the advice to the deferred work above, first ", then, command)
}

// first is what a person does about the first finding that has a command, or about the first one.
// After it comes the command that the person came from.
func (s State) first(severity migration.Severity, of, ofMany, then, command string) []Step {
	var found []Finding
	for _, f := range s.Findings {
		if f.Severity == severity {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		if explain := s.Explain("exit-" + strconv.Itoa(s.ExitCode)); explain != "" {
			return []Step{{"See what to do at this exit code:", explain}, {then, command}}
		}
		return One("Fix the errors above. "+then, command)
	}
	f, lead := found[0], of
	if i := slices.IndexFunc(found, s.helps); i >= 0 {
		f = found[i]
	}
	if len(Groups(found)) > 1 {
		lead = ofMany
	}
	switch {
	case f.ID == "permission-missing" && f.Command != "":
		return []Step{{"An administrator applies the Role that this prints:", s.Complete(f.Command)}, {then, command}}
	case s.helps(f) && (f.Note == "" || onlyLooks.MatchString(f.Command)):
		return []Step{{lead + f.name() + ":", s.Complete(f.Command)}, {then, command}}
	case s.helps(f): // a person decides by the note whether to type it
		return []Step{{lead + f.name() + ". " + sentence(f.Note) + ":", s.Complete(f.Command)}, {then, command}}
	case f.Note != "" && !strings.HasSuffix(f.Note, ":"): // with a colon it is about the command
		return One(lead+f.name()+". "+sentence(f.Note)+". "+then, command)
	default:
		return One(lead+f.name()+". "+then, command)
	}
}

// onlyLooks is a command that changes nothing.
var onlyLooks = regexp.MustCompile(`^kubectl (-n \S+ )?(get|describe|logs|wait|config|cluster-info|auth|rollout status)( |$)`)

// sentence is a note without its end. If it is about a wait, it says how long that takes.
func sentence(note string) string {
	text := strings.ToUpper(note[:1]) + strings.TrimRight(note[1:], ".:")
	switch {
	case hasTime.MatchString(text):
	case goes.MatchString(text):
		text += ". That takes seconds, unless a finalizer holds it"
	case ends.MatchString(text):
		text += ". That mostly takes minutes"
	}
	return text
}

// goes is a wait for a deletion, ends one for something else, and hasTime says how long it takes.
var (
	goes    = regexp.MustCompile(`(?i)wait until \S+ (is|are) gone`)
	ends    = regexp.MustCompile(`(?i)wait until `)
	hasTime = regexp.MustCompile(`\b(seconds?|minutes?|hours?)\b`)
)

// name is the finding in a sentence.
func (f Finding) name() string {
	if f.ID != "" && f.Object != "" {
		return f.ID + " (" + f.Object + ")"
	}
	return cmp.Or(f.ID, f.Object, frame.OneLine(f.Problem))
}

// helps says whether the command of a finding does something else than what has ended: a run has
// made all changes that it can, and a plan has shown them.
func (s State) helps(f Finding) bool {
	words := strings.Fields(f.Command)
	if len(words) < 2 || words[0] != cmp.Or(s.Name, s.Program) {
		return f.Command != ""
	}
	return !slices.Contains([]string{s.Command, "run", "plan", "verify"}, words[1])
}

// ended are the steps after plan, run or undo that did not come to its end; none if it did.
func (s State) ended() []Step {
	switch {
	case s.ExitCode > migration.ExitSignal:
		return One("The "+s.Command+" was interrupted. Continue it:", s.Same())
	case s.ExitCode == migration.ExitTimedOut && s.Timeout > 0:
		longer := s.Same("--timeout=" + frame.Duration(2*s.Timeout)) // with the same limit it would end as it has now
		if Has(s.Findings, migration.Error) {
			return s.Fix("Then continue, with a longer time limit:", longer)
		}
		return One("The time limit of "+frame.Duration(s.Timeout)+" was reached. Continue with a longer one:", longer)
	case s.ExitCode == migration.ExitLocked:
		return One("Another run holds the lock. "+Wait+" Then "+s.Command+" again:", s.Same())
	}
	return nil
}
