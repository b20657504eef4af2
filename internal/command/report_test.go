package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/command/commandtest"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func hat(result, name, message string) migration.ChangeReport {
	return migration.ChangeReport{
		Verb: migration.Create, Kind: "Hat", APIVersion: "clothes.example/v1", Namespace: "wardrobe", Name: name,
		Result: result, Seconds: 1.25, Message: message,
	}
}

// partlyRestored is a report with something of everything.
func partlyRestored() *migration.Report {
	r := &migration.Report{
		Job: "test-job", Command: "run", Run: "2b7", Result: migration.PartlyRestored,
		Message:   "1 hat did not fit, and 1 hat could not be taken off again",
		StartedAt: time.Date(2020, 3, 1, 12, 0, 0, 0, time.UTC), Seconds: 12.34,
		Requests: migration.Requests{Reads: 40, Writes: 31},
		Findings: []migration.Finding{
			{Severity: migration.Info, Object: "Application plain", Problem: "has a hat already"},
			{Severity: migration.Error, Object: "Hat wardrobe/large", Problem: "was not ready within 2m: too large", Hint: "make it smaller, then run again"},
			{Severity: migration.Warning, Problem: "hats are out of fashion"},
			{Severity: migration.Deferred, Object: "Application bald", Problem: "waits for its head", Hint: "run again when it is there"},
			{Severity: migration.Error, Object: "Hat wardrobe/glued", Problem: "cannot be deleted: <forbidden>", Hint: "delete it by hand"},
		},
	}
	for i := range 25 {
		r.Changes = append(r.Changes, hat(migration.ChangeRolledBack, fmt.Sprintf("hat-%02d", i), ""))
	}
	r.Changes = append(r.Changes,
		hat(migration.ChangeFailed, "large", "not ready:\n  too large"),
		hat(migration.ChangeProtected, "worn", "carries live events"),
		hat(migration.ChangeNotRestored, "glued", "forbidden"),
		migration.ChangeReport{Verb: migration.Create, Kind: "Hat", APIVersion: "clothes.example/v1", Name: "later", Result: migration.ChangeNotStarted},
	)
	return r
}

