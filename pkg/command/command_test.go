package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/pkg/command"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// printed is what a call of the program has shown.
type printed struct {
	code           int
	stdout, stderr string
}

func call(o command.Options, args ...string) printed {
	return callOf(&tidy{label: "tidy"}, o, args...)
}

func callOf(job migration.Job, o command.Options, args ...string) printed {
	var out, err bytes.Buffer
	o.Args, o.Stdout, o.Stderr = append([]string{}, args...), &out, &err
	code := command.Run(job, o)
	return printed{code, out.String(), err.String()}
}

// answering is a job whose plan is what the test says. It reads before, so that what the API server
// has answered does not depend on what else has been read by then.
type answering struct {
	*tidy
	plan migration.Plan
	err  error
}

func (j answering) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	if _, err := c.Get(ctx, migration.Ref{Resource: configMaps, Namespace: "shop", Name: "orders"}); err != nil {
		return nil, err
	}
	return &j.plan, j.err
}

// ours are words of the programs in this repository, which an importer's program has nothing to do
// with.
var ours = regexp.MustCompile(`(?i:kyma|knative|event ?mesh|event ?bus|live events|system namespaces|application-connector|\bexplain\b|runbook)|Helm|helm upgrade`)

// notOurs fails for a word of ours.
func (p printed) notOurs(t *testing.T, args ...string) {
	t.Helper()
	for line := range strings.Lines(p.stdout + p.stderr) {
		if word := ours.FindString(line); word != "" {
			t.Errorf("%q prints %q, a word of ours:\n%s", args, word, line)
		}
	}
}

// TestProgram calls the program as its user does, on one cluster, one line after the other.
func TestProgram(t *testing.T) {
	env, end := shop()
	t.Cleanup(end)
	nowhere := func(string) string { return "" }
	for _, tc := range []struct {
		reason string
		args   []string
		env    func(string) string
		code   int
		// stdout and stderr are parts of what is shown.
		stdout, stderr []string
	}{
		{
			reason: "the help teaches with the names of the program", args: []string{"--help"},
			stdout: []string{
				"tidy: Label ConfigMaps.\n", "  tidy [run|plan|undo] [flags]\n", "  tidy plan --context my-cluster\n", "  - name: tidy\n    image: IMAGE\n",
				"Flags of tidy:\n      --label key   the key that each ConfigMap is to have. (default \"tidy\")\n", "--kubeconfig file", "--timeout duration", "--log-format",
				"same for every run on a cluster. (default \"tidy\")\n", "to leave out, separated by commas.\n", "\nExit codes:\n  0  ", "\n  128+n ",
			},
		},
		{reason: "the version is the program's", args: []string{"version"}, stdout: []string{"tidy v1.2.3 ("}},
		{reason: "a flag is the same", args: []string{"plan", "--version"}, stdout: []string{"tidy v1.2.3 ("}},
		{reason: "a script for the shell", args: []string{"completion", "bash"}, stdout: []string{"bash completion", "__start_tidy"}},
		{reason: "the shell asks for flags", args: []string{"__complete", "run", "--lab"}, stdout: []string{"--label"}},
		{
			reason: "each problem is named, with what was probably meant", args: []string{"plan", "--labl=x", "--output=xml"}, code: migration.ExitUsage,
			stderr: []string{"tidy: 2 problems:\n", "unknown flag: --labl; did you mean --label?\n", "must be text, wide, json, yaml or name", `"tidy --help" explains every flag`},
		},
		{reason: "the job's own settings are checked", args: []string{"plan", "--label=A B"}, code: migration.ExitUsage, stderr: []string{`tidy: --label "A B" is not the name of a label`}},
		{reason: "no cluster is given", args: []string{"plan"}, env: nowhere, code: migration.ExitUsage, stderr: []string{"tidy: no cluster is given: this is not a Pod"}},
		{reason: "commands of charts are not the program's", args: []string{"create-state-namespace"}, code: migration.ExitUsage, stderr: []string{`"create-state-namespace": unknown command`}},
		{reason: "and their flags neither", args: []string{"--helm-timeout=1m"}, code: migration.ExitUsage, stderr: []string{"unknown flag: --helm-timeout"}},

		{
			reason: "a plan says what is next, with the flags that were given", args: []string{"plan", "--label=tidy", "--context=here"},
			stdout: []string{"tidy plan: planned on http://", "1 patch ConfigMap", "\nNext: Make these changes:\n  tidy run --label=tidy --context=here\n"},
			stderr: []string{`"message":"tidy plan: Label ConfigMaps. This only shows the changes, and writes nothing"`, `"version":"v1.2.3"`},
		},
		{reason: "each change", args: []string{"plan", "-o=wide"}, stdout: []string{"1. patch ConfigMap shop/orders (can be undone)\n   it has no label\n"}},
		{reason: "names for kubectl", args: []string{"plan", "-o=name"}, stdout: []string{"configmap/orders --namespace=shop\n"}},
		{reason: "a plan has written nothing, so that a run has it to do", args: []string{"run", "-o=json"}, stdout: []string{`"job": "tidy"`, `"result": "succeeded"`}},
		{
			reason: "a second run has nothing to do, without a command too",
			stdout: []string{"tidy run: nothing-to-do on http://", "\nNext: See whether anything is left to change:\n  tidy plan\n"},
		},
		{reason: "nothing is next when nothing is left", args: []string{"plan", "-q"}, stdout: []string{"There is nothing to do.\n  tidy  planned\n"}},
		{reason: "an undo", args: []string{"undo"}, stdout: []string{"tidy undo: succeeded", "Next: See what a run would change now:\n  tidy plan\n"}, stderr: []string{"except objects that were edited since. Time limit 15m"}},
		{reason: "the undo has restored it", args: []string{"plan", "-o=yaml"}, stdout: []string{"job: tidy\n", "message: a run would make 1 change\n"}},
		{reason: "no run is left to undo", args: []string{"undo"}, code: migration.ExitOK, stdout: []string{"tidy undo: nothing-to-do"}},
	} {
		o := command.Options{Version: "v1.2.3", Env: env}
		if tc.env != nil {
			o.Env = tc.env
		}
		got := call(o, tc.args...)
		if got.code != tc.code {
			t.Errorf("%s: %q: exit code %d, want %d:\n%s%s", tc.reason, tc.args, got.code, tc.code, got.stdout, got.stderr)
		}
		for _, part := range []struct {
			stream, text string
			want         []string
		}{{"stdout", got.stdout, tc.stdout}, {"stderr", got.stderr, tc.stderr}} {
			for _, want := range part.want {
				if !strings.Contains(part.text, want) {
					t.Errorf("%s: %q: no %q on %s:\n%s", tc.reason, tc.args, want, part.stream, part.text)
				}
			}
		}
		got.notOurs(t, tc.args...)
	}
}

