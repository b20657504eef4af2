package rollback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// recreate restores an object that a unit deletes and recreates.
func (v *Rollback) recreate(ctx context.Context, s journal.Step) (string, error) {
	outcome := ""
	for attempt := 1; ; attempt++ {
		made, err := v.recreateOnce(ctx, s)
		if made {
			outcome = migration.ChangeRolledBack
		}
		var waited *wait.Error
		if err == nil || attempt == recreateAttempts || !errors.As(err, &waited) {
			return outcome, err
		}
		v.r.Log.Warn("not restored yet; retrying", zap.String("object", s.Ref.String()), zap.Error(err))
	}
}

func (v *Rollback) recreateOnce(ctx context.Context, s journal.Step) (made bool, err error) {
	pre := s.Pre().Object
	if pre == nil {
		return false, nil
	}
	again, _ := s.Recreation()
	obj := again.Recreated()
	at, err := v.objects.at(ctx, s.Ref, false)
	if err != nil {
		return false, err
	}
	live, err := v.objects.live(ctx, s.Ref, "", false)
	if err != nil {
		return false, err
	}
	if live != nil {
		if live.GetUID() == pre.GetUID() && live.GetDeletionTimestamp() == nil {
			return false, nil // never deleted
		}
		going, err := v.r.DeleteUnusable(ctx, s, at, live, func() error { return nil }) // the journal is in rollback, where no pod is spared
		if err != nil {
			return false, err
		}
		if going {
			err := v.r.Nudging(ctx, v.waiter, s.Change, func() error {
				return v.waiter.Wait(ctx, append([]migration.Condition{act.Gone(s.Ref, live.GetUID(), s.Change)}, v.r.Job.Await(s.Change)...), time.Now())
			})
			if err != nil {
				return false, err
			}
			live = nil
		}
	}
	if live == nil {
		if err := v.r.Namespaces.Same(ctx, s); err != nil {
			return false, err
		}
		if err := v.betweenDeleteAndCreate(ctx, s, again); err != nil {
			return false, err
		}
		made = true
	}
	obj.SetAPIVersion(at.GroupVersion().String())
	created, existed, err := v.r.Writer.Recreate(ctx, at, obj, write.NoAttempt)
	if err != nil {
		return made, err
	}
	if !existed {
		again.SetRecreated(created.GetUID())
		if err := notAsBefore(s.Ref, "was created again", patch.Lost(created, obj, v.r.Recorder.Ignored)); err != nil {
			return made, err
		}
	}
	return made, v.waitRestored(ctx, s.Change)
}

// betweenDeleteAndCreate does what stands between the deletion of an object and its creation.
// What it should wait for is worth some time, but not that the object stays away.
func (v *Rollback) betweenDeleteAndCreate(ctx context.Context, deletion, creation journal.Step) error {
	for _, s := range deletion.Entry.Steps()[deletion.Index+1 : creation.Index] {
		switch {
		case s.Verb == migration.Await:
			err := v.waiter.Wait(ctx, v.r.Job.Await(s.Change), time.Now())
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				v.r.Findings.Add(migration.Finding{ID: "wait-given-up", Severity: migration.Warning, Object: s.Ref.String(), Problem: "stopped waiting for it: " + err.Error()})
			}
		case s.Verb == migration.Restart && s.Late != nil:
			if _, err := v.r.LateRestart(ctx, s, true); err != nil {
				return fmt.Errorf("cannot restart %s: %w", s.Ref, err)
			}
			if err := v.waiter.Wait(ctx, v.r.After(s), time.Now()); err != nil {
				return fmt.Errorf("%s: %w", s.Ref, err)
			}
		}
	}
	return nil
}

// protectorAnswer is the job's last answer to which objects carry live events.
type protectorAnswer struct {
	// turn is held while the answer is read, and while the job is asked, which takes time.
	turn      chan struct{}
	refs      []migration.Ref
	protected map[migration.Ref]string
	err       error
	answer    wait.Answer
	// dear: reading takes so long that no answer can be acted on.
	dear error
}

