package journal

import (
	"maps"
	"slices"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// ChangeKey is a change that a plan wants, by its verb and object.
type ChangeKey struct {
	Verb migration.Verb
	Ref  migration.Ref
}

// KeyOf is the key of a change.
func KeyOf(ch *migration.Change) ChangeKey { return ChangeKey{ch.Verb, ch.Ref} }

// Continued are the units of an interrupted run that go on. One that follows others does so
// only if each of them was made or goes on whole. If not, its reason is gone, or is one of the
// plan of now, which then says itself what follows from it.
func Continued(journaled []*Entry, wanted map[ChangeKey]*migration.Change, begun map[string]bool) map[*Entry]bool {
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
			note(e, e.goOn(wanted, false, begun))
		}
	}
	for _, e := range following {
		follows := !slices.ContainsFunc(e.Unit.Follows, func(id string) bool { return !made[id] })
		note(e, e.goOn(wanted, follows, begun))
	}
	return continues
}

// goOn decides which changes of an interrupted unit are still made as they were planned
// then; false if none is. They are those that were begun; those that
// restore or replace what it has deleted; all of a unit that commits, once it has
// deleted anything; all of one that follows from another that was begun; and what
// comes last because of something that was begun. The others are left to the plan of
// now. Where a guarded change was begun, and the plan of now does not want what
// belongs to it, it is undone when the unit is executed.
func (e *Entry) goOn(wanted map[ChangeKey]*migration.Change, follows bool, begun map[string]bool) bool {
	if follows || e.Last && slices.Contains(slices.Collect(maps.Values(begun)), true) {
		return true
	}
	steps := e.Steps()
	if e.Unit.Commit && slices.ContainsFunc(steps, func(s Step) bool { return s.Verb == migration.Delete && s.MadeOrBegun() }) {
		return true
	}
	// All are looked at before any of them is left.
	left := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.goesOn(wanted) })
	for _, s := range left {
		s.SetState(StepLeft)
	}
	if len(left) == len(steps) {
		e.reports = nil
		return false
	}
	return true
}

// goesOn says whether a step of an interrupted unit is made as it was planned then: see Entry.goOn.
func (s Step) goesOn(wanted map[ChangeKey]*migration.Change) bool {
	deletion, deleted := s.Deletion()
	switch {
	case s.Writes() && s.MadeOrBegun():
		return true
	case s.makesObject() && deleted && deletion.MadeOrBegun():
		return true
	}
	// The rest of a guarded step goes on as one with what was begun of it.
	return s.halfMade() && wanted[KeyOf(s.Change)] != nil
}

// Wanted are the changes of a plan.
func Wanted(plan *migration.Plan) map[ChangeKey]*migration.Change {
	wanted := map[ChangeKey]*migration.Change{}
	for i := range plan.Units {
		for j := range plan.Units[i].Changes {
			ch := &plan.Units[i].Changes[j]
			wanted[KeyOf(ch)] = ch
		}
	}
	return wanted
}
