package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// decide asks the job about a guarded step, and leaves it if its reason does not
// hold any more, or if an earlier process gave up a part of it.
func (u *unitRun) decide(ctx context.Context, s journal.Step, gaveUp bool) (left bool, err error) {
	guarded := s.Guarded()
	finding := &migration.Finding{
		ID: "interrupted-change-undone", Severity: migration.Warning, Object: guarded[len(guarded)-1].Ref.String(),
		Problem: "an interrupted run had begun it, and its reason does not hold any more: what was begun of it is undone",
	}
	u.answer = wait.Answer{}
	if !gaveUp {
		finding, u.answer, err = u.recheck(s)
	}
	if err == nil && finding != nil {
		err = u.x.leave(ctx, s, *finding)
	}
	return finding != nil, err
}

// recheck asks the job whether the reason for a guarded change still holds: nil if
// it does. A unit that has waited gives up its place meanwhile, so that what it
// reads delays nobody; the answer is then not older than a shared read.
func (u *unitRun) recheck(s journal.Step) (*migration.Finding, wait.Answer, error) {
	x, p := u.x, u.place
	rechecker, ok := x.actor.Job.(migration.Rechecker)
	if !ok {
		return &migration.Finding{
			ID: "not-checked", Severity: migration.Deferred, Object: s.Ref.String(), Problem: "not done: this version of the job cannot check whether the reason for it still holds",
			Note: "Run the job with the version that began it.",
		}, wait.Answer{}, nil
	}
	var asks wait.Asks
	for {
		asking := &place{room: x.asking}
		if !u.waited.IsZero() && !x.serial {
			// It comes back to a room of its own: the one it leaves may fill with units
			// that wait for what this one is about to do. That room is not kept while it
			// waits to ask: others wait for it who ask.
			if p.room == x.checked {
				p.leave()
			}
			if !asking.take(x.work) {
				return nil, wait.Answer{}, act.ErrStopped
			}
			p.leave()
			p.room = x.checked
		}
		finding, answer, err := u.askJob(rechecker, s)
		entered := p.held || p.take(x.work)
		asking.leave()
		if !entered {
			return nil, answer, act.ErrStopped
		}
		switch {
		case x.work.Err() != nil:
			return nil, answer, context.Cause(x.work)
		case err != nil:
			return notChecked(s.Ref, err), answer, nil
		case finding != nil || answer.Holds():
			return finding, answer, nil
		case answer.TooDear():
			if err := asks.Again(answer); err != nil {
				return tooOld(s.Ref, err), answer, nil
			}
		default:
			// Its turn came too late for the answer, since many others have theirs. --timeout ends
			// it.
			x.actor.Log.Debug("checking again: its turn came too late", zap.String("object", s.Ref.String()))
		}
	}
}

// askJob asks the job once, and again when it wants to answer later: each time about what is there
// then. What it waits for is told among what the run waits for, and ends with the run.
func (u *unitRun) askJob(rechecker migration.Rechecker, s journal.Step) (finding *migration.Finding, answer wait.Answer, err error) {
	once := func() (later *migration.AskLaterError) {
		f := wait.NewFresh(u.x.shared, u.x.waiter, u.waited)
		finding, err = rechecker.Recheck(u.x.work, f, &s.Entry.Unit, s.Index)
		answer = f.Answer()
		later, _ = errors.AsType[*migration.AskLaterError](err)
		return later
	}
	later := once()
	if later == nil {
		return finding, answer, err
	}
	_ = u.x.waits(s.Ref, func(func(string)) error {
		for later != nil {
			if err = k8sutil.Sleep(u.x.work, max(later.After, minLater)); err != nil {
				return err
			}
			later = once()
		}
		return err
	})
	return finding, answer, err
}

// minLater is the shortest time after which a job is asked once more.
const minLater = 100 * time.Millisecond

func notChecked(ref migration.Ref, err error) *migration.Finding {
	return &migration.Finding{
		ID: "not-checked", Severity: migration.Deferred, Object: ref.String(), Problem: fmt.Sprintf("not done, because it is unknown whether the reason for it still holds: %v", err),
		Note: "Fix the error, and run the job again.",
	}
}

// tooOld is the finding about what is left since no answer about it could be acted on.
func tooOld(ref migration.Ref, err error) *migration.Finding {
	return &migration.Finding{
		ID: "not-checked", Severity: migration.Deferred, Object: ref.String(), Problem: fmt.Sprintf("not done, because each answer whether the reason for it still holds was too old: %v", err),
		Note: "Run the job again, from a machine that is nearer to the API server, or when the API server is less busy.",
	}
}

// leave gives up a guarded step and those that belong to it. What an earlier
// process has made of them is undone.
func (x *Executor) leave(ctx context.Context, s journal.Step, f migration.Finding) error {
	steps := s.Guarded()
	if err := x.retreat(ctx, steps); err != nil {
		return err
	}
	journal.Leave(steps, f.Problem)
	x.actor.Findings.Add(f)
	x.actor.Log.Warn("not done: its reason does not hold any more", zap.String("object", f.Object), zap.String("problem", f.Problem))
	return nil
}

// retreat undoes those of the steps that were begun, newest first. What the journal calls done is
// marked as begun before: a process that goes on after a kill would else take it for made, and make
// what comes after it.
func (x *Executor) retreat(ctx context.Context, steps []journal.Step) error {
	var begun []journal.Step
	done := false
	for _, s := range slices.Backward(steps) {
		state := s.State()
		if !s.Writes() || !state.Begun() {
			continue
		}
		begun = append(begun, s)
		if state.IsDone() && !s.Irreversible {
			s.SetState(journal.StepBegun)
			done = true
		}
	}
	if done {
		if err := x.actor.Recorder.Journals.Mark(ctx, steps[0].Entry.Chunk); err != nil {
			return fmt.Errorf("cannot note that what was done of it is being undone: %w", err)
		}
	}
	reverser := act.NewReverser(x.actor, x.waiter, false)
	if slices.ContainsFunc(begun, func(s journal.Step) bool { return s.Verb == migration.Create }) {
		// What was created may carry live events meanwhile, as in a rollback.
		reverser.AskProtector(ctx, []*journal.Entry{steps[0].Entry})
	}
	for _, s := range begun {
		result, err := reverser.Reverse(ctx, s)
		if err != nil {
			return fmt.Errorf("cannot undo what was done of it: %w", err)
		}
		if result != "" {
			s.ReportResult(result)
			x.actor.Log.Info("undone: "+string(s.Verb), zap.String("object", s.Ref.String()))
		}
	}
	return nil
}