func TestReports(t *testing.T) {
	resource := migration.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "clothes.example", Version: "v1", Resource: "hats"}, Kind: "Hat",
	}
	planned := func(verb migration.Verb, name string, r migration.Reversible, why string, c migration.Change) migration.ChangeReport {
		c.Verb, c.Ref = verb, migration.Ref{Resource: resource, Namespace: "wardrobe", Name: name}
		return migration.ChangeReport{
			Verb: verb, Kind: "Hat", APIVersion: "clothes.example/v1", Namespace: "wardrobe", Name: name, Reversible: r, Message: why, Change: &c,
		}
	}
	hat := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clothes.example/v1", "kind": "Hat",
		"metadata": map[string]any{"namespace": "wardrobe", "name": "new"}, "spec": map[string]any{"size": int64(56)},
	}}

	for name, tc := range map[string]struct {
		reason string
		args   []string
		pod    bool
		report *migration.Report
		golden string
	}{
		"Text": {
			reason: "a summary, what needs a person, and the next command",
			report: partlyRestored(), golden: "partly-restored.txt.golden",
		},
		"Pod": {
			reason: "in a Pod nobody adds a flag, and Helm has the next command", pod: true,
			report: partlyRestored(), golden: "partly-restored.pod.golden",
		},
		"Wide": {
			reason: "the worst comes first, and nothing is left out", args: []string{"-o=wide"},
			report: partlyRestored(), golden: "partly-restored.wide.golden",
		},
		"JSON": {
			reason: "the object of the contract, complete", args: []string{"--output=json"},
			report: partlyRestored(), golden: "partly-restored.json.golden",
		},
		"NothingToDo": {
			reason: "a short report for a short run",
			report: &migration.Report{
				Job: "test-job", Command: "run", Result: migration.NothingToDo, Message: "every Application has its hat",
				Seconds: 0.4, Requests: migration.Requests{Reads: 6},
			},
			golden: "nothing-to-do.txt.golden",
		},
		"EmptyJSON": {
			reason: "readers find lists, never null", args: []string{"--output=json"},
			report: &migration.Report{Job: "test-job", Command: "run", Result: migration.NothingToDo},
			golden: "empty.json.golden",
		},
		"Plan": {
			reason: "each change, and what it would write", args: []string{"plan", "-o=wide"},
			report: &migration.Report{
				Job: "test-job", Command: "plan", Result: migration.Planned, Message: "a run would make 6 changes", Requests: migration.Requests{Reads: 6},
				Changes: []migration.ChangeReport{
					planned(migration.Create, "new", migration.ReversibleYes, "Application new has none", migration.Change{Object: hat}),
					becoming(planned(migration.Create, "new", migration.ReversibleYes, "Cap old is out of fashion", migration.Change{Object: hat})),
					planned(migration.Patch, "old", migration.ReversibleYes, "it is grey", migration.Change{Patch: json.RawMessage(`{"spec":{"colour":"red"}}`)}),
					planned(migration.Delete, "torn", migration.ReversibleNewUID, "nobody wears it", migration.Change{}),
					planned(migration.Recreate, "torn", migration.ReversibleNewUID, "from its pre-image", migration.Change{Object: hat}),
					planned(migration.Restart, "resumed", migration.ReversibleNo, "", migration.Change{}),
					planned(migration.Await, "worn", "", "", migration.Change{}),
				},
				Findings: []migration.Finding{{Severity: migration.Warning, Object: "Hat wardrobe/old", Problem: "the colour may run"}},
			},
			golden: "plan.wide.golden",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, tc.args...)
			tr.report = tc.report
			if tc.pod {
				tr.env = map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
				tr.inCluster = func() (*rest.Config, error) { return &rest.Config{Host: "https://10.96.0.1:443"}, nil }
			}
			if code := tr.main(); code != tc.report.ExitCode() {
				t.Errorf("%s: exit code %d, want %d", tc.reason, code, tc.report.ExitCode())
			}
			golden(t, tc.golden, tr.stdout.String())
		})
	}
}

func becoming(c migration.ChangeReport) migration.ChangeReport {
	c.Replaces = &migration.Replacement{Of: "Cap wardrobe/old", Fields: []migration.FieldMapping{
		{From: "spec.size: 58", To: "spec.brim.circumference: 58"},
		{From: "spec.peak: true"},
		{To: "spec.band: silk"},
	}}
	return c
}

func TestExitCodes(t *testing.T) {
	for result, tc := range map[migration.Result]struct {
		code int
		want string
	}{
		migration.Succeeded:      {0, "Made 1 hat"},
		migration.NothingToDo:    {0, "test-job run: nothing-to-do"},
		migration.DeferredResult: {0, "hat-tool explain deferred"},
		migration.FailedResult:   {1, "hat-tool explain exit-1"},
		migration.RolledBack:     {1, "hat-tool explain exit-1"},
		migration.PartlyRestored: {3, "hat-tool explain exit-3"},
		migration.Refused:        {4, "hat-tool explain exit-4"},
		migration.Locked:         {5, "hat-tool explain exit-5"},
		migration.TimedOut:       {124, "hat-tool explain exit-124"},
		migration.Interrupted:    {143, "Exit code 143: interrupted by SIGTERM"},
	} {
		t.Run(string(result), func(t *testing.T) {
			tr := newTrial(t)
			writeFile(t, tr.terminationLog, "old and much longer than what comes now"+strings.Repeat(".", 2000))
			tr.report.Result, tr.report.Signal = result, int(syscall.SIGTERM)
			if code := tr.main(); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !strings.Contains(tr.stdout.String(), tc.want) {
				t.Errorf("no %q in the report:\n%s", tc.want, &tr.stdout)
			}
			want := fmt.Sprintf("test-job run: %s (exit code %d). made 1 hat\n", result, tc.code)
			if got := readFile(t, tr.terminationLog); !strings.HasPrefix(got, want) || strings.Contains(got, "old and") {
				t.Errorf("the termination message should start with %q, is:\n%s", want, got)
			}
		})
	}
}

