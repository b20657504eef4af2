package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// probed is the outcome of a run that only waits, after the job has tried it out.
func (r *run) probed(ctx context.Context, out outcome) outcome {
	prober, ok := r.job.(migration.Prober)
	if !ok || out.result != migration.NothingToDo {
		return out
	}
	findings := prober.Probe(ctx)
	r.addFinding(findings...)
	if hasErrors(&migration.Plan{Findings: findings}) {
		return outcome{result: migration.FailedResult, message: firstError(findings) + "; nothing was changed"}
	}
	return out
}

// run is one command on one job.
type run struct {
	*reporter
	// earlierOutcome is how a rollback ended that this run finished before its own work.
	earlierOutcome outcome
}

func (e *Engine) begin(command string, job migration.Job) *run {
	log := e.opts.Log.With(zap.String("job", job.Name()))
	own := e.newLock(log)
	lock := lease(own)
	if e.opts.Seat != nil {
		lock = e.opts.Seat.sit(own)
	}
	found := &findings{log: log}
	ignored := map[string]bool{}
	if ignorer, ok := job.(migration.EditIgnorer); ok {
		for _, key := range ignorer.IgnoredKeys() {
			ignored[key] = true
		}
	}
	rec := &recorder{log: log, ignored: ignored, journals: e.journals(job.Name())}
	w := &writer{
		log: log, job: job, client: e.writer, reader: e.reader, cluster: e.newCluster(), findings: found, ignored: ignored,
		read: e.read, notify: e.notify, account: &e.account, guard: lock.guard, restored: rec.restoredUID,
	}
	rec.journals.write = w.write
	return &run{reporter: &reporter{
		actor: &actor{findings: found, writer: w, recorder: rec, job: job, log: log, newCluster: e.newCluster, stateNamespace: e.opts.StateNamespace, undoFlags: e.opts.Flags},
		e:     e, lock: lock, command: command, started: time.Now(),
		requests: migration.Requests{Reads: e.counter.Reads(), Writes: e.counter.Writes()},
	}}
}

// outcome is how a command ended, before it is reported.
type outcome struct {
	result  migration.Result
	message string
	signal  int
	// unrestored is set if changes stay that the result does not promise to.
	unrestored bool
}

// Run does what is left to do. ctx ending with a SignalError interrupts it.
func (e *Engine) Run(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("run", job)
	defer r.release()
	return r.conclude(ctx, r.withEarlier(r.forward(ctx)))
}

// release gives the lock back. Its Lease says that a run of the job is open for as long
// as a journal may be.
func (r *run) release() {
	if r.journals.allClosed() {
		r.lock.release(r.job.Name())
		return
	}
	r.lock.release()
}

// worse joins the outcome of a run with that of the rollback which it finished
// first: what could not be restored then is not right because the rest went well.
func (r *run) withEarlier(out outcome) outcome {
	first := r.earlierOutcome
	if first.result != migration.PartlyRestored {
		return out
	}
	switch out.result {
	case migration.Succeeded, migration.NothingToDo, migration.DeferredResult:
		out.result = migration.PartlyRestored
	}
	out.message = first.message + "; then: " + out.message
	return out
}

