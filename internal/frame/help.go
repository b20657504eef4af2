package frame

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Program is what all commands of a program have in common.
type Program struct {
	IO
	// Name is what a person has typed. In examples it is {name}.
	Name string
	// About is what --version prints.
	About string
	// Problems are what is wrong with the flags that several commands share.
	Problems func() []string
	Checks   FlagChecks
	// Topic is the help topic that has the flags with a dot in their names, "" if there are none.
	Topic string
}

// Finish completes the commands of a program: their help, their errors, and --version.
func (p *Program) Finish(root *cobra.Command) {
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageFunc(func(c *cobra.Command) error { return usage(c, p.Topic) })
	p.finish(root.Commands())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		problems := FlagProblems(cmd, p.Args, err)
		problems[len(problems)-1] += fmt.Sprintf(" (see %q)", cmd.CommandPath()+" --help")
		return Usage(problems...)
	})
}

func (p *Program) finish(commands []*cobra.Command) {
	for _, c := range commands {
		if c.Runnable() && !c.DisableFlagParsing {
			VersionFlag(c, p.Stdout, p.About)   // so that --version is the same after any command
			_ = c.Flags().MarkHidden("version") // the flag exists
		}
		c.Example = strings.Trim(strings.ReplaceAll(c.Example, "{name}", p.Name), "\n")
		c.PreRunE = func(cmd *cobra.Command, _ []string) error {
			if problems := append(p.Problems(), p.Checks.problems(cmd)...); len(problems) > 0 {
				return Usage(problems...)
			}
			return nil
		}
		p.finish(c.Commands())
	}
}

// VersionFlag makes --version write about in the place of what the command does, whatever its
// arguments are; a command that does nothing shows its help without it. Cobra's own flag takes a
// template for what it says, and with templates the linker keeps each method of each type.
func VersionFlag(cmd *cobra.Command, out io.Writer, about string) {
	asked := cmd.Flags().Bool("version", false, "show the version of this program.")
	run, arguments := cmd.RunE, cmd.Args
	if arguments != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if *asked {
				return nil
			}
			return arguments(cmd, args)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *asked:
			_, err := fmt.Fprint(out, about)
			return err
		case run == nil:
			return cmd.Help()
		}
		return run(cmd, args)
	}
}

// OutputFlag adds -o to a command, which takes the given forms, the first of which is the default.
func (p *Program) OutputFlag(cmd *cobra.Command, output *string, forms []string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "`form` of the output: "+strings.Join(forms, ", ")+". Default: "+forms[0]+".")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	p.Checks.Add(cmd, func() []string {
		*output = cmp.Or(*output, forms[0])
		return OneOf("output", forms, *output)
	})
}

// NamespaceFlags adds -n and -A to a command that shows something.
func NamespaceFlags(cmd *cobra.Command, namespace *string, all *bool, complete cobra.CompletionFunc) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "show only this `namespace`. Default: all namespaces.")
	_ = cmd.RegisterFlagCompletionFunc("namespace", complete) // the flag exists
	cmd.Flags().BoolVarP(all, "all-namespaces", "A", false, "show all namespaces, as without -n.")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// FlagChecks return what is wrong with the values of the flags of each command.
type FlagChecks map[*cobra.Command][]func() []string

// Add adds a check.
func (c FlagChecks) Add(cmd *cobra.Command, check func() []string) { c[cmd] = append(c[cmd], check) }

func (c FlagChecks) problems(cmd *cobra.Command) []string {
	var all []string
	for _, check := range c[cmd] {
		all = append(all, check()...)
	}
	return all
}

// OneOf names the values of a flag that are none of its words.
func OneOf(flag string, words []string, values ...string) []string {
	var problems []string
	for _, value := range values {
		if !slices.Contains(words, value) {
			problems = append(problems, fmt.Sprintf("--%s %q: must be one of %s", flag, value, strings.Join(words, ", ")))
		}
	}
	return problems
}

// HelpWidth is where the help is wrapped.
const HelpWidth = 110

// usage shows how a command is called, as cobra does, but for the flags of jobs.
func usage(c *cobra.Command, topic string) error {
	w := c.OutOrStderr()
	fmt.Fprint(w, "Usage:")
	if c.Runnable() && c.HasParent() { // without a command, it shows its help
		fmt.Fprintf(w, "\n  %s", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n  %s [command]", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\n\nExamples:\n%s", c.Example)
	}
	list := func(title string, shown func(*cobra.Command) bool, name func(*cobra.Command) string, width func(*cobra.Command) int) {
		if !slices.ContainsFunc(c.Commands(), shown) {
			return
		}
		fmt.Fprintf(w, "\n\n%s:", title)
		for _, sub := range c.Commands() {
			if shown(sub) {
				fmt.Fprintf(w, "\n  %-*s %s", width(sub), name(sub), sub.Short)
			}
		}
	}
	list("Available Commands", func(sub *cobra.Command) bool { return sub.IsAvailableCommand() || sub.Name() == "help" }, (*cobra.Command).Name, (*cobra.Command).NamePadding)
	if c.HasAvailableLocalFlags() {
		fmt.Fprintf(w, "\n\nFlags:\n%s", strings.TrimRight(ownFlags(c.LocalFlags(), topic), " \n"))
	}
	list("Additional help topics", (*cobra.Command).IsAdditionalHelpTopicCommand, (*cobra.Command).CommandPath, (*cobra.Command).CommandPathPadding)
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n\nUse \"%s [command] --help\" for more information about a command.", c.CommandPath())
	}
	_, err := fmt.Fprintln(w)
	return err
}

// ownFlags are the flags of a command for its help. Those whose names have a dot are in a topic of
// their own, which is named.
func ownFlags(all *pflag.FlagSet, topic string) string {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = all.SortFlags
	more := ""
	all.VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Name, ".") {
			more = "\n" + topic
			return
		}
		own.AddFlag(f)
	})
	return own.FlagUsagesWrapped(HelpWidth) + more
}

// CanConfirm is nil if there is a person at a terminal.
func CanConfirm(in io.Reader, isTerminal func(io.Writer) bool, flag string) error {
	if f, ok := in.(*os.File); !ok || !isTerminal(f) {
		return Usage("confirmation needed, and nobody is there to answer: use " + flag)
	}
	return nil
}

// Confirm asks a person.
func Confirm(in io.Reader, stderr io.Writer, question string) (bool, error) {
	fmt.Fprint(stderr, AtWords(question+" [y/N] ", Width(stderr)))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("cannot read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// Similar are the names that a mistyped one may mean, by the rule for commands.
func Similar(name string, names []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 3}
	var near []string
	for _, known := range names {
		all.AddCommand(&cobra.Command{Use: known, Run: func(*cobra.Command, []string) {}})
		if strings.Contains(known, strings.ToLower(name)) {
			near = append(near, known)
		}
	}
	near = append(near, all.SuggestionsFor(name)...)
	slices.Sort(near)
	return slices.Compact(near)
}
