package act

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Reverser undoes steps of a journal, one by one.
type Reverser struct {
	actor  *Actor
	waiter *wait.Waiter
	// careful refuses objects that were edited since: undo, but not rollback,
	// comes long after the change.
	careful   bool
	protector protectorAnswer
	objects   objects

	mu sync.Mutex
	// versions are those of the objects that were patched back, as the answers showed them.
	versions map[migration.Ref]string
}

// NewReverser returns one that has undone nothing yet.
func NewReverser(a *Actor, w *wait.Waiter, careful bool) *Reverser {
	return &Reverser{
		actor: a, waiter: w, careful: careful, objects: objects{w: a.Writer},
		protector: protectorAnswer{turn: make(chan struct{}, 1)}, versions: map[migration.Ref]string{},
	}
}

// Refresh has discovery asked afresh for the first object: a rollback or undo may come long after
// it was asked.
func (v *Reverser) Refresh() { v.objects.later = true }

// Live reads an object past every cache, at the version at which it is served now: see
// objects.live.
func (v *Reverser) Live(ctx context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	return v.objects.live(ctx, ref, "", true)
}

// Reverse reverses one step. It looks at the cluster, not at what the journal
// says was done: the mark may lag behind. The outcome is "" if there was nothing
// to undo.
func (v *Reverser) Reverse(ctx context.Context, s journal.Step) (string, error) {
	_, recreates := s.Recreation()
	switch {
	case s.Irreversible:
		made, err := v.made(ctx, s)
		if err != nil || !made {
			return "", err
		}
		return "", &write.ChangedError{Ref: s.Ref, Problem: "was changed irreversibly: this change cannot be undone", ForGood: true}
	case s.Verb == migration.Recreate:
		// Reversed with the deletion before it.
		return "", nil
	case s.Verb == migration.Create:
		return v.DeleteCreated(ctx, s.Ref, func(live *unstructured.Unstructured) (bool, error) {
			if live.GetAnnotations()[v.actor.Writer.Names.Mark()] != v.actor.Recorder.Mark(s) {
				return false, nil // ours is gone, this is somebody else's
			}
			if v.actor.Recorder.Unedited(s, live) {
				return true, nil
			}
			if is, err := v.isAdmitted(ctx, s, live); is || err != nil {
				return is, err
			}
			if v.careful {
				return false, &write.ChangedError{Ref: s.Ref, Problem: "was edited after the run; it is left alone"}
			}
			v.actor.Findings.Tell(migration.Finding{
				ID: "edit-deleted", Severity: migration.Warning, Object: s.Ref.String(),
				Problem: "deleted by the rollback, although somebody edited it after this run had created it",
			})
			return true, nil
		})
	case s.Verb == migration.Delete && recreates:
		return v.recreate(ctx, s)
	case s.Verb == migration.Delete:
		return v.restoreDeleted(ctx, s)
	case s.Verb == migration.Patch:
		return v.revertPatch(ctx, s)
	default:
		return "", nil
	}
}

