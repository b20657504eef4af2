package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/execute"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// forward does what is left to do, and what an interrupted run left.
func (r *run) forward(parent context.Context) outcome {
	// One limit for all that comes before a rollback: the wait for the lock and the
	// work. A rollback that an earlier run left open comes out of it, too.
	end := r.reporter.started.Add(r.engine.opts.LockWait + r.engine.opts.Timeout)
	ctx, cancel := limited(parent, r.engine.opts.Timeout, "the run", "--timeout")
	defer cancel()
	// The Lease is read before everything else: if it can be taken as it was
	// then, what was read in between still holds.
	if !onlyReads(r.job) {
		if err := r.grant.Do(ctx, r.lock.Peek); err != nil {
			return r.explain.nothingChanged(ctx, err)
		}
	}
	plan, open, err := r.observe(ctx)
	if err != nil {
		return r.explain.nothingChanged(ctx, err)
	}
	if len(open) == 0 {
		if out, over := r.withoutLock(ctx, parent, plan); over {
			return out
		}
	}
	// The wait for the lock has its own limit; the work has all of its time.
	contended, err := r.acquire(parent)
	cancel()
	ctx, cancel = limited(parent, min(r.engine.opts.Timeout, time.Until(end)), "the run", "--timeout")
	defer cancel()
	if err == nil && contended {
		r.engine.served.Forget()
		plan, open, err = r.observe(ctx)
	}
	if err != nil {
		return r.explain.nothingChanged(ctx, err)
	}
	if out, over := r.finishOpen(ctx, parent, open, end); over {
		return out
	}
	if len(open) > 0 {
		// What was planned beside an open journal did not know what is in it.
		if plan, err = r.plan(ctx, migration.PlanOptions{}); err != nil {
			return r.explain.nothingChanged(ctx, err)
		}
	}
	unfinished := r.recorder.Journal
	if hasErrors(plan) {
		out := r.explain.refusal(plan)
		if unfinished != nil {
			out.message += fmt.Sprintf("; the interrupted run %s stays open: fix that and run again, or undo", unfinished.Run)
		}
		return out
	}
	if unfinished == nil && writingUnits(plan) == 0 {
		return probed(ctx, plan, r.findings, r.waitOnly(ctx, plan))
	}
	if contended || len(open) > 0 {
		// Before merge: it deletes what an interrupted run had made and the plan wants
		// otherwise.
		if out, ok := r.checkBeforeStart(ctx, plan, slices.Concat(plan.Units, plan.Last)); !ok {
			return out
		}
	}
	t, err := execute.Merge(ctx, r.actor, plan)
	if err != nil {
		return r.explain.nothingChanged(ctx, err)
	}
	plan.Findings = notUnderWay(plan.Findings, t.Entries)
	r.findings.Add(plan.Findings...)
	return r.execute(parent, ctx, plan, t)
}

// withoutLock ends a run that has nothing to write, or is refused, before even the Lease is
// written; false if it goes on.
func (r *run) withoutLock(ctx, parent context.Context, plan *migration.Plan) (outcome, bool) {
	if hasErrors(plan) {
		return r.explain.refusal(plan), true
	}
	if writingUnits(plan) == 0 {
		out := probed(ctx, plan, r.findings, r.waitOnly(ctx, plan))
		r.clearMark(parent)
		return out, true
	}
	out, ok := r.checkBeforeStart(ctx, plan, slices.Concat(plan.Units, plan.Last))
	return out, !ok
}

// finishOpen finishes backwards what was interrupted on its way back, and leaves the recorder with
// the journal that is finished forward, if there is one. It returns true if the run is over.
func (r *run) finishOpen(ctx, parent context.Context, open []journal.OpenJournal, end time.Time) (outcome, bool) {
	if out, beyond := r.beyondLimit(open); beyond {
		return out, true
	}
	var unfinished *journal.Journal
	for _, o := range open {
		j, err := r.recorder.Journals.Load(ctx, o.Header, o.Phase)
		if err != nil {
			return r.explain.nothingChanged(ctx, err), true
		}
		if o.Phase == journal.PhaseForward && r.engine.opts.Resume == ResumeForward && unfinished == nil {
			unfinished = j
			continue
		}
		// A journal in rollback is always finished backwards.
		r.recorder.Journal = j
		out, ok := r.finishBackwards(parent, o.Phase, min(r.engine.opts.RollbackTimeout, time.Until(end)))
		if !ok || r.engine.opts.Resume == ResumeBack {
			return out, true
		}
		r.reporter.earlier, r.earlierOutcome = r.reporter.changes(), out
		r.reporter.unjournaled, r.recorder.Journal = nil, nil
	}
	r.recorder.Journal = unfinished
	return outcome{}, false
}

