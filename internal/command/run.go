// Package command is the frame of a process that runs jobs once: flags, logger, signals, the way to
// the API server, the report, and the exit code. It decides nothing about the cluster: a job does,
// and the engine acts (pkg/engine). It knows no program: what one says of itself is its Program.
// internal/migration/cli has that of the migration.
//
// Of the environment it reads KUBECONFIG and HOME (where the kubeconfig is),
// KUBERNETES_SERVICE_HOST (whether this is a pod), TERM and NO_COLOR (what the
// terminal can do). The Go runtime and its libraries read theirs: GOMEMLIMIT,
// HTTPS_PROXY, SSL_CERT_FILE.
package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/command/statusline"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// IO is all that a process uses, except the API server.
type IO = frame.IO

// Run executes the job as the command line says, and returns the exit code of
// the process. It is to be called once in a process.
func Run(program *Program, job migration.Job, streams IO) int {
	defer frame.BoundMemory()()
	p := &process{
		IO:             streams,
		program:        program,
		job:            job,
		newEngine:      realEngine,
		inCluster:      rest.InClusterConfig,
		isTerminal:     frame.IsTerminal,
		terminationLog: terminationLog,
	}
	return p.main()
}

// runner is what a process asks of *engine.Engine.
type runner interface {
	Run(context.Context, migration.Job) *migration.Report
	Plan(context.Context, migration.Job) *migration.Report
	Undo(context.Context, migration.Job) *migration.Report
	CreateStateNamespace(context.Context, migration.Job) *migration.Report
}

