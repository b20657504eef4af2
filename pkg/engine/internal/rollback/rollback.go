package rollback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Rollback undoes what a journal says was done, newest change first.
type Rollback struct {
	actor    *act.Actor
	reverser *act.Reverser
	// undo: it comes long after the run. Objects that were edited since are refused, and what
	// cannot be restored now may be undone later.
	undo bool
	// resumed: an earlier process has begun it.
	resumed bool
	// unsure: an earlier process has begun this rollback, and may have undone the units
	// from this sequence number on.
	unsure int

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
	// others are objects in the place of side effects that others had made.
	others map[types.UID]bool
}

// Run undoes the whole journal. It returns an error only if the rollback
// itself was cut off; what could not be restored is in the rollback's counts,
// in the findings and in the changes' reports.
func Run(ctx context.Context, a *act.Actor, undo, resumed bool) (*Rollback, error) {
	// The forward run's collections are stale or trimmed: look afresh.
	a.Writer.Cluster = a.NewCluster()
	v := &Rollback{
		actor: a, reverser: act.NewReverser(a, wait.New(ctx, a.Writer.Cluster), undo), undo: undo, resumed: resumed, unsure: a.Recorder.Journal.BeginUndoing(resumed),
		removed: map[migration.Ref]string{}, others: map[types.UID]bool{},
	}
	v.reverser.Refresh()
	entries := a.Recorder.Journal.Entries()
	slices.Reverse(entries)
	v.reverser.AskProtector(ctx, entries)
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
				v.actor.Findings.Tell(f)
			case e.Seq >= v.unsure:
				f.Problem = "restored by a rollback that goes on after an interruption: if the interrupted one had restored it already, somebody had deleted or changed it since"
				v.actor.Findings.Tell(f)
			}
		}
		switch {
		case err != nil:
			advice := v.actor.RestoreAdvice()
			if waited, ok := errors.AsType[*wait.Error](err); ok && waited.Note+waited.Command != "" {
				// What to do first: the undo comes after it.
				v.actor.Findings.Tell(migration.Finding{
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
			v.actor.Log.Info("undone: "+string(s.Verb), zap.String("object", s.Ref.String()))
		}
	}
	return nil
}

// notRestored notes why a change was not undone, and says whether what came before it
// in its unit can be undone nevertheless. It returns an error only if the rollback is cut off.
func (v *Rollback) notRestored(ctx context.Context, s journal.Step, err error, advice migration.Advice) (goOn bool, _ error) {
	if kept, ok := errors.AsType[*act.ProtectedError](err); ok {
		v.count(&v.Protected)
		s.Report(migration.ChangeProtected, kept.Error())
		f := migration.Finding{ID: "protected", Severity: migration.Warning, Object: kept.Ref.String(), Problem: "protected: " + kept.Reason}
		if adviser, ok := v.actor.Job.(migration.ProtectAdviser); ok {
			advice := adviser.ProtectAdvice(kept.Reason)
			f.Note, f.Command = advice.Note, advice.Command
		}
		v.actor.Findings.Tell(f)
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
		if _, away := errors.AsType[*act.UnservedError](err); away && (v.undo || v.resumed) {
			v.count(&v.Away)
			break
		}
		v.mu.Lock()
		v.Retry = true
		v.mu.Unlock()
	case moved.ForGood:
		v.count(&v.ForGood)
		fallthrough
	case !v.undo && advice == v.actor.RestoreAdvice():
		// The journal is closed: there is nothing that could be undone once more.
		advice = migration.Advice{Note: "Restore it by hand. Its former state is in the journal:", Command: v.reverser.ShowJournal()}
	}
	s.Report(migration.ChangeNotRestored, err.Error())
	v.actor.Findings.Tell(migration.Finding{
		ID: "not-restored", Severity: migration.Error, Object: s.Ref.String(), Problem: "not restored: " + act.ProblemOf(s.Ref, err), Note: advice.Note, Command: advice.Command,
	})
	v.actor.Log.Error("cannot undo", zap.String("object", s.Ref.String()), zap.Error(err))
	// What came before it in the unit is built upon: leave it.
	return false, nil
}

func (v *Rollback) count(n *int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*n++
}
