package command

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/command/commandtest"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var update = flag.Bool("update", false, "write what the tests got into testdata")

// fakeEngine does the same for every command.
type fakeEngine struct {
	do func(ctx context.Context, command string, job migration.Job) *migration.Report
}

func (e *fakeEngine) Run(ctx context.Context, j migration.Job) *migration.Report {
	return e.do(ctx, cmdRun, j)
}

func (e *fakeEngine) Plan(ctx context.Context, j migration.Job) *migration.Report {
	return e.do(ctx, cmdPlan, j)
}

func (e *fakeEngine) Undo(ctx context.Context, j migration.Job) *migration.Report {
	return e.do(ctx, cmdUndo, j)
}

func (e *fakeEngine) CreateStateNamespace(ctx context.Context, j migration.Job) *migration.Report {
	return e.do(ctx, cmdCreateStateNamespace, j)
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: near
clusters:
- name: near
  cluster: {server: "https://near.example:6443"}
- name: far
  cluster: {server: "https://far.example:6443"}
contexts:
- name: near
  context: {cluster: near, user: me}
- name: far
  context: {cluster: far, user: me}
- name: broken
  context: {cluster: gone, user: me}
users:
- name: me
  user: {token: s3cret}
`

// tools has all that a Program may have: a tool for people, charts, and namespaces that are left
// out.
var tools = &Program{
	Names: migration.Names{Program: "hatters", Domain: "hatters.clothes.example"}, Version: "v1.2.3", Project: "clothes",
	Tool: "hat-tool", Charts: true, LeftOut: "the system namespaces", Kept: "are worn",
	Next: func(r *migration.Report, c present.Caller) []present.Step {
		s := present.StateOfJob(r, c)
		s.Selection = []string{"--job=" + r.Job}
		return present.Next(s)
	},
}

// trial is a process whose surroundings are the test's.
type trial struct {
	*process
	stdout, stderr bytes.Buffer
	env            map[string]string
	// command, config and options are what the engine got.
	command string
	config  *rest.Config
	options engine.Options
	// report is what the engine answers.
	report *migration.Report
}

func newTrial(t *testing.T, args ...string) *trial {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	writeFile(t, file, kubeconfig)
	tr := &trial{
		env:    map[string]string{"KUBECONFIG": file},
		report: &migration.Report{Job: "test-job", Command: "run", Result: migration.Succeeded, Message: "made 1 hat"},
	}
	tr.process = &process{
		program:        tools,
		IO:             IO{Args: args, Env: func(k string) string { return tr.env[k] }, Stdout: &tr.stdout, Stderr: &tr.stderr},
		job:            commandtest.New(),
		isTerminal:     func(io.Writer) bool { return false },
		inCluster:      func() (*rest.Config, error) { return nil, rest.ErrNotInCluster },
		terminationLog: filepath.Join(dir, "termination-log"),
	}
	tr.newEngine = func(cfg *rest.Config, o engine.Options) (runner, error) {
		tr.config, tr.options = cfg, o
		return &fakeEngine{do: func(_ context.Context, command string, _ migration.Job) *migration.Report {
			tr.command = command
			return tr.report
		}}, nil
	}
	return tr
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./internal/command -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
