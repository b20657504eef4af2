package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/migration/present"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// commandLine is a job's flags and what was found on the command line.
type commandLine struct {
	options
	groups []flagGroup
}

// Titles of sections of the help; that of the job's own flags ends with its name.
const (
	jobGroup     = "Flags of "
	clusterGroup = "Cluster"
)

// flagGroup is a section of the help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

func newCommandLine(job migration.Job) *commandLine {
	cl := &commandLine{options: defaultOptions()}
	if c, ok := job.(migration.Configurable); ok {
		cl.group(jobGroup+job.Name(), func(fs *pflag.FlagSet) { bindSettings(fs, c.Settings()) })
	}
	cl.group(clusterGroup, cl.clusterFlags)
	cl.group("Time and safety", cl.safetyFlags)
	cl.group("Output and logging", cl.outputFlags)
	return cl
}

func (cl *commandLine) group(title string, bind func(*pflag.FlagSet)) {
	fs := pflag.NewFlagSet(title, pflag.ContinueOnError)
	fs.SortFlags = false
	bind(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if d, err := time.ParseDuration(f.DefValue); err == nil && f.Value.Type() == "duration" {
			f.DefValue = duration(d)
		}
	})
	cl.groups = append(cl.groups, flagGroup{title: title, flags: fs})
}

// caller is how a person calls eventmesh-migrate for a job, with the flags that were given and that
// the next command needs, too.
func (cl *commandLine) caller(job string) present.Caller {
	c := present.Caller{Program: "eventmesh-migrate"}
	var given []present.Flag
	c.Cluster, given = cl.given()
	for _, f := range given {
		switch of, _, found := strings.Cut(f.Name, "."); {
		case !found: // a job's own command line has it without the name of the job
			f.Name = job + "." + f.Name
		case of != job:
			continue
		}
		c.Work = append(c.Work, f)
	}
	return c
}

// undo is the command that undoes the newest run of a job.
func (cl *commandLine) undo(job string) string { return cl.caller(job).Undo(job) }

// given are the flags that were given and that the next command on this cluster needs, too:
// those of the cluster, and the settings of jobs.
func (cl *commandLine) given() (cluster, jobs []present.Flag) {
	for _, g := range cl.groups {
		g.flags.VisitAll(func(f *pflag.Flag) {
			if !f.Changed {
				return
			}
			given := present.Flag{Name: f.Name, Value: f.Value.String()}
			if list, ok := f.Value.(pflag.SliceValue); ok {
				given.Value = strings.Join(list.GetSlice(), ",")
			}
			switch {
			case g.title == clusterGroup:
				cluster = append(cluster, given)
			case strings.HasPrefix(g.title, jobGroup):
				jobs = append(jobs, given)
			}
		})
	}
	return cluster, jobs
}

func (cl *commandLine) clusterFlags(fs *pflag.FlagSet) {
	o := &cl.options
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"`file` with the cluster and the credentials. Default: the ServiceAccount in a Pod, then the files of KUBECONFIG, then ~/.kube/config.")
	fs.StringVar(&o.context, "context", o.context,
		"`name` of the context in the kubeconfig. In a Pod, this flag selects the kubeconfig, not the ServiceAccount. Default: the current context.")
	fs.StringVar(&o.stateNamespace, "state-namespace", o.stateNamespace,
		"`namespace` for the lock, the journal and the reports, and nothing else. The first write creates it. Use the same for every run on a cluster.")
	fs.StringSliceVar(&o.excludeNamespaces, "exclude-namespaces", o.excludeNamespaces,
		"`namespaces` to leave out, separated by commas, in addition to the system namespaces.")
	fs.Float32Var(&o.qps, "qps", o.qps,
		"maximum `requests` per second to the API server, on average. Negative: no limit here; the API server limits by its own fairness rules.")
	fs.IntVar(&o.burst, "burst", o.burst,
		"`requests` that may exceed --qps for a moment. Negative: twice the --qps.")
}

func (cl *commandLine) safetyFlags(fs *pflag.FlagSet) {
	o := &cl.options
	fs.DurationVar(&o.timeout, "timeout", o.timeout,
		"time limit for the work. A run that reaches it is rolled back, with exit code 124.")
	fs.DurationVar(&o.rollbackTimeout, "rollback-timeout", o.rollbackTimeout,
		"time limit for a rollback, in addition to --timeout.")
	wordVar(fs, &o.onFailure, "on-failure",
		"what a failed run does with its finished changes. If it leaves them, undo can still undo them.")
	wordVar(fs, &o.resume, "resume",
		"how to end an interrupted run: finish it (forward), or roll it back (back). An interrupted rollback is always finished.")
	wordVar(fs, &o.deferral, "defer",
		"whether deferred work is a success (allow) or a failure with exit code 1 (fail).")
	fs.BoolVar(&o.acceptLeft, "accept-left", false,
		"let undo close a run of which it cannot restore everything. What is left stays as it is, and the run before can be undone.")
	fs.IntVar(&o.maxUnready, "max-unready", o.maxUnready,
		"how many new objects may be not ready at the same time. When one of them is ready, the next one is created.")
	fs.DurationVar(&o.leaseDuration, "lease-duration", o.leaseDuration,
		"how long the lock stays after its process was killed. Minimum: 1s.")
	fs.DurationVar(&o.lockWait, "lock-wait", o.lockWait,
		"how long to wait for the lock when another run holds it. Then the exit code is 5.")
	fs.Lookup("lock-wait").DefValue = "--lease-duration + " + duration(lockGrace)
	fs.DurationVar(&o.helmTimeout, "helm-timeout", 0,
		"minimum for Helm's --timeout if this is a hook. It is only logged; the chart sets it. 0: the sum of the limits.")
}

