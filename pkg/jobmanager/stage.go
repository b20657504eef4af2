package jobmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// run is one deployment, or one call of Run or Plan.
type run struct {
	m          *Manager
	command    string
	components []string
	deploys    bool
	log        *zap.Logger

	mu     sync.Mutex
	report *Report
	codes  []int
}

func (m *Manager) begin(command string, components []string, deploys bool) *run {
	return &run{
		m: m, command: command, components: slices.Clone(components), deploys: deploys, log: m.opts.Log,
		report: &Report{Command: command, StartedAt: time.Now().UTC(), Jobs: []JobReport{}},
	}
}

// stage is the jobs of one hook, or of the same phase of several components that
// are not deployed in between.
type stage struct {
	components []string
	phase      Phase
	jobs       []*Registration
	after      map[string][]string
}

// hook is where the job is, for reports: it may belong to several of the
// components.
func (s stage) hook(job *Registration) Hook {
	var in []string
	for _, c := range s.components {
		if _, ok := job.hook(c, s.phase); ok {
			in = append(in, c)
		}
	}
	return Hook{Component: strings.Join(in, ","), Phase: s.phase}
}

// notStarted is the report of a job whose turn did not come.
func (s stage) notStarted(job *Registration, why string) JobReport {
	return JobReport{Job: job.Name(), Component: s.hook(job).Component, Phase: s.phase, Result: ResultNotStarted, Message: why}
}

// stageOf collects the jobs of a phase, each once.
func (m *Manager) stageOf(phase Phase, components ...string) stage {
	s := stage{components: components, phase: phase, after: m.orders(phase, components)}
	for _, job := range m.jobs {
		if s.hook(job).Component != "" {
			s.jobs = append(s.jobs, job)
		}
	}
	return s
}

// keep leaves only some of the jobs; the order among them stays.
func (s stage) keep(wanted func(*Registration) bool) stage {
	s.jobs = slices.DeleteFunc(slices.Clone(s.jobs), func(j *Registration) bool { return !wanted(j) })
	return s
}

// execute runs the jobs of a stage side by side, each after those it names, and
// returns all errors joined.
func (r *run) execute(ctx context.Context, s stage) error {
	if len(s.jobs) == 0 {
		return nil
	}
	shared := r.m.lease.join()
	defer r.m.lease.leave()
	left, err := r.leftovers(ctx, s)
	if err != nil {
		return r.fail(s, fmt.Errorf("cannot read the state of earlier runs: %w", err))
	}
	ended := map[string]chan struct{}{}
	for _, job := range s.jobs {
		ended[job.Name()] = make(chan struct{})
	}
	reports := make([]JobReport, len(s.jobs))
	errs := make([]error, len(s.jobs))
	failed := sync.Map{}
	var all sync.WaitGroup
	for i, job := range s.jobs {
		all.Go(func() {
			name := job.Name()
			defer close(ended[name])
			// Each step of a job is watched; this is what a job does between them, and
			// the way to its engine.
			defer func() {
				if p := recover(); p != nil {
					reports[i], errs[i] = r.crashed(s, job, p)
					failed.Store(name, true)
				}
			}()
			r.progress(s, job, "waiting")
			blocked := ""
			for _, other := range s.after[name] {
				if ended[other] == nil {
					continue // not chosen for this run
				}
				<-ended[other]
				// A plan shows what comes after, too.
				if _, bad := failed.Load(other); bad && blocked == "" && r.command != "plan" {
					blocked = other
				}
			}
			reports[i], errs[i] = r.job(ctx, s, job, left, shared.Seat(), blocked)
			if errs[i] != nil || reports[i].Result == ResultNotStarted {
				failed.Store(name, true)
			}
			r.progress(s, job, string(reports[i].Result))
		})
	}
	all.Wait()
	for i := range reports {
		r.add(reports[i])
		r.code(reports[i].ExitCode)
	}
	return errors.Join(errs...)
}

func (r *run) add(job JobReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Jobs = append(r.report.Jobs, job)
}

// code adds an exit code to those of which the worst counts.
func (r *run) code(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codes = append(r.codes, code)
}

// skip reports the jobs of a stage that is not reached.
func (r *run) skip(s stage) {
	for _, job := range s.jobs {
		r.add(s.notStarted(job, "skipped: what runs before it did not succeed"))
	}
}

