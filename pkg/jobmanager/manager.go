package jobmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Options of a Manager.
type Options struct {
	// Engine makes the engine of one job; required. ForCluster returns it.
	Engine func(engine.Options) (Engine, error)
	// Migration are the options of the engines; Timeout is the limit of jobs that
	// have none of their own. Seat and Progress are the manager's to set.
	Migration engine.Options
	// Grace is how long a job may take to end when its time is over, before it is
	// abandoned; default 500ms. What has begun to write gets the time of a call
	// more.
	Grace time.Duration
	// Progress is told what the jobs do; nil: no reports.
	Progress Progress
	// Log takes a line for each job; nil: none.
	Log *zap.Logger
}

// Progress is told how far a run is. Its methods are called from any goroutine.
type Progress interface {
	// Job is called when a job changes its state.
	Job(hook Hook, job, state string)
	// For returns what the engine of one job is to tell.
	For(job string) engine.Progress
}

// Engine is what the manager asks of *engine.Engine.
type Engine interface {
	Run(context.Context, migration.Job) *migration.Report
	Plan(context.Context, migration.Job) *migration.Report
	Undo(context.Context, migration.Job) *migration.Report
	Decide(context.Context, migration.Job) (*migration.Plan, error)
	OpenState(context.Context) (*engine.State, error)
	Cluster() *migration.Cluster
}

var _ Engine = (*engine.Engine)(nil)

// writeGrace is added to Grace for what has begun to write: the call in flight
// ends, and what is done is marked.
const writeGrace = 45 * time.Second

