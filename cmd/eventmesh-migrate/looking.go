package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/cli"
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager/landscape"
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager/support"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func (a *app) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify", Short: "List everything that is wrong with a finished migration", Args: noArguments,
		Long: `Look at the whole event path, from Applications to subscribers, and list everything
that is wrong with a migration that is supposed to be finished, each with the next
action and its page in the runbook. It only reads. Exit code 0: nothing is wrong
(warnings aside); 1: something is; 2: the namespace of -n does not exist.`,
		Example: "  {name} verify\n  {name} verify -n shop\n  {name} verify -o json",
		RunE: func(*cobra.Command, []string) error {
			return a.inspect(func(ctx context.Context, c *cli.Connection, e *engine.Engine) error {
				found, err := a.check(ctx, c, e)
				if err != nil {
					return err
				}
				if slices.ContainsFunc(found, func(d landscape.Defect) bool { return d.Severity == migration.Error }) {
					a.code = migration.ExitFailed
				}
				return a.writeDefects(c, found)
			})
		},
	}
	a.namespaceFlags(cmd)
	a.flags(cmd, []string{"table", formWide, formJSON, formYAML, formName}, a.ReadFlags())
	return cmd
}

func (a *app) check(ctx context.Context, c *cli.Connection, e *engine.Engine) ([]landscape.Defect, error) {
	l, err := landscape.Read(ctx, e.Cluster(), c.Options.ExcludeNamespaces)
	if err != nil {
		return nil, err
	}
	if err := a.existing(l); err != nil {
		return nil, err
	}
	if l.Left, err = landscape.ReadLeft(ctx, e.Cluster()); err != nil {
		return nil, err
	}
	kept, err := e.State(ctx)
	if err != nil {
		return nil, err
	}
	found := landscape.Check(l, kept, now())
	if a.namespace != "" {
		found = slices.DeleteFunc(found, func(d landscape.Defect) bool {
			return d.Namespace != a.namespace && d.Object != "Namespace "+a.namespace
		})
	}
	return found, nil
}

// existing refuses a namespace that is not there: of that, nothing could be wrong.
func (a *app) existing(l *landscape.Landscape) error {
	if a.namespace == "" || l.HasNamespace(a.namespace) {
		return nil
	}
	return &jobmanager.UsageError{Problem: fmt.Sprintf("--namespace %q: the cluster has no such namespace (see \"kubectl get namespaces\")", a.namespace)}
}

