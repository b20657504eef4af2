package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/diagnose"
	"github.com/kyma-project/eventmesh-migration/internal/migration/eventmap"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/internal/version"
)

func diagnoseCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "diagnose", Short: "Write one archive for a support ticket, without secrets", Args: frame.NoArguments,
		Long: `Write one archive for a support ticket. It has the plans and reports of the jobs, the
findings of verify, and the map. It also has the objects of the event path, with the
Events of their namespaces. It only reads. It does not read Secrets. What looks like a secret
elsewhere (environment variables, parameters, tokens, passwords in URLs) is replaced.
Check the archive yourself before you send it. -o wide, json and yaml name what could
not be collected. -o name prints the name of the file.`,
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
				var missing []string
				err := a.toFile(file, func(w io.Writer) error {
					archive := diagnose.New(w, name, now())
					failed := a.archive(ctx, c, archive)
					missing = archive.Missing()
					return failed
				})
				if err != nil {
					return err
				}
				return a.writeArchived(c, file, missing)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` to write; - for stdout. Default: eventmesh-migrate-TIME.tar.gz in the current folder.")
	a.flags(cmd, []string{formText, formWide, formJSON, formYAML, formName}, a.JobFlags(), a.ReadFlags())
	a.common.Checks.Add(cmd, func() []string {
		if file == "-" && a.output != formText {
			return []string{fmt.Sprintf("--output %q: the archive is written to stdout, so nothing else can be. Name a file", a.output)}
		}
		return nil
	})
	return cmd
}

// writeArchived tells where the archive is, and what is missing in it. stderr has the file
// already.
func (a *app) writeArchived(c *command.Connection, file string, missing []string) error {
	switch {
	case a.structured():
		return a.print(struct {
			place
			File    string   `json:"file"`
			Missing []string `json:"missing,omitempty"`
		}{placeOf(c), file, missing})
	case a.output == formName:
		return frame.WriteNames(a.Stdout, []string{file})
	case a.output == formWide:
		fmt.Fprintln(a.Stdout, textOf(a, c).heading())
		for _, m := range missing {
			fmt.Fprintln(a.Stdout, "not collected: "+m)
		}
	}
	return nil
}

// archive collects what it can read. What cannot be read is noted in the archive:
// the rest is still useful.
func (a *app) archive(ctx context.Context, c *command.Connection, to *diagnose.Archive) error {
	e, err := a.engine(c)
	if err != nil {
		return err
	}
	err = to.JSON("version.json", map[string]string{"version": version.String(), "kyma": registry.Release, "server": c.Config.Host})
	add := func(name string, value any, failed error) {
		if failed != nil {
			to.Problem(name, failed)
		} else if err == nil {
			err = to.JSON(name, value)
		}
	}
	accounts, failed := verify.ReadAccountsLeft(ctx, e.Cluster())
	if failed != nil {
		to.Problem("accountsLeft in status.json and verify.json", failed)
	}
	kept, failed := e.State(ctx)
	if failed == nil {
		add("status.json", a.statusOf(c, kept, accounts), nil)
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
	if in, failed := inventory.Read(ctx, e.Cluster(), c.Options.ExcludeNamespaces); failed != nil {
		to.Problem("verify.json and map.json", failed)
	} else {
		add("verify.json", verify.Check(in, accounts, kept, now()), nil)
		add("map.json", eventmap.New(in, ""), nil)
	}
	if err == nil {
		err = to.Objects(ctx, e.Cluster())
	}
	if closed := to.Close(); err == nil {
		err = closed
	}
	return err
}
