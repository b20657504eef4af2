package jobmanager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestRegistrationNamesEveryMistake(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		components []string
		jobs       []Registration
		want       []string
	}{
		"Fine": {
			reason:     "Two hooks, an order, and a release.",
			components: []string{"core", "bus"},
			jobs:       []Registration{job("a", Before("core"), After(Global)), {Job: &fakeJob{name: "b"}, RemoveBy: "1.12.0", Hooks: []Hook{Before("core", "a")}}},
		},
		"Names": {
			reason: "An empty name, one that is no label, and one that is there twice.",
			jobs:   []Registration{job("", Before(Global)), job("Not a label", Before(Global)), job("a", Before(Global)), job("a", Before(Global)), {}},
			want:   []string{`job 1: "" is not a valid name`, `job 2: "Not a label" is not a valid name`, "job a is registered twice", "job 5 is nil"},
		},
		"Hooks": {
			reason:     "Components and phases nobody knows, a hook twice, and none.",
			components: []string{"core"},
			jobs: []Registration{
				job("a", Before("cor")), job("b", Hook{Component: "core", Phase: "during"}),
				job("c", Before("core"), Before("core")), job("d"),
			},
			want: []string{`unknown component "cor" (valid: global, core)`, `unknown phase "during"`, "job c is in the hook core/pre twice", "job d belongs to no hook"},
		},
		"Components": {
			reason:     "A component twice, and one that would be the global one.",
			components: []string{"core", "core", "global", "Core"},
			want:       []string{`component "core"`, `component "global"`, `component "Core"`},
		},
		"Circle": {
			reason:     "Each waits for the next.",
			components: []string{"core"},
			jobs:       []Registration{job("a", Before("core", "b")), job("b", Before("core", "c")), job("c", Before("core", "a"))},
			want:       []string{"the jobs of the hook core/pre wait for each other: a after b after c after a"},
		},
		"CircleOfOne": {
			reason:     "One that waits for itself.",
			components: []string{"core"},
			jobs:       []Registration{job("a", Before("core", "a"))},
			want:       []string{"a after a"},
		},
		"CircleOverComponents": {
			reason:     "Run without a deployment, the jobs of all components run together.",
			components: []string{"core", "bus"},
			jobs:       []Registration{job("a", Before("core", "b"), Before("bus")), job("b", Before("core"), Before("bus", "a"))},
			want:       []string{"the pre-hooks of the components contradict each other"},
		},
		"UnknownPredecessor": {
			reason:     "A name that is not in the hook is a typing error.",
			components: []string{"core"},
			jobs:       []Registration{job("a", Before("core", "z")), job("z", After("core"))},
			want:       []string{`job a comes after "z", which is not in the hook core/pre`},
		},
		"Optional": {
			reason: "Optional fields are checked, too.",
			jobs: []Registration{
				{Job: &fakeJob{name: "a"}, Hooks: []Hook{Before(Global)}, RemoveBy: "soon"},
				{Job: &fakeJob{name: "b"}, Hooks: []Hook{Before(Global)}, Requires: []Requirement{{Kind: schema.GroupKind{Kind: "Thing"}, IfMissing: "panic"}}},
			},
			want: []string{`"soon" is not a version`, `wrong IfMissing for Thing: "panic"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(fakeOptions(&ledger{}), tc.components, tc.jobs...)
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is missing in:\n%v", tc.reason, part, err)
				}
			}
		})
	}
	if _, err := New(Options{}, nil); err == nil {
		t.Error("a manager without an engine is no manager")
	}
}

func TestDeployKeepsTheOrder(t *testing.T) {
	boom := failing(migration.RolledBack, "boom")
	type fails map[string]func(context.Context) *migration.Report
	for name, tc := range map[string]struct {
		reason string
		fails  fails
		deploy map[string]error
		want   []string
		code   int
		errs   []string
	}{
		"Good": {
			reason: "Global before all, then pre, deployment and post of each component, global after all.",
			want: []string{
				"run first", "run before-core", "run second-before-core", "deploy core", "run after-core",
				"run before-bus", "deploy bus", "run after-bus", "run last",
			},
		},
		"GlobalPreFails": {
			reason: "A failed global pre-job stops everything.",
			fails:  fails{"first": boom}, want: []string{"run first"}, code: 1, errs: []string{"job first (global/pre): boom"},
		},
		"PreFails": {
			reason: "A failed pre-job stops its component, what comes after it, and the global post-jobs; the other component goes on.",
			fails:  fails{"before-core": boom},
			want:   []string{"run first", "run before-core", "run before-bus", "deploy bus", "run after-bus"},
			code:   1, errs: []string{"job before-core (core/pre): boom"},
		},
		"DeploymentFails": {
			reason: "Post-jobs of a component that was not deployed do not run, nor do the global ones.",
			deploy: map[string]error{"core": errors.New("no image")},
			want: []string{
				"run first", "run before-core", "run second-before-core", "deploy core", "run before-bus", "deploy bus", "run after-bus",
			},
			code: 1, errs: []string{"cannot deploy component core: no image"},
		},
		"SeveralFail": {
			reason: "All errors are joined, each names its job, and the exit code is the worst.",
			fails:  fails{"after-core": failing(migration.PartlyRestored, "half"), "before-bus": failing(migration.Refused, "no right")},
			want:   []string{"run first", "run before-core", "run second-before-core", "deploy core", "run after-core", "run before-bus"},
			code:   3, errs: []string{"job after-core (core/post): half", "job before-bus (bus/pre): no right"},
		},
		"GlobalPostFails": {
			reason: "It is the last.",
			fails:  fails{"last": failing(migration.Locked, "taken")}, code: 5, errs: []string{"job last (global/post): taken"},
			want: []string{
				"run first", "run before-core", "run second-before-core", "deploy core", "run after-core",
				"run before-bus", "deploy bus", "run after-bus", "run last",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{}
			jobs := []Registration{
				job("last", After(Global)), job("after-bus", After("bus")), job("before-bus", Before("bus")), job("after-core", After("core")),
				job("second-before-core", Before("core", "before-core")), job("before-core", Before("core")),
				job("first", Before(Global)), job("of-another", Before("unused")),
			}
			for _, j := range jobs {
				j.Job.(*fakeJob).run = tc.fails[j.Name()]
			}
			m := newManager(t, l, []string{"core", "bus", "unused"}, jobs...)
			report, err := m.Deploy(t.Context(), []string{"core", "bus"}, func(_ context.Context, c string) error {
				l.add("deploy %s", c)
				return tc.deploy[c]
			})
			if diff := cmp.Diff(tc.want, l.all()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if report.ExitCode != tc.code || (err != nil) != (tc.code != 0) {
				t.Errorf("%s: exit code %d, error %v; want %d", tc.reason, report.ExitCode, err, tc.code)
			}
			for _, part := range tc.errs {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is missing in: %v", tc.reason, part, err)
				}
			}
			// Every job of the components is told of, once, run or not.
			told := map[string]int{}
			for _, j := range report.Jobs {
				told[j.Job]++
			}
			for _, name := range []string{"first", "before-core", "second-before-core", "after-core", "before-bus", "after-bus", "last"} {
				if told[name] != 1 {
					t.Errorf("job %s is in the report %d times", name, told[name])
				}
			}
			if told["of-another"] != 0 {
				t.Error("a job of a component that is not processed is in the report")
			}
		})
	}
}

func TestJobsOfOneHookRunSideBySide(t *testing.T) {
	// Each waits for the other: in a row, they would wait for ever.
	a, b := make(chan struct{}), make(chan struct{})
	meet := func(mine, other chan struct{}) func(context.Context) *migration.Report {
		return func(ctx context.Context) *migration.Report {
			close(mine)
			select {
			case <-other:
				return &migration.Report{Result: migration.Succeeded}
			case <-ctx.Done():
				return &migration.Report{Result: migration.FailedResult, Message: "alone"}
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m := newManager(t, &ledger{}, []string{"core"},
		Registration{Job: &fakeJob{name: "a", run: meet(a, b)}, Hooks: []Hook{Before("core")}},
		Registration{Job: &fakeJob{name: "b", run: meet(b, a)}, Hooks: []Hook{Before("core")}})
	if _, err := m.Run(ctx, Selection{}); err != nil {
		t.Error(err)
	}
}

func TestAJobThatIgnoresItsContextIsAbandoned(t *testing.T) {
	const limit = 300 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	deaf := func(context.Context) { <-release }
	for name, job := range map[string]*fakeJob{
		"WhileDeciding": {plan: func(ctx context.Context) (*migration.Plan, error) { deaf(ctx); return nothing(ctx) }},
		"WhileRunning": {run: func(ctx context.Context) *migration.Report {
			deaf(ctx)
			return &migration.Report{Result: migration.Succeeded}
		}},
	} {
		job.name = "deaf"
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			m := newManager(t, l, []string{"core"}, Registration{Job: job, Hooks: []Hook{Before("core")}, Timeout: limit})
			began := time.Now()
			report, err := m.Deploy(t.Context(), []string{"core"}, func(context.Context, string) error { l.add("deploy"); return nil })
			if took := time.Since(began); took > limit+10*time.Second {
				t.Errorf("it took %s", took)
			}
			if slices.Contains(l.all(), "deploy") || err == nil || report.ExitCode != migration.ExitTimedOut || !strings.Contains(err.Error(), "job deaf") {
				t.Errorf("deployed or not named: %v, exit code %d, error %v", l.all(), report.ExitCode, err)
			}
		})
		t.Run(name+"Cancelled", func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(limit, func() { cancel(engine.SignalError{Signal: 15}) })
			m := newManager(t, &ledger{}, []string{"core"}, Registration{Job: job, Hooks: []Hook{Before("core")}, Timeout: time.Hour})
			report, err := m.Deploy(ctx, []string{"core"}, func(context.Context, string) error { t.Error("deployed"); return nil })
			if err == nil || report.ExitCode != 143 {
				t.Errorf("exit code %d, error %v; want 143", report.ExitCode, err)
			}
		})
	}
}

// panicky is a progress that fails for one job.
type panicky struct{}

func (panicky) Job(_ Hook, job, _ string) {
	if job == "bad" {
		panic("oh")
	}
}
func (panicky) For(string) engine.Progress { return nil }

// TestAPanicIsTheJobsError holds wherever it happens: in a step of the job, and in
// the goroutines of the manager around it. None ends the process, and the job at its
// side runs.
func TestAPanicIsTheJobsError(t *testing.T) {
	bad := func(change func(*fakeJob, *Registration)) Registration {
		j := &fakeJob{name: "bad"}
		r := Registration{Job: j, Hooks: []Hook{Before("core")}}
		change(j, &r)
		return r
	}
	for name, tc := range map[string]struct {
		job      Registration
		progress Progress
		engine   bool
		// runs: only a run comes to the panic.
		runs bool
	}{
		"Plan": {job: bad(func(j *fakeJob, _ *Registration) {
			j.plan = func(context.Context) (*migration.Plan, error) { panic("oh") }
		})},
		"SkipIf": {job: bad(func(_ *fakeJob, r *Registration) {
			r.SkipIf = func(context.Context, Input) (string, error) { panic("oh") }
		})},
		"Run": {runs: true, job: bad(func(j *fakeJob, _ *Registration) {
			j.run = func(context.Context) *migration.Report { panic("oh") }
		})},
		"Progress": {runs: true, job: bad(func(*fakeJob, *Registration) {}), progress: panicky{}},
		"Engine":   {job: bad(func(_ *fakeJob, r *Registration) { r.Timeout = time.Hour }), engine: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			o := fakeOptions(l)
			o.Progress = tc.progress
			if former := o.Engine; tc.engine {
				o.Engine = func(m engine.Options) (Engine, error) {
					if m.Timeout == time.Hour { // that of the job
						panic("oh")
					}
					return former(m)
				}
			}
			m, err := New(o, []string{"core"}, tc.job, job("good", Before("core")), job("after", Before("core", "bad")))
			if err != nil {
				t.Fatal(err)
			}
			report, err := m.Deploy(t.Context(), []string{"core"}, func(context.Context, string) error { t.Error("deployed"); return nil })
			var failed *JobError
			if !errors.As(err, &failed) || failed.Job != "bad" || !strings.Contains(err.Error(), "job bad (core/pre): panic: oh") || report.ExitCode != 1 {
				t.Errorf("exit code %d, error %v", report.ExitCode, err)
			}
			if got := l.all(); !slices.Contains(got, "run good") || slices.Contains(got, "run after") {
				t.Errorf("%v: the job at its side runs, the one after it does not", got)
			}
			for _, j := range report.Jobs {
				if j.Job == "bad" && (j.Result != migration.FailedResult || !strings.Contains(j.Message, "panic: oh")) {
					t.Errorf("it is reported as %s: %s", j.Result, j.Message)
				}
			}
			if tc.runs {
				return
			}
			needs, err := m.Needs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range needs {
				if bad := n.Job.Name() == "bad"; !tc.engine && (n.Err != nil) != bad {
					t.Errorf("needs %s: %v", n.Job.Name(), n.Err)
				}
			}
		})
	}
	m := newManager(t, &ledger{}, []string{"core"})
	if _, err := m.Deploy(t.Context(), []string{"core"}, func(context.Context, string) error { panic("deploy") }); err == nil {
		t.Error("a panic of the deployment is no error")
	}
	undone := Registration{Job: &fakeJob{name: "undone", run: func(context.Context) *migration.Report { panic("oh") }}, Hooks: []Hook{Before(Global)}}
	var failed *JobError
	if _, err := newManager(t, &ledger{}, nil, undone).Undo(t.Context(), "undone"); !errors.As(err, &failed) || failed.Code != migration.ExitPartlyRestored {
		t.Errorf("undo: %v", err)
	}
}

func TestNeededDecides(t *testing.T) {
	plan := func(units []migration.Unit, findings ...migration.Finding) func(context.Context) (*migration.Plan, error) {
		return func(context.Context) (*migration.Plan, error) {
			return &migration.Plan{Units: units, Findings: findings}, nil
		}
	}
	needed := plan([]migration.Unit{oneWrite})
	later := migration.Finding{Severity: migration.Deferred, Problem: "later"}
	deferred := plan(nil, later)
	for name, tc := range map[string]struct {
		reason  string
		plan    func(context.Context) (*migration.Plan, error)
		skip    string
		skipErr error
		stored  *migration.Report
		open    bool
		defers  engine.Defer
		ran     bool
		result  migration.Result
		code    int
		message string
	}{
		"Needed":          {reason: "It runs.", plan: needed, ran: true, result: migration.Succeeded},
		"NotNeeded":       {reason: "It does not run.", plan: nothing, result: ResultNotNeeded, message: "nothing is left to do"},
		"NotNeededAnyway": {reason: "The stored report is true.", plan: nothing, stored: &migration.Report{Result: migration.Succeeded}, result: ResultNotNeeded, message: "nothing is left to do"},
		"Skipped":         {reason: "Its plan does not count.", plan: needed, skip: "nobody asked for it", result: ResultNotNeeded, message: "nobody asked for it"},
		"StaleReport":     {reason: "The stored report tells of a failure that is over: the engine says so.", plan: nothing, stored: &migration.Report{Result: migration.RolledBack}, ran: true, result: migration.Succeeded},
		"Undone":          {reason: "What was undone stays so until it is needed.", plan: nothing, stored: &migration.Report{Command: "undo", Result: migration.Succeeded}, result: ResultNotNeeded, message: "nothing is left to do"},
		"OpenJournal":     {reason: "An interrupted run is finished, whatever the plan says.", plan: nothing, open: true, ran: true, result: migration.Succeeded},
		"DeferredNew":     {reason: "What is deferred is reported once.", plan: deferred, ran: true, result: migration.Succeeded},
		"DeferredKnown": {
			reason: "And not again.", plan: deferred, result: migration.DeferredResult, message: "later",
			stored: &migration.Report{Result: migration.DeferredResult, Findings: []migration.Finding{later}},
		},
		"DeferredFails": {
			reason: "Where nothing may be left, the engine decides.", plan: deferred, defers: engine.DeferFail, ran: true, result: migration.Succeeded,
			stored: &migration.Report{Result: migration.DeferredResult, Findings: []migration.Finding{later}},
		},
		"Blocked": {
			reason: "What the plan refuses is reported where it outlives the process.", ran: true, result: migration.Succeeded,
			plan: plan(nil, migration.Finding{Severity: migration.Error, Problem: "no"}),
		},
		"CannotTell": {
			reason: "An error is no \"no\".", result: migration.FailedResult, code: 1, message: "no answer",
			plan: func(context.Context) (*migration.Plan, error) { return nil, errors.New("no answer") },
		},
		"CannotSkip": {reason: "Nor is this one.", plan: needed, skipErr: errors.New("no answer"), result: migration.FailedResult, code: 1, message: "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			o := fakeOptions(l)
			o.Migration.Defer = tc.defers
			o.Engine = func(engine.Options) (Engine, error) {
				kept := &engine.State{Reports: map[string]*engine.StoredReport{}}
				if tc.stored != nil {
					kept.Reports["job"] = &engine.StoredReport{Report: *tc.stored}
				}
				if tc.open {
					kept.Journals = []engine.StoredJournal{{Job: "job", Run: "r", Open: true}}
				}
				return &fakeEngine{ledger: l, kept: kept}, nil
			}
			m, err := New(o, nil, Registration{
				Job: &fakeJob{name: "job", plan: tc.plan}, Hooks: []Hook{Before(Global)},
				SkipIf: func(context.Context, Input) (string, error) { return tc.skip, tc.skipErr },
			})
			if err != nil {
				t.Fatal(err)
			}
			report, err := m.Run(t.Context(), Selection{})
			j := report.Jobs[0]
			if ran := slices.Contains(l.all(), "run job"); ran != tc.ran || j.Result != tc.result || report.ExitCode != tc.code || (err != nil) != (tc.code != 0) {
				t.Errorf("%s: ran %t, result %s, exit code %d, error %v", tc.reason, ran, j.Result, report.ExitCode, err)
			}
			if tc.message != "" && j.Message != tc.message {
				t.Errorf("%s: message %q, want %q", tc.reason, j.Message, tc.message)
			}
			if !tc.ran && j.Seconds != 0 {
				t.Errorf("%s: what did not run took %f s", tc.reason, j.Seconds)
			}
		})
	}
}

func TestSelection(t *testing.T) {
	jobs := func() []Registration {
		return []Registration{
			job("first", Before(Global)),
			job("sync", Before("core"), Before("app"), After("core"), After("app", "check")),
			job("check", After("app")),
			job("down", After("core", "sync"), After("app", "sync")),
		}
	}
	for name, tc := range map[string]struct {
		reason string
		s      Selection
		want   []string
		usage  string
	}{
		"All":       {reason: "A job of two components runs once in a phase.", want: []string{"run first", "run sync", "run check", "run sync", "run down"}},
		"Component": {reason: "Global jobs run always.", s: Selection{Components: []string{"core"}}, want: []string{"run first", "run sync", "run sync", "run down"}},
		"Phase":     {reason: "Only before.", s: Selection{Phases: []Phase{Pre}}, want: []string{"run first", "run sync"}},
		"Job":       {reason: "A job that is asked for runs once.", s: Selection{Jobs: []string{"down", "sync"}}, want: []string{"run sync", "run down"}},
		"Global":    {reason: "No component.", s: Selection{Components: []string{Global}}, want: []string{"run first"}},
		"Nobody":    {reason: "What is not known is named.", s: Selection{Jobs: []string{"nobody"}}, usage: `unknown job "nobody" (valid: first, sync, check, down)`},
		"NoPart":    {reason: "A typing error.", s: Selection{Components: []string{"cora"}}, usage: `"cora" (valid: core, app)`},
		"NoPhase":   {reason: "A typing error.", s: Selection{Phases: []Phase{"mid"}}, usage: `unknown phase "mid"`},
		"Mismatch":  {reason: "A job where it does not belong.", s: Selection{Jobs: []string{"check"}, Phases: []Phase{Pre}}, usage: "job check is not in the selected"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			m := newManager(t, l, []string{"core", "app"}, jobs()...)
			report, err := m.Run(t.Context(), tc.s)
			if tc.usage != "" {
				if err == nil || !strings.Contains(err.Error(), tc.usage) || report.ExitCode != migration.ExitUsage {
					t.Errorf("%s: exit code %d, %v", tc.reason, report.ExitCode, err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, l.all()); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
	t.Run("PlanGoesOn", func(t *testing.T) {
		l := &ledger{}
		all := jobs()
		all[0].Job.(*fakeJob).run = failing(migration.Refused, "no")
		m := newManager(t, l, []string{"core", "app"}, all...)
		_, err := m.Plan(t.Context(), Selection{})
		if diff := cmp.Diff([]string{"plan first", "plan sync", "plan check", "plan sync", "plan down"}, l.all()); err == nil || diff != "" {
			t.Errorf("a plan shows everything: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestUndoIsOnlyByName(t *testing.T) {
	l := &ledger{}
	none := job("check", Before(Global))
	none.NoUndo = "it changes nothing"
	m := newManager(t, l, nil, job("sync", Before(Global)), none)
	if r, err := m.Undo(t.Context(), "sync"); err != nil || r.ExitCode() != 0 || !slices.Equal(l.all(), []string{"undo sync"}) {
		t.Errorf("%v %v %v", r, err, l.all())
	}
	if r, err := m.Undo(t.Context(), "check"); err != nil || r.Result != migration.NothingToDo || r.Message != "it changes nothing" || len(l.all()) != 1 {
		t.Errorf("%v %v %v", r, err, l.all())
	}
	var usage *UsageError
	for _, name := range []string{"nobody", ""} {
		if _, err := m.Undo(t.Context(), name); !errors.As(err, &usage) {
			t.Errorf("undo %q: %v", name, err)
		}
	}
}

func TestNeedOfAPlan(t *testing.T) {
	write := migration.Unit{Changes: []migration.Change{{Verb: migration.Create}, {Verb: migration.Patch}}}
	wait := migration.Unit{Changes: []migration.Change{{Verb: migration.Await}}}
	finding := func(s migration.Severity) migration.Finding {
		return migration.Finding{Severity: s, Object: "Thing x", Problem: "is odd", Hint: "fix it"}
	}
	for name, tc := range map[string]struct {
		reason string
		plan   migration.Plan
		want   Need
	}{
		"Nothing":  {reason: "An empty plan.", want: Need{Verdict: NotNeeded, Reason: "nothing is left to do"}},
		"Changes":  {reason: "Writes count.", plan: migration.Plan{Units: []migration.Unit{write, wait}}, want: Need{Verdict: Needed, Reason: "2 changes left to make"}},
		"Waits":    {reason: "So do waits.", plan: migration.Plan{Units: []migration.Unit{wait}}, want: Need{Verdict: Needed, Reason: "1 object to wait for"}},
		"Deferred": {reason: "Nothing now.", plan: migration.Plan{Findings: []migration.Finding{finding(migration.Deferred)}}, want: Need{Verdict: Deferred, Reason: "Thing x: is odd"}},
		"Blocked": {
			reason: "Errors are the first to be said.",
			plan:   migration.Plan{Units: []migration.Unit{write}, Findings: []migration.Finding{finding(migration.Deferred), finding(migration.Error), finding(migration.Error)}},
			want:   Need{Verdict: Blocked, Reason: "2 problems, the first: Thing x: is odd"},
		},
		"Warned": {reason: "A warning is no work.", plan: migration.Plan{Findings: []migration.Finding{finding(migration.Warning)}}, want: Need{Verdict: NotNeeded, Reason: "nothing is left to do"}},
	} {
		got := needOf(&tc.plan)
		tc.want.Findings = tc.plan.Findings
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestWorst(t *testing.T) {
	for _, tc := range []struct {
		codes []int
		want  int
	}{
		{nil, 0},
		{[]int{0, 2}, 2},
		{[]int{2, 5, 0}, 5},
		{[]int{5, 4, 2}, 4},
		{[]int{4, 1, 5}, 1},
		{[]int{1, 124, 4}, 124},
		{[]int{124, 143, 1}, 143},
		{[]int{130, 3, 124, 0}, 3},
		{[]int{0, 77}, 1},
	} {
		if got := Worst(tc.codes...); got != tc.want {
			t.Errorf("Worst(%v) = %d, want %d", tc.codes, got, tc.want)
		}
		slices.Reverse(tc.codes)
		if got := Worst(tc.codes...); got != tc.want {
			t.Errorf("Worst(%v) = %d, want %d", tc.codes, got, tc.want)
		}
	}
}

func TestLint(t *testing.T) {
	m := newManager(t, &ledger{}, nil,
		Registration{Job: &fakeJob{name: "old"}, Hooks: []Hook{Before(Global)}, RemoveBy: "1.12.0"},
		Registration{Job: &fakeJob{name: "older"}, Hooks: []Hook{Before(Global)}, RemoveBy: "1.11"},
		job("stays", Before(Global)))
	for release, want := range map[string][]string{
		"1.10.9": nil, "1.11.0": {"older"}, "v1.11.7": {"older"}, "1.12.0-rc1": {"old", "older"}, "1.12.0": {"old", "older"}, "9.9.9": {"old", "older"},
	} {
		err := m.Lint(release)
		var got []string
		for _, name := range []string{"old", "older", "stays"} {
			if err != nil && strings.Contains(err.Error(), "job "+name+" must be gone") {
				got = append(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("release %s: %v (-want +got):\n%s", release, err, diff)
		}
	}
	if err := m.Lint("soon"); err == nil {
		t.Error("a release that is none must be refused")
	}
}

func TestTwoManagersDoNotKnowEachOther(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			l := &ledger{}
			m, err := New(fakeOptions(l), []string{"core"}, job("a", Before("core")), job("b", Before("core", "a")))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := m.Run(t.Context(), Selection{}); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{"run a", "run b"}, l.all()); diff != "" {
				t.Error(diff)
			}
		})
	}
	all.Wait()
}

// TestWhatAJobIsGiven: the list of components about to be processed, whether they
// are deployed, and the configuration; what it does to them is its own affair.
func TestWhatAJobIsGiven(t *testing.T) {
	var got []Input
	var mu sync.Mutex
	asking := func(name, component string) Registration {
		r := job(name, Before(component))
		r.SkipIf = func(_ context.Context, in Input) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, in)
			in.Components[0] = "spoilt"
			in.Config.ExcludeNamespaces[0] = "spoilt"
			return "enough", nil
		}
		return r
	}
	o := fakeOptions(&ledger{})
	o.Migration.StateNamespace, o.Migration.ExcludeNamespaces = "state", []string{"mine"}
	m, err := New(o, []string{"core", "bus", "app"}, asking("global", Global), asking("bus", "bus"), asking("app", "app"))
	if err != nil {
		t.Fatal(err)
	}
	asked := []string{"core", "bus"}
	report, err := m.Deploy(t.Context(), asked, func(context.Context, string) error { return nil })
	if err != nil || len(got) != 2 {
		t.Fatalf("%d jobs were asked, want the global one and that of bus: %v", len(got), err)
	}
	for _, in := range got {
		if diff := cmp.Diff([]string{"spoilt", "bus"}, in.Components); diff != "" || !in.Deploys || in.Config.StateNamespace != "state" {
			t.Errorf("%+v %s", in, diff)
		}
	}
	if diff := cmp.Diff([]string{"core", "bus"}, asked); diff != "" || o.Migration.ExcludeNamespaces[0] != "mine" {
		t.Errorf("a job changed what is not its own: %s %v", diff, o.Migration.ExcludeNamespaces)
	}
	if len(report.Components) != 2 || report.Components[1].Result != ResultDeployed {
		t.Errorf("%+v", report.Components)
	}
}

// TestTimesAreToldSeparately, of each job and in total, in the report and in the
// log: what took long, and that nothing did.
func TestTimesAreToldSeparately(t *testing.T) {
	looked, ran := make(chan struct{}), make(chan struct{})
	core, logs := observer.New(zap.InfoLevel)
	o := fakeOptions(&ledger{})
	o.Log = zap.New(core)
	const some = 30 * time.Millisecond
	m, err := New(o, []string{"core"},
		Registration{Hooks: []Hook{Before("core")}, Job: &fakeJob{name: "slow", plan: func(context.Context) (*migration.Plan, error) {
			time.AfterFunc(some, func() { close(looked) })
			<-looked
			return &migration.Plan{Units: []migration.Unit{oneWrite}}, nil
		}, run: func(context.Context) *migration.Report {
			time.AfterFunc(2*some, func() { close(ran) })
			<-ran
			return &migration.Report{Result: migration.Succeeded, Requests: migration.Requests{Reads: 3, Writes: 2}}
		}}},
		Registration{Hooks: []Hook{Before("core")}, Job: &fakeJob{name: "idle", plan: nothing}})
	if err != nil {
		t.Fatal(err)
	}
	report, err := m.Run(t.Context(), Selection{})
	if err != nil {
		t.Fatal(err)
	}
	slow, idle := report.Jobs[0], report.Jobs[1]
	if slow.NeededSeconds < some.Seconds() || slow.Seconds < (2*some).Seconds() || idle.Seconds != 0 {
		t.Errorf("slow: %f s looking and %f s running, idle %f s running", slow.NeededSeconds, slow.Seconds, idle.Seconds)
	}
	if report.RunSeconds != slow.Seconds || report.NeededSeconds < slow.NeededSeconds || report.Seconds < (3*some).Seconds() {
		t.Errorf("in total: %f s, %f s looking, %f s running", report.Seconds, report.NeededSeconds, report.RunSeconds)
	}
	if report.Requests != (migration.Requests{Reads: 3, Writes: 2}) {
		t.Errorf("requests %+v", report.Requests)
	}
	told := map[string]map[string]any{}
	for _, e := range logs.All() {
		fields := e.ContextMap()
		name, _ := fields["job"].(string)
		told[e.Message+" "+name] = fields
	}
	for line, want := range map[string]float64{"job ended slow": slow.Seconds, "job ended idle": 0} {
		if got := told[line]; got["seconds"] != want || got["neededSeconds"] == nil {
			t.Errorf("the log of %q: %v, want seconds %f", line, got, want)
		}
	}
	if all := told["all jobs ended "]; all["runSeconds"] != report.RunSeconds || all["neededSeconds"] != report.NeededSeconds {
		t.Errorf("the log of all: %v", all)
	} else if _, twice := all["message"]; twice || all["summary"] != report.Message {
		t.Errorf("in JSON, message is the event itself: %v", all)
	}
}

// TestUndoInReverse: several jobs are undone in the reverse order of a run, until one fails.
func TestUndoInReverse(t *testing.T) {
	// In the order of the registry, which is not that of the hooks.
	jobs := []Registration{
		job("last", After("core", "contract")), job("sync", Before("core")), job("contract", Before("core", "sync"), After("core")), job("clean", After(Global)),
	}
	for name, tc := range map[string]struct {
		reason string
		s      Selection
		fails  string
		want   []string
		code   int
		result []migration.Result
	}{
		"Phase": {reason: "The last of the phase first.", s: Selection{Phases: []Phase{Post}}, want: []string{"clean", "last", "contract"}, result: []migration.Result{"succeeded", "succeeded", "succeeded"}},
		"Jobs":  {reason: "The order on the command line does not count.", s: Selection{Jobs: []string{"sync", "last"}}, want: []string{"last", "sync"}, result: []migration.Result{"succeeded", "succeeded"}},
		"All": {
			reason: "A job of both phases has a run for each.", s: Selection{Components: []string{"core"}}, want: []string{"clean", "last", "contract", "contract", "sync"},
			result: []migration.Result{"succeeded", "succeeded", "succeeded", "succeeded", "succeeded"},
		},
		"Fails": {
			reason: "What comes after a failed undo is not begun.", s: Selection{Phases: []Phase{Post}}, fails: "last", want: []string{"clean", "last"}, code: migration.ExitPartlyRestored,
			result: []migration.Result{"succeeded", "partly-restored", "not-started"},
		},
		"Unknown": {reason: "A selection without its job.", s: Selection{Phases: []Phase{Pre}, Jobs: []string{"last"}}, code: migration.ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			for i := range jobs {
				j := jobs[i].Job.(*fakeJob)
				if j.run = nil; j.name == tc.fails {
					j.run = failing(migration.PartlyRestored, "no")
				}
			}
			r, err := newManager(t, l, []string{"core"}, jobs...).UndoJobs(t.Context(), tc.s)
			var results []migration.Result
			for _, j := range r.Jobs {
				results = append(results, j.Result)
			}
			var want []string
			for _, name := range tc.want {
				want = append(want, "undo "+name)
			}
			if diff := cmp.Diff(want, l.all(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.result, results); diff != "" || r.ExitCode != tc.code || (err == nil) != (tc.code == 0) {
				t.Errorf("%s Exit code %d (%v), want %d (-want +got):\n%s", tc.reason, r.ExitCode, err, tc.code, diff)
			}
		})
	}
}
