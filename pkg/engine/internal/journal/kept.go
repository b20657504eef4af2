package journal

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Keep notes that the finished units for which it is so stay: a report is about to say that.
// Nothing of the run may be under way.
func (j *Journal) Keep(stays func(*Entry) bool) {
	for _, e := range j.Entries() {
		e.Kept = e.Kept || e.Done && stays(e)
	}
}

// AnyKept says whether there is anything that a report has said to stay.
func (j *Journal) AnyKept() bool {
	return slices.ContainsFunc(j.Entries(), func(e *Entry) bool { return e.Kept })
}

// Forget lets go what was kept, and says whether there was anything.
func (j *Journal) Forget() bool {
	kept := j.AnyKept()
	for _, e := range j.Entries() {
		e.Kept = false
	}
	return kept
}

// RolledBack notes what a rollback has restored, so that an undo of what was kept leaves it.
func (j *Journal) RolledBack() {
	for _, e := range j.Entries() {
		for _, s := range e.Steps() {
			if !e.Kept && s.Result() == migration.ChangeRolledBack {
				s.SetState(StepLeft)
			}
		}
	}
}
