package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/remote"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/version"
)

const (
	binary = "kubectl-eventing"
	// program is what a person types.
	program = "kubectl eventing"
)

// forms are those of -o.
var forms = []string{frame.FormText, frame.FormWide, frame.FormJSON, frame.FormYAML, frame.FormName}

// app is one execution of the program.
type app struct {
	frame.IO
	in         io.Reader
	inCluster  func() (*rest.Config, error)
	isTerminal func(io.Writer) bool

	place   frame.Place
	log     frame.LogOptions
	timeout time.Duration
	cluster *pflag.FlagSet
	common  frame.Program

	output    string
	namespace string
	all       bool
	code      int
	// writes: the command changes something, and has failed if it did not do so.
	writes bool
	// stays: the command has no end of its own.
	stays bool
}

// execute is the program.
func execute(streams frame.IO, in io.Reader, inCluster func() (*rest.Config, error)) int {
	defer frame.BoundMemory()()
	a := &app{IO: streams, in: in, inCluster: inCluster, isTerminal: frame.IsTerminal, place: frame.Place{QPS: -1, Burst: -1}, log: frame.DefaultLog()}
	root := a.root()
	root.SetArgs(append([]string{}, streams.Args...))
	frame.PlainDescriptions(root, streams.Args)
	if err := root.ExecuteContext(context.Background()); err != nil {
		frame.Refuse(a.Stderr, program, err)
		return frame.ExitUsage
	}
	return a.code
}

// meanings are the exit codes, for the help.
var meanings = [][2]string{
	{"0", "done, and nothing is wrong"},
	{"1", "failed, or something is left to do (send, dead-letters redeliver and delete, take-over run and undo)"},
	{"2", "the command line or the kubeconfig is wrong, or a name does not exist"},
	{"5", "somebody else delivers dead letters again, or moves eventing"},
	{"6", "problems were found (status, check, take-over)"},
	{"7", "could not read what was asked for: no connection, or no permission"},
	{"128+n", "interrupted by signal n"},
}

// exitCodes lists them.
func exitCodes() string {
	var lines []string
	for _, m := range meanings {
		lines = append(lines, fmt.Sprintf("  %-6s %s", m[0], m[1]))
	}
	return strings.Join(lines, "\n")
}

func (a *app) root() *cobra.Command {
	a.common = frame.Program{
		IO: a.IO, Name: program, Checks: frame.FlagChecks{}, Problems: func() []string { return a.log.Problems() },
		About: fmt.Sprintf("%s %s\n", program, version.String()),
	}
	root := &cobra.Command{
		Use:   binary,
		Short: "Show how eventing is in a cluster, and help when events do not flow",
		Long: `Show how eventing is in a cluster, and help when events do not flow.

Begin here, and follow the next command that each one prints:

  ` + program + ` status

Exit codes (` + program + ` explain exit-N says what to do at each):
` + exitCodes(),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: program},
	}
	a.cluster = a.clusterFlags()
	frame.VersionFlag(root, a.Stdout, a.common.About)
	root.AddCommand(
		statusCommand(a), subscriptionsCommand(a), deadLettersCommand(a), sendCommand(a), traceCommand(a), pageCommand(a),
		explainCommand(a), checkCommand(a), takeOverCommand(a), diagnoseCommand(a), versionCommand(a),
	)
	a.common.Finish(root)
	return root
}

// clusterFlags are those of every command that reaches a cluster.
func (a *app) clusterFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	a.place.Bind(fs)
	a.place.BindRate(fs)
	fs.DurationVar(&a.timeout, "timeout", 0, "time `limit` for the command, such as 90s. Default: 2m for commands that read, none for others.")
	fs.Lookup("timeout").DefValue = "0"
	return fs
}

// flags adds flags to a command; -o takes the forms, the first of which is the default.
func (a *app) flags(cmd *cobra.Command, forms []string, reaches bool) {
	if reaches {
		cmd.Flags().AddFlagSet(a.cluster)
		_ = cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.place.Contexts(a.Env), cobra.ShellCompDirectiveNoFileComp
		}) // another command may share the flag
	}
	log := pflag.NewFlagSet("", pflag.ContinueOnError)
	log.SortFlags = false
	a.log.Bind(log)
	log.VisitAll(func(f *pflag.Flag) {
		cmd.Flags().AddFlag(f)
		if words := frame.Words(f); len(words) > 0 {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
		}
	})
	cmd.Flags().SortFlags = false
	if len(forms) > 0 {
		a.common.OutputFlag(cmd, &a.output, forms)
	}
}

func (a *app) namespaceFlags(cmd *cobra.Command) {
	frame.NamespaceFlags(cmd, &a.namespace, &a.all, frame.CompleteNamespaces(a.config))
}

// config is that of the cluster, for completions.
func (a *app) config() (*rest.Config, error) {
	way, err := a.place.Connect(a.Env, a.inCluster, userAgent())
	if err != nil {
		return nil, err
	}
	return way.Config, nil
}

func userAgent() string { return frame.UserAgent(binary, version.String(), "eventmesh-migration") }

// connection is the way to the cluster.
type connection struct {
	*inspect.Cluster
	way    *frame.Way
	log    *zap.Logger
	status *frame.StatusLine
	color  bool
}

// name names the cluster and the account for people.
func (c *connection) name() string {
	return frame.ClusterName(c.way.Config.Host, c.way.Context, c.way.User)
}

