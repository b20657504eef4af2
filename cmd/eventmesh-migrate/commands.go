package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// jobRow is a job in the list.
type jobRow struct {
	Name      string             `json:"name"`
	Hooks     []string           `json:"hooks"`
	Needed    jobmanager.Verdict `json:"needed,omitempty"`
	Reason    string             `json:"reason,omitempty"`
	Seconds   float64            `json:"seconds"`
	RemovedIn string             `json:"removedIn,omitempty"`
	Error     string             `json:"error,omitempty"`
}

func jobsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "jobs", Aliases: []string{"job-list"}, Short: "List the jobs, their hooks, and whether each is needed now", Args: frame.NoArguments,
		Long:    "List the jobs, their hooks (component and phase), and whether the state of the cluster\nneeds each of them now. It only reads.",
		Example: "  {name} jobs\n  {name} jobs -o wide\n  {name} jobs -o json",
		RunE: func(*cobra.Command, []string) error {
			c, err := a.connect(true)
			if err != nil {
				return err
			}
			if a.output == formName {
				for _, name := range jobNames(a.jobs) {
					fmt.Fprintln(a.Stdout, "job/"+name)
				}
				return nil
			}
			return a.look(c, func(ctx context.Context) error {
				m, err := a.manager(c, nil)
				if err != nil {
					return err
				}
				needs, err := m.Needs(ctx)
				if err != nil {
					return err
				}
				rows, failed := jobRows(needs)
				if a.structured() {
					return errors.Join(a.print(struct {
						place
						Jobs []jobRow `json:"jobs"`
					}{placeOf(c), rows}), failed)
				}
				fmt.Fprintln(a.Stdout, textOf(a, c).heading())
				t := &frame.Table{Width: textOf(a, c).tableWidth()}
				head := []string{"NAME", "COMPONENT", "PHASE", "NEEDED", "WHY"}
				if a.output == formWide {
					head = append(head, "CHECK", "REMOVED IN")
				}
				t.Row(head...)
				for _, r := range rows {
					component, phase := where(r.Hooks)
					cells := []string{r.Name, component, phase, cmp.Or(string(r.Needed), "error"), cmp.Or(r.Error, r.Reason)}
					if a.output == formWide {
						cells = append(cells, secondsOf(r.Seconds), cmp.Or(r.RemovedIn, "-"))
					}
					t.Row(cells...)
				}
				return errors.Join(t.Write(a.Stdout, painter(c.Color)), failed)
			})
		},
	}
	a.flags(cmd, []string{"table", formWide, formJSON, formYAML, formName}, a.JobFlags(), a.ReadFlags())
	return cmd
}

func jobRows(needs []jobmanager.JobNeed) (rows []jobRow, failed error) {
	for _, n := range needs {
		r := jobRow{Name: n.Job.Name(), Needed: n.Verdict, Reason: n.Reason, Seconds: n.Seconds, RemovedIn: n.Job.RemoveBy}
		for _, h := range n.Job.Hooks {
			r.Hooks = append(r.Hooks, h.String())
		}
		if n.Err != nil {
			r.Error = n.Err.Error()
			failed = errors.Join(failed, fmt.Errorf("job %s: %w", r.Name, n.Err))
		}
		rows = append(rows, r)
	}
	return rows, failed
}

// where folds hooks into two cells.
func where(hooks []string) (component, phase string) {
	var components, phases []string
	for _, h := range hooks {
		c, p, _ := strings.Cut(h, "/")
		if !slices.Contains(components, c) {
			components = append(components, c)
		}
		if !slices.Contains(phases, p) {
			phases = append(phases, p)
		}
	}
	return strings.Join(components, ","), strings.Join(phases, ",")
}