// crashed is the report of a job whose panic reached a goroutine of the manager.
func (r *run) crashed(s stage, job *Registration, value any) (JobReport, error) {
	crash := &panicError{value: value, stack: debug.Stack()}
	r.log.Error("this is a bug", zap.String("job", job.Name()), zap.Any("panic", value), zap.ByteString("stack", crash.stack))
	report := s.notStarted(job, crash.Error())
	report.Result, report.ExitCode = migration.FailedResult, migration.ExitFailed
	return report, &JobError{Job: report.Job, Component: report.Component, Phase: s.phase, Code: report.ExitCode, Err: crash}
}

// fail is a stage that could not begin.
func (r *run) fail(s stage, err error) error {
	code := codeOf(err)
	r.code(code)
	for i, job := range s.jobs {
		report := s.notStarted(job, err.Error())
		if i == 0 {
			if report.Findings = missingPermissions(err); len(report.Findings) == 0 {
				report.Findings = []migration.Finding{{
					ID: "state-unreadable", Severity: migration.Error, Problem: err.Error(),
					Note: "Fix what it names: mostly a permission in the state namespace. Then run again.",
				}}
			}
		}
		r.add(report)
	}
	return &JobError{Job: s.jobs[0].Name(), Component: s.hook(s.jobs[0]).Component, Phase: s.phase, Code: code, Err: err}
}

func (r *run) progress(s stage, job *Registration, state string) {
	if p := r.m.opts.Progress; p != nil {
		p.Job(s.hook(job), job.Name(), state)
	}
}

// missingPermissions are those that an error names, nil if it is another one.
func missingPermissions(err error) []migration.Finding {
	var denied *engine.PermissionError
	if errors.As(err, &denied) {
		return denied.Findings
	}
	return nil
}

// kept reads the open journals and stored reports, within the limit of a job.
func (r *run) kept(ctx context.Context) (*engine.State, error) {
	e, err := r.m.opts.Engine(r.m.opts.Migration)
	if err != nil {
		return nil, err
	}
	limit := r.m.opts.Migration.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &limitError{limit})
	defer cancel()
	kept, err := e.OpenState(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return kept, err
}

// leftovers are what earlier runs left, the open journals and stored reports, as they were when
// so many runs of each job had ended.
type leftovers struct {
	r     *run
	kept  *engine.State
	ended map[string]int64
}

func (r *run) leftovers(ctx context.Context, s stage) (*leftovers, error) {
	l := &leftovers{r: r, ended: map[string]int64{}}
	for _, job := range s.jobs {
		l.ended[job.Name()] = r.m.turns[job.Name()].ended.Load()
	}
	var err error
	l.kept, err = r.kept(ctx)
	return l, err
}

// of returns them for a job whose turn it is: read again, if the job ran since, for
// another component.
func (l *leftovers) of(ctx context.Context, job string) (*engine.State, error) {
	if l.r.m.turns[job].ended.Load() == l.ended[job] {
		return l.kept, nil
	}
	return l.r.kept(ctx)
}

// limitError says that a job's time is over.
type limitError struct{ limit time.Duration }

func (e *limitError) Error() string { return fmt.Sprintf("it did not end within %s", e.limit) }

// abandonedError says that a job did not end although its context had.
type abandonedError struct {
	cause error
	wrote bool
}

func (e *abandonedError) Error() string {
	s := fmt.Sprintf("it did not stop in time (%v); it was abandoned, and its writes are blocked", e.cause)
	if e.wrote {
		s += "; its journal has what it began: run again to finish it, or undo"
	}
	return s
}

func (e *abandonedError) Unwrap() error { return e.cause }

// panicError is a panic of a job.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// codeOf is the exit code of a job that ended without the engine's report.
func codeOf(err error) int {
	var signal engine.SignalError
	var limit *limitError
	var abandoned *abandonedError
	switch {
	case errors.As(err, &abandoned) && abandoned.wrote:
		return migration.ExitPartlyRestored
	case errors.As(err, &signal):
		return migration.ExitSignal + int(signal.Signal)
	case errors.As(err, &limit), errors.Is(err, context.DeadlineExceeded):
		return migration.ExitTimedOut
	case errors.Is(err, context.Canceled):
		return migration.ExitSignal + int(syscall.SIGTERM)
	case apierrors.IsForbidden(err):
		return migration.ExitRefused
	}
	return migration.ExitFailed
}

// resultOf is the result of a job that ended with the code, which is not 0.
func resultOf(code int) migration.Result {
	if results := migration.ExitCodeOf(code).Results; len(results) > 0 {
		return results[0]
	}
	return migration.FailedResult
}

