package command

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// commandLine is a job's flags and what was found on the command line.
type commandLine struct {
	options
	program *Program
	groups  []flagGroup
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

func newCommandLine(program *Program, job migration.Job) *commandLine {
	cl := &commandLine{options: defaultOptions(program), program: program}
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
			f.DefValue = frame.Duration(d)
		}
	})
	cl.groups = append(cl.groups, flagGroup{title: title, flags: fs})
}

// caller is how a person calls the program for a job, with the flags that were given and that the
// next command needs, too.
func (cl *commandLine) caller(job string) present.Caller {
	if cl.program.Tool == "" {
		cluster, settings := cl.given()
		return present.Caller{Program: job, OneJob: true, Cluster: slices.Concat(settings, cluster), Timeout: cl.timeout}
	}
	c := present.Caller{Program: cl.program.Tool, Explains: true, Timeout: cl.timeout}
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
		switch {
		case g.title == clusterGroup:
			cluster = append(cluster, frame.Given(g.flags)...)
		case strings.HasPrefix(g.title, jobGroup):
			jobs = append(jobs, frame.Given(g.flags)...)
		}
	}
	return cluster, jobs
}

func (cl *commandLine) clusterFlags(fs *pflag.FlagSet) {
	o := &cl.options
	o.place.Bind(fs)
	fs.StringVar(&o.stateNamespace, "state-namespace", o.stateNamespace,
		"`namespace` for the lock, the journal and the reports, and nothing else. The first write creates it. Use the same for every run on a cluster.")
	fs.StringSliceVar(&o.excludeNamespaces, "exclude-namespaces", o.excludeNamespaces,
		"`namespaces` to leave out, separated by commas"+textIf(cl.program.LeftOut != "", ", in addition to "+cl.program.LeftOut)+".")
	o.place.BindRate(fs)
}

func (cl *commandLine) safetyFlags(fs *pflag.FlagSet) {
	o := &cl.options
	fs.DurationVar(&o.timeout, "timeout", o.timeout,
		"time limit for the work. A run that reaches it is rolled back, with exit code 124.")
	fs.DurationVar(&o.rollbackTimeout, "rollback-timeout", o.rollbackTimeout,
		"time limit for a rollback, in addition to --timeout.")
	frame.WordVar(fs, &o.onFailure, words["on-failure"], "on-failure",
		"what a failed run does with its finished changes. If it leaves them, undo can still undo them.")
	frame.WordVar(fs, &o.resume, words["resume"], "resume",
		"how to end an interrupted run: finish it (forward), or roll it back (back). An interrupted rollback is always finished.")
	frame.WordVar(fs, &o.deferral, words["defer"], "defer",
		"whether deferred work is a success (allow) or a failure with exit code 1 (fail).")
	fs.BoolVar(&o.acceptLeft, "accept-left", false,
		"let undo close a run of which it cannot restore everything. What is left stays as it is, and the run before can be undone.")
	fs.IntVar(&o.maxUnready, "max-unready", o.maxUnready,
		"how many new objects may be not ready at the same time. When one of them is ready, the next one is created.")
	fs.DurationVar(&o.leaseDuration, "lease-duration", o.leaseDuration,
		"how long the lock stays after its process was killed. Minimum: 1s.")
	fs.DurationVar(&o.lockWait, "lock-wait", o.lockWait,
		"how long to wait for the lock when another run holds it. Then the exit code is 5.")
	fs.Lookup("lock-wait").DefValue = "--lease-duration + " + frame.Duration(lockGrace)
	fs.DurationVar(&o.permissionWait, "permission-wait", 0,
		"how long to wait, before the first write, for a permission that is missing."+
			textIf(cl.program.Charts, " The charts set it: they create the permissions right before the Job."))
	if !cl.program.Charts {
		return
	}
	fs.DurationVar(&o.helmTimeout, "helm-timeout", 0,
		"minimum for Helm's --timeout if this is a hook. It is only logged; the chart sets it. 0: the sum of the limits.")
}

func (cl *commandLine) outputFlags(fs *pflag.FlagSet) {
	o := &cl.options
	frame.WordVar(fs, &o.output, words["output"], "output",
		"form of the report on stdout. text: a summary. wide: each change and finding. json, yaml: one complete object. name: the changed objects, for kubectl.")
	o.log.Bind(fs)
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
			_ = fs.SetAnnotation(s.Name, frame.WordsAnnotation, s.Words) // the flag exists
		}
	}
}

// validate reports everything that is wrong with the values; nil if nothing is.
func (cl *commandLine) validate(job migration.Job) *frame.UsageError {
	problems := cl.options.validate()
	if c, ok := job.(migration.Configurable); ok {
		problems = append(problems, problemsOf(c.Validate())...)
	}
	if len(problems) > 0 {
		return &frame.UsageError{Problems: problems}
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
