package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// commandLine is a job's flags and what was found on the command line.
type commandLine struct {
	options
	groups []flagGroup
	// problems are the values that do not parse. Parsing goes on after one, so
	// that a person corrects all of them at once.
	problems []string
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
		if f.DefValue == "[]" {
			f.DefValue = ""
		}
		typ := f.Value.Type()
		if list := words[f.Name]; list != nil {
			typ = strings.Join(list, "|")
		}
		f.Value = &recorder{Value: f.Value, flag: f.Name, typ: typ, problems: &cl.problems}
	})
	cl.groups = append(cl.groups, flagGroup{title: title, flags: fs})
}

// again returns the flags that say what is worked on, and how, if they were given:
// the job's own and the cluster's. Those of time, safety and output are for each run
// anew.
func (cl *commandLine) again() []string {
	var given []string
	for _, g := range cl.groups {
		if g.title != clusterGroup && !strings.HasPrefix(g.title, jobGroup) {
			continue
		}
		g.flags.VisitAll(func(f *pflag.Flag) {
			if !f.Changed {
				return
			}
			value := f.Value.String()
			if list, ok := f.Value.(*recorder).Value.(pflag.SliceValue); ok {
				value = strings.Join(list.GetSlice(), ",")
			}
			given = append(given, "--"+f.Name+"="+shellWord(value))
		})
	}
	return given
}

// shellWord quotes a value that a shell would not take for one word.
func shellWord(value string) string {
	special := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:,=@%+", r)
	}
	if value != "" && !strings.ContainsFunc(value, special) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

func (cl *commandLine) clusterFlags(fs *pflag.FlagSet) {
	o := &cl.options
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"`file` to take the cluster and the credentials from. Without it: the Pod's ServiceAccount when in a Pod, then the files of KUBECONFIG, then ~/.kube/config.")
	fs.StringVar(&o.context, "context", o.context,
		"`name` of the context in the kubeconfig. Given in a Pod, the kubeconfig is used and not the ServiceAccount. Without it: the current one.")
	fs.StringVar(&o.stateNamespace, "state-namespace", o.stateNamespace,
		"`namespace` of the lock, the journal and the reports, and of nothing else; the first write creates it. It must be the same for every run on a cluster, wherever it is started from.")
	fs.StringSliceVar(&o.excludeNamespaces, "exclude-namespaces", o.excludeNamespaces,
		"`namespaces` to leave alone, separated by commas, besides the system's own.")
	fs.Float32Var(&o.qps, "qps", o.qps,
		"`requests` per second to the API server at most, on average. Negative: no limit of ours, the server's own fairness decides.")
	fs.IntVar(&o.burst, "burst", o.burst,
		"`requests` that may exceed --qps for a moment. Negative: twice the --qps.")
}

func (cl *commandLine) safetyFlags(fs *pflag.FlagSet) {
	o := &cl.options
	fs.DurationVar(&o.timeout, "timeout", o.timeout,
		"time limit for the work. A run that reaches it is rolled back, with exit code 124.")
	fs.DurationVar(&o.rollbackTimeout, "rollback-timeout", o.rollbackTimeout,
		"time limit for a rollback, in addition to --timeout.")
	fs.StringVar(&o.onFailure, "on-failure", o.onFailure,
		"what a failed run does with its finished changes. Those that it leaves can still be undone with undo.")
	fs.StringVar(&o.resume, "resume", o.resume,
		"how to end an interrupted run. Forward finishes it, back rolls it back. An interrupted rollback is always finished.")
	fs.StringVar(&o.deferral, "defer", o.deferral,
		"whether deferred work is a success (allow) or a failure with exit code 1 (fail).")
	fs.IntVar(&o.maxUnready, "max-unready", o.maxUnready,
		"how many new objects may be not ready at the same time. The next one is created when one of them is ready.")
	fs.DurationVar(&o.leaseDuration, "lease-duration", o.leaseDuration,
		"how long the lock outlives a process that was killed, 1s at least.")
	fs.DurationVar(&o.lockWait, "lock-wait", o.lockWait,
		"how long to wait for the lock when another run holds it. Then the exit code is 5.")
	fs.Lookup("lock-wait").DefValue = "--lease-duration + " + duration(lockGrace)
	fs.DurationVar(&o.helmTimeout, "helm-timeout", 0,
		"what Helm's --timeout must be at least if this is a hook, for the log; the chart sets it. 0: the sum of the limits.")
}