func TestTerminationMessageIsBounded(t *testing.T) {
	r := partlyRestored()
	for range 300 {
		r.Findings = append(r.Findings, migration.Finding{Severity: migration.Warning, Problem: strings.Repeat("ö", 50)})
	}
	tr := newTrial(t)
	writeFile(t, tr.terminationLog, "")
	tr.report = r
	tr.main()
	got := readFile(t, tr.terminationLog)
	if len(got) > 4096 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…\n") {
		t.Errorf("%d bytes, valid UTF-8: %t; the kubelet keeps 4096:\n%s", len(got), utf8.ValidString(got), got)
	}
	for _, want := range []string{"hat-tool explain exit-3", "error: Hat wardrobe/glued: cannot be deleted"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

// TestProgramOfOneJob: in a Pod, a program without a tool leads to its own ConfigMap, and to no
// command that it does not have.
func TestProgramOfOneJob(t *testing.T) {
	tr := newTrial(t)
	writeFile(t, tr.terminationLog, "")
	tr.program = &Program{Names: migration.Names{Program: "hats"}, Version: "v1"}
	tr.env = map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	tr.inCluster = func() (*rest.Config, error) { return &rest.Config{Host: "https://10.96.0.1:443"}, nil }
	tr.report = partlyRestored()
	for i := range 20 {
		tr.report.Findings = append(tr.report.Findings, migration.Finding{Severity: migration.Error, ID: fmt.Sprintf("odd-%d", i), Object: "Hat a/b", Problem: strings.Repeat("odd ", 2000)})
	}
	tr.main()
	if want := "The full list: ConfigMap hats-test-job in namespace hats\n"; !strings.Contains(tr.stdout.String(), want) {
		t.Errorf("no %q in:\n%s", want, &tr.stdout)
	}
	for _, text := range []string{tr.stdout.String(), readFile(t, tr.terminationLog)} {
		if strings.Contains(strings.ToLower(text), "what to do:") || strings.Contains(text, "explain") {
			t.Errorf("it leads to a command that does not exist:\n%s", text)
		}
	}
	if ua := tr.config.UserAgent; !strings.HasPrefix(ua, "test-job/v1 (") || !strings.HasSuffix(ua, ")") {
		t.Errorf("the user agent is %q", ua)
	}
	if grant := tr.options.Grant; grant != "" {
		t.Errorf("findings about permissions name %q", grant)
	}
	if got, want := tr.options.Undo("test-job"), "test-job undo"; got != want {
		t.Errorf("undo is %q, want %q", got, want)
	}
}

// protector is a job whose objects may have to stay.
type protector struct {
	*commandtest.Hats
	migration.Protector
}

// TestUndoSaysWhatItLeaves: nobody waits for an undo to remove what it leaves.
func TestUndoSaysWhatItLeaves(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		program *Program
		job     migration.Job
		want    string
	}{
		{"the words of the program", tools, commandtest.New(), "objects that were edited since or are worn. Time limit"},
		{"the job protects objects", &Program{Names: tools.Names}, protector{Hats: commandtest.New()}, "objects that were edited since or are protected. Time limit"},
		{"nothing else stays", &Program{Names: tools.Names}, commandtest.New(), "objects that were edited since. Time limit"},
	} {
		tr := newTrial(t, "undo")
		tr.program, tr.job = tc.program, tc.job
		tr.main()
		if !strings.Contains(tr.stderr.String(), tc.want) {
			t.Errorf("%s: no %q in:\n%s", tc.reason, tc.want, &tr.stderr)
		}
	}
}

