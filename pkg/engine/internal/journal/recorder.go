package journal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Recorder is the journal of one run, and what is known of each of its changes.
type Recorder struct {
	Log      *zap.Logger
	Ignored  map[string]bool
	Journals *Store
	// Journal is nil until there is something to write.
	Journal *Journal
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

// MarkDone writes what is known of a chunk. Failing to is no failure of the run: without a
// mark, a later run looks at the cluster.
func (rec *Recorder) MarkDone(ctx context.Context, c *Chunk) {
	if err := rec.Journals.Mark(ctx, c); err != nil && ctx.Err() == nil {
		rec.Log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
	}
}

// MarkBehindFirst writes what is known of the chunks that are to be marked, but for the first one:
// its marks go with the phase. See Enter.
func (rec *Recorder) MarkBehindFirst(ctx context.Context, marked func(*Chunk) bool) error {
	for _, c := range rec.Journal.All()[1:] {
		if marked(c) {
			if err := rec.Journals.Mark(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// Enter moves the journal to a phase, and marks its first chunk.
func (rec *Recorder) Enter(ctx context.Context, p Phase) error {
	return rec.Journals.Enter(ctx, rec.Journal, p)
}

// WriteMarks writes what this process knows to be done, for the next one.
func (rec *Recorder) WriteMarks(parent context.Context) {
	if rec.Journal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), lease.CallTimeout)
	defer cancel()
	for _, c := range rec.Journal.All() {
		if len(c.Marks()) == 0 {
			continue
		}
		if err := rec.Journals.Mark(ctx, c); err != nil {
			rec.Log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
			return
		}
	}
}

// Prune removes journals that nobody can need; failing to is no failure of the run.
func (rec *Recorder) Prune(ctx context.Context) {
	if err := rec.Journals.Prune(ctx); err != nil {
		rec.Log.Warn("cannot remove old journals; a later run will", zap.Error(err))
	}
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
	bySeq := map[int]*Entry{}
	for _, s := range stored.entries {
		bySeq[s.Seq] = s
	}
	for _, e := range e.Chunk.entries {
		e.reload(bySeq[e.Seq])
	}
	return nil
}

// Mark is the value of the mark for one change: see migration.Names.
func (rec *Recorder) Mark(s Step) string {
	return fmt.Sprintf("%s/%d/%d", rec.Journal.Run, s.Entry.Seq, s.Index)
}

// SetHash keeps the hash of the object as the step left it.
func (rec *Recorder) SetHash(s Step, live *unstructured.Unstructured) {
	hash := patch.Hash(live, rec.Ignored)
	s.locked(func(k *known) { k.hash = hash })
}

// Unedited says whether a created object is as the step left it.
func (rec *Recorder) Unedited(s Step, live *unstructured.Unstructured) bool {
	if hash := s.hash(); hash != "" {
		return hash == patch.Hash(live, rec.Ignored)
	}
	// The answer of its creation was lost, or its process was killed: it is compared
	// with what was planned. The server may have added defaults to the spec.
	return patch.AsPlanned(live, s.Object, rec.Ignored)
}

// OnlyLabelled says whether a created object has all that was planned, and more labels or
// annotations, of which the answer to its creation would tell, but is not known.
func (rec *Recorder) OnlyLabelled(s Step, live *unstructured.Unstructured) bool {
	return s.hash() == "" && len(patch.Lost(live, s.Object, rec.Ignored)) == 0 &&
		!slices.ContainsFunc(patch.Added(live, s.Object, rec.Ignored), func(path string) bool { return !patch.OfMetadata(path) })
}

// Made says whether a live object was created by the open journal of this job and
// not edited since.
func (rec *Recorder) Made(obj *unstructured.Unstructured) bool {
	if rec.Journal == nil {
		return false
	}
	s, ok := rec.creatorOf(obj)
	return ok && rec.Unedited(s, obj)
}

// creatorOf finds the step of the journal that created an object, by its mark.
func (rec *Recorder) creatorOf(obj *unstructured.Unstructured) (Step, bool) {
	run, number, _ := strings.Cut(obj.GetAnnotations()[rec.Journals.Names.Mark()], "/")
	seq, change, _ := strings.Cut(number, "/")
	n, err := strconv.Atoi(seq)
	if err != nil || run != rec.Journal.Run {
		return Step{}, false
	}
	i, err := strconv.Atoi(change)
	if err != nil {
		return Step{}, false
	}
	for _, c := range rec.Journal.All() {
		k, found := slices.BinarySearchFunc(c.entries, n, func(e *Entry, seq int) int { return e.Seq - seq })
		if !found || i < 0 || i >= len(c.entries[k].Unit.Changes) {
			continue
		}
		s := c.entries[k].Step(i)
		if s.Verb == migration.Create && s.Ref.Name == obj.GetName() && s.Ref.Namespace == obj.GetNamespace() && s.Ref.Kind == obj.GetKind() {
			return s, true
		}
	}
	return Step{}, false
}

// IsRecreated says whether the object in the place of what a step deletes is one that the unit has
// recreated: by its UID, or by its content. What has nothing that its former object and the
// recreated one have not is recreated without a loss, also if somebody else has created it.
func (rec *Recorder) IsRecreated(s Step, live *unstructured.Unstructured) bool {
	again, _ := s.Recreation()
	if uid := live.GetUID(); again.recreatedAs() == uid || s.Unusable() == uid {
		return true
	}
	obj := again.Recreated()
	// Owners that are gone were left out.
	obj.SetOwnerReferences(nil)
	return len(patch.Lost(live, obj, rec.Ignored)) == 0 && len(patch.AddedTo(live, rec.Ignored, obj, s.Pre().Object)) == 0
}

// RestoredUID says whether the UID is that of an object which the run has begun
// to delete: another one of its name may be what came of restoring it.
func (rec *Recorder) RestoredUID(uid types.UID) bool {
	return rec.anyDeletes(uid, func(s Step) bool { return s.State().Begun() })
}

// DeletedBefore says whether a unit of the journal before that of the entry has begun to delete
// the object of that UID: a rollback comes to it later, and restores the object then.
func (rec *Recorder) DeletedBefore(e *Entry, uid types.UID) bool {
	return rec.anyDeletes(uid, func(s Step) bool { return s.Entry.Seq < e.Seq && s.State().Begun() })
}

// anyDeletes says whether any step of the journal for which it is so deletes the object of that
// UID.
func (rec *Recorder) anyDeletes(uid types.UID, counts func(Step) bool) bool {
	for _, e := range rec.Journal.Entries() {
		for _, s := range e.Steps() {
			if s.Verb == migration.Delete && counts(s) && s.found(uid) {
				return true
			}
		}
	}
	return false
}

// Progress counts the independent units of a run: those that are done, and all. Those that an
// earlier report has counted, and those that were given up for others, are none of them.
// changed says whether any of them was begun.
func (rec *Recorder) Progress(units []migration.Unit) (done, all int, changed bool) {
	journaled := map[string]bool{}
	for _, e := range rec.Journal.Entries() {
		journaled[e.Unit.ID] = true
		if !e.Unit.Independent || e.Kept || e.Read && e.Done && len(e.reports) == 0 {
			continue
		}
		all++
		if e.Done {
			done++
		}
		changed = changed || e.HasBegun()
	}
	for i := range units {
		if units[i].Independent && !journaled[units[i].ID] {
			all++
		}
	}
	return done, all, changed
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
		for i := range e.reports {
			count(&e.reports[i], e.Step(i).State().Begun())
		}
	}
	return in
}
