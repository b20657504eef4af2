package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// run is one command on one job.
type run struct {
	e        *Engine
	job      Job
	command  string
	log      *zap.Logger
	started  time.Time
	requests Requests // of the engine when the run began
	ignored  map[string]bool

	cluster  *Cluster
	lock     lease
	journals *journals
	// journal is nil until there is something to write.
	journal *journal
	// told is the outcome that was published last.
	told outcome

	// marking keeps marks of one journal in order.
	marking sync.Mutex

	mu       sync.Mutex
	awaited  []ChangeReport
	findings []Finding
}

func (e *Engine) begin(command string, job Job) *run {
	r := &run{
		e: e, job: job, command: command, started: time.Now(),
		log:      e.opts.Log.With(zap.String("job", job.Name())),
		requests: Requests{Reads: e.counter.Reads(), Writes: e.counter.Writes()},
		cluster:  e.newCluster(), ignored: map[string]bool{},
	}
	if ignorer, ok := job.(EditIgnorer); ok {
		for _, key := range ignorer.IgnoredKeys() {
			r.ignored[key] = true
		}
	}
	own := newLock(e.leases, e.opts.StateNamespace, e.opts.Identity, e.opts.LeaseDuration, r.log, e.read)
	r.lock = own
	if e.opts.Seat != nil {
		r.lock = e.opts.Seat.sit(own)
	}
	r.journals = &journals{job: job.Name(), secrets: e.core.Secrets(e.opts.StateNamespace), read: e.read, write: r.write}
	return r
}

// write makes one write: within the lock's deadline, repeated while it fails for
// a moment. ctx ending stops further attempts, never one in flight.
func (r *run) write(ctx context.Context, op func(context.Context) error) error {
	return k8sutil.Retry(ctx, retryBudget, r.e.notify(), func(ctx context.Context) error {
		call, cancel, err := r.lock.guard(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		return op(call)
	})
}

// outcome is how a command ended, before it is reported.
type outcome struct {
	result  Result
	message string
	signal  int
	// unrestored is set if changes stay that the result does not promise to.
	unrestored bool
}

// Run does what is left to do. ctx ending with a SignalError interrupts it.
func (e *Engine) Run(ctx context.Context, job Job) *Report {
	r := e.begin("run", job)
	defer r.lock.release()
	return r.conclude(ctx, r.forward(ctx))
}

// Plan decides what Run would do, and writes nothing.
func (e *Engine) Plan(ctx context.Context, job Job) *Report {
	r := e.begin("plan", job)
	ctx, cancel := r.limited(ctx, e.opts.Timeout, "the plan", "--timeout")
	defer cancel()
	plan, open, err := r.look(withDryRun(ctx))
	if err != nil {
		return r.conclude(ctx, r.nothingChanged(ctx, err))
	}
	for _, o := range open {
		r.addFinding(Finding{
			Severity: Warning, Problem: fmt.Sprintf("run %s was interrupted; its journal is open (%s)", o.header.Run, o.phase),
			Hint: "run finishes it first; undo takes it back",
		})
	}
	explainer, _ := job.(Explainer)
	for i := range plan.Units {
		for j := range plan.Units[i].Changes {
			ch := &plan.Units[i].Changes[j]
			report := reportOf(ch, "")
			if explainer != nil {
				report.Replaces = explainer.Explain(ch)
			}
			report.Message = ch.Why
			if ch.Writes() {
				report.Reversible = ch.Reversible()
			}
			r.addReport(report)
		}
	}
	r.findings = append(r.findings, plan.Findings...)
	if refused(plan) {
		return r.conclude(ctx, outcome{result: Refused, message: "a run would be refused: " + firstError(plan.Findings)})
	}
	writes := 0
	for i := range plan.Units {
		for j := range plan.Units[i].Changes {
			if plan.Units[i].Changes[j].Writes() {
				writes++
			}
		}
	}
	message := fmt.Sprintf("a run would make %s", count(writes, "change"))
	if waits := len(plan.Units) - writingUnits(plan); waits > 0 {
		message += fmt.Sprintf(" and wait for %s", count(waits, "existing object"))
	}
	if writes == 0 && len(plan.Units) == 0 {
		message = "there is nothing to do"
	}
	return r.conclude(ctx, outcome{result: Planned, message: message})
}

// Undo takes back the newest run that was not taken back yet, finished or
// interrupted.
func (e *Engine) Undo(ctx context.Context, job Job) *Report {
	r := e.begin("undo", job)
	defer r.lock.release()
	return r.conclude(ctx, r.undo(ctx))
}

// limited is ctx with a limit, the reason of which is told in words.
func (r *run) limited(ctx context.Context, limit time.Duration, what, flag string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &timeoutError{what, flag, limit.String()})
}

