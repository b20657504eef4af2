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

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Selection narrows a run that deploys nothing. The zero value is everything.
type Selection struct {
	// Components whose jobs run, with the global jobs; Global: the global jobs alone.
	Components []string
	// Phases that run.
	Phases []Phase
	// Jobs by name: these and no others, each once, whatever their hooks.
	Jobs []string
}

// Run does what the cluster is ready for, without deploying anything: the jobs of
// all components together, each once in a phase, in the order of their hooks.
func (m *Manager) Run(ctx context.Context, s Selection) (*Report, error) {
	return m.work(ctx, "run", s)
}

// Plan shows what Run would do, and writes nothing.
func (m *Manager) Plan(ctx context.Context, s Selection) (*Report, error) {
	return m.work(ctx, "plan", s)
}

func (m *Manager) work(ctx context.Context, command string, s Selection) (*Report, error) {
	components := s.components(m)
	r := m.begin(command, components, false)
	stages, err := m.stages(s)
	if err != nil {
		return r.finish(err)
	}
	// Over all stages: nothing is deployed in between.
	m.lease.join()
	defer m.lease.leave()
	var errs []error
	for i, stage := range stages {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
		} else if err := r.execute(ctx, stage); err != nil {
			errs = append(errs, err)
		}
		if len(errs) > 0 && command != "plan" {
			for _, later := range stages[i+1:] {
				r.skip(later)
			}
			break
		}
	}
	return r.finish(errors.Join(errs...))
}

func (s Selection) components(m *Manager) []string {
	if len(s.Components) == 0 {
		return m.Components()
	}
	return slices.DeleteFunc(slices.Clone(s.Components), func(c string) bool { return c == Global })
}

// stages are what a selection asks for, in order.
func (m *Manager) stages(s Selection) ([]stage, error) {
	components := s.components(m)
	if err := m.known(components); err != nil {
		return nil, err
	}
	for _, p := range s.Phases {
		if p != Pre && p != Post {
			return nil, &UsageError{fmt.Sprintf("unknown phase %q (valid: %s, %s)", p, Pre, Post)}
		}
	}
	var unknown []string
	for _, name := range s.Jobs {
		if m.byName[name] == nil {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}
	if len(unknown) > 0 {
		return nil, &UsageError{fmt.Sprintf("unknown job %s (valid: %s)", strings.Join(unknown, ", "), strings.Join(m.names(), ", "))}
	}
	all := []stage{m.stageOf(Pre, Global), m.stageOf(Pre, components...), m.stageOf(Post, components...), m.stageOf(Post, Global)}
	var out []stage
	done := map[string]bool{}
	for _, st := range all {
		if len(s.Phases) > 0 && !slices.Contains(s.Phases, st.phase) {
			continue
		}
		if len(s.Jobs) > 0 {
			st = st.keep(func(j *Registration) bool { return slices.Contains(s.Jobs, j.Name()) && !done[j.Name()] })
			for _, j := range st.jobs {
				done[j.Name()] = true
			}
		}
		if len(st.jobs) > 0 {
			out = append(out, st)
		}
	}
	for _, name := range s.Jobs {
		if !done[name] {
			return nil, &UsageError{fmt.Sprintf("job %s is not in the selected components or phases", name)}
		}
	}
	return out, nil
}

func (m *Manager) names() []string {
	out := make([]string, len(m.jobs))
	for i, j := range m.jobs {
		out[i] = j.Name()
	}
	return out
}

// JobNeed is whether one job is needed now.
type JobNeed struct {
	Job *Registration
	Need
	Seconds float64
	Err     error
}

// Jobs are asked few at a time, because each holds the lists that its plan is made of. One that
// takes longer than slotTime, more than 20,000 Applications take, holds its place no longer:
// an API that hangs for one job never keeps the others from being asked.
const (
	askedAtOnce = 2
	slotTime    = 2 * time.Minute
)

// Needs asks every job whether it is needed now, two at a time. If this account may not read
// the state of earlier runs, the result is that of the plans alone, and the error says so.
func (m *Manager) Needs(ctx context.Context) ([]JobNeed, error) {
	r := m.begin("needs", m.components, false)
	kept, unknown := r.kept(ctx)
	if apierrors.IsForbidden(unknown) {
		kept = &engine.State{}
	} else if unknown != nil {
		return nil, unknown
	}
	shared := m.lease.join()
	defer m.lease.leave()
	out := make([]JobNeed, len(m.jobs))
	var all sync.WaitGroup
	slots := make(chan struct{}, askedAtOnce)
	for i, job := range m.jobs {
		slots <- struct{}{}
		free := sync.OnceFunc(func() { <-slots })
		late := time.AfterFunc(slotTime, free)
		all.Go(func() {
			defer free()
			defer late.Stop()
			defer func() {
				if p := recover(); p != nil {
					out[i].Err = &panicError{value: p, stack: debug.Stack()}
				}
			}()
			o := m.opts.Migration
			seat := shared.Seat()
			o.Seat = seat
			out[i].Job = job
			e, err := m.opts.Engine(o)
			if err != nil {
				out[i].Err = err
				return
			}
			began := time.Now()
			n, err := watched(ctx, o, m.opts.Grace, seat, true, func(ctx context.Context) (Need, error) { return r.need(ctx, e, job) })
			if open := kept.Open(job.Name()); open != nil && err == nil {
				n.Verdict, n.Reason = Needed, whyOpen(open, kept.Lock)
			}
			out[i].Need, out[i].Err, out[i].Seconds = n, err, seconds(time.Since(began))
		})
	}
	all.Wait()
	return out, unknown
}

// Undo reverts the newest run of one job, from its journal. It is never called by a
// deployment.
func (m *Manager) Undo(ctx context.Context, name string) (report *migration.Report, err error) {
	job := m.byName[name]
	if job == nil {
		return nil, &UsageError{fmt.Sprintf("unknown job %q (valid: %s)", name, strings.Join(m.names(), ", "))}
	}
	if job.NoUndo != "" {
		return &migration.Report{
			Job: name, Command: "undo", Result: migration.NothingToDo, Message: job.NoUndo, StartedAt: time.Now().UTC().Truncate(time.Second),
			Changes: []migration.ChangeReport{}, Findings: []migration.Finding{},
		}, nil
	}
	turn := m.turns[name]
	if err := turn.take(ctx); err != nil {
		return nil, err
	}
	defer turn.leave()
	o := m.opts.Migration
	o.Seat = m.lease.join().Seat()
	defer m.lease.leave()
	e, err := m.opts.Engine(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			report, err = nil, &JobError{Job: name, Code: migration.ExitPartlyRestored, Err: &panicError{value: p, stack: debug.Stack()}}
		}
	}()
	return e.Undo(ctx, job.Job), nil
}

