package registry

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestNoJobIsOverdue is the lint of CI: it fails, and names the job, once Release is
// the one in which a job must be removed.
func TestNoJobIsOverdue(t *testing.T) {
	m, err := jobmanager.New(jobmanager.Options{Engine: jobmanager.ForCluster(nil)}, Components(), Jobs(All())...)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Lint(Release); err != nil {
		t.Errorf("this source is of release %s:\n%v", Release, err)
	}
}

// TestWhoMadeItIsNoDifference: a job that makes objects of Knative ignores what the webhooks of
// their group write of the user. An object that was restored would never be as it was.
func TestWhoMadeItIsNoDifference(t *testing.T) {
	makes := 0
	for _, entry := range All() {
		accessor, ok := entry.Job.(migration.Accessor)
		if !ok {
			continue
		}
		var ignored []string
		if ignorer, ok := entry.Job.(migration.EditIgnorer); ok {
			ignored = ignorer.IgnoredKeys()
		}
		for _, a := range accessor.Access() {
			if a.Group != "eventing.knative.dev" && a.Group != "messaging.knative.dev" || !slices.Contains(a.Verbs, "create") {
				continue
			}
			makes++
			for _, key := range []string{a.Group + "/creator", a.Group + "/lastModifier"} {
				if !slices.Contains(ignored, key) {
					t.Errorf("%s makes %s.%s, and does not ignore %s", entry.Job.Name(), a.Resource, a.Group, key)
				}
			}
		}
	}
	if makes < 4 {
		t.Errorf("%d kinds are made", makes)
	}
}

// TestTheOrderIsThatOfTheGuides: what a step of the migration rests on has been done
// before. Other jobs may stand in between.
func TestTheOrderIsThatOfTheGuides(t *testing.T) {
	chains, err := Chains(All())
	if err != nil {
		t.Fatal(err)
	}
	phases := map[string][]Step{}
	for _, c := range chains {
		phases[c.Component+" pre"], phases[c.Component+" post"], phases[c.Component+" rollback"] = c.Pre, c.Post, c.Rollback
	}
	for _, tc := range []struct {
		reason, phase string
		want          []string
	}{
		{reason: "The mesh takes the events before it delivers them.", phase: "core pre", want: []string{"httpsource-sync run", "serviceinstance-recreate run", "trigger-sync run"}},
		{reason: "A Subscription goes before the Event Bus.", phase: "core post", want: []string{"trigger-sync run", "eventbus-scaledown run"}},
		{reason: "The Event Bus is up again before Subscriptions are restored.", phase: "core rollback", want: []string{"eventbus-scaledown undo", "trigger-sync undo"}},
		{
			reason: "It is the last gate before the switch.", phase: "application-connector pre",
			want: []string{"httpsource-sync run", "serviceinstance-recreate run --defer=fail", "trigger-sync run --require-triggers"},
		},
		{
			reason: "After the switch nothing may be left.", phase: "application-connector post",
			want: []string{"eventservice-verify run --defer=fail", "trigger-sync run --defer=fail", "eventbus-scaledown run --defer=fail"},
		},
		{reason: "As in core.", phase: "application-connector rollback", want: []string{"eventbus-scaledown undo", "trigger-sync undo"}},
		{
			reason: "While the Event Bus is in use, 1.12 must not come.", phase: "cluster-essentials pre",
			want: []string{"eventbus-purge plan --fail-if-in-use --ignore-release always"},
		},
	} {
		var got []string
		for _, s := range phases[tc.phase] {
			words := append([]string{s.Job, s.Command}, s.Flags...)
			if s.Always {
				words = append(words, "always")
			}
			if line := strings.Join(words, " "); slices.Contains(tc.want, line) {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", tc.phase, tc.reason, diff)
		}
	}
}

// named is a job that does nothing.
type named string

func (n named) Name() string            { return string(n) }
func (named) Doc() (short, long string) { return "", "" }
func (named) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	return &migration.Plan{}, nil
}
func (named) Await(*migration.Change) []migration.Condition { return nil }

