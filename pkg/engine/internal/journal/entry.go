package journal

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// makesObject says whether a verb makes an object.
func makesObject(v migration.Verb) bool { return v == migration.Create || v == migration.Recreate }

// Recreated returns the object that the Recreate i makes, nil if there was nothing to delete.
func (e *Entry) Recreated(i int) *unstructured.Unstructured {
	if obj := e.Unit.Changes[i].Object; obj != nil {
		return obj.DeepCopy()
	}
	if of := e.DeletionOf(i); of >= 0 && e.Pre[of].Object != nil {
		return k8sutil.Restorable(e.Pre[of].Object)
	}
	return nil
}

// Goes says whether a later change of the unit deletes the object of change i.
func (e *Entry) Goes(i int) bool { return Deletes(&e.Unit, i) > i }

// SetLatest keeps an object as the answer to the last write of it showed it.
func (e *Entry) SetLatest(ref migration.Ref, live *unstructured.Unstructured) {
	if e.Latest == nil {
		e.Latest = map[migration.Ref]*unstructured.Unstructured{}
	}
	e.Latest[ref] = live
}

// NewEntry returns the entry of a unit of which nothing was begun.
func NewEntry(seq int, u migration.Unit, pre []Preimage) *Entry {
	e := &Entry{Record: Record{Seq: seq, Unit: u, Pre: pre}, Steps: make([]Step, len(u.Changes)), Reports: make([]migration.ChangeReport, 0, len(u.Changes))}
	for i := range u.Changes {
		e.Steps[i].State = StepNotBegun
		e.Reports = append(e.Reports, migration.ReportOf(&u.Changes[i], migration.ChangeNotStarted))
	}
	return e
}

// ReportEarlier makes the reports of an entry that earlier processes have begun say what is
// known of each change: by the journal, and by the cluster (see Step.Made). A unit that ended
// and of which nothing was made has no reports: another one makes it, or it is no change of
// this run. Nor has one of which an earlier report has said that it is done and stays.
func (e *Entry) ReportEarlier() {
	if e.Kept {
		e.Reports = nil
		return
	}
	e.Reports = make([]migration.ChangeReport, 0, len(e.Unit.Changes))
	for i := range e.Unit.Changes {
		result := migration.ChangeNotStarted
		switch s := &e.Steps[i]; {
		case s.State.IsDone():
			result = s.State.Result()
		case s.State == StepLeft:
			result = migration.ChangeLeft
		case s.Made:
			result = migration.ChangeOpen
		}
		e.Reports = append(e.Reports, migration.ReportOf(&e.Unit.Changes[i], result))
	}
	if e.Done && !slices.ContainsFunc(e.Steps, func(s Step) bool { return s.State != StepLeft }) {
		e.Reports = nil
	}
}

// Result is what a report says of a change that is done.
func (s StepState) Result() string {
	if s == StepFound {
		return migration.ChangeUnchanged
	}
	return migration.ChangeDone
}

// GuardOf returns the guarded change that change i belongs to, -1 if none.
func (e *Entry) GuardOf(i int) int {
	for ; i >= 0; i-- {
		if e.Unit.Changes[i].Guard {
			return i
		}
	}
	return -1
}

// Decides says whether change i is made on the job's answer about its guarded step. What
// restores or replaces what the step has deleted is made in any case.
func (e *Entry) Decides(i int) bool {
	guard := e.GuardOf(i)
	return guard >= 0 && !makesObject(e.Unit.Changes[i].Verb) &&
		!slices.ContainsFunc(e.Unit.Changes[guard:i], func(ch migration.Change) bool { return ch.Verb == migration.Delete })
}

// LeavesFrom returns the change from which on a unit can be left when change i finds
// its object changed by somebody else: that of its guard, or i itself if nothing of
// the unit was written before; -1 if it cannot. What is to be created and exists is no
// change of that kind: it fails the run.
func (e *Entry) LeavesFrom(i int) int {
	if guard := e.GuardOf(i); guard >= 0 {
		return guard
	}
	if FirstWrite(e.Unit.Changes) == i && !makesObject(e.Unit.Changes[i].Verb) {
		return i
	}
	return -1
}

// Preimage is what a change found.
type Preimage struct {
	// Object as it was before Delete and Patch.
	Object *unstructured.Unstructured `json:"object,omitempty"`
	// NamespaceUID is that of the namespace of a deleted object; "" if it is not known.
	NamespaceUID types.UID `json:"namespaceUID,omitempty"`
	// Absent are the side effects that did not exist.
	Absent []migration.Ref `json:"absent,omitempty"`
	// Pods are those that Restart replaces.
	Pods []types.UID `json:"pods,omitempty"`
}

// Record is what the journal stores of one unit before it begins.
type Record struct {
	Seq  int            `json:"seq"`
	Unit migration.Unit `json:"unit"`
	Pre  []Preimage     `json:"pre"`
	// Last: it is one of Plan.Last, and is made after all others.
	Last bool `json:"last,omitempty"`
}