// openJournal is a journal that some run left open.
type openJournal struct {
	header header
	phase  phase
}

// look reads the cluster: what an interrupted run left, and what is left to do.
func (r *run) look(ctx context.Context) (*Plan, []openJournal, error) {
	var plan *Plan
	var open []openJournal
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		headers, phases, err := r.journals.find(gctx, phaseForward, phaseRollback, phaseUndo)
		for i := range headers {
			open = append(open, openJournal{headers[i], phases[i]})
		}
		return err
	})
	g.Go(func() (err error) {
		plan, err = r.plan(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, err
	}
	return plan, open, nil
}

// plan asks the job; a panic in it is its error.
func (r *run) plan(ctx context.Context) (plan *Plan, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = k8sutil.Permanent(fmt.Errorf("the job %s failed to decide: panic: %v", r.job.Name(), p))
		}
	}()
	r.cluster = r.e.newCluster()
	if plan, err = r.job.Plan(ctx, r.cluster); err == nil && plan == nil {
		plan = &Plan{}
	}
	return plan, err
}

func (r *run) forward(parent context.Context) outcome {
	ctx, cancel := r.limited(parent, r.e.opts.Timeout, "the run", "--timeout")
	defer cancel()
	// The Lease is read before everything else: if it can be taken as it was
	// then, what was read in between still holds.
	if err := r.lock.peek(ctx); err != nil {
		return r.nothingChanged(ctx, err)
	}
	plan, open, err := r.look(ctx)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	if len(open) == 0 {
		if refused(plan) {
			return r.refuse(plan)
		}
		if writingUnits(plan) == 0 {
			return r.probed(ctx, r.onlyWait(ctx, plan))
		}
		// What is refused is refused before even the Lease is written.
		if out, ok := r.mayStart(ctx, plan, plan.Units); !ok {
			return out
		}
	}
	// The wait for the lock has its own limit; the work has all of its time.
	contended, err := r.lock.acquire(parent, r.e.opts.LockWait)
	cancel()
	ctx, cancel = r.limited(parent, r.e.opts.Timeout, "the run", "--timeout")
	defer cancel()
	if err == nil && contended {
		r.e.served.Forget()
		plan, open, err = r.look(ctx)
	}
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	var journal *journal
	for _, o := range open {
		j, err := r.journals.load(ctx, o.header, o.phase)
		if err != nil {
			return r.nothingChanged(ctx, err)
		}
		if o.phase == phaseForward && r.e.opts.Resume == ResumeForward && journal == nil {
			journal = j
			continue
		}
		// A journal in rollback is always finished backwards.
		r.journal = j
		out, ok := r.finishBackwards(parent, o.phase)
		if !ok || r.e.opts.Resume == ResumeBack {
			return out
		}
		r.awaited, r.journal = nil, nil
		if plan, err = r.plan(ctx); err != nil {
			return r.nothingChanged(ctx, err)
		}
	}
	r.journal = journal
	if refused(plan) {
		out := r.refuse(plan)
		if journal != nil {
			out.message += fmt.Sprintf("; the interrupted run %s stays open: mend that and run again, or undo", journal.Run)
		}
		return out
	}
	entries, units, waits, err := r.merge(ctx, plan)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	plan.Findings = notUnderWay(plan.Findings, entries)
	if journal == nil && len(units) == 0 {
		return r.probed(ctx, r.onlyWait(ctx, plan))
	}
	if contended || len(open) > 0 {
		if out, ok := r.mayStart(ctx, plan, units); !ok {
			return out
		}
	}
	r.findings = append(r.findings, plan.Findings...)
	return r.execute(parent, ctx, plan, entries, units, waits)
}

