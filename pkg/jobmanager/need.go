package jobmanager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Verdict is the short form of a Need.
type Verdict string

const (
	// Needed: there is something to do.
	Needed Verdict = "needed"
	// NotNeeded: nothing is left to do, or the job does not apply.
	NotNeeded Verdict = "not-needed"
	// Deferred: something is left that cannot be done yet.
	Deferred Verdict = "deferred"
	// Blocked: something is left, and a person has to fix something first.
	Blocked Verdict = "blocked"
)

// Need says whether a job has to run, and why.
type Need struct {
	Verdict Verdict
	// Reason is one clause.
	Reason string
	// Findings are those of the job's plan.
	Findings []migration.Finding
	// Estimate is the longest that the plan may take, 0 if that is unknown.
	Estimate time.Duration
}

// need asks for the APIs that a job requires, then whether something takes the job out
// of the run, and then its plan.
func (r *run) need(ctx context.Context, e Engine, job *Registration) (Need, error) {
	in := Input{
		Cluster: e.Cluster(), Components: slices.Clone(r.components), Deploys: r.deploys,
		Config: Config{StateNamespace: r.m.opts.Migration.StateNamespace, ExcludeNamespaces: slices.Clone(r.m.opts.Migration.ExcludeNamespaces)},
	}
	for _, required := range job.Requires {
		_, served, err := in.Cluster.Served(ctx, required.Kind)
		if err != nil {
			return Need{}, err
		}
		if !served {
			reason := fmt.Sprintf("the API server serves no kind %s", required.Kind)
			if required.Hint != "" {
				reason += " (" + required.Hint + ")"
			}
			return Need{Verdict: required.IfMissing, Reason: reason}, nil
		}
	}
	if job.SkipIf != nil {
		reason, err := job.SkipIf(ctx, in)
		if err != nil {
			return Need{}, err
		}
		if reason != "" {
			return Need{Verdict: NotNeeded, Reason: reason}, nil
		}
	}
	plan, err := e.Decide(ctx, job.Job)
	if err != nil {
		return Need{}, err
	}
	return needOf(plan), nil
}

// needOf says what a plan means.
func needOf(plan *migration.Plan) Need {
	n := Need{Verdict: NotNeeded, Reason: "nothing is left to do", Findings: plan.Findings, Estimate: plan.Estimate}
	counts := map[migration.Severity]int{}
	first := map[migration.Severity]migration.Finding{}
	for _, f := range plan.Findings {
		if counts[f.Severity]++; counts[f.Severity] == 1 {
			first[f.Severity] = f
		}
	}
	changes, waits := 0, 0
	for i := range plan.Units {
		if !plan.Units[i].Writes() {
			waits++
			continue
		}
		for j := range plan.Units[i].Changes {
			if plan.Units[i].Changes[j].Writes() {
				changes++
			}
		}
	}
	summary := func(s migration.Severity) string {
		f := first[s]
		f.Note, f.Command = "", ""
		if counts[s] == 1 {
			return f.String()
		}
		return fmt.Sprintf("%s, the first: %s", migration.Count(counts[s], "problem"), f)
	}
	switch {
	case counts[migration.Error] > 0:
		n.Verdict, n.Reason = Blocked, summary(migration.Error)
	case changes > 0:
		n.Verdict, n.Reason = Needed, migration.Count(changes, "change")+" left to make"
	case waits > 0:
		n.Verdict, n.Reason = Needed, migration.Count(waits, "object")+" to wait for"
	case counts[migration.Deferred] > 0:
		n.Verdict, n.Reason = Deferred, summary(migration.Deferred)
	}
	return n
}
