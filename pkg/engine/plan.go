package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Plan decides what Run would do, and writes nothing.
func (e *Engine) Plan(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("plan", job)
	ctx, cancel := limited(ctx, e.opts.Timeout, "the plan", "--timeout")
	defer cancel()
	var plan *migration.Plan
	err := wait.Both(ctx, r.findOpen, func(ctx context.Context) (err error) {
		plan, err = r.plan(ctx, migration.PlanOptions{Preview: true})
		return err
	})
	if err != nil {
		return r.reporter.conclude(ctx, r.explain.nothingChanged(ctx, err))
	}
	writes, units := 0, slices.Concat(plan.Units, plan.Last)
	for i := range units {
		journal.Build(&units[i])
		for j := range units[i].Changes {
			ch := &units[i].Changes[j]
			report := migration.ReportOf(ch, "")
			if ch.Explain != nil {
				report.Replaces = ch.Explain()
			}
			report.Message = ch.Why
			if ch.Writes() {
				writes++
				report.Reversible = ch.Reversible()
			}
			r.reporter.add(report)
		}
	}
	r.findings.Add(plan.Findings...)
	if hasErrors(plan) {
		return r.reporter.conclude(ctx, outcome{result: migration.Refused, message: "a run would be refused: " + findings.FirstError(plan.Findings)})
	}
	message := fmt.Sprintf("a run would make %s", migration.Count(writes, "change"))
	if waits := len(units) - writingUnits(plan); waits > 0 {
		message += fmt.Sprintf(" and wait for %s", migration.Count(waits, "existing object"))
	}
	if writes == 0 && len(units) == 0 {
		message = "there is nothing to do"
	}
	return r.reporter.conclude(ctx, outcome{result: migration.Planned, message: message})
}

// findOpen reports for a plan the runs of the job that are open. Whether there is one
// is told by the Lease; which, and how far it came, by its journal, if this account may
// read that. Without a Lease, which somebody may have deleted, there are only the journals.
func (r *run) findOpen(ctx context.Context) error {
	lock := r.engine.newLock(r.log)
	if err := r.grant.Do(ctx, lock.Peek); err != nil {
		return err
	}
	marked := lock.IsMarked(r.job.Name())
	if lock.Live != nil && !marked {
		return nil
	}
	// Asked, so that an account that may not is refused nothing.
	readable, err := asker{r.engine}.allowed(ctx, permission{verb: "list", resource: "secrets", namespace: r.engine.opts.StateNamespace})
	if err != nil {
		return err
	}
	advice := r.actor.RestoreAdvice()
	advice.Note = "A run finishes it first. To undo it instead:"
	if !readable {
		for _, o := range lock.OpenRuns() {
			if o.Job == r.job.Name() {
				r.findings.Add(migration.Finding{ID: "run-may-be-open", Severity: migration.Warning, Problem: fmt.Sprintf("a run of it goes on or was interrupted; the Lease says that it is open since %s", o.Since.Format(time.RFC3339)), Note: advice.Note, Command: advice.Command})
			}
		}
		return nil
	}
	open, err := r.recorder.Journals.Find(ctx, journal.OpenPhases...)
	for _, o := range open {
		r.findings.Add(migration.Finding{ID: "run-open", Severity: migration.Warning, Problem: fmt.Sprintf("run %s was interrupted; its journal is open (%s)", o.Header.Run, o.Phase), Note: advice.Note, Command: advice.Command})
	}
	return err
}

// plan asks the job; a panic in it is its error.
func (r *run) plan(ctx context.Context, o migration.PlanOptions) (plan *migration.Plan, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = k8sutil.Permanent(fmt.Errorf("the job %s failed to decide, by a panic: %v", r.job.Name(), p))
		}
	}()
	only := r.engine.opts.OnlyNamespace
	if _, can := r.job.(migration.NamespaceLimiter); only != "" && !can {
		return nil, k8sutil.Permanent(fmt.Errorf("job %s works on the whole cluster, and cannot be limited to namespace %s", r.job.Name(), only))
	}
	err = r.grant.Do(ctx, func(ctx context.Context) error {
		r.writer.Cluster = r.engine.clusterOf(r.recorder.Made)
		plan, err = r.job.Plan(ctx, r.writer.Cluster, o)
		return err
	})
	if err == nil && plan == nil {
		plan = &migration.Plan{}
	}
	if err == nil && only != "" {
		// What is elsewhere was not read: no report of a limited run says that all is done.
		plan.Findings = append(plan.Findings, migration.Finding{
			ID: "other-namespaces", Severity: migration.Deferred, Object: "Namespace " + only, Problem: "is the only namespace of this run",
			Note: "A plan of the whole cluster says what is left in the others.",
		})
	}
	return plan, err
}

// beyondLimit refuses a limited run if it would finish an interrupted run that was not
// limited to the same namespace.
func (r *run) beyondLimit(open []journal.OpenJournal) (outcome, bool) {
	only := r.engine.opts.OnlyNamespace
	if only == "" {
		return outcome{}, false
	}
	for _, o := range open {
		if o.Header.OnlyNamespace != only {
			return r.explain.refusal(&migration.Plan{Findings: []migration.Finding{{
				ID: "run-open", Severity: migration.Error, Problem: fmt.Sprintf("run %s was interrupted; its journal is open (%s), and it is not limited to namespace %s", o.Header.Run, o.Phase, only),
				Note: "Run the job without the limit to finish it, or undo it.",
			}}}), true
		}
	}
	return outcome{}, false
}

func hasErrors(plan *migration.Plan) bool {
	return slices.ContainsFunc(plan.Findings, func(f migration.Finding) bool { return f.Severity == migration.Error })
}

func hasDeferred(findings []migration.Finding) bool {
	return slices.ContainsFunc(findings, func(f migration.Finding) bool { return f.Severity == migration.Deferred })
}

func writingUnits(plan *migration.Plan) int {
	n := 0
	for _, u := range slices.Concat(plan.Units, plan.Last) {
		if u.Writes() {
			n++
		}
	}
	return n
}
