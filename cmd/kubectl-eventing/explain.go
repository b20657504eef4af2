package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/guide"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/frame/manual"
	"github.com/kyma-project/eventmesh-migration/internal/version"
)

func explainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain [ID]", Short: "Explain a condition, a state, an answer or an exit code",
		Long: `Print what the documents say about the reason of a condition, a state, or an answer of
the publisher. Findings of check, exit codes and symptoms have entries, too. Without an
ID, list all of them. A reason with spaces is written with dashes or in quotes. It needs no cluster.`,
		Example: "  {name} explain\n  {name} explain StorageFull\n  {name} explain 507\n  {name} explain exit-6 -o json",
		Args:    oneArgument,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var words []string
			for _, e := range guide.Entries() {
				if len(args) == 0 {
					words = append(words, cobra.CompletionWithDesc(e.ID, e.Summary))
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			entries := guide.Entries()
			if len(args) > 0 {
				if entries = guide.Find(args[0]); len(entries) == 0 {
					var ids []string
					for _, e := range guide.Entries() {
						ids = append(ids, e.ID)
					}
					return frame.Usage(manual.Unknown(args[0], ids, program))
				}
			}
			return writeEntries(a, entries, len(args) == 0)
		},
	}
	a.flags(cmd, forms, false)
	return cmd
}

func writeEntries(a *app, entries []manual.Entry, all bool) error {
	switch {
	case a.structured():
		return a.print(entries)
	case a.output == frame.FormName:
		var names []string
		for _, e := range entries {
			names = append(names, e.ID)
		}
		return frame.WriteNames(a.Stdout, names)
	case all:
		_, err := io.WriteString(a.Stdout, manual.List(entries, a.tableWidth()))
		return err
	}
	var errs []error
	for i, e := range entries {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		_, err := fmt.Fprint(a.Stdout, e.Render(a.width(), program+" explain"))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: frame.NoArguments,
		Long:    "Show the version of this program. That of the operator is in status -o json. -o name prints\nonly the version.",
		Example: "  {name} version\n  {name} version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": version.String(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			switch {
			case a.structured():
				return a.print(v)
			case a.output == frame.FormName:
				return frame.WriteNames(a.Stdout, []string{v["version"]})
			case a.output == frame.FormWide:
				t := &frame.Table{}
				for _, key := range []string{"version", "go", "platform"} {
					t.Row(key, v[key])
				}
				return t.Write(a.Stdout, frame.Painter(false, nil))
			}
			return a.write(nil, fmt.Sprintf("%s %s (%s)", binary, v["version"], strings.Join([]string{v["platform"], v["go"]}, ", ")))
		},
	}
	a.flags(cmd, forms, false)
	return cmd
}
