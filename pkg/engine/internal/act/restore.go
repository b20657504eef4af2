package act

import (
	"context"
	"errors"
	"fmt"
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

// restoreDeleted creates a deleted object again from its pre-image.
func (v *Reverser) restoreDeleted(ctx context.Context, s journal.Step) (string, error) {
	pre := s.Pre().Object
	if pre == nil {
		return "", nil
	}
	live, err := v.objects.live(ctx, s.Ref, "", true)
	if err != nil {
		return "", err
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		if err := v.waiter.Wait(ctx, []migration.Condition{Gone(s.Ref, live.GetUID(), s.Change)}, time.Now()); err != nil {
			return "", err
		}
		live = nil
	}
	if live != nil {
		switch {
		case live.GetUID() == pre.GetUID():
			return "", nil // never deleted
		case !patch.Holds(live, pre):
			return "", &write.ChangedError{Ref: s.Ref, Problem: "was created again by somebody else, differently; the journal keeps the former one"}
		}
		if err := v.asBefore(s.Ref, "exists again", live, pre, false); err != nil {
			return "", err
		}
		return "", v.waitRestored(ctx, s.Change)
	}
	if err := v.actor.Namespaces.Same(ctx, s); err != nil {
		return "", err
	}
	var differs error
	err = v.objects.whereServed(ctx, s.Ref, func(at migration.Ref) error {
		obj := k8sutil.Restorable(pre)
		obj.SetAPIVersion(at.GroupVersion().String())
		created, err := v.actor.Writer.Restore(ctx, at, obj)
		if err == nil {
			// obj, and not pre: an owner that is gone was left out, and said.
			differs = v.asBefore(s.Ref, "was created again", created, obj, true)
		}
		return err
	})
	switch {
	case err != nil:
		return "", goneForGood(s.Ref, err)
	case differs != nil:
		return migration.ChangeRolledBack, differs
	}
	return migration.ChangeRolledBack, v.waitRestored(ctx, s.Change)
}

// recreateAttempts is how often a rollback tries to recreate an object.
const recreateAttempts = 3

// recreate restores an object that a unit deletes and recreates.
func (v *Reverser) recreate(ctx context.Context, s journal.Step) (string, error) {
	outcome := ""
	for attempt := 1; ; attempt++ {
		made, err := v.recreateOnce(ctx, s)
		if made {
			outcome = migration.ChangeRolledBack
		}
		var waited *wait.Error
		if err == nil || attempt == recreateAttempts || !errors.As(err, &waited) {
			return outcome, err
		}
		v.actor.Log.Warn("not restored yet; retrying", zap.String("object", s.Ref.String()), zap.Error(err))
	}
}

func (v *Reverser) recreateOnce(ctx context.Context, s journal.Step) (made bool, err error) {
	pre := s.Pre().Object
	if pre == nil {
		return false, nil
	}
	again, _ := s.Recreation()
	obj := again.Recreated()
	at, err := v.objects.at(ctx, s.Ref, false)
	if err != nil {
		return false, err
	}
	live, err := v.objects.live(ctx, s.Ref, "", false)
	if err != nil {
		return false, err
	}
	if live != nil {
		if live.GetUID() == pre.GetUID() && live.GetDeletionTimestamp() == nil {
			return false, nil // never deleted
		}
		going, err := v.actor.DeleteUnusable(ctx, s, at, live, func() error { return nil }) // the journal is in rollback, where no pod is spared
		if err != nil {
			return false, err
		}
		if going {
			err := v.actor.Nudging(ctx, v.waiter, s.Change, func() error {
				return v.waiter.Wait(ctx, append([]migration.Condition{Gone(s.Ref, live.GetUID(), s.Change)}, v.actor.Job.Await(s.Change)...), time.Now())
			})
			if err != nil {
				return false, err
			}
			live = nil
		}
	}
	if live == nil {
		if err := v.actor.Namespaces.Same(ctx, s); err != nil {
			return false, err
		}
		if err := v.betweenDeleteAndCreate(ctx, s, again); err != nil {
			return false, err
		}
		made = true
	}
	obj.SetAPIVersion(at.GroupVersion().String())
	created, existed, err := v.actor.Writer.Recreate(ctx, at, obj, write.NoAttempt)
	if err != nil {
		return made, err
	}
	if !existed {
		again.SetRecreated(created.GetUID())
		if err := notAsBefore(s.Ref, "was created again", patch.Lost(created, obj, v.actor.Recorder.Ignored), created, obj); err != nil {
			return made, err
		}
	}
	return made, v.waitRestored(ctx, s.Change)
}

// betweenDeleteAndCreate does what stands between the deletion of an object and its creation.
// What it should wait for is worth some time, but not that the object stays away.
func (v *Reverser) betweenDeleteAndCreate(ctx context.Context, deletion, creation journal.Step) error {
	for _, s := range deletion.Entry.Steps()[deletion.Index+1 : creation.Index] {
		switch {
		case s.Verb == migration.Await:
			err := v.waiter.Wait(ctx, v.actor.Job.Await(s.Change), time.Now())
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				v.actor.Findings.Add(migration.Finding{ID: "wait-given-up", Severity: migration.Warning, Object: s.Ref.String(), Problem: "stopped waiting for it: " + err.Error()})
			}
		case s.Verb == migration.Restart && s.Late != nil:
			if _, err := v.actor.LateRestart(ctx, s, true); err != nil {
				return fmt.Errorf("cannot restart %s: %w", s.Ref, err)
			}
			if err := v.waiter.Wait(ctx, v.actor.After(s), time.Now()); err != nil {
				return fmt.Errorf("%s: %w", s.Ref, err)
			}
		}
	}
	return nil
}

