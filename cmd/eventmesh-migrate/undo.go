package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/nextstep"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func undoCommand(a *app) *cobra.Command {
	yes, plan := false, false
	var s *jobmanager.Selection
	cmd := &cobra.Command{
		Use: "undo [JOB]", Short: "Undo the newest run of a job, finished or interrupted",
		Long: `Undo the newest run of a job that is not undone yet, finished or interrupted. The
journal of the run is in the cluster; any version of this program may have written
it. Objects that were edited since the run are left as they are. Objects that carry
live events are protected. The report names both.

--plan shows which run it is and what undoing it would change, and writes nothing. Without
--yes, the question says so in short.

--phase, --component and --job select several jobs. They are undone in the reverse
order of run, until one fails. Of each job, the newest run is undone. Of a job that
belongs to both phases, it is one run for each phase.`,
		Example: "  {name} undo trigger-sync --plan\n  {name} undo trigger-sync\n  {name} undo httpsource-sync --yes -o json\n  {name} undo --phase post",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return jobNames(a.jobs), cobra.ShellCompDirectiveNoFileComp
		},
		Args: func(cmd *cobra.Command, args []string) error {
			selected := slices.ContainsFunc([]string{"component", "phase", "job"}, cmd.Flags().Changed)
			switch {
			case plan && yes:
				return frame.Usage("--plan asks nothing and undoes nothing: give --plan or --yes, not both")
			case len(args) == 0 && !selected:
				return frame.Usage("name a job (valid: " + strings.Join(jobNames(a.jobs), ", ") + "), or select jobs by --phase or --job")
			case len(args) > 0 && selected:
				return frame.Usage("name a job, or select jobs by flags, not both")
			case len(args) > 1:
				return frame.Usage("name one job at a time. To undo several in the right order, use --job=" + strings.Join(args, ","))
			case len(args) == 1 && !slices.Contains(jobNames(a.jobs), args[0]):
				return unknownJob(a, args[0])
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := a.connect(false)
			if err != nil {
				return err
			}
			if !announced(a, c) {
				return nil
			}
			jobs := args
			if len(args) == 0 {
				m, err := a.manager(c, nil)
				if err != nil {
					return err
				}
				if jobs, err = m.UndoOrder(*s); err != nil {
					return frame.Usage(err.Error())
				}
			}
			if !plan && !yes {
				if err := a.canConfirm("--yes"); err != nil {
					return err
				}
			}
			if plan || !yes {
				plans, err := undoPlans(a, c, jobs)
				if err != nil {
					return err
				}
				if plan || !undoable(plans) {
					return writeUndoPlans(a, c, plans)
				}
				if ok, err := agreed(a, undoQuestion(plans, c.Cluster(), time.Now())); !ok {
					return err
				}
				c.Options.UndoOnly = shown(plans, jobs)
			}
			if len(args) == 0 {
				return a.work(c, "undo", *s)
			}
			return undoOne(a, c, args[0])
		},
	}
	s = a.selection(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation.")
	cmd.Flags().BoolVar(&plan, "plan", false, "show what the undo would change, and write nothing.")
	a.flags(cmd, []string{formText, formWide, formJSON, formYAML, formName}, a.JobFlags(), a.ReadFlags(), a.WriteFlags())
	return cmd
}

// undoOne undoes the newest run of a job, and prints its report.
func undoOne(a *app, c *command.Connection, job string) error {
	m, err := a.manager(c, nil)
	if err != nil {
		return err
	}
	var report *migration.Report
	var failed error
	code, err := c.Supervise(true, func(ctx context.Context) {
		report, failed = m.Undo(ctx, job)
	})
	var broken *jobmanager.JobError
	switch {
	case err != nil:
		a.tell(err)
		a.code = code
		return nil
	case errors.As(failed, &broken):
		a.tell(failed)
		a.code = broken.Code
		return nil
	case failed != nil:
		return frame.Usage(failed.Error())
	}
	a.code = report.ExitCode()
	report.Server, report.Context = c.Config.Host, c.Context
	switch a.output {
	case formJSON, formYAML:
		return a.print(report)
	case formWide:
		return cli.Program().WriteWide(a.Stdout, report)
	case formName:
		return frame.WriteNames(a.Stdout, present.Changed(report))
	default:
		text := textOf(a, c)
		_, err := fmt.Fprint(a.Stdout, painter(c.Color)(cli.Program().Text(report, text.cluster, text.options(nextstep.OfJob(report, text.caller)))))
		return err
	}
}