// TestFailures: an importer's program leads to its own next command, and to nothing that it lacks.
func TestFailures(t *testing.T) {
	env, end := shop()
	t.Cleanup(end)
	odd := migration.Finding{ID: "shop-closed", Severity: migration.Error, Object: "Namespace shop", Problem: "is closed", Command: "tidy plan --label=open"}
	for _, tc := range []struct {
		reason string
		job    answering
		args   []string
		code   int
		stdout []string
	}{
		{
			"the job refuses", answering{plan: migration.Plan{Findings: []migration.Finding{odd}}}, []string{"run", "--context=here"}, migration.ExitRefused,
			[]string{
				"tidy run: refused on http://", "shop-closed (Namespace shop): is closed\n    tidy plan --label=open --context=here\n",
				"Exit code 4: refused before the first change: the report names why.\nNext: Fix the error above, shop-closed (Namespace shop). Then run again:\n  tidy run --context=here\n",
			},
		},
		{
			"the job fails", answering{err: errors.New("cannot count: the shop is too large")}, []string{"plan"}, migration.ExitFailed,
			[]string{"tidy plan: failed on http://", "cannot count: the shop is too large", "Exit code 1: failed", "\nNext: Fix the error above, api-server-trouble:\n  kubectl get --raw '/readyz?verbose'\nThen plan again:\n  tidy plan\n"},
		},
		{
			"all of it with -o wide", answering{plan: migration.Plan{Findings: []migration.Finding{odd}}}, []string{"run", "-o=wide"}, migration.ExitRefused,
			[]string{"tidy run: refused\n", "Errors (1):\n  Namespace shop: is closed\n", "Exit code 4: refused before the first change: the report names why.\n"},
		},
	} {
		tc.job.tidy = &tidy{label: "tidy"}
		got := callOf(tc.job, command.Options{Env: env}, tc.args...)
		if got.code != tc.code {
			t.Errorf("%s: exit code %d, want %d", tc.reason, got.code, tc.code)
		}
		for _, want := range tc.stdout {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%s: no %q on stdout:\n%s", tc.reason, want, got.stdout)
			}
		}
		got.notOurs(t, tc.args...)
	}
}

// TestForms: json and yaml are one complete object, and the same.
func TestForms(t *testing.T) {
	env, end := shop()
	t.Cleanup(end)
	var reports [2]migration.Report
	for i, form := range []string{"json", "yaml"} {
		got := call(command.Options{Env: env}, "plan", "--output="+form)
		asJSON, err := yaml.YAMLToJSONStrict([]byte(got.stdout))
		if err := errors.Join(err, json.Unmarshal(asJSON, &reports[i])); err != nil {
			t.Fatalf("%s: %v:\n%s", form, err, got.stdout)
		}
	}
	for _, r := range reports {
		if r.Job != "tidy" || r.Command != "plan" || r.Result != migration.Planned || len(r.Changes) != 1 {
			t.Errorf("%+v", r)
		}
	}
}

// TestExitCodesOfTheHelp: codes that no command ends with are not in the help.
func TestExitCodesOfTheHelp(t *testing.T) {
	_, codes, _ := strings.Cut(call(command.Options{}, "--help").stdout, "Exit codes:\n")
	for _, c := range migration.ExitCodes() {
		want := c.Code != migration.ExitFindings && c.Code != migration.ExitNotChecked
		if got := strings.Contains(codes, "  "+c.String()+" "); got != want {
			t.Errorf("code %s in the help: %t, want %t:\n%s", c, got, want, codes)
		}
	}
}

// TestNames: the names are the program's, or those of the job.
func TestNames(t *testing.T) {
	for _, tc := range []struct {
		reason string
		names  migration.Names
		code   int
		want   string
	}{
		{"those of the job", migration.Names{}, migration.ExitOK, `(default "tidy")`},
		{"jobs of one project share a lock", migration.Names{Program: "shop-tools"}, migration.ExitOK, `(default "shop-tools")`},
		{"a name that cannot be that of a Lease", migration.Names{Program: "Shop Tools"}, migration.ExitUsage, `tidy: the name "Shop Tools" of the program is no DNS label`},
		{"a domain that cannot begin a label", migration.Names{Domain: "shop/tools"}, migration.ExitUsage, `tidy: the domain "shop/tools" of the program is no DNS subdomain`},
	} {
		got := call(command.Options{Names: tc.names}, "--help")
		if got.code != tc.code || !strings.Contains(strings.Join(strings.Fields(got.stdout+got.stderr), " "), tc.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", tc.reason, got.code, tc.code, tc.want, got.stdout, got.stderr)
		}
	}
}
