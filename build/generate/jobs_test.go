package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// silent is a job that does not say what it asks for.
type silent struct{}

func (silent) Name() string              { return "sample" }
func (silent) Doc() (short, long string) { return "Show what a table holds", "" }
func (silent) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	return &migration.Plan{}, nil
}
func (silent) Await(*migration.Change) []migration.Condition { return nil }

// sample does, and has a setting that is a value of the chart.
type sample struct {
	silent
	namespace string
}

func (s *sample) Settings() []migration.Setting {
	return []migration.Setting{{Name: "event-bus-namespace", Value: &s.namespace}}
}
func (s *sample) Validate() error { return nil }
func (s *sample) Access() []migration.Access {
	return []migration.Access{{Resource: "namespaces", Namespace: s.namespace, Verbs: []string{"get", "patch"}, Why: "labels them"}}
}

func tableOf(job migration.Job, chart *registry.Chart) []registry.Entry {
	return []registry.Entry{{
		Registration: jobmanager.Registration{Job: job, Hooks: []jobmanager.Hook{jobmanager.After(registry.Core)}, RemoveBy: "1.20.0"},
		Chart:        chart, Tested: "nothing",
	}}
}

func TestTheTemplatesFollowFromTheRegistry(t *testing.T) {
	all := tableOf(&sample{}, &registry.Chart{Flags: map[string][]string{"core/post": {"--x"}}})
	tables, err := tables(all)
	if err != nil {
		t.Fatal(err)
	}
	access := string(accessTemplate(tables))
	jobs, err := jobsTemplate(all, tables)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"sample:\n# labels them\n" + `- {apiGroups: [""], resources: ["namespaces"], verbs: ["get","patch"], namespace: {{ .Values.namespaces.eventBus | quote }}}`,
		`resources: ["leases"]`, `{{ .Values.namespaces.state | quote }}`,
		"core:\n  pre: []\n  post:\n  - {job: sample, command: run, flags: [--x]}\n  rollback: []\n",
		"{{- if has .job (list \"sample\") }}\n- {{ printf \"--event-bus-namespace=%s\" .root.Values.namespaces.eventBus | quote }}\n{{- end }}\n",
		"{{- if has .job (list ) }}\n- {{ printf \"--tiller-namespace=%s\"",
		"{{- if has . (list \"sample\") }}\nyes\n{{- end }}\n",
	} {
		if !strings.Contains(access+string(jobs), want) {
			t.Errorf("%s\n is missing in\n%s%s", want, access, jobs)
		}
	}
}

func TestWhatAJobOfTheChartHasToSay(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		job    migration.Job
		chart  registry.Chart
		want   string
	}{
		"Silent": {reason: "Without a table it would have no Role.", job: silent{}, want: "job sample is in the chart, but does not say what it asks for: Access is missing"},
		"Gate": {
			reason: "A gate has the Role of its plan.", job: &sample{}, chart: registry.Chart{Gate: &registry.Gate{Before: registry.Core}},
			want: "job sample is a gate in the registry, but does not say what its plan asks for: PlanAccess is missing",
		},
	} {
		if _, err := tables(tableOf(tc.job, &tc.chart)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s %v", name, tc.reason, err)
		}
	}
}

func TestTheDocumentationFollowsFromTheRegistry(t *testing.T) {
	all := tableOf(&sample{}, &registry.Chart{Flags: map[string][]string{"core/post": {"--x"}}, UndoneByRollback: true})
	more := tableOf(silent{}, nil)[0]
	more.OnlyWith = "--sample.yes"
	chains, err := chainsTable(all)
	if err != nil {
		t.Fatal(err)
	}
	want := `| Job | What it does | Image | Run beside | Removed in |
|---|---|---|---|---|
| ` + "`sample` | Show what a table holds | `sample`" + ` | nothing | 1.20.0 |
| Hook | Jobs, in this order |
|---|---|
| after core | ` + "`sample` with `--sample.yes`" + ` |
| Chart | Before the upgrade | After it | Before ` + "`helm rollback`" + ` |
|---|---|---|---|
| core | - | ` + "`sample --x`" + ` | ` + "`sample undo`" + ` |
| application-connector | - | - | - |
| cluster-essentials | - | - | - |
`
	got := string(listTable(all)) + string(hooksTable([]registry.Entry{more})) + string(chains)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := string(listTable([]registry.Entry{more, all[0]})); strings.Index(got, "only `eventmesh-migrate`") < strings.Index(got, "| `sample` |") {
		t.Errorf("jobs without an image come last:\n%s", got)
	}
}

func TestWhatIsGeneratedIsBetweenItsMarks(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, content, want string
	}{
		"Replaced": {reason: "What stands around it stays.", content: "a\n  <begin: of it\nold\n  <end\nb\n", want: "a\n  <begin: of it\nnew\n  <end\nb\n"},
		"NoBegin":  {reason: "There is no place.", content: "a\n  <end\n"},
		"NoEnd":    {reason: "What would be replaced is unknown.", content: "  <begin\nold\n"},
		"Reversed": {reason: "The same.", content: "  <end\n  <begin\n"},
	} {
		got, err := between([]byte(tc.content), "  <begin", "  <end", []byte("new\n"))
		if diff := cmp.Diff(tc.want, string(got)); diff != "" || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %s %v (-want +got):\n%s", name, tc.reason, err, diff)
		}
	}
}

// TestHelmTimeout: what eventmesh-migrate says of Helm's --timeout is what the chart needs by
// default.
func TestHelmTimeout(t *testing.T) {
	raw, err := os.ReadFile("../../charts/eventmesh-migration/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		LockWaitSeconds, TerminationGracePeriodSeconds int
		Image                                          struct{ PullReserveSeconds int }
	}
	if err := yaml.Unmarshal(raw, &values); err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]time.Duration{
		"lockWaitSeconds":               {registry.LockWait, time.Duration(values.LockWaitSeconds) * time.Second},
		"image.pullReserveSeconds":      {registry.PullReserve, time.Duration(values.Image.PullReserveSeconds) * time.Second},
		"terminationGracePeriodSeconds": {registry.GracePeriod, time.Duration(values.TerminationGracePeriodSeconds) * time.Second},
	} {
		if pair[0] != pair[1] || pair[0] == 0 {
			t.Errorf("%s is %s in internal/migration/registry, and %s in values.yaml", name, pair[0], pair[1])
		}
	}
}
