package journal

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Step is one change of one unit of the journal: the change, what is known of it, and which other
// steps of the unit belong to it.
type Step struct {
	*migration.Change
	Status
}

// Step returns the step of change i.
func (e *Entry) Step(i int) Step { return Step{&e.Unit.Changes[i], Status{e, i}} }

// Steps are those of all changes, in the order of the unit.
func (e *Entry) Steps() []Step {
	all := make([]Step, len(e.Unit.Changes))
	for i := range all {
		all[i] = e.Step(i)
	}
	return all
}

// Latest is the object of the step as the answer to the unit's last write of it showed it, nil if
// there was none.
func (s Step) Latest() *unstructured.Unstructured { return s.Entry.latest[s.Ref] }

// SetLatest keeps the object of the step as the answer to a write of it showed it.
func (s Step) SetLatest(live *unstructured.Unstructured) {
	if s.Entry.latest == nil {
		s.Entry.latest = map[migration.Ref]*unstructured.Unstructured{}
	}
	s.Entry.latest[s.Ref] = live
}

// makesObject says whether the step makes an object.
func (s Step) makesObject() bool { return s.Verb == migration.Create || s.Verb == migration.Recreate }

// Recreated returns the object that a Recreate makes, nil if there was nothing to delete.
func (s Step) Recreated() *unstructured.Unstructured {
	if s.Object != nil {
		return s.Object.DeepCopy()
	}
	if deletion, ok := s.Deletion(); ok && deletion.Pre().Object != nil {
		return k8sutil.Restorable(deletion.Pre().Object)
	}
	return nil
}

// before are the steps of the unit before this one, from are this one and those behind it.
func (s Step) before() []Step { return s.Entry.Steps()[:s.Index] }

func (s Step) from() []Step { return s.Entry.Steps()[s.Index:] }

// first returns the first of some steps for which it is so, false if it is so for none.
func first(steps []Step, is func(Step) bool) (Step, bool) {
	if i := slices.IndexFunc(steps, is); i >= 0 {
		return steps[i], true
	}
	return Step{}, false
}

// last is first from the end.
func last(steps []Step, is func(Step) bool) (Step, bool) {
	slices.Reverse(steps)
	return first(steps, is)
}

// of says whether a step does that to the object of this one.
func (s Step) of(verb migration.Verb) func(Step) bool {
	return func(other Step) bool { return other.Verb == verb && other.Ref == s.Ref }
}

// Deletion returns the earlier step that deletes the object of this one, false if none does.
func (s Step) Deletion() (Step, bool) { return last(s.before(), s.of(migration.Delete)) }

// DeletedBy returns the step that deletes the object of this one: this one or a later one.
func (s Step) DeletedBy() (Step, bool) { return first(s.from(), s.of(migration.Delete)) }

// Goes says whether a later step deletes the object of this one.
func (s Step) Goes() bool {
	deletion, ok := s.DeletedBy()
	return ok && deletion.Index > s.Index
}

// LeftToOthers says whether the unit was to delete the patched object of the step later, and found
// that somebody else had.
func (s Step) LeftToOthers() bool {
	deletion, ok := s.DeletedBy()
	return ok && deletion.Index > s.Index && deletion.State() == StepLeft
}

// Recreation returns the step behind this one that recreates its object, false if none does.
func (s Step) Recreation() (Step, bool) { return first(s.from()[1:], s.of(migration.Recreate)) }

// PatchNotMade says whether an earlier step patches the object of this one, and is known not to
// have been made.
func (s Step) PatchNotMade() bool {
	patches := s.of(migration.Patch)
	return slices.ContainsFunc(s.before(), func(other Step) bool { return patches(other) && other.State() == StepNotBegun })
}

// NextWrite returns the first step that writes: this one or a later one.
func (s Step) NextWrite() (Step, bool) { return first(s.from(), writes) }

// LastWrite returns the last step of the unit that writes, false if none does.
func (e *Entry) LastWrite() (Step, bool) { return last(e.Steps(), writes) }

func writes(s Step) bool { return s.Writes() }

// GuardedBy returns the guarded step that this one belongs to, false if there is none.
func (s Step) GuardedBy() (Step, bool) {
	return last(s.Entry.Steps()[:s.Index+1], func(other Step) bool { return other.Guard })
}

// Guarded are the step and those that belong to it: up to the next guarded one.
func (s Step) Guarded() []Step {
	all := s.from()
	if n := slices.IndexFunc(all[1:], func(other Step) bool { return other.Guard }); n >= 0 {
		return all[:n+1]
	}
	return all
}

// Decides says whether the step is made on the job's answer about its guarded one. What restores or
// replaces what that one has deleted is made in any case.
func (s Step) Decides() bool {
	guard, ok := s.GuardedBy()
	return ok && !s.makesObject() &&
		!slices.ContainsFunc(s.Entry.Steps()[guard.Index:s.Index], func(other Step) bool { return other.Verb == migration.Delete })
}

// LeavesFrom returns the step from which on a unit can be left when this one finds its object
// changed by somebody else: its guarded one, or itself if nothing of the unit was written before;
// false if it cannot. What is to be created and exists is no change of that kind: it fails the run.
func (s Step) LeavesFrom() (Step, bool) {
	if guard, ok := s.GuardedBy(); ok {
		return guard, true
	}
	return s, FirstWrite(s.Entry.Unit.Changes) == s.Index && !s.makesObject()
}

// halfMade says whether something of the guarded step of this one was begun.
func (s Step) halfMade() bool {
	guard, ok := s.GuardedBy()
	return ok && slices.ContainsFunc(guard.Guarded(), func(other Step) bool { return other.Writes() && other.MadeOrBegun() })
}

// undecided says whether the job has to be asked about the guarded step: not if an earlier process
// has begun all that belongs to it. gaveUp is set if it has begun a part, and the plan of now does
// not want the rest.
func (s Step) undecided() (ask, gaveUp bool) {
	begun, deleted := false, false
	for _, one := range s.Guarded() {
		deletion, hasDeletion := one.Deletion()
		switch {
		case !one.Writes():
		case one.MadeOrBegun():
			begun = true
			deleted = deleted || one.Verb == migration.Delete
		case one.State() == StepLeft:
			gaveUp = true
		case hasDeletion && deletion.MadeOrBegun():
			// It restores or replaces what was deleted: see Entry.goOn.
		default:
			ask = true
		}
	}
	if s.Entry.Unit.Commit && deleted {
		return false, false // it goes on whole: see Entry.goOn
	}
	return ask, gaveUp && begun
}

// GuardToAsk says whether the job has to be asked before the step, and about which guarded one:
// before that one itself; and before each write that acts on the answer, if this process has none.
// What an earlier process was told, before it ended between the two, is no decision.
func (s Step) GuardToAsk(answered bool) (guard Step, gaveUp, ask bool) {
	guard, ok := s.GuardedBy()
	if !ok || guard != s && (answered || !s.Writes() || !s.Decides()) {
		return guard, false, false
	}
	open, gaveUp := guard.undecided()
	return guard, gaveUp, open || gaveUp
}

// GaveUp says whether the step is a guarded one of which a part was made, and the rest is not
// wanted any more.
func (s Step) GaveUp() bool {
	if !s.Guard {
		return false
	}
	_, gaveUp := s.undecided()
	return gaveUp
}

// hash is that of the object as the step left it, "" if it is not known.
func (s Step) hash() (hash string) {
	s.locked(func(k *known) { hash = k.hash })
	return hash
}