// isAdmitted says whether an object differs from what was planned by labels and annotations alone,
// all of which it got in the write that created it: from a webhook or a policy. That is asked if
// the answer to the creation is not known. Before Kubernetes 1.18, nothing tells.
func (v *Reverser) isAdmitted(ctx context.Context, s journal.Step, live *unstructured.Unstructured) (is bool, err error) {
	if !v.actor.Recorder.OnlyLabelled(s, live) {
		return false, nil
	}
	at, err := v.objects.at(ctx, s.Ref, false)
	if err != nil {
		return false, err
	}
	err = v.actor.Writer.Read(ctx, func(ctx context.Context) error {
		now, err := at.Resource.In(v.actor.Writer.Reader, at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
		if err != nil || now.GetResourceVersion() != live.GetResourceVersion() {
			return err
		}
		created := now.GetCreationTimestamp()
		for _, f := range now.GetManagedFields() {
			if f.FieldsV1 == nil {
				continue
			}
			if of := f.FieldsV1.GetRawString(); !strings.Contains(of, `"f:labels"`) && !strings.Contains(of, `"f:annotations"`) {
				continue
			}
			if is = f.Manager == v.actor.Writer.Names.Program && f.Time.Equal(&created); !is {
				return nil
			}
		}
		return nil
	})
	return is && err == nil, err
}

// made says whether an irreversible change took place. Of what failed, or was
// left without a mark by an earlier process, the cluster tells.
func (v *Reverser) made(ctx context.Context, s journal.Step) (bool, error) {
	if s.Result() == migration.ChangeUnchanged {
		return false, nil
	}
	if s.Entry.Done || s.State().IsDone() {
		return true, nil
	}
	pre := s.Pre().Object
	live, err := v.objects.live(ctx, s.Ref, s.Subresource, false)
	switch {
	case err != nil:
		return false, err
	case live == nil || pre != nil && live.GetUID() != pre.GetUID():
		return true, nil
	case s.Verb == migration.Patch:
		return patch.IsMade(live, s.Change), nil
	default:
		return live.GetDeletionTimestamp() != nil, nil
	}
}

// DeleteCreated deletes an object that exists because of the run, and waits until it
// is gone. ours, if not nil, decides by the live object.
func (v *Reverser) DeleteCreated(ctx context.Context, ref migration.Ref, ours func(*unstructured.Unstructured) (bool, error)) (string, error) {
	var live *unstructured.Unstructured
	err := v.objects.whereServed(ctx, ref, func(at migration.Ref) error {
		collection, err := v.actor.Writer.Cluster.Collection(ctx, at.Resource, at.Namespace)
		if err == nil {
			live = collection.Get(at.Namespace, at.Name)
		}
		return err
	})
	if live == nil || err != nil {
		return "", err
	}
	return v.DeleteLive(ctx, ref, live, ours)
}

// DeleteLive is DeleteCreated of an object that was read.
func (v *Reverser) DeleteLive(ctx context.Context, ref migration.Ref, live *unstructured.Unstructured, ours func(*unstructured.Unstructured) (bool, error)) (string, error) {
	if ours != nil {
		if ok, err := ours(live); !ok || err != nil {
			return "", err
		}
	}
	uid := live.GetUID()
	at, err := v.objects.at(ctx, ref, false)
	if err != nil {
		return "", err
	}
	client := at.Resource.In(v.actor.Writer.Client, at.Namespace)
	// What is read to understand an answer has the time of the rollback, and not what is left of
	// the call's: of that, the end says nothing about the object.
	remove := func(call context.Context) error {
		version := live.GetResourceVersion()
		err := client.Delete(call, ref.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			PropagationPolicy: v.actor.Writer.Propagation(ref),
		})
		if apierrors.IsNotFound(err) {
			return v.objects.isGone(ctx, ref, uid, err)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		answer := err
		now, err := client.Get(call, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return v.objects.isGone(ctx, ref, uid, err)
		case err != nil:
			return err
		case now.GetUID() != uid:
			return nil
		}
		k8sutil.Trim(now)
		if ours != nil {
			if ok, err := ours(now); !ok || err != nil {
				return k8sutil.Permanent(errors.Join(err, &write.ChangedError{Ref: ref, Problem: "changed while it was being undone"}))
			}
		}
		live = now
		return k8sutil.Retryable(answer)
	}
	if err := removeUnprotected(ctx, v, at, remove); err != nil {
		return "", err
	}
	if len(live.GetFinalizers()) > 0 {
		err := v.waiter.Wait(ctx, []migration.Condition{Gone(ref, uid, &migration.Change{Ref: ref})}, time.Now())
		return migration.ChangeRolledBack, err
	}
	return migration.ChangeRolledBack, nil
}

// ShowJournal is the command that shows the journal of the run.
func (v *Reverser) ShowJournal() string {
	return migration.Kubectl(v.actor.StateNamespace, "get", "secrets", "-l", v.actor.Writer.Names.Key(journal.LabelRun)+"="+v.actor.Recorder.Journal.Run)
}

// Replaced deletes what this job's interrupted run has made and what the plan of
// now wants to be another object: the plan's unit creates that. It returns false if
// the object stays.
func Replaced(ctx context.Context, a *Actor, s journal.Step) (bool, error) {
	v := NewReverser(a, wait.New(ctx, a.Writer.Cluster), true)
	v.AskProtector(ctx, []*journal.Entry{s.Entry})
	_, err := v.Reverse(ctx, s)
	kept, isKept := errors.AsType[*ProtectedError](err)
	moved, isMoved := errors.AsType[*write.ChangedError](err)
	switch {
	case isKept:
		a.Findings.Add(migration.Finding{
			ID: "not-replaced", Severity: migration.Deferred, Object: kept.Ref.String(), Problem: "not replaced, although the plan wants another one: " + kept.Reason,
			Note: "Change the object by hand into what is wanted, or delete it when it carries no events.",
		})
		return false, nil
	case isMoved:
		a.Findings.Add(NotAsDecided(moved))
		return false, nil
	case err != nil:
		return false, err
	}
	s.SetState(journal.StepLeft)
	a.Log.Info("deleted what the interrupted run had made, since the plan wants another object", zap.String("object", s.Ref.String()))
	return true, nil
}
