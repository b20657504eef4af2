package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

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
	found, err := newest(ctx, r.Recorder.Journals)
	switch {
	case err != nil:
		return &UndoPlan{Report: r.conclude(ctx, r.nothingChanged(ctx, err))}
	case found == nil:
		return &UndoPlan{Report: r.conclude(ctx, nothingToUndo)}
	}
	all, err := r.Recorder.Journals.Load(ctx, found.Header, found.Phase)
	if err != nil {
		return &UndoPlan{Report: r.conclude(ctx, r.nothingChanged(ctx, err))}
	}
	plan := &UndoPlan{RunStartedAt: found.Header.StartedAt, Version: found.Header.Version}
	reasons, err := r.tooEarly(ctx, all)
	if err != nil {
		plan.Report = r.conclude(ctx, r.nothingChanged(ctx, err))
		return plan
	}
	r.Findings.Add(reasons...)
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
	plan.Report = r.conclude(ctx, out)
	plan.Run, plan.Changes = found.Header.Run, changes
	return plan
}
