package jobmanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// workers deploys each component from a goroutine of its own, as an installer does that
// deploys them side by side.
func workers(ctx context.Context, d *Deployment, components []string, deploy func(string) error) {
	var all sync.WaitGroup
	for _, c := range components {
		all.Go(func() { d.deploy(ctx, c, func(context.Context, string) error { return deploy(c) }) })
	}
	all.Wait()
}

// TestWorkersKeepTheOrder is about several workers: the order of each component's chain,
// global hooks that run once, and a job that belongs to several components and runs once
// at a time.
func TestWorkersKeepTheOrder(t *testing.T) {
	components := []string{"a", "b", "c", "d", "e", "f"}
	l := &ledger{}
	var shared, own atomic.Int32
	var most atomic.Int32
	running := func(n *atomic.Int32) func(context.Context) *migration.Report {
		return func(context.Context) *migration.Report {
			if at := n.Add(1); n == &shared && at > 1 {
				t.Errorf("%d runs of one job at a time", at)
			} else if n == &own {
				for {
					before := most.Load()
					if at <= before || most.CompareAndSwap(before, at) {
						break
					}
				}
			}
			time.Sleep(20 * time.Millisecond)
			n.Add(-1)
			return &migration.Report{Result: migration.Succeeded}
		}
	}
	var every []Hook
	jobs := []Registration{job("first", Before(Global)), job("last", After(Global))}
	for _, c := range components {
		every = append(every, Before(c))
		jobs = append(jobs,
			Registration{Job: &fakeJob{name: "pre-" + c, run: running(&own)}, Hooks: []Hook{Before(c)}},
			job("post-"+c, After(c)))
	}
	jobs = append(jobs, Registration{Job: &fakeJob{name: "shared", run: running(&shared)}, Hooks: every})
	d, err := newManager(t, l, components, jobs...).Begin(components)
	if err != nil {
		t.Fatal(err)
	}
	workers(t.Context(), d, components, func(c string) error { l.add("deploy %s", c); return nil })
	var ends sync.WaitGroup
	for range 3 { // whoever comes last does not know that he does
		ends.Go(func() {
			if err := d.Post(t.Context(), Global); err != nil {
				t.Error(err)
			}
		})
	}
	ends.Wait()
	report, err := d.End()
	if err != nil || report.ExitCode != 0 {
		t.Errorf("exit code %d, %v", report.ExitCode, err)
	}
	got := l.all()
	if got[0] != "run first" || got[len(got)-1] != "run last" || len(got) != 2+4*len(components) {
		t.Errorf("the global jobs are not the first and the last, each once: %q", got)
	}
	for _, c := range components {
		pre, deploy, post := slices.Index(got, "run pre-"+c), slices.Index(got, "deploy "+c), slices.Index(got, "run post-"+c)
		if pre < 1 || deploy < pre || post < deploy {
			t.Errorf("component %s: %q", c, got)
		}
	}
	if most.Load() < 2 {
		t.Error("the hooks of several components never ran side by side")
	}
	rows := map[string]int{}
	for _, j := range report.Jobs {
		rows[j.Job]++
	}
	if rows["shared"] != len(components) || rows["first"] != 1 || rows["last"] != 1 || len(report.Components) != len(components) {
		t.Errorf("the report has %v and %d components", rows, len(report.Components))
	}
	for i, c := range report.Components {
		if c.Component != components[i] || c.Result != ResultDeployed || c.Ended.Before(c.Began) || c.Began.IsZero() {
			t.Errorf("%+v", c)
		}
	}
}

// stamp is a job that creates a ConfigMap of its name, unless there is one.
type stamp struct {
	name string
	// ready is called before the engine's own plan.
	ready func()
	calls atomic.Int32
}

