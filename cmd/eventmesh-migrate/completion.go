package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// completeWithin is how long a person waits for names from the cluster.
const completeWithin = 2 * time.Second

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
	if words := cli.Words(f); len(words) > 0 {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	return nil
}

func completeNamespaces(a *app, cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("namespace", namespaces(a)) // the flag exists
}

// namespaces completes those of the cluster. If it does not answer in time, there are none.
func namespaces(a *app) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completeWithin)
		defer cancel()
		c, err := a.connect(true)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		e, err := a.engine(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		_ = e.Cluster().Each(ctx, migration.CoreResource("", "namespaces", "Namespace"), "", migration.ListOptions{}, func(u *unstructured.Unstructured) error {
			names = append(names, u.GetName())
			return nil
		}) // what was read in time is offered
		return names, cobra.ShellCompDirectiveNoFileComp
	}
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