// Plan decides what Run would do, and writes nothing.
func (e *Engine) Plan(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("plan", job)
	ctx, cancel := limited(ctx, e.opts.Timeout, "the plan", "--timeout")
	defer cancel()
	var plan *migration.Plan
	err := both(ctx, r.findOpen, func(ctx context.Context) (err error) {
		plan, err = r.plan(migration.WithDryRun(ctx))
		return err
	})
	if err != nil {
		return r.conclude(ctx, r.nothingChanged(ctx, err))
	}
	explainer, _ := job.(migration.Explainer)
	units := slices.Concat(plan.Units, plan.Last)
	for i := range units {
		build(&units[i])
		for j := range units[i].Changes {
			ch := &units[i].Changes[j]
			report := changeReport(ch, "")
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
	r.addFinding(plan.Findings...)
	if hasErrors(plan) {
		return r.conclude(ctx, outcome{result: migration.Refused, message: "a run would be refused: " + firstError(plan.Findings)})
	}
	writes := 0
	for i := range units {
		for j := range units[i].Changes {
			if units[i].Changes[j].Writes() {
				writes++
			}
		}
	}
	message := fmt.Sprintf("a run would make %s", count(writes, "change"))
	if waits := len(units) - writingUnits(plan); waits > 0 {
		message += fmt.Sprintf(" and wait for %s", count(waits, "existing object"))
	}
	if writes == 0 && len(units) == 0 {
		message = "there is nothing to do"
	}
	return r.conclude(ctx, outcome{result: migration.Planned, message: message})
}

// Undo takes back the newest run that was not taken back yet, finished or
// interrupted.
func (e *Engine) Undo(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("undo", job)
	defer r.release()
	return r.conclude(ctx, r.undo(ctx))
}

// limited is ctx with a limit, the reason of which is told in words.
func limited(ctx context.Context, limit time.Duration, what, flag string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &timeoutError{what, flag, limit.String()})
}

// look reads the cluster: what an interrupted run left, and what is left to do. A job
// that only reads leaves nothing.
func (r *run) observe(ctx context.Context) (plan *migration.Plan, open []openJournal, err error) {
	err = both(ctx, func(ctx context.Context) (err error) {
		if !onlyReads(r.job) {
			open, err = r.journals.find(ctx, openPhases...)
		}
		return err
	}, func(ctx context.Context) (err error) {
		plan, err = r.plan(ctx)
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

// both does two reads at once.
func both(ctx context.Context, one, other func(context.Context) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return one(gctx) })
	g.Go(func() error { return other(gctx) })
	err := g.Wait()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// onlyReads says whether the job never writes.
func onlyReads(job migration.Job) bool {
	_, reader := job.(migration.OnlyReader)
	return reader
}

// findOpen reports for a plan the runs of the job that are open. Whether there is one
// is told by the Lease; which, and how far it came, by its journal, if this account may
// read that. Without a Lease, which somebody may have deleted, there are only the journals.
func (r *run) findOpen(ctx context.Context) error {
	lock := r.e.newLock(r.log)
	if err := lock.peek(ctx); err != nil {
		return err
	}
	marked := lock.isMarked(r.job.Name())
	if lock.live != nil && !marked {
		return nil
	}
	// Asked, so that an account that may not is refused nothing.
	readable, err := r.preflight().allowed(ctx, permission{verb: "list", resource: "secrets", namespace: r.e.opts.StateNamespace})
	if err != nil {
		return err
	}
	const hint = "run finishes it first; undo undoes it"
	if !readable {
		for _, o := range lock.openRuns() {
			if o.job == r.job.Name() {
				r.addFinding(migration.Finding{Severity: migration.Warning, Problem: fmt.Sprintf("a run of it goes on or was interrupted; the Lease says that it is open since %s", o.since.Format(time.RFC3339)), Hint: hint})
			}
		}
		return nil
	}
	open, err := r.journals.find(ctx, openPhases...)
	for _, o := range open {
		r.addFinding(migration.Finding{Severity: migration.Warning, Problem: fmt.Sprintf("run %s was interrupted; its journal is open (%s)", o.header.Run, o.phase), Hint: hint})
	}
	return err
}

// plan asks the job; a panic in it is its error.
func (r *run) plan(ctx context.Context) (plan *migration.Plan, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = k8sutil.Permanent(fmt.Errorf("the job %s failed to decide: panic: %v", r.job.Name(), p))
		}
	}()
	r.cluster = r.e.clusterOf(r.made)
	if plan, err = r.job.Plan(ctx, r.cluster); err == nil && plan == nil {
		plan = &migration.Plan{}
	}
	return plan, err
}

func (r *run) forward(parent context.Context) outcome {
	// One limit for all that comes before a rollback: the wait for the lock and the
	// work. A rollback that an earlier run left open comes out of it, too.
	end := r.started.Add(r.e.opts.LockWait + r.e.opts.Timeout)
	ctx, cancel := limited(parent, r.e.opts.Timeout, "the run", "--timeout")
	defer cancel()
	// The Lease is read before everything else: if it can be taken as it was
	// then, what was read in between still holds.
	if !onlyReads(r.job) {
		if err := r.lock.peek(ctx); err != nil {
			return r.nothingChanged(ctx, err)
		}
	}
	plan, open, err := r.observe(ctx)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	if len(open) == 0 {
		if hasErrors(plan) {
			return r.refusal(plan)
		}
		if writingUnits(plan) == 0 {
			out := r.probed(ctx, r.waitOnly(ctx, plan))
			r.clearMark(parent)
			return out
		}
		// What is refused is refused before even the Lease is written.
		if out, ok := r.checkBeforeStart(ctx, plan, slices.Concat(plan.Units, plan.Last)); !ok {
			return out
		}
	}
	// The wait for the lock has its own limit; the work has all of its time.
	contended, err := r.acquire(parent)
	cancel()
	ctx, cancel = limited(parent, min(r.e.opts.Timeout, time.Until(end)), "the run", "--timeout")
	defer cancel()
	if err == nil && contended {
		r.e.served.Forget()
		plan, open, err = r.observe(ctx)
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
		out, ok := r.finishBackwards(parent, o.phase, min(r.e.opts.RollbackTimeout, time.Until(end)))
		if !ok || r.e.opts.Resume == ResumeBack {
			return out
		}
		r.earlier, r.earlierOutcome = r.changes(), out
		r.unjournaled, r.journal = nil, nil
	}
	r.journal = journal
	if len(open) > 0 {
		// What was planned beside an open journal did not know what is in it.
		if plan, err = r.plan(ctx); err != nil {
			return r.nothingChanged(ctx, err)
		}
	}
	if hasErrors(plan) {
		out := r.refusal(plan)
		if journal != nil {
			out.message += fmt.Sprintf("; the interrupted run %s stays open: fix that and run again, or undo", journal.Run)
		}
		return out
	}
	if journal == nil && writingUnits(plan) == 0 {
		return r.probed(ctx, r.waitOnly(ctx, plan))
	}
	if contended || len(open) > 0 {
		// Before merge: it deletes what an interrupted run had made and the plan wants
		// otherwise.
		if out, ok := r.checkBeforeStart(ctx, plan, slices.Concat(plan.Units, plan.Last)); !ok {
			return out
		}
	}
	t, err := r.merge(ctx, plan)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	plan.Findings = notUnderWay(plan.Findings, t.entries)
	r.addFinding(plan.Findings...)
	return r.execute(parent, ctx, plan, t)
}

// acquire takes the lock. What was known of journals is stale if another run had it.
func (r *run) acquire(ctx context.Context) (contended bool, err error) {
	contended, err = r.lock.acquire(ctx, r.job.Name(), r.e.opts.LockWait)
	if contended {
		r.journals.know(nil)
	}
	return contended, err
}

// clearMark takes the lock, so that its release removes the mark of a run that was
// killed before it had a journal, or after it had closed it. Nothing else is left to do.
func (r *run) clearMark(ctx context.Context) {
	if onlyReads(r.job) || ctx.Err() != nil || !r.lock.isMarked(r.job.Name()) {
		return
	}
	contended, err := r.acquire(ctx)
	if err == nil && contended {
		_, err = r.journals.find(ctx, openPhases...)
	}
	if err != nil {
		r.log.Warn("the Lease still says that a run of this job is open, and none is; a later run corrects that", zap.Error(err))
	}
}

func (r *run) preflight() *preflight {
	return &preflight{actor: r.actor, reviews: r.e.reviews, stateNamespace: r.e.opts.StateNamespace}
}

// checkBeforeStart is the last gate before the first write.
func (r *run) checkBeforeStart(ctx context.Context, plan *migration.Plan, units []migration.Unit) (outcome, bool) {
	if plan.Estimate > r.e.opts.Timeout && !allIndependent(plan) {
		r.addFinding(plan.Findings...)
		r.addFinding(migration.Finding{
			Severity: migration.Error, Problem: fmt.Sprintf("the plan may take %s, longer than --timeout %s", plan.Estimate, r.e.opts.Timeout),
			Hint: "give a longer --timeout (and Helm's, which must be longer still)",
		})
		return outcome{result: migration.Refused, message: "the plan may not end within --timeout; nothing was changed"}, false
	}
	missing, err := r.preflight().missing(ctx, units)
	if err != nil {
		return r.nothingChanged(ctx, err), false
	}
	if len(missing) > 0 {
		r.addFinding(slices.Concat(plan.Findings, missing)...)
		return outcome{result: migration.Refused, message: fmt.Sprintf("%s; nothing was changed", count(len(missing), "missing permission"))}, false
	}
	// An interrupted run is finished as far as it can be; it fails at its end.
	if r.e.opts.Defer == DeferFail && hasDeferred(plan.Findings) && r.journal == nil {
		r.addFinding(plan.Findings...)
		return deferralFails(), false
	}
	return outcome{}, true
}

// allIndependent says whether a run that times out may leave what it finished.
func allIndependent(plan *migration.Plan) bool {
	return !slices.ContainsFunc(plan.Units, func(u migration.Unit) bool { return u.Writes() && !u.Independent })
}

func deferralFails() outcome {
	return outcome{result: migration.FailedResult, message: "there is work that must wait, and --defer=fail makes that a failure; nothing was changed"}
}

// onlyWait is a run without a write: no lock, no journal.
func (r *run) waitOnly(ctx context.Context, plan *migration.Plan) outcome {
	r.addFinding(plan.Findings...)
	if r.e.opts.Defer == DeferFail && hasDeferred(r.allFindings()) {
		return deferralFails()
	}
	if len(plan.Units) == 0 {
		if hasDeferred(r.allFindings()) {
			return outcome{result: migration.DeferredResult, message: "nothing can be done now; what is left is deferred"}
		}
		return outcome{result: migration.NothingToDo, message: "there is nothing to do"}
	}
	r.log.Info("waiting for what exists already", zap.Int("objects", len(plan.Units)))
	r.e.opts.Progress.Start(len(plan.Units))
	defer r.e.opts.Progress.Stop()
	x := r.newExecutor(ctx, plan.Parallelism, plan.Serial)
	if err := x.run(ctx, todo{waits: plan.Units}); err != nil {
		out := r.nothingChanged(ctx, err)
		if out.result == migration.FailedResult {
			out.message = fmt.Sprintf("%s not right; nothing was changed", count(len(x.failures), "existing object")+verbIs(len(x.failures)))
		}
		return out
	}
	out := outcome{result: migration.NothingToDo, message: fmt.Sprintf("%s ready now; nothing had to be changed", count(len(plan.Units), "existing object")+verbIs(len(plan.Units)))}
	if hasDeferred(r.allFindings()) {
		out.result = migration.DeferredResult
		out.message += "; what is left is deferred"
	}
	return out
}

// merge brings together what an interrupted run left open and what is planned
// now. The journal decides what has to be finished because it was begun: see
// goesOn. The plan, which saw the cluster as it is, decides everything else.
// It may write, and so comes after the preflight.
func (r *run) merge(ctx context.Context, plan *migration.Plan) (todo, error) {
	if r.journal == nil {
		t := todo{last: plan.Last}
		for _, u := range plan.Units {
			if u.Writes() {
				t.units = append(t.units, u)
			} else if len(u.Changes) > 0 {
				t.waits = append(t.waits, u)
			}
		}
		return t, nil
	}
	var t todo
	journaled := r.journal.entries()
	begun := map[string]bool{}
	for _, e := range journaled {
		if len(e.reports) == 0 {
			for i := range e.Unit.Changes {
				e.reports = append(e.reports, changeReport(&e.Unit.Changes[i], migration.ChangeNotStarted))
			}
		}
		if err := r.inspect(ctx, e); err != nil {
			return t, err
		}
		begun[e.Unit.ID] = begun[e.Unit.ID] || e.anyBegun()
	}
	wanted := wantedBy(plan)
	// What this job has made, and the plan wants to be another object.
	stays := map[migration.Ref]bool{}
	for _, e := range journaled {
		for i := range e.Unit.Changes {
			ch := &e.Unit.Changes[i]
			want := wanted[changeKey{migration.Create, ch.Ref}]
			if ch.Verb != migration.Create || want == nil || !r.stateOf(e, i).begun() || !e.steps[i].made || sameObject(want.Built(), ch.Object) {
				continue
			}
			gone, err := r.replaced(ctx, e, i)
			if err != nil {
				return t, err
			}
			stays[ch.Ref] = !gone
		}
	}
	known, covered, goOn := map[string]bool{}, map[migration.Ref]bool{}, map[changeKey]bool{}
	changed := false
	for _, e := range journaled {
		if e.done {
			continue
		}
		follows := slices.ContainsFunc(e.Unit.Follows, func(id string) bool { return begun[id] })
		goesOn := r.continues(e, wanted, follows, begun)
		if !goesOn {
			changed = true
			e.done = true
			e.chunk.left--
			continue
		}
		for i := range e.Unit.Changes {
			if r.stateOf(e, i) != stepLeft {
				covered[e.Unit.Changes[i].Ref] = true
				goOn[changeKey{e.Unit.Changes[i].Verb, e.Unit.Changes[i].Ref}] = true
			}
		}
		known[e.Unit.ID] = known[e.Unit.ID] || !e.anyLeft()
		if e.Last {
			t.lastEntries = append(t.lastEntries, e)
		} else {
			t.entries = append(t.entries, e)
		}
	}
	if changed {
		// What is given up is none of this run's any more, also if it is killed again.
		for _, c := range r.journal.all() {
			if err := r.journals.mark(ctx, c.name, r.marks(c)); err != nil {
				return t, err
			}
		}
	}
	for _, u := range plan.Units {
		u.Changes = slices.DeleteFunc(slices.Clone(u.Changes), func(ch migration.Change) bool { return ch.Writes() && goOn[changeKey{ch.Verb, ch.Ref}] })
		switch {
		case known[u.ID], slices.ContainsFunc(u.Changes, func(ch migration.Change) bool { return stays[ch.Ref] }):
		case u.Writes():
			t.units = append(t.units, u)
		case len(u.Changes) > 0 && !covered[u.Changes[0].Ref]:
			t.waits = append(t.waits, u)
		}
	}
	for _, u := range plan.Last {
		if !known[u.ID] {
			t.last = append(t.last, u)
		}
	}
	return t, nil
}

// wish is a change that a plan wants, by its verb and object.
type changeKey struct {
	verb migration.Verb
	ref  migration.Ref
}

func wantedBy(plan *migration.Plan) map[changeKey]*migration.Change {
	wanted := map[changeKey]*migration.Change{}
	for i := range plan.Units {
		for j := range plan.Units[i].Changes {
			ch := &plan.Units[i].Changes[j]
			wanted[changeKey{ch.Verb, ch.Ref}] = ch
		}
	}
	return wanted
}

// sameObject says whether two plans want the same object.
func sameObject(a, b *unstructured.Unstructured) bool {
	return a != nil && b != nil && reflect.DeepEqual(a.Object, b.Object)
}

// inspect finds out by the cluster which changes of an interrupted unit were, or
// may have been, made: there is no mark of them.
func (a *actor) inspect(ctx context.Context, e *entry) error {
	if e.done {
		return nil
	}
	for i := range e.Unit.Changes {
		ch := &e.Unit.Changes[i]
		if state := a.stateOf(e, i); !ch.Writes() || state != stepUnknown && state != stepBegun {
			continue
		}
		made, certain, err := a.isMade(ctx, e, i)
		if err != nil {
			return err
		}
		e.steps[i].made = made
		if !made && certain {
			a.setState(e, i, stepNotBegun)
		}
	}
	return nil
}

// isMade says whether the cluster shows a change as made, and if not, whether it
// is certain that it was not.
func (a *actor) isMade(ctx context.Context, e *entry, i int) (made, certain bool, err error) {
	ch, pre := &e.Unit.Changes[i], e.Pre[i].Object
	if ch.Verb == migration.Restart {
		return false, false, nil
	}
	live, err := a.get(ctx, ch.Ref, ch.Subresource)
	if err != nil {
		return false, false, err
	}
	switch ch.Verb {
	case migration.Create:
		if e.restores(i) {
			deleted := e.deletionOf(i)
			return deleted >= 0 && e.Pre[deleted].Object != nil && e.steps[deleted].made && live != nil && live.GetUID() != e.Pre[deleted].Object.GetUID(), true, nil
		}
		// One that was made and is gone again leaves nothing to finish or to undo.
		return live != nil && live.GetAnnotations()[MarkAnnotation] == a.mark(e, i), true, nil
	case migration.Delete:
		if pre == nil {
			return false, true, nil
		}
		if live != nil && live.GetUID() == pre.GetUID() && e.patchNotMade(i) {
			// The unit patches it before it deletes it: somebody else deletes it.
			return false, true, nil
		}
		return live == nil || live.GetUID() != pre.GetUID() || live.GetDeletionTimestamp() != nil, true, nil
	case migration.Patch:
		switch {
		case live == nil:
			return e.goes(i), true, nil // it was patched, and deleted
		case pre != nil && live.GetUID() != pre.GetUID():
			return recreates(&e.Unit, i) || e.goes(i), true, nil
		case pre != nil && isPatched(pre, ch):
			return false, false, nil // it would change nothing: there is no telling
		}
		return isPatched(live, ch), true, nil
	}
	return false, true, nil
}

// patchNotMade says whether an earlier change of the unit patches the object of
// change i, and is known not to have been made.
func (e *entry) patchNotMade(i int) bool {
	for j := range i {
		ch := &e.Unit.Changes[j]
		if ch.Verb == migration.Patch && ch.Ref == e.Unit.Changes[i].Ref && e.steps[j].state == stepNotBegun {
			return true
		}
	}
	return false
}

// deletionOf returns the earlier change that deletes the object of change i, -1 if
// none does.
func (e *entry) deletionOf(i int) int {
	for j := i - 1; j >= 0; j-- {
		if e.Unit.Changes[j].Verb == migration.Delete && e.Unit.Changes[j].Ref == e.Unit.Changes[i].Ref {
			return j
		}
	}
	return -1
}

// madeOrBegun says whether change i has had an effect, as far as is known.
func (e *entry) madeOrBegun(i int) bool {
	s := &e.steps[i]
	return s.made || s.state.isDone() || s.state == stepBegun && !e.read
}

func (e *entry) anyBegun() bool {
	for i := range e.Unit.Changes {
		if e.Unit.Changes[i].Writes() && e.madeOrBegun(i) {
			return true
		}
	}
	return false
}

func (e *entry) anyLeft() bool {
	return slices.ContainsFunc(e.steps, func(s step) bool { return s.state == stepLeft })
}

// goesOn decides which changes of an interrupted unit are still made as they were
// planned then; false if none is. They are those that were begun; those that
// restore or replace what it has deleted; all of a unit that commits, once it has
// deleted anything; all of one that follows from another that was begun; and what
// comes last because of something that was begun. The others are left to the plan of
// now. Where a guarded change was begun, and the plan of now does not want what
// belongs to it, it is undone when the unit is executed.
func (a *actor) continues(e *entry, wanted map[changeKey]*migration.Change, follows bool, begun map[string]bool) bool {
	if follows || e.Last && len(begun) > 0 && anyTrue(begun) {
		return true
	}
	deleted := -1
	for i := range e.Unit.Changes {
		if e.Unit.Changes[i].Verb == migration.Delete && e.madeOrBegun(i) {
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
		of := e.deletionOf(i)
		switch {
		case ch.Writes() && e.madeOrBegun(i):
			keep[i] = true
		case ch.Verb == migration.Create && of >= 0 && e.madeOrBegun(of):
			keep[i] = true
		case e.halfMade(i) && wanted[changeKey{ch.Verb, ch.Ref}] != nil:
			// The rest of a guarded step goes on as one with what was begun of it.
			keep[i] = true
		}
		kept = kept || keep[i]
	}
	for i := range keep {
		if !keep[i] {
			a.setState(e, i, stepLeft)
		}
	}
	if !kept {
		e.reports = nil
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

// halfMade says whether something of the guarded step of change i was begun.
func (e *entry) halfMade(i int) bool {
	guard := e.guardOf(i)
	if guard < 0 {
		return false
	}
	for k := guard; k < guardEnd(&e.Unit, guard); k++ {
		if e.Unit.Changes[k].Writes() && e.madeOrBegun(k) {
			return true
		}
	}
	return false
}

// notUnderWay leaves out what the job defers because of what this run itself is
// about to finish: an object that an interrupted run has begun to delete looks
// to the job like one that somebody else is deleting.
func notUnderWay(findings []migration.Finding, entries []*entry) []migration.Finding {
	ours := map[string]bool{}
	for _, e := range entries {
		for i := range e.Unit.Changes {
			if e.Unit.Changes[i].Verb == migration.Delete && e.madeOrBegun(i) {
				ours[e.Unit.Changes[i].Ref.String()] = true
			}
		}
	}
	if len(ours) == 0 {
		return findings
	}
	return slices.DeleteFunc(slices.Clone(findings), func(f migration.Finding) bool { return f.Severity == migration.Deferred && ours[f.Object] })
}

func (r *run) execute(parent, ctx context.Context, plan *migration.Plan, t todo) outcome {
	if r.journal == nil {
		r.journal = newJournal(r.job.Name(), r.e.opts.Version, max(r.lock.acquisition(), r.journals.highest+1), plan)
	} else {
		r.log.Info("finishing an interrupted run", zap.String("run", r.journal.Run), zap.Int("openUnits", len(t.entries)))
	}
	r.log.Info("starting", zap.String("run", r.journal.Run), zap.Int("units", t.size()))
	r.e.opts.Progress.Start(t.size())
	defer r.e.opts.Progress.Stop()
	x := r.newExecutor(ctx, plan.Parallelism, plan.Serial)
	err := x.run(ctx, t)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.lock.lossCause()
	}
	if err != nil {
		return r.failed(parent, ctx, x, t.units, err)
	}
	x.recordLateEffects(ctx)
	if r.journal.empty() {
		// Every unit was left: nothing was written.
		r.journal = nil
		return r.finished(outcome{result: migration.NothingToDo, message: "nothing was changed"})
	}
	made := 0
	for _, report := range r.changes() {
		if report.Verb != migration.Await && report.Result == migration.ChangeDone {
			made++
		}
	}
	out := r.finished(outcome{result: migration.Succeeded, message: fmt.Sprintf("%s made", count(made, "change"))})
	// The report first: once the journal is closed, nothing leads back here.
	r.publish(ctx, out)
	if err := r.journals.enter(ctx, r.journal, phaseDone, r.marks(r.journal.all()[0])); err != nil {
		if stopped, ok := r.interruption(parent, err); ok {
			return stopped
		}
		r.tell(migration.Finding{
			Severity: migration.Warning, Problem: fmt.Sprintf("all changes are made, and the journal of run %s cannot be closed: %v", r.journal.Run, err),
			Hint: "run the job again: it finds nothing to do and closes the journal; until then, status shows the run as open",
		})
		return out
	}
	r.prune(ctx)
	return out
}

// finished is the outcome of a run that did all it could: what had to wait makes
// it a failure under --defer=fail, and what is done stays.
func (r *run) finished(out outcome) outcome {
	switch {
	case !hasDeferred(r.allFindings()):
	case r.e.opts.Defer == DeferFail:
		out.result = migration.FailedResult
		out.message += "; there is work that must wait, and --defer=fail makes that a failure; what is done stays"
	default:
		out.result = migration.DeferredResult
		out.message += "; the rest is deferred"
	}
	return out
}

// prune removes journals that nobody can need; failing to is no failure of the run.
func (r *run) prune(ctx context.Context) {
	if err := r.journals.prune(ctx); err != nil {
		r.log.Warn("cannot remove old journals; a later run will", zap.Error(err))
	}
}

// progress counts the independent units of a run: those that are done, and all.
// changed says whether any of them was begun.
func (rec *recorder) progress(units []migration.Unit) (done, all int, changed bool) {
	journaled := map[string]bool{}
	for _, e := range rec.journal.entries() {
		journaled[e.Unit.ID] = true
		if !e.Unit.Independent {
			continue
		}
		all++
		if e.done {
			done++
		}
		for i := range e.Unit.Changes {
			changed = changed || e.Unit.Changes[i].Writes() && rec.stateOf(e, i).begun()
		}
	}
	for i := range units {
		if units[i].Independent && !journaled[units[i].ID] {
			all++
		}
	}
	return done, all, changed
}

// keepProgress ends a run that timed out, and leaves what it finished: each of its
// units is right by itself, and the next run goes on with the rest.
func (r *run) leaveProgress(parent context.Context, x *executor, why string, done, all int) outcome {
	ctx, cancel := limited(parent, r.e.opts.RollbackTimeout, "the end of the run", "--rollback-timeout")
	defer cancel()
	out := outcome{result: migration.TimedOut, message: fmt.Sprintf("%s; %d of %d are done and stay; run again to go on with the rest, or undo", why, done, all)}
	if len(x.last) > 0 {
		ending := r.newExecutor(ctx, r.journal.Parallelism, r.journal.Serial)
		ending.last = x.last
		err := ending.finally(ctx)
		ending.stop(nil)
		if err != nil {
			out.message += "; what comes last could not be done: " + err.Error()
		}
	}
	r.writeMarks(parent)
	return out
}

// failed decides what becomes of a run that cannot go on.
func (r *run) failed(parent, ctx context.Context, x *executor, units []migration.Unit, err error) outcome {
	if out, ok := r.stranded(parent, err); ok {
		return out
	}
	if out, interrupted := r.interruption(parent, err); interrupted {
		r.writeMarks(parent)
		return out
	}
	if r.journal.empty() {
		out := r.nothingChanged(ctx, err)
		r.journal = nil
		return out
	}
	if isRefusal(firstRefusal(err)) {
		r.dryRunRemaining(parent, units)
	}
	if r.e.opts.OnFailure == OnFailureLeave {
		r.writeMarks(parent)
		out := r.nothingChanged(ctx, err)
		out.unrestored = true
		out.message = fmt.Sprintf("%s; what was done stays (--on-failure=leave): run again to finish it, or undo", r.reason(ctx, err))
		return out
	}
	why, timedOut := r.reason(ctx, err), ctx.Err() != nil
	if done, all, changed := r.progress(units); timedOut && changed {
		return r.leaveProgress(parent, x, why, done, all)
	}
	r.log.Warn("the run failed; rolling back", zap.String("reason", why))
	out, ok := r.finishBackwards(parent, phaseRollback, r.e.opts.RollbackTimeout)
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

// asBefore is said when all that a run changed is restored, and nothing else.
const asBefore = "everything is as it was before"

// finishBackwards reverses r.journal and closes it; false if it stays open.
func (r *run) finishBackwards(parent context.Context, p phase, limit time.Duration) (outcome, bool) {
	ctx, cancel := limited(parent, limit, "the rollback", "--rollback-timeout")
	defer cancel()
	if p == phaseForward {
		p = phaseRollback
	}
	resumed := r.journal.phase == p
	if !resumed {
		// What this process knows is written first: one that goes on after a kill knows no
		// more than the marks.
		for _, c := range r.journal.all()[1:] {
			if c.left == 0 {
				continue
			}
			if err := r.journals.mark(ctx, c.name, r.marks(c)); err != nil {
				return r.cutOff(parent, err), false
			}
		}
		if err := r.journals.enter(ctx, r.journal, p, r.marks(r.journal.all()[0])); err != nil {
			return r.cutOff(parent, err), false
		}
	}
	r.fillReports()
	v, err := r.rollBack(ctx, p == phaseUndo, resumed)
	if err != nil {
		return r.cutOff(parent, err), false
	}
	out := outcome{result: migration.RolledBack, message: asBefore + " run " + r.journal.Run}
	if p == phaseUndo {
		// Later runs, and others, have changed more since.
		out.message = fmt.Sprintf("all changes of run %s are undone", r.journal.Run)
	}
	if v.finished > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone, but for %s, which stays as it is", r.journal.Run, count(v.finished, "finished unit"))
		if v.finished > 1 {
			out.message = fmt.Sprintf("all changes of run %s are undone, but for %s, which stay as they are", r.journal.Run, count(v.finished, "finished unit"))
		}
	}
	if v.unproven > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone; %s restored or deleted without proof that the run had changed it: see the warnings",
			r.journal.Run, count(v.unproven, "object")+verbWas(v.unproven))
	}
	if left := int(r.leftEffects.Load()); left > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone; %s left that may come from it: see the warnings", r.journal.Run, count(left, "object")+verbIs(left))
	}
	if v.unrestored+v.protected > 0 {
		out.result = migration.PartlyRestored
		out.message = fmt.Sprintf("%s could not be restored, %d protected", count(v.unrestored, "change"), v.protected)
		if v.unrestored == 0 {
			out.message = fmt.Sprintf("%s protected, since they carry live events", count(v.protected, "object")+verbIs(v.protected))
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
		if v.unrestored-v.forGood+v.protected > 0 {
			closed = phaseDone // what is left may be undone later
		}
	}
	if err := r.journals.enter(ctx, r.journal, closed, r.marks(r.journal.all()[0])); err != nil {
		return r.cutOff(parent, err), false
	}
	r.prune(ctx)
	return out, true
}

func (rp *reporter) cutOff(parent context.Context, err error) outcome {
	if out, ok := rp.stranded(parent, err); ok {
		return out
	}
	if out, interrupted := rp.interruption(parent, err); interrupted {
		return out
	}
	hint := rp.restoreHint()
	if cut, ok := errors.AsType[*cutOffError](err); ok && cut.status.Hint != "" {
		hint = cut.status.Hint + "; " + hint
	}
	rp.addFinding(migration.Finding{Severity: migration.Error, Problem: "the rollback did not end: " + err.Error(), Hint: hint})
	return outcome{result: migration.PartlyRestored, message: "the rollback did not end: " + err.Error() + "; the journal keeps everything"}
}

func (a *actor) restoreHint() string {
	command := append([]string{a.job.Name(), "undo"}, a.undoFlags...)
	return "the journal keeps the former state; mend the cause, then: " + strings.Join(command, " ")
}

// stranded says whether a run can neither go on nor roll back: its account is gone,
// or its journal is. What it has done stays, and the report is all there is.
func (rp *reporter) stranded(parent context.Context, err error) (outcome, bool) {
	lost := rp.lock.lossCause()
	err = errors.Join(err, lost)
	if rp.journal == nil || rp.journal.empty() {
		return outcome{}, false
	}
	if gone, ok := errors.AsType[*k8sutil.AccountGoneError](err); ok {
		rp.addFinding(migration.Finding{
			Severity: migration.Error, Problem: gone.Error(),
			Hint: "recreate the account with its permissions, or use another one, and run the job again: it goes on where this run stopped. The next helm upgrade recreates the account of a hook; if one is running already, its Job goes on, and nothing is to do",
		})
		return outcome{result: migration.PartlyRestored, message: "this account is gone: nothing could be written any more; what was done stays, and the journal is open"}, true
	}
	gone, ok := errors.AsType[*stateGoneError](err)
	if locked, isLocked := errors.AsType[*LockedError](err); !ok && isLocked && locked.Deleted {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), callTimeout)
		defer cancel()
		list, err := rp.journals.metadata(ctx, labelJob+"="+rp.job.Name()+","+labelRun+"="+rp.journal.Run)
		if err == nil && len(list) == 0 {
			gone, ok = &stateGoneError{rp.e.opts.StateNamespace, locked}, true
		}
	}
	if !ok {
		return outcome{}, false
	}
	rp.addFinding(migration.Finding{
		Severity: migration.Error, Object: "Namespace " + rp.e.opts.StateNamespace, Problem: gone.Error(),
		Hint: "what this run changed is listed above, and cannot be undone by this tool; create the namespace again if it is gone, and run the job: it decides on the cluster as it is",
	})
	return outcome{result: migration.PartlyRestored, message: fmt.Sprintf("%v; this run stopped, and what was done stays", gone)}, true
}

