package jobmanager

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// fakeJob is a job whose parts are functions; nil ones do what is usual.
type fakeJob struct {
	name string
	// plan decides; nil: there is always something to do.
	plan func(context.Context) (*migration.Plan, error)
	// run is what the engine does with it.
	run func(context.Context) *migration.Report
}

func (j *fakeJob) Name() string              { return j.name }
func (j *fakeJob) Doc() (short, long string) { return j.name, "" }
func (j *fakeJob) Plan(ctx context.Context, _ *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	if j.plan == nil {
		return &migration.Plan{Units: []migration.Unit{oneWrite}}, nil
	}
	return j.plan(ctx)
}
func (j *fakeJob) Await(*migration.Change) []migration.Condition { return nil }

var oneWrite = migration.Unit{Changes: []migration.Change{{Verb: migration.Create}}}

// nothing is the plan of a job that is not needed.
func nothing(context.Context) (*migration.Plan, error) { return &migration.Plan{}, nil }

// job registers one that always has something to do.
func job(name string, hooks ...Hook) Registration {
	return Registration{Job: &fakeJob{name: name}, Hooks: hooks}
}

// ledger records what happened, in order.
type ledger struct {
	mu     sync.Mutex
	events []string
}

func (l *ledger) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, fmt.Sprintf(format, args...))
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.events...)
}

// fakeEngine runs fakeJobs.
type fakeEngine struct {
	ledger *ledger
	kept   *engine.State
}

func (e *fakeEngine) work(ctx context.Context, command string, job migration.Job) *migration.Report {
	e.ledger.add("%s %s", command, job.Name())
	if f := job.(*fakeJob); f.run != nil {
		return f.run(ctx)
	}
	return &migration.Report{Job: job.Name(), Command: command, Result: migration.Succeeded, Message: "done"}
}

func (e *fakeEngine) Run(ctx context.Context, job migration.Job) *migration.Report {
	return e.work(ctx, "run", job)
}

func (e *fakeEngine) Plan(ctx context.Context, job migration.Job) *migration.Report {
	return e.work(ctx, "plan", job)
}

func (e *fakeEngine) Undo(ctx context.Context, job migration.Job) *migration.Report {
	return e.work(ctx, "undo", job)
}

func (e *fakeEngine) Decide(ctx context.Context, job migration.Job) (*migration.Plan, error) {
	return job.Plan(ctx, nil, migration.PlanOptions{Preview: true})
}
func (e *fakeEngine) OpenState(context.Context) (*engine.State, error) { return e.kept, nil }
func (e *fakeEngine) Cluster() *migration.Cluster                      { return nil }

func fakeOptions(l *ledger) Options {
	return Options{
		Engine: func(engine.Options) (Engine, error) {
			return &fakeEngine{ledger: l, kept: &engine.State{Reports: map[string]*engine.StoredReport{}}}, nil
		},
		Grace: 20 * time.Millisecond,
	}
}

func newManager(t *testing.T, l *ledger, components []string, jobs ...Registration) *Manager {
	t.Helper()
	m, err := New(fakeOptions(l), components, jobs...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// failing is the report of a run that failed.
func failing(result migration.Result, message string) func(context.Context) *migration.Report {
	return func(context.Context) *migration.Report { return &migration.Report{Result: result, Message: message} }
}
