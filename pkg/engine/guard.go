package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// guardOf returns the guarded change that change i belongs to, -1 if none.
func (e *entry) guardOf(i int) int {
	for ; i >= 0; i-- {
		if e.Unit.Changes[i].Guard {
			return i
		}
	}
	return -1
}

// guardEnd returns the index behind the changes that belong to the guarded change i.
func guardEnd(u *migration.Unit, i int) int {
	for i++; i < len(u.Changes); i++ {
		if u.Changes[i].Guard {
			return i
		}
	}
	return len(u.Changes)
}

// decides says whether change i is made on the job's answer about its guarded step. What
// restores or replaces what the step has deleted is made in any case.
func (e *entry) decides(i int) bool {
	guard := e.guardOf(i)
	return guard >= 0 && e.Unit.Changes[i].Verb != migration.Create &&
		!slices.ContainsFunc(e.Unit.Changes[guard:i], func(ch migration.Change) bool { return ch.Verb == migration.Delete })
}

// leavesFrom returns the change from which on a unit can be left when change i finds
// its object changed by somebody else: that of its guard, or i itself if nothing of
// the unit was written before; -1 if it cannot. What is to be created and exists is no
// change of that kind: it fails the run.
func (e *entry) leavesFrom(i int) int {
	if guard := e.guardOf(i); guard >= 0 {
		return guard
	}
	if firstWrite(e.Unit.Changes) == i && e.Unit.Changes[i].Verb != migration.Create {
		return i
	}
	return -1
}

// undecided says whether the job has to be asked about the guarded change i: not if
// an earlier process has begun all that belongs to it. gaveUp is set if it has begun
// a part, and the plan of now does not want the rest.
func (rec *recorder) undecided(e *entry, i int) (ask, gaveUp bool) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	begun := false
	for k := i; k < guardEnd(&e.Unit, i); k++ {
		switch {
		case !e.Unit.Changes[k].Writes():
		case e.madeOrBegun(k):
			begun = true
		case e.steps[k].state == stepLeft:
			gaveUp = true
		case e.deletionOf(k) >= 0 && e.madeOrBegun(e.deletionOf(k)):
			// It restores or replaces what was deleted: see goesOn.
		default:
			ask = true
		}
	}
	if e.Unit.Commit && begun {
		return false, false // it goes on whole
	}
	return ask, gaveUp && begun
}

// decision is the job's answer that a guarded write acts on.
type decision struct {
	asked time.Time
	// once: it is about the first request only; what that one began is finished.
	once, sent bool
}

type decisionKey struct{}

// errOldDecision is returned instead of a request that would act on an answer of the
// job that is older than freshFor.
var errOldDecision = errors.New("the reason for it was checked too long ago")

// decided is the context of a guarded write. Waits for a slot, and attempts that fail
// for a moment, take time: no request is sent later than freshFor after the answer.
func decided(ctx context.Context, d *decision) context.Context {
	return context.WithValue(ctx, decisionKey{}, d)
}

// checkDecision is called before each request of a write.
func checkDecision(ctx context.Context) error {
	d, ok := ctx.Value(decisionKey{}).(*decision)
	if !ok || d.once && d.sent {
		return nil
	}
	if time.Since(d.asked) > freshFor {
		return k8sutil.Permanent(errOldDecision)
	}
	d.sent = true
	return nil
}

// decide asks the job about the guarded change i, and leaves it if its reason does not
// hold any more, or if an earlier process gave up a part of it. asked is when the job
// answered.
func (x *executor) decide(ctx context.Context, e *entry, i int, p *place, waited time.Time, gaveUp bool) (left bool, asked time.Time, err error) {
	finding := &migration.Finding{
		Severity: migration.Warning, Object: e.Unit.Changes[guardEnd(&e.Unit, i)-1].Ref.String(),
		Problem: "an interrupted run had begun it, and its reason does not hold any more: what was begun of it is undone",
	}
	if !gaveUp {
		finding, asked, err = x.recheck(e, i, p, waited)
	}
	if err == nil && finding != nil {
		err = x.leave(ctx, e, i, *finding)
	}
	return finding != nil, asked, err
}