// Entry is one unit of the journal, and what this process knows of it.
type Entry struct {
	Record

	// Done: nothing of it is left to make, and what must hold after it held.
	Done bool
	// Read: an earlier process wrote it.
	Read bool
	// Kept: it is done, and a report has said that it stays. Only an undo reverses it.
	Kept bool
	// Steps are what is known of each change, in the order of the unit.
	Steps []Step
	Chunk *Chunk
	// Latest is the object of a change as the answer to its last write showed it.
	Latest map[migration.Ref]*unstructured.Unstructured
	// Reports of the changes, in the order of the unit.
	Reports []migration.ChangeReport
	// Unusable are objects that an earlier attempt recreated, and that this one
	// deletes once more, by change.
	Unusable map[int]types.UID
	// RecreatedAs are the UIDs of the objects that this job has recreated, by change, as far as
	// that is known: a killed process may have got no answer, or not have written it.
	RecreatedAs map[int]types.UID
	// unloaded, if not nil: the objects of the changes and pre-images are in the stored
	// journal only. It has the UIDs of the pre-images.
	unloaded []types.UID
}

// StepState is what is known of one change.
type StepState byte

const (
	// StepUnknown: an earlier process may have begun it. There is no proof.
	StepUnknown StepState = '?'
	// StepNotBegun: no request was sent for it.
	StepNotBegun StepState = '-'
	// StepBegun: a request was sent for it.
	StepBegun StepState = 'b'
	// StepDone: it was made, and what must hold after it held.
	StepDone StepState = 'd'
	// StepLeft: it is not made, since its reason does not hold any more, or since
	// another unit makes it.
	StepLeft StepState = 'l'
	// StepFound: what it was to do was found done by a process that resumed it. There is
	// no proof that this job did it.
	StepFound StepState = 'f'
	// StepReverting: a rollback has begun to undo it.
	StepReverting StepState = 'r'
	// StepRevertingUnproven: the same, and there is no proof that this job did it.
	StepRevertingUnproven StepState = 'R'
)

// Step is what is known of one change of an entry.
type Step struct {
	State StepState
	// Made: an earlier process may have begun it, and the cluster shows it made.
	Made bool
	// hash of the object as the change left it, for undo; "" if it is not known.
	hash string
	// Effects are the objects that a controller made because of the change, as they
	// were when the unit ended.
	Effects []EffectMark
}

// EffectMark tells one object that a controller made.
type EffectMark struct {
	Ref  migration.Ref `json:"ref"`
	UID  types.UID     `json:"uid"`
	Hash string        `json:"hash"`
	// Theirs: it was there before the change was made, and is none of its effects. Without UID:
	// nobody could tell.
	Theirs bool `json:"theirs,omitempty"`
}

// Marks is what the journal keeps of an entry in addition to the entry itself: format 2.
type Marks struct {
	// Steps has one byte for each change, a stepState.
	Steps  string   `json:"steps"`
	Hashes []string `json:"hashes,omitempty"`
	// Effects by change.
	Effects map[int][]EffectMark `json:"effects,omitempty"`
	// Unusable objects by change: see Entry.Unusable.
	Unusable map[int]types.UID `json:"unusable,omitempty"`
	// RecreatedAs by change: see Entry.RecreatedAs.
	RecreatedAs map[int]types.UID `json:"recreatedAs,omitempty"`
	// Kept: see Entry.Kept.
	Kept bool `json:"kept,omitempty"`
}

// LeftToOthers says whether the unit was to delete the patched object of change i
// later, and found that somebody else had.
func (e *Entry) LeftToOthers(i int) bool {
	k := Deletes(&e.Unit, i)
	return k > i && e.Steps[k].State == StepLeft
}

// PatchNotMade says whether an earlier change of the unit patches the object of
// change i, and is known not to have been made.
func (e *Entry) PatchNotMade(i int) bool {
	for j := range i {
		ch := &e.Unit.Changes[j]
		if ch.Verb == migration.Patch && ch.Ref == e.Unit.Changes[i].Ref && e.Steps[j].State == StepNotBegun {
			return true
		}
	}
	return false
}

// DeletionOf returns the earlier change that deletes the object of change i, -1 if
// none does.
func (e *Entry) DeletionOf(i int) int {
	for j := i - 1; j >= 0; j-- {
		if e.Unit.Changes[j].Verb == migration.Delete && e.Unit.Changes[j].Ref == e.Unit.Changes[i].Ref {
			return j
		}
	}
	return -1
}

// MadeOrBegun says whether change i has had an effect, as far as is known.
func (e *Entry) MadeOrBegun(i int) bool {
	s := &e.Steps[i]
	return s.Made || s.State.IsDone() || s.State == StepBegun && !e.Read
}

// AnyBegun says whether any write of the unit has had an effect, as far as is known.
func (e *Entry) AnyBegun() bool {
	for i := range e.Unit.Changes {
		if e.Unit.Changes[i].Writes() && e.MadeOrBegun(i) {
			return true
		}
	}
	return false
}

// AnyLeft says whether any change of the unit is left to others, or to the plan of now.
func (e *Entry) AnyLeft() bool {
	return slices.ContainsFunc(e.Steps, func(s Step) bool { return s.State == StepLeft })
}

// EndLeft says whether the last write of the unit is left: what the unit is for is not made by it.
func (e *Entry) EndLeft() bool {
	for i := len(e.Unit.Changes) - 1; i >= 0; i-- {
		if e.Unit.Changes[i].Writes() {
			return e.Steps[i].State == StepLeft
		}
	}
	return false
}

// halfMade says whether something of the guarded step of change i was begun.
func (e *Entry) halfMade(i int) bool {
	guard := e.GuardOf(i)
	if guard < 0 {
		return false
	}
	for k := guard; k < GuardEnd(&e.Unit, guard); k++ {
		if e.Unit.Changes[k].Writes() && e.MadeOrBegun(k) {
			return true
		}
	}
	return false
}
