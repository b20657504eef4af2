package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// keeperAnswer is the job's last answer to which objects carry live events.
type protectorAnswer struct {
	mu        sync.Mutex
	refs      []migration.Ref
	protected map[migration.Ref]string
	err       error
	asked     time.Time
}

// reversal takes back what a journal says was done, newest change first.
type rollback struct {
	r      *actor
	waiter *waiter
	// careful refuses objects that were edited since: undo, but not rollback,
	// comes long after the change.
	careful bool
	// undo: what cannot be restored now may be undone later.
	undo bool
	// unsure: an earlier process has begun this reversal, and may have undone the units
	// from this sequence number on.
	unsure    int
	protector protectorAnswer

	mu sync.Mutex
	// unrestored counts changes that stay though they should have gone, forGood
	// those of them that have no way back; retry says that trying again may help.
	unrestored int
	forGood    int
	retry      bool
	protected  int
	// finished counts the units that stay since they are finished (see Unit.Commit).
	finished int
	// unproven counts what was restored although this run may not have changed it.
	unproven int
	// effects are the changes taken back upon which a controller may have made objects.
	effects []effect
	// removed are the hashes of what a controller had made and was deleted.
	removed map[migration.Ref]string
	// others are objects in the place of side effects that others had made.
	others map[types.UID]bool
}

// effect is a change that was taken back, and what a controller makes because of it.
type effect struct {
	of     migration.Ref
	report *migration.ChangeReport
	refs   []migration.Ref
	entry  *entry
	change int
}

const (
	// settling is how long a controller may take to see that a change was taken
	// back: a reconciliation that began before still makes its objects, some of them
	// several, at client-go's default of 5 requests a second.
	controllerPause = 3 * time.Second
	// settlings bounds how often what comes back is taken away again.
	deleteAttempts = 4
)

// back reverses the whole journal. It returns an error only if the reversal
// itself was cut off; what could not be restored is in the reversal's counts,
// in the findings and in the changes' reports.
func (a *actor) rollBack(ctx context.Context, careful, resumed bool) (*rollback, error) {
	// The forward run's collections are stale or trimmed: look afresh.
	a.cluster = a.newCluster()
	v := &rollback{r: a, waiter: newWaiter(ctx, a.cluster), careful: careful, undo: careful, unsure: a.journal.undone}
	if !resumed {
		v.unsure, a.journal.undone = math.MaxInt, math.MaxInt
	}
	entries := a.journal.entries()
	slices.Reverse(entries)
	v.askProtector(ctx, entries)
	a.log.Info("taking back what was done", zap.String("run", a.journal.Run), zap.Int("units", len(entries)))
	var work errgroup.Group
	work.SetLimit(max(1, a.journal.Parallelism))
	if a.journal.Serial {
		work.SetLimit(1)
	}
	var unmarked error
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		if unmarked = a.reload(ctx, e); unmarked != nil {
			break
		}
		if a.hasBegun(e) {
			if unmarked = a.journals.lower(ctx, a.journal, e); unmarked != nil {
				break
			}
		}
		work.Go(func() error { return v.entry(ctx, e) })
	}
	err := errors.Join(work.Wait(), unmarked)
	if err == nil {
		err = v.awaitControllers(ctx)
	}
	if _, waited := errors.AsType[*cutOffError](err); ctx.Err() != nil && !waited {
		err = context.Cause(ctx)
	}
	return v, err
}

