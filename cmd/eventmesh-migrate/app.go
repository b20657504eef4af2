package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/internal/version"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

const program = "eventmesh-migrate"

// plugin is how the program is called by kubectl, which finds it by this name.
const plugin = "kubectl-eventmesh_migrate"

// app is one execution of the program.
type app struct {
	*command.Tool
	in   io.Reader
	jobs []jobmanager.Registration
	// name is what a person has typed.
	name string

	output    string
	namespace string
	all       bool
	// exitCode: the exit code of plan says whether changes are left.
	exitCode bool
	code     int
	common   frame.Program
}

// execute is the program under the name it was called by.
func execute(name string, streams cli.IO, in io.Reader) int {
	jobs := registry.Jobs(registry.All())
	for _, job := range jobs {
		if job.Name() == name {
			return cli.Run(job.Job, streams)
		}
	}
	defer frame.BoundMemory()()
	a := &app{in: in, jobs: jobs, name: program}
	if strings.TrimSuffix(name, ".exe") == plugin {
		a.name = "kubectl " + program
	}
	engine := make([]migration.Job, len(jobs))
	for i, job := range jobs {
		engine[i] = job.Job
	}
	a.Tool = cli.NewTool(streams, engine...)
	root := a.root()
	root.SetArgs(append([]string{}, streams.Args...))
	frame.PlainDescriptions(root, streams.Args)
	if err := root.ExecuteContext(context.Background()); err != nil {
		return a.Refuse(a.name, err)
	}
	return a.code
}

func (a *app) root() *cobra.Command {
	a.common = frame.Program{
		IO: a.Tool.IO, Name: a.name, Problems: a.Tool.Problems, Checks: frame.FlagChecks{},
		Topic: "The jobs have flags of their own: see \"" + a.name + " help flags\".",
	}
	root := &cobra.Command{
		Use:   program,
		Short: "Migrate a Kyma cluster from the Event Bus to the event mesh",
		Long: `Every job of the migration from Kyma's Event Bus to the event mesh, in one
program. A job runs only if the state of the cluster needs it.

Check the cluster, show the plan, run it, then verify the result:

  {name} check
  {name} plan
  {name} run
  {name} verify

Exit codes ({name} explain exit-N says what to do at each). Of several jobs, the worst:
` + cli.Program().ExitCodes(),
		// A plugin is called by two words.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: a.name},
	}
	root.Long = strings.TrimRight(strings.ReplaceAll(root.Long, "{name}", a.name), "\n")
	a.common.About = fmt.Sprintf("%s %s for Kyma %s\n", program, version.String(), registry.Release)
	frame.VersionFlag(root, a.Stdout, a.common.About)
	root.AddCommand(
		checkCommand(a), jobsCommand(a), planCommand(a), runCommand(a), statusCommand(a), undoCommand(a), verifyCommand(a),
		mapCommand(a), diagnoseCommand(a), explainCommand(a), lintCommand(a), jobCommand(a), versionCommand(a), flagsTopic(a),
	)
	a.common.Finish(root)
	return root
}

// flags adds flags to a command; -o takes the given forms, the first of which is
// the default.
func (a *app) flags(cmd *cobra.Command, forms []string, sets ...*pflag.FlagSet) {
	for _, set := range sets {
		cmd.Flags().AddFlagSet(set)
		set.VisitAll(func(f *pflag.Flag) {
			if complete := completion(a, f); complete != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // another command may share the flag
			}
		})
	}
	cmd.Flags().SortFlags = false
	if len(forms) > 0 {
		a.common.OutputFlag(cmd, &a.output, forms)
	}
}

// helpWidth is where the help is wrapped.
const helpWidth = frame.HelpWidth

