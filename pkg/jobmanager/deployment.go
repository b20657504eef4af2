package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Deploy deploys the components, in the order given, with all jobs that belong to
// that. deploy is called for one component at a time, and only if the jobs before
// it succeeded. An installer that deploys components side by side calls the hooks
// itself: see Begin.
//
// The Lease is not held while deploy runs: a chart's own hooks may be jobs of the same
// migration, and need it.
//
// The error joins everything that went wrong; each part names its job or
// component. The report is never nil.
func (m *Manager) Deploy(ctx context.Context, components []string, deploy func(ctx context.Context, component string) error) (*Report, error) {
	d, err := m.Begin(components)
	if err != nil {
		return m.begin("deploy", components, true).finish(err)
	}
	// What these return is in what End returns.
	_ = d.Pre(ctx, Global)
	for _, c := range components {
		d.deploy(ctx, c, deploy)
	}
	_ = d.Post(ctx, Global)
	return d.End()
}

// deploy is the chain of one component.
func (d *Deployment) deploy(ctx context.Context, component string, deploy func(context.Context, string) error) {
	if d.Pre(ctx, component) != nil {
		return
	}
	if err := called(ctx, component, deploy); err != nil {
		_ = d.Fail(component, err) // is in what End returns
		return
	}
	_ = d.Post(ctx, component) // the same
}

func called(ctx context.Context, component string, deploy func(context.Context, string) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return deploy(ctx, component)
}

// Deployment is one deployment of components by an installer that calls the hooks
// itself, as Begin tells. Its methods may be called from any goroutine.
//
// Each hook runs once: a second call, also while it runs, waits and gets the same
// result. Jobs of several hooks may run at the same time, under one Lease, but no
// job runs twice at a time: the second run waits for the first.
type Deployment struct {
	m *Manager
	r *run

	mu         sync.Mutex
	hooks      map[string]*hookRun
	components map[string]*ComponentReport
	// errs are those of hooks and components, as they came.
	errs []error
}

// hookRun is the one run of a hook.
type hookRun struct {
	done chan struct{}
	// reached: its jobs are in the report.
	reached bool
	// err may be read once done is closed.
	err error
}

// Begin begins a deployment of the components, each of which the manager knows. The
// installer then does, for each component and from whatever goroutine:
//
//	if err := d.Pre(ctx, component); err != nil {
//		return err
//	}
//	if err := deploy(ctx, component); err != nil {
//		return d.Fail(component, err)
//	}
//	return d.Post(ctx, component)
//
// Before all of them it may call Pre for Global (the first Pre of a component does it
// otherwise), and when all have returned Post for Global, and End.
//
// While any hook of the manager runs a job that writes, the Lease is held. A chart that is
// deployed meanwhile, and whose own hooks are jobs of the same migration, waits for it:
// give those a --lock-wait that is longer than the hooks take.
func (m *Manager) Begin(components []string) (*Deployment, error) {
	if err := m.known(components); err != nil {
		return nil, err
	}
	d := &Deployment{m: m, r: m.begin("deploy", components, true), hooks: map[string]*hookRun{}, components: map[string]*ComponentReport{}}
	for _, c := range components {
		d.components[c] = &ComponentReport{Component: c, Result: ResultNotStarted}
	}
	return d, nil
}

// Pre runs the jobs before the deployment of the component, or with Global those
// before everything. If it returns an error, the component must not be deployed.
//
// The global jobs come first: Pre of a component runs them if they have not run, and
// returns their error if they fail.
func (d *Deployment) Pre(ctx context.Context, component string) error {
	if component == Global {
		return d.once(ctx, Before(Global), nil)
	}
	report, err := d.component(component)
	if err != nil {
		return err
	}
	if err := d.Pre(ctx, Global); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		report.Message = "not deployed: a global job before it did not succeed"
		return err
	}
	return d.once(ctx, Before(component), func(err error) {
		switch {
		case err == nil:
			report.Began = time.Now()
		case ctx.Err() != nil:
			report.Message = context.Cause(ctx).Error()
		default:
			report.Message = "not deployed: a job before it did not succeed"
		}
	})
}

// Post runs the jobs after the deployment of the component, which must have succeeded;
// if it failed, call Fail. With Global it runs those after everything, if nothing has
// failed; every component must have come to its Post or Fail before.
func (d *Deployment) Post(ctx context.Context, component string) error {
	if component == Global {
		if err := d.over(); err != nil {
			return err
		}
		return d.once(ctx, After(Global), nil)
	}
	report, err := d.component(component)
	if err != nil {
		return err
	}
	if err := d.deployed(report, nil); err != nil {
		return err
	}
	return d.once(ctx, After(component), nil)
}