// mayStart is the last gate before the first write.
func (r *run) mayStart(ctx context.Context, plan *Plan, units []Unit) (outcome, bool) {
	if plan.Estimate > 0 && plan.Estimate > r.e.opts.Timeout {
		r.findings = append(r.findings, plan.Findings...)
		r.addFinding(Finding{
			Severity: Error, Problem: fmt.Sprintf("the plan may take %s, longer than --timeout %s", plan.Estimate, r.e.opts.Timeout),
			Hint: "give a longer --timeout (and Helm's, which must be longer still)",
		})
		return outcome{result: Refused, message: "the plan may not end within --timeout; nothing was changed"}, false
	}
	missing, err := r.preflight(ctx, units)
	if err != nil {
		return r.nothingChanged(ctx, err), false
	}
	if len(missing) > 0 {
		r.findings = append(append(r.findings, plan.Findings...), missing...)
		return outcome{result: Refused, message: fmt.Sprintf("%s; nothing was changed", count(len(missing), "missing permission"))}, false
	}
	if r.e.opts.Defer == DeferFail && hasDeferred(plan.Findings) {
		r.findings = append(r.findings, plan.Findings...)
		return r.deferralFails(), false
	}
	return outcome{}, true
}

func (r *run) deferralFails() outcome {
	return outcome{result: FailedResult, message: "there is work that must wait, and --defer=fail makes that a failure; nothing was changed"}
}

// onlyWait is a run without a write: no lock, no journal.
func (r *run) onlyWait(ctx context.Context, plan *Plan) outcome {
	r.findings = append(r.findings, plan.Findings...)
	if r.e.opts.Defer == DeferFail && hasDeferred(r.findings) {
		return r.deferralFails()
	}
	if len(plan.Units) == 0 {
		if hasDeferred(r.findings) {
			return outcome{result: DeferredResult, message: "nothing can be done now; what is left is deferred"}
		}
		return outcome{result: NothingToDo, message: "there is nothing to do"}
	}
	r.log.Info("waiting for what exists already", zap.Int("objects", len(plan.Units)))
	r.e.opts.Progress.Start(len(plan.Units))
	defer r.e.opts.Progress.Stop()
	x := r.newExecutor(ctx, plan.Parallelism, plan.Serial)
	if err := x.run(ctx, nil, nil, plan.Units); err != nil {
		out := r.nothingChanged(ctx, err)
		if out.result == FailedResult {
			out.message = fmt.Sprintf("%s not right; nothing was changed", count(len(x.failures), "existing object")+verbIs(len(x.failures)))
		}
		return out
	}
	out := outcome{result: NothingToDo, message: fmt.Sprintf("%s ready now; nothing had to be changed", count(len(plan.Units), "existing object")+verbIs(len(plan.Units)))}
	if hasDeferred(r.findings) {
		out.result = DeferredResult
		out.message += "; what is left is deferred"
	}
	return out
}

// merge brings together what an interrupted run left open and what is planned
// now. The journal wins for what it began; the plan, which saw the cluster as it
// is, decides about the rest.
func (r *run) merge(ctx context.Context, plan *Plan) (entries []*entry, units, waits []Unit, err error) {
	known := map[string]bool{}
	covered := map[Ref]bool{}
	planned := map[string]bool{}
	for i := range plan.Units {
		planned[plan.Units[i].ID] = plan.Units[i].Writes()
	}
	if r.journal != nil {
		journaled := r.journal.entries()
		begun, followed := map[string]bool{}, map[string]bool{}
		for _, e := range journaled {
			for _, id := range e.Unit.Follows {
				followed[id] = true
			}
		}
		for _, e := range journaled {
			for i := range e.Unit.Changes {
				e.reports = append(e.reports, reportOf(&e.Unit.Changes[i], ChangeNotStarted))
			}
			if e.done {
				for i := range e.reports {
					e.reports[i].Result = ChangeDone
				}
				begun[e.Unit.ID] = true
				continue
			}
			if planned[e.Unit.ID] && !followed[e.Unit.ID] {
				continue // it goes on in any case: no need to look
			}
			if begun[e.Unit.ID], err = r.begun(ctx, e); err != nil {
				return nil, nil, nil, err
			}
		}
		for _, e := range journaled {
			follows := slices.ContainsFunc(e.Unit.Follows, func(id string) bool { return begun[id] })
			switch {
			case e.done:
				continue
			case !planned[e.Unit.ID] && !begun[e.Unit.ID] && !follows:
				e.reports = nil
				continue
			}
			known[e.Unit.ID] = true
			for i := range e.Unit.Changes {
				covered[e.Unit.Changes[i].Ref] = true
			}
			entries = append(entries, e)
		}
	}
	for _, u := range plan.Units {
		switch {
		case known[u.ID]:
		case u.Writes():
			units = append(units, u)
		case len(u.Changes) > 0 && !covered[u.Changes[0].Ref]:
			waits = append(waits, u)
		}
	}
	return entries, units, waits, nil
}

