package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/cli"
	"github.com/kyma-project/eventmesh-migration/internal/eventmap"
	"github.com/kyma-project/eventmesh-migration/internal/inventory"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

func mapCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "map", Short: "Show which events reach which subscribers, before and after", Args: noArguments,
		Long: `Show which event of which Application reaches which subscriber: before, by Kyma
Subscriptions of the Event Bus, and after, by Triggers of the mesh. It only reads.
-o html writes one page with a picture. The page loads nothing from elsewhere.`,
		Example: "  {name} map\n  {name} map -n shop -o mermaid\n  {name} map -o html --file events.html",
		RunE: func(*cobra.Command, []string) error {
			return a.inspect(func(ctx context.Context, c *cli.Connection, e *engine.Engine) error {
				in, err := inventory.Read(ctx, e.Cluster(), c.Options.ExcludeNamespaces)
				if err != nil {
					return err
				}
				if err := a.existing(in); err != nil {
					return err
				}
				return a.toFile(file, func(w io.Writer) error { return a.writeMap(w, eventmap.New(in, a.namespace), c) })
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "`file` to write. Default: stdout.")
	a.namespaceFlags(cmd)
	a.flags(cmd, []string{"table", "mermaid", "html", formJSON, formYAML}, a.ReadFlags())
	return cmd
}

func (a *app) writeMap(w io.Writer, m *eventmap.Map, c *cli.Connection) error {
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