// Rollback undoes what a journal says was done, newest change first.
type Rollback struct {
	r      *act.Actor
	waiter *wait.Waiter
	// careful refuses objects that were edited since: undo, but not rollback,
	// comes long after the change.
	careful bool
	// resumed: an earlier process has begun it.
	resumed bool
	// undo: what cannot be restored now may be undone later.
	undo bool
	// unsure: an earlier process has begun this rollback, and may have undone the units
	// from this sequence number on.
	unsure    int
	protector protectorAnswer
	objects   objects

	mu sync.Mutex
	// Unrestored counts changes that stay though they should have gone, forGood
	// those of them that have no way back; retry says that trying again may help.
	Unrestored int
	ForGood    int
	// Away counts changes whose kind is not served: they may be undone when it is.
	Away      int
	Retry     bool
	Protected int
	// Finished counts the units that stay since they are finished (see Unit.Commit), and
	// those that a report has said to stay.
	Finished int
	// Unproven counts what was restored although this run may not have changed it.
	Unproven int
	// effects are the changes undone upon which a controller may have made objects.
	effects []journal.Step
	// removed are the hashes of what a controller had made and was deleted.
	removed map[migration.Ref]string
	// versions are those of the objects that were patched back, as the answers showed them.
	versions map[migration.Ref]string
	// others are objects in the place of side effects that others had made.
	others map[types.UID]bool
}

const (
	// controllerPause is how long a controller may take to see that a change was
	// undone: a reconciliation that began before still makes its objects, some of them
	// several, at client-go's default of 5 requests a second.
	controllerPause = 3 * time.Second
	// recreateAttempts is how often a rollback tries to recreate an object.
	recreateAttempts = 3
	// deleteAttempts bounds how often a recreated object is deleted again.
	deleteAttempts = 4
)

// New returns a rollback that has undone nothing yet.
func New(a *act.Actor, w *wait.Waiter, careful bool) *Rollback {
	return &Rollback{
		r: a, waiter: w, careful: careful, objects: objects{w: a.Writer}, protector: protectorAnswer{turn: make(chan struct{}, 1)},
		removed: map[migration.Ref]string{}, others: map[types.UID]bool{}, versions: map[migration.Ref]string{},
	}
}

// Run undoes the whole journal. It returns an error only if the rollback
// itself was cut off; what could not be restored is in the rollback's counts,
// in the findings and in the changes' reports.
func Run(ctx context.Context, a *act.Actor, careful, resumed bool) (*Rollback, error) {
	// The forward run's collections are stale or trimmed: look afresh.
	a.Writer.Cluster = a.NewCluster()
	v := New(a, wait.New(ctx, a.Writer.Cluster), careful)
	v.objects.later = true
	v.undo, v.resumed, v.unsure = careful, resumed, a.Recorder.Journal.BeginUndoing(resumed)
	entries := a.Recorder.Journal.Entries()
	slices.Reverse(entries)
	v.askProtector(ctx, entries)
	a.Log.Info("undoing the changes of the run", zap.String("run", a.Recorder.Journal.Run), zap.Int("units", len(entries)))
	var work errgroup.Group
	work.SetLimit(max(1, a.Recorder.Journal.Parallelism))
	if a.Recorder.Journal.Serial {
		work.SetLimit(1)
	}
	var unmarked error
	for _, e := range entries {
		if ctx.Err() != nil {
			break
		}
		if unmarked = a.Recorder.Reload(ctx, e); unmarked != nil {
			break
		}
		if e.HasBegun() {
			if unmarked = a.Recorder.Journals.Lower(ctx, a.Recorder.Journal, e); unmarked != nil {
				break
			}
		}
		work.Go(func() error { return v.entry(ctx, e) })
	}
	err := errors.Join(work.Wait(), unmarked)
	if err == nil {
		err = v.awaitControllers(ctx)
	}
	if _, waited := errors.AsType[*wait.CutOffError](err); ctx.Err() != nil && !waited {
		err = context.Cause(ctx)
	}
	return v, err
}