// recheck asks the job whether the reason for a guarded change still holds: nil if
// it does. A unit that has waited gives up its place meanwhile, so that what it
// reads delays nobody; the answer is then not older than a shared read.
func (x *executor) recheck(e *entry, i int, p *place, waited time.Time) (*migration.Finding, time.Time, error) {
	ch := &e.Unit.Changes[i]
	rechecker, ok := x.r.job.(migration.Rechecker)
	if !ok {
		return &migration.Finding{
			Severity: migration.Deferred, Object: ch.Ref.String(), Problem: "not done: this version of the job cannot check whether the reason for it still holds",
			Hint: "run it with the version that began it",
		}, time.Time{}, nil
	}
	for {
		asking := &place{room: x.asking}
		if !waited.IsZero() && !x.serial {
			// It comes back to a room of its own: the one it leaves may fill with units
			// that wait for what this one is about to do. That room is not kept while it
			// waits to ask: others wait for it who ask.
			if p.room == x.checked {
				p.leave()
			}
			if !asking.take(x.work) {
				return nil, time.Time{}, errStopped
			}
			p.leave()
			p.room = x.checked
		}
		finding, err := rechecker.Recheck(x.work, &fresh{shared: x.shared, waiter: x.waiter, after: waited}, &e.Unit, i)
		asked := time.Now()
		entered := p.held || p.take(x.work)
		asking.leave()
		if !entered {
			return nil, asked, errStopped
		}
		switch {
		case x.work.Err() != nil:
			return nil, asked, context.Cause(x.work)
		case err != nil:
			return &migration.Finding{
				Severity: migration.Deferred, Object: ch.Ref.String(), Problem: fmt.Sprintf("not done: cannot check whether the reason for it still holds: %v", err),
				Hint: "fix the error, and run the job again",
			}, asked, nil
		case finding != nil || time.Since(asked) <= freshFor:
			return finding, asked, nil
		}
	}
}

// notAsDecided is the finding about an object that somebody changed since the plan.
func notAsDecided(moved *changedError) migration.Finding {
	return migration.Finding{Severity: migration.Deferred, Object: moved.ref.String(), Problem: "not done: it " + moved.problem, Hint: "run the job again: it decides on the object as it is then"}
}

// leave gives up the guarded change i and those that belong to it. What an earlier
// process has made of them is undone.
func (x *executor) leave(ctx context.Context, e *entry, i int, f migration.Finding) error {
	end := guardEnd(&e.Unit, i)
	if err := x.retreat(ctx, e, i, end); err != nil {
		return err
	}
	x.r.recorder.mu.Lock()
	for k := i; k < end; k++ {
		e.steps[k].state = stepLeft
		if e.reports[k].Result != migration.ChangeRolledBack {
			e.reports[k].Result = migration.ChangeLeft
		}
		e.reports[k].Message = f.Problem
	}
	x.r.recorder.mu.Unlock()
	x.r.addFinding(f)
	x.r.log.Warn("not done: its reason does not hold any more", zap.String("object", f.Object), zap.String("problem", f.Problem))
	return nil
}

// retreat undoes those of the changes from i up to end that were begun, newest
// first.
func (x *executor) retreat(ctx context.Context, e *entry, i, end int) error {
	v := &rollback{r: x.r, waiter: x.waiter}
	for k := end - 1; k >= i; k-- {
		ch := &e.Unit.Changes[k]
		if !ch.Writes() || !x.r.stateOf(e, k).begun() {
			continue
		}
		result, err := v.change(ctx, e, k)
		if err != nil {
			return fmt.Errorf("cannot undo what was done of it: %w", err)
		}
		if result != "" {
			e.reports[k].Result = result
			x.r.log.Info("undone: "+string(ch.Verb), zap.String("object", ch.Ref.String()))
		}
	}
	return nil
}