// isDamaged returns the error that a journal lost a Secret, nil if it is another.
func isDamaged(err error) *damagedError {
	damaged, _ := errors.AsType[*damagedError](err)
	return damaged
}

// interruption says whether err means that the process was told to stop, or lost
// the lock: then nothing more may be written, and the journal stays open.
func (rp *reporter) interruption(parent context.Context, err error) (outcome, bool) {
	var locked *LockedError
	if lost := rp.lock.lossCause(); lost != nil {
		err = errors.Join(lost, err)
	}
	if errors.As(err, &locked) {
		return outcome{result: migration.Locked, message: locked.Error() + "; this run stopped before its next write, its journal is open"}, true
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
	if rp.journal != nil && !rp.journal.empty() {
		message += "; the journal is open: run again to finish, or undo"
	} else {
		message += "; nothing was changed"
	}
	return outcome{result: migration.Interrupted, message: message, signal: int(number)}, true
}

// persist writes what this process knows to be done, for the next one.
func (rec *recorder) writeMarks(parent context.Context) {
	if rec.journal == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), callTimeout)
	defer cancel()
	rec.marking.Lock()
	defer rec.marking.Unlock()
	for _, c := range rec.journal.all() {
		if marks := rec.marks(c); len(marks) > 0 {
			if err := rec.journals.mark(ctx, c.name, marks); err != nil {
				rec.log.Warn("cannot mark what is done in the journal; a later run will look again", zap.Error(err))
				return
			}
		}
	}
}