// observe reads the cluster: what an interrupted run left, and what is left to do. A job
// that only reads leaves nothing.
func (r *run) observe(ctx context.Context) (plan *migration.Plan, open []journal.OpenJournal, err error) {
	err = wait.Both(ctx, func(ctx context.Context) (err error) {
		if !onlyReads(r.job) {
			open, err = r.recorder.Journals.Find(ctx, journal.OpenPhases...)
		}
		return err
	}, func(ctx context.Context) (err error) {
		plan, err = r.plan(ctx, migration.PlanOptions{})
		return err
	})
	if err == nil && onlyReads(r.job) && writingUnits(plan) > 0 {
		err = k8sutil.Permanent(fmt.Errorf("the job %s, which is only to read, plans to write", r.job.Name()))
	}
	if err != nil {
		return nil, nil, err
	}
	return plan, open, nil
}

// onlyReads says whether the job never writes.
func onlyReads(job migration.Job) bool {
	_, reader := job.(migration.OnlyReader)
	return reader
}

// acquire takes the lock. What was known of journals is stale if another run had it.
func (r *run) acquire(ctx context.Context) (contended bool, err error) {
	contended, err = r.lock.Acquire(ctx, r.job.Name(), r.engine.opts.LockWait)
	if contended {
		r.recorder.Journals.Know(nil)
	}
	return contended, err
}

// clearMark takes the lock, so that its release removes the mark of a run that was
// killed before it had a journal, or after it had closed it. Nothing else is left to do.
func (r *run) clearMark(ctx context.Context) {
	if onlyReads(r.job) || ctx.Err() != nil || !r.lock.IsMarked(r.job.Name()) {
		return
	}
	contended, err := r.acquire(ctx)
	if err == nil && contended {
		_, err = r.recorder.Journals.Find(ctx, journal.OpenPhases...)
	}
	if err != nil {
		r.log.Warn("the Lease still says that a run of this job is open, and none is; a later run corrects that", zap.Error(err))
	}
}

// checkBeforeStart is the last gate before the first write.
func (r *run) checkBeforeStart(ctx context.Context, plan *migration.Plan, units []migration.Unit) (outcome, bool) {
	if plan.Estimate > r.engine.opts.Timeout && !allIndependent(plan) {
		r.findings.Add(plan.Findings...)
		r.findings.Add(migration.Finding{
			ID: "plan-too-long", Severity: migration.Error, Problem: fmt.Sprintf("the plan may take %s, longer than --timeout %s", plan.Estimate, r.engine.opts.Timeout),
			Note: "Give a longer --timeout. The --timeout of Helm must be longer still.",
		})
		return outcome{result: migration.Refused, message: "the plan may not end within --timeout; nothing was changed"}, false
	}
	if large := act.TooLarge(units); len(large) > 0 {
		r.findings.Add(slices.Concat(plan.Findings, large)...)
		return outcome{result: migration.Refused, message: fmt.Sprintf("%s too large to be restored for certain; nothing was changed", migration.Count(len(large), "object")+act.VerbIs(len(large)))}, false
	}
	if out, ok := r.permitted(ctx, units, plan.Findings); !ok {
		return out, false
	}
	// An interrupted run is finished as far as it can be; it fails at its end.
	if r.engine.opts.Defer == DeferFail && hasDeferred(plan.Findings) && r.recorder.Journal == nil {
		r.findings.Add(plan.Findings...)
		return deferralFails(), false
	}
	return outcome{}, true
}