// ForCluster makes engines for one cluster. Each has its own limit of requests, if cfg has a QPS;
// set a RateLimiter for one that they share. See engine.New.
func ForCluster(cfg *rest.Config) func(engine.Options) (Engine, error) {
	return func(o engine.Options) (Engine, error) {
		e, err := engine.New(cfg, o)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
}

// Manager knows jobs and components. Its methods may be called from any goroutine.
type Manager struct {
	opts       Options
	components []string
	jobs       []*Registration
	byName     map[string]*Registration
	// turns are those of the jobs, by name.
	turns map[string]*turn
	lease lease
}

// New registers the jobs. Components are all there are, in the order in which an
// installer deploys them. Every mistake is reported at once.
func New(opts Options, components []string, jobs ...Registration) (*Manager, error) {
	if opts.Grace == 0 {
		opts.Grace = 500 * time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = zap.NewNop()
	}
	// Its engines share a lock, so that they have one identity.
	opts.Migration.Identity = cmp.Or(opts.Migration.Identity, opts.Migration.Names.Program+"-"+string(uuid.NewUUID()))
	opts.Migration.Timeout = cmp.Or(opts.Migration.Timeout, 15*time.Minute)
	opts.Migration.RollbackTimeout = cmp.Or(opts.Migration.RollbackTimeout, 5*time.Minute)
	m := &Manager{opts: opts, components: slices.Clone(components), byName: map[string]*Registration{}, turns: map[string]*turn{}}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if opts.Engine == nil {
		bad("the manager has no engine")
	}
	seen := map[string]bool{Global: true}
	for _, c := range components {
		if len(validation.IsDNS1123Label(c)) > 0 || seen[c] {
			bad("component %q: not a valid name, or given twice", c)
		}
		seen[c] = true
	}
	jobs = slices.Clone(jobs)
	for i := range jobs {
		job := &jobs[i]
		if job.Job == nil {
			bad("job %d is nil", i+1)
			continue
		}
		name := job.Name()
		switch {
		case len(validation.IsDNS1123Label(name)) > 0:
			bad("job %d: %q is not a valid name (a DNS label)", i+1, name)
		case m.byName[name] != nil:
			bad("job %s is registered twice", name)
			continue
		}
		m.jobs = append(m.jobs, job)
		m.byName[name] = job
		m.turns[name] = &turn{taken: make(chan struct{}, 1)}
		if len(job.Hooks) == 0 {
			bad("job %s belongs to no hook", name)
		}
		at := map[string]bool{}
		for _, h := range job.Hooks {
			switch {
			case !seen[h.Component]:
				bad("job %s: unknown component %q (valid: %s)", name, h.Component, strings.Join(append([]string{Global}, components...), ", "))
			case h.Phase != Pre && h.Phase != Post:
				bad("job %s: unknown phase %q (valid: %s, %s)", name, h.Phase, Pre, Post)
			case at[h.String()]:
				bad("job %s is in the hook %s twice", name, h)
			}
			at[h.String()] = true
		}
		if job.RemoveBy != "" {
			if _, err := parseRelease(job.RemoveBy); err != nil {
				bad("job %s has a wrong RemoveBy: %w", name, err)
			}
		}
		for _, q := range job.Requires {
			if q.IfMissing != NotNeeded && q.IfMissing != Blocked {
				bad("job %s has a wrong IfMissing for %s: %q (valid: %s, %s)", name, q.Kind, q.IfMissing, NotNeeded, Blocked)
			}
		}
	}
	if len(errs) == 0 {
		errs = m.checkOrder()
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("cannot register the jobs: %w", errors.Join(errs...))
	}
	return m, nil
}

// Components are all components, in order.
func (m *Manager) Components() []string { return slices.Clone(m.components) }

// turn is what the runs of one job take, one at a time: it may belong to hooks that run
// side by side.
type turn struct {
	taken chan struct{}
	// ended counts the runs.
	ended atomic.Int64
}

func (t *turn) take(ctx context.Context) error {
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *turn) leave() {
	t.ended.Add(1)
	<-t.taken
}

// checkOrder finds unknown names and circles, hook by hook.
func (m *Manager) checkOrder() []error {
	var errs []error
	for _, component := range append([]string{Global}, m.components...) {
		for _, phase := range []Phase{Pre, Post} {
			after := map[string][]string{}
			for _, job := range m.jobs {
				if h, ok := job.hook(component, phase); ok {
					after[job.Name()] = h.After
				}
			}
			for _, job := range m.jobs {
				for _, name := range after[job.Name()] {
					if _, ok := after[name]; !ok {
						errs = append(errs, fmt.Errorf("job %s comes after %q, which is not in the hook %s/%s", job.Name(), name, component, phase))
					}
				}
			}
			if circle := findCircle(after); circle != nil {
				errs = append(errs, fmt.Errorf("the jobs of the hook %s/%s wait for each other: %s", component, phase, strings.Join(circle, " after ")))
			}
		}
	}
	// Jobs of several components may run together: the orders of all hooks of a
	// phase must agree, too.
	if len(errs) == 0 {
		for _, phase := range []Phase{Pre, Post} {
			if circle := findCircle(m.orders(phase, m.components)); circle != nil {
				errs = append(errs, fmt.Errorf("the %s-hooks of the components contradict each other: %s", phase, strings.Join(circle, " after ")))
			}
		}
	}
	return errs
}

// orders returns what each job of the phase comes after, over several components.
func (m *Manager) orders(phase Phase, components []string) map[string][]string {
	after := map[string][]string{}
	for _, job := range m.jobs {
		for _, c := range components {
			if h, ok := job.hook(c, phase); ok {
				after[job.Name()] = append(after[job.Name()], h.After...)
			}
		}
	}
	return after
}

// findCircle returns names of which each comes after the next, the first one once
// more at the end; nil if there is no circle.
func findCircle(after map[string][]string) []string {
	const (
		visiting = 1
		done     = 2
	)
	state := map[string]int{}
	var path []string
	var visit func(string) []string
	visit = func(name string) []string {
		switch state[name] {
		case visiting:
			return append(slices.Clone(path[slices.Index(path, name):]), name)
		case done:
			return nil
		}
		state[name] = visiting
		path = append(path, name)
		for _, next := range after[name] {
			if circle := visit(next); circle != nil {
				return circle
			}
		}
		path = path[:len(path)-1]
		state[name] = done
		return nil
	}
	names := make([]string, 0, len(after))
	for name := range after {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if circle := visit(name); circle != nil {
			return circle
		}
	}
	return nil
}