// notUnderWay leaves out what the job defers because of what this run itself is
// about to finish: an object that an interrupted run has begun to delete looks
// to the job like one that somebody else is deleting.
func notUnderWay(findings []Finding, entries []*entry) []Finding {
	if len(entries) == 0 {
		return findings
	}
	ours := map[string]bool{}
	for _, e := range entries {
		for i := range e.Unit.Changes {
			ours[e.Unit.Changes[i].Ref.String()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Severity == Deferred && ours[f.Object] })
}

// begun says whether the first change of a journaled unit was made.
func (r *run) begun(ctx context.Context, e *entry) (bool, error) {
	first := firstWrite(e.Unit.Changes)
	if first < 0 {
		return true, nil
	}
	if began, err := r.deletedAny(ctx, e); began || err != nil {
		return began, err
	}
	ch := &e.Unit.Changes[first]
	live, err := r.get(ctx, ch.Ref, ch.Subresource)
	if err != nil {
		return false, err
	}
	switch ch.Verb {
	case Create:
		return live != nil && live.GetAnnotations()[MarkAnnotation] == r.mark(e, first), nil
	case Delete:
		pre := e.Pre[first].Object
		return pre != nil && (live == nil || live.GetUID() != pre.GetUID() || live.GetDeletionTimestamp() != nil), nil
	case Patch:
		if live == nil {
			return e.goes(first), nil // it was patched, and deleted
		}
		return alreadyPatched(live, ch.Patch), nil
	default:
		return true, nil
	}
}

func (r *run) execute(parent, ctx context.Context, plan *Plan, entries []*entry, units, waits []Unit) outcome {
	if r.journal == nil {
		r.journal = newJournal(r.job.Name(), r.e.opts.Version, plan)
	} else {
		r.log.Info("finishing an interrupted run", zap.String("run", r.journal.Run), zap.Int("openUnits", len(entries)))
	}
	total := len(entries) + len(units) + len(waits)
	r.log.Info("starting", zap.String("run", r.journal.Run), zap.Int("units", total))
	r.e.opts.Progress.Start(total)
	defer r.e.opts.Progress.Stop()
	x := r.newExecutor(ctx, plan.Parallelism, plan.Serial)
	err := x.run(ctx, entries, units, waits)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.lock.lossCause()
	}
	if err != nil {
		return r.failed(parent, ctx, units, err)
	}
	out := outcome{result: Succeeded}
	made := 0
	for _, report := range r.changes() {
		if report.Verb != Await && report.Result == ChangeDone {
			made++
		}
	}
	out.message = fmt.Sprintf("%s made", count(made, "change"))
	if hasDeferred(r.findings) {
		out.result = DeferredResult
		out.message += "; the rest is deferred"
	}
	// The report first: once the journal is closed, nothing leads back here.
	r.publish(ctx, out)
	if err := r.journals.enter(ctx, r.journal, phaseDone); err != nil {
		if stopped, ok := r.interruption(parent, err); ok {
			return stopped
		}
		r.log.Warn("cannot close the journal; the next run will", zap.Error(err))
		return out
	}
	if err := r.journals.prune(ctx); err != nil {
		r.log.Warn("cannot remove old journals; a later run will", zap.Error(err))
	}
	return out
}

// failed decides what becomes of a run that cannot go on.
func (r *run) failed(parent, ctx context.Context, units []Unit, err error) outcome {
	if out, interrupted := r.interruption(parent, err); interrupted {
		r.persist(parent)
		return out
	}
	if len(r.journal.chunks) == 0 {
		out := r.nothingChanged(ctx, err)
		r.journal = nil
		return out
	}
	if isRefusal(firstRefusal(err)) {
		r.refused(parent, units)
	}
	if r.e.opts.OnFailure == OnFailureKeep {
		r.persist(parent)
		out := r.nothingChanged(ctx, err)
		out.unrestored = true
		out.message = fmt.Sprintf("%s; what was done stays (--on-failure=keep): run again to finish it, or undo", r.reason(ctx, err))
		return out
	}
	why, timedOut := r.reason(ctx, err), ctx.Err() != nil
	r.log.Warn("the run failed; rolling back", zap.String("reason", why))
	out, ok := r.finishBackwards(parent, phaseRollback)
	if !ok && out.result != PartlyRestored {
		return out
	}
	if out.result == RolledBack {
		out.message = why + "; everything is as it was before"
		if timedOut {
			out.result = TimedOut
		}
	} else {
		out.message = why + "; " + out.message
	}
	return out
}

