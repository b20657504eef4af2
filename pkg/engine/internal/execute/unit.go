package execute

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// unitRun is one unit that is under way.
type unitRun struct {
	x     *Executor
	entry *journal.Entry
	// place is that of the unit among those that run at once. One that is among the unready takes
	// a write slot for each write in addition.
	place *place
	// waited is when the unit has waited for something last, if it has.
	waited time.Time
	// begun: the unit has written something, in this process or in an earlier one.
	begun bool
	// answer is the job's about the guarded step; zero if it was not asked.
	answer wait.Answer
	// turn is held from a guarded step on.
	turn turn
}

var (
	// errSkipped: the step is left, and the unit goes on with the one behind it.
	errSkipped = errors.New("the step is left")
	// errNoMore: nothing more may begin. The report says not-started, or open if the unit had
	// begun.
	errNoMore = errors.New("nothing more may begin")
)

// run makes the changes of the unit in order.
func (u *unitRun) run(ctx context.Context) {
	defer u.turn.end()
	for _, s := range u.entry.Steps() {
		if s.Index == u.turn.until {
			u.turn.end()
		}
		if !u.isOver(s) && !u.step(ctx, s) {
			return
		}
	}
	u.x.end(u.entry)
}

// isOver says whether nothing is left to do for the step, and reports that.
func (u *unitRun) isOver(s journal.Step) bool {
	switch state := s.State(); {
	case state == journal.StepLeft:
		if s.Result() == migration.ChangeNotStarted {
			s.ReportResult(migration.ChangeLeft)
		}
		return true
	case state.IsDone() && s.Writes() && !journal.Recreates(&u.entry.Unit) && !s.GaveUp():
		s.ReportResult(state.Result())
		u.begun = true
		return true
	}
	return false
}

// step makes one change whole; false if the unit goes no further.
func (u *unitRun) step(ctx context.Context, s journal.Step) bool {
	began := time.Now()
	result, err := u.make(ctx, s)
	switch {
	case err == nil:
		u.end(ctx, s, result, began)
	case errors.Is(err, errSkipped):
	case errors.Is(err, errNoMore):
		return false
	default:
		u.x.failStep(s, err, began)
		return false
	}
	return true
}

// make asks the job, makes the change, and waits for what must hold after it.
func (u *unitRun) make(ctx context.Context, s journal.Step) (result string, err error) {
	if err := u.ask(ctx, s); err != nil {
		return "", err
	}
	result = migration.ChangeDone
	if s.Writes() {
		if result, err = u.change(ctx, s); err != nil {
			return "", err
		}
	}
	if err := u.wait(ctx, s); err != nil {
		return "", fmt.Errorf("%s: %w", s.Ref, err)
	}
	return result, nil
}

// ask asks the job about the guarded step that this one belongs to, if its answer is needed.
func (u *unitRun) ask(ctx context.Context, s journal.Step) error {
	if s.Guard {
		u.answer = wait.Answer{}
	}
	guard, gaveUp, ask := s.GuardToAsk(!u.answer.Read.IsZero())
	if !ask {
		return nil
	}
	if guard.Turn != "" && u.turn.held == nil {
		var ok bool
		if u.turn, ok = u.x.take(guard.Turn, s.Index+len(s.Guarded()), u.place); !ok {
			return errNoMore
		}
	}
	left, err := u.decide(ctx, guard, gaveUp)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.Ref, err)
	case left:
		return errSkipped
	}
	return nil
}

// change makes the change, or leaves it if its object is not what it was decided on any more.
func (u *unitRun) change(ctx context.Context, s journal.Step) (string, error) {
	if u.x.work.Err() != nil {
		return "", errNoMore
	}
	u.begun = true
	s.ReportResult(migration.ChangeOpen)
	result, left, err := u.writeDecided(ctx, s)
	if left && err == nil {
		return "", errSkipped
	}
	if moved, ok := errors.AsType[*write.ChangedError](err); ok && moved.NoEffect {
		if from, can := s.LeavesFrom(); can {
			if err = u.x.leave(ctx, from, act.NotAsDecided(moved)); err == nil {
				return "", errSkipped
			}
		}
	}
	return result, err
}

// wait waits for what must hold after the change.
func (u *unitRun) wait(ctx context.Context, s journal.Step) error {
	x := u.x
	conditions := x.actor.After(s)
	if s.Verb != migration.Delete || !s.IsShown() {
		// What an earlier process has deleted is looked after by the plan of now.
		conditions = append(conditions, x.actor.Job.Await(s.Change)...)
	}
	conditions = append(sees(x.actor, s, conditions), conditions...)
	if len(conditions) == 0 {
		return nil
	}
	limit := ctx
	if _, more := s.NextWrite(); more && !u.begun {
		limit = x.work // what is waited for is there for a write that will not be
	}
	err := x.waits(s.Ref, func(tell func(string)) error {
		return x.follow.unlessLeft(limit, s, func(limit context.Context) error {
			return x.actor.Nudging(limit, x.waiter, s.Change, func() error { return x.waiter.WaitTelling(limit, conditions, time.Now(), tell) })
		})
	})
	if err == nil {
		u.waited = time.Now()
	}
	return err
}

// end notes and reports a step with which nothing went wrong.
func (u *unitRun) end(ctx context.Context, s journal.Step, result string, began time.Time) {
	u.x.recordEffects(ctx, s)
	switch state := s.State(); {
	case s.Writes() && state == journal.StepNotBegun:
		// It was so already: this run has nothing to undo.
		s.SetState(journal.StepLeft)
	case s.Writes() && state == journal.StepUnknown:
		s.SetState(journal.StepFound)
	default:
		s.SetState(journal.StepDone)
	}
	took := Seconds(time.Since(began))
	s.ReportResult(result)
	s.ReportSeconds(took)
	if s.Writes() {
		u.x.actor.Log.Info(pastTense(s.Verb, result), zap.String("object", s.Ref.String()), zap.Float64("seconds", took))
	}
}

// writeDecided makes one change. As often as the answer of the job is too old when a request is
// to be sent, the job is asked again; left: the change is given up, with what belongs to it.
func (u *unitRun) writeDecided(ctx context.Context, s journal.Step) (result string, left bool, err error) {
	var asks wait.Asks
	for {
		result, err = u.write(s)
		if !errors.Is(err, write.ErrOldDecision) {
			return result, false, err
		}
		guard, _ := s.GuardedBy()
		if old := asks.Again(u.answer); old != nil {
			return "", true, u.x.leave(ctx, guard, *tooOld(s.Ref, fmt.Errorf("%w; %w", old, err)))
		}
		if left, err = u.decide(ctx, guard, false); left || err != nil {
			return "", left, err
		}
	}
}

// write makes one change in a write slot.
func (u *unitRun) write(s journal.Step) (string, error) {
	if u.place.room != u.x.slots {
		u.x.slots <- struct{}{}
		defer func() { <-u.x.slots }()
	}
	ctx := u.x.work
	if !u.answer.Read.IsZero() && s.Decides() {
		ctx = write.WithDecision(ctx, &write.Decision{Answer: u.answer, Once: s.Entry.Unit.Commit})
	}
	return u.x.actor.Apply(ctx, s)
}