func entry(name string, chart *Chart, hooks ...jobmanager.Hook) Entry {
	return Entry{Registration: jobmanager.Registration{Job: named(name), Hooks: hooks}, Chart: chart}
}

func TestChainsFollowFromHooks(t *testing.T) {
	connector := jobmanager.After(ApplicationConnector)
	chains, err := Chains([]Entry{
		entry("c", &Chart{}, jobmanager.Before(Core, "a", "b"), jobmanager.Before(EventBus)),
		entry("without", nil, jobmanager.Before(Core)),
	})
	if err == nil || !strings.Contains(err.Error(), `job c comes after "a", which is not in the hook core/pre`) {
		t.Errorf("a mistake of the registration: %v, %v", chains, err)
	}
	chains, err = Chains([]Entry{
		entry("c", &Chart{UndoneByRollback: true}, jobmanager.Before(Core, "a", "b"), jobmanager.After(Core)),
		entry("tool-only", nil, jobmanager.Before(Core), jobmanager.After(Core, "b")),
		entry("b", &Chart{UndoneByRollback: true, Flags: map[string][]string{connector.String(): {"--x"}}}, jobmanager.Before(Core, "a"), connector, jobmanager.After(Core, "c")),
		entry("a", &Chart{}, jobmanager.Before(Core)),
		entry("gate", &Chart{Gate: &Gate{Before: ClusterEssentials, Flags: []string{"--y"}}}, jobmanager.After(jobmanager.Global)),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(job string, flags ...string) Step { return Step{Job: job, Command: "run", Flags: flags} }
	undo := func(job string) Step { return Step{Job: job, Command: "undo"} }
	want := []Chain{
		{Component: Core, Pre: []Step{run("a"), run("b"), run("c")}, Post: []Step{run("c"), run("b")}, Rollback: []Step{undo("b"), undo("c")}},
		{Component: ApplicationConnector, Post: []Step{run("b", "--x")}, Rollback: []Step{undo("b")}},
		{Component: ClusterEssentials, Pre: []Step{{Job: "gate", Command: "plan", Flags: []string{"--y"}, Always: true}}},
	}
	if diff := cmp.Diff(want, chains); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatTheChartsCannotRunIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		entry  Entry
		want   string
	}{
		"NoChart": {reason: "Nobody would run it.", entry: entry("a", &Chart{}, jobmanager.Before(EventBus)), want: "job a: the chart of event-bus has no hooks"},
		"Global":  {reason: "Charts have no such hook.", entry: entry("a", &Chart{}, jobmanager.Before(jobmanager.Global)), want: "job a: the chart of global has no hooks"},
		"Gate": {
			reason: "The same.", entry: entry("a", &Chart{Gate: &Gate{Before: EventBus}}, jobmanager.Before(Core)), want: "job a: the chart of event-bus has no hooks",
		},
		"Flags": {
			reason: "They would be lost.", entry: entry("a", &Chart{Flags: map[string][]string{"core/post": {"--x"}}}, jobmanager.Before(Core)),
			want: "job a: the charts have flags for the hook core/post, to which it does not belong",
		},
	} {
		if _, err := Chains([]Entry{tc.entry}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s %v", name, tc.reason, err)
		}
	}
}

// TestJobsAreNotShared: settings of one table must not reach another.
func TestJobsAreNotShared(t *testing.T) {
	one, other := All(), All()
	for i := range one {
		if one[i].Job == other[i].Job {
			t.Errorf("two tables share job %s", one[i].Name())
		}
	}
}

// TestWhoAsksForAJob: a job that does not run unless somebody asks for it says with which
// flag, for the documentation.
func TestWhoAsksForAJob(t *testing.T) {
	for _, e := range All() {
		if e.OnlyWith == "" {
			continue
		}
		reason, err := e.SkipIf(t.Context(), jobmanager.Input{})
		if err != nil || !strings.HasSuffix(reason, ": "+e.OnlyWith) {
			t.Errorf("job %s runs only with %s, and is skipped because %q: %v", e.Name(), e.OnlyWith, reason, err)
		}
	}
}
