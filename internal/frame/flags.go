package frame

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Bind adds the flags that choose the cluster.
func (p *Place) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&p.Kubeconfig, "kubeconfig", p.Kubeconfig,
		"`file` with the cluster and the credentials. Default: the ServiceAccount in a Pod, then the files of KUBECONFIG, then ~/.kube/config.")
	fs.StringVar(&p.Context, "context", p.Context,
		"`name` of the context in the kubeconfig. In a Pod, this flag selects the kubeconfig, not the ServiceAccount. Default: the current context.")
}

// BindRate adds the flags that limit requests.
func (p *Place) BindRate(fs *pflag.FlagSet) {
	fs.Float32Var(&p.QPS, "qps", p.QPS,
		"maximum `requests` per second to the API server, on average. Negative: no limit here; the API server limits by its own fairness rules.")
	fs.IntVar(&p.Burst, "burst", p.Burst,
		"`requests` that may exceed --qps for a moment. Negative: twice the --qps.")
}

// Given are the flags of a set that were given.
func Given(fs *pflag.FlagSet) []Flag {
	var all []Flag
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		given := Flag{Name: f.Name, Value: f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			given.Value = strings.Join(list.GetSlice(), ",")
		}
		all = append(all, given)
	})
	return all
}

// WordsAnnotation has the values of a flag of another type that takes one of a few words.
const WordsAnnotation = "words"

// Words are the values of a flag that takes one of a few; nil if it takes others.
func Words(f *pflag.Flag) []string {
	if w, ok := f.Value.(*word); ok {
		return slices.Clone(w.of)
	}
	return f.Annotations[WordsAnnotation]
}

// word is the value of a flag that takes one of a few words.
type word struct {
	value *string
	of    []string
}

// WordVar adds a flag that takes one of a few words. That of the form of the output is also -o.
func WordVar(fs *pflag.FlagSet, value *string, words []string, name, usage string) {
	short := ""
	if name == "output" {
		short = "o"
	}
	fs.VarP(&word{value: value, of: words}, name, short, usage)
}

// String is pflag.Value.
func (w *word) String() string { return *w.value }

// Type is pflag.Value. The help shows it behind the flag.
func (w *word) Type() string { return strings.Join(w.of, "|") }

// Set is pflag.Value.
func (w *word) Set(s string) error {
	if !slices.Contains(w.of, s) {
		return errors.New("must be " + AnyOf(w.of))
	}
	*w.value = s
	return nil
}

// FlagProblems are what the flag parser has against a command line, each with what was probably
// meant. The parser ends at the first problem, so it is asked again without it.
func FlagProblems(cmd *cobra.Command, args []string, err error) []string {
	_, args, _ = cmd.Root().Find(args) // cobra has found the command
	again := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		also := *f
		again.AddFlag(&also)
	})
	// A flag whose problem is told already takes every value.
	again.String("*", "", "")
	anything := again.Lookup("*").Value
	var problems []string
	for err != nil {
		text := err.Error()
		var unknown *pflag.NotExistError
		var invalid *pflag.InvalidValueError
		switch {
		case errors.As(err, &unknown):
			word, short := unknown.GetSpecifiedShortnames(), ""
			name, _, _ := strings.Cut(cmp.Or(word, unknown.GetSpecifiedName()), "=")
			text += DidYouMean(flagsLike(cmd, name))
			if word != "" {
				short, name = unknown.GetSpecifiedName(), "-"+unknown.GetSpecifiedName()
			}
			f := again.VarPF(anything, name, short, "")
			if len(word) <= 1 { // otherwise the rest of the word is no flag, but its value
				f.NoOptDefVal = "any"
			}
		case errors.As(err, &invalid):
			again.Lookup(invalid.GetFlag().Name).Value = anything
		default:
			return append(problems, text) // nothing after it can be read
		}
		problems, err = append(problems, text), again.Parse(args)
	}
	return problems
}

// flagsLike are the flags and commands that were probably meant by a flag. cobra has
// suggestions for commands only, so each flag is made one. A command's own name is two
// letters away from the flag of that name: its dashes.
func flagsLike(cmd *cobra.Command, name string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: MaxTypos}
	add := func(name string, also ...string) {
		all.AddCommand(&cobra.Command{Use: name, SuggestFor: also, Run: func(*cobra.Command, []string) {}})
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		// The binary of a job has the flag without the name of the job.
		_, short, _ := strings.Cut(f.Name, ".")
		add("--"+f.Name, "--"+short)
	})
	for _, c := range cmd.Root().Commands() {
		if c.IsAvailableCommand() {
			add(c.Name(), c.SuggestFor...)
		}
	}
	return all.SuggestionsFor("--" + name)
}

// MaxTypos is how many letters may be wrong in a name for which another is suggested;
// it is cobra's own default.
const MaxTypos = 2

// DidYouMean ends the sentence about something unknown.
func DidYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + AnyOf(names) + "?"
}

// PlainDescriptions removes the back-quotes in descriptions of flags if a shell asks for
// completions. In the help they name the value of the flag.
func PlainDescriptions(root *cobra.Command, args []string) {
	if len(args) == 0 || args[0] != cobra.ShellCompRequestCmd {
		return
	}
	var plain func(*cobra.Command)
	plain = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
		for _, sub := range cmd.Commands() {
			plain(sub)
		}
	}
	plain(root)
}
