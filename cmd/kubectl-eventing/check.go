package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/frame/archive"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

func checkCommand(a *app) *cobra.Command {
	var namespace, backend string
	cmd := &cobra.Command{
		Use: "check", Short: "Check whether eventing can be installed", Args: frame.NoArguments,
		Long: `Check what an installation needs: the version of Kubernetes, the namespace, a
StorageClass for NATS, and Knative Eventing for EventMesh. No other eventing may have
the same kinds, and this account needs permissions. Each finding has what to do. It
writes nothing. -o name lists the IDs of findings that are not good.
Exit code 0: it can be installed (there may be warnings). 6: it cannot. 7: the cluster
could not be read.`,
		Example: "  {name} check\n  {name} check --backend EventMesh -n kyma-system\n  {name} check -o json",
		RunE: func(*cobra.Command, []string) error {
			return a.reach(nil, func(ctx context.Context, c *connection) error {
				found, err := c.Precheck(ctx, namespace, operatorv1alpha1.BackendType(backend).Canonical())
				if err != nil {
					return err
				}
				if slices.ContainsFunc(found, func(f inspect.Finding) bool { return f.Severity == inspect.SeverityError }) {
					a.code = frame.ExitFindings
				}
				return writeFindings(a, c, found)
			})
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "kyma-system", "`namespace` to install eventing in.")
	_ = cmd.RegisterFlagCompletionFunc("namespace", frame.CompleteNamespaces(a.config)) // the flag exists
	backend = string(operatorv1alpha1.NATS)
	frame.WordVar(cmd.Flags(), &backend, []string{string(operatorv1alpha1.NATS), string(operatorv1alpha1.EventMesh)}, "backend", "the backend that is to be used.")
	a.flags(cmd, forms, true)
	return cmd
}

func writeFindings(a *app, c *connection, found []inspect.Finding) error {
	switch {
	case a.structured():
		return a.print(struct {
			where
			Findings []inspect.Finding `json:"findings"`
		}{whereOf(c), found})
	case a.output == frame.FormName:
		var names []string
		for _, f := range found {
			if f.Severity != inspect.SeverityGood {
				names = append(names, f.ID)
			}
		}
		return frame.WriteNames(a.Stdout, names)
	case a.output == frame.FormWide:
		t := &frame.Table{}
		t.Row("SEVERITY", "FINDING", "WHAT", "WHAT TO DO")
		for _, f := range found {
			t.Row(string(f.Severity), f.ID, f.Message, strings.TrimSpace(f.Note+" "+a.next(f.Next)))
		}
		return t.Write(a.Stdout, frame.Painter(c.color, colours))
	}
	lines := frame.Wrap("Check of "+c.name()+". Nothing was written.", a.width())
	errors := 0
	for _, f := range found {
		head := fmt.Sprintf("%s: %s: %s", f.Severity, f.ID, f.Message)
		if f.Severity == inspect.SeverityGood {
			head = "good: " + f.Message
		}
		lines = append(lines, frame.Indented(head, "  ", a.width(), 8)...)
		if f.Severity == inspect.SeverityError {
			errors++
		}
		if f.Note != "" {
			lines = append(lines, frame.Indented(f.Note, "    ", a.width(), 3)...)
		}
		if f.Next != "" {
			lines = append(lines, "    "+a.next(f.Next))
		}
	}
	lines = append(lines, "")
	if errors > 0 {
		lines = append(lines, wording.Count(errors, "error")+". Next: do what is named above, then check again:", "  "+a.next(program+" check"))
	} else {
		lines = append(lines, "Eventing can be installed: docs/eventing/README.md#install")
	}
	return a.write(c, lines...)
}

func diagnoseCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "diagnose", Short: "Write one archive for a support ticket, without secrets", Args: frame.NoArguments,
		Long: `Write one archive for a support ticket: the status, the objects of eventing, Events, and
the end of the logs of its pods. It only reads. It does not read Secrets, and no event.
What looks like a secret elsewhere (environment variables, tokens, passwords in URLs)
is replaced. Check the archive yourself before you send it. -o wide, json and yaml name
what could not be collected. -o name prints the name of the file.`,
		Example: "  {name} diagnose\n  {name} diagnose --file ticket-4711.tar.gz",
		RunE: func(*cobra.Command, []string) error {
			at := now()
			name := "kubectl-eventing-" + at.UTC().Format("20060102-150405")
			if file == "" {
				file = name + ".tar.gz"
			}
			return a.reach(nil, func(ctx context.Context, c *connection) error {
				var missing []string
				if err := frame.ToFile(file, a.Stdout, a.Stderr, func(w io.Writer) error {
					to := archive.New(w, name, at)
					err := c.Ticket(ctx, to, at)
					missing = to.Missing()
					if closed := to.Close(); err == nil {
						err = closed
					}
					return err
				}); err != nil {
					return err
				}
				return writeArchived(a, c, file, missing)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` to write; - for stdout. Default: kubectl-eventing-TIME.tar.gz in the current folder.")
	a.flags(cmd, forms, true)
	a.common.Checks.Add(cmd, func() []string {
		if file == "-" && a.output != frame.FormText {
			return []string{fmt.Sprintf("--output %q: the archive is written to stdout, so nothing else can be. Name a file", a.output)}
		}
		return nil
	})
	return cmd
}

// writeArchived tells where the archive is, and what is missing in it. stderr has the file already.
func writeArchived(a *app, c *connection, file string, missing []string) error {
	switch {
	case a.structured():
		return a.print(struct {
			where
			File    string   `json:"file"`
			Missing []string `json:"missing,omitempty"`
		}{whereOf(c), file, missing})
	case a.output == frame.FormName:
		return frame.WriteNames(a.Stdout, []string{file})
	case a.output == frame.FormWide:
		lines := []string{"Cluster " + c.name()}
		for _, m := range missing {
			lines = append(lines, "not collected: "+m)
		}
		return a.write(c, lines...)
	}
	return nil
}
