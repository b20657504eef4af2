package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/execute"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func (r *run) execute(parent, ctx context.Context, plan *migration.Plan, t execute.Todo) outcome {
	if r.recorder.Journal == nil {
		r.recorder.Journal = journal.New(r.job.Name(), r.engine.opts.Version, max(r.lock.Acquisition(), r.recorder.Journals.Highest+1), plan)
		r.recorder.Journal.LimitTo(r.engine.opts.OnlyNamespace)
	} else {
		r.log.Info("finishing an interrupted run", zap.String("run", r.recorder.Journal.Run), zap.Int("openUnits", len(t.Entries)))
	}
	r.log.Info("starting", zap.String("run", r.recorder.Journal.Run), zap.Int("units", t.Size()))
	r.engine.opts.Progress.Start(t.Size())
	defer r.engine.opts.Progress.Stop()
	ctx, release := lease.While(ctx, r.lock)
	defer release()
	x := r.executor(ctx, plan.Parallelism, plan.Serial)
	err := x.Run(ctx, t)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.lock.LossCause()
	}
	if err != nil {
		return r.failed(parent, ctx, x, t.Units, err)
	}
	x.RecordLateEffects(ctx)
	if r.recorder.Journal.Empty() {
		// Every unit was left: nothing was written.
		r.recorder.Journal = nil
		return r.finished(outcome{result: migration.NothingToDo, message: "nothing was changed"})
	}
	made := 0
	for _, report := range r.reporter.changes() {
		if report.Verb != migration.Await && report.Result == migration.ChangeDone {
			made++
		}
	}
	message := migration.Count(made, "change") + " made"
	if n := int(r.actor.Otherwise.Load()); n > 0 {
		message += fmt.Sprintf("; the API server stored %s otherwise than sent: see the warnings", migration.Count(n, "object"))
	}
	out := r.finished(outcome{result: migration.Succeeded, message: message})
	// The report first: once the journal is closed, nothing leads back here.
	r.reporter.publish(ctx, out)
	if err := r.recorder.Enter(ctx, journal.PhaseDone); err != nil {
		if stopped, ok := r.explain.interruption(parent, err); ok {
			return stopped
		}
		r.findings.Tell(migration.Finding{
			ID: "journal-not-closed", Severity: migration.Warning, Problem: fmt.Sprintf("all changes are made, and the journal of run %s cannot be closed: %v", r.recorder.Journal.Run, err),
			Note: "Run the job again. It finds nothing to do and closes the journal. Until then, status shows the run as open.",
		})
		return out
	}
	r.recorder.Prune(ctx)
	return out
}

// finished is the outcome of a run that did all it could: what had to wait makes
// it a failure under --defer=fail, and what is done stays.
func (r *run) finished(out outcome) outcome {
	switch {
	case !hasDeferred(r.findings.All()):
	case r.engine.opts.Defer == DeferFail:
		out.result = migration.FailedResult
		out.message += "; there is work that must wait, and --defer=fail makes that a failure; what is done stays"
	default:
		out.result = migration.DeferredResult
		out.message += "; the rest is deferred"
	}
	return out
}

// failed decides what becomes of a run that cannot go on.
func (r *run) failed(parent, ctx context.Context, x *execute.Executor, units []migration.Unit, err error) outcome {
	if out, ok := r.explain.stranded(parent, err); ok {
		return out
	}
	if out, interrupted := r.explain.interruption(parent, err); interrupted {
		r.recorder.WriteMarks(parent)
		return out
	}
	if r.recorder.Journal.Empty() {
		out := r.explain.nothingChanged(ctx, err)
		r.recorder.Journal = nil
		return out
	}
	if act.IsRefusal(act.FirstRefusal(err)) {
		execute.DryRunRemaining(parent, r.actor, units)
	}
	if r.engine.opts.OnFailure == OnFailureLeave {
		r.recorder.Journal.Keep(func(*journal.Entry) bool { return true })
		r.recorder.WriteMarks(parent)
		out := r.explain.nothingChanged(ctx, err)
		out.unrestored = true
		if out.result == migration.Refused {
			out.result = migration.FailedResult // a refusal changes nothing, and this run did
		}
		out.message = fmt.Sprintf("%s; what was done stays (--on-failure=leave): run again to finish it, or undo", r.explain.reason(ctx, err))
		return out
	}
	why, timedOut := r.explain.reason(ctx, err), ctx.Err() != nil
	if done, all, changed := r.recorder.Progress(units); changed && (timedOut || stays(err)) {
		out := r.leaveProgress(parent, x, why, done, all)
		if !timedOut {
			out.result, out.unrestored = migration.FailedResult, true
		}
		return out
	}
	r.log.Warn("the run failed; rolling back", zap.String("reason", why))
	out, ok := r.finishBackwards(parent, journal.PhaseRollback, r.engine.opts.RollbackTimeout)
	if !ok && out.result != migration.PartlyRestored {
		return out
	}
	if out.result == migration.RolledBack {
		restored := out.message
		if strings.HasPrefix(restored, asBefore) {
			restored = asBefore // the run is this one
		}
		out.message = why + "; " + restored
		if timedOut {
			out.result = migration.TimedOut
		}
	} else {
		out.message = why + "; " + out.message
	}
	return out
}

// leaveProgress ends a run that timed out, and leaves what it finished: each of its
// units is right by itself, and the next run goes on with the rest.
func (r *run) leaveProgress(parent context.Context, x *execute.Executor, why string, done, all int) outcome {
	ctx, cancel := limited(parent, r.engine.opts.RollbackTimeout, "the end of the run", "--rollback-timeout")
	defer cancel()
	out := outcome{result: migration.TimedOut, message: fmt.Sprintf("%s; %d of %d are done and stay; run again to go on with the rest, or undo", why, done, all)}
	if len(x.Last) > 0 {
		ending := r.executor(ctx, r.recorder.Journal.Parallelism, r.recorder.Journal.Serial)
		ending.Last = x.Last
		err := ending.Finally(ctx)
		ending.Stop(nil)
		if err != nil {
			out.message += "; what comes last could not be done: " + err.Error()
		}
	}
	r.recorder.Journal.Keep(func(e *journal.Entry) bool { return e.Unit.Independent || e.Last })
	r.recorder.WriteMarks(parent)
	return out
}

// stays says whether a run failed because of a deletion that a rollback could not restore.
func stays(err error) bool {
	failed, ok := errors.AsType[*wait.Error](err)
	return ok && failed.Stays
}
