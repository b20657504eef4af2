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
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// renamed calls itself something else to the engine.
type renamed struct{ *fakeJob }

func (renamed) Migration() migration.Job { return &fakeJob{name: "other"} }

// demanding requires an API in a way that means nothing.
type demanding struct{ *fakeJob }

func (demanding) Requires() []Requirement {
	return []Requirement{{Kind: schema.GroupKind{Kind: "Thing"}, IfMissing: "panic"}}
}

func TestRegistrationNamesEveryMistake(t *testing.T) {
	job := func(name string, hooks ...Hook) *fakeJob { return &fakeJob{name: name, hooks: hooks} }
	for name, tc := range map[string]struct {
		reason     string
		components []string
		jobs       []Job
		want       []string
	}{
		"Fine": {
			reason:     "Two hooks, an order, and a release.",
			components: []string{"core", "bus"},
			jobs:       []Job{job("a", Before("core"), After(Global)), &fakeJob{name: "b", goneBy: "1.12.0", hooks: []Hook{Before("core", "a")}}},
		},
		"Names": {
			reason: "An empty name, one that is no label, and one that is there twice.",
			jobs:   []Job{job("", Before(Global)), job("Not a label", Before(Global)), job("a", Before(Global)), job("a", Before(Global)), nil},
			want:   []string{`job 1: "" is no name`, `job 2: "Not a label" is no name`, "job a is registered twice", "job 5 is nil"},
		},
		"Hooks": {
			reason:     "Components and phases nobody knows, a hook twice, and none.",
			components: []string{"core"},
			jobs: []Job{
				job("a", Before("cor")), job("b", Hook{Component: "core", Phase: "during"}),
				job("c", Before("core"), Before("core")), job("d"),
			},
			want: []string{`unknown component "cor"; there are global, core`, `unknown phase "during"`, "job c is in the hook core/pre twice", "job d belongs to no hook"},
		},
		"Components": {
			reason:     "A component twice, and one that would be the global one.",
			components: []string{"core", "core", "global", "Core"},
			want:       []string{`component "core"`, `component "global"`, `component "Core"`},
		},
		"Circle": {
			reason:     "Each waits for the next.",
			components: []string{"core"},
			jobs:       []Job{job("a", Before("core", "b")), job("b", Before("core", "c")), job("c", Before("core", "a"))},
			want:       []string{"the jobs of the hook core/pre wait for each other: a after b after c after a"},
		},
		"CircleOfOne": {
			reason:     "One that waits for itself.",
			components: []string{"core"},
			jobs:       []Job{job("a", Before("core", "a"))},
			want:       []string{"a after a"},
		},
		"CircleOverComponents": {
			reason:     "Run without a deployment, the jobs of all components run together.",
			components: []string{"core", "bus"},
			jobs:       []Job{job("a", Before("core", "b"), Before("bus")), job("b", Before("core"), Before("bus", "a"))},
			want:       []string{"the pre-hooks of the components contradict each other"},
		},
		"UnknownPredecessor": {
			reason:     "A name that is not in the hook is a typing error.",
			components: []string{"core"},
			jobs:       []Job{job("a", Before("core", "z")), job("z", After("core"))},
			want:       []string{`job a comes after "z", which is not in the hook core/pre`},
		},
		"Optional": {
			reason: "What is found by type assertion is looked at, too.",
			jobs:   []Job{&fakeJob{name: "a", hooks: []Hook{Before(Global)}, goneBy: "soon"}, demanding{job("b", Before(Global))}, renamed{job("c", Before(Global))}},
			want:   []string{`"soon" is no version`, `without Thing it is "panic"`, `job c calls itself "other"`},
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
			var jobs []Job
			for _, j := range []*fakeJob{
				{name: "last", hooks: []Hook{After(Global)}}, {name: "after-bus", hooks: []Hook{After("bus")}},
				{name: "before-bus", hooks: []Hook{Before("bus")}}, {name: "after-core", hooks: []Hook{After("core")}},
				{name: "second-before-core", hooks: []Hook{Before("core", "before-core")}}, {name: "before-core", hooks: []Hook{Before("core")}},
				{name: "first", hooks: []Hook{Before(Global)}}, {name: "of-another", hooks: []Hook{Before("unused")}},
			} {
				j.run = tc.fails[j.name]
				jobs = append(jobs, j)
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
		&fakeJob{name: "a", hooks: []Hook{Before("core")}, run: meet(a, b)}, &fakeJob{name: "b", hooks: []Hook{Before("core")}, run: meet(b, a)})
	if _, err := m.Run(ctx, Selection{}); err != nil {
		t.Error(err)
	}
}

func TestAJobThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	const limit = 300 * time.Millisecond
	release := make(chan struct{})
	defer close(release)
	deaf := func(context.Context) { <-release }
	for name, job := range map[string]*fakeJob{
		"WhileLooking": {needed: func(ctx context.Context, _ Input) (Need, error) { deaf(ctx); return Need{Verdict: NotNeeded}, nil }},
		"WhileRunning": {run: func(ctx context.Context) *migration.Report {
			deaf(ctx)
			return &migration.Report{Result: migration.Succeeded}
		}},
	} {
		job.name, job.hooks, job.timeout = "deaf", []Hook{Before("core")}, limit
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			m := newManager(t, l, []string{"core"}, job)
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
			job.timeout = time.Hour
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(limit, func() { cancel(engine.SignalError{Signal: 15}) })
			m := newManager(t, &ledger{}, []string{"core"}, job)
			report, err := m.Deploy(ctx, []string{"core"}, func(context.Context, string) error { t.Error("deployed"); return nil })
			if err == nil || report.ExitCode != 143 {
				t.Errorf("exit code %d, error %v; want 143", report.ExitCode, err)
			}
		})
	}
}

