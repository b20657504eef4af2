package engine

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/execute"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/rollback"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// probed is the outcome of a run that only waits, after the job has tried it out.
func (r *run) probed(ctx context.Context, plan *migration.Plan, out outcome) outcome {
	if plan.Probe == nil || out.result != migration.NothingToDo {
		return out
	}
	found := plan.Probe(ctx)
	r.Findings.Add(found...)
	if hasErrors(&migration.Plan{Findings: found}) {
		return outcome{result: migration.FailedResult, message: findings.FirstError(found) + "; nothing was changed"}
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
	lock := lease.Lease(own)
	if e.opts.Seat != nil {
		lock = e.opts.Seat.Sit(own)
	}
	found := findings.New(log)
	ignored := map[string]bool{e.opts.Names.Mark(): true}
	if ignorer, ok := job.(migration.EditIgnorer); ok {
		for _, key := range ignorer.IgnoredKeys() {
			ignored[key] = true
		}
	}
	rec := &journal.Recorder{Log: log, Ignored: ignored, Journals: e.journals(job.Name())}
	w := &write.Writer{
		Log: log, Job: job, Names: e.opts.Names, Client: e.writer, Reader: e.reader, Cluster: e.newCluster(), Findings: found, Ignored: ignored,
		Read: e.read, Notify: e.notify, Account: &e.account, Guard: lock.Guard, Restored: rec.RestoredUID,
	}
	rec.Journals.Write = w.Write
	return &run{reporter: &reporter{
		Actor: &act.Actor{Findings: found, Writer: w, Recorder: rec, Job: job, Log: log, NewCluster: e.newCluster, StateNamespace: e.opts.StateNamespace, Undo: e.opts.Undo,
			Namespaces: act.NewNamespaces(w, job, e.Applicable)},
		e: e, lock: lock, command: command, started: time.Now(),
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

// Run does what is left to do. The end of ctx interrupts it, as a signal does: the journal stays
// open, and the next run goes on. A SignalError as the cause says which signal, for the exit code.
func (e *Engine) Run(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("run", job)
	defer r.release()
	return r.conclude(ctx, r.withEarlier(r.forward(ctx)))
}

// release gives the lock back. Its Lease says that a run of the job is open for as long
// as a journal may be.
func (r *run) release() {
	if r.Recorder.Journals.AllClosed() {
		r.lock.Release(r.Job.Name())
		return
	}
	r.lock.Release()
}

// withEarlier joins the outcome of a run with that of the rollback which it finished
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
		plan, err = r.plan(ctx, migration.PlanOptions{Preview: true})
		return err
	})
	if err != nil {
		return r.conclude(ctx, r.nothingChanged(ctx, err))
	}
	units := slices.Concat(plan.Units, plan.Last)
	for i := range units {
		journal.Build(&units[i])
		for j := range units[i].Changes {
			ch := &units[i].Changes[j]
			report := migration.ReportOf(ch, "")
			if ch.Explain != nil {
				report.Replaces = ch.Explain()
			}
			report.Message = ch.Why
			if ch.Writes() {
				report.Reversible = ch.Reversible()
			}
			r.addReport(report)
		}
	}
	r.Findings.Add(plan.Findings...)
	if hasErrors(plan) {
		return r.conclude(ctx, outcome{result: migration.Refused, message: "a run would be refused: " + findings.FirstError(plan.Findings)})
	}
	writes := 0
	for i := range units {
		for j := range units[i].Changes {
			if units[i].Changes[j].Writes() {
				writes++
			}
		}
	}
	message := fmt.Sprintf("a run would make %s", migration.Count(writes, "change"))
	if waits := len(units) - writingUnits(plan); waits > 0 {
		message += fmt.Sprintf(" and wait for %s", migration.Count(waits, "existing object"))
	}
	if writes == 0 && len(units) == 0 {
		message = "there is nothing to do"
	}
	return r.conclude(ctx, outcome{result: migration.Planned, message: message})
}

// Undo undoes the newest run that was not undone yet, finished or
// interrupted.
func (e *Engine) Undo(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("undo", job)
	defer r.release()
	return r.conclude(ctx, r.undo(ctx))
}

// limited is ctx with a limit, the reason of which is told in words.
func limited(ctx context.Context, limit time.Duration, what, flag string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &act.TimeoutError{What: what, Flag: flag, Limit: limit.String()})
}

