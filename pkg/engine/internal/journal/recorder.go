package journal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Mark is the value of the mark for one change: see migration.Names.
func (rec *Recorder) Mark(e *Entry, i int) string {
	return fmt.Sprintf("%s/%d/%d", rec.Journal.Run, e.Seq, i)
}

// Beginning keeps the state of a change: begun from its first request on, unless
// all of them are known to have had no effect.
func (rec *Recorder) Beginning(e *Entry, i int) write.Attempt {
	before := e.Steps[i].State
	set := func(s StepState) {
		rec.Mu.Lock()
		defer rec.Mu.Unlock()
		e.Steps[i].State = s
	}
	return write.Attempt{Sending: func() { set(StepBegun) }, Refused: func() { set(before) }}
}

// SetHash keeps the hash of the object as change i left it.
func (rec *Recorder) SetHash(e *Entry, i int, live *unstructured.Unstructured) {
	hash := patch.Hash(live, rec.Ignored)
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	e.Steps[i].hash = hash
}

// FillReports gives entries that came out of a journal their reports.
func (rec *Recorder) FillReports() {
	for _, e := range rec.Journal.Entries() {
		for i := len(e.Reports); i < len(e.Unit.Changes); i++ {
			e.Reports = append(e.Reports, migration.ReportOf(&e.Unit.Changes[i], migration.ChangeNotStarted))
		}
	}
}

// NextSeq is the sequence number of the next unit.
func (rec *Recorder) NextSeq() int {
	if rec.Journal == nil {
		return 0 // a run that only waits
	}
	next := 0
	for _, e := range rec.Journal.Entries() {
		next = max(next, e.Seq+1)
	}
	return next
}

// Marks are what is known of the units of a chunk, by their sequence number.
func (rec *Recorder) Marks(c *Chunk) map[int]Marks {
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	return c.marks()
}

// Complete takes a unit as done, and says whether to write that into the
// journal now: when its whole chunk is done, since a missing mark costs a look
// and no more; at once if a finished unit must survive a later failure. The first
// chunk's marks go with the end of the run.
func (rec *Recorder) Complete(e *Entry) bool {
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	e.Done = true
	e.Chunk.Left--
	return e.Unit.Commit || e.Chunk.Left == 0 && e.Chunk.index > 0
}