func TestNoTerminationLog(t *testing.T) {
	tr := newTrial(t)
	tr.main()
	if _, err := os.Stat(tr.terminationLog); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made where there was none, outside of a Pod: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestReportThatCannotBeWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		command string
		result  migration.Result
		want    int
	}{
		"Plan": {"a plan nobody can read has failed", cmdPlan, migration.Planned, 1},
		"Run":  {"the code says what became of the cluster", cmdRun, migration.Succeeded, 0},
		"Worse": {
			"no other failure hides that something is not restored", cmdRun, migration.PartlyRestored, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, tc.command)
			tr.Stdout = brokenWriter{}
			tr.report.Command, tr.report.Result = tc.command, tc.result
			if code := tr.main(); code != tc.want {
				t.Errorf("%s: exit code %d, want %d", tc.reason, code, tc.want)
			}
			if !strings.Contains(tr.stderr.String(), "cannot write the report to stdout") {
				t.Errorf("%s: not said on stderr:\n%s", tc.reason, &tr.stderr)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		want   int
	}{
		{"what a run had done is not restored; 2, which Go exits with, means usage", nil, 3},
		{"a plan has changed nothing", []string{"plan"}, 1},
	} {
		tr := newTrial(t, tc.args...)
		tr.newEngine = func(*rest.Config, engine.Options) (runner, error) {
			return &fakeEngine{do: func(context.Context, string, migration.Job) *migration.Report { panic("no head") }}, nil
		}
		if code := tr.main(); code != tc.want {
			t.Errorf("%s: exit code %d, want %d", tc.reason, code, tc.want)
		}
		if out := tr.stdout.String(); !strings.Contains(out, "bug: no head") {
			t.Errorf("%s: the report does not tell:\n%s", tc.reason, out)
		}
		if log := tr.stderr.String(); !strings.Contains(log, "report_test.go") {
			t.Errorf("%s: the log does not hold the stack:\n%s", tc.reason, log)
		}
	}
}

// TestPlanShowsNoSecret fails on the commit before: the object of a creation was shown
// as it is.
func TestPlanShowsNoSecret(t *testing.T) {
	trigger := &unstructured.Unstructured{Object: map[string]any{"kind": "Trigger", "spec": map[string]any{
		"subscriber": map[string]any{"uri": "http://me:hunter2@fn.shop:8080/?code=hunter2"},
	}}}
	create := &migration.Change{Verb: migration.Create, Object: trigger}
	patch := &migration.Change{Verb: migration.Patch, Patch: json.RawMessage(`{"spec":{"uri":"http://fn.shop/?code=hunter2"}}`)}
	var b bytes.Buffer
	r := &migration.Report{Job: "test-job", Command: cmdPlan, Result: migration.Planned, Changes: []migration.ChangeReport{
		{Verb: migration.Create, Kind: "Trigger", Name: "x", Change: create}, {Verb: migration.Patch, Kind: "Trigger", Name: "x", Change: patch},
	}}
	if err := tools.WriteWide(&b, r); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Contains(got, "hunter2") || !strings.Contains(got, "uri: http://fn.shop:8080/?code=…") || !strings.Contains(got, "uri: http://fn.shop/?code=…") {
		t.Error(got)
	}
}

func TestManyFindings(t *testing.T) {
	var b bytes.Buffer
	r := &migration.Report{Job: "test-job", Command: "run", Result: migration.Refused}
	for i := range 60 {
		r.Findings = append(r.Findings,
			migration.Finding{Severity: migration.Error, Object: fmt.Sprintf("Hat e%02d", i), Problem: "bad"},
			migration.Finding{Severity: migration.Info, Object: fmt.Sprintf("Hat i%02d", i), Problem: "good"})
	}
	if short := tools.Text(r, "https://near.example:6443", present.Options{}); strings.Count(short, "\n") > present.DefaultLines {
		t.Errorf("more than %d lines:\n%s", present.DefaultLines, short)
	}
	if err := tools.WriteWide(&b, r); err != nil {
		t.Fatal(err)
	}
	for want, reason := range map[string]string{
		"Hat e59: bad":  "one bad object never hides another",
		"Hat i59: good": "nor does information",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: no %q in:\n%s", reason, want, &b)
		}
	}
}