// connect prepares everything; it does not call the server.
func (a *app) connect(describe func(time.Time) string) (*connection, error) {
	way, err := a.place.Connect(a.Env, a.inCluster, userAgent())
	if err != nil {
		return nil, frame.Usage(err.Error())
	}
	cluster, err := inspect.New(way.Config)
	if err != nil {
		return nil, frame.Usage(fmt.Sprintf("cannot use the configuration of %s (%s): %v", way.Config.Host, way.Source, err))
	}
	settings := a.log.Settings(a.Stderr, a.Env, a.isTerminal)
	c := &connection{
		Cluster: cluster, way: way, color: a.log.Color(a.Stdout, a.Env, a.isTerminal),
		status: frame.NewStatusLine(a.Stderr, frame.Smart(a.Stderr, a.Env, a.isTerminal) && !settings.JSON, describe),
	}
	c.log = frame.Quieter(frame.NewLogger(c.status, settings))
	frame.KlogTo(c.log)
	return c, nil
}

// signalError is the cause of a context that a signal has ended.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string {
	return "interrupted by " + cmp.Or(frame.SignalName(e.signal), "a signal")
}

// readTimeout is that of commands that only read.
const readTimeout = 2 * time.Minute

// reach does something with a cluster that answers. What fails is told on stderr.
func (a *app) reach(describe func(time.Time) string, work func(context.Context, *connection) error) error {
	c, err := a.connect(describe)
	if err != nil {
		return err
	}
	var failed error
	err = frame.Supervisor{
		Log: c.log, Cause: func(s syscall.Signal) error { return signalError{s} },
		Stopping: "%s: stopping. A second %[1]s stops at once",
	}.Supervise(func(ctx context.Context) { failed = a.within(ctx, c, work) })
	c.status.Close()
	if second, ok := errors.AsType[*frame.SecondSignalError](err); ok {
		failed = signalError{second.Signal}
	} else if err != nil {
		failed = err
	}
	return a.ended(failed)
}

func (a *app) within(ctx context.Context, c *connection, work func(context.Context, *connection) error) error {
	limit := a.timeout
	if limit == 0 && !a.writes && !a.stays {
		limit = readTimeout
	}
	if limit > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s (--timeout)", frame.Duration(limit)))
		defer cancel()
	}
	if c.way.Context != "" {
		user, err := a.place.Reach(ctx, c.way.Config, c.status)
		if err != nil {
			return err
		}
		c.way.User = cmp.Or(user, c.way.User)
	}
	err := work(ctx, c)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ended tells how a command has failed, and sets the exit code. A wrong command line is returned.
func (a *app) ended(failed error) error {
	if failed == nil {
		return nil
	}
	if _, ok := errors.AsType[*frame.UsageError](failed); ok {
		return failed
	}
	a.code = frame.ExitNotChecked
	if a.writes {
		a.code = frame.ExitFailed
	}
	if s, ok := errors.AsType[signalError](failed); ok {
		a.code = frame.ExitSignal + int(s.signal)
	}
	if _, ok := errors.AsType[*frame.OutputError](failed); ok {
		a.code = frame.ExitFailed
	}
	if _, ok := errors.AsType[*inspect.NotInstalledError](failed); ok {
		a.code = frame.ExitFindings
	}
	if refused, ok := errors.AsType[*remote.RefusedError](failed); ok {
		switch refused.Status {
		case http.StatusConflict:
			a.code = frame.ExitLocked
		case http.StatusNotFound:
			a.code = frame.ExitUsage
		}
	}
	fmt.Fprintf(a.Stderr, "%s: %v\n", program, failed)
	return nil
}

// given are the flags of the cluster that were given: the next command needs them, too.
func (a *app) given() []frame.Flag {
	var all []frame.Flag
	for _, f := range frame.Given(a.cluster) {
		if f.Name != "timeout" {
			all = append(all, f)
		}
	}
	return all
}

// next completes a command by the flags of the cluster.
func (a *app) next(line string) string { return frame.Complete(line, program, program, a.given()) }

// width of stdout.
func (a *app) width() int {
	if !a.isTerminal(a.Stdout) {
		return frame.DefaultWidth
	}
	return frame.Width(a.Stdout)
}

// tableWidth is 0 where nothing is cut: with -o wide, and in pipes and files.
func (a *app) tableWidth() int {
	if a.output == frame.FormWide || !a.isTerminal(a.Stdout) {
		return 0
	}
	return a.width()
}

func (a *app) structured() bool { return frame.Structured(a.output) }

// print writes a value as -o says: json or yaml.
func (a *app) print(v any) error { return frame.Print(a.Stdout, a.output, v) }

// write writes text for people.
func (a *app) write(c *connection, lines ...string) error {
	text := strings.Join(lines, "\n") + "\n"
	if _, err := io.WriteString(a.Stdout, frame.Painter(c != nil && c.color, colours)(text)); err != nil {
		return &frame.OutputError{Err: fmt.Errorf("cannot print: %w", err)}
	}
	return nil
}

// colours of words that tell a state.
var colours = map[string]string{
	"Ready": "32", "Processing": "33", "Warning": "33", "Error": "31", "Deleting": "33",
	"good": "32", "warning": "33", "error": "31", "delivered": "32", "deleted": "32", "refused": "31", "failed": "31", "gone": "33",
}

// where names the cluster in what is printed for programs.
type where struct {
	Server  string `json:"server"`
	Context string `json:"context,omitempty"`
}

func whereOf(c *connection) where { return where{c.way.Config.Host, c.way.Context} }

// oneArgument takes at most one.
func oneArgument(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return frame.NoArguments(cmd, args[1:])
	}
	return nil
}

func now() time.Time { return time.Now() }
