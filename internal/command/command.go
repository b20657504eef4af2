package command

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// helpWidth is where the help is wrapped.
const helpWidth = 100

// command builds the command line of the job: <job> [run|plan|undo].
func (p *process) command(execute func(verb string, cl *commandLine) error) *cobra.Command {
	cl := newCommandLine(p.program, p.job)
	short, _ := p.job.Doc()
	name := p.job.Name()

	about := fmt.Sprintf("%s %s (%s/%s, %s)\n", name, p.program.Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
	root := &cobra.Command{Use: name, Short: short}
	working := []*cobra.Command{
		root,
		{Use: cmdRun, Short: "Make the changes that are left"},
		{Use: cmdPlan, Short: "Show the changes that are left to make, and write nothing"},
		{Use: cmdUndo, Short: "Undo the newest run, finished or interrupted"},
	}
	if p.program.Charts {
		// A job that a person starts does not need it: its first write does this.
		working = append(working, &cobra.Command{Use: cmdCreateStateNamespace, Short: "Create the state namespace if it does not exist", Hidden: true})
	}
	root.AddCommand(working[1:]...)
	root.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprint(cmd.OutOrStdout(), about)
		},
	})
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = frame.MaxTypos
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return frame.Usage(frame.FlagProblems(cmd, p.Args, err)...) })
	plainHelp := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if !slices.Contains(working, cmd) {
			plainHelp(cmd, args)
			return
		}
		fmt.Fprint(cmd.OutOrStdout(), p.program.help(p.job, cl))
	})

	for _, cmd := range working {
		verb := cmd.Name()
		if cmd == root {
			verb = defaultCommand(p.job)
		}
		cmd.Flags().AddFlagSet(cl.flagSet())
		cmd.Args = noArguments
		cmd.RunE = func(*cobra.Command, []string) error { return execute(verb, cl) }
		frame.VersionFlag(cmd, p.Stdout, about)
	}
	// The commands share their flags, and with them the completions.
	root.Flags().VisitAll(func(f *pflag.Flag) {
		if words := frame.Words(f); len(words) > 0 {
			_ = root.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
		}
	})
	return root
}

// noArguments says what is wrong with an argument that is not a flag.
func noArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasParent():
		return frame.Usage(fmt.Sprintf("%q: unexpected argument; a job chooses its objects by itself", args[0]))
	}
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return frame.Usage(fmt.Sprintf("%q: unknown command%s", args[0], frame.DidYouMean(similar)))
	}
	return frame.Usage(fmt.Sprintf("%q: unknown command (valid: %s, %s, %s)", args[0], cmdRun, cmdPlan, cmdUndo))
}

// defaultCommand is what the binary does without a command.
func defaultCommand(job migration.Job) string {
	if d, ok := job.(migration.Defaulter); ok {
		return d.DefaultCommand()
	}
	return cmdRun
}

// help is the manual of the job's binary.
func (p *Program) help(job migration.Job, cl *commandLine) string {
	var b strings.Builder
	short, long := job.Doc()
	name := job.Name()
	fmt.Fprintf(&b, "%s: %s\n\n", name, strings.TrimSuffix(short, ".")+".")
	if long = strings.TrimSpace(long); long != "" {
		fmt.Fprintf(&b, "%s\n\n", long)
	}

	fmt.Fprintf(&b, "Usage:\n  %s [%s|%s|%s] [flags]\n\nCommands:\n", name, cmdRun, cmdPlan, cmdUndo)
	for _, c := range []struct{ name, does string }{
		{cmdRun, "make the changes that are left"},
		{cmdPlan, "show the changes that are left to make, and write nothing"},
		{cmdUndo, "undo the newest run, finished or interrupted"},
		{"version", "show the version of this program; --version is the same"},
		{"completion", "print a script with which a shell completes commands and flags"},
	} {
		if c.name == defaultCommand(job) {
			c.does += "; the default"
		}
		fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.does)
	}

	fmt.Fprintf(&b, examples, name)

	for _, g := range cl.groups {
		fmt.Fprintf(&b, "%s:\n%s\n", g.title, g.flags.FlagUsagesWrapped(helpWidth))
	}

	b.WriteString("Exit codes" + p.manual() + ":\n")
	b.WriteString(p.ExitCodes())
	return b.String()
}

// manual says what explains exit codes, in parentheses; "" if nothing does.
func (p *Program) manual() string {
	if p.Tool == "" {
		return ""
	}
	return fmt.Sprintf(" (%q says what to do at each)", p.explain("exit-N"))
}

// examples show the three places a job is started from.
const examples = `
Examples:
  # From a laptop, on the cluster of a context: the plan first, then the run.
  %[1]s plan --context my-cluster
  %[1]s --context my-cluster

  # The same from the image.
  docker run --rm --user "$(id -u)" -v "$HOME/.kube/config:/kubeconfig:ro" \
    IMAGE plan --kubeconfig /kubeconfig

  # As a Job in the cluster, with the ServiceAccount of the Pod.
  containers:
  - name: %[1]s
    image: IMAGE
    args: ["run", "--timeout=15m", "--output=json"]

`
