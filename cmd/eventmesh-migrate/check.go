package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/check"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/nextstep"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func checkCommand(a *app) *cobra.Command {
	role := false
	cmd := &cobra.Command{
		Use: "check", Short: "Check everything that can be known before a run", Args: frame.NoArguments,
		Long: `Check the connection, the served kinds, all permissions, other runs, the webhooks, NATS
Streaming, and what would block the jobs. Show how long the jobs may take. It writes
nothing. What this account may not read is named, and the rest is checked.
--role prints the Role that this account needs, to be applied by an administrator.
Exit code 0: a run can begin. 6: there are errors. 7: the cluster could not be read.`,
		Example: "  {name} check\n  {name} check -o wide\n  {name} check --role > role.yaml",
		RunE: func(*cobra.Command, []string) error {
			return a.inspect(func(ctx context.Context, c *command.Connection, e *engine.Engine) error {
				if role {
					return writeRole(ctx, a, c, e)
				}
				m, err := a.manager(c, nil)
				if err != nil {
					return err
				}
				found, err := check.Run(ctx, check.Subject{
					Engine: e, Jobs: a.jobs, StateNamespace: c.Options.StateNamespace, Needs: m.Needs, HelmTimeout: helmTimeout,
				})
				if err != nil {
					return err
				}
				found.Server, found.Context, found.User = c.Config.Host, c.Context, c.User
				if found.Kubernetes, err = kubernetesVersion(c); err != nil {
					return err
				}
				if found.Errors() {
					a.code = migration.ExitFindings
				}
				return writeCheck(a, c, found)
			})
		},
	}
	cmd.Flags().BoolVar(&role, "role", false, "print only the Role that this account needs, with its bindings.")
	a.flags(cmd, []string{formText, formWide, formJSON, formYAML, formName}, a.JobFlags(), a.ReadFlags())
	return cmd
}

// writeRole prints what the account needs on this cluster, and the state namespace, which a Role
// needs.
func writeRole(ctx context.Context, a *app, c *command.Connection, e *engine.Engine) error {
	rows, err := check.NeededHere(ctx, e, a.jobs, c.Options.StateNamespace)
	if err != nil {
		return err
	}
	text, err := check.Role(rows, c.User)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "# What %s needs to run %s.\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n%s", c.User, program, c.Options.StateNamespace, text)
	return err
}

// helmTimeout is what a job and Helm need, in the form of check.Subject.
func helmTimeout(job string, own time.Duration) (timeout, helm time.Duration) {
	for _, e := range registry.All() {
		if e.Name() == job && e.Chart != nil && e.Chart.Gate == nil {
			timeout = max(e.Chart.Timeout, own)
			return timeout, e.Chart.HelmTimeout(timeout)
		}
	}
	return 0, 0
}

// objects are those of the findings, as arguments of kubectl. A finding about the whole cluster,
// or about a job, has none.
func objects(r *check.Result) []string {
	groups := map[string]string{}
	for _, k := range r.Kinds {
		if k.Kind != kyma.Service.Kind { // most Services are those of Kubernetes
			groups[k.Kind] = cmp.Or(groups[k.Kind], k.Group)
		}
	}
	var names []string
	for _, f := range r.Findings {
		kind, path, found := strings.Cut(f.Object, " ")
		if !found || !unicode.IsUpper([]rune(kind)[0]) || strings.Contains(path, " ") {
			continue
		}
		namespace, name, namespaced := strings.Cut(path, "/")
		if !namespaced {
			namespace, name = "", path
		}
		names = append(names, frame.KubectlName(groups[kind], kind, namespace, name))
	}
	return names
}

func kubernetesVersion(c *command.Connection) (string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return "", err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("cannot read the version of Kubernetes: %w", err)
	}
	return version.GitVersion, nil
}

func writeCheck(a *app, c *command.Connection, r *check.Result) error {
	switch a.output {
	case formJSON, formYAML:
		return a.print(r)
	case formName:
		return frame.WriteNames(a.Stdout, objects(r))
	case formWide:
		t := &frame.Table{}
		t.Row("KIND", "GROUP", "VERSION", "COMPONENT")
		for _, k := range r.Kinds {
			t.Row(k.Kind, k.Group, cmp.Or(k.Version, "not served"), k.Component)
		}
		if err := t.Write(a.Stdout, painter(c.Color)); err != nil {
			return err
		}
		for _, permission := range r.Missing {
			fmt.Fprintln(a.Stdout, "missing permission: "+permission)
		}
		for i := range r.Findings {
			f := &r.Findings[i]
			fmt.Fprintf(a.Stdout, "%s: %s: %s\n", f.Severity, f.ID, f)
		}
		fmt.Fprintln(a.Stdout)
	}
	_, err := io.WriteString(a.Stdout, painter(c.Color)(textOf(a, c).checked(r)))
	return err
}

// checked is the result of check for people.
func (t text) checked(r *check.Result) string {
	state := nextstep.State{Caller: t.caller, Command: "check", ExitCode: t.code, Findings: present.Of(r.Findings)}
	head := []string{
		fmt.Sprintf("Check of %s: %s Nothing was written.", t.cluster, totals(state.Findings)),
		"  User         " + r.User,
		"  Kubernetes   " + r.Kubernetes,
	}
	var served, absent []string
	for _, k := range r.Kinds {
		if k.Version == "" {
			absent = append(absent, k.Kind)
			continue
		}
		served = append(served, k.Kind+" "+k.Version)
	}
	for _, kinds := range []struct {
		title string
		list  []string
	}{{"Kinds", served}, {"Not served", absent}} {
		for i, line := range frame.Wrap(strings.Join(kinds.list, ", "), max(40, t.width-15)) {
			if i > 0 {
				kinds.title = ""
			}
			head = append(head, fmt.Sprintf("  %-11s  %s", kinds.title, line))
		}
	}
	permissions := "all are given"
	if n := len(r.Missing); n > 0 {
		permissions = "missing: " + migration.Number(n)
	}
	head = append(head, "  Permissions  "+permissions)
	rows := [][]string{{"  JOB", "TIME LIMIT", "HELM --timeout", "NEEDED"}}
	for _, j := range r.Jobs {
		if j.Timeout > 0 {
			needed := cmp.Or(string(j.Needed), "not checked")
			if j.Needed == jobmanager.Needed {
				needed = j.Reason
			}
			rows = append(rows, []string{"  " + j.Name, seconds(j.Timeout), seconds(j.HelmTimeout), needed})
		}
	}
	if len(rows) > 1 {
		head = append(append(head, ""), frame.Columns(rows, t.width)...)
	}
	return present.Findings(head, state.Findings, t.options(state))
}

func seconds(s float64) string { return fmt.Sprintf("%.0fs", s) }
