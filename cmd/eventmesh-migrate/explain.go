package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/frame/manual"
	"github.com/kyma-project/eventmesh-migration/internal/migration/runbook"
)

func explainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [ID]", Short: "Explain the ID of a finding, or an exit code",
		Long: `Print what the runbook says about the ID of a finding, about an exit code, or about
one of its sections. Without an ID, list all of them. It needs no cluster.`,
		Example: "  {name} explain\n  {name} explain link-missing\n  {name} explain exit-3 -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return frame.NoArguments(cmd, args[1:])
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var words []string
			for _, e := range runbook.Entries() {
				words = append(words, cobra.CompletionWithDesc(e.ID, e.Summary))
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			entries := runbook.Entries()
			if len(args) > 0 {
				if entries = runbook.Find(args[0]); len(entries) == 0 {
					return unknownID(a, args[0])
				}
			}
			switch {
			case a.structured():
				return a.print(entries)
			case a.output == formName:
				var names []string
				for _, e := range entries {
					names = append(names, e.ID)
				}
				return frame.WriteNames(a.Stdout, names)
			case len(args) == 0:
				_, err := io.WriteString(a.Stdout, manual.List(entries, textOf(a, nil).tableWidth()))
				return err
			}
			for i, e := range entries {
				if i > 0 {
					fmt.Fprintln(a.Stdout)
				}
				fmt.Fprint(a.Stdout, e.Render(a.Width(), a.name+" explain"))
			}
			return nil
		},
	}
	a.flags(cmd, []string{formText, formWide, formJSON, formYAML, formName}, a.LogFlags())
	return cmd
}

// unknownID refuses an ID, and names those that are like it.
func unknownID(a *app, id string) error {
	ids := make([]string, 0, len(runbook.Entries()))
	for _, e := range runbook.Entries() {
		ids = append(ids, e.ID)
	}
	return frame.Usage(manual.Unknown(id, ids, a.name))
}
