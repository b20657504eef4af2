package act

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// nudgePause is how long the owner of a stuck deletion has to go on with it after an update.
const nudgePause = time.Second

// nudgeKey is of the annotation that is written on an object whose deletion is stuck.
const nudgeKey = "touched"

// alreadyReplaced says whether the object that a step is for was deleted already by
// a later step of the unit, in an earlier attempt.
func (a *Actor) alreadyReplaced(ctx context.Context, s journal.Step) (bool, error) {
	if _, recreates := s.Recreation(); !recreates || s.Pre().Object == nil {
		return false, nil
	}
	live, err := a.Writer.Get(ctx, s.Ref)
	if err != nil {
		return false, err
	}
	return live == nil || live.GetUID() != s.Pre().Object.GetUID(), nil
}

// recreate creates again what the unit has deleted. What an earlier attempt created stays: the
// deletion before has seen to it that it can be used.
func (a *Actor) recreate(ctx context.Context, s journal.Step) (string, error) {
	obj := s.Recreated()
	if obj == nil {
		return migration.ChangeUnchanged, nil // there was nothing to delete
	}
	if err := a.Namespaces.sameAsDeleted(ctx, s); err != nil {
		return "", err
	}
	created, existed, err := a.Writer.Recreate(ctx, s.Ref, obj, s.Beginning())
	if err != nil {
		return "", err
	}
	if !existed {
		s.SetRecreated(created.GetUID())
		a.Recorder.SetHash(s, created)
		a.storedOtherwise(s.Ref, patch.Lost(created, obj, a.Recorder.Ignored), created, obj)
	}
	return migration.ChangeDone, nil
}

// deleteForRecreation is the deletion of an object that the unit recreates. What an
// earlier attempt created stays, unless it is unusable.
func (a *Actor) deleteForRecreation(ctx context.Context, s journal.Step) (string, error) {
	pre := s.Pre().Object
	if pre == nil {
		return migration.ChangeUnchanged, nil
	}
	live, err := a.Writer.Get(ctx, s.Ref)
	if err != nil {
		return "", err
	}
	if live == nil || live.GetUID() == pre.GetUID() {
		return a.Writer.Delete(ctx, s.Ref, pre, s.Latest(), s.Beginning())
	}
	_, err = a.DeleteUnusable(ctx, s, s.Ref, live, func() error {
		// A run that goes on after a kill must know it: then the change that restarts the
		// controller spares no pod.
		s.SetUnusable(live.GetUID())
		return a.Recorder.Journals.Mark(ctx, s.Entry.Chunk)
	})
	if theirs, ok := errors.AsType[*TheirsError](err); ok {
		// The unit goes on: what belongs to the object must not stay away because of it.
		a.Findings.Tell(theirs.finding())
		return migration.ChangeUnchanged, nil
	}
	return migration.ChangeUnchanged, err
}

// TheirsError says that an object which can never be used, or is being deleted, is left: somebody
// else has created it in the place of the one that a unit deletes and recreates.
type TheirsError struct{ *write.ChangedError }

func (e *TheirsError) Unwrap() error { return e.ChangedError }

func (e *TheirsError) finding() migration.Finding {
	ref := e.Ref
	return migration.Finding{
		ID: "unusable-of-others", Severity: migration.Warning, Object: ref.String(), Problem: "it " + e.Problem,
		Note:    "The journal has the former object. If this one is not needed, delete it, and run the job again:",
		Command: migration.Kubectl(ref.Namespace, "delete", ref.GroupResource().String(), ref.Name),
	}
}

// DeleteUnusable deletes an object in the place of what a step deletes, if it can never be used,
// and removes the finalizers that block the deletion of one which is being deleted; false if the
// object stays. Of what this unit has not recreated nobody has a pre-image: a TheirsError. record
// is called before the first write.
func (a *Actor) DeleteUnusable(ctx context.Context, s journal.Step, ref migration.Ref, live *unstructured.Unstructured, record func() error) (going bool, err error) {
	var judged migration.Assessment
	if recreator, ok := a.Job.(migration.Recreator); ok {
		if judged, err = recreator.Assess(ctx, a.Writer.Cluster, live); err != nil {
			return false, err
		}
	}
	if live.GetDeletionTimestamp() == nil && judged.Unusable == "" {
		return false, nil
	}
	if !a.isRecreated(s, live) {
		problem := "cannot be used: " + judged.Unusable
		if judged.Unusable == "" {
			problem = "is being deleted"
		}
		return false, &TheirsError{&write.ChangedError{Ref: ref, Problem: "was created again by somebody else, and " + problem + "; it is left as it is"}}
	}
	if err := record(); err != nil {
		return false, err
	}
	if live.GetDeletionTimestamp() == nil {
		a.Log.Warn("the recreated object is unusable; recreating it again", zap.String("object", ref.String()), zap.String("problem", judged.Unusable))
		if _, err := a.Writer.Delete(ctx, ref, live, nil, write.NoAttempt); err != nil {
			return false, err
		}
	}
	if !slices.ContainsFunc(live.GetFinalizers(), func(f string) bool { return slices.Contains(judged.RemoveFinalizers, f) }) {
		return true, nil
	}
	a.Log.Warn("its deletion cannot end by itself; removing finalizers", zap.String("object", ref.String()), zap.Strings("finalizers", judged.RemoveFinalizers))
	return true, a.Writer.RemoveFinalizers(ctx, ref, live.GetUID(), judged.RemoveFinalizers)
}

