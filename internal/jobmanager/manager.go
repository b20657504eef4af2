package jobmanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

// Options of a Manager.
type Options struct {
	// Engine makes the engine of one job; required. ForCluster returns it.
	Engine func(engine.Options) (Engine, error)
	// Migration are the options of the engines; Timeout is the limit of jobs that
	// have none of their own.
	Migration engine.Options
	// Grace is how long a job may take to end when its time is over, before it is
	// left behind; default 500ms. What has begun to write gets the time of a call
	// more.
	Grace time.Duration
	// Progress is told what the jobs do; nil: nobody.
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

// writeGrace is added to Grace for what has begun to write: the call in flight
// ends, and what is done is marked.
const writeGrace = 45 * time.Second

// ForCluster makes engines for one cluster.
func ForCluster(cfg *rest.Config) func(engine.Options) (Engine, error) {
	return func(o engine.Options) (Engine, error) {
		e, err := engine.New(cfg, o)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
}

// Manager knows jobs and components.
type Manager struct {
	opts       Options
	components []string
	jobs       []Job
	byName     map[string]Job
}

// New registers the jobs. Components are all there are, in the order in which an
// installer deploys them. Every mistake is reported at once.
func New(opts Options, components []string, jobs ...Job) (*Manager, error) {
	if opts.Grace == 0 {
		opts.Grace = 500 * time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = zap.NewNop()
	}
	opts.Migration.Timeout = cmp.Or(opts.Migration.Timeout, 15*time.Minute)
	opts.Migration.RollbackTimeout = cmp.Or(opts.Migration.RollbackTimeout, 5*time.Minute)
	m := &Manager{opts: opts, components: slices.Clone(components), jobs: slices.Clone(jobs), byName: map[string]Job{}}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if opts.Engine == nil {
		bad("the manager has no engine")
	}
	seen := map[string]bool{Global: true}
	for _, c := range components {
		if len(validation.IsDNS1123Label(c)) > 0 || seen[c] {
			bad("component %q is no name, or is there twice", c)
		}
		seen[c] = true
	}
	for i, job := range jobs {
		name := ""
		if job != nil {
			name = job.Name()
		}
		switch {
		case job == nil:
			bad("job %d is nil", i+1)
			continue
		case len(validation.IsDNS1123Label(name)) > 0:
			bad("job %d: %q is no name for a job; a DNS label is", i+1, name)
		case m.byName[name] != nil:
			bad("job %s is registered twice", name)
			continue
		}
		m.byName[name] = job
		if job.Migration() == nil {
			bad("job %s has no plan", name)
		} else if other := job.Migration().Name(); other != name {
			bad("job %s calls itself %q to the engine", name, other)
		}
		if len(job.Hooks()) == 0 {
			bad("job %s belongs to no hook", name)
		}
		at := map[string]bool{}
		for _, h := range job.Hooks() {
			switch {
			case !seen[h.Component]:
				bad("job %s: unknown component %q; there are %s", name, h.Component, strings.Join(append([]string{Global}, components...), ", "))
			case h.Phase != Pre && h.Phase != Post:
				bad("job %s: unknown phase %q; there are %s and %s", name, h.Phase, Pre, Post)
			case at[h.String()]:
				bad("job %s is in the hook %s twice", name, h)
			}
			at[h.String()] = true
		}
		if d, ok := job.(Deprecated); ok && d.GoneBy() != "" {
			if _, err := parseRelease(d.GoneBy()); err != nil {
				bad("job %s: the release in which it must be gone: %w", name, err)
			}
		}
		if r, ok := job.(Requirer); ok {
			for _, q := range r.Requires() {
				if q.IfMissing != NotNeeded && q.IfMissing != Blocked {
					bad("job %s: without %s it is %q; that must be %s or %s", name, q.Kind, q.IfMissing, NotNeeded, Blocked)
				}
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

// String is "component/phase".
func (h Hook) String() string { return h.Component + "/" + string(h.Phase) }

// Jobs are all jobs, in the order of their registration.
func (m *Manager) Jobs() []Job { return slices.Clone(m.jobs) }

// Components are all components, in order.
func (m *Manager) Components() []string { return slices.Clone(m.components) }

// Job returns the job of that name, nil if there is none.
func (m *Manager) Job(name string) Job { return m.byName[name] }

// hookOf returns the job's hook, false if it does not belong there.
func hookOf(job Job, component string, phase Phase) (Hook, bool) {
	for _, h := range job.Hooks() {
		if h.Component == component && h.Phase == phase {
			return h, true
		}
	}
	return Hook{}, false
}

// checkOrder finds what is unknown or goes round in a circle, hook by hook.
func (m *Manager) checkOrder() []error {
	var errs []error
	for _, component := range append([]string{Global}, m.components...) {
		for _, phase := range []Phase{Pre, Post} {
			after := map[string][]string{}
			for _, job := range m.jobs {
				if h, ok := hookOf(job, component, phase); ok {
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
			if h, ok := hookOf(job, c, phase); ok {
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
