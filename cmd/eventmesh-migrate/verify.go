package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func verifyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify", Short: "List everything that is wrong after a migration", Args: frame.NoArguments,
		Long: `Check the whole event path, from Applications to subscribers, after the migration.
Each finding has the next action and its place in the runbook. It only reads. Exit
code 0: no errors (there may be warnings). 6: errors. 7: the cluster could not be
read. 2: the namespace of -n does not exist.`,
		Example: "  {name} verify\n  {name} verify -n shop\n  {name} verify -o json",
		RunE: func(*cobra.Command, []string) error {
			return a.inspect(func(ctx context.Context, c *command.Connection, e *engine.Engine) error {
				found, err := a.check(ctx, c, e)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(found, func(d verify.Finding) bool { return d.Severity == migration.Error }) {
					a.code = migration.ExitFindings
				}
				var plan *jobmanager.Report
				if a.output == "table" && len(found) > 0 {
					plan = wouldDo(ctx, a, c)
				}
				return a.writeFindings(c, found, plan)
			})
		},
	}
	a.namespaceFlags(cmd)
	a.flags(cmd, []string{"table", formWide, formJSON, formYAML, formName}, a.ReadFlags())
	return cmd
}

func (a *app) check(ctx context.Context, c *command.Connection, e *engine.Engine) ([]verify.Finding, error) {
	in, err := inventory.Read(ctx, e.Cluster(), c.Options.ExcludeNamespaces)
	if err != nil {
		return nil, err
	}
	if err := a.existing(in); err != nil {
		return nil, err
	}
	accounts, err := verify.ReadAccountsLeft(ctx, e.Cluster())
	if err != nil {
		return nil, err
	}
	kept, err := e.State(ctx)
	if err != nil {
		return nil, err
	}
	found := verify.Check(in, accounts, kept, now())
	if a.namespace != "" {
		found = slices.DeleteFunc(found, func(d verify.Finding) bool {
			return d.Namespace != a.namespace && d.Object != "Namespace "+a.namespace
		})
	}
	return found, nil
}

// wouldDo is what a run would do now, for the next command; nil if that cannot be known.
func wouldDo(ctx context.Context, a *app, c *command.Connection) *jobmanager.Report {
	m, err := a.manager(c, nil)
	if err != nil {
		return nil
	}
	plan, _ := m.Plan(ctx, jobmanager.Selection{}) // the plan has the errors of its jobs
	return plan
}

// existing refuses a namespace that does not exist: nothing would be wrong with it.
func (a *app) existing(in *inventory.Inventory) error {
	if a.namespace == "" || in.HasNamespace(a.namespace) {
		return nil
	}
	return unknownNamespace(a.namespace)
}

func unknownNamespace(name string) error {
	return &jobmanager.UsageError{Problem: fmt.Sprintf("--namespace %q: the cluster has no such namespace (see \"kubectl get namespaces\")", name)}
}

func (a *app) writeFindings(c *command.Connection, found []verify.Finding, plan *jobmanager.Report) error {
	switch a.output {
	case formJSON, formYAML:
		if found == nil {
			found = []verify.Finding{}
		}
		return a.print(struct {
			place
			Findings []verify.Finding `json:"findings"`
		}{placeOf(c), found})
	case formName:
		var names []string
		for _, d := range found {
			kind, name, found := strings.Cut(d.Object, " ")
			if found { // others are about the whole cluster
				names = append(names, frame.KubectlName(d.Group, kind, d.Namespace, strings.TrimPrefix(name, d.Namespace+"/")))
			}
		}
		return frame.WriteNames(a.Stdout, names)
	}
	if a.output != formWide {
		_, err := io.WriteString(a.Stdout, painter(c.Color)(textOf(a, c).verified(found, plan)))
		return err
	}
	fmt.Fprintln(a.Stdout, textOf(a, c).heading())
	t := &frame.Table{}
	t.Row("SEVERITY", "FINDING", "OBJECT", "PROBLEM", "WHAT TO DO", "EXPLAIN")
	errors := 0
	for _, d := range found {
		if d.Severity == migration.Error {
			errors++
		}
		t.Row(string(d.Severity), d.ID, d.Object, d.Problem, d.Hint, textOf(a, c).caller.Explain(d.ID))
	}
	if err := t.Write(a.Stdout, painter(c.Color)); err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "\n%s, %s.\n", migration.Count(errors, "error"), migration.Count(len(found)-errors, "warning"))
	return nil
}
