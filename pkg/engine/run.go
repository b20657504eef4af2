package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// run is one command on one job.
type run struct {
	engine *Engine
	job    migration.Job
	log    *zap.Logger
	lock   lease.Lease
	// findings are what the run tells people, recorder is its journal, writer sends its requests.
	findings *findings.List
	recorder *journal.Recorder
	writer   *write.Writer
	// actor makes changes and undoes them.
	actor *act.Actor
	// explain makes the outcome of an error, reporter the report of an outcome.
	explain  *explainer
	reporter *reporter
	// grant waits for permissions before the first write.
	grant *wait.Grant
	// earlierOutcome is how a rollback ended that this run finished before its own work.
	earlierOutcome outcome
}

// begin returns a command that has done nothing yet.
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
	a := &act.Actor{
		Findings: found, Writer: w, Recorder: rec, Job: job, Log: log, NewCluster: e.newCluster, StateNamespace: e.opts.StateNamespace, Undo: e.opts.Undo,
		Namespaces: act.NewNamespaces(w, job, e.Applicable),
	}
	return &run{
		engine: e, job: job, log: log, lock: lock, findings: found, recorder: rec, writer: w, actor: a,
		grant:   &wait.Grant{Until: time.Now().Add(e.opts.PermissionWait), Log: log},
		explain: &explainer{engine: e, job: job, lock: lock, findings: found, recorder: rec, actor: a},
		reporter: &reporter{
			engine: e, command: command, job: job, log: log, lock: lock, findings: found, recorder: rec, writer: w,
			started: time.Now(), requests: migration.Requests{Reads: e.counter.Reads(), Writes: e.counter.Writes()},
		},
	}
}

// Run does what is left to do. The end of ctx interrupts it, as a signal does: the journal stays
// open, and the next run goes on. A SignalError as the cause says which signal, for the exit code.
func (e *Engine) Run(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("run", job)
	defer r.release()
	return r.reporter.conclude(ctx, r.withEarlier(r.forward(ctx)))
}

// release gives the lock back. Its Lease says that a run of the job is open for as long
// as a journal may be.
func (r *run) release() {
	if r.recorder.Journals.AllClosed() {
		r.lock.Release(r.job.Name())
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

// outcome is how a command ended, before it is reported.
type outcome struct {
	result  migration.Result
	message string
	signal  int
	// unrestored is set if changes stay that the result does not promise to.
	unrestored bool
}

// limited is ctx with a limit, the reason of which is told in words.
func limited(ctx context.Context, limit time.Duration, what, flag string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &act.TimeoutError{What: what, Flag: flag, Limit: limit.String()})
}