// job runs one job in one hook: is it needed, and if so, the engine.
func (r *run) job(ctx context.Context, s stage, job *Registration, left *leftovers, seat *engine.Seat, blocked string) (JobReport, error) {
	component := s.hook(job).Component
	log := r.log.With(zap.String("job", job.Name()), zap.String("component", component), zap.String("phase", string(s.phase)))
	switch {
	case blocked != "":
		why := fmt.Sprintf("skipped: job %s did not succeed", blocked)
		log.Warn("not started", zap.String("reason", why))
		return s.notStarted(job, why), nil
	case ctx.Err() != nil:
		return s.notStarted(job, context.Cause(ctx).Error()), nil
	}
	// The job may be running for another component.
	turn := r.m.turns[job.Name()]
	if err := turn.take(ctx); err != nil {
		return s.notStarted(job, err.Error()), nil
	}
	defer turn.leave()
	report := JobReport{Job: job.Name(), Component: component, Phase: s.phase, Began: time.Now()}
	err := r.supervised(ctx, s, job, left, seat, &report)
	report.Ended = time.Now()
	if err != nil {
		if report.ExitCode == 0 {
			report.ExitCode = codeOf(err)
			report.Result = resultOf(report.ExitCode)
		}
		if report.Message == "" {
			report.Message = err.Error()
		}
		var crash *panicError
		if errors.As(err, &crash) {
			log.Error("this is a bug", zap.Any("panic", crash.value), zap.ByteString("stack", crash.stack))
		}
		err = &JobError{Job: job.Name(), Component: component, Phase: s.phase, Code: report.ExitCode, Err: err}
	}
	log.Info("job ended", zap.String("result", string(report.Result)), zap.String("verdict", string(report.Verdict)), zap.String("reason", report.Reason),
		zap.Float64("neededSeconds", report.NeededSeconds), zap.Float64("seconds", report.Seconds), zap.Int("exitCode", report.ExitCode))
	return report, err
}

// supervised does the two steps of a job, each watched.
func (r *run) supervised(ctx context.Context, s stage, job *Registration, left *leftovers, seat *engine.Seat, report *JobReport) error {
	kept, err := left.of(ctx, job.Name())
	if err != nil {
		return fmt.Errorf("cannot read the state of earlier runs: %w", err)
	}
	o := r.m.opts.Migration
	o.Timeout = cmp.Or(job.Timeout, o.Timeout)
	o.Seat = seat
	if p := r.m.opts.Progress; p != nil {
		o.Progress = p.For(job.Name())
	}
	if o.Log != nil && r.command != "plan" {
		o.Log = o.Log.With(zap.String("hook", s.hook(job).String()))
	}
	e, err := r.m.opts.Engine(o)
	if err != nil {
		return err
	}

	r.progress(s, job, "checking")
	began := time.Now()
	n, err := watched(ctx, o, r.m.opts.Grace, seat, true, func(ctx context.Context) (Need, error) { return r.need(ctx, e, job) })
	report.NeededSeconds = seconds(time.Since(began))
	report.Verdict, report.Reason, report.Findings = n.Verdict, n.Reason, n.Findings
	if err != nil {
		report.Findings = missingPermissions(err)
		return err
	}
	if open := kept.Open(job.Name()); open != nil {
		report.Verdict, report.Reason = Needed, whyOpen(open, kept.Lock)
	}
	why := mustRun(report, kept.Reports[job.Name()], o.Defer)
	if r.command == "plan" {
		why = report.Verdict != NotNeeded || len(n.Findings) > 0
	}
	if !why {
		report.Message = report.Reason
		switch report.Verdict {
		case Deferred:
			report.Result = migration.DeferredResult
		case Blocked:
			report.Result, report.ExitCode = migration.Refused, migration.ExitRefused
			return errors.New(report.Reason)
		default:
			report.Result = ResultNotNeeded
		}
		return nil
	}

	r.progress(s, job, "running")
	began = time.Now()
	out, err := watched(ctx, o, r.m.opts.Grace, seat, false, func(ctx context.Context) (*migration.Report, error) {
		if r.command == "plan" {
			return e.Plan(ctx, job.Job), nil
		}
		return e.Run(ctx, job.Job), nil
	})
	report.Seconds = seconds(time.Since(began))
	if err != nil {
		return err
	}
	report.ran(out)
	if report.ExitCode != migration.ExitOK {
		return errors.New(out.Message)
	}
	return nil
}

