package journal

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Entry is one unit of the journal, and what this process knows of it.
type Entry struct {
	Record

	// Done: nothing of it is left to make, and what must hold after it held.
	Done bool
	// Read: an earlier process wrote it.
	Read bool
	// Kept: it is done, and a report has said that it stays. Only an undo reverses it.
	Kept  bool
	Chunk *Chunk

	// reports of the changes, in the order of the unit.
	reports []migration.ChangeReport
	// latest is the object of a change as the answer to its last write showed it.
	latest map[migration.Ref]*unstructured.Unstructured

	// mu guards what follows: others write the marks of a unit while it is under way.
	mu sync.Mutex
	// known is what is known of each change, in the order of the unit.
	known []known
	// unusable are objects that an earlier attempt recreated, and that this one
	// deletes once more, by change.
	unusable map[int]types.UID
	// recreatedAs are the UIDs of the objects that this job has recreated, by change, as far as
	// that is known: a killed process may have got no answer, or not have written it.
	recreatedAs map[int]types.UID
	// unloaded, if not nil: the objects of the changes and pre-images are in the stored
	// journal only. It has the UIDs of the pre-images.
	unloaded []types.UID
}

// NewEntry returns the entry of a unit of which nothing was begun.
func NewEntry(seq int, u migration.Unit, pre []Preimage) *Entry {
	e := &Entry{Record: Record{Seq: seq, Unit: u, Pre: pre}, known: make([]known, len(u.Changes)), reports: make([]migration.ChangeReport, 0, len(u.Changes))}
	for i := range u.Changes {
		e.known[i].state = StepNotBegun
		e.reports = append(e.reports, migration.ReportOf(&u.Changes[i], migration.ChangeNotStarted))
	}
	return e
}

// ComeLast has the entry made after all others.
func (e *Entry) ComeLast() { e.Last = true }

// AnyBegun says whether any write of the unit has had an effect, as far as is known.
func (e *Entry) AnyBegun() bool {
	return slices.ContainsFunc(e.Steps(), func(s Step) bool { return s.Writes() && s.MadeOrBegun() })
}

// HasBegun says whether any write of the unit was, or may have been, begun.
func (e *Entry) HasBegun() bool {
	return slices.ContainsFunc(e.Steps(), func(s Step) bool { return s.Writes() && s.State().Begun() })
}

// AnyUnusable says whether an earlier attempt has recreated an object of the unit that cannot be
// used.
func (e *Entry) AnyUnusable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.unusable) > 0
}

// AnyLeft says whether any change of the unit is left to others, or to the plan of now.
func (e *Entry) AnyLeft() bool {
	return slices.ContainsFunc(e.Steps(), func(s Step) bool { return s.State() == StepLeft })
}

// EndLeft says whether the last write of the unit is left: what the unit is for is not made by it.
func (e *Entry) EndLeft() bool {
	end, ok := e.LastWrite()
	return ok && end.State() == StepLeft
}

// Complete takes the unit as done, and says whether to write that into the journal now: when its
// whole chunk is done, since a missing mark costs a look and no more; at once if a finished unit
// must survive a later failure. The first chunk's marks go with the end of the run.
func (e *Entry) Complete() bool {
	e.Done = true
	left := e.Chunk.left.Add(-1)
	return e.Unit.Commit || left == 0 && e.Chunk.index > 0
}

// GiveUp notes that nothing of the unit is made any more: the plan of now decides.
func (e *Entry) GiveUp() {
	e.Done = true
	e.Chunk.left.Add(-1)
}

// Unload drops the objects of a unit that has ended: the journal has them, and a rollback reads
// them from there. A recreated object is read again by others.
func (e *Entry) Unload() {
	if e.Unit.Commit || Recreates(&e.Unit) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.known {
		if e.Unit.Changes[i].Verb == migration.Create && e.known[i].hash == "" {
			return // what was planned is all there is to know it by
		}
	}
	e.unloaded = make([]types.UID, len(e.Pre))
	for i := range e.Pre {
		if e.Pre[i].Object != nil {
			e.unloaded[i] = e.Pre[i].Object.GetUID()
		}
		e.Pre[i].Object, e.Unit.Changes[i].Object, e.Unit.Changes[i].Build = nil, nil, nil
	}
	e.latest = nil
}

// reload gives a unit that was unloaded its objects as they are stored.
func (e *Entry) reload(stored *Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unloaded == nil || stored == nil {
		return
	}
	for i := range e.Pre {
		e.Pre[i].Object, e.Unit.Changes[i].Object = stored.Pre[i].Object, stored.Unit.Changes[i].Object
	}
	e.unloaded = nil
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