// Fail says that the component, for which Pre succeeded, could not be deployed: neither
// its post-jobs nor the global ones run. It returns the error, with the component's name.
func (d *Deployment) Fail(component string, err error) error {
	report, unknown := d.component(component)
	if unknown != nil {
		return errors.Join(unknown, err)
	}
	failed := &ComponentError{Component: component, Err: err}
	if err := d.deployed(report, failed); err != nil {
		return err
	}
	return failed
}

// End adds everything up, once the last hook has returned. The error joins everything
// that went wrong; each part names its job or component. The report is never nil. It
// lists every job of the components, those that did not run as not started.
func (d *Deployment) End() (*Report, error) {
	d.mu.Lock()
	for _, c := range append([]string{Global}, d.r.components...) {
		for _, h := range []Hook{Before(c), After(c)} {
			if hook := d.hooks[h.String()]; hook == nil || !hook.reached {
				d.r.skip(d.m.stageOf(h.Phase, h.Component))
			}
		}
	}
	for _, c := range d.r.components {
		report := d.components[c]
		if report.Result == ResultNotStarted && !report.Began.IsZero() {
			report.Message = "the installer did not call Post or Fail for it"
		}
		d.r.report.Components = append(d.r.report.Components, *report)
	}
	err := errors.Join(d.errs...)
	last := d.hooks[After(Global).String()]
	d.mu.Unlock()
	if err == nil && last == nil {
		err = &UsageError{fmt.Sprintf("the deployment ended before its hook %s", After(Global))}
	}
	return d.r.finish(err)
}

// once runs the hook, or waits for the run that another caller began. and gets the
// result before the other callers do.
func (d *Deployment) once(ctx context.Context, h Hook, and func(error)) error {
	d.mu.Lock()
	hook, begun := d.hooks[h.String()]
	if !begun {
		hook = &hookRun{done: make(chan struct{}), reached: ctx.Err() == nil}
		d.hooks[h.String()] = hook
	}
	d.mu.Unlock()
	if begun {
		select {
		case <-hook.done:
			return hook.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer close(hook.done)
	var err error
	if hook.reached {
		err = d.r.execute(ctx, d.m.stageOf(h.Phase, h.Component))
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
		if h.Component != Global {
			err = &ComponentError{Component: h.Component, Err: err}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if hook.err = err; err != nil {
		d.errs = append(d.errs, err)
	}
	if and != nil {
		and(err)
	}
	return err
}

// component returns the report of a component of this deployment.
func (d *Deployment) component(name string) (*ComponentReport, error) {
	report := d.components[name]
	if report == nil {
		return nil, &UsageError{fmt.Sprintf("component %q is not part of this deployment (valid: %s)", name, strings.Join(d.r.components, ", "))}
	}
	return report, nil
}

// deployed reports the end of a component's deployment: once, and not before its Pre.
func (d *Deployment) deployed(report *ComponentReport, failed error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case report.Began.IsZero():
		return &UsageError{fmt.Sprintf("component %s: the hook %s has not succeeded yet", report.Component, Before(report.Component))}
	case report.Result == migration.FailedResult:
		return &UsageError{fmt.Sprintf("component %s has failed already: %s", report.Component, report.Message)}
	case report.Result == ResultDeployed && failed != nil:
		return &UsageError{fmt.Sprintf("component %s is deployed already, so it cannot fail: %v", report.Component, failed)}
	case report.Result == ResultDeployed:
		return nil
	}
	report.Ended = time.Now()
	report.Seconds = seconds(report.Ended.Sub(report.Began))
	report.Result = ResultDeployed
	if failed != nil {
		report.Result, report.Message = migration.FailedResult, errors.Unwrap(failed).Error()
		d.errs = append(d.errs, failed)
		d.r.code(exitCode(failed))
	}
	d.r.log.Info("component", zap.String("component", report.Component), zap.String("result", string(report.Result)), zap.Float64("seconds", report.Seconds))
	return nil
}

// over returns nil if every component was deployed, with its post-jobs, and nothing
// has failed.
func (d *Deployment) over() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.errs) > 0 {
		return errors.Join(d.errs...)
	}
	var open []string
	for _, c := range d.r.components {
		hook := d.hooks[After(c).String()]
		if hook == nil {
			open = append(open, c)
			continue
		}
		select {
		case <-hook.done:
		default:
			open = append(open, c)
		}
	}
	if len(open) > 0 {
		return &UsageError{fmt.Sprintf("the hook %s comes after all components, but these are not deployed yet: %s", After(Global), strings.Join(open, ", "))}
	}
	return nil
}

// known refuses components that are not registered.
func (m *Manager) known(components []string) error {
	var bad []string
	seen := map[string]bool{}
	for _, c := range components {
		if !slices.Contains(m.components, c) || seen[c] {
			bad = append(bad, fmt.Sprintf("%q", c))
		}
		seen[c] = true
	}
	if len(bad) > 0 {
		return &UsageError{fmt.Sprintf("unknown or repeated component %s (valid: %s)", strings.Join(bad, ", "), strings.Join(m.components, ", "))}
	}
	return nil
}
