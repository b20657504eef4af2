package command

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// planner is a job that plans when it is not told what to do.
type planner struct{ migration.Job }

func (planner) Name() string                                  { return "planner" }
func (planner) Doc() (string, string)                         { return "Plan", "" }
func (planner) DefaultCommand() string                        { return cmdPlan }
func (planner) Settings() []migration.Setting                 { return nil }
func (planner) Validate() error                               { return nil }
func (planner) Await(*migration.Change) []migration.Condition { return nil }

// recording says which command it was asked for.
type recording struct{ commands []string }

func (r *recording) report(command string) *migration.Report {
	r.commands = append(r.commands, command)
	return &migration.Report{Command: command, Result: migration.Planned}
}

func (r *recording) Run(context.Context, migration.Job) *migration.Report  { return r.report(cmdRun) }
func (r *recording) Plan(context.Context, migration.Job) *migration.Report { return r.report(cmdPlan) }
func (r *recording) Undo(context.Context, migration.Job) *migration.Report { return r.report(cmdUndo) }
func (r *recording) CreateStateNamespace(context.Context, migration.Job) *migration.Report {
	return r.report(cmdCreateStateNamespace)
}

func TestDefaultCommandIsTheJobs(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, cmdPlan},
		{[]string{"run"}, cmdRun},
		{[]string{"create-state-namespace", "--state-namespace=s"}, cmdCreateStateNamespace},
	} {
		var out bytes.Buffer
		engineOf := &recording{}
		p := &process{
			IO:         IO{Args: tc.args, Env: func(string) string { return "" }, Stdout: &out, Stderr: &out},
			program:    tools,
			job:        planner{},
			newEngine:  func(*rest.Config, engine.Options) (runner, error) { return engineOf, nil },
			inCluster:  func() (*rest.Config, error) { return &rest.Config{Host: "https://x"}, nil },
			isTerminal: frame.IsTerminal,
		}
		p.Env = func(name string) string { return map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}[name] }
		if code := p.main(); code != 0 || len(engineOf.commands) != 1 || engineOf.commands[0] != tc.want {
			t.Errorf("%q: exit code %d, commands %q; want %s\n%s", tc.args, code, engineOf.commands, tc.want, &out)
		}
	}
	if text := tools.help(planner{}, newCommandLine(tools, planner{})); strings.Contains(text, cmdCreateStateNamespace) {
		t.Error("the help names a command that only charts need")
	} else if !strings.Contains(text, "write nothing; the default") || strings.Contains(text, "are left; the default") {
		t.Errorf("the help does not say which command is the default:\n%s", text)
	}
}