// leaveUnit reports a unit that is not begun, since an object of it is not what
// it was planned for any more.
func (x *executor) leaveUnit(u *migration.Unit, moved *changedError) {
	f := notAsDecided(moved)
	x.r.addFinding(f)
	for i := range u.Changes {
		report := changeReport(&u.Changes[i], migration.ChangeLeft)
		report.Message = f.Problem
		x.reported(report)
	}
	x.r.log.Warn("not done: it was changed since the plan was made", zap.String("object", f.Object), zap.String("problem", f.Problem))
	x.step(1, 0, u.ID)
}

// recordEffects notes what a controller made because of a change, so that a
// rollback or an undo can tell it from what others made.
func (x *executor) recordEffects(ctx context.Context, e *entry, i int) {
	x.r.recorder.mu.Lock()
	effects := slices.Clone(e.steps[i].effects)
	x.r.recorder.mu.Unlock()
	since := time.Now()
	for _, ref := range e.Pre[i].Absent {
		if slices.ContainsFunc(effects, func(known effectMark) bool { return known.Ref == ref }) {
			continue
		}
		// One list of a kind serves all units that end at once.
		f := &fresh{shared: x.shared, waiter: x.waiter, after: since}
		all, err := migration.Shared(ctx, f, "side effects: "+ref.GroupVersionResource.String(), func(ctx context.Context, c *migration.Cluster) (map[migration.Ref]*unstructured.Unstructured, error) {
			found := map[migration.Ref]*unstructured.Unstructured{}
			err := c.Each(ctx, ref.Resource, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
				found[migration.Ref{Resource: ref.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
				return nil
			})
			return found, err
		})
		if err != nil {
			if ctx.Err() == nil {
				x.r.log.Warn("cannot read what a controller made; an undo will leave it", zap.String("object", ref.String()), zap.Error(err))
			}
			return
		}
		if live := all[ref]; live != nil {
			known := effectMark{Ref: ref, UID: live.GetUID()}
			if !e.read {
				// What is there after a kill may have been edited already.
				known.Hash = hashOf(live, x.r.recorder.ignored)
			}
			effects = append(effects, known)
		}
	}
	x.r.recorder.mu.Lock()
	defer x.r.recorder.mu.Unlock()
	e.steps[i].effects = effects
}

// recordLateEffects notes what controllers made only after the units had ended.
func (x *executor) recordLateEffects(ctx context.Context) {
	for _, e := range x.r.journal.entries() {
		for i := range e.Unit.Changes {
			if len(e.Pre[i].Absent) > 0 && x.r.stateOf(e, i).isDone() {
				x.recordEffects(ctx, e, i)
			}
		}
	}
}

// isEffect says whether a live object is one that a controller made because of
// change i. careful: long after, so that only what the journal knows counts, unedited.
func (a *actor) isEffect(e *entry, i int, ref migration.Ref, live *unstructured.Unstructured, careful bool) (bool, error) {
	a.recorder.mu.Lock()
	effects := e.steps[i].effects
	a.recorder.mu.Unlock()
	for _, known := range effects {
		if known.Ref != ref {
			continue
		}
		edited := known.Hash != hashOf(live, a.recorder.ignored)
		switch {
		case known.UID == live.GetUID() && known.Hash == "":
			a.tell(deletedUnproven(ref))
		case known.UID != live.GetUID():
			return false, nil // it was deleted, and somebody made another one
		case edited && careful:
			return false, &changedError{ref: ref, problem: "was edited after the run; it is left alone"}
		case edited:
			a.tell(migration.Finding{
				Severity: migration.Warning, Object: ref.String(),
				Problem: "deleted by the rollback, although somebody edited it after a controller had created it because of this run",
			})
		}
		return true, nil
	}
	if careful && e.done {
		// It did not exist when the run ended: somebody made it later.
		a.tell(migration.Finding{
			Severity: migration.Warning, Object: ref.String(),
			Problem: "left: it did not exist before the run nor when the run ended, so that nobody can tell whether a controller made it because of the run",
			Hint:    "delete it if nobody needs it",
		})
		a.leftEffects.Add(1)
		return false, nil
	}
	// It did not exist when the unit ended, or the unit did not end. What is older than
	// the journal is none of this change's doing.
	made := live.GetCreationTimestamp()
	if made.Before(&e.chunk.created) {
		return false, nil
	}
	a.tell(deletedUnproven(ref))
	return true, nil
}

// deletedUnproven is the finding about an object that was deleted as a side effect
// although there is no proof that it is one.
func deletedUnproven(ref migration.Ref) migration.Finding {
	return migration.Finding{
		Severity: migration.Warning, Object: ref.String(),
		Problem: "deleted: it was created after this run began, and the journal has no note whether a controller created it because of this run",
		Hint:    "recreate it if a person had created it",
	}
}

// made says whether a live object was created by the open journal of this job and
// not edited since.
func (rec *recorder) made(obj *unstructured.Unstructured) bool {
	if rec.journal == nil {
		return false
	}
	e, i := rec.creatorOf(obj)
	return e != nil && rec.unedited(e, i, obj)
}

// creatorOf finds the change of the journal that created an object, by its mark.
func (rec *recorder) creatorOf(obj *unstructured.Unstructured) (*entry, int) {
	run, number, _ := strings.Cut(obj.GetAnnotations()[MarkAnnotation], "/")
	seq, change, _ := strings.Cut(number, "/")
	n, err := strconv.Atoi(seq)
	if err != nil || run != rec.journal.Run {
		return nil, 0
	}
	i, err := strconv.Atoi(change)
	if err != nil {
		return nil, 0
	}
	for _, c := range rec.journal.all() {
		k, found := slices.BinarySearchFunc(c.entries, n, func(e *entry, seq int) int { return e.Seq - seq })
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

// unedited says whether a created object is as the change left it.
func (rec *recorder) unedited(e *entry, i int, live *unstructured.Unstructured) bool {
	rec.mu.Lock()
	hash := e.steps[i].hash
	rec.mu.Unlock()
	if hash != "" {
		return hash == hashOf(live, rec.ignored)
	}
	// The answer of its creation was lost, or its process was killed: it is compared
	// with what was planned. The server may have added defaults to the spec.
	return asPlanned(live, e.Unit.Changes[i].Object, rec.ignored)
}

// replaced deletes what this job's interrupted run has made and what the plan of
// now wants to be another object: the plan's unit creates that. It returns false if
// the object stays.
func (a *actor) replaced(ctx context.Context, e *entry, i int) (bool, error) {
	v := &rollback{r: a, waiter: newWaiter(ctx, a.cluster), careful: true}
	v.askProtector(ctx, []*entry{e})
	_, err := v.change(ctx, e, i)
	kept, isKept := errors.AsType[*protectedError](err)
	moved, isMoved := errors.AsType[*changedError](err)
	switch {
	case isKept:
		a.addFinding(migration.Finding{
			Severity: migration.Deferred, Object: kept.ref.String(), Problem: "not replaced, although the plan wants another one: " + kept.reason,
			Hint: "change the object by hand into what is wanted, or delete it when it carries no events",
		})
		return false, nil
	case isMoved:
		a.addFinding(notAsDecided(moved))
		return false, nil
	case err != nil:
		return false, err
	}
	a.setState(e, i, stepLeft)
	a.log.Info("deleted what the interrupted run had made, since the plan wants another object", zap.String("object", e.Unit.Changes[i].Ref.String()))
	return true, nil
}