// nothingChanged is the outcome of an error before the first write.
func (rp *reporter) nothingChanged(ctx context.Context, err error) outcome {
	var locked *LockedError
	var timeout *timeoutError
	var signal SignalError
	var home *stateNamespaceError
	switch {
	case errors.As(err, &locked):
		return outcome{result: migration.Locked, message: locked.Error() + "; nothing was changed"}
	case errors.As(err, &signal):
		return outcome{result: migration.Interrupted, signal: int(signal.Signal), message: signal.Error() + "; nothing was changed"}
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout):
		return outcome{result: migration.TimedOut, message: timeout.Error() + "; nothing was changed"}
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &signal):
		return outcome{result: migration.Interrupted, signal: int(signal.Signal), message: signal.Error() + "; nothing was changed"}
	case ctx.Err() != nil:
		return outcome{result: migration.Interrupted, signal: int(syscall.SIGTERM), message: context.Cause(ctx).Error() + "; nothing was changed"}
	case isDamaged(err) != nil:
		rp.addFinding(migration.Finding{Severity: migration.Error, Problem: err.Error(), Hint: isDamaged(err).hint()})
		return outcome{result: migration.Refused, message: err.Error() + "; nothing was changed"}
	case errors.As(err, &home):
		rp.addFinding(migration.Finding{Severity: migration.Error, Object: "Namespace " + home.namespace, Problem: home.Error(), Hint: home.hint()})
		return outcome{result: migration.Refused, message: home.Error() + "; nothing was changed"}
	case apierrors.IsForbidden(err):
		rp.addFinding(migration.Finding{Severity: migration.Error, Problem: err.Error(), Hint: "grant it to the account that runs the job (its Role or ClusterRole), and run it again"})
		return outcome{result: migration.Refused, message: "a permission is missing; nothing was changed"}
	case apierrors.IsUnauthorized(err):
		rp.addFinding(migration.Finding{Severity: migration.Error, Problem: err.Error(), Hint: "the credentials are not accepted: log in again, or use another --context"})
		return outcome{result: migration.FailedResult, message: "the API server " + rp.e.server + " does not accept the credentials; nothing was changed"}
	case !rp.e.connected.Load() && k8sutil.IsTransient(err):
		rp.addFinding(migration.Finding{
			Severity: migration.Error, Problem: fmt.Sprintf("cannot reach the API server %s: %v", rp.e.server, err),
			Hint: "check the address in the kubeconfig (--kubeconfig, --context), the network, and that the server runs",
		})
		return outcome{result: migration.FailedResult, message: "cannot reach the API server " + rp.e.server + "; nothing was changed"}
	}
	if !rp.hasError() {
		rp.addFinding(migration.Finding{Severity: migration.Error, Problem: err.Error(), Hint: hintFor(err)})
	}
	return outcome{result: migration.FailedResult, message: rp.reason(ctx, err) + "; nothing was changed"}
}

