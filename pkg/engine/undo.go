package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Undo undoes the newest run that was not undone yet, finished or
// interrupted.
func (e *Engine) Undo(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("undo", job)
	defer r.release()
	return r.reporter.conclude(ctx, r.undo(ctx))
}

func (r *run) undo(parent context.Context) outcome {
	ctx, cancel := limited(parent, r.engine.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err := r.grant.Do(ctx, r.lock.Peek); err != nil {
		return r.explain.nothingChanged(ctx, err)
	}
	found, err := newest(ctx, r.recorder.Journals)
	switch {
	case err != nil:
		return r.explain.nothingChanged(ctx, err)
	case found == nil:
		return nothingToUndo
	}
	contended, err := r.acquire(parent)
	cancel()
	ctx, cancel = limited(parent, r.engine.opts.Timeout, "the undo", "--timeout")
	defer cancel()
	if err == nil && contended {
		found, err = newest(ctx, r.recorder.Journals)
	}
	switch {
	case err != nil:
		return r.explain.nothingChanged(ctx, err)
	case found == nil:
		return nothingToUndo
	}
	if agreed := r.engine.opts.UndoOnly[r.job.Name()]; agreed != "" && agreed != found.Header.Run {
		return outcome{result: migration.Refused, message: fmt.Sprintf("run %s, which was to be undone, is not the newest run any more: run %s is; nothing was changed", agreed, found.Header.Run)}
	}
	if r.recorder.Journal, err = r.recorder.Journals.Load(ctx, found.Header, found.Phase); err != nil {
		return r.explain.nothingChanged(ctx, err)
	}
	var units []migration.Unit
	for _, e := range r.recorder.Journal.Entries() {
		units = append(units, e.Unit)
	}
	reasons, err := tooEarly(ctx, r.job, r.writer.Cluster, r.recorder.Journal)
	if err != nil {
		return r.explain.nothingChanged(ctx, err)
	}
	if len(reasons) > 0 {
		r.findings.Add(reasons...)
		return refusedUndo(reasons)
	}
	if out, ok := r.permitted(ctx, units, nil); !ok {
		return out
	}
	p := journal.PhaseUndo
	if found.Phase == journal.PhaseRollback {
		p = journal.PhaseRollback
	}
	out, _ := r.finishBackwards(parent, p, r.engine.opts.RollbackTimeout)
	if out.result == migration.RolledBack {
		out.result = migration.Succeeded
	}
	return out
}

// nothingToUndo: no run of the job is open or done.
var nothingToUndo = outcome{result: migration.NothingToDo, message: "there is no run to undo"}

// newest is the beginning of the journal that an undo is for, nil if there is none.
func newest(ctx context.Context, all *journal.Store) (*journal.OpenJournal, error) {
	found, err := all.Find(ctx, append(slices.Clone(journal.OpenPhases), journal.PhaseDone)...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// tooEarly asks the job why the changes of a journal must not be undone now.
func tooEarly(ctx context.Context, job migration.Job, c *migration.Cluster, j *journal.Journal) ([]migration.Finding, error) {
	guard, ok := job.(migration.UndoGuard)
	if !ok {
		return nil, nil
	}
	return guard.RefuseUndo(ctx, c, j.Changes())
}

func refusedUndo(reasons []migration.Finding) outcome {
	return outcome{result: migration.Refused, message: "it is too early to undo this: " + reasons[0].Problem + "; nothing was changed"}
}

// UndoPlan says what an undo would do now.
type UndoPlan struct {
	// Report has the changes in their order. Its result is Planned; NothingToDo if there is no run
	// to undo; Refused if it is too early; else why nothing is known.
	*migration.Report
	// RunStartedAt is when the run began; the zero time if there is none.
	RunStartedAt time.Time `json:"runStartedAt,omitzero"`
	// Version of the program that ran.
	Version string `json:"runVersion,omitempty"`
}

// PlanUndo says what Undo would do now, and writes nothing. It reads the journal, and asks the job
// whether it is too early; it does not look at the objects, so that those that somebody has edited
// since, and those that carry live events, are in the plan and would be left by the undo.
func (e *Engine) PlanUndo(ctx context.Context, job migration.Job) *UndoPlan {
	r := e.begin("undo-plan", job)
	ctx, cancel := limited(ctx, e.opts.Timeout, "the plan", "--timeout")
	defer cancel()
	found, err := newest(ctx, r.recorder.Journals)
	switch {
	case err != nil:
		return &UndoPlan{Report: r.reporter.conclude(ctx, r.explain.nothingChanged(ctx, err))}
	case found == nil:
		return &UndoPlan{Report: r.reporter.conclude(ctx, nothingToUndo)}
	}
	all, err := r.recorder.Journals.Load(ctx, found.Header, found.Phase)
	if err != nil {
		return &UndoPlan{Report: r.reporter.conclude(ctx, r.explain.nothingChanged(ctx, err))}
	}
	plan := &UndoPlan{RunStartedAt: found.Header.StartedAt, Version: found.Header.Version}
	reasons, err := tooEarly(ctx, r.job, r.writer.Cluster, all)
	if err != nil {
		plan.Report = r.reporter.conclude(ctx, r.explain.nothingChanged(ctx, err))
		return plan
	}
	r.findings.Add(reasons...)
	entries := all.Entries()
	slices.Reverse(entries)
	changes := []migration.ChangeReport{}
	for _, entry := range entries {
		changes = append(changes, journal.Reversals(entry)...)
	}
	out := outcome{result: migration.Planned, message: fmt.Sprintf("an undo would make %s", migration.Count(len(changes), "change"))}
	if len(reasons) > 0 {
		out = refusedUndo(reasons)
	}
	plan.Report = r.reporter.conclude(ctx, out)
	plan.Run, plan.Changes = found.Header.Run, changes
	return plan
}
