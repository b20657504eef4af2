package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Deploy deploys the components, in the order given, with all jobs that belong to
// that: it is the one place that knows the order of hooks, for an installer to
// embed. deploy is called for one component at a time, and only if the jobs before
// it succeeded.
//
// The Lease is not held while deploy runs: a chart's own hooks may be this
// project's jobs, and need it.
//
// The error joins everything that went wrong; each part names its job or
// component. The report is never nil.
func (m *Manager) Deploy(ctx context.Context, components []string, deploy func(ctx context.Context, component string) error) (*Report, error) {
	r := m.begin("deploy", components, true)
	if err := m.known(components); err != nil {
		return r.finish(err)
	}
	if err := r.execute(ctx, m.stageOf(Pre, Global)); err != nil {
		for _, c := range components {
			r.component(ComponentReport{Component: c, Result: ResultNotStarted, Message: "a global job before it did not succeed"})
		}
		for _, c := range components {
			r.leave(Pre, c)
			r.leave(Post, c)
		}
		r.leave(Post, Global)
		return r.finish(err)
	}
	var errs []error
	for _, c := range components {
		if err := r.deploy(ctx, c, deploy); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 || ctx.Err() != nil {
		r.leave(Post, Global)
		if len(errs) == 0 {
			errs = append(errs, context.Cause(ctx))
		}
		return r.finish(errors.Join(errs...))
	}
	return r.finish(r.execute(ctx, m.stageOf(Post, Global)))
}

// deploy is the chain of one component.
func (r *run) deploy(ctx context.Context, component string, deploy func(context.Context, string) error) error {
	report := ComponentReport{Component: component, Result: ResultNotStarted}
	if ctx.Err() != nil {
		report.Message = context.Cause(ctx).Error()
		r.component(report)
		return &ComponentError{Component: component, Err: context.Cause(ctx)}
	}
	if err := r.execute(ctx, r.m.stageOf(Pre, component)); err != nil {
		report.Message = "a job before it did not succeed"
		r.component(report)
		r.leave(Post, component)
		return err
	}
	if ctx.Err() != nil {
		report.Message = context.Cause(ctx).Error()
		r.component(report)
		r.leave(Post, component)
		return &ComponentError{Component: component, Err: context.Cause(ctx)}
	}
	r.shared.Release()
	report.Began = time.Now()
	err := called(ctx, component, deploy)
	report.Ended = time.Now()
	report.Seconds = seconds(report.Ended.Sub(report.Began))
	report.Result = ResultDeployed
	if err != nil {
		report.Result, report.Message = migration.FailedResult, err.Error()
		err = &ComponentError{Component: component, Err: err}
		r.codes = append(r.codes, exitCode(err))
	}
	r.component(report)
	r.log.Info("component", zap.String("component", component), zap.String("result", string(report.Result)), zap.Float64("seconds", report.Seconds))
	if err != nil {
		r.leave(Post, component)
		return err
	}
	return r.execute(ctx, r.m.stageOf(Post, component))
}

func (r *run) skip(s stage) {
	for _, job := range s.jobs {
		r.report.Jobs = append(r.report.Jobs, s.notStarted(job, "what comes before it did not succeed"))
	}
}

func called(ctx context.Context, component string, deploy func(context.Context, string) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return deploy(ctx, component)
}

func (r *run) component(c ComponentReport) { r.report.Components = append(r.report.Components, c) }

// leave reports the jobs of a hook that is not reached.
func (r *run) leave(phase Phase, component string) { r.skip(r.m.stageOf(phase, component)) }

// known refuses components nobody has registered.
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
		return &UsageError{fmt.Sprintf("unknown component, or one that is named twice: %s; there are %s", strings.Join(bad, ", "), strings.Join(m.components, ", "))}
	}
	return nil
}