// reason is why a run failed, in one clause.
func (rp *reporter) reason(ctx context.Context, err error) string {
	var timeout *timeoutError
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout) {
		return timeout.Error()
	}
	found := rp.allFindings()
	n := 0
	for _, f := range found {
		if f.Severity == migration.Error {
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s failed, the first: %s", count(n, "object"), firstError(found))
	}
	if n == 1 {
		return firstError(found)
	}
	return err.Error()
}

func (rp *reporter) refusal(plan *migration.Plan) outcome {
	rp.addFinding(plan.Findings...)
	n := 0
	for _, f := range plan.Findings {
		if f.Severity == migration.Error {
			n++
		}
	}
	return outcome{result: migration.Refused, message: fmt.Sprintf("refused, nothing was changed; %s to mend first", count(n, "problem"))}
}

func (r *run) undo(parent context.Context) outcome {
	ctx, cancel := limited(parent, r.e.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err := r.lock.peek(ctx); err != nil {
		return r.nothingChanged(ctx, err)
	}
	newest := func(ctx context.Context) (*openJournal, error) {
		found, err := r.journals.find(ctx, append(slices.Clone(openPhases), phaseDone)...)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return &found[0], nil
	}
	found, err := newest(ctx)
	switch {
	case err != nil:
		return r.nothingChanged(ctx, err)
	case found == nil:
		return outcome{result: migration.NothingToDo, message: "there is no run to take back"}
	}
	contended, err := r.acquire(parent)
	cancel()
	ctx, cancel = limited(parent, r.e.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err == nil && contended {
		found, err = newest(ctx)
	}
	switch {
	case err != nil:
		return r.nothingChanged(ctx, err)
	case found == nil:
		return outcome{result: migration.NothingToDo, message: "there is no run to take back"}
	}
	if r.journal, err = r.journals.load(ctx, found.header, found.phase); err != nil {
		return r.nothingChanged(ctx, err)
	}
	var units []migration.Unit
	for _, e := range r.journal.entries() {
		units = append(units, e.Unit)
	}
	if guard, ok := r.job.(migration.UndoGuard); ok {
		reasons, err := guard.RefuseUndo(ctx, r.cluster, r.journal.changes())
		if err != nil {
			return r.nothingChanged(ctx, err)
		}
		if len(reasons) > 0 {
			r.addFinding(reasons...)
			return outcome{result: migration.Refused, message: "it is too early to take this back: " + reasons[0].Problem + "; nothing was changed"}
		}
	}
	missing, err := r.preflight().missing(ctx, units)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	if len(missing) > 0 {
		r.addFinding(missing...)
		return outcome{result: migration.Refused, message: fmt.Sprintf("%s; nothing was changed", count(len(missing), "missing permission"))}
	}
	p := phaseUndo
	if found.phase == phaseRollback {
		p = phaseRollback
	}
	out, _ := r.finishBackwards(parent, p, r.e.opts.RollbackTimeout)
	if out.result == migration.RolledBack {
		out.result = migration.Succeeded
	}
	return out
}

// firstWrite is the index of the first change that writes, -1 if none does.
func firstWrite(changes []migration.Change) int {
	for i := range changes {
		if changes[i].Writes() {
			return i
		}
	}
	return -1
}
