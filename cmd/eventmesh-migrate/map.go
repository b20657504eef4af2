package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/eventmap"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

func mapCommand(a *app) *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use: "map", Short: "Show which events reach which subscribers, before and after", Args: frame.NoArguments,
		Long: `Show which event of which Application reaches which subscriber: before, by Kyma
Subscriptions of the Event Bus, and after, by Triggers of the mesh. It only reads.
-o html writes one page with pictures. The page loads nothing from elsewhere.
With --file, the end of the file's name chooses the form: .html, .md or .mmd
(Mermaid), .json, .yaml. -o overrides it. -o name lists the Subscriptions and Triggers.`,
		Example: "  {name} map\n  {name} map -n shop -o mermaid\n  {name} map --file events.html",
		RunE: func(*cobra.Command, []string) error {
			return a.inspect(func(ctx context.Context, c *command.Connection, e *engine.Engine) error {
				in, err := inventory.Read(ctx, e.Cluster(), c.Options.ExcludeNamespaces)
				if err != nil {
					return err
				}
				if err := a.existing(in); err != nil {
					return err
				}
				return a.toFile(file, func(w io.Writer) error { return a.writeMap(w, eventmap.New(in, a.namespace), c, file) })
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` to write. Default: stdout. Its name chooses the form if -o does not.")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file if it exists")
	a.namespaceFlags(cmd)
	a.common.Checks.Add(cmd, func() []string {
		a.output = cmp.Or(a.output, formOfFile(file))
		return refuseExisting(file, force)
	})
	a.flags(cmd, []string{"table", formWide, "mermaid", "html", formJSON, formYAML, formName}, a.ReadFlags())
	return cmd
}

// formOfFile is the form of -o that the name of a file asks for, "" if it asks for none.
func formOfFile(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".html", ".htm":
		return "html"
	case ".md", ".mmd":
		return "mermaid"
	case ".json":
		return formJSON
	case ".yaml", ".yml":
		return formYAML
	}
	return ""
}

// refuseExisting asks for --force before a file is overwritten.
func refuseExisting(name string, force bool) []string {
	if name == "" || name == "-" || force {
		return nil
	}
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return []string{fmt.Sprintf("cannot write %s: %v", name, err)}
	}
	return []string{"--file " + name + ": the file exists, use --force to overwrite it"}
}

func (a *app) writeMap(w io.Writer, m *eventmap.Map, c *command.Connection, file string) error {
	switch a.output {
	case "mermaid":
		if strings.ToLower(filepath.Ext(file)) != ".md" {
			return m.WriteMermaid(w)
		}
		// Markdown shows a picture only in a block of code.
		if _, err := io.WriteString(w, "```mermaid\n"); err != nil {
			return err
		}
		if err := m.WriteMermaid(w); err != nil {
			return err
		}
		_, err := io.WriteString(w, "```\n")
		return err
	case "html":
		return m.WriteHTML(w, c.Config.Host, now())
	case "table", formWide:
		t := &frame.Table{Rows: m.Rows()}
		if file == "" {
			t.Width = textOf(a, c).tableWidth()
		}
		fmt.Fprintln(w, textOf(a, c).heading())
		return t.Write(w, painter(false))
	case formName:
		var names []string
		for _, f := range m.Flows {
			if sub := f.Before.Object; sub != "" {
				names = append(names, frame.KubectlName(kyma.Subscription.Group, kyma.Subscription.Kind, f.Namespace, sub))
			}
			if trigger := f.After.Object; trigger != "" {
				names = append(names, frame.KubectlName(knative.Trigger.Group, knative.Trigger.Kind, f.Namespace, trigger))
			}
		}
		return frame.WriteNames(w, names)
	default:
		streams := *a.Tool
		streams.Stdout = w
		other := *a
		other.Tool = &streams
		return other.print(struct {
			place
			*eventmap.Map
		}{placeOf(c), m})
	}
}
