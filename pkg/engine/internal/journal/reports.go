package journal

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Reports are what is said of the changes of the unit, in its order. A unit that is no part of
// this run has none.
func (e *Entry) Reports() []migration.ChangeReport { return e.reports }

// Result is what is said of the step, "" if nothing is.
func (s Status) Result() string {
	if s.Index >= len(s.Entry.reports) {
		return ""
	}
	return s.Entry.reports[s.Index].Result
}

// Report says what became of the step, and why.
func (s Status) Report(result, message string) {
	report := &s.Entry.reports[s.Index]
	report.Result, report.Message = result, message
}

// ReportResult says what became of the step.
func (s Status) ReportResult(result string) { s.Entry.reports[s.Index].Result = result }

// ReportSeconds says how long the step took.
func (s Status) ReportSeconds(seconds float64) { s.Entry.reports[s.Index].Seconds = seconds }

// Leave gives up steps of one unit, and says why. Those that were undone are reported as such.
func Leave(steps []Step, why string) {
	e := steps[0].Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range steps {
		e.known[s.Index].state = StepLeft
		result := s.Result()
		if result != migration.ChangeRolledBack {
			result = migration.ChangeLeft
		}
		s.Report(result, why)
	}
}

// ReportEarlier makes the reports of an entry that earlier processes have begun say what is
// known of each change: by the journal, and by the cluster (see Step.IsShown). A unit that ended
// and of which nothing was made has no reports: another one makes it, or it is no change of
// this run. Nor has one of which an earlier report has said that it is done and stays.
func (e *Entry) ReportEarlier() {
	if e.Kept {
		e.reports = nil
		return
	}
	e.reports = make([]migration.ChangeReport, 0, len(e.Unit.Changes))
	for _, s := range e.Steps() {
		result := migration.ChangeNotStarted
		switch state := s.State(); {
		case state.IsDone():
			result = state.Result()
		case state == StepLeft:
			result = migration.ChangeLeft
		case s.IsShown():
			result = migration.ChangeOpen
		}
		e.reports = append(e.reports, migration.ReportOf(s.Change, result))
	}
	if e.Done && !slices.ContainsFunc(e.Steps(), func(s Step) bool { return s.State() != StepLeft }) {
		e.reports = nil
	}
}

// FillReports gives entries that came out of the journal their reports.
func (j *Journal) FillReports() {
	for _, e := range j.Entries() {
		for _, s := range e.Steps()[len(e.reports):] {
			e.reports = append(e.reports, migration.ReportOf(s.Change, migration.ChangeNotStarted))
		}
	}
}

// Reversals are the changes that undo those of a unit, the last one first.
func Reversals(e *Entry) []migration.ChangeReport {
	var all []migration.ChangeReport
	for _, s := range slices.Backward(e.Steps()) {
		if !s.Writes() || s.Verb == migration.Recreate || !s.State().Begun() {
			continue
		}
		_, recreates := s.Recreation()
		back := migration.ReportOf(s.Change, "")
		back.Change = nil
		switch {
		case s.Irreversible:
			back.Reversible, back.Message = migration.ReversibleNo, "is irreversible: it stays"
		case s.Verb == migration.Create:
			back.Verb, back.Message = migration.Delete, "the run created it"
		case s.Verb == migration.Delete && recreates:
			back.Verb, back.Message = migration.Recreate, "the run replaced it"
		case s.Verb == migration.Delete:
			back.Verb, back.Message = migration.Create, "the run deleted it; it gets a new UID"
		default:
			back.Message = "the run changed it"
		}
		all = append(all, back)
	}
	return all
}