// isRecreated says whether the unit has recreated an object that it finds in the place of what
// a step deletes.
func (a *Actor) isRecreated(s journal.Step, live *unstructured.Unstructured) bool {
	if live.GetUID() == s.Pre().Object.GetUID() {
		return true // it is the former object itself
	}
	// What a nudge wrote is no difference.
	live = live.DeepCopy()
	annotations := live.GetAnnotations()
	delete(annotations, a.Writer.Names.Key(nudgeKey))
	live.SetAnnotations(annotations)
	return a.Recorder.IsRecreated(s, live)
}

// LateRestart replaces the pods of a Deployment that have to be replaced now. Once
// a recreated object was unusable, no pod is spared.
func (a *Actor) LateRestart(ctx context.Context, s journal.Step, wasUnusable bool) (string, error) {
	if s.Late.Unless != nil {
		live, err := a.Writer.Get(ctx, *s.Late.Unless)
		if err != nil {
			return "", err
		}
		if live != nil && live.GetDeletionTimestamp() == nil {
			return migration.ChangeUnchanged, nil
		}
	}
	deployment, err := a.Writer.Get(ctx, s.Ref)
	if err != nil {
		return "", err
	}
	if deployment == nil {
		return "", &write.ChangedError{Ref: s.Ref, Problem: "does not exist any more"}
	}
	all := wasUnusable || s.Late.After.IsZero()
	if traces := s.Late.Leftovers; traces != nil && !all {
		err := a.Writer.Cluster.Each(ctx, traces.Ref.Resource, traces.Ref.Namespace, migration.ListOptions{LabelSelector: traces.LabelSelector},
			func(obj *unstructured.Unstructured) error {
				all = all || obj.GetDeletionTimestamp() == nil
				return nil
			})
		if err != nil {
			return "", err
		}
	}
	pods, err := a.Writer.PodsOf(ctx, deployment, func(pod *unstructured.Unstructured) bool {
		return all || pod.GetDeletionTimestamp() != nil || k8sutil.PodStart(pod).After(s.Late.After)
	})
	if err != nil {
		return "", err
	}
	s.SetPods(pods)
	if len(pods) == 0 {
		return migration.ChangeUnchanged, nil
	}
	return migration.ChangeDone, a.Writer.Restart(ctx, s.Ref, pods)
}

// Nudging waits like wait, and changes the object of a deletion whenever that
// stalls.
func (a *Actor) Nudging(ctx context.Context, w *wait.Waiter, ch *migration.Change, wait func() error) error {
	recreator, ok := a.Job.(migration.Recreator)
	if !ok || ch.Verb != migration.Delete {
		return wait()
	}
	stuck := recreator.Stuck(ch)
	if stuck == nil {
		return wait()
	}
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for w.Wait(watching, []migration.Condition{*stuck}, time.Now()) == nil {
			live := w.Get(ch.Ref.Subject())
			if live == nil {
				return
			}
			a.Log.Info("its deletion is stuck; updating an annotation so that its controller looks again", zap.String("object", ch.Ref.String()))
			err := a.Writer.PatchExactly(watching, ch.Ref, live.GetUID(), map[string]any{
				"annotations": map[string]any{a.Writer.Names.Key(nudgeKey): time.Now().UTC().Format(time.RFC3339Nano)},
			})
			if err != nil && watching.Err() == nil {
				a.Log.Warn("cannot update its annotation", zap.String("object", ch.Ref.String()), zap.Error(err))
			}
			select {
			case <-watching.Done():
				return
			case <-time.After(nudgePause):
			}
		}
	}()
	err := wait()
	stop()
	<-ended
	return err
}
