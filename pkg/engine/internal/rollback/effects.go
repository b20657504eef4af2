package rollback

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reverse undoes one change, and with it what a controller made because of it: only
// if the change has an effect now, and only what is known to come from it.
func (v *Rollback) reverse(ctx context.Context, s journal.Step, state journal.StepState) (string, error) {
	absent := s.Pre().Absent
	if len(absent) == 0 {
		return v.reverser.Reverse(ctx, s)
	}
	// The version of the patched object as long as it is as the run patched it; "" if it is not.
	version := ""
	if live := v.reverser.InForce(ctx, s); live != nil && !state.IsReverting() {
		version = live.GetResourceVersion()
		// A rollback that is killed between the two must know that the change was its own.
		reverting := journal.StepReverting
		if !state.IsProven() {
			reverting = journal.StepRevertingUnproven
		}
		s.SetState(reverting)
		if err := v.actor.Recorder.Journals.Mark(ctx, s.Entry.Chunk); err != nil {
			return "", err
		}
		state = reverting
	}
	outcome, err := v.reverser.Reverse(ctx, s)
	if err == nil && state.IsReverting() {
		outcome = migration.ChangeRolledBack
	}
	if err != nil || outcome != migration.ChangeRolledBack {
		return outcome, err
	}
	for _, ref := range absent {
		taken, err := v.reverser.DeleteCreated(ctx, ref, func(live *unstructured.Unstructured) (bool, error) {
			ours, err := v.actor.IsEffect(ctx, s, ref, live, v.undo, version)
			v.mu.Lock()
			defer v.mu.Unlock()
			if ours {
				v.removed[ref] = patch.Hash(live, v.actor.Recorder.Ignored)
			} else {
				v.others[live.GetUID()] = true
			}
			return ours, err
		})
		if err != nil {
			return "", err
		}
		if taken == migration.ChangeRolledBack {
			outcome = taken
		}
	}
	return outcome, nil
}

const (
	// controllerPause is how long a controller may take to see that a change was
	// undone: a reconciliation that began before still makes its objects, some of them
	// several, at client-go's default of 5 requests a second.
	controllerPause = 3 * time.Second
	// deleteAttempts bounds how often a recreated object is deleted again.
	deleteAttempts = 4
)

// checkLater lets awaitControllers check that what a controller made is not recreated.
func (v *Rollback) checkLater(s journal.Step) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.effects = append(v.effects, s)
}

// awaitControllers waits until controllers have seen what was undone, and deletes
// again what they made before they did: with the label of a namespace gone,
// Knative's controller may still answer the deletion of its Broker with a new one.
func (v *Rollback) awaitControllers(ctx context.Context) error {
	for round := 1; len(v.effects) > 0; round++ {
		v.actor.Log.Info("waiting for controllers, then checking that deleted objects are not recreated", zap.Int("changes", len(v.effects)), zap.Duration("for", controllerPause))
		if err := k8sutil.Sleep(ctx, controllerPause); err != nil {
			return err
		}
		effects := v.effects
		v.effects = nil
		var work errgroup.Group
		work.SetLimit(max(1, v.actor.Recorder.Journal.Parallelism))
		for _, s := range effects {
			work.Go(func() error {
				back, err := v.deleteReappeared(ctx, s)
				advice := v.actor.RestoreAdvice()
				switch {
				case err != nil:
				case back == nil:
					return nil
				case round < deleteAttempts:
					v.checkLater(s)
					return nil
				default:
					err = &write.ChangedError{Ref: *back, Problem: "is recreated each time it is deleted"}
					advice = migration.Advice{Note: "Another controller or tool creates it, such as a GitOps tool. Delete it there."}
				}
				_, err = v.notRestored(ctx, s, err, advice)
				return err
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// deleteReappeared deletes what a controller has made once more, and returns one of it. What
// differs from what the controller made before is somebody else's, and stays.
func (v *Rollback) deleteReappeared(ctx context.Context, s journal.Step) (back *migration.Ref, err error) {
	if v.reverser.InForce(ctx, s) != nil {
		return nil, nil // somebody has made the same change since: what comes of it is wanted
	}
	untouched := v.reverser.IsUntouched(ctx, s.Ref)
	for _, ref := range s.Pre().Absent {
		live, err := v.reverser.Live(ctx, ref)
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		v.mu.Lock()
		former, removed := v.removed[ref]
		others := v.others[live.GetUID()]
		v.mu.Unlock()
		if others {
			continue
		}
		made := live.GetCreationTimestamp()
		late := !removed && !made.Before(&s.Entry.Chunk.Created) && s.Makes(live)
		if !late && (!removed || former != patch.Hash(live, v.actor.Recorder.Ignored)) {
			continue
		}
		if !untouched {
			v.mu.Lock()
			v.others[live.GetUID()] = true
			v.mu.Unlock()
			v.actor.LeaveEffect(ref, "it was created since the change was undone, and somebody else has changed "+s.Ref.String()+" meanwhile")
			continue
		}
		if _, err := v.reverser.DeleteLive(ctx, ref, live, nil); err != nil {
			return nil, err
		}
		if late {
			v.actor.Findings.Tell(act.DeletedUnproven(ref))
		}
		back = &ref
	}
	return back, nil
}