// undoPlans says what undoing the newest run of each job would do. A job that is named again would
// undo the run before, which is not looked at.
func undoPlans(a *app, c *command.Connection, jobs []string) ([]*engine.UndoPlan, error) {
	e, err := a.engine(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.Timeout())
	defer cancel()
	var plans []*engine.UndoPlan
	for i, name := range jobs {
		if slices.Contains(jobs[:i], name) {
			continue
		}
		of := a.jobs[slices.Index(jobNames(a.jobs), name)]
		if of.NoUndo != "" {
			plans = append(plans, &engine.UndoPlan{Report: &migration.Report{Job: name, Command: "undo-plan", Result: migration.NothingToDo, Message: of.NoUndo}})
			continue
		}
		plans = append(plans, e.PlanUndo(ctx, of.Job))
	}
	return plans, nil
}

// undoable says whether there is something to ask a person about: a run that can be undone, and no
// reason not to begin.
func undoable(plans []*engine.UndoPlan) bool {
	planned := false
	for _, p := range plans {
		switch p.Result {
		case migration.Planned:
			planned = true
		case migration.NothingToDo:
		default:
			return false
		}
	}
	return planned
}

// shown are the runs that a person was asked about, by job. Of a job that is undone twice, the
// second run was not shown.
func shown(plans []*engine.UndoPlan, jobs []string) map[string]string {
	runs := map[string]string{}
	for _, p := range plans {
		if i := slices.Index(jobs, p.Job); !slices.Contains(jobs[i+1:], p.Job) {
			runs[p.Job] = p.Run
		}
	}
	return runs
}

// undoQuestion asks a person, who must know what it is about without another command.
func undoQuestion(plans []*engine.UndoPlan, cluster string, now time.Time) string {
	var b strings.Builder
	for _, p := range plans {
		if p.Result == migration.Planned {
			fmt.Fprintf(&b, "%s: run %s, begun %s ago. Undoing it would %s.\n", p.Job, p.Run, duration.HumanDuration(now.Sub(p.RunStartedAt)), inKinds(p.Changes))
		}
	}
	fmt.Fprintf(&b, "Undo on %s?", cluster)
	return b.String()
}

// inKinds says what the changes do, in numbers: "delete 2 of Trigger and create 2 of Subscription".
func inKinds(changes []migration.ChangeReport) string {
	number := map[string]int{}
	var all []string
	for i := range changes {
		what := fmt.Sprintf("%s %%d of kind %s", changes[i].Verb, changes[i].Kind)
		if changes[i].Reversible == migration.ReversibleNo {
			what = "leave %d of kind " + changes[i].Kind + ", which cannot be undone"
		}
		if number[what]++; number[what] == 1 {
			all = append(all, what)
		}
	}
	for i, what := range all {
		all[i] = fmt.Sprintf(what, number[what])
	}
	switch n := len(all); n {
	case 0:
		return "change nothing"
	case 1:
		return all[0]
	default:
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
}

func writeUndoPlans(a *app, c *command.Connection, plans []*engine.UndoPlan) error {
	a.code = migration.ExitOK
	for _, p := range plans {
		a.code = max(a.code, p.ExitCode())
	}
	switch {
	case a.structured() && len(plans) == 1:
		return a.print(plans[0])
	case a.structured():
		return a.print(map[string]any{"command": "undo-plan", "jobs": plans})
	case a.output == formName:
		var names []string
		for _, p := range plans {
			names = append(names, present.Changed(p.Report)...)
		}
		return frame.WriteNames(a.Stdout, names)
	}
	for _, p := range plans {
		if err := writeUndoPlan(a, c, p); err != nil {
			return err
		}
	}
	if undoable(plans) {
		_, err := fmt.Fprintln(a.Stdout, "\nNothing was written. Objects that were edited since the run, or carry live events, are left as\nthey are. To undo:",
			a.name, withoutPlan(a.Args))
		return err
	}
	return nil
}

// withoutPlan is the command line that does what was shown.
func withoutPlan(args []string) string {
	return migration.CommandLine(slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "--plan") })...)
}

func writeUndoPlan(a *app, c *command.Connection, p *engine.UndoPlan) error {
	if p.Result != migration.Planned {
		fmt.Fprintf(a.Stdout, "%s: %s\n", p.Job, p.Message)
		for _, f := range p.Findings {
			fmt.Fprintf(a.Stdout, "  %s\n", f)
		}
		return nil
	}
	fmt.Fprintf(a.Stdout, "%s on %s: undoing run %s of %s would %s\n", p.Job, c.Cluster(), p.Run, p.RunStartedAt.UTC().Format(time.RFC3339), inKinds(p.Changes))
	t := &frame.Table{}
	for i := range p.Changes {
		ch := &p.Changes[i]
		verb := string(ch.Verb)
		if ch.Reversible == migration.ReversibleNo {
			verb = "leave"
		}
		ref := migration.Ref{Resource: migration.Resource{Kind: ch.Kind}, Namespace: ch.Namespace, Name: ch.Name}
		t.Row("  "+verb, ref.String(), ch.Message)
	}
	var text strings.Builder
	if err := t.Write(&text, func(s string) string { return s }); err != nil {
		return err
	}
	_, err := io.WriteString(a.Stdout, text.String())
	return err
}