func (cl *commandLine) outputFlags(fs *pflag.FlagSet) {
	o := &cl.options
	fs.StringVar(&o.output, "output", o.output,
		"form of the report on stdout. The text is a summary; json is complete and one object.")
	fs.StringVar(&o.logFormat, "log-format", o.logFormat,
		"form of the log on stderr. Auto: console on a terminal, json elsewhere. The status line needs console and a terminal.")
	fs.StringVar(&o.logLevel, "log-level", o.logLevel,
		"least important lines to log. With debug, client-go's are among them.")
	fs.BoolP("help", "h", false, "show this.")
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
	}
}

// recorder keeps a value that does not parse as a problem, and lets the parsing
// of the command line go on.
type recorder struct {
	pflag.Value
	flag     string
	typ      string
	problems *[]string
}

// Type is pflag.Value. The help shows it behind the flag.
func (r *recorder) Type() string { return r.typ }

// Set is pflag.Value.
func (r *recorder) Set(s string) error {
	before := r.String()
	if err := r.Value.Set(s); err != nil {
		// The parsers of pflag leave a zero behind, which would be found wrong
		// once more. That of lists changes nothing.
		if _, list := r.Value.(pflag.SliceValue); !list {
			_ = r.Value.Set(before)
		}
		*r.problems = append(*r.problems, fmt.Sprintf("--%s %q: %s", r.flag, s, notA(r.Value.Type(), err)))
	}
	return nil
}

// notA says what a value should look like, which the parsers' errors do not.
func notA(typ string, err error) string {
	switch typ {
	case "duration":
		return "is no duration; write it like 90s, 5m or 1h30m"
	case "int":
		return "is no whole number"
	case "float32":
		return "is no number"
	case "bool":
		return "must be true or false"
	default:
		return "cannot be read: " + err.Error()
	}
}

// validate reports all problems of the command line at once; nil if there are
// none.
func (cl *commandLine) validate(job migration.Job) *usageError {
	problems := slices.Concat(cl.problems, cl.options.validate())
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

// diagnose finds everything that is wrong with a command line on which parsing
// ended early, at a flag that does not exist or lacks its value.
func diagnose(job migration.Job, commands []*cobra.Command, args []string) error {
	var cl *commandLine
	var problems []string
	for args = slices.Clone(args); ; {
		// A fresh set each time, so that what was found in an earlier round is
		// not found again.
		cl = newCommandLine(job)
		fs := cl.flagSet()
		err := fs.Parse(args)
		if err == nil || errors.Is(err, pflag.ErrHelp) {
			break
		}
		problem, at := explain(err, fs, commands, args)
		problems = append(problems, problem)
		if at < 0 {
			break
		}
		args = slices.Delete(args, at, at+1)
	}
	if err := cl.validate(job); err != nil {
		problems = append(problems, err.problems...)
	}
	return &usageError{problems: problems}
}

// explain puts an error of the flag parser into words, and returns the index of
// the argument it is about, -1 if there is no telling.
func explain(err error, fs *pflag.FlagSet, commands []*cobra.Command, args []string) (problem string, at int) {
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &missing):
		return fmt.Sprintf("--%s: needs a value", missing.GetSpecifiedName()), len(args) - 1
	case errors.As(err, &unknown):
		name, spelled := unknown.GetSpecifiedName(), "--"+unknown.GetSpecifiedName()
		if group := unknown.GetSpecifiedShortnames(); group != "" {
			name, spelled = group, "-"+group
		}
		at := slices.IndexFunc(args, func(a string) bool {
			return a == spelled || strings.HasPrefix(a, spelled+"=")
		})
		name, _, _ = strings.Cut(name, "=")
		spelled, _, _ = strings.Cut(spelled, "=")
		return fmt.Sprintf("%s: unknown flag%s", spelled, suggest(name, fs, commands)), at
	default:
		return err.Error(), -1
	}
}

// suggest ends the sentence about an unknown flag with what was probably meant.
func suggest(name string, fs *pflag.FlagSet, commands []*cobra.Command) string {
	for _, c := range commands {
		if c.Name() == name {
			return fmt.Sprintf("; %s is a command and takes no dashes", name)
		}
	}
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if best := closest(name, names); best != "" {
		return "; did you mean --" + best + "?"
	}
	return ""
}

// closest returns the candidate that a typing error or two turn into word, or
// that starts with it; "" if there is none.
func closest(word string, candidates []string) string {
	best, least := "", 3
	for _, c := range candidates {
		d := distance(word, c)
		if d >= len(word) {
			continue
		}
		if d >= least && len(word) >= 3 && strings.HasPrefix(c, word) {
			d = least - 1
		}
		if d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or replace that turn a
// into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