// finishBackwards reverses r.journal and closes it; false if it stays open.
func (r *run) finishBackwards(parent context.Context, p phase) (outcome, bool) {
	ctx, cancel := r.limited(parent, r.e.opts.RollbackTimeout, "the rollback", "--rollback-timeout")
	defer cancel()
	if p == phaseForward {
		p = phaseRollback
	}
	if r.journal.phase != p {
		if err := r.journals.enter(ctx, r.journal, p); err != nil {
			return r.cutOff(parent, err), false
		}
	}
	r.fillReports()
	v, err := r.back(ctx, p == phaseUndo)
	if err != nil {
		return r.cutOff(parent, err), false
	}
	out := outcome{result: RolledBack, message: "everything is as it was before run " + r.journal.Run}
	if v.unrestored+v.kept > 0 {
		out.result = PartlyRestored
		out.message = fmt.Sprintf("%s could not be restored, %d kept", count(v.unrestored, "change"), v.kept)
		if v.unrestored == 0 {
			out.message = fmt.Sprintf("%s kept, since they carry live events", count(v.kept, "object"))
		}
	}
	if v.retry {
		out.message += "; the journal keeps everything: run again, or undo, to go on restoring"
		r.publish(ctx, out)
		return out, false
	}
	closed := phaseRolledBack
	if p == phaseUndo {
		closed = phaseUndone
		if v.unrestored-v.forGood+v.kept > 0 {
			closed = phaseDone // what is left may be undone later
		}
	}
	if err := r.journals.enter(ctx, r.journal, closed); err != nil {
		return r.cutOff(parent, err), false
	}
	return out, true
}

func (r *run) cutOff(parent context.Context, err error) outcome {
	if out, interrupted := r.interruption(parent, err); interrupted {
		return out
	}
	r.addFinding(Finding{Severity: Error, Problem: "the rollback did not end: " + err.Error(), Hint: r.restoreHint()})
	return outcome{result: PartlyRestored, message: "the rollback did not end: " + err.Error() + "; the journal keeps everything"}
}

func (r *run) restoreHint() string {
	command := append([]string{r.job.Name(), "undo"}, r.e.opts.Flags...)
	return "the journal keeps the former state; mend the cause, then: " + strings.Join(command, " ")
}

// interruption says whether err means that the process was told to stop, or lost
// the lock: then nothing more may be written, and the journal stays open.
func (r *run) interruption(parent context.Context, err error) (outcome, bool) {
	var locked *LockedError
	if lost := r.lock.lossCause(); lost != nil {
		err = errors.Join(lost, err)
	}
	if errors.As(err, &locked) {
		return outcome{result: Locked, message: locked.Error() + "; this run stopped before its next write, its journal is open"}, true
	}
	if parent.Err() == nil {
		return outcome{}, false
	}
	var signal SignalError
	number := syscall.SIGTERM
	if errors.As(context.Cause(parent), &signal) {
		number = signal.Signal
	}
	message := context.Cause(parent).Error()
	if r.journal != nil && len(r.journal.chunks) > 0 {
		message += "; the journal is open: run again to finish, or undo"
	} else {
		message += "; nothing was changed"
	}
	return outcome{result: Interrupted, message: message, signal: int(number)}, true
}

// persist writes what this process knows to be done, for the next one.
func (r *run) persist(parent context.Context) {
	if r.journal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), callTimeout)
	defer cancel()
	r.marking.Lock()
	defer r.marking.Unlock()
	for _, c := range r.journal.chunks {
		if marks := r.marks(c); len(marks) > 0 {
			if err := r.journals.mark(ctx, c.name, marks); err != nil {
				r.log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
				return
			}
		}
	}
}