// selection binds the flags that narrow a run.
func (a *app) selection(cmd *cobra.Command) *jobmanager.Selection {
	s := &jobmanager.Selection{}
	var phases []string
	cmd.Flags().StringSliceVar(&s.Components, "component", nil, "select the jobs of these `components`, and the global jobs. Default: all.")
	cmd.Flags().StringSliceVar(&phases, "phase", nil, "select the jobs of these `phases`: pre, post. Default: both.")
	cmd.Flags().StringSliceVar(&s.Jobs, "job", nil, "select only these `jobs`. Default: all.")
	for flag, words := range map[string]struct {
		valid []string
		given *[]string
	}{
		"component": {append(registry.Components(), jobmanager.Global), &s.Components},
		"phase":     {[]string{string(jobmanager.Pre), string(jobmanager.Post)}, &phases},
		"job":       {jobNames(a.jobs), &s.Jobs},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words.valid, cobra.ShellCompDirectiveNoFileComp)) // the flags exist
		a.common.Checks.Add(cmd, func() []string { return frame.OneOf(flag, words.valid, *words.given...) })
	}
	a.common.Checks.Add(cmd, func() []string {
		for _, p := range phases {
			s.Phases = append(s.Phases, jobmanager.Phase(p))
		}
		return nil
	})
	return s
}

// limit binds -n of commands that change objects, or show what would be changed.
func limit(a *app, cmd *cobra.Command, s *jobmanager.Selection) {
	var can []string
	for _, job := range a.jobs {
		if _, ok := job.Job.(migration.NamespaceLimiter); ok {
			can = append(can, job.Name())
		}
	}
	cmd.Flags().StringVarP(&a.namespace, "namespace", "n", "", "limit the jobs to this `namespace`. It needs --job; these jobs can be limited: "+strings.Join(can, ", ")+".")
	completeNamespaces(a, cmd)
	a.common.Checks.Add(cmd, func() []string {
		selected := s.Jobs
		if len(selected) == 0 {
			selected = jobNames(a.jobs)
		}
		whole := slices.DeleteFunc(slices.Clone(selected), func(name string) bool { return slices.Contains(can, name) })
		if a.namespace == "" || len(whole) == 0 {
			return nil
		}
		return []string{fmt.Sprintf("--namespace %q: cannot limit %s to a namespace. Use --job=%s", a.namespace, strings.Join(whole, ", "), strings.Join(can, ","))}
	})
}

func planCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan", SuggestFor: []string{"--dry-run"}, Short: "Show each change that is left, and write nothing", Args: frame.NoArguments,
		Long:    "Show what run would do: each job that is needed, and each change that it would make.\nIt writes nothing. -o wide also shows the content of the objects.",
		Example: "  {name} plan\n  {name} plan --job httpsource-sync -o wide\n  {name} plan --job trigger-sync -n shop",
	}
	s := a.selection(cmd)
	limit(a, cmd, s)
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err := a.connect(true)
		if err != nil {
			return err
		}
		if !announced(a, c) {
			return nil
		}
		return a.work(c, "plan", *s)
	}
	cmd.Flags().BoolVar(&a.exitCode, "exit-code", false, "exit code 0: a run would change nothing. 6: it would make or await changes. 7: the cluster could not be read.")
	a.flags(cmd, []string{"table", formWide, formJSON, formYAML, formName}, a.JobFlags(), a.ReadFlags(), a.WriteFlags())
	return cmd
}

func runCommand(a *app) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "run", Short: "Make the changes that are left, in the order of the hooks", Args: frame.NoArguments,
		Long: `Run the jobs that are needed, in the order of the hooks: global jobs, jobs before and
after each component, global jobs. This command deploys nothing. Each job does what
is possible now, and defers the rest. A job that fails is rolled back, and the jobs
that come after it do not run.`,
		Example: "  {name} run\n  {name} run --phase pre\n  {name} run --component application-connector --phase post --defer fail\n  {name} run --job eventbus-purge --eventbus-purge.yes",
	}
	s := a.selection(cmd)
	limit(a, cmd, s)
	cmd.RunE = func(*cobra.Command, []string) error {
		if refusal := unconfirmed(a, s.Jobs); refusal != "" {
			fmt.Fprintln(a.Stderr, refusal)
			a.code = migration.ExitRefused
			return nil
		}
		c, err := a.connect(false)
		if err != nil {
			return err
		}
		if !announced(a, c) {
			return nil
		}
		if !yes && a.Asks(a.in) {
			if ok, err := agreed(a, "Change this cluster? \""+a.name+" plan\" shows the changes first."); !ok {
				return err
			}
		}
		return a.work(c, "run", *s)
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation. Without a terminal, and in a Pod, run never asks.")
	a.flags(cmd, []string{"table", formWide, formJSON, formYAML, formName}, a.JobFlags(), a.ReadFlags(), a.WriteFlags())
	return cmd
}