func (s *stamp) Name() string              { return s.name }
func (s *stamp) Doc() (short, long string) { return s.name, "" }
func (s *stamp) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	if s.calls.Add(1) == 2 && s.ready != nil { // the first is whether it is needed
		s.ready()
	}
	ref := migration.Ref{Resource: migration.CoreResource("", "configmaps", "ConfigMap"), Namespace: "stamps", Name: s.name}
	found, err := c.Get(ctx, ref)
	if err != nil || found != nil {
		return &migration.Plan{}, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ref.Namespace, "name": ref.Name},
	}}
	return &migration.Plan{Units: []migration.Unit{{ID: ref.String(), Changes: []migration.Change{{Verb: migration.Create, Ref: ref, Object: u}}}}}, nil
}
func (s *stamp) Await(*migration.Change) []migration.Condition { return nil }

// TestWorkersShareOneLease is about the real engine: hooks that overlap are one
// acquisition of the Lease, which is released when none runs. Jobs with a Lease each
// would take it from one another, since they have one identity.
func TestWorkersShareOneLease(t *testing.T) {
	server := model.New(1)
	cfg := server.Client("installer").Config()
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stamps", "installer"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
		if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	components := []string{"a", "b", "c", "d"}
	var meet sync.WaitGroup
	meet.Add(len(components))
	var jobs []Registration
	var everywhere []Hook
	for _, c := range components {
		together := func() { meet.Done(); meet.Wait() } // all have read before one writes
		jobs = append(jobs, Registration{Job: &stamp{name: "pre-" + c, ready: together}, Hooks: []Hook{Before(c)}})
		everywhere = append(everywhere, Before(c, "pre-"+c), After(c))
	}
	shared := &stamp{name: "shared"}
	jobs = append(jobs, Registration{Job: shared, Hooks: everywhere}, Registration{Job: &stamp{name: "last"}, Hooks: []Hook{After(Global)}})
	m, err := New(Options{Engine: ForCluster(cfg), Migration: engine.Options{Names: migration.Names{Program: "installer"}, Identity: "installer"}}, components, jobs...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.Begin(components)
	if err != nil {
		t.Fatal(err)
	}
	workers(t.Context(), d, components, func(string) error { return nil })
	if err := d.Post(t.Context(), Global); err != nil {
		t.Error(err)
	}
	report, err := d.End()
	if err != nil {
		t.Fatal(err)
	}
	wrote := map[string]int{}
	for _, j := range report.Jobs {
		if j.Result == migration.Succeeded {
			wrote[j.Job]++
		}
	}
	want := map[string]int{"pre-a": 1, "pre-b": 1, "pre-c": 1, "pre-d": 1, "shared": 1, "last": 1}
	if diff := cmp.Diff(want, wrote); diff != "" {
		t.Errorf("runs that wrote (-want +got):\n%s", diff)
	}
	// The holder as each write of the Lease left it.
	type record struct {
		Holder      string `json:"holderIdentity"`
		Transitions int    `json:"leaseTransitions"`
	}
	var last record
	acquired := 0
	for _, w := range server.History() {
		if w.Key.Plural != "leases" {
			if w.Key.Namespace == "stamps" && w.Key.Plural == "configmaps" && last.Holder == "" {
				t.Errorf("%s was written although nobody held the Lease", w.Key)
			}
			continue
		}
		var lease struct{ Spec record }
		raw, err := json.Marshal(w.After)
		if err == nil {
			err = json.Unmarshal(raw, &lease)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case last.Holder == "" && lease.Spec.Holder != "":
			acquired++
		case last.Holder != "" && lease.Spec.Transitions != last.Transitions:
			t.Errorf("the Lease was taken while it was held: %+v, then %+v", last, lease.Spec)
		}
		last = lease.Spec
	}
	if last.Holder != "" || acquired == 0 || acquired > 3 {
		t.Errorf("the Lease was acquired %d times, and is held by %q", acquired, last.Holder)
	}
}

// TestHooksByHand is about an installer that calls hooks out of their order, or twice.
func TestHooksByHand(t *testing.T) {
	boom := failing(migration.RolledBack, "boom")
	for name, tc := range map[string]struct {
		reason string
		fails  string
		call   func(ctx context.Context, d *Deployment) []error
		// want are parts of the errors, "" for none.
		want []string
		// end is a part of what End returns, and ran what ran.
		end string
		ran []string
		// results are those of the components.
		results map[string]migration.Result
		code    int
	}{
		"TheFirstPreRunsTheGlobalJobs": {
			reason: "Also if nobody called their hook, and once.",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Pre(ctx, "core"), d.Pre(ctx, "bus"), d.Pre(ctx, Global), d.Pre(ctx, "core")}
			},
			want: []string{"", "", "", ""}, ran: []string{"run first", "run pre-core", "run pre-bus"}, end: "ended before its hook global/post", code: 2,
			results: map[string]migration.Result{"core": ResultNotStarted, "bus": ResultNotStarted},
		},
		"PostWithoutPre": {
			reason: "The chain of a component has an order.",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Post(ctx, "core"), d.Fail("core", errors.New("no image"))}
			},
			want: []string{"the hook core/pre has not succeeded yet", "the hook core/pre has not succeeded yet"}, ran: []string{}, end: "ended before", code: 2,
			results: map[string]migration.Result{"core": ResultNotStarted, "bus": ResultNotStarted},
		},
		"PostAfterFail": {
			reason: "A component that failed has no post-jobs, and fails once.",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Pre(ctx, "core"), d.Fail("core", errors.New("no image")), d.Post(ctx, "core"), d.Fail("core", errors.New("again"))}
			},
			want: []string{"", "cannot deploy component core: no image", "core has failed already: no image", "core has failed already: no image"},
			ran:  []string{"run first", "run pre-core"}, end: "cannot deploy component core: no image", code: 1,
			results: map[string]migration.Result{"core": migration.FailedResult, "bus": ResultNotStarted},
		},
		"FailAfterPost": {
			reason: "What is deployed cannot fail.",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Pre(ctx, "core"), d.Post(ctx, "core"), d.Fail("core", errors.New("late")), d.Post(ctx, "core")}
			},
			want: []string{"", "", "core is deployed already", ""}, ran: []string{"run first", "run pre-core", "run post-core"}, end: "ended before", code: 2,
			results: map[string]migration.Result{"core": ResultDeployed, "bus": ResultNotStarted},
		},
		"Stranger": {
			reason: "Only components of this deployment.",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Pre(ctx, "other"), d.Post(ctx, "other"), d.Fail("other", errors.New("no image"))}
			},
			want: []string{`"other" is not part of this deployment (valid: core, bus)`, `"other" is not part`, `"other" is not part`}, ran: []string{}, end: "ended before", code: 2,
			results: map[string]migration.Result{"core": ResultNotStarted, "bus": ResultNotStarted},
		},
		"GlobalPostTooEarly": {
			reason: "It comes after all components.",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Pre(ctx, "core"), d.Post(ctx, "core"), d.Pre(ctx, "bus"), d.Post(ctx, Global)}
			},
			want: []string{"", "", "", "these are not deployed yet: bus"}, ran: []string{"run first", "run pre-core", "run post-core", "run pre-bus"}, end: "ended before", code: 2,
			results: map[string]migration.Result{"core": ResultDeployed, "bus": ResultNotStarted},
		},
		"GlobalPreFails": {
			reason: "Then nothing is deployed, and every worker learns why.", fails: "first",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Pre(ctx, "core"), d.Pre(ctx, "bus"), d.Post(ctx, Global)}
			},
			want: []string{"job first (global/pre): boom", "job first (global/pre): boom", "job first (global/pre): boom"},
			ran:  []string{"run first"}, end: "job first (global/pre): boom", code: 1,
			results: map[string]migration.Result{"core": ResultNotStarted, "bus": ResultNotStarted},
		},
		"PreFails": {
			reason: "The other component goes on; the global post-jobs do not run.", fails: "pre-core",
			call: func(ctx context.Context, d *Deployment) []error {
				return []error{d.Pre(ctx, "core"), d.Pre(ctx, "bus"), d.Post(ctx, "bus"), d.Post(ctx, Global)}
			},
			want: []string{"job pre-core (core/pre): boom", "", "", "job pre-core (core/pre): boom"},
			ran:  []string{"run first", "run pre-core", "run pre-bus"}, end: "job pre-core (core/pre): boom", code: 1,
			results: map[string]migration.Result{"core": ResultNotStarted, "bus": ResultDeployed},
		},
		"Interrupted": {
			reason: "Nothing begins after the end of the context.",
			call: func(ctx context.Context, d *Deployment) []error {
				err := d.Pre(ctx, "core")
				ended, cancel := context.WithCancelCause(ctx)
				cancel(engine.SignalError{Signal: 15})
				return []error{err, d.Post(ended, "core"), d.Pre(ended, "bus"), d.Post(ctx, Global)}
			},
			want: []string{"", "interrupted by signal 15", "interrupted by signal 15", "interrupted by signal 15"},
			ran:  []string{"run first", "run pre-core"}, end: "interrupted by signal 15", code: 143,
			results: map[string]migration.Result{"core": ResultDeployed, "bus": ResultNotStarted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{}
			jobs := []Registration{
				job("first", Before(Global)), job("last", After(Global)), job("pre-core", Before("core")), job("post-core", After("core")), job("pre-bus", Before("bus")),
			}
			for _, j := range jobs {
				if j.Name() == tc.fails {
					j.Job.(*fakeJob).run = boom
				}
			}
			d, err := newManager(t, l, []string{"core", "bus", "other"}, jobs...).Begin([]string{"core", "bus"})
			if err != nil {
				t.Fatal(err)
			}
			for i, err := range tc.call(t.Context(), d) {
				if (err == nil) != (tc.want[i] == "") || err != nil && !strings.Contains(err.Error(), tc.want[i]) {
					t.Errorf("%s: call %d returns %v, want %q", tc.reason, i+1, err, tc.want[i])
				}
			}
			report, err := d.End()
			if err == nil || !strings.Contains(err.Error(), tc.end) || report.ExitCode != tc.code {
				t.Errorf("%s: exit code %d, want %d: %v", tc.reason, report.ExitCode, tc.code, err)
			}
			if diff := cmp.Diff(tc.ran, l.all()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			results := map[string]migration.Result{}
			for _, c := range report.Components {
				results[c.Component] = c.Result
				if open := c.Result == ResultNotStarted && !c.Began.IsZero(); open != strings.Contains(c.Message, "did not call Post or Fail") {
					t.Errorf("%s: %s: %q", tc.reason, c.Component, c.Message)
				}
			}
			if diff := cmp.Diff(tc.results, results); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			rows := map[string]int{}
			for _, j := range report.Jobs {
				rows[j.Job]++
			}
			if diff := cmp.Diff(map[string]int{"first": 1, "last": 1, "pre-core": 1, "post-core": 1, "pre-bus": 1}, rows); diff != "" {
				t.Errorf("%s: every job is reported once (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAHookIsReadAgainAfterItsTurn: what an earlier run left was read before the job
// waited for its turn; the run that it waited for may have left a journal.
func TestAHookIsReadAgainAfterItsTurn(t *testing.T) {
	l := &ledger{}
	o := fakeOptions(l)
	var open atomic.Bool
	o.Engine = func(engine.Options) (Engine, error) {
		kept := &engine.State{Reports: map[string]*engine.StoredReport{}}
		if open.Load() {
			kept.Journals = []engine.StoredJournal{{Job: "job", Run: "r", Open: true}}
		}
		return &fakeEngine{ledger: l, kept: kept}, nil
	}
	var runs atomic.Int32
	running, end := make(chan struct{}), make(chan struct{})
	j := &fakeJob{name: "job", plan: func(context.Context) (*migration.Plan, error) {
		if runs.Load() > 0 {
			return &migration.Plan{}, nil
		}
		return &migration.Plan{Units: []migration.Unit{oneWrite}}, nil
	}}
	j.run = func(context.Context) *migration.Report {
		if runs.Add(1) == 1 {
			close(running)
			<-end
			open.Store(true)
			return &migration.Report{Result: migration.Interrupted, Signal: 15}
		}
		open.Store(false)
		return &migration.Report{Result: migration.Succeeded}
	}
	waiting := make(chan struct{})
	o.Progress = progressFunc(func(h Hook, state string) {
		if h.Component == "bus" && state == "waiting" {
			close(waiting)
		}
	})
	m, err := New(o, []string{"core", "bus"}, Registration{Job: j, Hooks: []Hook{Before("core"), Before("bus")}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.Begin([]string{"core", "bus"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if err := d.Pre(t.Context(), "core"); err == nil {
			t.Error("the first run was interrupted, and its hook succeeds")
		}
	})
	<-running
	all.Go(func() {
		if err := d.Pre(t.Context(), "bus"); err != nil {
			t.Error(err)
		}
	})
	<-waiting // it has read the state of before the interruption
	close(end)
	all.Wait()
	if runs.Load() != 2 {
		t.Errorf("%d runs; the second hook must finish what the first left open", runs.Load())
	}
}

type progressFunc func(h Hook, state string)

func (f progressFunc) Job(h Hook, _, state string) { f(h, state) }
func (f progressFunc) For(string) engine.Progress  { return silent{} }

type silent struct{}

func (silent) Start(int)                          {}
func (silent) Step(int, int, engine.Wait, string) {}
func (silent) Stop()                              {}

// TestAWaitingCallerMayGiveUp: whoever waits for a hook, or for the turn of a job, ends
// with its context.
func TestAWaitingCallerMayGiveUp(t *testing.T) {
	running, end := make(chan struct{}), make(chan struct{})
	j := &fakeJob{name: "job", run: func(context.Context) *migration.Report {
		close(running)
		<-end
		return &migration.Report{Result: migration.Succeeded}
	}}
	m := newManager(t, &ledger{}, []string{"core", "bus"}, Registration{Job: j, Hooks: []Hook{Before("core"), Before("bus")}})
	d, err := m.Begin([]string{"core", "bus"})
	if err != nil {
		t.Fatal(err)
	}
	var first sync.WaitGroup
	first.Go(func() {
		if err := d.Pre(t.Context(), "core"); err != nil {
			t.Error(err)
		}
	})
	<-running
	gone := errors.New("gone")
	for name, call := range map[string]func(context.Context) error{
		"SameHook": func(ctx context.Context) error { return d.Pre(ctx, "core") },
		"SameJob":  func(ctx context.Context) error { return d.Pre(ctx, "bus") },
		"Undo":     func(ctx context.Context) error { _, err := m.Undo(ctx, "job"); return err },
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, gone)
		if err := call(ctx); !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	close(end)
	first.Wait()
}

func TestBeginKnowsItsComponents(t *testing.T) {
	m := newManager(t, &ledger{}, []string{"core", "bus"})
	for _, components := range [][]string{{"other"}, {"core", "core"}, {Global}} {
		var usage *UsageError
		if _, err := m.Begin(components); !errors.As(err, &usage) {
			t.Errorf("%q: %v", components, err)
		}
		report, err := m.Deploy(t.Context(), components, func(context.Context, string) error { return fmt.Errorf("deployed") })
		if !errors.As(err, &usage) || report.ExitCode != migration.ExitUsage {
			t.Errorf("%q: exit code %d, %v", components, report.ExitCode, err)
		}
	}
}
