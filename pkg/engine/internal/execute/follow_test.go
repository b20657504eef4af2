package execute

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestLost: a unit that follows others is lost if what they were to do was left in this run, also
// if another unit of the same ID, with the rest of what the plan wants, was made. On a979837 that
// counted for both, and the follower waited for what nobody did.
func TestLost(t *testing.T) {
	create, remove := migration.Change{Verb: migration.Create}, migration.Change{Verb: migration.Delete}
	entry := func(last journal.StepState, result string, changes ...migration.Change) *journal.Entry {
		e := journal.NewEntry(0, migration.Unit{ID: "reason", Changes: changes}, nil)
		e.Step(len(changes) - 1).SetState(last)
		e.Step(len(changes) - 1).ReportResult(result)
		return e
	}
	for _, tc := range []struct {
		reason    string
		journaled *journal.Entry
		planned   []migration.Change // of a unit that is made; nil: there is none
		lost      bool
	}{
		{"the journaled unit is made", entry(journal.StepNotBegun, migration.ChangeDone, create, remove), nil, false},
		{"it is left", entry(journal.StepNotBegun, migration.ChangeLeft, create, remove), nil, true},
		{"it is left, and the rest is made", entry(journal.StepNotBegun, migration.ChangeLeft, create, remove), []migration.Change{create}, true},
		{"an earlier run left it, and nobody makes it", entry(journal.StepLeft, migration.ChangeLeft, create, remove), []migration.Change{create}, true},
		{"an earlier run left it, and it is made", entry(journal.StepLeft, migration.ChangeLeft, create, remove), []migration.Change{create, remove}, false},
	} {
		f, todo := newFollowed(), Todo{Entries: []*journal.Entry{tc.journaled}}
		if tc.planned != nil {
			todo.Units = []migration.Unit{{ID: "reason", Changes: tc.planned}}
		}
		f.expect(todo)
		f.conclude(tc.journaled)
		if tc.planned != nil {
			f.conclude(entry(journal.StepDone, migration.ChangeDone, tc.planned...))
		}
		if got := f.lost(&journal.Entry{Record: journal.Record{Unit: migration.Unit{Follows: []string{"reason"}}}}); got != tc.lost {
			t.Errorf("%s: lost %t", tc.reason, got)
		}
	}
}