// work is run, plan, or an undo of several jobs.
func (a *app) work(c *command.Connection, command string, s jobmanager.Selection) error {
	c.Options.OnlyNamespace = a.namespace
	m, err := a.manager(c, progressOf(c))
	if err != nil {
		return err
	}
	var report *jobmanager.Report
	var failed error
	code, err := c.Supervise(command != "plan", func(ctx context.Context) {
		if failed = limitExists(ctx, a, c); failed != nil {
			return
		}
		switch command {
		case "plan":
			report, failed = m.Plan(ctx, s)
		case "undo":
			report, failed = m.UndoJobs(ctx, s)
		default:
			report, failed = m.Run(ctx, s)
		}
	})
	var usage *jobmanager.UsageError
	switch {
	case err != nil:
		a.tell(err)
		a.code = code
		return nil
	case errors.As(failed, &usage):
		return frame.Usage(usage.Problem)
	case report == nil:
		return unreached(a, failed)
	case failed != nil && (a.structured() || a.output == formName):
		a.tell(failed) // the report for people has it
	}
	a.code = report.ExitCode
	report.Server, report.Context, report.Namespace = c.Config.Host, c.Context, a.namespace
	if a.exitCode {
		a.code = pending(report)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s: %s (exit code %d)\n", program, report.Command, report.Message, report.ExitCode)
	if failed != nil {
		fmt.Fprintln(&text, failed)
	}
	if err := a.Terminate(text.String()); err != nil {
		a.tell(err)
	}
	if err := a.writeRun(c, report, s); err != nil {
		a.tell(err)
		a.code = cmp.Or(a.code, migration.ExitFailed)
	}
	return nil
}

// limitExists refuses to limit jobs to a namespace that does not exist: they would have nothing to
// do.
func limitExists(ctx context.Context, a *app, c *command.Connection) error {
	if a.namespace == "" {
		return nil
	}
	e, err := a.engine(c)
	if err != nil {
		return err
	}
	ref := migration.Ref{Resource: migration.CoreResource("", "namespaces", "Namespace"), Name: a.namespace}
	if found, err := e.Cluster().Get(ctx, ref); err != nil || found != nil {
		return err
	}
	return unknownNamespace(a.namespace)
}

// agreed asks a person, and says that nothing was changed if the answer is no.
func agreed(a *app, question string) (bool, error) {
	ok, err := a.confirm(question, "--yes")
	if err == nil && !ok {
		fmt.Fprintln(a.Stderr, "Nothing was changed.")
		a.code = migration.ExitOK // it was what the person wanted
	}
	return ok, err
}

// unconfirmed refuses jobs that are named, but do nothing without another flag. A person who
// names one must not read that it is not needed.
func unconfirmed(a *app, names []string) string {
	with := map[string]string{}
	for _, e := range registry.All() {
		with[e.Name()] = e.OnlyWith
	}
	for _, job := range a.jobs {
		asked, ok := job.Job.(interface{ Asked() bool })
		if !ok || asked.Asked() || !slices.Contains(names, job.Name()) || with[job.Name()] == "" {
			continue
		}
		if flag := with[job.Name()]; strings.HasSuffix(flag, ".yes") {
			return fmt.Sprintf("%s: job %s deletes objects, so you must confirm it. Nothing was changed. Run:\n  %s %s %s",
				a.name, job.Name(), a.name, migration.CommandLine(a.Args...), flag)
		}
		return fmt.Sprintf("%s: job %s does nothing without %s. Nothing was changed. See \"%s job %s --help\".",
			a.name, job.Name(), with[job.Name()], a.name, job.Name())
	}
	return ""
}

// announced names the cluster and the user, as the API server knows it; false if the server
// cannot be reached, which is told.
func announced(a *app, c *command.Connection) bool {
	if err := c.Reach(context.Background()); err != nil {
		_ = unreached(a, err) // it is told, and the exit code is set
		return false
	}
	c.Announce()
	return true
}

// unreached tells why nothing was begun.
func unreached(a *app, failed error) error {
	a.tell(failed)
	fmt.Fprintln(a.Stderr, "Nothing was changed.")
	a.code = migration.ExitFailed
	var signal engine.SignalError
	switch {
	case errors.As(failed, &signal):
		a.code = migration.ExitSignal + int(signal.Signal)
	case a.exitCode:
		a.code = migration.ExitNotChecked
	}
	return nil
}

// pending is the exit code of plan --exit-code. A refusal, a signal and a wrong command
// line have their own.
func pending(r *jobmanager.Report) int {
	switch {
	case r.ExitCode == migration.ExitFailed, r.ExitCode == migration.ExitTimedOut:
		return migration.ExitNotChecked
	case r.ExitCode == migration.ExitRefused && !slices.ContainsFunc(r.Jobs, func(j jobmanager.JobReport) bool {
		return j.Verdict == jobmanager.Blocked || j.Report != nil && j.Report.Result == migration.Refused
	}):
		return migration.ExitNotChecked // a permission to read is missing
	case r.ExitCode != migration.ExitOK:
		return r.ExitCode
	}
	for _, j := range r.Jobs {
		if j.Report != nil && len(j.Report.Changes) > 0 {
			return migration.ExitFindings
		}
	}
	return migration.ExitOK
}

// jobStatus is what is known of a job's runs.
type jobStatus struct {
	Job       string              `json:"job"`
	Command   string              `json:"command,omitempty"`
	Run       string              `json:"run,omitempty"`
	Result    migration.Result    `json:"result,omitempty"`
	Message   string              `json:"message,omitempty"`
	StartedAt *time.Time          `json:"startedAt,omitempty"`
	Seconds   float64             `json:"seconds,omitempty"`
	Deferred  []migration.Finding `json:"deferred,omitempty"`
	Errors    []migration.Finding `json:"errors,omitempty"`
}

type status struct {
	place
	Jobs     []jobStatus            `json:"jobs"`
	Journals []engine.StoredJournal `json:"journals"`
	Lock     *engine.HeldLock       `json:"lock,omitempty"`
	// AccountsLeft are the accounts that hooks left in the cluster.
	AccountsLeft *verify.AccountsLeft `json:"accountsLeft,omitempty"`
}

func (a *app) statusOf(c *command.Connection, kept *engine.State, left *verify.AccountsLeft) status {
	s := status{place: placeOf(c), Jobs: []jobStatus{}, Journals: kept.Journals, Lock: kept.Lock, AccountsLeft: left}
	if s.Journals == nil {
		s.Journals = []engine.StoredJournal{}
	}
	names := jobNames(a.jobs)
	for _, other := range slices.Sorted(maps.Keys(kept.Reports)) {
		if !slices.Contains(names, other) {
			names = append(names, other) // of another version of this program
		}
	}
	for _, name := range names {
		j := jobStatus{Job: name}
		if r := kept.Reports[name]; r != nil {
			j.Command, j.Run, j.Result, j.Message, j.StartedAt, j.Seconds = r.Command, r.Run, r.Result, r.Message, &r.StartedAt, r.Seconds
			for _, f := range r.Findings {
				switch f.Severity {
				case migration.Deferred:
					j.Deferred = append(j.Deferred, f)
				case migration.Error:
					j.Errors = append(j.Errors, f)
				}
			}
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

func statusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show the last reports, open runs, the lock, deferred work, and accounts that hooks left", Args: frame.NoArguments,
		Long:    "Show the content of the state namespace. It has the last report of each job, interrupted\nruns, the holder of the lock, and deferred work with its reason. It also shows accounts that\nhooks left in the cluster, if you may list them. It only reads. To see whether a job is\nneeded now, use \"jobs\". -o name lists the jobs that have run.",
		Example: "  {name} status\n  {name} status -o wide\n  {name} status -o json",
		RunE: func(*cobra.Command, []string) error {
			return a.inspect(func(ctx context.Context, c *command.Connection, e *engine.Engine) error {
				kept, err := e.State(ctx)
				if err != nil {
					return err
				}
				left, err := verify.ReadAccountsLeft(ctx, e.Cluster())
				if err != nil {
					return err
				}
				return a.writeStatus(c, a.statusOf(c, kept, left))
			})
		},
	}
	a.flags(cmd, []string{"table", formWide, formJSON, formYAML, formName}, a.ReadFlags())
	return cmd
}

func (a *app) writeStatus(c *command.Connection, s status) error {
	if a.structured() {
		return a.print(s)
	}
	if a.output == formName {
		var names []string
		for _, j := range s.Jobs {
			if j.Result != "" {
				names = append(names, "job/"+j.Job)
			}
		}
		return frame.WriteNames(a.Stdout, names)
	}
	fmt.Fprintln(a.Stdout, textOf(a, c).heading())
	t := &frame.Table{Width: textOf(a, c).tableWidth()}
	t.Row("JOB", "LAST RESULT", "COMMAND", "STARTED", "TOOK", "MESSAGE")
	for _, j := range s.Jobs {
		if j.Result == "" {
			t.Row(j.Job, "-", "-", "-", "-", "never run")
			continue
		}
		t.Row(j.Job, string(j.Result), j.Command, j.StartedAt.Format(time.RFC3339), secondsOf(j.Seconds), j.Message)
	}
	if err := t.Write(a.Stdout, painter(c.Color)); err != nil {
		return err
	}
	if a.output == formWide {
		writeAllFindings(a.Stdout, s.Jobs)
	} else if _, err := fmt.Fprint(a.Stdout, textOf(a, c).statusFindings(s)); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout)
	open := 0
	for _, j := range s.Journals {
		if j.Open || a.output == formWide {
			state := j.Phase
			if j.Open {
				open++
				state = "open (" + j.Phase + "): run again to finish it, or undo"
				if s.Lock.Live(now()) {
					state = fmt.Sprintf("open (%s), and seems to be running: %s. Wait until it ends", j.Phase, s.Lock)
				}
			}
			if j.Run == "" {
				fmt.Fprintf(a.Stdout, "A run of %s, begun %s: %s\n", j.Job, j.StartedAt.UTC().Format(time.RFC3339), state)
				continue
			}
			fmt.Fprintf(a.Stdout, "Run %s of %s, begun %s by version %s: %s\n", j.Run, j.Job, j.StartedAt.Format(time.RFC3339), j.Version, state)
		}
	}
	if open == 0 {
		fmt.Fprintln(a.Stdout, "No run is open.")
	}
	if s.Lock == nil {
		fmt.Fprintln(a.Stdout, "Nobody holds the lock.")
	} else {
		state := "it is in use"
		if !s.Lock.Live(now()) {
			state = fmt.Sprintf("by the clock of this machine, its %s are over, so its process is gone, and the next run takes the lock", s.Lock.Duration)
		}
		fmt.Fprintf(a.Stdout, "The lock is held by %s since %s, renewed %s: %s.\n", s.Lock.Who(), s.Lock.Acquired.UTC().Format(time.RFC3339), s.Lock.Renewed.UTC().Format(time.RFC3339), state)
	}
	for _, sentence := range s.AccountsLeft.Sentences() {
		fmt.Fprintf(a.Stdout, "\nWarning: %s.\n", sentence)
	}
	if len(s.AccountsLeft.Releases) > 0 {
		fmt.Fprintf(a.Stdout, "The next upgrade that succeeds deletes them. If no upgrade follows: %s\n", verify.CleanUp)
	}
	_, err := fmt.Fprint(a.Stdout, "\n", textOf(a, c).statusNext(s))
	return err
}

// writeAllFindings tells the findings of the last reports one by one.
func writeAllFindings(w io.Writer, jobs []jobStatus) {
	for _, list := range []struct {
		title string
		of    func(jobStatus) []migration.Finding
	}{{"Deferred", func(j jobStatus) []migration.Finding { return j.Deferred }}, {"Errors", func(j jobStatus) []migration.Finding { return j.Errors }}} {
		title := "\n" + list.title + ":\n"
		for _, j := range jobs {
			for _, f := range list.of(j) {
				fmt.Fprintf(w, "%s  %s: %s\n", title, j.Job, f)
				title = ""
			}
		}
	}
}