// turnOf is a job in a hook.
type turnOf struct {
	stage stage
	job   *Registration
}

// undoOrder is the reverse of the order in which Run runs the jobs.
func (m *Manager) undoOrder(s Selection) ([]turnOf, error) {
	stages, err := m.stages(s)
	var order []turnOf
	for _, st := range stages {
		for _, job := range st.ordered() {
			order = append(order, turnOf{st, job})
		}
	}
	slices.Reverse(order)
	return order, err
}

// ordered are the jobs of the stage, each after those that it comes after.
func (s stage) ordered() []*Registration {
	var out []*Registration
	var add func(job *Registration)
	add = func(job *Registration) {
		if slices.Contains(out, job) {
			return
		}
		for _, other := range s.jobs {
			if slices.Contains(s.after[job.Name()], other.Name()) {
				add(other)
			}
		}
		out = append(out, job)
	}
	for _, job := range s.jobs {
		add(job)
	}
	return out
}

// UndoOrder names the jobs that UndoJobs undoes, in its order.
func (m *Manager) UndoOrder(s Selection) ([]string, error) {
	order, err := m.undoOrder(s)
	names := make([]string, len(order))
	for i, at := range order {
		names[i] = at.job.Name()
	}
	return names, err
}

// UndoJobs undoes the newest run of each selected job that is not undone yet, in the reverse order
// of Run: of a job that belongs to both phases, one run for each phase. It ends with the first undo
// that fails.
func (m *Manager) UndoJobs(ctx context.Context, s Selection) (*Report, error) {
	r := m.begin("undo", s.components(m), false)
	order, err := m.undoOrder(s)
	if err != nil {
		return r.finish(err)
	}
	m.lease.join()
	defer m.lease.leave()
	for _, at := range order {
		if err != nil {
			r.add(at.stage.notStarted(at.job, "skipped: the undo before it did not succeed"))
			continue
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			r.add(at.stage.notStarted(at.job, err.Error()))
			continue
		}
		err = r.undo(ctx, at)
	}
	return r.finish(err)
}

func (r *run) undo(ctx context.Context, at turnOf) error {
	job := JobReport{Job: at.job.Name(), Component: at.stage.hook(at.job).Component, Phase: at.stage.phase, Began: time.Now()}
	out, err := r.m.Undo(ctx, job.Job)
	job.Ended = time.Now()
	job.Seconds = seconds(job.Ended.Sub(job.Began))
	if err == nil {
		job.ran(out)
		if job.ExitCode != migration.ExitOK {
			err = &JobError{Job: job.Job, Code: job.ExitCode, Err: errors.New(out.Message)}
		}
	} else {
		job.ExitCode = codeOf(err)
		var broken *JobError
		if errors.As(err, &broken) {
			job.ExitCode = broken.Code
		}
		job.Result, job.Message = resultOf(job.ExitCode), err.Error()
	}
	r.add(job)
	r.code(job.ExitCode)
	return err
}