// permitted refuses what this account may not do. told is what is said beside that.
func (r *run) permitted(ctx context.Context, units []migration.Unit, told []migration.Finding) (outcome, bool) {
	missing, err := r.preflight().missing(ctx, units)
	for err == nil && len(missing) > 0 && r.grant.Again(ctx, missing[0].Problem) {
		missing, err = r.preflight().missing(ctx, units)
	}
	if err != nil {
		return r.explain.nothingChanged(ctx, err), false
	}
	if len(missing) > 0 {
		r.findings.Add(slices.Concat(told, missing)...)
		return outcome{result: migration.Refused, message: fmt.Sprintf("%s; nothing was changed", migration.Count(len(missing), "missing permission"))}, false
	}
	return outcome{}, true
}

func (r *run) preflight() *preflight {
	return &preflight{actor: r.actor, asker: asker{r.engine}}
}

// allIndependent says whether a run that times out may leave what it finished.
func allIndependent(plan *migration.Plan) bool {
	return !slices.ContainsFunc(plan.Units, func(u migration.Unit) bool { return u.Writes() && !u.Independent })
}

func deferralFails() outcome {
	return outcome{result: migration.FailedResult, message: "there is work that must wait, and --defer=fail makes that a failure; nothing was changed"}
}

// waitOnly is a run without a write: no lock, no journal.
func (r *run) waitOnly(ctx context.Context, plan *migration.Plan) outcome {
	r.findings.Add(plan.Findings...)
	if r.engine.opts.Defer == DeferFail && hasDeferred(r.findings.All()) {
		return deferralFails()
	}
	if len(plan.Units) == 0 {
		if hasDeferred(r.findings.All()) {
			return outcome{result: migration.DeferredResult, message: "nothing can be done now; what is left is deferred"}
		}
		return outcome{result: migration.NothingToDo, message: "there is nothing to do"}
	}
	r.log.Info("waiting for what exists already", zap.Int("objects", len(plan.Units)), zap.String("first", plan.Units[0].ID))
	r.engine.opts.Progress.Start(len(plan.Units))
	defer r.engine.opts.Progress.Stop()
	x := r.executor(ctx, plan.Parallelism, plan.Serial)
	if err := x.Run(ctx, execute.Todo{Waits: plan.Units}); err != nil {
		out := r.explain.nothingChanged(ctx, err)
		if out.result == migration.FailedResult {
			out.message = fmt.Sprintf("%s not right; nothing was changed", migration.Count(len(x.Failures), "existing object")+act.VerbIs(len(x.Failures)))
		}
		return out
	}
	out := outcome{result: migration.NothingToDo, message: fmt.Sprintf("%s ready now; nothing had to be changed", migration.Count(len(plan.Units), "existing object")+act.VerbIs(len(plan.Units)))}
	if hasDeferred(r.findings.All()) {
		out.result = migration.DeferredResult
		out.message += "; what is left is deferred"
	}
	return out
}

// probed is the outcome of a run that only waits, after the job has tried it out.
func probed(ctx context.Context, plan *migration.Plan, told *findings.List, out outcome) outcome {
	if plan.Probe == nil || out.result != migration.NothingToDo {
		return out
	}
	found := plan.Probe(ctx)
	told.Add(found...)
	if hasErrors(&migration.Plan{Findings: found}) {
		return outcome{result: migration.FailedResult, message: findings.FirstError(found) + "; nothing was changed"}
	}
	return out
}

func (r *run) executor(ctx context.Context, parallelism int, serial bool) *execute.Executor {
	return execute.New(ctx, r.actor, execute.Options{
		Parallelism: parallelism, Unready: r.engine.opts.MaxUnready, Serial: serial, Progress: r.engine.opts.Progress, Reported: r.reporter.add,
	})
}

// notUnderWay leaves out what the job defers because of what this run itself is
// about to finish: an object that an interrupted run has begun to delete looks
// to the job like one that somebody else is deleting.
func notUnderWay(findings []migration.Finding, entries []*journal.Entry) []migration.Finding {
	ours := map[string]bool{}
	for _, e := range entries {
		for _, s := range e.Steps() {
			if s.Verb == migration.Delete && s.MadeOrBegun() {
				ours[s.Ref.String()] = true
			}
		}
	}
	if len(ours) == 0 {
		return findings
	}
	return slices.DeleteFunc(slices.Clone(findings), func(f migration.Finding) bool { return f.Severity == migration.Deferred && ours[f.Object] })
}
