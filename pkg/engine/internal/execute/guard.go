package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// decide asks the job about a guarded step, and leaves it if its reason does not
// hold any more, or if an earlier process gave up a part of it.
func (x *Executor) decide(ctx context.Context, s journal.Step, p *place, waited time.Time, gaveUp bool) (left bool, answer wait.Answer, err error) {
	guarded := s.Guarded()
	finding := &migration.Finding{
		ID: "interrupted-change-undone", Severity: migration.Warning, Object: guarded[len(guarded)-1].Ref.String(),
		Problem: "an interrupted run had begun it, and its reason does not hold any more: what was begun of it is undone",
	}
	if !gaveUp {
		finding, answer, err = x.recheck(s, p, waited)
	}
	if err == nil && finding != nil {
		err = x.leave(ctx, s, *finding)
	}
	return finding != nil, answer, err
}

// recheck asks the job whether the reason for a guarded change still holds: nil if
// it does. A unit that has waited gives up its place meanwhile, so that what it
// reads delays nobody; the answer is then not older than a shared read.
func (x *Executor) recheck(s journal.Step, p *place, waited time.Time) (*migration.Finding, wait.Answer, error) {
	rechecker, ok := x.r.Job.(migration.Rechecker)
	if !ok {
		return &migration.Finding{
			ID: "not-checked", Severity: migration.Deferred, Object: s.Ref.String(), Problem: "not done: this version of the job cannot check whether the reason for it still holds",
			Note: "Run the job with the version that began it.",
		}, wait.Answer{}, nil
	}
	var asks wait.Asks
	for {
		asking := &place{room: x.asking}
		if !waited.IsZero() && !x.serial {
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
		finding, answer, err := ask(x, rechecker, s, waited)
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
			x.r.Log.Debug("checking again: its turn came too late", zap.String("object", s.Ref.String()))
		}
	}
}

// ask asks the job once, and again when it wants to answer later: each time about what is there
// then. What it waits for is told among what the run waits for, and ends with the run.
func ask(x *Executor, rechecker migration.Rechecker, s journal.Step, waited time.Time) (finding *migration.Finding, answer wait.Answer, err error) {
	once := func() (later *migration.AskLaterError) {
		f := wait.NewFresh(x.shared, x.waiter, waited)
		finding, err = rechecker.Recheck(x.work, f, &s.Entry.Unit, s.Index)
		answer = f.Answer()
		later, _ = errors.AsType[*migration.AskLaterError](err)
		return later
	}
	later := once()
	if later == nil {
		return finding, answer, err
	}
	_ = x.waits(s.Ref, func(func(string)) error {
		for later != nil {
			if err = k8sutil.Sleep(x.work, max(later.After, minLater)); err != nil {
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
	x.r.Findings.Add(f)
	x.r.Log.Warn("not done: its reason does not hold any more", zap.String("object", f.Object), zap.String("problem", f.Problem))
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
		if err := x.r.Recorder.MarkNow(ctx, steps[0].Entry.Chunk); err != nil {
			return fmt.Errorf("cannot note that what was done of it is being undone: %w", err)
		}
	}
	reverser := act.NewReverser(x.r, x.waiter, false)
	for _, s := range begun {
		result, err := reverser.Reverse(ctx, s)
		if err != nil {
			return fmt.Errorf("cannot undo what was done of it: %w", err)
		}
		if result != "" {
			s.ReportResult(result)
			x.r.Log.Info("undone: "+string(s.Verb), zap.String("object", s.Ref.String()))
		}
	}
	return nil
}

// leaveUnit reports a unit that is not begun, since an object of it is not what
// it was planned for any more.
func (x *Executor) leaveUnit(u *migration.Unit, moved *write.ChangedError) {
	f := act.NotAsDecided(moved)
	x.r.Findings.Add(f)
	for i := range u.Changes {
		report := migration.ReportOf(&u.Changes[i], migration.ChangeLeft)
		report.Message = f.Problem
		x.reported(report)
	}
	x.r.Log.Warn("not done: it was changed since the plan was made", zap.String("object", f.Object), zap.String("problem", f.Problem))
	x.step(1, u.ID)
}

// recordEffects notes what a controller made because of a change, so that a
// rollback or an undo can tell it from what others made.
func (x *Executor) recordEffects(ctx context.Context, s journal.Step) {
	effects := s.Effects()
	since := time.Now()
	for _, ref := range s.Pre().Absent {
		if slices.ContainsFunc(effects, func(known journal.EffectMark) bool { return known.Ref == ref }) {
			continue
		}
		// One list of a kind serves all units that end at once.
		f := wait.NewFresh(x.shared, x.waiter, since)
		all, err := migration.Shared(ctx, f, "side effects: "+ref.GroupVersionResource.String(), func(ctx context.Context, c *migration.Cluster) (map[migration.Ref]*unstructured.Unstructured, error) {
			found := map[migration.Ref]*unstructured.Unstructured{}
			err := c.Each(ctx, ref.Resource, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
				found[migration.Ref{Resource: ref.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
				return nil
			})
			return found, err
		})
		if err != nil {
			if ctx.Err() == nil {
				x.r.Log.Warn("cannot read what a controller made; an undo will leave it", zap.String("object", ref.String()), zap.Error(err))
			}
			return
		}
		if live := all[ref]; live != nil {
			x.r.NoteMade(s, ref, live)
		}
	}
}

// sees is a condition that always holds, and notes what a controller makes because of a change as
// soon as the watches of the other conditions show it: before anybody edits it.
func sees(a *act.Actor, s journal.Step, conditions []migration.Condition) []migration.Condition {
	var watched []migration.Ref
	var on []migration.Subject
	for _, ref := range s.Pre().Absent {
		if slices.ContainsFunc(conditions, func(c migration.Condition) bool { return slices.Contains(c.On, ref.Subject()) }) {
			watched, on = append(watched, ref), append(on, ref.Subject())
		}
	}
	if len(watched) == 0 {
		return nil
	}
	return []migration.Condition{{On: on, Text: "what a controller makes", Eval: func(v migration.View) migration.Status {
		for _, ref := range watched {
			if live := v.Get(ref.Subject()); live != nil {
				a.NoteMade(s, ref, live)
			}
		}
		return migration.Status{State: migration.Met}
	}}}
}

// RecordLateEffects notes what controllers made only after the units had ended.
func (x *Executor) RecordLateEffects(ctx context.Context) {
	for _, e := range x.r.Recorder.Journal.Entries() {
		for _, s := range e.Steps() {
			if len(s.Pre().Absent) > 0 && s.State().IsDone() {
				x.recordEffects(ctx, s)
			}
		}
	}
}