func realEngine(cfg *rest.Config, o engine.Options) (runner, error) {
	e, err := engine.New(cfg, o)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// process is one execution of a job. The functions are those a test replaces.
type process struct {
	IO
	program        *Program
	job            migration.Job
	newEngine      func(*rest.Config, engine.Options) (runner, error)
	inCluster      func() (*rest.Config, error)
	isTerminal     func(io.Writer) bool
	terminationLog string

	// context and user are those of the kubeconfig, once it was read.
	context, user string
}

// The commands that work on a cluster.
const (
	cmdRun  = "run"
	cmdPlan = "plan"
	cmdUndo = "undo"
	// cmdCreateStateNamespace is for the first hook of the charts.
	cmdCreateStateNamespace = "create-state-namespace"
)

func (p *process) main() int {
	code := migration.ExitOK
	root := p.command(func(verb string, cl *commandLine) error {
		var err error
		code, err = p.execute(verb, cl)
		return err
	})
	// nil would make cobra look at os.Args.
	root.SetArgs(append([]string{}, p.Args...))
	frame.PlainDescriptions(root, p.Args)
	if err := root.Execute(); err != nil {
		return p.refuse(p.job.Name(), err)
	}
	return code
}

// refuse tells what is wrong with how the process was called.
func (p *process) refuse(name string, err error) int {
	text := frame.Refuse(p.Stderr, name, err)
	// In a Job whose arguments are wrong, this is where people look first. It
	// was said on stderr: that it cannot be said here as well is no news.
	_ = terminate(p.terminationLog, text)
	return migration.ExitUsage
}

// execute does one command. An error is a usage error: everything that goes
// wrong later is in the report.
func (p *process) execute(verb string, cl *commandLine) (int, error) {
	if usage := cl.validate(p.job); usage != nil {
		return 0, usage
	}
	cfg, source, err := p.connect(&cl.options)
	if err != nil {
		return 0, err
	}

	if verb != cmdPlan {
		// The reader of the log may end; the work must not be killed by that
		// in the middle of a write. A plan may: `plan | head`.
		signal.Ignore(syscall.SIGPIPE)
	}
	settings := cl.log.Settings(p.Stderr, p.Env, p.isTerminal)
	out := statusline.New(p.Stderr, frame.Smart(p.Stderr, p.Env, p.isTerminal) && !settings.JSON)
	log := frame.NewLogger(out, settings)
	ours := log.With(zap.String("job", p.job.Name())) // the engine adds the job itself
	// Not undone at the end: watches that are ending may still log.
	frame.KlogTo(ours)

	o := cl.engineOptions(p.program)
	o.Log, o.Identity, o.Undo = log, identity(), cl.undo
	o.User, o.Host, o.Grant = p.user, host(), p.grant()
	if out.Live() {
		o.Progress = out.Job(p.job.Name())
	}
	eng, err := p.newEngine(cfg, o)
	if err != nil {
		return 0, fmt.Errorf("cannot use the configuration of %s (%s): %w", cfg.Host, source, err)
	}

	ours.Info(p.program.intro(verb, p.job, &cl.options),
		zap.String("server", cfg.Host), zap.String("config", source), zap.String("version", o.Version))

	started := time.Now()
	report, err := p.supervise(ours, func(ctx context.Context) *migration.Report {
		switch verb {
		case cmdPlan:
			return eng.Plan(ctx, p.job)
		case cmdUndo:
			return eng.Undo(ctx, p.job)
		case cmdCreateStateNamespace:
			return eng.CreateStateNamespace(ctx, p.job)
		default:
			return eng.Run(ctx, p.job)
		}
	})
	out.Close()
	if err != nil {
		report = p.broken(verb, started, err, ours)
	}
	report.Server, report.Context = cfg.Host, p.context
	return p.conclude(report, cl, ours), nil
}

// conclude says, everywhere but in the log, how the command ended: the engine
// has logged it.
func (p *process) conclude(r *migration.Report, cl *commandLine, log *zap.Logger) int {
	code := r.ExitCode()
	if err := terminate(p.terminationLog, p.program.terminationText(r)); err != nil {
		log.Warn("cannot write the termination message", zap.Error(err))
	}

	if err := p.write(r, cl); err != nil {
		log.Error("cannot write the report to stdout", zap.Error(err))
		// What a run did to the cluster is said by its own code. A plan that
		// nobody can read has failed.
		if code == migration.ExitOK && r.Command == cmdPlan {
			return migration.ExitFailed
		}
	}
	return code
}

// write writes the report as --output says.
func (p *process) write(r *migration.Report, cl *commandLine) error {
	switch cl.output {
	case outputJSON:
		return writeJSON(p.Stdout, r)
	case outputYAML:
		return writeYAML(p.Stdout, r)
	case outputName:
		return frame.WriteNames(p.Stdout, present.Changed(r))
	case outputWide:
		return p.program.WriteWide(p.Stdout, r)
	}
	caller := cl.caller(r.Job)
	o := present.Options{Width: p.width(), Full: "add -o wide or -o json", Caller: caller}
	if p.context == "" {
		o.Width = logWidth // nothing is wrapped, so that the log can be searched
	}
	switch {
	case p.context == "" && r.Command != cmdPlan:
		// In a Pod: nobody can add a flag, and Helm has the next command.
		o.Full = fmt.Sprintf("ConfigMap %s-%s in namespace %s", p.program.Names.Program, r.Job, cl.stateNamespace)
	case p.context != "" && r.Command != cmdCreateStateNamespace:
		o.Next = p.program.next(r, caller)
	}
	_, err := io.WriteString(p.Stdout, p.program.Text(r, frame.ClusterName(r.Server, r.Context, p.user), o))
	return err
}

// logWidth is that of lines in the log of a Pod.
const logWidth = 4096

// width of stdout: that of the terminal, or one for files and pipes.
func (p *process) width() int {
	if !p.isTerminal(p.Stdout) {
		return frame.DefaultWidth
	}
	return frame.Width(p.Stdout)
}

// broken makes a report for work that ended without one.
func (p *process) broken(verb string, started time.Time, err error, log *zap.Logger) *migration.Report {
	r := &migration.Report{
		Job: p.job.Name(), Command: verb, StartedAt: started, Seconds: time.Since(started).Seconds(),
		Result: migration.PartlyRestored, Message: err.Error(),
	}
	var second *frame.SecondSignalError
	var crash *frame.PanicError
	switch {
	case errors.As(err, &second):
		r.Result, r.Signal = migration.Interrupted, int(second.Signal)
	case errors.As(err, &crash):
		log.Error("this is a bug", zap.String("panic", fmt.Sprint(crash.Value)), zap.ByteString("stack", crash.Stack))
	}
	if verb == cmdPlan && r.Result != migration.Interrupted {
		r.Result = migration.FailedResult
	}
	return r
}

// reserve is added to what a run may take by its own flags: the time until its
// pod is scheduled, its image pulled and its report written.
const reserve = time.Minute

// helmTimeout is what `helm upgrade --timeout` must be at least, so that Helm
// does not give up on a hook that is still within its limits.
func helmTimeout(o *options) string {
	d := o.helmTimeout
	if d == 0 {
		d = o.lockWait + o.timeout + o.rollbackTimeout + reserve
	}
	return fmt.Sprintf("%ds", int64((d+time.Second-1)/time.Second))
}

// intro says in plain words what will happen.
func (p *Program) intro(verb string, job migration.Job, o *options) string {
	short, _ := job.Doc()
	what := fmt.Sprintf("%s %s: %s.", job.Name(), verb, strings.TrimSuffix(short, "."))
	switch verb {
	case cmdCreateStateNamespace:
		return fmt.Sprintf("%s %s: creates Namespace %s if it does not exist, and does nothing else", job.Name(), verb, o.stateNamespace)
	case cmdPlan:
		return what + " This only shows the changes, and writes nothing"
	case cmdUndo:
		return what + fmt.Sprintf(" This undoes the last run, except objects that were edited since%s."+
			" Time limit %s", p.kept(job), frame.Duration(o.timeout))
	}
	otherwise := "roll back"
	if o.onFailure == onFailureLeave {
		otherwise = "end, where finished changes stay (--on-failure leave)"
	}
	what += fmt.Sprintf(" Time limit %s; if it fails, %s more to %s", frame.Duration(o.timeout), frame.Duration(o.rollbackTimeout), otherwise)
	if !p.Charts {
		return what
	}
	return what + fmt.Sprintf("."+
		" As a hook it needs \"helm upgrade --timeout %s\" or more. If Helm gives up earlier, this Job continues: wait until it has ended, then upgrade again",
		helmTimeout(o))
}

// kept are the objects that an undo leaves in addition to those that were edited; "" if there are
// none.
func (p *Program) kept(job migration.Job) string {
	if p.Kept != "" {
		return " or " + p.Kept
	}
	_, protects := job.(migration.Protector)
	return textIf(protects, " or are protected")
}

// grant is the command that prints a Role for the account of a person. That of a Pod has the
// Roles of its chart.
func (p *process) grant() string {
	if p.context == "" || p.program.Tool == "" {
		return ""
	}
	return p.program.Tool + " check --role"
}

// identity names this process as the holder of a lock, for those who wait for
// it: the host, the process, and something that no other process has.
func identity() string {
	return fmt.Sprintf("%s_%d_%s", host(), os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

// host is the machine's name; in a Pod, it is the Pod's.
func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
