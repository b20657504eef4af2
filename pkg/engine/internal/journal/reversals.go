package journal

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Reversals are the changes that undo those of a unit, the last one first.
func Reversals(e *Entry) []migration.ChangeReport {
	var all []migration.ChangeReport
	for i := range slices.Backward(e.Unit.Changes) {
		ch := &e.Unit.Changes[i]
		if !ch.Writes() || ch.Verb == migration.Recreate || !e.Steps[i].State.Begun() {
			continue
		}
		back := migration.ReportOf(ch, "")
		back.Change = nil
		switch {
		case ch.Irreversible:
			back.Reversible, back.Message = migration.ReversibleNo, "is irreversible: it stays"
		case ch.Verb == migration.Create:
			back.Verb, back.Message = migration.Delete, "the run created it"
		case ch.Verb == migration.Delete && RecreationOf(&e.Unit, i) >= 0:
			back.Verb, back.Message = migration.Recreate, "the run replaced it"
		case ch.Verb == migration.Delete:
			back.Verb, back.Message = migration.Create, "the run deleted it; it gets a new UID"
		default:
			back.Message = "the run changed it"
		}
		all = append(all, back)
	}
	return all
}