func (v *Reverser) waitRestored(ctx context.Context, ch *migration.Change) error {
	restorer, ok := v.actor.Job.(migration.Restorer)
	if !ok {
		return nil
	}
	return v.waiter.Wait(ctx, restorer.AwaitRestored(ch), time.Now())
}

// asBefore is nil if a restored object has all that it had. What the API server added in the write
// of this run (ours), and labels in any case, are of a webhook or a policy, and said.
func (v *Reverser) asBefore(ref migration.Ref, what string, is, was *unstructured.Unstructured, ours bool) error {
	differ := patch.Lost(is, was, v.actor.Recorder.Ignored)
	more := patch.Added(is, was, v.actor.Recorder.Ignored)
	if !ours {
		differ = append(differ, slices.DeleteFunc(slices.Clone(more), patch.OfMetadata)...)
	}
	if err := notAsBefore(ref, what, differ, is, was); err != nil || len(more) == 0 {
		return err
	}
	v.actor.More.Add(1)
	v.actor.Findings.Tell(migration.Finding{
		ID: "stored-otherwise", Severity: migration.Warning, Object: ref.String(),
		Problem: "it has all that it had before, and in addition " + Fields(more),
		Note:    "An admission webhook or a policy adds that. Check the object:",
		Command: migration.Kubectl(ref.Namespace, "get", ref.GroupResource().String(), ref.Name, "-o", "yaml"),
	})
	return nil
}

// notAsBefore is the error that an object is not what it was to become again: a schema, a webhook
// or another version has made something else of it, or somebody has created it.
func notAsBefore(ref migration.Ref, what string, fields []string, is, was *unstructured.Unstructured) error {
	if len(fields) == 0 {
		return nil
	}
	return &write.ChangedError{Ref: ref, Problem: what + ", and is not as it was before: it differs in " + Fields(fields) + values(fields, is, was) + "; the journal keeps the former one"}
}

// goneForGood makes the answer that a namespace is gone one that another attempt cannot
// change: what was in it went with it, by somebody else's decision.
func goneForGood(ref migration.Ref, err error) error {
	switch {
	case k8sutil.NamespaceTerminating(err):
		return &write.ChangedError{Ref: ref, Problem: "cannot be restored: its namespace is being deleted", ForGood: true}
	case ofNamespace(err):
		return &write.ChangedError{Ref: ref, Problem: "cannot be restored: its namespace does not exist any more", ForGood: true}
	}
	return err
}
