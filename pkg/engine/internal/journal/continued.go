package journal

import (
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Continued are the units of an interrupted run that go on. One that follows others does so
// only if each of them was made or goes on whole. If not, its reason is gone, or is one of the
// plan of now, which then says itself what follows from it.
func (rec *Recorder) Continued(journaled []*Entry, wanted map[ChangeKey]*migration.Change, begun map[string]bool) map[*Entry]bool {
	continues, made := map[*Entry]bool{}, map[string]bool{}
	note := func(e *Entry, goesOn bool) {
		if goesOn && !e.Done {
			continues[e] = true
		}
		if (goesOn || e.Done) && !e.EndLeft() {
			made[e.Unit.ID] = true
		}
	}
	var following []*Entry
	for _, e := range journaled {
		switch {
		case e.Done:
			note(e, false)
		case len(e.Unit.Follows) > 0:
			following = append(following, e)
		default:
			note(e, rec.Continues(e, wanted, false, begun))
		}
	}
	for _, e := range following {
		follows := !slices.ContainsFunc(e.Unit.Follows, func(id string) bool { return !made[id] })
		note(e, rec.Continues(e, wanted, follows, begun))
	}
	return continues
}

// Wanted are the changes of a plan.
func Wanted(plan *migration.Plan) map[ChangeKey]*migration.Change {
	wanted := map[ChangeKey]*migration.Change{}
	for i := range plan.Units {
		for j := range plan.Units[i].Changes {
			ch := &plan.Units[i].Changes[j]
			wanted[ChangeKey{Verb: ch.Verb, Ref: ch.Ref}] = ch
		}
	}
	return wanted
}