// flagsTopic is no command, as it runs nothing: the help shows it.
func flagsTopic(a *app) *cobra.Command {
	long := "The flags of the jobs, for jobs, plan, run, undo and diagnose. \"" + a.name + " job NAME --help\"\nis the manual of one job.\n"
	for _, job := range a.jobs {
		if flags := a.JobFlagsOf(job.Job); flags.HasFlags() {
			long += "\n" + job.Name() + ":\n" + flags.FlagUsagesWrapped(helpWidth)
		}
	}
	return &cobra.Command{Use: "flags", Short: "Show the flags of the jobs", Long: strings.TrimRight(long, "\n")}
}

func (a *app) namespaceFlags(cmd *cobra.Command) {
	frame.NamespaceFlags(cmd, &a.namespace, &a.all, namespaces(a))
}

// connect returns the way to the cluster; looking only, without the lines that say
// what was done.
func (a *app) connect(looks bool) (*command.Connection, error) {
	c, err := a.Connect()
	if err == nil && looks {
		c.Quiet()
	}
	return c, err
}

func (a *app) manager(c *command.Connection, progress jobmanager.Progress) (*jobmanager.Manager, error) {
	return jobmanager.New(jobmanager.Options{
		Engine: jobmanager.ForCluster(c.Config), Migration: c.Options, Log: c.Log, Progress: progress,
	}, registry.Components(), a.jobs...)
}

func (a *app) engine(c *command.Connection) (*engine.Engine, error) {
	e, err := engine.New(c.Config, c.Options)
	if err != nil {
		return nil, frame.Usage(fmt.Sprintf("cannot use the configuration of %s (%s): %v", c.Config.Host, c.Source, err))
	}
	return e, nil
}

// look does something that only reads, within --timeout. What fails is told on
// stderr. If the cluster could not be read, the exit code is 7.
func (a *app) look(c *command.Connection, work func(context.Context) error) error {
	var failed error
	code, err := c.Supervise(false, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, a.Timeout())
		defer cancel()
		if failed = c.Reach(ctx); failed != nil {
			return
		}
		if failed = work(ctx); failed != nil && ctx.Err() != nil {
			failed = errors.Join(context.Cause(ctx), failed)
		}
	})
	var usage *jobmanager.UsageError
	var signal engine.SignalError
	var output *frame.OutputError
	switch {
	case err != nil:
		a.tell(err)
		a.code = code
	case errors.As(failed, &usage):
		return frame.Usage(failed.Error())
	case errors.As(failed, &signal):
		a.tell(failed)
		a.code = migration.ExitSignal + int(signal.Signal)
	case errors.As(failed, &output):
		a.tell(failed)
		a.code = migration.ExitFailed
	case failed != nil:
		a.tell(failed)
		tellPermissions(a, failed)
		a.code = migration.ExitNotChecked
	}
	return nil
}

// tellPermissions says what to do about a missing permission: the answer of the API server names
// one, and there may be more.
func tellPermissions(a *app, failed error) {
	if k8sutil.RefusalOf(failed).Kind != k8sutil.NoPermission {
		return
	}
	caller := cli.Caller(a.name)
	caller.Cluster, caller.Work = a.Given()
	fmt.Fprintf(a.Stderr, "This account lacks a permission. To see all that are missing:\n  %s\nThe Role for an administrator to apply:\n  %s\n",
		caller.Complete(program+" check"), caller.Complete(program+" check --role"))
}

// inspect connects, and looks with an engine.
func (a *app) inspect(work func(context.Context, *command.Connection, *engine.Engine) error) error {
	c, err := a.connect(true)
	if err != nil {
		return err
	}
	return a.look(c, func(ctx context.Context) error {
		e, err := a.engine(c)
		if err != nil {
			return err
		}
		return work(ctx, c, e)
	})
}

func (a *app) tell(err error) { fmt.Fprintf(a.Stderr, "%s: %v\n", a.name, err) }

// canConfirm is nil if there is a person at a terminal.
func (a *app) canConfirm(flag string) error { return frame.CanConfirm(a.in, a.IsTerminal, flag) }