// settle waits until controllers have seen what was taken back, and takes away
// again what they made before they did: with the label of a namespace gone,
// Knative's controller may still answer the deletion of its Broker with a new one.
func (v *rollback) awaitControllers(ctx context.Context) error {
	for round := 1; len(v.effects) > 0; round++ {
		v.r.log.Info("making sure that what was taken away stays away", zap.Int("changes", len(v.effects)), zap.Duration("for", controllerPause))
		if err := k8sutil.Sleep(ctx, controllerPause); err != nil {
			return err
		}
		effects := v.effects
		v.effects = nil
		var work errgroup.Group
		work.SetLimit(max(1, v.r.journal.Parallelism))
		for _, e := range effects {
			work.Go(func() error {
				back, err := v.deleteReappeared(ctx, e)
				hint := v.r.restoreHint()
				switch {
				case err != nil:
				case back == nil:
					return nil
				case round < deleteAttempts:
					v.checkLater(e)
					return nil
				default:
					err = &changedError{ref: *back, problem: "comes back each time it is deleted"}
					hint = "somebody makes it, such as a GitOps tool: delete it there"
				}
				_, err = v.notRestored(ctx, e.of, e.report, err, hint)
				return err
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// lookAgain has settle look whether what a controller made stays away.
func (v *rollback) checkLater(e effect) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.effects = append(v.effects, e)
}

// cameBack deletes what a controller has made once more, and returns one of it. What
// differs from what the controller made before is somebody else's, and stays.
func (v *rollback) deleteReappeared(ctx context.Context, e effect) (back *migration.Ref, err error) {
	if v.isInForce(ctx, e.entry, e.change) {
		return nil, nil // somebody has made the same change since: what comes of it is wanted
	}
	for _, ref := range e.refs {
		live, err := v.r.get(ctx, ref, "")
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		v.mu.Lock()
		former, removed := v.removed[ref]
		others := v.others[live.GetUID()]
		v.mu.Unlock()
		if others {
			continue
		}
		made := live.GetCreationTimestamp()
		late := !removed && !made.Before(&e.entry.chunk.created)
		if !late && (!removed || former != hashOf(live, v.r.recorder.ignored)) {
			continue
		}
		if _, err := v.deleteLive(ctx, ref, live, nil); err != nil {
			return nil, err
		}
		if late {
			v.r.tell(deletedUnproven(ref))
		}
		back = &ref
	}
	return back, nil
}

// askKeeper notes which objects the reversal of these units may delete, and asks the job
// which of them carry live events.
func (v *rollback) askProtector(ctx context.Context, entries []*entry) {
	k := &v.protector
	for _, e := range entries {
		for i := range e.Unit.Changes {
			if e.Unit.Changes[i].Verb == migration.Create && !e.restores(i) {
				k.refs = append(k.refs, e.Unit.Changes[i].Ref)
			}
			k.refs = append(k.refs, e.Pre[i].Absent...)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	v.askProtectorAgain(ctx, v.r.cluster)
}

// askKeeperAgain is called with the keeper's answer locked.
func (v *rollback) askProtectorAgain(ctx context.Context, c *migration.Cluster) {
	k := &v.protector
	k.asked = time.Now()
	if keeper, ok := v.r.job.(migration.Protector); ok && len(k.refs) > 0 {
		k.protected, k.err = keeper.Protect(ctx, c, k.refs)
	}
}

// mayDelete returns a keptError if an object carries live events, by an answer of the
// job that is at most freshFor old, and when the job gave it: a reversal of thousands of
// changes takes minutes, in which events may take another path.
func (v *rollback) mayDelete(ctx context.Context, ref migration.Ref) (asked time.Time, err error) {
	k := &v.protector
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.asked) > freshFor {
		v.askProtectorAgain(ctx, v.r.newCluster())
	}
	if k.err != nil {
		return k.asked, fmt.Errorf("cannot tell whether it carries live events: %w", k.err)
	}
	if reason, ok := k.protected[ref]; ok {
		return k.asked, &protectedError{ref, reason}
	}
	return k.asked, nil
}

// entry reverses one unit, its last change first.
func (v *rollback) entry(ctx context.Context, e *entry) error {
	if e.done && e.Unit.Commit && v.r.hasBegun(e) {
		v.count(&v.finished)
	}
	for i := len(e.Unit.Changes) - 1; i >= 0; i-- {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ch := &e.Unit.Changes[i]
		report := &e.reports[i]
		if !ch.Writes() {
			continue
		}
		state := v.r.stateOf(e, i)
		if !state.begun() {
			// Nothing was done: what happened to the object since is others' doing.
			if report.Result == migration.ChangeOpen {
				report.Result = migration.ChangeNotStarted
			}
			continue
		}
		if e.done && e.Unit.Commit {
			report.Result, report.Message = migration.ChangeProtected, "a finished unit stays"
			continue
		}
		outcome, err := v.reverse(ctx, e, i, state)
		if err == nil && outcome == migration.ChangeRolledBack && (ch.Verb == migration.Delete || ch.Verb == migration.Patch) {
			f := migration.Finding{Severity: migration.Warning, Object: ch.Ref.String(), Hint: "check the object, and change it again if that was intended"}
			switch {
			case !state.isProven():
				v.count(&v.unproven)
				f.Problem = "restored, although there is no proof that this run changed it before it was killed: somebody else may have"
				v.r.tell(f)
			case e.Seq >= v.unsure:
				f.Problem = "restored by a rollback that goes on after an interruption: if the interrupted one had restored it already, somebody had deleted or changed it since"
				v.r.tell(f)
			}
		}
		switch {
		case err != nil:
			hint := v.r.restoreHint()
			if goOn, err := v.notRestored(ctx, ch.Ref, report, err, hint); !goOn {
				return err
			}
		case outcome == "" && report.Result == migration.ChangeOpen:
			report.Result = migration.ChangeNotStarted
		case outcome != "":
			report.Result = outcome
			if absent := e.Pre[i].Absent; len(absent) > 0 {
				v.checkLater(effect{ch.Ref, report, absent, e, i})
			}
			v.r.log.Info("undone: "+string(ch.Verb), zap.String("object", ch.Ref.String()))
		}
	}
	return nil
}

// reverse undoes one change, and with it what a controller made because of it: only
// if the change is in force, and only what is known to come from it.
func (v *rollback) reverse(ctx context.Context, e *entry, i int, state stepState) (string, error) {
	absent := e.Pre[i].Absent
	if len(absent) == 0 {
		return v.change(ctx, e, i)
	}
	if !state.isReverting() && v.isInForce(ctx, e, i) {
		// A rollback that is killed between the two must know that the change was its own.
		reverting := stepReverting
		if !state.isProven() {
			reverting = stepRevertingUnproven
		}
		v.r.setState(e, i, reverting)
		if err := v.r.journals.mark(ctx, e.chunk.name, v.r.marks(e.chunk)); err != nil {
			return "", err
		}
		state = reverting
	}
	outcome, err := v.change(ctx, e, i)
	if err == nil && state.isReverting() {
		outcome = migration.ChangeRolledBack
	}
	if err != nil || outcome != migration.ChangeRolledBack {
		return outcome, err
	}
	for _, ref := range absent {
		taken, err := v.deleteCreated(ctx, ref, func(live *unstructured.Unstructured) (bool, error) {
			ours, err := v.r.isEffect(e, i, ref, live, v.careful)
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.removed == nil {
				v.removed, v.others = map[migration.Ref]string{}, map[types.UID]bool{}
			}
			if ours {
				v.removed[ref] = hashOf(live, v.r.recorder.ignored)
			} else {
				v.others[live.GetUID()] = true
			}
			return ours, err
		})
		if err != nil {
			return "", err
		}
		if taken == migration.ChangeRolledBack {
			outcome = taken
		}
	}
	return outcome, nil
}

// isInForce says whether the cluster shows a patch as this run made it.
func (v *rollback) isInForce(ctx context.Context, e *entry, i int) bool {
	ch, pre := &e.Unit.Changes[i], e.Pre[i].Object
	live, err := v.r.get(ctx, ch.Ref, ch.Subresource)
	return err == nil && live != nil && pre != nil && live.GetUID() == pre.GetUID() && isPatched(live, ch) && !isPatched(pre, ch)
}

// stays notes why a change was not taken back, and says whether what came before it
// in its unit can be all the same. It returns an error only if the reversal is cut off.
func (v *rollback) notRestored(ctx context.Context, ref migration.Ref, report *migration.ChangeReport, err error, hint string) (goOn bool, _ error) {
	if kept, ok := errors.AsType[*protectedError](err); ok {
		v.count(&v.protected)
		report.Result, report.Message = migration.ChangeProtected, kept.Error()
		v.r.tell(migration.Finding{Severity: migration.Warning, Object: kept.ref.String(), Problem: "protected: " + kept.reason})
		return true, nil
	}
	if ctx.Err() != nil || ended(err) {
		return false, fmt.Errorf("%s: %w", ref, err)
	}
	v.count(&v.unrestored)
	switch moved, ok := errors.AsType[*changedError](err); {
	case !ok:
		v.mu.Lock()
		v.retry = true
		v.mu.Unlock()
	case moved.forGood:
		v.count(&v.forGood)
		fallthrough
	case !v.undo && hint == v.r.restoreHint():
		// The journal is closed: there is nothing that could be undone once more.
		hint = fmt.Sprintf("it has to be restored by hand; its former state is in the journal: kubectl -n %s get secrets -l %s=%s", v.r.stateNamespace, labelRun, v.r.journal.Run)
	}
	report.Result, report.Message = migration.ChangeNotRestored, err.Error()
	v.r.tell(migration.Finding{
		Severity: migration.Error, Object: ref.String(), Problem: "not restored: " + problemOf(ref, err), Hint: hint,
	})
	v.r.log.Error("cannot take back", zap.String("object", ref.String()), zap.Error(err))
	// What came before it in the unit is built upon: leave it.
	return false, nil
}

func (v *rollback) count(n *int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*n++
}

// change reverses one change. It looks at the cluster, not at what the journal
// says was done: the mark may lag behind. The outcome is "" if there was nothing
// to take back.
func (v *rollback) change(ctx context.Context, e *entry, i int) (string, error) {
	ch := &e.Unit.Changes[i]
	switch {
	case ch.Irreversible:
		made, err := v.made(ctx, e, i)
		if err != nil || !made {
			return "", err
		}
		return "", &changedError{ref: ch.Ref, problem: "was changed for good: this change cannot be undone", forGood: true}
	case ch.Verb == migration.Create && e.restores(i):
		// Reversed with the deletion before it.
		return "", nil
	case ch.Verb == migration.Create:
		return v.deleteCreated(ctx, ch.Ref, func(live *unstructured.Unstructured) (bool, error) {
			if live.GetAnnotations()[MarkAnnotation] != v.r.mark(e, i) {
				return false, nil // ours is gone, this is somebody else's
			}
			if v.r.unedited(e, i, live) {
				return true, nil
			}
			if v.careful {
				return false, &changedError{ref: ch.Ref, problem: "was edited after the run; it is left alone"}
			}
			v.r.tell(migration.Finding{
				Severity: migration.Warning, Object: ch.Ref.String(),
				Problem: "deleted by the rollback, although somebody edited it after this run had created it",
			})
			return true, nil
		})
	case recreatedBy(&e.Unit, i) >= 0:
		return v.recreate(ctx, e, i)
	case ch.Verb == migration.Delete:
		return v.restoreDeleted(ctx, ch, e.Pre[i].Object)
	case ch.Verb == migration.Patch:
		return v.revertPatch(ctx, e, i)
	default:
		return "", nil
	}
}

// made says whether an irreversible change took place. Of what failed, or was
// left without a mark by an earlier process, the cluster tells.
func (v *rollback) made(ctx context.Context, e *entry, i int) (bool, error) {
	if e.reports[i].Result == migration.ChangeUnchanged {
		return false, nil
	}
	if e.done || v.r.stateOf(e, i).isDone() {
		return true, nil
	}
	ch, pre := &e.Unit.Changes[i], e.Pre[i].Object
	live, err := v.r.get(ctx, ch.Ref, ch.Subresource)
	switch {
	case err != nil:
		return false, err
	case live == nil || pre != nil && live.GetUID() != pre.GetUID():
		return true, nil
	case ch.Verb == migration.Patch:
		return isPatched(live, ch), nil
	default:
		return live.GetDeletionTimestamp() != nil, nil
	}
}

// keptError says why an object stays.
type protectedError struct {
	ref    migration.Ref
	reason string
}

func (e *protectedError) Error() string { return e.reason }

// takeAway deletes an object that exists because of the run, and waits until it
// is gone. ours, if not nil, decides by the live object.
func (v *rollback) deleteCreated(ctx context.Context, ref migration.Ref, ours func(*unstructured.Unstructured) (bool, error)) (string, error) {
	collection, err := v.r.cluster.Collection(ctx, ref.Resource, ref.Namespace)
	if apierrors.IsNotFound(err) {
		return "", nil // its kind is not served any more: it went with it
	}
	if err != nil {
		return "", err
	}
	live := collection.Get(ref.Namespace, ref.Name)
	if live == nil {
		return "", nil
	}
	return v.deleteLive(ctx, ref, live, ours)
}

// takeAwayLive is takeAway of an object that was read.
func (v *rollback) deleteLive(ctx context.Context, ref migration.Ref, live *unstructured.Unstructured, ours func(*unstructured.Unstructured) (bool, error)) (string, error) {
	if ours != nil {
		if ok, err := ours(live); !ok || err != nil {
			return "", err
		}
	}
	uid := live.GetUID()
	client := ref.Resource.In(v.r.client, ref.Namespace)
	remove := func(ctx context.Context) error {
		version := live.GetResourceVersion()
		err := client.Delete(ctx, ref.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			PropagationPolicy: v.r.propagation(ref),
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		answer := err
		now, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && now.GetUID() != uid:
			return nil
		case err != nil:
			return err
		}
		k8sutil.Trim(now)
		if ours != nil {
			if ok, err := ours(now); !ok || err != nil {
				return k8sutil.Permanent(errors.Join(err, &changedError{ref: ref, problem: "changed while it was taken back"}))
			}
		}
		live = now
		return k8sutil.Retryable(answer)
	}
	err := errOldDecision
	for errors.Is(err, errOldDecision) {
		asked, refused := v.mayDelete(ctx, ref)
		if refused != nil {
			return "", refused
		}
		err = v.r.write(decided(ctx, &decision{asked: asked}), remove)
	}
	if err != nil {
		return "", err
	}
	if len(live.GetFinalizers()) > 0 {
		err = v.waiter.wait(ctx, []migration.Condition{gone(ref, uid, &migration.Change{Ref: ref})}, time.Now())
	}
	return migration.ChangeRolledBack, err
}

// bringBack creates a deleted object again from its pre-image.
func (v *rollback) restoreDeleted(ctx context.Context, ch *migration.Change, pre *unstructured.Unstructured) (string, error) {
	if pre == nil {
		return "", nil
	}
	live, err := v.r.get(ctx, ch.Ref, "")
	if err != nil {
		return "", err
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		if err := v.waiter.wait(ctx, []migration.Condition{gone(ch.Ref, live.GetUID(), ch)}, time.Now()); err != nil {
			return "", err
		}
		live = nil
	}
	if live != nil {
		switch {
		case live.GetUID() == pre.GetUID():
			return "", nil // never deleted
		case !holds(live, pre):
			return "", &changedError{ref: ch.Ref, problem: "was created again by somebody else, differently; the journal keeps the former one"}
		}
		return "", v.waitRestored(ctx, ch)
	}
	if _, _, err := v.r.createAgain(ctx, ch.Ref, k8sutil.Restorable(pre), noAttempt); err != nil {
		return "", goneForGood(ch.Ref, err)
	}
	return migration.ChangeRolledBack, v.waitRestored(ctx, ch)
}

func (v *rollback) waitRestored(ctx context.Context, ch *migration.Change) error {
	restorer, ok := v.r.job.(migration.Restorer)
	if !ok {
		return nil
	}
	return v.waiter.wait(ctx, restorer.AwaitRestored(ch), time.Now())
}

// restoredUID says whether the UID is that of an object which the journal
// deleted.
func (rec *recorder) restoredUID(uid types.UID) bool {
	entries := rec.journal.entries()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, e := range entries {
		for i := range e.Unit.Changes {
			if e.Unit.Changes[i].Verb != migration.Delete {
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

// leftToOthers says whether the unit was to delete the patched object of change i
// later, and found that somebody else had.
func (e *entry) leftToOthers(i int) bool {
	k := deletes(&e.Unit, i)
	return k > i && e.steps[k].state == stepLeft
}

// goneForGood makes the answer that a namespace or a kind is gone one that another
// attempt cannot change: the object cannot be restored any more.
func goneForGood(ref migration.Ref, err error) error {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &changedError{ref: ref, problem: "cannot be restored: its namespace is being deleted", forGood: true}
	case apierrors.IsNotFound(err):
		return &changedError{ref: ref, problem: "cannot be restored: its namespace does not exist any more, or the API server does not serve its kind any more", forGood: true}
	}
	return err
}

// putBack undoes a patch: our fields, unless somebody changed them since.
func (v *rollback) revertPatch(ctx context.Context, e *entry, i int) (string, error) {
	ch, pre := &e.Unit.Changes[i], e.Pre[i].Object
	live, err := v.r.get(ctx, ch.Ref, ch.Subresource)
	switch {
	case err != nil:
		return "", err
	case live == nil && e.leftToOthers(i):
		return "", nil
	case live == nil && v.r.restoredUID(pre.GetUID()):
		return "", &changedError{ref: ch.Ref, problem: "was deleted by somebody else"}
	case live == nil:
		// Nothing of the patch is in force, and the deletion is none of this run's.
		e.reports[i].Message = "its object was deleted by somebody else"
		v.r.tell(migration.Finding{
			Severity: migration.Warning, Object: ch.Ref.String(),
			Problem: "was deleted by somebody else, so that there is nothing to undo on it",
			Hint:    fmt.Sprintf("if it is missed, create it again; what it was before is in the journal: kubectl -n %s get secrets -l %s=%s", v.r.stateNamespace, labelRun, v.r.journal.Run),
		})
		return "", nil
	case live.GetUID() != pre.GetUID() && v.r.restoredUID(pre.GetUID()):
		// A later change of the journal deleted it, and it is back from a pre-image
		// that was read before this patch.
		return migration.ChangeRolledBack, nil
	case live.GetUID() != pre.GetUID():
		return "", &changedError{ref: ch.Ref, problem: "was created again by somebody else; it is left alone"}
	}
	var subresources []string
	if ch.Subresource != "" {
		subresources = []string{ch.Subresource}
	}
	client := ch.Ref.Resource.In(v.r.client, ch.Ref.Namespace)
	outcome := ""
	told := false
	err = v.r.write(ctx, func(ctx context.Context) error {
		back, theirs, err := inversePatch(pre, live, ch.Patch)
		switch {
		case err != nil:
			return k8sutil.Permanent(err)
		case theirs > 0 && v.careful:
			return k8sutil.Permanent(&changedError{ref: ch.Ref, problem: "was edited after the run; its fields are left alone"})
		case theirs > 0 && !told:
			told = true
			v.r.tell(migration.Finding{
				Severity: migration.Warning, Object: ch.Ref.String(),
				Problem: fmt.Sprintf("%s edited by somebody else in the meantime; left as they are now", count(theirs, "field")),
			})
		}
		if back, err = withListEdits(back, live, inverse(pre, ch.Lists)); err != nil {
			return k8sutil.Permanent(err)
		}
		if back == nil {
			return nil // never applied, or undone already
		}
		if live.GetDeletionTimestamp() != nil {
			return k8sutil.Permanent(&changedError{ref: ch.Ref, problem: "is being deleted by somebody else"})
		}
		_, err = client.Patch(ctx, ch.Ref.Name, types.JSONPatchType, back, metav1.PatchOptions{}, subresources...)
		if err == nil {
			outcome = migration.ChangeRolledBack
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			if k8sutil.IsTransient(err) {
				outcome = migration.ChangeRolledBack // the request may have been carried out
			}
			return err
		}
		answer := err
		// A field changed on the way, or an earlier attempt was carried out.
		now, err := client.Get(ctx, ch.Ref.Name, metav1.GetOptions{}, subresources...)
		if err != nil {
			return err
		}
		k8sutil.Trim(now)
		live = now
		return k8sutil.Retryable(answer)
	})
	return outcome, err
}