// mustRun says whether the engine has anything to do, or to say.
func mustRun(report *JobReport, stored *engine.StoredReport, deferral engine.Defer) bool {
	switch report.Verdict {
	case Needed:
		return true
	case Blocked:
		// A refusal by the plan itself is reported in the cluster, where it stays.
		return slices.ContainsFunc(report.Findings, func(f migration.Finding) bool { return f.Severity == migration.Error })
	case Deferred:
		return deferral == engine.DeferFail || stored == nil || stored.Result != migration.DeferredResult || !sameFindings(stored, report.Findings)
	}
	// A report that says something else than the truth is written once more.
	if stored == nil || stored.Command == "undo" {
		return false
	}
	return stored.Result != migration.Succeeded && stored.Result != migration.NothingToDo
}

func sameFindings(stored *engine.StoredReport, now []migration.Finding) bool {
	if stored.LeftOut > 0 {
		return true // what is stored is a part
	}
	return slices.Equal(stored.Findings, now)
}

// whyOpen says of an open journal whether a process is at work on it. The Lease does
// not say on which of several.
func whyOpen(open *engine.StoredJournal, lock *engine.HeldLock) string {
	if lock.Live(time.Now()) {
		return fmt.Sprintf("%s is open (%s), and seems to be running: %s. Wait until it ends", open.What(), open.Phase, lock)
	}
	return fmt.Sprintf("%s was interrupted, and is open (%s)", open.What(), open.Phase)
}

// watched does one step of a job. A panic is its error. If it does not end when it
// has to, it is abandoned.
func watched[T any](ctx context.Context, o engine.Options, grace time.Duration, seat *engine.Seat, limited bool, step func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if limited {
		// The engine has its own limit, and time on top of it to roll back.
		var stop context.CancelFunc
		inner, stop = context.WithTimeoutCause(inner, o.Timeout, &limitError{o.Timeout})
		defer stop()
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- outcome{err: &panicError{value: p, stack: debug.Stack()}}
			}
		}()
		value, err := step(inner)
		if err != nil && inner.Err() != nil {
			err = errors.Join(context.Cause(inner), err)
		}
		done <- outcome{value, err}
	}()

	began := time.Now()
	timer := time.NewTimer(o.Timeout + grace)
	defer timer.Stop()
	var cause error
	ending := ctx.Done()
	for {
		select {
		case out := <-done:
			return out.value, out.err
		case <-ending:
			ending, cause = nil, context.Cause(ctx)
			left := grace
			if seat.Wrote() {
				left += writeGrace
			}
			timer.Reset(left)
			continue
		case <-timer.C:
		}
		if cause == nil {
			allowed := o.Timeout + grace + seat.Waited()
			if seat.Wrote() {
				allowed += o.RollbackTimeout + writeGrace
			}
			if left := allowed - time.Since(began); left > 0 {
				timer.Reset(left)
				continue
			}
			cause = &limitError{o.Timeout}
		}
		seat.Revoke()
		select {
		case out := <-done: // in the same moment
			return out.value, out.err
		default:
		}
		var none T
		return none, &abandonedError{cause: cause, wrote: seat.Wrote()}
	}
}

// finish adds everything up.
func (r *run) finish(err error) (*Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.report
	counts := map[migration.Result]int{}
	for i := range out.Jobs {
		j := &out.Jobs[i]
		out.NeededSeconds += j.NeededSeconds
		out.RunSeconds += j.Seconds
		counts[j.Result]++
		if j.Report != nil {
			out.Requests.Reads += j.Report.Requests.Reads
			out.Requests.Writes += j.Report.Requests.Writes
		}
	}
	out.NeededSeconds, out.RunSeconds = round(out.NeededSeconds), round(out.RunSeconds)
	if err != nil && Worst(r.codes...) == migration.ExitOK {
		r.codes = append(r.codes, exitCode(err))
	}
	out.ExitCode = Worst(r.codes...)
	out.Seconds = seconds(time.Since(out.StartedAt))
	var parts []string
	for _, result := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[result], result))
	}
	out.Message = migration.Count(len(out.Jobs), "job") + ": " + strings.Join(parts, ", ")
	if len(out.Jobs) == 0 {
		out.Message = "no job matches the selection"
	}
	r.log.Info("all jobs ended", zap.String("summary", out.Message), zap.Float64("seconds", out.Seconds),
		zap.Float64("neededSeconds", out.NeededSeconds), zap.Float64("runSeconds", out.RunSeconds), zap.Int("exitCode", out.ExitCode))
	return out, err
}

func round(s float64) float64 { return seconds(time.Duration(s * float64(time.Second))) }