// crashing panics where the manager itself is at work, not in one of the two steps
// of a job that it watches.
type crashing struct {
	*fakeJob
	limit, requires, migration bool
	armed                      bool
}

func (c *crashing) Timeout() time.Duration {
	if c.limit {
		panic("oh")
	}
	return 0
}

func (c *crashing) Requires() []Requirement {
	if c.requires && c.armed { // registration asks, too
		panic("oh")
	}
	return nil
}

func (c *crashing) Migration() migration.Job {
	if c.migration && c.armed {
		panic("oh")
	}
	return c.fakeJob
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
	job := func() *fakeJob { return &fakeJob{name: "bad", hooks: []Hook{Before("core")}} }
	needed, running := job(), job()
	needed.needed = func(context.Context, Input) (Need, error) { panic("oh") }
	running.run = func(context.Context) *migration.Report { panic("oh") }
	for name, tc := range map[string]struct {
		job      Job
		progress Progress
		engine   bool
	}{
		"Needed":    {job: needed},
		"Run":       {job: running},
		"Timeout":   {job: &crashing{fakeJob: job(), limit: true}},
		"Requires":  {job: &crashing{fakeJob: job(), requires: true}},
		"Migration": {job: &crashing{fakeJob: job(), migration: true}},
		"Progress":  {job: job(), progress: panicky{}},
		"Engine":    {job: job(), engine: true},
	} {
		t.Run(name, func(t *testing.T) {
			good := &fakeJob{name: "good", hooks: []Hook{Before("core")}}
			after := &fakeJob{name: "after", hooks: []Hook{Before("core", "bad")}}
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
				tc.job.(*fakeJob).timeout = time.Hour
			}
			m, err := New(o, []string{"core"}, tc.job, good, after)
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := tc.job.(*crashing); ok {
				c.armed = true
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
			if name == "Run" || name == "Migration" || name == "Progress" || name == "Timeout" {
				return // is only asked when it runs
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
	undone := Adapt(&fakeJob{name: "undone", run: func(context.Context) *migration.Report { panic("oh") }}, Before(Global))
	var failed *JobError
	if _, err := newManager(t, &ledger{}, nil, undone).Undo(t.Context(), "undone"); !errors.As(err, &failed) || failed.Code != migration.ExitPartlyRestored {
		t.Errorf("undo: %v", err)
	}
}

func TestNeededDecides(t *testing.T) {
	say := func(v Verdict, findings ...migration.Finding) func(context.Context, Input) (Need, error) {
		return func(context.Context, Input) (Need, error) {
			return Need{Verdict: v, Reason: "because", Findings: findings}, nil
		}
	}
	deferred := migration.Finding{Severity: migration.Deferred, Problem: "later"}
	for name, tc := range map[string]struct {
		reason  string
		needed  func(context.Context, Input) (Need, error)
		stored  *migration.Report
		open    bool
		defers  engine.Defer
		ran     bool
		result  migration.Result
		code    int
		message string
	}{
		"Needed":          {reason: "It runs.", needed: say(Needed), ran: true, result: migration.Succeeded},
		"NotNeeded":       {reason: "It does not run.", needed: say(NotNeeded), result: ResultNotNeeded, message: "because"},
		"NotNeededAnyway": {reason: "The stored report is true.", needed: say(NotNeeded), stored: &migration.Report{Result: migration.Succeeded}, result: ResultNotNeeded, message: "because"},
		"StaleReport":     {reason: "The stored report tells of a failure that is over: the engine says so.", needed: say(NotNeeded), stored: &migration.Report{Result: migration.RolledBack}, ran: true, result: migration.Succeeded},
		"Undone":          {reason: "What was taken back stays so until it is needed.", needed: say(NotNeeded), stored: &migration.Report{Command: "undo", Result: migration.Succeeded}, result: ResultNotNeeded, message: "because"},
		"OpenJournal":     {reason: "An interrupted run is finished, whatever the plan says.", needed: say(NotNeeded), open: true, ran: true, result: migration.Succeeded},
		"DeferredNew":     {reason: "What is deferred is reported once.", needed: say(Deferred, deferred), ran: true, result: migration.Succeeded},
		"DeferredKnown": {
			reason: "And not again.", needed: say(Deferred, deferred), result: migration.DeferredResult, message: "because",
			stored: &migration.Report{Result: migration.DeferredResult, Findings: []migration.Finding{deferred}},
		},
		"DeferredFails": {
			reason: "Where nothing may be left, the engine decides.", needed: say(Deferred, deferred), defers: engine.DeferFail, ran: true, result: migration.Succeeded,
			stored: &migration.Report{Result: migration.DeferredResult, Findings: []migration.Finding{deferred}},
		},
		"Blocked":    {reason: "It fails, refused.", needed: say(Blocked), result: migration.Refused, code: 4, message: "because"},
		"NoVerdict":  {reason: "A job that does not say so is broken.", needed: say(""), result: migration.FailedResult, code: 1, message: "it does not say whether it is needed"},
		"CannotTell": {reason: "An error is no \"no\".", needed: func(context.Context, Input) (Need, error) { return Need{}, errors.New("no answer") }, result: migration.FailedResult, code: 1, message: "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			o := fakeOptions(l)
			o.Migration.Defer = tc.defers
			o.Engine = func(opts engine.Options) (Engine, error) {
				kept := &engine.State{Reports: map[string]*engine.StoredReport{}}
				if tc.stored != nil {
					kept.Reports["job"] = &engine.StoredReport{Report: *tc.stored}
				}
				if tc.open {
					kept.Journals = []engine.StoredJournal{{Job: "job", Run: "r", Open: true}}
				}
				return &fakeEngine{opts: opts, ledger: l, kept: kept}, nil
			}
			m, err := New(o, nil, &fakeJob{name: "job", hooks: []Hook{Before(Global)}, needed: tc.needed})
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
	jobs := func() []Job {
		return []Job{
			&fakeJob{name: "first", hooks: []Hook{Before(Global)}},
			&fakeJob{name: "sync", hooks: []Hook{Before("core"), Before("app"), After("core"), After("app", "check")}},
			&fakeJob{name: "check", hooks: []Hook{After("app")}},
			&fakeJob{name: "down", hooks: []Hook{After("core", "sync"), After("app", "sync")}},
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
		"Nobody":    {reason: "What is not known is named.", s: Selection{Jobs: []string{"nobody"}}, usage: `unknown job "nobody"; there are first, sync, check, down`},
		"NoPart":    {reason: "A typing error.", s: Selection{Components: []string{"cora"}}, usage: `"cora"; there are core, app`},
		"NoPhase":   {reason: "A typing error.", s: Selection{Phases: []Phase{"mid"}}, usage: `unknown phase "mid"`},
		"Mismatch":  {reason: "A job where it does not belong.", s: Selection{Jobs: []string{"check"}, Phases: []Phase{Pre}}, usage: "job check does not belong"},
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
		all[0].(*fakeJob).run = failing(migration.Refused, "no")
		m := newManager(t, l, []string{"core", "app"}, all...)
		_, err := m.Plan(t.Context(), Selection{})
		if diff := cmp.Diff([]string{"plan first", "plan sync", "plan check", "plan sync", "plan down"}, l.all()); err == nil || diff != "" {
			t.Errorf("a plan shows everything: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestUndoIsOnlyByName(t *testing.T) {
	l := &ledger{}
	adapted := Adapt(&fakeJob{name: "sync"}, Before(Global))
	none := Adapt(&fakeJob{name: "check"}, Before(Global)).WithoutUndo("it changes nothing")
	never := &fakeJob{name: "never", hooks: []Hook{Before(Global)}}
	m := newManager(t, l, nil, adapted, none, never)
	if r, err := m.Undo(t.Context(), "sync"); err != nil || r.ExitCode() != 0 || !slices.Equal(l.all(), []string{"undo sync"}) {
		t.Errorf("%v %v %v", r, err, l.all())
	}
	if r, err := m.Undo(t.Context(), "check"); err != nil || r.Result != migration.NothingToDo || len(l.all()) != 1 {
		t.Errorf("%v %v %v", r, err, l.all())
	}
	var usage *UsageError
	for _, name := range []string{"never", "nobody", ""} {
		if _, err := m.Undo(t.Context(), name); !errors.As(err, &usage) {
			t.Errorf("undo %q: %v", name, err)
		}
	}
}

func TestAdaptedNeed(t *testing.T) {
	write := migration.Unit{Changes: []migration.Change{{Verb: migration.Create}, {Verb: migration.Patch}}}
	wait := migration.Unit{Changes: []migration.Change{{Verb: migration.Await}}}
	finding := func(s migration.Severity) migration.Finding {
		return migration.Finding{Severity: s, Object: "Thing x", Problem: "is odd", Hint: "mend it"}
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
		got := need(&tc.plan)
		tc.want.Findings = tc.plan.Findings
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
	a := Adapt(&fakeJob{name: "a"}, Before(Global)).Unless(func(_ context.Context, in Input) (string, error) {
		if in.Deploys {
			return "", nil
		}
		return "nothing is deployed", nil
	})
	decide := func(context.Context, migration.Job) (*migration.Plan, error) {
		return &migration.Plan{Units: []migration.Unit{write}}, nil
	}
	for deploys, want := range map[bool]Verdict{true: Needed, false: NotNeeded} {
		if n, err := a.Needed(t.Context(), Input{Deploys: deploys, Decide: decide}); err != nil || n.Verdict != want {
			t.Errorf("deploys %t: %v, %v", deploys, n, err)
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
		&fakeJob{name: "old", hooks: []Hook{Before(Global)}, goneBy: "1.12.0"},
		&fakeJob{name: "older", hooks: []Hook{Before(Global)}, goneBy: "1.11"},
		&fakeJob{name: "stays", hooks: []Hook{Before(Global)}})
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
			m, err := New(fakeOptions(l), []string{"core"}, &fakeJob{name: "a", hooks: []Hook{Before("core")}}, &fakeJob{name: "b", hooks: []Hook{Before("core", "a")}})
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
	look := func(_ context.Context, in Input) (Need, error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, in)
		in.Components[0] = "spoilt"
		in.Config.ExcludeNamespaces[0] = "spoilt"
		return Need{Verdict: NotNeeded, Reason: "enough"}, nil
	}
	o := fakeOptions(&ledger{})
	o.Migration.StateNamespace, o.Migration.ExcludeNamespaces = "state", []string{"mine"}
	m, err := New(o, []string{"core", "bus", "app"},
		&fakeJob{name: "global", hooks: []Hook{Before(Global)}, needed: look}, &fakeJob{name: "bus", hooks: []Hook{Before("bus")}, needed: look},
		&fakeJob{name: "app", hooks: []Hook{Before("app")}, needed: look})
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
		&fakeJob{name: "slow", hooks: []Hook{Before("core")}, needed: func(context.Context, Input) (Need, error) {
			time.AfterFunc(some, func() { close(looked) })
			<-looked
			return Need{Verdict: Needed, Reason: "x"}, nil
		}, run: func(context.Context) *migration.Report {
			time.AfterFunc(2*some, func() { close(ran) })
			<-ran
			return &migration.Report{Result: migration.Succeeded, Requests: migration.Requests{Reads: 3, Writes: 2}}
		}},
		&fakeJob{name: "idle", hooks: []Hook{Before("core")}, needed: func(context.Context, Input) (Need, error) {
			return Need{Verdict: NotNeeded, Reason: "nothing is left to do"}, nil
		}})
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
	}
}
