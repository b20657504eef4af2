package main

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
)

// completion returns what completes the values of a flag; nil: files.
func completion(a *app, f *pflag.Flag) cobra.CompletionFunc {
	switch f.Name {
	case "context":
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.Contexts(), cobra.ShellCompDirectiveNoFileComp
		}
	case "state-namespace", "exclude-namespaces":
		return namespaces(a)
	}
	if words := frame.Words(f); len(words) > 0 {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	return nil
}

func completeNamespaces(a *app, cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("namespace", namespaces(a)) // the flag exists
}

// namespaces completes those of the cluster.
func namespaces(a *app) cobra.CompletionFunc {
	return frame.CompleteNamespaces(func() (*rest.Config, error) {
		c, err := a.connect(true)
		if err != nil {
			return nil, err
		}
		return c.Config, nil
	})
}

// completeJob completes the name of a job, and after it what the job's own command line does.
func completeJob(a *app, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return jobNames(a.jobs), cobra.ShellCompDirectiveNoFileComp
	}
	i := slices.Index(jobNames(a.jobs), args[0])
	if i < 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out bytes.Buffer
	cli.Run(a.jobs[i].Job, cli.IO{Args: slices.Concat([]string{cobra.ShellCompRequestCmd}, args[1:], []string{word}), Stdout: &out, Stderr: io.Discard, Env: a.Env})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := len(lines) - 1
	directive, err := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:last], cobra.ShellCompDirective(directive)
}