func (a *app) writeDefects(c *cli.Connection, found []landscape.Defect) error {
	switch a.output {
	case formJSON, formYAML:
		if found == nil {
			found = []landscape.Defect{}
		}
		return a.print(found)
	case formName:
		for _, d := range found {
			fmt.Fprintln(a.Stdout, d.ID)
		}
		return nil
	}
	if len(found) == 0 {
		fmt.Fprintln(a.Stdout, "Nothing is wrong.")
		return nil
	}
	errors := 0
	t := &table{}
	if a.output == formWide {
		t.row("SEVERITY", "DEFECT", "OBJECT", "PROBLEM", "WHAT TO DO", "PAGE")
	}
	for _, d := range found {
		if d.Severity == migration.Error {
			errors++
		}
		if a.output == formWide {
			t.row(string(d.Severity), d.ID, d.Object, d.Problem, d.Hint, d.Page)
			continue
		}
		problem := d.Problem
		if d.Object != "" {
			problem = d.Object + ": " + problem
		}
		mark := string(d.Severity)
		if code := colours[mark]; c.Color && code != "" {
			mark = "\x1b[" + code + "m" + mark + "\x1b[0m"
		}
		fmt.Fprintf(a.Stdout, "%s %s\n  %s\n  %s\n  %s\n", mark, d.ID, oneLine(problem), oneLine(d.Hint), d.Page)
	}
	if a.output == formWide {
		if err := t.write(a.Stdout, painter(c.Color)); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.Stdout, "\n%d errors, %d warnings.\n", errors, len(found)-errors)
	return nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func (a *app) mapCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "map", Short: "Show which event reaches whom, before and after", Args: noArguments,
		Long: `Show which event of which Application reaches which subscriber: before, by Kyma
Subscriptions of the Event Bus, and after, by Triggers of the mesh. It only reads.
-o html writes one page that needs nothing else, with a picture.`,
		Example: "  {name} map\n  {name} map -n shop -o mermaid\n  {name} map -o html --file events.html",
		RunE: func(*cobra.Command, []string) error {
			return a.inspect(func(ctx context.Context, c *cli.Connection, e *engine.Engine) error {
				l, err := landscape.Read(ctx, e.Cluster(), c.Options.ExcludeNamespaces)
				if err != nil {
					return err
				}
				if err := a.existing(l); err != nil {
					return err
				}
				return a.toFile(file, func(w io.Writer) error { return a.writeMap(w, landscape.MapOf(l, a.namespace), c) })
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` to write to; without it, stdout.")
	a.namespaceFlags(cmd)
	a.flags(cmd, []string{"table", "mermaid", "html", formJSON, formYAML}, a.ReadFlags())
	return cmd
}

func (a *app) writeMap(w io.Writer, m *landscape.Map, c *cli.Connection) error {
	switch a.output {
	case "mermaid":
		return m.WriteMermaid(w)
	case "html":
		return m.WriteHTML(w, c.Config.Host, now())
	case "table":
		return m.WriteTable(w)
	default:
		streams := *a.Tool
		streams.Stdout = w
		other := *a
		other.Tool = &streams
		return other.print(m)
	}
}

// toFile writes to a file that appears when it is complete, or to stdout.
func (a *app) toFile(name string, write func(io.Writer) error) error {
	if name == "" || name == "-" {
		return write(a.Stdout)
	}
	f, err := os.OpenFile(name+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(name+".part", name)
	}
	if err != nil {
		_ = os.Remove(name + ".part") // the error that matters is told
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	fmt.Fprintln(a.Stderr, "wrote "+name)
	return nil
}

func (a *app) diagnoseCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "diagnose", Short: "Write one archive for a support ticket, without secrets", Args: noArguments,
		Long: `Write one archive for a support ticket: what the jobs say, what they keep, what
verify finds, the map, and the objects of the event path with the Events of their
namespaces. It only reads. Secrets are not read; what looks like a secret elsewhere
(environment variables, parameters, tokens, passwords in URLs) is replaced. Look
through it all the same before you hand it on.`,
		Example: "  {name} diagnose\n  {name} diagnose --file ticket-4711.tar.gz",
		RunE: func(*cobra.Command, []string) error {
			c, err := a.connect(true)
			if err != nil {
				return err
			}
			name := "eventmesh-migrate-" + now().UTC().Format("20060102-150405")
			if file == "" {
				file = name + ".tar.gz"
			}
			return a.look(c, func(ctx context.Context) error {
				return a.toFile(file, func(w io.Writer) error { return a.archive(ctx, c, support.New(w, name, now())) })
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` to write; - for stdout. Default: a name with the time, here.")
	a.flags(cmd, nil, a.JobFlags(), a.ReadFlags())
	return cmd
}

// archive collects what there is; what cannot be had is noted, and is no reason to
// hand over nothing.
func (a *app) archive(ctx context.Context, c *cli.Connection, to *support.Archive) error {
	e, err := a.engine(c)
	if err != nil {
		return err
	}
	err = to.JSON("version.json", map[string]string{"version": cli.Version(), "kyma": Release, "server": c.Config.Host})
	add := func(name string, value any, failed error) {
		if failed != nil {
			to.Problem(name, failed)
		} else if err == nil {
			err = to.JSON(name, value)
		}
	}
	left, failed := landscape.ReadLeft(ctx, e.Cluster())
	if failed != nil {
		to.Problem("accountsLeft in status.json and verify.json", failed)
	}
	kept, failed := e.State(ctx)
	if failed == nil {
		add("status.json", a.statusOf(kept, left), nil)
		add("reports.json", kept.Reports, nil)
	} else {
		to.Problem("status.json", failed)
	}
	m, failed := a.manager(c, nil)
	if failed == nil {
		needs, unknown := m.Needs(ctx)
		rows, _ := jobRows(needs) // each error is in its row
		add("jobs.json", rows, unknown)
	} else {
		to.Problem("jobs.json", failed)
	}
	if l, failed := landscape.Read(ctx, e.Cluster(), c.Options.ExcludeNamespaces); failed != nil {
		to.Problem("verify.json and map.json", failed)
	} else {
		l.Left = left
		add("verify.json", landscape.Check(l, kept, now()), nil)
		add("map.json", landscape.MapOf(l, ""), nil)
	}
	if err == nil {
		err = to.Objects(ctx, e.Cluster())
	}
	if closed := to.Close(); err == nil {
		err = closed
	}
	return err
}
