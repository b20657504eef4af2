package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/command/statusline"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Tool is the frame of a program that has commands of its own, and runs several
// jobs. Its flags, its way to the cluster, its log, its signals and its exit codes
// are those of the jobs' own binaries.
type Tool struct {
	IO
	p    *process
	cl   *commandLine
	jobs []migration.Job
}

// noJob is a name where the frame expects a job.
type noJob string

func (n noJob) Name() string            { return string(n) }
func (noJob) Doc() (short, long string) { return "", "" }
func (noJob) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	return &migration.Plan{}, nil
}
func (noJob) Await(*migration.Change) []migration.Condition { return nil }

// NewTool returns the frame of the tool of a program.
func NewTool(program *Program, streams IO, jobs ...migration.Job) *Tool {
	cl := &commandLine{options: defaultOptions(program), program: program}
	cl.group(clusterGroup, cl.clusterFlags)
	cl.group("Logging", func(fs *pflag.FlagSet) {
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		cl.outputFlags(all)
		for _, flag := range []string{"log-format", "log-level", "verbose", "quiet", "no-color"} {
			fs.AddFlag(all.Lookup(flag))
		}
	})
	cl.group("Time and safety", cl.safetyFlags)
	for _, job := range jobs {
		c, ok := job.(migration.Configurable)
		if !ok {
			continue
		}
		cl.group(jobGroup+job.Name(), func(fs *pflag.FlagSet) {
			settings := slices.Clone(c.Settings())
			for i := range settings {
				settings[i].Name = job.Name() + "." + settings[i].Name
			}
			bindSettings(fs, settings)
		})
	}
	return &Tool{IO: streams, cl: cl, jobs: jobs, p: &process{
		IO: streams, program: program, job: noJob(program.Tool), newEngine: realEngine, inCluster: rest.InClusterConfig, isTerminal: frame.IsTerminal, terminationLog: terminationLog,
	}}
}

// ReadFlags are those of every command that reaches a cluster.
func (t *Tool) ReadFlags() *pflag.FlagSet { return t.flags("Cluster", "Logging") }

// LogFlags are those of every command.
func (t *Tool) LogFlags() *pflag.FlagSet { return t.flags("Logging") }

// WriteFlags are those of commands that let jobs work, JobFlags the settings of
// the jobs, each with the name of its job before it.
func (t *Tool) WriteFlags() *pflag.FlagSet { return t.flags("Time and safety") }

// JobFlags are the settings of the jobs, as --<job>.<setting>.
func (t *Tool) JobFlags() *pflag.FlagSet { return t.JobFlagsOf(t.jobs...) }

// JobFlagsOf are the settings of some jobs.
func (t *Tool) JobFlagsOf(jobs ...migration.Job) *pflag.FlagSet {
	titles := make([]string, len(jobs))
	for i, job := range jobs {
		titles[i] = jobGroup + job.Name()
	}
	return t.flags(titles...)
}

func (t *Tool) flags(titles ...string) *pflag.FlagSet {
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	out.SortFlags = false
	for _, g := range t.cl.groups {
		if slices.Contains(titles, g.title) {
			out.AddFlagSet(g.flags)
		}
	}
	return out
}

// Refuse tells what is wrong with how the program was called, under the name that a person
// has typed, and returns the exit code.
func (t *Tool) Refuse(name string, err error) int { return t.p.refuse(name, err) }

// Connection is the way to the cluster.
type Connection struct {
	Config *rest.Config
	// Source says where the configuration came from.
	Source string
	// Context is that of the kubeconfig, "" in a Pod. User is the kubeconfig's.
	Context, User string
	// Options for engines, complete but for Progress.
	Options engine.Options
	Log     *zap.Logger
	// Status is the status line, and where the log goes.
	Status *statusline.Line
	// Color: colours may be shown on stdout.
	Color bool

	p     *process
	place frame.Place
	json  bool
}

// Problems are what is wrong with the values of the flags.
func (t *Tool) Problems() []string {
	problems := t.cl.options.validate()
	for _, job := range t.jobs {
		if c, ok := job.(migration.Configurable); ok {
			for _, problem := range problemsOf(c.Validate()) {
				problems = append(problems, strings.Replace(problem, "--", "--"+job.Name()+".", 1))
			}
		}
	}
	return problems
}