func (cl *commandLine) outputFlags(fs *pflag.FlagSet) {
	o := &cl.options
	wordVar(fs, &o.output, "output",
		"form of the report on stdout. text: a summary. wide: each change and finding. json, yaml: one complete object. name: the changed objects, for kubectl.")
	wordVar(fs, &o.logFormat, "log-format",
		"form of the log on stderr. auto: console on a terminal, json elsewhere. The status line needs console and a terminal.")
	wordVar(fs, &o.logLevel, "log-level",
		"minimum log level. debug includes the log of client-go.")
	fs.BoolVarP(&o.verbose, "verbose", "v", false, "the same as --log-level debug.")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "the same as --log-level error.")
	fs.BoolVar(&o.noColor, "no-color", false, "show no colors, as with NO_COLOR set.")
	fs.BoolP("help", "h", false, "show help.")
}

// bindSettings makes a flag of each setting of a job.
func bindSettings(fs *pflag.FlagSet, settings []migration.Setting) {
	for _, s := range settings {
		switch v := s.Value.(type) {
		case *string:
			fs.StringVar(v, s.Name, *v, s.Usage)
		case *bool:
			fs.BoolVar(v, s.Name, *v, s.Usage)
		case *int:
			fs.IntVar(v, s.Name, *v, s.Usage)
		case *time.Duration:
			fs.DurationVar(v, s.Name, *v, s.Usage)
		case *[]string:
			fs.StringSliceVar(v, s.Name, *v, s.Usage)
		default:
			// Every run of the binary meets it, --help included: it cannot
			// leave the developer's machine.
			panic(fmt.Sprintf("setting %q has a value of type %T, which cannot be a flag", s.Name, s.Value))
		}
		if len(s.Words) > 0 {
			_ = fs.SetAnnotation(s.Name, wordsAnnotation, s.Words) // the flag exists
		}
	}
}

// wordsAnnotation has the values of a job's flag that takes one of a few words.
const wordsAnnotation = "words"

// Words are the values of a flag that takes one of a few; nil if it takes others.
func Words(f *pflag.Flag) []string {
	if w, ok := f.Value.(*word); ok {
		return slices.Clone(w.of)
	}
	return f.Annotations[wordsAnnotation]
}

// word is the value of a flag that takes one of a few words.
type word struct {
	value *string
	of    []string
}

func wordVar(fs *pflag.FlagSet, value *string, name, usage string) {
	short := ""
	if name == "output" {
		short = "o"
	}
	fs.VarP(&word{value: value, of: words[name]}, name, short, usage)
}

// String is pflag.Value.
func (w *word) String() string { return *w.value }

// Type is pflag.Value. The help shows it behind the flag.
func (w *word) Type() string { return strings.Join(w.of, "|") }

// Set is pflag.Value.
func (w *word) Set(s string) error {
	if !slices.Contains(w.of, s) {
		return errors.New("must be " + anyOf(w.of))
	}
	*w.value = s
	return nil
}

// validate reports everything that is wrong with the values; nil if nothing is.
func (cl *commandLine) validate(job migration.Job) *usageError {
	problems := cl.options.validate()
	if c, ok := job.(migration.Configurable); ok {
		problems = append(problems, problemsOf(c.Validate())...)
	}
	if len(problems) > 0 {
		return &usageError{problems: problems}
	}
	return nil
}

// flagSet is all flags in one set.
func (cl *commandLine) flagSet() *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.SortFlags = false
	for _, g := range cl.groups {
		all.AddFlagSet(g.flags)
	}
	return all
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
			text += didYouMean(flagsLike(cmd, name))
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
	all := &cobra.Command{SuggestionsMinimumDistance: maxTypos}
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

// maxTypos is how many letters may be wrong in a name for which another is suggested;
// it is cobra's own default.
const maxTypos = 2

// didYouMean ends the sentence about something unknown.
func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + anyOf(names) + "?"
}

// PlainDescriptions removes the back-quotes in descriptions of flags if a shell asks for
// completions. In the help they name the value of the flag.
func PlainDescriptions(root *cobra.Command, args []string) {
	if len(args) == 0 || args[0] != cobra.ShellCompRequestCmd {
		return
	}
	for _, cmd := range append(root.Commands(), root) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
}