// awaitControllers waits until controllers have seen what was undone, and deletes
// again what they made before they did: with the label of a namespace gone,
// Knative's controller may still answer the deletion of its Broker with a new one.
func (v *Rollback) awaitControllers(ctx context.Context) error {
	for round := 1; len(v.effects) > 0; round++ {
		v.r.Log.Info("waiting for controllers, then checking that deleted objects are not recreated", zap.Int("changes", len(v.effects)), zap.Duration("for", controllerPause))
		if err := k8sutil.Sleep(ctx, controllerPause); err != nil {
			return err
		}
		effects := v.effects
		v.effects = nil
		var work errgroup.Group
		work.SetLimit(max(1, v.r.Recorder.Journal.Parallelism))
		for _, s := range effects {
			work.Go(func() error {
				back, err := v.deleteReappeared(ctx, s)
				advice := v.r.RestoreAdvice()
				switch {
				case err != nil:
				case back == nil:
					return nil
				case round < deleteAttempts:
					v.checkLater(s)
					return nil
				default:
					err = &write.ChangedError{Ref: *back, Problem: "is recreated each time it is deleted"}
					advice = migration.Advice{Note: "Another controller or tool creates it, such as a GitOps tool. Delete it there."}
				}
				_, err = v.notRestored(ctx, s, err, advice)
				return err
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// checkLater lets awaitControllers check that what a controller made is not recreated.
func (v *Rollback) checkLater(s journal.Step) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.effects = append(v.effects, s)
}

// deleteReappeared deletes what a controller has made once more, and returns one of it. What
// differs from what the controller made before is somebody else's, and stays.
func (v *Rollback) deleteReappeared(ctx context.Context, s journal.Step) (back *migration.Ref, err error) {
	if v.isInForce(ctx, s) {
		return nil, nil // somebody has made the same change since: what comes of it is wanted
	}
	untouched := v.isUntouched(ctx, s.Ref)
	for _, ref := range s.Pre().Absent {
		live, err := v.objects.live(ctx, ref, "", true)
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
		late := !removed && !made.Before(&s.Entry.Chunk.Created) && s.Makes(live)
		if !late && (!removed || former != patch.Hash(live, v.r.Recorder.Ignored)) {
			continue
		}
		if !untouched {
			v.mu.Lock()
			v.others[live.GetUID()] = true
			v.mu.Unlock()
			v.r.LeaveEffect(ref, "it was created since the change was undone, and somebody else has changed "+s.Ref.String()+" meanwhile")
			continue
		}
		if _, err := v.deleteLive(ctx, ref, live, nil); err != nil {
			return nil, err
		}
		if late {
			v.r.Findings.Tell(act.DeletedUnproven(ref))
		}
		back = &ref
	}
	return back, nil
}

// isUntouched says whether nobody has changed an object since it was patched back. Somebody who has
// may have made the same change, and have undone it: what a controller has made of that is his.
func (v *Rollback) isUntouched(ctx context.Context, ref migration.Ref) bool {
	v.mu.Lock()
	version := v.versions[ref]
	v.mu.Unlock()
	live, err := v.objects.live(ctx, ref, "", true)
	return err == nil && live != nil && version != "" && live.GetResourceVersion() == version
}

// askProtector notes which objects the rollback of these units may delete, and asks the job
// which of them carry live events.
func (v *Rollback) askProtector(ctx context.Context, entries []*journal.Entry) {
	k := &v.protector
	// The job knows objects at the versions of now. What is served at none is not deleted.
	note := func(refs ...migration.Ref) {
		for _, ref := range refs {
			if at, err := v.objects.at(ctx, ref, false); err == nil {
				k.refs = append(k.refs, at)
			}
		}
	}
	for _, e := range entries {
		for _, s := range e.Steps() {
			if s.Verb == migration.Create {
				note(s.Ref)
			}
			note(s.Pre().Absent...)
		}
	}
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	v.askProtectorAgain(ctx, v.r.Writer.Cluster)
}

// askProtectorAgain is called with the protector's answer locked. It is as old as its reads.
func (v *Rollback) askProtectorAgain(ctx context.Context, c *migration.Cluster) {
	k := &v.protector
	k.answer = wait.Answer{Read: time.Now()}
	if protector, ok := v.r.Job.(migration.Protector); ok && len(k.refs) > 0 {
		k.protected, k.err = protector.Protect(ctx, c, k.refs)
	}
	k.answer.Given = time.Now()
}

// mayDelete returns a protectedError if an object carries live events, by an answer of the
// job that may be acted on now: a rollback of thousands of changes takes minutes, in which
// events may take another path.
func (v *Rollback) mayDelete(ctx context.Context, ref migration.Ref) (wait.Answer, error) {
	k := &v.protector
	k.turn <- struct{}{}
	defer func() { <-k.turn }()
	var asks wait.Asks
	for k.dear == nil && !k.answer.Holds() {
		if k.answer.TooDear() {
			k.dear = asks.Again(k.answer)
		}
		if ctx.Err() != nil {
			return k.answer, context.Cause(ctx)
		}
		if k.dear == nil {
			v.askProtectorAgain(ctx, v.r.NewCluster())
		}
	}
	if k.dear != nil {
		return k.answer, cannotTell(k.dear) // of all objects: nobody asks once more
	}
	if k.err != nil {
		return k.answer, cannotTell(k.err)
	}
	if reason, ok := k.protected[ref]; ok {
		return k.answer, &protectedError{ref, reason}
	}
	return k.answer, nil
}

func cannotTell(err error) error {
	return fmt.Errorf("cannot tell whether it carries live events: %w", err)
}

// entry reverses one unit, its last change first.
func (v *Rollback) entry(ctx context.Context, e *journal.Entry) error {
	stays, why := e.Done && e.Unit.Commit, "a finished unit stays"
	if e.Kept && !v.undo {
		stays, why = true, "it was done by an earlier run, which has reported that it stays"
	}
	if stays && e.HasBegun() {
		v.count(&v.Finished)
	}
	for _, s := range slices.Backward(e.Steps()) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !s.Writes() {
			continue
		}
		state := s.State()
		if !state.Begun() {
			// Nothing was done: what happened to the object since is others' doing.
			if s.Result() == migration.ChangeOpen {
				s.ReportResult(migration.ChangeNotStarted)
			}
			continue
		}
		if stays {
			s.Report(migration.ChangeProtected, why)
			continue
		}
		outcome, err := v.reverse(ctx, s, state)
		if err == nil && outcome == migration.ChangeRolledBack && (s.Verb == migration.Delete || s.Verb == migration.Patch) {
			f := migration.Finding{ID: "restored-unproven", Severity: migration.Warning, Object: s.Ref.String(), Note: "Check the object. If the change was intended, repeat it."}
			switch {
			case !state.IsProven():
				v.count(&v.Unproven)
				f.Problem = "restored, although there is no proof that this run changed it before it was killed: somebody else may have"
				v.r.Findings.Tell(f)
			case e.Seq >= v.unsure:
				f.Problem = "restored by a rollback that goes on after an interruption: if the interrupted one had restored it already, somebody had deleted or changed it since"
				v.r.Findings.Tell(f)
			}
		}
		switch {
		case err != nil:
			advice := v.r.RestoreAdvice()
			if waited, ok := errors.AsType[*wait.Error](err); ok && waited.Note+waited.Command != "" {
				// What to do first: the undo comes after it.
				v.r.Findings.Tell(migration.Finding{
					ID: cmp.Or(waited.ID, "not-ready"), Severity: migration.Warning, Object: s.Ref.String(), Problem: act.ProblemOf(s.Ref, err),
					Note: waited.Note, Command: waited.Command,
				})
			}
			if goOn, err := v.notRestored(ctx, s, err, advice); !goOn {
				return err
			}
		case outcome == "" && s.Result() == migration.ChangeOpen:
			s.ReportResult(migration.ChangeNotStarted)
		case outcome != "":
			s.ReportResult(outcome)
			if len(s.Pre().Absent) > 0 {
				v.checkLater(s)
			}
			v.r.Log.Info("undone: "+string(s.Verb), zap.String("object", s.Ref.String()))
		}
	}
	return nil
}

// reverse undoes one change, and with it what a controller made because of it: only
// if the change has an effect now, and only what is known to come from it.
func (v *Rollback) reverse(ctx context.Context, s journal.Step, state journal.StepState) (string, error) {
	absent := s.Pre().Absent
	if len(absent) == 0 {
		return v.Change(ctx, s)
	}
	// The version of the patched object as long as it is as the run patched it; "" if it is not.
	version := ""
	if live := v.inForce(ctx, s); live != nil && !state.IsReverting() {
		version = live.GetResourceVersion()
		// A rollback that is killed between the two must know that the change was its own.
		reverting := journal.StepReverting
		if !state.IsProven() {
			reverting = journal.StepRevertingUnproven
		}
		s.SetState(reverting)
		if err := v.r.Recorder.Journals.Mark(ctx, s.Entry.Chunk); err != nil {
			return "", err
		}
		state = reverting
	}
	outcome, err := v.Change(ctx, s)
	if err == nil && state.IsReverting() {
		outcome = migration.ChangeRolledBack
	}
	if err != nil || outcome != migration.ChangeRolledBack {
		return outcome, err
	}
	for _, ref := range absent {
		taken, err := v.deleteCreated(ctx, ref, func(live *unstructured.Unstructured) (bool, error) {
			ours, err := v.r.IsEffect(ctx, s, ref, live, v.careful, version)
			v.mu.Lock()
			defer v.mu.Unlock()
			if ours {
				v.removed[ref] = patch.Hash(live, v.r.Recorder.Ignored)
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
func (v *Rollback) isInForce(ctx context.Context, s journal.Step) bool {
	return v.inForce(ctx, s) != nil
}

// inForce is the object of a patch if it is as the run patched it, nil if it is not.
func (v *Rollback) inForce(ctx context.Context, s journal.Step) *unstructured.Unstructured {
	pre := s.Pre().Object
	live, err := v.objects.live(ctx, s.Ref, s.Subresource, false)
	if err == nil && live != nil && pre != nil && live.GetUID() == pre.GetUID() && patch.IsMade(live, s.Change) && !patch.IsMade(pre, s.Change) {
		return live
	}
	return nil
}

// notRestored notes why a change was not undone, and says whether what came before it
// in its unit can be undone nevertheless. It returns an error only if the rollback is cut off.
func (v *Rollback) notRestored(ctx context.Context, s journal.Step, err error, advice migration.Advice) (goOn bool, _ error) {
	if kept, ok := errors.AsType[*protectedError](err); ok {
		v.count(&v.Protected)
		s.Report(migration.ChangeProtected, kept.Error())
		f := migration.Finding{ID: "protected", Severity: migration.Warning, Object: kept.ref.String(), Problem: "protected: " + kept.reason}
		if adviser, ok := v.r.Job.(migration.ProtectAdviser); ok {
			advice := adviser.ProtectAdvice(kept.reason)
			f.Note, f.Command = advice.Note, advice.Command
		}
		v.r.Findings.Tell(f)
		return true, nil
	}
	if ctx.Err() != nil || act.Ended(err) {
		return false, fmt.Errorf("%s: %w", s.Ref, err)
	}
	v.count(&v.Unrestored)
	switch moved, ok := errors.AsType[*write.ChangedError](err); {
	case !ok:
		// A kind that is away may be back at any time, or never: an undo can be begun again then,
		// and does not keep the job from running until then. Nor does a rollback that comes to it
		// once more.
		if _, away := errors.AsType[*unservedError](err); away && (v.undo || v.resumed) {
			v.count(&v.Away)
			break
		}
		v.mu.Lock()
		v.Retry = true
		v.mu.Unlock()
	case moved.ForGood:
		v.count(&v.ForGood)
		fallthrough
	case !v.undo && advice == v.r.RestoreAdvice():
		// The journal is closed: there is nothing that could be undone once more.
		advice = migration.Advice{Note: "Restore it by hand. Its former state is in the journal:", Command: v.showJournal()}
	}
	s.Report(migration.ChangeNotRestored, err.Error())
	v.r.Findings.Tell(migration.Finding{
		ID: "not-restored", Severity: migration.Error, Object: s.Ref.String(), Problem: "not restored: " + act.ProblemOf(s.Ref, err), Note: advice.Note, Command: advice.Command,
	})
	v.r.Log.Error("cannot undo", zap.String("object", s.Ref.String()), zap.Error(err))
	// What came before it in the unit is built upon: leave it.
	return false, nil
}

// showJournal is the command that shows the journal of the run.
func (v *Rollback) showJournal() string {
	return migration.Kubectl(v.r.StateNamespace, "get", "secrets", "-l", v.r.Writer.Names.Key(journal.LabelRun)+"="+v.r.Recorder.Journal.Run)
}

func (v *Rollback) count(n *int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*n++
}

// Change reverses one change. It looks at the cluster, not at what the journal
// says was done: the mark may lag behind. The outcome is "" if there was nothing
// to undo.
func (v *Rollback) Change(ctx context.Context, s journal.Step) (string, error) {
	_, recreates := s.Recreation()
	switch {
	case s.Irreversible:
		made, err := v.made(ctx, s)
		if err != nil || !made {
			return "", err
		}
		return "", &write.ChangedError{Ref: s.Ref, Problem: "was changed irreversibly: this change cannot be undone", ForGood: true}
	case s.Verb == migration.Recreate:
		// Reversed with the deletion before it.
		return "", nil
	case s.Verb == migration.Create:
		return v.deleteCreated(ctx, s.Ref, func(live *unstructured.Unstructured) (bool, error) {
			if live.GetAnnotations()[v.r.Writer.Names.Mark()] != v.r.Recorder.Mark(s) {
				return false, nil // ours is gone, this is somebody else's
			}
			if v.r.Recorder.Unedited(s, live) {
				return true, nil
			}
			if v.careful {
				return false, &write.ChangedError{Ref: s.Ref, Problem: "was edited after the run; it is left alone"}
			}
			v.r.Findings.Tell(migration.Finding{
				ID: "edit-deleted", Severity: migration.Warning, Object: s.Ref.String(),
				Problem: "deleted by the rollback, although somebody edited it after this run had created it",
			})
			return true, nil
		})
	case s.Verb == migration.Delete && recreates:
		return v.recreate(ctx, s)
	case s.Verb == migration.Delete:
		return v.restoreDeleted(ctx, s)
	case s.Verb == migration.Patch:
		return v.revertPatch(ctx, s)
	default:
		return "", nil
	}
}

// made says whether an irreversible change took place. Of what failed, or was
// left without a mark by an earlier process, the cluster tells.
func (v *Rollback) made(ctx context.Context, s journal.Step) (bool, error) {
	if s.Result() == migration.ChangeUnchanged {
		return false, nil
	}
	if s.Entry.Done || s.State().IsDone() {
		return true, nil
	}
	pre := s.Pre().Object
	live, err := v.objects.live(ctx, s.Ref, s.Subresource, false)
	switch {
	case err != nil:
		return false, err
	case live == nil || pre != nil && live.GetUID() != pre.GetUID():
		return true, nil
	case s.Verb == migration.Patch:
		return patch.IsMade(live, s.Change), nil
	default:
		return live.GetDeletionTimestamp() != nil, nil
	}
}

// protectedError says why an object stays.
type protectedError struct {
	ref    migration.Ref
	reason string
}

func (e *protectedError) Error() string { return e.reason }

// deleteCreated deletes an object that exists because of the run, and waits until it
// is gone. ours, if not nil, decides by the live object.
func (v *Rollback) deleteCreated(ctx context.Context, ref migration.Ref, ours func(*unstructured.Unstructured) (bool, error)) (string, error) {
	var live *unstructured.Unstructured
	err := v.objects.whereServed(ctx, ref, func(at migration.Ref) error {
		collection, err := v.r.Writer.Cluster.Collection(ctx, at.Resource, at.Namespace)
		if err == nil {
			live = collection.Get(at.Namespace, at.Name)
		}
		return err
	})
	if live == nil || err != nil {
		return "", err
	}
	return v.deleteLive(ctx, ref, live, ours)
}

// deleteLive is deleteCreated of an object that was read.
func (v *Rollback) deleteLive(ctx context.Context, ref migration.Ref, live *unstructured.Unstructured, ours func(*unstructured.Unstructured) (bool, error)) (string, error) {
	if ours != nil {
		if ok, err := ours(live); !ok || err != nil {
			return "", err
		}
	}
	uid := live.GetUID()
	at, err := v.objects.at(ctx, ref, false)
	if err != nil {
		return "", err
	}
	client := at.Resource.In(v.r.Writer.Client, at.Namespace)
	// What is read to understand an answer has the time of the rollback, and not what is left of
	// the call's: of that, the end says nothing about the object.
	remove := func(call context.Context) error {
		version := live.GetResourceVersion()
		err := client.Delete(call, ref.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			PropagationPolicy: v.r.Writer.Propagation(ref),
		})
		if apierrors.IsNotFound(err) {
			return v.objects.isGone(ctx, ref, uid, err)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		answer := err
		now, err := client.Get(call, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return v.objects.isGone(ctx, ref, uid, err)
		case err != nil:
			return err
		case now.GetUID() != uid:
			return nil
		}
		k8sutil.Trim(now)
		if ours != nil {
			if ok, err := ours(now); !ok || err != nil {
				return k8sutil.Permanent(errors.Join(err, &write.ChangedError{Ref: ref, Problem: "changed while it was being undone"}))
			}
		}
		live = now
		return k8sutil.Retryable(answer)
	}
	if err := removeUnprotected(ctx, v, at, remove); err != nil {
		return "", err
	}
	if len(live.GetFinalizers()) > 0 {
		err := v.waiter.Wait(ctx, []migration.Condition{act.Gone(ref, uid, &migration.Change{Ref: ref})}, time.Now())
		return migration.ChangeRolledBack, err
	}
	return migration.ChangeRolledBack, nil
}

// removeUnprotected sends the deletion of an object that carries no live events. As often as the
// answer of the job is too old when a request is to leave, the job is asked again.
func removeUnprotected(ctx context.Context, v *Rollback, ref migration.Ref, remove func(context.Context) error) error {
	var asks wait.Asks
	for {
		answer, refused := v.mayDelete(ctx, ref)
		if refused != nil {
			return refused
		}
		err := v.r.Writer.Write(write.WithDecision(ctx, &write.Decision{Answer: answer}), remove)
		if !errors.Is(err, write.ErrOldDecision) {
			return err
		}
		if old := asks.Again(answer); old != nil {
			return cannotTell(fmt.Errorf("%w; %w", old, err))
		}
	}
}

// restoreDeleted creates a deleted object again from its pre-image.
func (v *Rollback) restoreDeleted(ctx context.Context, s journal.Step) (string, error) {
	pre := s.Pre().Object
	if pre == nil {
		return "", nil
	}
	live, err := v.objects.live(ctx, s.Ref, "", true)
	if err != nil {
		return "", err
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		if err := v.waiter.Wait(ctx, []migration.Condition{act.Gone(s.Ref, live.GetUID(), s.Change)}, time.Now()); err != nil {
			return "", err
		}
		live = nil
	}
	if live != nil {
		switch {
		case live.GetUID() == pre.GetUID():
			return "", nil // never deleted
		case !patch.Holds(live, pre):
			return "", &write.ChangedError{Ref: s.Ref, Problem: "was created again by somebody else, differently; the journal keeps the former one"}
		}
		if err := notAsBefore(s.Ref, "exists again", patch.Differences(live, pre, v.r.Recorder.Ignored)); err != nil {
			return "", err
		}
		return "", v.waitRestored(ctx, s.Change)
	}
	if err := v.r.Namespaces.Same(ctx, s); err != nil {
		return "", err
	}
	var differ []string
	err = v.objects.whereServed(ctx, s.Ref, func(at migration.Ref) error {
		obj := k8sutil.Restorable(pre)
		obj.SetAPIVersion(at.GroupVersion().String())
		created, err := v.r.Writer.Restore(ctx, at, obj)
		if err == nil {
			// obj, and not pre: an owner that is gone was left out, and said.
			differ = patch.Differences(created, obj, v.r.Recorder.Ignored)
		}
		return err
	})
	if err != nil {
		return "", goneForGood(s.Ref, err)
	}
	if err := notAsBefore(s.Ref, "was created again", differ); err != nil {
		return migration.ChangeRolledBack, err
	}
	return migration.ChangeRolledBack, v.waitRestored(ctx, s.Change)
}

func (v *Rollback) waitRestored(ctx context.Context, ch *migration.Change) error {
	restorer, ok := v.r.Job.(migration.Restorer)
	if !ok {
		return nil
	}
	return v.waiter.Wait(ctx, restorer.AwaitRestored(ch), time.Now())
}

// notAsBefore is the error that an object is not what it was to become again: a schema, a webhook
// or another version has made something else of it, or somebody has created it.
func notAsBefore(ref migration.Ref, what string, fields []string) error {
	if len(fields) == 0 {
		return nil
	}
	return &write.ChangedError{Ref: ref, Problem: what + ", and is not as it was before: it differs in " + act.Fields(fields) + "; the journal keeps the former one"}
}

// goneForGood makes the answer that a namespace is gone one that another attempt cannot
// change: what was in it went with it, by somebody else's decision.
func goneForGood(ref migration.Ref, err error) error {
	switch {
	case k8sutil.NamespaceTerminating(err):
		return &write.ChangedError{Ref: ref, Problem: "cannot be restored: its namespace is being deleted", ForGood: true}
	case ofNamespace(err):
		return &write.ChangedError{Ref: ref, Problem: "cannot be restored: its namespace does not exist any more", ForGood: true}
	}
	return err
}

// revertPatch undoes a patch: our fields, unless somebody changed them since.
func (v *Rollback) revertPatch(ctx context.Context, s journal.Step) (string, error) {
	pre := s.Pre().Object
	live, err := v.objects.live(ctx, s.Ref, s.Subresource, false)
	switch {
	case err != nil:
		return "", err
	case live == nil && (s.LeftToOthers() || v.r.Recorder.DeletedBefore(s.Entry, pre.GetUID())):
		// An earlier unit may have begun the deletion, and this one have taken it over. The
		// pre-image of the earlier one is older than this patch.
		return "", nil
	case live == nil && v.r.Recorder.RestoredUID(pre.GetUID()):
		return "", &write.ChangedError{Ref: s.Ref, Problem: "was deleted by somebody else"}
	case live == nil:
		// The patch has no effect now, and the deletion is none of this run's.
		s.Report(s.Result(), "its object was deleted by somebody else")
		v.r.Findings.Tell(migration.Finding{
			ID: "deleted-by-others", Severity: migration.Warning, Object: s.Ref.String(),
			Problem: "was deleted by somebody else, so that there is nothing to undo on it",
			Note:    "If it is needed, recreate it. Its former state is in the journal:",
			Command: v.showJournal(),
		})
		return "", nil
	case live.GetUID() != pre.GetUID() && v.r.Recorder.RestoredUID(pre.GetUID()):
		// A later change of the journal deleted it, and it is back from a pre-image
		// that was read before this patch.
		return migration.ChangeRolledBack, nil
	case live.GetUID() != pre.GetUID():
		return "", &write.ChangedError{Ref: s.Ref, Problem: "was created again by somebody else; it is left alone"}
	}
	var subresources []string
	if s.Subresource != "" {
		subresources = []string{s.Subresource}
	}
	at, err := v.objects.at(ctx, s.Ref, false)
	if err != nil {
		return "", err
	}
	client := at.Resource.In(v.r.Writer.Client, at.Namespace)
	outcome := ""
	told := false
	err = v.r.Writer.Write(ctx, func(ctx context.Context) error {
		back, theirs, err := patch.Inverse(pre, live, s.Patch)
		switch {
		case err != nil:
			return k8sutil.Permanent(err)
		case theirs > 0 && v.careful:
			return k8sutil.Permanent(&write.ChangedError{Ref: s.Ref, Problem: "was edited after the run; its fields are left alone"})
		case theirs > 0 && !told:
			told = true
			v.r.Findings.Tell(migration.Finding{
				ID: "edited-fields-left", Severity: migration.Warning, Object: s.Ref.String(),
				Problem: fmt.Sprintf("%s edited by somebody else in the meantime; left as they are now", migration.Count(theirs, "field")),
			})
		}
		if back, err = patch.WithListEdits(back, live, patch.InverseLists(pre, s.Lists)); err != nil {
			return k8sutil.Permanent(err)
		}
		if back == nil {
			return nil // never applied, or undone already
		}
		if live.GetDeletionTimestamp() != nil {
			return k8sutil.Permanent(&write.ChangedError{Ref: s.Ref, Problem: "is being deleted by somebody else"})
		}
		after, err := client.Patch(ctx, s.Ref.Name, types.JSONPatchType, back, metav1.PatchOptions{}, subresources...)
		if err == nil {
			outcome = migration.ChangeRolledBack
			v.patchedBack(s.Ref, after)
			differ, err := patch.NotReverted(after, back)
			if err != nil {
				return k8sutil.Permanent(err)
			}
			return k8sutil.Permanent(notAsBefore(s.Ref, "was patched back", differ))
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			if k8sutil.IsTransient(err) {
				outcome = migration.ChangeRolledBack // the request may have been carried out
			}
			return err
		}
		answer := err
		// A field changed on the way, or an earlier attempt was carried out.
		now, err := write.Look(ctx, client, s.Ref.Name, subresources...)
		if err != nil {
			return err
		}
		k8sutil.Trim(now)
		live = now
		return k8sutil.Retryable(answer)
	})
	return outcome, err
}

// patchedBack keeps the version of an object that was patched back.
func (v *Rollback) patchedBack(ref migration.Ref, after *unstructured.Unstructured) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.versions[ref] = after.GetResourceVersion()
}

// Replaced deletes what this job's interrupted run has made and what the plan of
// now wants to be another object: the plan's unit creates that. It returns false if
// the object stays.
func Replaced(ctx context.Context, a *act.Actor, s journal.Step) (bool, error) {
	v := New(a, wait.New(ctx, a.Writer.Cluster), true)
	v.askProtector(ctx, []*journal.Entry{s.Entry})
	_, err := v.Change(ctx, s)
	kept, isKept := errors.AsType[*protectedError](err)
	moved, isMoved := errors.AsType[*write.ChangedError](err)
	switch {
	case isKept:
		a.Findings.Add(migration.Finding{
			ID: "not-replaced", Severity: migration.Deferred, Object: kept.ref.String(), Problem: "not replaced, although the plan wants another one: " + kept.reason,
			Note: "Change the object by hand into what is wanted, or delete it when it carries no events.",
		})
		return false, nil
	case isMoved:
		a.Findings.Add(act.NotAsDecided(moved))
		return false, nil
	case err != nil:
		return false, err
	}
	s.SetState(journal.StepLeft)
	a.Log.Info("deleted what the interrupted run had made, since the plan wants another object", zap.String("object", s.Ref.String()))
	return true, nil
}
