package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/rollback"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// finishBackwards reverses the journal of the run and closes it; false if it stays open.
func (r *run) finishBackwards(parent context.Context, p journal.Phase, limit time.Duration) (outcome, bool) {
	ctx, cancel := limited(parent, limit, "the rollback", "--rollback-timeout")
	defer cancel()
	forgotten := p == journal.PhaseForward && r.engine.opts.Resume == ResumeBack && r.recorder.Journal.Forget()
	ctx, release := lease.While(ctx, r.lock)
	defer release()
	if p == journal.PhaseForward {
		p = journal.PhaseRollback
	}
	resumed := r.recorder.Journal.Phase == p
	if !resumed {
		// What this process knows is written first: one that goes on after a kill knows no
		// more than the marks.
		if err := r.recorder.MarkBehindFirst(ctx, func(c *journal.Chunk) bool { return !c.AllDone() || forgotten }); err != nil {
			return r.explain.cutOff(parent, err), false
		}
		if err := r.recorder.Enter(ctx, p); err != nil {
			return r.explain.cutOff(parent, err), false
		}
	}
	r.recorder.Journal.FillReports()
	v, err := rollback.Run(ctx, r.actor, p == journal.PhaseUndo, resumed)
	if err != nil {
		return r.explain.cutOff(parent, err), false
	}
	out := restored(r.recorder.Journal.Run, p, v, int(r.actor.More.Load()), int(r.actor.LeftEffects.Load()))
	if v.Retry {
		out.message += "; the journal keeps everything: run again, or undo, to go on restoring"
		r.reporter.publish(ctx, out)
		return out, false
	}
	closed, err := r.closed(ctx, p, v, &out)
	if err != nil {
		return r.explain.cutOff(parent, err), false
	}
	if err := r.recorder.Enter(ctx, closed); err != nil {
		return r.explain.cutOff(parent, err), false
	}
	r.recorder.Prune(ctx)
	return out, true
}

// asBefore is said when all that a run changed is restored, and nothing else.
const asBefore = "everything is as it was before"

// restored is the outcome of a rollback or undo that has come to its end.
func restored(run string, p journal.Phase, v *rollback.Rollback, more, leftEffects int) outcome {
	out := outcome{result: migration.RolledBack, message: asBefore + " run " + run}
	if p == journal.PhaseUndo {
		// Later runs, and others, have changed more since.
		out.message = fmt.Sprintf("all changes of run %s are undone", run)
	}
	if more > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone; %s not wholly as before, because of others: see the warnings", run, migration.Count(more, "object")+act.VerbIs(more))
	}
	if v.Finished > 0 {
		stay := "which stays as it is"
		if v.Finished > 1 {
			stay = "which stay as they are"
		}
		out.message = fmt.Sprintf("all changes of run %s are undone, but for %s, %s", run, migration.Count(v.Finished, "finished unit"), stay)
	}
	if v.Unproven > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone; %s restored or deleted without proof that the run had changed it: see the warnings",
			run, migration.Count(v.Unproven, "object")+act.VerbWas(v.Unproven))
	}
	if leftEffects > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone; %s left that may come from it: see the warnings", run, migration.Count(leftEffects, "object")+act.VerbIs(leftEffects))
	}
	if v.Unrestored+v.Protected > 0 {
		out.result = migration.PartlyRestored
		out.message = fmt.Sprintf("%s could not be restored, %d protected", migration.Count(v.Unrestored, "change"), v.Protected)
		if v.Unrestored == 0 {
			out.message = fmt.Sprintf("%s protected: see the warnings", migration.Count(v.Protected, "object")+act.VerbIs(v.Protected))
		}
	}
	return out
}

// closed is the phase in which a rollback or undo leaves the journal.
func (r *run) closed(ctx context.Context, p journal.Phase, v *rollback.Rollback, out *outcome) (journal.Phase, error) {
	closed := journal.PhaseRolledBack
	if p == journal.PhaseUndo {
		closed = journal.PhaseUndone
		if v.Unrestored-v.ForGood+v.Protected > 0 {
			closed = journal.PhaseDone // what is left may be undone later
			if err := r.left(ctx, out, &closed); err != nil {
				return closed, err
			}
		}
	}
	if p == journal.PhaseRollback && (r.recorder.Journal.AnyKept() || v.Away > 0) {
		closed = journal.PhaseDone // what stays, and what is of a kind that is away, may be undone later
		r.recorder.Journal.RolledBack()
		if err := r.recorder.MarkBehindFirst(ctx, func(*journal.Chunk) bool { return true }); err != nil {
			return closed, err
		}
	}
	return closed, nil
}

// left says how an undo goes on that leaves objects: a person decides, and without
// Options.AcceptLeft no earlier run can be undone.
func (r *run) left(ctx context.Context, out *outcome, closed *journal.Phase) error {
	if r.engine.opts.AcceptLeft {
		out.result, *closed = migration.RolledBack, journal.PhaseUndone
		out.message += "; what is left is accepted (--accept-left), and the run is closed"
		return journal.Accept(ctx, r.recorder.Journals, r.recorder.Journal)
	}
	f := migration.Finding{ID: "undo-blocked", Severity: migration.Warning, Problem: "run " + r.recorder.Journal.Run + " is not undone whole, and no earlier run can be undone before",
		Note: "Correct or delete what the findings name, and undo again. Or accept what is left, which closes the run (Options.AcceptLeft)."}
	if r.engine.opts.Undo != nil {
		f.Note = "Correct or delete what the findings name, and undo again. Or accept what is left, which closes the run:"
		f.Command = r.engine.opts.Undo(r.job.Name()) + " --accept-left"
	}
	r.findings.Tell(f)
	return nil
}