// observe reads the cluster: what an interrupted run left, and what is left to do. A job
// that only reads leaves nothing.
func (r *run) observe(ctx context.Context) (plan *migration.Plan, open []journal.OpenJournal, err error) {
	err = both(ctx, func(ctx context.Context) (err error) {
		if !onlyReads(r.Job) {
			open, err = r.Recorder.Journals.Find(ctx, journal.OpenPhases...)
		}
		return err
	}, func(ctx context.Context) (err error) {
		plan, err = r.plan(ctx, migration.PlanOptions{})
		return err
	})
	if err == nil && onlyReads(r.Job) && writingUnits(plan) > 0 {
		err = k8sutil.Permanent(fmt.Errorf("the job %s, which is only to read, plans to write", r.Job.Name()))
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
	lock := r.e.newLock(r.Log)
	if err := lock.Peek(ctx); err != nil {
		return err
	}
	marked := lock.IsMarked(r.Job.Name())
	if lock.Live != nil && !marked {
		return nil
	}
	// Asked, so that an account that may not is refused nothing.
	readable, err := asker{r.e}.allowed(ctx, permission{verb: "list", resource: "secrets", namespace: r.e.opts.StateNamespace})
	if err != nil {
		return err
	}
	advice := r.RestoreAdvice()
	advice.Note = "A run finishes it first. To undo it instead:"
	if !readable {
		for _, o := range lock.OpenRuns() {
			if o.Job == r.Job.Name() {
				r.Findings.Add(migration.Finding{ID: "run-may-be-open", Severity: migration.Warning, Problem: fmt.Sprintf("a run of it goes on or was interrupted; the Lease says that it is open since %s", o.Since.Format(time.RFC3339)), Note: advice.Note, Command: advice.Command})
			}
		}
		return nil
	}
	open, err := r.Recorder.Journals.Find(ctx, journal.OpenPhases...)
	for _, o := range open {
		r.Findings.Add(migration.Finding{ID: "run-open", Severity: migration.Warning, Problem: fmt.Sprintf("run %s was interrupted; its journal is open (%s)", o.Header.Run, o.Phase), Note: advice.Note, Command: advice.Command})
	}
	return err
}

// plan asks the job; a panic in it is its error.
func (r *run) plan(ctx context.Context, o migration.PlanOptions) (plan *migration.Plan, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = k8sutil.Permanent(fmt.Errorf("the job %s failed to decide, by a panic: %v", r.Job.Name(), p))
		}
	}()
	only := r.e.opts.OnlyNamespace
	if _, can := r.Job.(migration.NamespaceLimiter); only != "" && !can {
		return nil, k8sutil.Permanent(fmt.Errorf("job %s works on the whole cluster, and cannot be limited to namespace %s", r.Job.Name(), only))
	}
	r.Writer.Cluster = r.e.clusterOf(r.Recorder.Made)
	if plan, err = r.Job.Plan(ctx, r.Writer.Cluster, o); err == nil && plan == nil {
		plan = &migration.Plan{}
	}
	if err == nil && only != "" {
		// What is elsewhere was not read: no report of a limited run says that all is done.
		plan.Findings = append(plan.Findings, migration.Finding{
			ID: "other-namespaces", Severity: migration.Deferred, Object: "Namespace " + only, Problem: "is the only namespace of this run",
			Note: "A plan of the whole cluster says what is left in the others.",
		})
	}
	return plan, err
}

// beyondLimit refuses a limited run if it would finish an interrupted run that was not
// limited to the same namespace.
func (r *run) beyondLimit(open []journal.OpenJournal) (outcome, bool) {
	only := r.e.opts.OnlyNamespace
	if only == "" {
		return outcome{}, false
	}
	for _, o := range open {
		if o.Header.OnlyNamespace != only {
			return r.refusal(&migration.Plan{Findings: []migration.Finding{{
				ID: "run-open", Severity: migration.Error, Problem: fmt.Sprintf("run %s was interrupted; its journal is open (%s), and it is not limited to namespace %s", o.Header.Run, o.Phase, only),
				Note: "Run the job without the limit to finish it, or undo it.",
			}}}), true
		}
	}
	return outcome{}, false
}