// nothingChanged is the outcome of an error before the first write.
func (r *run) nothingChanged(ctx context.Context, err error) outcome {
	var locked *LockedError
	var timeout *timeoutError
	var signal SignalError
	switch {
	case errors.As(err, &locked):
		return outcome{result: Locked, message: locked.Error() + "; nothing was changed"}
	case errors.As(err, &signal):
		return outcome{result: Interrupted, signal: int(signal.Signal), message: signal.Error() + "; nothing was changed"}
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout):
		return outcome{result: TimedOut, message: timeout.Error() + "; nothing was changed"}
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &signal):
		return outcome{result: Interrupted, signal: int(signal.Signal), message: signal.Error() + "; nothing was changed"}
	case ctx.Err() != nil:
		return outcome{result: Interrupted, signal: int(syscall.SIGTERM), message: context.Cause(ctx).Error() + "; nothing was changed"}
	case apierrors.IsForbidden(err):
		r.addFinding(Finding{Severity: Error, Problem: err.Error(), Hint: "grant it to the account that runs the job (its Role or ClusterRole), and run it again"})
		return outcome{result: Refused, message: "a permission is missing; nothing was changed"}
	case apierrors.IsUnauthorized(err):
		r.addFinding(Finding{Severity: Error, Problem: err.Error(), Hint: "the credentials are not accepted: log in again, or use another --context"})
		return outcome{result: FailedResult, message: "the API server " + r.e.server + " does not accept the credentials; nothing was changed"}
	case !r.e.connected.Load() && k8sutil.IsTransient(err):
		r.addFinding(Finding{
			Severity: Error, Problem: fmt.Sprintf("cannot reach the API server %s: %v", r.e.server, err),
			Hint: "check the address in the kubeconfig (--kubeconfig, --context), the network, and that the server runs",
		})
		return outcome{result: FailedResult, message: "cannot reach the API server " + r.e.server + "; nothing was changed"}
	}
	if !r.hasError() {
		r.addFinding(Finding{Severity: Error, Problem: err.Error(), Hint: hintFor(err)})
	}
	return outcome{result: FailedResult, message: r.reason(ctx, err) + "; nothing was changed"}
}

// reason is why a run failed, in one clause.
func (r *run) reason(ctx context.Context, err error) string {
	var timeout *timeoutError
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout) {
		return timeout.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, f := range r.findings {
		if f.Severity == Error {
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s failed, the first: %s", count(n, "object"), firstError(r.findings))
	}
	if n == 1 {
		return firstError(r.findings)
	}
	return err.Error()
}

func (r *run) refuse(plan *Plan) outcome {
	r.findings = append(r.findings, plan.Findings...)
	n := 0
	for _, f := range plan.Findings {
		if f.Severity == Error {
			n++
		}
	}
	return outcome{result: Refused, message: fmt.Sprintf("refused, nothing was changed; %s to mend first", count(n, "problem"))}
}

func (r *run) undo(parent context.Context) outcome {
	ctx, cancel := r.limited(parent, r.e.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err := r.lock.peek(ctx); err != nil {
		return r.nothingChanged(ctx, err)
	}
	newest := func(ctx context.Context) (*openJournal, error) {
		headers, phases, err := r.journals.find(ctx, phaseForward, phaseRollback, phaseUndo, phaseDone)
		if err != nil || len(headers) == 0 {
			return nil, err
		}
		return &openJournal{headers[0], phases[0]}, nil
	}
	found, err := newest(ctx)
	switch {
	case err != nil:
		return r.nothingChanged(ctx, err)
	case found == nil:
		return outcome{result: NothingToDo, message: "there is no run to take back"}
	}
	contended, err := r.lock.acquire(parent, r.e.opts.LockWait)
	cancel()
	ctx, cancel = r.limited(parent, r.e.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err == nil && contended {
		found, err = newest(ctx)
	}
	switch {
	case err != nil:
		return r.nothingChanged(ctx, err)
	case found == nil:
		return outcome{result: NothingToDo, message: "there is no run to take back"}
	}
	if r.journal, err = r.journals.load(ctx, found.header, found.phase); err != nil {
		return r.nothingChanged(ctx, err)
	}
	var units []Unit
	for _, e := range r.journal.entries() {
		units = append(units, e.Unit)
	}
	if guard, ok := r.job.(UndoGuard); ok {
		reasons, err := guard.RefuseUndo(ctx, r.cluster, r.journal.changes())
		if err != nil {
			return r.nothingChanged(ctx, err)
		}
		if len(reasons) > 0 {
			r.findings = append(r.findings, reasons...)
			return outcome{result: Refused, message: "it is too early to take this back: " + reasons[0].Problem + "; nothing was changed"}
		}
	}
	missing, err := r.preflight(ctx, units)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	if len(missing) > 0 {
		r.findings = append(r.findings, missing...)
		return outcome{result: Refused, message: fmt.Sprintf("%s; nothing was changed", count(len(missing), "missing permission"))}
	}
	p := phaseUndo
	if found.phase == phaseRollback {
		p = phaseRollback
	}
	out, _ := r.finishBackwards(parent, p)
	if out.result == RolledBack {
		out.result = Succeeded
	}
	return out
}

// firstWrite is the index of the first change that writes, -1 if none does.
func firstWrite(changes []Change) int {
	for i := range changes {
		if changes[i].Writes() {
			return i
		}
	}
	return -1
}