// Unload drops the objects of a unit that has ended: the journal has them, and a
// rollback reads them from there. A recreated object is read again by others.
func (rec *Recorder) Unload(e *Entry) {
	if e.Unit.Commit || Recreates(&e.Unit) {
		return
	}
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	for i := range e.Steps {
		if e.Unit.Changes[i].Verb == migration.Create && e.Steps[i].hash == "" {
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
	e.Latest = nil
}

// Reload reads what was unloaded of a unit, and of the others of its chunk.
func (rec *Recorder) Reload(ctx context.Context, e *Entry) error {
	if e.unloaded == nil {
		return nil
	}
	stored, err := rec.Journals.loadChunk(ctx, rec.Journal.Header, e.Chunk)
	if err != nil {
		return err
	}
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	bySeq := map[int]*Entry{}
	for _, s := range stored.entries {
		bySeq[s.Seq] = s
	}
	for _, e := range e.Chunk.entries {
		s := bySeq[e.Seq]
		if e.unloaded == nil || s == nil {
			continue
		}
		for i := range e.Pre {
			e.Pre[i].Object, e.Unit.Changes[i].Object = s.Pre[i].Object, s.Unit.Changes[i].Object
		}
		e.unloaded = nil
	}
	return nil
}

// StateOf says what is known of change i.
func (rec *Recorder) StateOf(e *Entry, i int) StepState {
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	return e.Steps[i].State
}

// HasBegun says whether any write of the entry was, or may have been, begun.
func (rec *Recorder) HasBegun(e *Entry) bool {
	for i := range e.Unit.Changes {
		if e.Unit.Changes[i].Writes() && rec.StateOf(e, i).Begun() {
			return true
		}
	}
	return false
}

// SetUnusable notes that change i of the unit deletes an object of that UID, which an
// earlier attempt recreated.
func (rec *Recorder) SetUnusable(e *Entry, i int, uid types.UID) {
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	if e.Unusable == nil {
		e.Unusable = map[int]types.UID{}
	}
	e.Unusable[i] = uid
}

// SetRecreated notes that change i of the unit has recreated an object, which has that UID.
func SetRecreated(rec *Recorder, e *Entry, i int, uid types.UID) {
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	if e.RecreatedAs == nil {
		e.RecreatedAs = map[int]types.UID{}
	}
	e.RecreatedAs[i] = uid
}

// IsRecreated says whether the object in the place of what change i deletes is one that the unit
// has recreated: by its UID, or by its content. What has nothing that its former object and the
// recreated one have not is recreated without a loss, also if somebody else has created it.
func IsRecreated(rec *Recorder, e *Entry, i int, live *unstructured.Unstructured) bool {
	again := RecreationOf(&e.Unit, i)
	rec.Mu.Lock()
	uid := live.GetUID()
	known := e.RecreatedAs[again] == uid || e.Unusable[i] == uid
	rec.Mu.Unlock()
	if known {
		return true
	}
	obj := e.Recreated(again)
	// Owners that are gone were left out.
	obj.SetOwnerReferences(nil)
	return len(patch.Lost(live, obj, rec.Ignored)) == 0 && len(patch.AddedTo(live, rec.Ignored, obj, e.Pre[i].Object)) == 0
}

// SetState keeps what is known of change i. A change that is left stays so.
func (rec *Recorder) SetState(e *Entry, i int, s StepState) {
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	if e.Steps[i].State != StepLeft {
		e.Steps[i].State = s
	}
}

// MarkDone writes what is known of a chunk. Failing to is no failure of the run: without a
// mark, a later run looks at the cluster.
func (rec *Recorder) MarkDone(ctx context.Context, c *Chunk) {
	if err := MarkNow(ctx, rec, c); err != nil && ctx.Err() == nil {
		rec.Log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
	}
}

// MarkNow writes what is known of a chunk.
func MarkNow(ctx context.Context, rec *Recorder, c *Chunk) error {
	rec.marking.Lock()
	defer rec.marking.Unlock()
	return rec.Journals.Mark(ctx, c.Name, rec.Marks(c))
}

// Undecided says whether the job has to be asked about the guarded change i: not if
// an earlier process has begun all that belongs to it. gaveUp is set if it has begun
// a part, and the plan of now does not want the rest.
func (rec *Recorder) Undecided(e *Entry, i int) (ask, gaveUp bool) {
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	begun, deleted := false, false
	for k := i; k < GuardEnd(&e.Unit, i); k++ {
		switch {
		case !e.Unit.Changes[k].Writes():
		case e.MadeOrBegun(k):
			begun = true
			deleted = deleted || e.Unit.Changes[k].Verb == migration.Delete
		case e.Steps[k].State == StepLeft:
			gaveUp = true
		case e.DeletionOf(k) >= 0 && e.MadeOrBegun(e.DeletionOf(k)):
			// It restores or replaces what was deleted: see Continues.
		default:
			ask = true
		}
	}
	if e.Unit.Commit && deleted {
		return false, false // it goes on whole: see Continues
	}
	return ask, gaveUp && begun
}

// GuardToAsk says whether the job has to be asked before change i, and about which guarded change:
// before that one itself; and before each write that acts on the answer, if this process has
// none. What an earlier process was told, before it ended between the two, is no decision.
func (rec *Recorder) GuardToAsk(e *Entry, i int, answered bool) (guard int, gaveUp, ask bool) {
	guard = e.GuardOf(i)
	if guard < 0 || guard != i && (answered || !e.Unit.Changes[i].Writes() || !e.Decides(i)) {
		return guard, false, false
	}
	open, gaveUp := rec.Undecided(e, guard)
	return guard, gaveUp, open || gaveUp
}

// GaveUp says whether change i is a guarded one of which a part was made, and the rest is not
// wanted any more.
func GaveUp(rec *Recorder, e *Entry, i int) bool {
	if !e.Unit.Changes[i].Guard {
		return false
	}
	_, gaveUp := rec.Undecided(e, i)
	return gaveUp
}

// Made says whether a live object was created by the open journal of this job and
// not edited since.
func (rec *Recorder) Made(obj *unstructured.Unstructured) bool {
	if rec.Journal == nil {
		return false
	}
	e, i := rec.creatorOf(obj)
	return e != nil && rec.Unedited(e, i, obj)
}

// creatorOf finds the change of the journal that created an object, by its mark.
func (rec *Recorder) creatorOf(obj *unstructured.Unstructured) (*Entry, int) {
	run, number, _ := strings.Cut(obj.GetAnnotations()[rec.Journals.Names.Mark()], "/")
	seq, change, _ := strings.Cut(number, "/")
	n, err := strconv.Atoi(seq)
	if err != nil || run != rec.Journal.Run {
		return nil, 0
	}
	i, err := strconv.Atoi(change)
	if err != nil {
		return nil, 0
	}
	for _, c := range rec.Journal.All() {
		k, found := slices.BinarySearchFunc(c.entries, n, func(e *Entry, seq int) int { return e.Seq - seq })
		if !found || i < 0 || i >= len(c.entries[k].Unit.Changes) {
			continue
		}
		e := c.entries[k]
		if ch := &e.Unit.Changes[i]; ch.Verb == migration.Create && ch.Ref.Name == obj.GetName() && ch.Ref.Namespace == obj.GetNamespace() && ch.Ref.Kind == obj.GetKind() {
			return e, i
		}
	}
	return nil, 0
}

// Unedited says whether a created object is as the change left it.
func (rec *Recorder) Unedited(e *Entry, i int, live *unstructured.Unstructured) bool {
	rec.Mu.Lock()
	hash := e.Steps[i].hash
	rec.Mu.Unlock()
	if hash != "" {
		return hash == patch.Hash(live, rec.Ignored)
	}
	// The answer of its creation was lost, or its process was killed: it is compared
	// with what was planned. The server may have added defaults to the spec.
	return patch.AsPlanned(live, e.Unit.Changes[i].Object, rec.Ignored)
}

// Continues decides which changes of an interrupted unit are still made as they were
// planned then; false if none is. They are those that were begun; those that
// restore or replace what it has deleted; all of a unit that commits, once it has
// deleted anything; all of one that follows from another that was begun; and what
// comes last because of something that was begun. The others are left to the plan of
// now. Where a guarded change was begun, and the plan of now does not want what
// belongs to it, it is undone when the unit is executed.
func (rec *Recorder) Continues(e *Entry, wanted map[ChangeKey]*migration.Change, follows bool, begun map[string]bool) bool {
	if follows || e.Last && len(begun) > 0 && anyTrue(begun) {
		return true
	}
	deleted := -1
	for i := range e.Unit.Changes {
		if e.Unit.Changes[i].Verb == migration.Delete && e.MadeOrBegun(i) {
			deleted = i
			break
		}
	}
	if e.Unit.Commit && deleted >= 0 {
		return true
	}
	kept := false
	keep := make([]bool, len(e.Unit.Changes))
	for i := range e.Unit.Changes {
		ch := &e.Unit.Changes[i]
		of := e.DeletionOf(i)
		switch {
		case ch.Writes() && e.MadeOrBegun(i):
			keep[i] = true
		case makesObject(ch.Verb) && of >= 0 && e.MadeOrBegun(of):
			keep[i] = true
		case e.halfMade(i) && wanted[ChangeKey{ch.Verb, ch.Ref}] != nil:
			// The rest of a guarded step goes on as one with what was begun of it.
			keep[i] = true
		}
		kept = kept || keep[i]
	}
	for i := range keep {
		if !keep[i] {
			rec.SetState(e, i, StepLeft)
		}
	}
	if !kept {
		e.Reports = nil
	}
	return kept
}

func anyTrue(m map[string]bool) bool {
	for _, v := range m {
		if v {
			return true
		}
	}
	return false
}

// Recorder is the journal of one run, and what is known of each of its changes.
type Recorder struct {
	Log      *zap.Logger
	Ignored  map[string]bool
	Journals *Store
	// Journal is nil until there is something to write.
	Journal *Journal

	// marking keeps marks of one journal in order.
	marking sync.Mutex
	// Mu guards what is known of the entries.
	Mu sync.Mutex
}

// RestoredUID says whether the UID is that of an object which the run has begun
// to delete: another one of its name may be what came of restoring it.
func (rec *Recorder) RestoredUID(uid types.UID) bool {
	return anyDeletes(rec, uid, func(e *Entry, i int) bool { return e.Steps[i].State.Begun() })
}

// DeletedBefore says whether a unit of the journal before that of the entry has begun to delete
// the object of that UID: a rollback comes to it later, and restores the object then.
func DeletedBefore(rec *Recorder, e *Entry, uid types.UID) bool {
	return anyDeletes(rec, uid, func(d *Entry, i int) bool { return d.Seq < e.Seq && d.Steps[i].State.Begun() })
}

// anyDeletes says whether any change of the journal for which it is so deletes the object of that
// UID.
func anyDeletes(rec *Recorder, uid types.UID, counts func(e *Entry, i int) bool) bool {
	entries := rec.Journal.Entries()
	rec.Mu.Lock()
	defer rec.Mu.Unlock()
	for _, e := range entries {
		for i := range e.Unit.Changes {
			if e.Unit.Changes[i].Verb != migration.Delete || !counts(e, i) {
				continue
			}
			switch {
			case e.Pre[i].Object != nil && e.Pre[i].Object.GetUID() == uid, e.unloaded != nil && e.unloaded[i] == uid:
				return true
			}
		}
	}
	return false
}

// ChangeKey is a change that a plan wants, by its verb and object.
type ChangeKey struct {
	Verb migration.Verb
	Ref  migration.Ref
}

// Progress counts the independent units of a run: those that are done, and all. Those that an
// earlier report has counted, and those that were given up for others, are none of them.
// changed says whether any of them was begun.
func (rec *Recorder) Progress(units []migration.Unit) (done, all int, changed bool) {
	journaled := map[string]bool{}
	for _, e := range rec.Journal.Entries() {
		journaled[e.Unit.ID] = true
		if !e.Unit.Independent || e.Kept || e.Read && e.Done && len(e.Reports) == 0 {
			continue
		}
		all++
		if e.Done {
			done++
		}
		for i := range e.Unit.Changes {
			changed = changed || e.Unit.Changes[i].Writes() && rec.StateOf(e, i).Begun()
		}
	}
	for i := range units {
		if units[i].Independent && !journaled[units[i].ID] {
			all++
		}
	}
	return done, all, changed
}

// WriteMarks writes what this process knows to be done, for the next one.
func (rec *Recorder) WriteMarks(parent context.Context) {
	if rec.Journal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), lease.CallTimeout)
	defer cancel()
	rec.marking.Lock()
	defer rec.marking.Unlock()
	for _, c := range rec.Journal.All() {
		if marks := rec.Marks(c); len(marks) > 0 {
			if err := rec.Journals.Mark(ctx, c.Name, marks); err != nil {
				rec.Log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
				return
			}
		}
	}
}

// ChangedIn counts the changes of objects in each namespace, those of an earlier rollback included:
// what was made, also if it was undone since. What was left, refused or found done is none; where
// one failed, there is at least a count of 0.
func (rec *Recorder) ChangedIn(earlier []migration.ChangeReport) map[string]int {
	in := map[string]int{}
	count := func(ch *migration.ChangeReport, begun bool) {
		switch ch.Result {
		case migration.ChangeDone, migration.ChangeRolledBack, migration.ChangeNotRestored, migration.ChangeProtected, migration.ChangeOpen:
		case migration.ChangeFailed:
			// It was refused, unless it was made and not ready in time.
		default:
			return
		}
		if ch.Verb == migration.Await || ch.Namespace == "" {
			return
		}
		in[ch.Namespace] += 0
		if begun || ch.Result != migration.ChangeFailed {
			in[ch.Namespace]++
		}
	}
	for i := range earlier {
		count(&earlier[i], false)
	}
	if rec.Journal == nil {
		return in
	}
	for _, e := range rec.Journal.Entries() {
		for i := range e.Reports {
			count(&e.Reports[i], rec.StateOf(e, i).Begun())
		}
	}
	return in
}