func (r *run) forward(parent context.Context) outcome {
	// One limit for all that comes before a rollback: the wait for the lock and the
	// work. A rollback that an earlier run left open comes out of it, too.
	end := r.started.Add(r.e.opts.LockWait + r.e.opts.Timeout)
	ctx, cancel := limited(parent, r.e.opts.Timeout, "the run", "--timeout")
	defer cancel()
	// The Lease is read before everything else: if it can be taken as it was
	// then, what was read in between still holds.
	if !onlyReads(r.Job) {
		if err := r.lock.Peek(ctx); err != nil {
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
			out := r.probed(ctx, plan, r.waitOnly(ctx, plan))
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
	if out, beyond := r.beyondLimit(open); beyond {
		return out
	}
	var unfinished *journal.Journal
	for _, o := range open {
		j, err := r.Recorder.Journals.Load(ctx, o.Header, o.Phase)
		if err != nil {
			return r.nothingChanged(ctx, err)
		}
		if o.Phase == journal.PhaseForward && r.e.opts.Resume == ResumeForward && unfinished == nil {
			unfinished = j
			continue
		}
		// A journal in rollback is always finished backwards.
		r.Recorder.Journal = j
		out, ok := r.finishBackwards(parent, o.Phase, min(r.e.opts.RollbackTimeout, time.Until(end)))
		if !ok || r.e.opts.Resume == ResumeBack {
			return out
		}
		r.earlier, r.earlierOutcome = r.changes(), out
		r.unjournaled, r.Recorder.Journal = nil, nil
	}
	r.Recorder.Journal = unfinished
	if len(open) > 0 {
		// What was planned beside an open journal did not know what is in it.
		if plan, err = r.plan(ctx, migration.PlanOptions{}); err != nil {
			return r.nothingChanged(ctx, err)
		}
	}
	if hasErrors(plan) {
		out := r.refusal(plan)
		if unfinished != nil {
			out.message += fmt.Sprintf("; the interrupted run %s stays open: fix that and run again, or undo", unfinished.Run)
		}
		return out
	}
	if unfinished == nil && writingUnits(plan) == 0 {
		return r.probed(ctx, plan, r.waitOnly(ctx, plan))
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
	plan.Findings = notUnderWay(plan.Findings, t.Entries)
	r.Findings.Add(plan.Findings...)
	return r.execute(parent, ctx, plan, t)
}

// acquire takes the lock. What was known of journals is stale if another run had it.
func (r *run) acquire(ctx context.Context) (contended bool, err error) {
	contended, err = r.lock.Acquire(ctx, r.Job.Name(), r.e.opts.LockWait)
	if contended {
		r.Recorder.Journals.Know(nil)
	}
	return contended, err
}

// clearMark takes the lock, so that its release removes the mark of a run that was
// killed before it had a journal, or after it had closed it. Nothing else is left to do.
func (r *run) clearMark(ctx context.Context) {
	if onlyReads(r.Job) || ctx.Err() != nil || !r.lock.IsMarked(r.Job.Name()) {
		return
	}
	contended, err := r.acquire(ctx)
	if err == nil && contended {
		_, err = r.Recorder.Journals.Find(ctx, journal.OpenPhases...)
	}
	if err != nil {
		r.Log.Warn("the Lease still says that a run of this job is open, and none is; a later run corrects that", zap.Error(err))
	}
}

func (r *run) preflight() *preflight {
	return &preflight{Actor: r.Actor, asker: asker{r.e}}
}

func (r *run) executor(ctx context.Context, parallelism int, serial bool) *execute.Executor {
	return execute.New(ctx, r.Actor, execute.Options{
		Parallelism: parallelism, Unready: r.e.opts.MaxUnready, Serial: serial, Progress: r.e.opts.Progress, Reported: r.addReport,
	})
}

// checkBeforeStart is the last gate before the first write.
func (r *run) checkBeforeStart(ctx context.Context, plan *migration.Plan, units []migration.Unit) (outcome, bool) {
	if plan.Estimate > r.e.opts.Timeout && !allIndependent(plan) {
		r.Findings.Add(plan.Findings...)
		r.Findings.Add(migration.Finding{
			ID: "plan-too-long", Severity: migration.Error, Problem: fmt.Sprintf("the plan may take %s, longer than --timeout %s", plan.Estimate, r.e.opts.Timeout),
			Note: "Give a longer --timeout. The --timeout of Helm must be longer still.",
		})
		return outcome{result: migration.Refused, message: "the plan may not end within --timeout; nothing was changed"}, false
	}
	if large := act.TooLarge(units); len(large) > 0 {
		r.Findings.Add(slices.Concat(plan.Findings, large)...)
		return outcome{result: migration.Refused, message: fmt.Sprintf("%s too large to be restored for certain; nothing was changed", migration.Count(len(large), "object")+act.VerbIs(len(large)))}, false
	}
	missing, err := r.preflight().missing(ctx, units)
	if err != nil {
		return r.nothingChanged(ctx, err), false
	}
	if len(missing) > 0 {
		r.Findings.Add(slices.Concat(plan.Findings, missing)...)
		return outcome{result: migration.Refused, message: fmt.Sprintf("%s; nothing was changed", migration.Count(len(missing), "missing permission"))}, false
	}
	// An interrupted run is finished as far as it can be; it fails at its end.
	if r.e.opts.Defer == DeferFail && hasDeferred(plan.Findings) && r.Recorder.Journal == nil {
		r.Findings.Add(plan.Findings...)
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

// waitOnly is a run without a write: no lock, no journal.
func (r *run) waitOnly(ctx context.Context, plan *migration.Plan) outcome {
	r.Findings.Add(plan.Findings...)
	if r.e.opts.Defer == DeferFail && hasDeferred(r.Findings.All()) {
		return deferralFails()
	}
	if len(plan.Units) == 0 {
		if hasDeferred(r.Findings.All()) {
			return outcome{result: migration.DeferredResult, message: "nothing can be done now; what is left is deferred"}
		}
		return outcome{result: migration.NothingToDo, message: "there is nothing to do"}
	}
	r.Log.Info("waiting for what exists already", zap.Int("objects", len(plan.Units)), zap.String("first", plan.Units[0].ID))
	r.e.opts.Progress.Start(len(plan.Units))
	defer r.e.opts.Progress.Stop()
	x := r.executor(ctx, plan.Parallelism, plan.Serial)
	if err := x.Run(ctx, execute.Todo{Waits: plan.Units}); err != nil {
		out := r.nothingChanged(ctx, err)
		if out.result == migration.FailedResult {
			out.message = fmt.Sprintf("%s not right; nothing was changed", migration.Count(len(x.Failures), "existing object")+act.VerbIs(len(x.Failures)))
		}
		return out
	}
	out := outcome{result: migration.NothingToDo, message: fmt.Sprintf("%s ready now; nothing had to be changed", migration.Count(len(plan.Units), "existing object")+act.VerbIs(len(plan.Units)))}
	if hasDeferred(r.Findings.All()) {
		out.result = migration.DeferredResult
		out.message += "; what is left is deferred"
	}
	return out
}

// merge brings together what an interrupted run left open and what is planned
// now. The journal decides what has to be finished because it was begun: see
// Recorder.Continues. The plan, which saw the cluster as it is, decides everything else.
// It may write, and so comes after the preflight.
func (r *run) merge(ctx context.Context, plan *migration.Plan) (execute.Todo, error) {
	if r.Recorder.Journal == nil {
		t := execute.Todo{Last: plan.Last}
		for _, u := range plan.Units {
			if u.Writes() {
				t.Units = append(t.Units, u)
			} else if len(u.Changes) > 0 {
				t.Waits = append(t.Waits, u)
			}
		}
		return t, nil
	}
	var t execute.Todo
	journaled := r.Recorder.Journal.Entries()
	begun := map[string]bool{}
	for _, e := range journaled {
		if err := r.Inspect(ctx, e); err != nil {
			return t, err
		}
		begun[e.Unit.ID] = begun[e.Unit.ID] || e.AnyBegun()
	}
	wanted := journal.Wanted(plan)
	// What this job has made, and the plan wants to be another object.
	stays := map[migration.Ref]bool{}
	for _, e := range journaled {
		for _, s := range e.Steps() {
			want := wanted[journal.ChangeKey{Verb: migration.Create, Ref: s.Ref}]
			if s.Verb != migration.Create || want == nil || !s.State().Begun() || !s.MadeOrBegun() || sameObject(want.Built(), s.Object) {
				continue
			}
			gone, err := act.Replaced(ctx, r.Actor, s)
			if err != nil {
				return t, err
			}
			stays[s.Ref] = !gone
		}
	}
	known, covered, goOn := map[string]bool{}, map[migration.Ref]bool{}, map[journal.ChangeKey]bool{}
	for _, e := range journaled {
		e.ReportEarlier()
	}
	continues := journal.Continued(journaled, wanted, begun)
	changed := false
	for _, e := range journaled {
		if e.Done {
			continue
		}
		if !continues[e] {
			changed = true
			e.GiveUp()
			continue
		}
		for _, s := range e.Steps() {
			if s.State() != journal.StepLeft {
				covered[s.Ref], goOn[journal.KeyOf(s.Change)] = true, true
			}
		}
		known[e.Unit.ID] = known[e.Unit.ID] || !e.AnyLeft()
		if e.Last {
			t.LastEntries = append(t.LastEntries, e)
		} else {
			t.Entries = append(t.Entries, e)
		}
	}
	if changed {
		// What is given up is none of this run's any more, also if it is killed again.
		for _, c := range r.Recorder.Journal.All() {
			if err := r.Recorder.Journals.Mark(ctx, c); err != nil {
				return t, err
			}
		}
	}
	var postponed []migration.Unit
	for _, u := range plan.Units {
		u.Changes = slices.DeleteFunc(slices.Clone(u.Changes), func(ch migration.Change) bool {
			return ch.Writes() && goOn[journal.KeyOf(&ch)]
		})
		switch {
		case known[u.ID], slices.ContainsFunc(u.Changes, func(ch migration.Change) bool { return stays[ch.Ref] }):
			if u.Writes() {
				postponed = append(postponed, u)
			}
		case u.Writes():
			t.Units = append(t.Units, u)
		case len(u.Changes) > 0 && !covered[u.Changes[0].Ref]:
			t.Waits = append(t.Waits, u)
		}
	}
	t.Units = execute.Postpone(t.Units, postponed, r.Findings)
	for _, u := range plan.Last {
		if !known[u.ID] {
			t.Last = append(t.Last, u)
		}
	}
	return t, nil
}

// sameObject says whether two plans want the same object.
func sameObject(a, b *unstructured.Unstructured) bool {
	return a != nil && b != nil && reflect.DeepEqual(a.Object, b.Object)
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

func (r *run) execute(parent, ctx context.Context, plan *migration.Plan, t execute.Todo) outcome {
	if r.Recorder.Journal == nil {
		r.Recorder.Journal = journal.New(r.Job.Name(), r.e.opts.Version, max(r.lock.Acquisition(), r.Recorder.Journals.Highest+1), plan)
		r.Recorder.Journal.LimitTo(r.e.opts.OnlyNamespace)
	} else {
		r.Log.Info("finishing an interrupted run", zap.String("run", r.Recorder.Journal.Run), zap.Int("openUnits", len(t.Entries)))
	}
	r.Log.Info("starting", zap.String("run", r.Recorder.Journal.Run), zap.Int("units", t.Size()))
	r.e.opts.Progress.Start(t.Size())
	defer r.e.opts.Progress.Stop()
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
	if r.Recorder.Journal.Empty() {
		// Every unit was left: nothing was written.
		r.Recorder.Journal = nil
		return r.finished(outcome{result: migration.NothingToDo, message: "nothing was changed"})
	}
	made := 0
	for _, report := range r.changes() {
		if report.Verb != migration.Await && report.Result == migration.ChangeDone {
			made++
		}
	}
	message := migration.Count(made, "change") + " made"
	if n := int(r.Otherwise.Load()); n > 0 {
		message += fmt.Sprintf("; the API server stored %s otherwise than sent: see the warnings", migration.Count(n, "object"))
	}
	out := r.finished(outcome{result: migration.Succeeded, message: message})
	// The report first: once the journal is closed, nothing leads back here.
	r.publish(ctx, out)
	if err := r.Recorder.Enter(ctx, journal.PhaseDone); err != nil {
		if stopped, ok := r.interruption(parent, err); ok {
			return stopped
		}
		r.Findings.Tell(migration.Finding{
			ID: "journal-not-closed", Severity: migration.Warning, Problem: fmt.Sprintf("all changes are made, and the journal of run %s cannot be closed: %v", r.Recorder.Journal.Run, err),
			Note: "Run the job again. It finds nothing to do and closes the journal. Until then, status shows the run as open.",
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
	case !hasDeferred(r.Findings.All()):
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
	if err := r.Recorder.Journals.Prune(ctx); err != nil {
		r.Log.Warn("cannot remove old journals; a later run will", zap.Error(err))
	}
}

// leaveProgress ends a run that timed out, and leaves what it finished: each of its
// units is right by itself, and the next run goes on with the rest.
func (r *run) leaveProgress(parent context.Context, x *execute.Executor, why string, done, all int) outcome {
	ctx, cancel := limited(parent, r.e.opts.RollbackTimeout, "the end of the run", "--rollback-timeout")
	defer cancel()
	out := outcome{result: migration.TimedOut, message: fmt.Sprintf("%s; %d of %d are done and stay; run again to go on with the rest, or undo", why, done, all)}
	if len(x.Last) > 0 {
		ending := r.executor(ctx, r.Recorder.Journal.Parallelism, r.Recorder.Journal.Serial)
		ending.Last = x.Last
		err := ending.Finally(ctx)
		ending.Stop(nil)
		if err != nil {
			out.message += "; what comes last could not be done: " + err.Error()
		}
	}
	r.Recorder.Journal.Keep(func(e *journal.Entry) bool { return e.Unit.Independent || e.Last })
	r.Recorder.WriteMarks(parent)
	return out
}

// failed decides what becomes of a run that cannot go on.
func (r *run) failed(parent, ctx context.Context, x *execute.Executor, units []migration.Unit, err error) outcome {
	if out, ok := r.stranded(parent, err); ok {
		return out
	}
	if out, interrupted := r.interruption(parent, err); interrupted {
		r.Recorder.WriteMarks(parent)
		return out
	}
	if r.Recorder.Journal.Empty() {
		out := r.nothingChanged(ctx, err)
		r.Recorder.Journal = nil
		return out
	}
	if act.IsRefusal(act.FirstRefusal(err)) {
		execute.DryRunRemaining(parent, r.Actor, units)
	}
	if r.e.opts.OnFailure == OnFailureLeave {
		r.Recorder.Journal.Keep(func(*journal.Entry) bool { return true })
		r.Recorder.WriteMarks(parent)
		out := r.nothingChanged(ctx, err)
		out.unrestored = true
		if out.result == migration.Refused {
			out.result = migration.FailedResult // a refusal changes nothing, and this run did
		}
		out.message = fmt.Sprintf("%s; what was done stays (--on-failure=leave): run again to finish it, or undo", r.reason(ctx, err))
		return out
	}
	why, timedOut := r.reason(ctx, err), ctx.Err() != nil
	if done, all, changed := r.Recorder.Progress(units); changed && (timedOut || stays(err)) {
		out := r.leaveProgress(parent, x, why, done, all)
		if !timedOut {
			out.result, out.unrestored = migration.FailedResult, true
		}
		return out
	}
	r.Log.Warn("the run failed; rolling back", zap.String("reason", why))
	out, ok := r.finishBackwards(parent, journal.PhaseRollback, r.e.opts.RollbackTimeout)
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
func (r *run) finishBackwards(parent context.Context, p journal.Phase, limit time.Duration) (outcome, bool) {
	ctx, cancel := limited(parent, limit, "the rollback", "--rollback-timeout")
	defer cancel()
	forgotten := p == journal.PhaseForward && r.e.opts.Resume == ResumeBack && r.Recorder.Journal.Forget()
	ctx, release := lease.While(ctx, r.lock)
	defer release()
	if p == journal.PhaseForward {
		p = journal.PhaseRollback
	}
	resumed := r.Recorder.Journal.Phase == p
	if !resumed {
		// What this process knows is written first: one that goes on after a kill knows no
		// more than the marks.
		if err := r.Recorder.MarkBehindFirst(ctx, func(c *journal.Chunk) bool { return !c.AllDone() || forgotten }); err != nil {
			return r.cutOff(parent, err), false
		}
		if err := r.Recorder.Enter(ctx, p); err != nil {
			return r.cutOff(parent, err), false
		}
	}
	r.Recorder.Journal.FillReports()
	v, err := rollback.Run(ctx, r.Actor, p == journal.PhaseUndo, resumed)
	if err != nil {
		return r.cutOff(parent, err), false
	}
	out := outcome{result: migration.RolledBack, message: asBefore + " run " + r.Recorder.Journal.Run}
	if p == journal.PhaseUndo {
		// Later runs, and others, have changed more since.
		out.message = fmt.Sprintf("all changes of run %s are undone", r.Recorder.Journal.Run)
	}
	if v.Finished > 0 {
		stay := "which stays as it is"
		if v.Finished > 1 {
			stay = "which stay as they are"
		}
		out.message = fmt.Sprintf("all changes of run %s are undone, but for %s, %s", r.Recorder.Journal.Run, migration.Count(v.Finished, "finished unit"), stay)
	}
	if v.Unproven > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone; %s restored or deleted without proof that the run had changed it: see the warnings",
			r.Recorder.Journal.Run, migration.Count(v.Unproven, "object")+act.VerbWas(v.Unproven))
	}
	if left := int(r.LeftEffects.Load()); left > 0 {
		out.message = fmt.Sprintf("all changes of run %s are undone; %s left that may come from it: see the warnings", r.Recorder.Journal.Run, migration.Count(left, "object")+act.VerbIs(left))
	}
	if v.Unrestored+v.Protected > 0 {
		out.result = migration.PartlyRestored
		out.message = fmt.Sprintf("%s could not be restored, %d protected", migration.Count(v.Unrestored, "change"), v.Protected)
		if v.Unrestored == 0 {
			out.message = fmt.Sprintf("%s protected: see the warnings", migration.Count(v.Protected, "object")+act.VerbIs(v.Protected))
		}
	}
	if v.Retry {
		out.message += "; the journal keeps everything: run again, or undo, to go on restoring"
		r.publish(ctx, out)
		return out, false
	}
	closed := journal.PhaseRolledBack
	if p == journal.PhaseUndo {
		closed = journal.PhaseUndone
		if v.Unrestored-v.ForGood+v.Protected > 0 {
			closed = journal.PhaseDone // what is left may be undone later
			if err := r.left(ctx, &out, &closed); err != nil {
				return r.cutOff(parent, err), false
			}
		}
	}
	if p == journal.PhaseRollback && (r.Recorder.Journal.AnyKept() || v.Away > 0) {
		closed = journal.PhaseDone // what stays, and what is of a kind that is away, may be undone later
		r.Recorder.Journal.RolledBack()
		if err := r.Recorder.MarkBehindFirst(ctx, func(*journal.Chunk) bool { return true }); err != nil {
			return r.cutOff(parent, err), false
		}
	}
	if err := r.Recorder.Enter(ctx, closed); err != nil {
		return r.cutOff(parent, err), false
	}
	r.prune(ctx)
	return out, true
}

// left says how an undo goes on that leaves objects: a person decides, and without
// Options.AcceptLeft no earlier run can be undone.
func (r *run) left(ctx context.Context, out *outcome, closed *journal.Phase) error {
	if r.e.opts.AcceptLeft {
		out.result, *closed = migration.RolledBack, journal.PhaseUndone
		out.message += "; what is left is accepted (--accept-left), and the run is closed"
		return journal.Accept(ctx, r.Recorder.Journals, r.Recorder.Journal)
	}
	f := migration.Finding{ID: "undo-blocked", Severity: migration.Warning, Problem: "run " + r.Recorder.Journal.Run + " is not undone whole, and no earlier run can be undone before",
		Note: "Correct or delete what the findings name, and undo again. Or accept what is left, which closes the run:"}
	if r.e.opts.Undo != nil {
		f.Command = r.e.opts.Undo(r.Job.Name()) + " --accept-left"
	}
	r.Findings.Tell(f)
	return nil
}

func (rp *reporter) cutOff(parent context.Context, err error) outcome {
	if out, ok := rp.stranded(parent, err); ok {
		return out
	}
	if out, interrupted := rp.interruption(parent, err); interrupted {
		return out
	}
	if written, ok := errors.AsType[*journal.WriteError](err); ok && k8sutil.RefusalOf(err).Kind == k8sutil.NoPermission {
		rp.Findings.Add(act.PermissionLost("Secret "+written.Namespace+"/"+written.Name, err))
		return outcome{result: migration.PartlyRestored, message: written.Error() + "; what was done stays, and the journal is open"}
	}
	advice := rp.RestoreAdvice()
	if cut, ok := errors.AsType[*wait.CutOffError](err); ok {
		// What to do first: the undo comes after it.
		advice.Note = strings.TrimSpace(cut.Status.Note + " " + advice.Note)
		advice.Command = cmp.Or(cut.Status.Command, advice.Command)
	}
	rp.Findings.Add(migration.Finding{ID: "rollback-not-finished", Severity: migration.Error, Problem: "the rollback did not end: " + err.Error(), Note: advice.Note, Command: advice.Command})
	return outcome{result: migration.PartlyRestored, message: "the rollback did not end: " + err.Error() + "; the journal keeps everything"}
}

// stranded says whether a run can neither go on nor roll back: its account is gone,
// or its journal is. What it has done stays, and the report is all there is.
func (rp *reporter) stranded(parent context.Context, err error) (outcome, bool) {
	lost := rp.lock.LossCause()
	err = errors.Join(err, lost)
	if rp.Recorder.Journal == nil || rp.Recorder.Journal.Empty() {
		return outcome{}, false
	}
	if gone, ok := errors.AsType[*k8sutil.AccountGoneError](err); ok {
		rp.Findings.Add(migration.Finding{
			ID: "account-gone", Severity: migration.Error, Problem: lease.GoneIn(err, gone).Error(),
			Note: "Recreate the account with its permissions, or use another one. Run the job again: it goes on where this run stopped. " +
				"The next upgrade by Helm recreates the account of a hook. If one is running already, there is nothing to do.",
		})
		return outcome{result: migration.PartlyRestored, message: "this account is gone: nothing could be written any more; what was done stays, and the journal is open"}, true
	}
	if refused, ok := errors.AsType[*lease.RefusedError](err); ok {
		rp.Findings.Add(act.PermissionLost("Lease "+refused.Lease, refused))
		return outcome{result: migration.PartlyRestored, message: refused.Error() + "; nothing could be written any more; what was done stays, and the journal is open"}, true
	}
	gone, ok := errors.AsType[*journal.StateGoneError](err)
	if locked, isLocked := errors.AsType[*lease.LockedError](err); !ok && isLocked && locked.Deleted {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), lease.CallTimeout)
		defer cancel()
		list, err := rp.Recorder.Journals.Metadata(ctx, journal.Selects(rp.e.opts.Names, rp.Job.Name(), rp.Recorder.Journal.Run))
		if err == nil && len(list) == 0 {
			gone, ok = &journal.StateGoneError{Namespace: rp.e.opts.StateNamespace, Err: locked}, true
		}
	}
	if !ok {
		return outcome{}, false
	}
	rp.Findings.Add(migration.Finding{
		ID: "state-gone", Severity: migration.Error, Object: "Namespace " + rp.e.opts.StateNamespace, Problem: gone.Error(),
		Note:    "What this run changed is listed above. No command can undo it. If the namespace is gone, create it. Then run the job again.",
		Command: createNamespace(rp.e.opts.StateNamespace),
	})
	return outcome{result: migration.PartlyRestored, message: fmt.Sprintf("%v; this run stopped, and what was done stays", gone)}, true
}

// IsDamaged returns the error that a journal lost a Secret, nil if it is another.
func IsDamaged(err error) *journal.DamagedError {
	damaged, _ := errors.AsType[*journal.DamagedError](err)
	return damaged
}

// interruption says whether err means that the process was asked to stop, or lost
// the lock: then nothing more may be written, and the journal stays open.
func (rp *reporter) interruption(parent context.Context, err error) (outcome, bool) {
	var locked *lease.LockedError
	if lost := rp.lock.LossCause(); lost != nil {
		err = errors.Join(lost, err)
	}
	if errors.As(err, &locked) {
		return outcome{result: migration.Locked, message: locked.Error() + "; this run stopped before its next write, its journal is open"}, true
	}
	if parent.Err() == nil {
		return outcome{}, false
	}
	var signal act.SignalError
	number := syscall.SIGTERM
	if errors.As(context.Cause(parent), &signal) {
		number = signal.Signal
	}
	message := context.Cause(parent).Error()
	if rp.Recorder.Journal != nil && !rp.Recorder.Journal.Empty() {
		message += "; the journal is open: run again to finish, or undo"
	} else {
		message += "; nothing was changed"
	}
	return outcome{result: migration.Interrupted, message: message, signal: int(number)}, true
}

// nothingChanged is the outcome of an error before the first write.
func (rp *reporter) nothingChanged(ctx context.Context, err error) outcome {
	var locked *lease.LockedError
	var timeout *act.TimeoutError
	var signal act.SignalError
	var home *stateNamespaceError
	var large *journal.TooLargeError
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
	case IsDamaged(err) != nil:
		rp.Findings.Add(migration.Finding{ID: "journal-damaged", Severity: migration.Error, Problem: err.Error(), Note: IsDamaged(err).Advice().Note, Command: IsDamaged(err).Advice().Command})
		return outcome{result: migration.Refused, message: err.Error() + "; nothing was changed"}
	case errors.As(err, &home):
		rp.Findings.Add(migration.Finding{ID: "state-namespace-unusable", Severity: migration.Error, Object: "Namespace " + home.namespace, Problem: home.Error(), Note: home.advice().Note, Command: home.advice().Command})
		return outcome{result: migration.Refused, message: home.Error() + "; nothing was changed"}
	case errors.As(err, &large):
		rp.Findings.Add(act.Advised(migration.Finding{Severity: migration.Error, Problem: err.Error()}, err))
		return outcome{result: migration.Refused, message: err.Error() + "; nothing was changed"}
	case k8sutil.RefusalOf(err).Kind == k8sutil.NoPermission:
		var all *PermissionError
		if errors.As(asker{rp.e}.refused(ctx, asker{rp.e}.accessOf(rp.Job), err), &all) {
			rp.Findings.Add(all.Findings...)
			return outcome{result: migration.Refused, message: migration.Count(len(all.Findings), "missing permission") + "; nothing was changed"}
		}
		rp.Findings.Add(migration.Finding{ID: "permission-missing", Severity: migration.Error, Problem: err.Error(), Note: grant})
		return outcome{result: migration.Refused, message: "a permission is missing; nothing was changed"}
	case k8sutil.RefusalOf(err) == (k8sutil.Refusal{Kind: k8sutil.ByPolicy}):
		// Who refuses it, nobody says.
		rp.Findings.Add(act.Advised(migration.Finding{Severity: migration.Error, Problem: err.Error()}, err))
		return outcome{result: migration.Refused, message: err.Error() + "; nothing was changed"}
	case k8sutil.RefusalOf(err).Kind == k8sutil.NoAccount:
		rp.Findings.Add(migration.Finding{ID: "credentials-refused", Severity: migration.Error, Problem: err.Error(), Note: "Log in again, or use another --context.", Command: "kubectl config get-contexts"})
		return outcome{result: migration.FailedResult, message: "the API server " + rp.e.server + " does not accept the credentials; nothing was changed"}
	case !rp.e.connected.Load() && k8sutil.IsPluginFailure(err):
		rp.Findings.Add(migration.Finding{ID: "credentials-refused", Severity: migration.Error, Problem: err.Error(), Note: "The credential plugin of the kubeconfig failed, and the cluster was not asked. Log in again, or use another --context.", Command: "kubectl config get-contexts"})
		return outcome{result: migration.FailedResult, message: "the credential plugin of the kubeconfig failed; nothing was changed"}
	case !rp.e.connected.Load() && k8sutil.IsTransient(err):
		rp.Findings.Add(migration.Finding{
			ID: "api-server-unreachable", Severity: migration.Error, Problem: fmt.Sprintf("cannot reach the API server %s: %v", rp.e.server, err),
			Note:    "Check the address in the kubeconfig (--kubeconfig, --context), the network, and that the server runs.",
			Command: "kubectl cluster-info",
		})
		return outcome{result: migration.FailedResult, message: "cannot reach the API server " + rp.e.server + "; nothing was changed"}
	}
	if f, ok := act.OfState(err, rp.e.opts.StateNamespace); ok && !rp.Findings.HasError() {
		rp.Findings.Add(f)
	}
	if !rp.Findings.HasError() {
		rp.Findings.Add(act.Advised(migration.Finding{Severity: migration.Error, Problem: err.Error()}, err))
	}
	return outcome{result: migration.FailedResult, message: rp.reason(ctx, err) + "; nothing was changed"}
}

// reason is why a run failed, in one clause.
func (rp *reporter) reason(ctx context.Context, err error) string {
	var timeout *act.TimeoutError
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &timeout) {
		return timeout.Error()
	}
	found := rp.Findings.All()
	n := 0
	for _, f := range found {
		if f.Severity == migration.Error {
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s failed, the first: %s", migration.Count(n, "object"), findings.FirstError(found))
	}
	if n == 1 {
		return findings.FirstError(found)
	}
	return err.Error()
}

func (rp *reporter) refusal(plan *migration.Plan) outcome {
	rp.Findings.Add(plan.Findings...)
	n := 0
	for _, f := range plan.Findings {
		if f.Severity == migration.Error {
			n++
		}
	}
	return outcome{result: migration.Refused, message: fmt.Sprintf("refused: fix %s and run again; nothing was changed", migration.Count(n, "problem"))}
}

// nothingToUndo: no run of the job is open or done.
var nothingToUndo = outcome{result: migration.NothingToDo, message: "there is no run to undo"}

// newest is the beginning of the journal that an undo is for, nil if there is none.
func newest(ctx context.Context, all *journal.Store) (*journal.OpenJournal, error) {
	found, err := all.Find(ctx, append(slices.Clone(journal.OpenPhases), journal.PhaseDone)...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// tooEarly asks the job why the changes of a journal must not be undone now.
func (r *run) tooEarly(ctx context.Context, j *journal.Journal) ([]migration.Finding, error) {
	guard, ok := r.Job.(migration.UndoGuard)
	if !ok {
		return nil, nil
	}
	return guard.RefuseUndo(ctx, r.Writer.Cluster, j.Changes())
}

func refusedUndo(reasons []migration.Finding) outcome {
	return outcome{result: migration.Refused, message: "it is too early to undo this: " + reasons[0].Problem + "; nothing was changed"}
}

func (r *run) undo(parent context.Context) outcome {
	ctx, cancel := limited(parent, r.e.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err := r.lock.Peek(ctx); err != nil {
		return r.nothingChanged(ctx, err)
	}
	found, err := newest(ctx, r.Recorder.Journals)
	switch {
	case err != nil:
		return r.nothingChanged(ctx, err)
	case found == nil:
		return nothingToUndo
	}
	contended, err := r.acquire(parent)
	cancel()
	ctx, cancel = limited(parent, r.e.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err == nil && contended {
		found, err = newest(ctx, r.Recorder.Journals)
	}
	switch {
	case err != nil:
		return r.nothingChanged(ctx, err)
	case found == nil:
		return nothingToUndo
	}
	if agreed := r.e.opts.UndoOnly[r.Job.Name()]; agreed != "" && agreed != found.Header.Run {
		return outcome{result: migration.Refused, message: fmt.Sprintf("run %s, which was to be undone, is not the newest run any more: run %s is; nothing was changed", agreed, found.Header.Run)}
	}
	if r.Recorder.Journal, err = r.Recorder.Journals.Load(ctx, found.Header, found.Phase); err != nil {
		return r.nothingChanged(ctx, err)
	}
	var units []migration.Unit
	for _, e := range r.Recorder.Journal.Entries() {
		units = append(units, e.Unit)
	}
	reasons, err := r.tooEarly(ctx, r.Recorder.Journal)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	if len(reasons) > 0 {
		r.Findings.Add(reasons...)
		return refusedUndo(reasons)
	}
	missing, err := r.preflight().missing(ctx, units)
	if err != nil {
		return r.nothingChanged(ctx, err)
	}
	if len(missing) > 0 {
		r.Findings.Add(missing...)
		return outcome{result: migration.Refused, message: fmt.Sprintf("%s; nothing was changed", migration.Count(len(missing), "missing permission"))}
	}
	p := journal.PhaseUndo
	if found.Phase == journal.PhaseRollback {
		p = journal.PhaseRollback
	}
	out, _ := r.finishBackwards(parent, p, r.e.opts.RollbackTimeout)
	if out.result == migration.RolledBack {
		out.result = migration.Succeeded
	}
	return out
}