// Connect prepares everything for flags without Problems; it does not call the server.
func (t *Tool) Connect() (*Connection, error) {
	o := &t.cl.options
	cfg, source, err := t.p.connect(o)
	if err != nil {
		return nil, frame.Usage(err.Error())
	}
	if cfg.QPS > 0 {
		// One limit for all engines together.
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)
	}
	settings := o.log.Settings(t.Stderr, t.Env, t.p.isTerminal)
	c := &Connection{
		Config: cfg, Source: source, Context: t.p.context, User: t.p.user, Options: o.engineOptions(t.p.program), p: t.p, place: o.place, json: settings.JSON,
		Status: statusline.New(t.Stderr, frame.Smart(t.Stderr, t.Env, t.p.isTerminal) && !settings.JSON),
		Color:  o.log.Color(t.Stdout, t.Env, t.p.isTerminal),
	}
	c.Log = frame.NewLogger(c.Status, settings)
	frame.KlogTo(c.Log)
	c.Options.Log, c.Options.Identity, c.Options.Undo = c.Log, identity(), t.cl.undo
	c.Options.User, c.Options.Host, c.Options.Grant = c.User, host(), t.p.grant()
	return c, nil
}

// Cluster names the cluster and the account for people.
func (c *Connection) Cluster() string { return frame.ClusterName(c.Config.Host, c.Context, c.User) }

// Reach asks the API server once whether it answers to this account, before any job does. Its
// error is one message with one action. The server also says who the user is, if it can. In a
// Pod it asks nothing: nobody waits, and the jobs wait longer for a server that restarts.
func (c *Connection) Reach(ctx context.Context) error {
	if c.Context == "" {
		return nil
	}
	user, err := c.place.Reach(ctx, c.Config, c.Status)
	if err != nil {
		return err
	}
	c.User = cmp.Or(user, c.User)
	c.Options.User = c.User
	return nil
}

// Announce names the cluster on stderr before anything is done. A log for machines has it
// as a line of its own.
func (c *Connection) Announce() {
	if c.p.Stderr == nil {
		return
	}
	if c.json {
		c.Log.Info("working on a cluster", zap.String("server", c.Config.Host), zap.String("context", c.Context), zap.String("user", c.User))
		return
	}
	fmt.Fprintln(c.Status, "Cluster "+c.Cluster())
}

// Asks says whether a person can be asked before the first write: at a terminal, and not in
// a Pod.
func (t *Tool) Asks(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && t.IsTerminal(f) && t.Env("KUBERNETES_SERVICE_HOST") == ""
}

// Quiet raises the level of the log, for commands that only read: lines that say
// what was done are of no use there.
func (c *Connection) Quiet() {
	c.Log = frame.Quieter(c.Log)
	c.Options.Log = c.Log
}

// Supervise waits until the work is done. The cause of the context tells the work of
// a signal. If it does not end in order, the exit code says how it ended.
func (c *Connection) Supervise(writes bool, work func(context.Context)) (code int, err error) {
	if writes {
		// The reader of the log may end; see process.execute.
		signal.Ignore(syscall.SIGPIPE)
	}
	_, err = c.p.supervise(c.Log, func(ctx context.Context) *migration.Report {
		work(ctx)
		return nil
	})
	c.Status.Close()
	var second *frame.SecondSignalError
	switch {
	case err == nil:
		return migration.ExitOK, nil
	case errors.As(err, &second):
		return migration.ExitSignal + int(second.Signal), err
	default:
		return migration.ExitPartlyRestored, err
	}
}

// Terminate leaves the text for the kubelet, if this is a Pod.
func (t *Tool) Terminate(text string) error { return terminate(t.p.terminationLog, text) }

// IsTerminal says whether a person sits at the stream.
func (t *Tool) IsTerminal(w io.Writer) bool { return t.p.isTerminal(w) }

// ExitCodes lists the contract, one line a code.
func (p *Program) ExitCodes() string {
	var b strings.Builder
	for _, c := range p.exitCodes() {
		fmt.Fprintf(&b, "  %-6s %s\n", c, c.Meaning)
	}
	return b.String()
}

// Contexts are those of the kubeconfig that the flags name; nil if it cannot be read.
func (t *Tool) Contexts() []string { return t.cl.place.Contexts(t.Env) }

// Timeout is the limit of the work.
func (t *Tool) Timeout() time.Duration { return t.cl.timeout }

// Given are the flags that the next command on this cluster needs, too: those of the cluster,
// and the settings of jobs.
func (t *Tool) Given() (cluster, jobs []present.Flag) { return t.cl.given() }

// Width of stdout: that of the terminal, or one for files and pipes.
func (t *Tool) Width() int { return t.p.width() }