// confirm asks a person. Without a terminal it cannot.
func (a *app) confirm(question, flag string) (bool, error) {
	if err := a.canConfirm(flag); err != nil {
		return false, err
	}
	return frame.Confirm(a.in, a.Stderr, question)
}

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of this program, and of Kyma that it is for", Args: frame.NoArguments,
		Long:    "Show the version of this program, and of Kyma that it is for. -o name prints only the version\nof this program.",
		Example: "  {name} version\n  {name} version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": version.String(), "kyma": registry.Release, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			switch {
			case a.structured():
				return a.print(v)
			case a.output == formName:
				return frame.WriteNames(a.Stdout, []string{v["version"]})
			case a.output == formWide:
				t := &frame.Table{}
				for _, key := range []string{"version", "kyma", "go", "platform"} {
					t.Row(key, v[key])
				}
				return t.Write(a.Stdout, painter(false))
			}
			fmt.Fprintf(a.Stdout, "%s %s for Kyma %s (%s, %s)\n", program, v["version"], v["kyma"], v["platform"], v["go"])
			return nil
		},
	}
	a.flags(cmd, []string{formText, formWide, formJSON, formYAML, formName}, a.LogFlags())
	return cmd
}

func lintCommand(a *app) *cobra.Command {
	release := registry.Release
	cmd := &cobra.Command{
		Use: "lint", Hidden: true, Short: "Fail if a job must be removed in a Kyma version", Args: frame.NoArguments,
		Long: `Fail if a job must be removed in a Kyma version, and name each. It needs no cluster.
The tests do the same for the Kyma version that this source is for.`,
		Example: "  {name} lint\n  {name} lint --release 1.12.0",
		RunE: func(*cobra.Command, []string) error {
			m, err := jobmanager.New(jobmanager.Options{Engine: jobmanager.ForCluster(nil)}, registry.Components(), a.jobs...)
			if err == nil {
				err = m.Lint(release)
			}
			if err != nil {
				for _, line := range strings.Split(err.Error(), "\n") {
					a.tell(errors.New(line))
				}
				a.code = migration.ExitFailed
				return nil
			}
			fmt.Fprintf(a.Stdout, "%s, and none must be removed in Kyma %s\n", migration.Count(len(a.jobs), "job"), release)
			return nil
		},
	}
	a.flags(cmd, []string{formText}, a.LogFlags())
	cmd.Flags().StringVar(&release, "release", release, "`version` of Kyma, such as 1.12.0.")
	_ = cmd.RegisterFlagCompletionFunc("release", cobra.FixedCompletions([]string{release}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func jobCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "job NAME [run|plan|undo] [flags]", Hidden: true, Short: "Run one job's own command line",
		Long: `Run the command line of one job: what follows the name are its own flags, and it
prints its own report. A link to this program with the name of a job does the same.`,
		Example:            "  {name} job httpsource-sync --help\n  {name} job httpsource-sync plan --ready-timeout 5m",
		DisableFlagParsing: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			return completeJob(a, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
				if len(args) == 0 {
					return frame.Usage("name a job (valid: " + strings.Join(jobNames(a.jobs), ", ") + ")")
				}
				return cmd.Help()
			}
			for _, job := range a.jobs {
				if job.Name() == args[0] {
					streams := a.IO
					streams.Args = args[1:]
					a.code = cli.Run(job.Job, streams)
					return nil
				}
			}
			return unknownJob(a, args[0])
		},
	}
}

// unknownJob refuses the name of a job.
func unknownJob(a *app, name string) error {
	valid, meant := jobNames(a.jobs), ""
	if near := frame.Similar(name, valid); len(near) > 0 {
		meant = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return frame.Usage(fmt.Sprintf("unknown job %q%s (valid: %s)", name, meant, strings.Join(valid, ", ")))
}

func jobNames(jobs []jobmanager.Registration) []string {
	var names []string
	for _, job := range jobs {
		names = append(names, job.Name())
	}
	return names
}

func now() time.Time { return time.Now() }
