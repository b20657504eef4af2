package act

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Actor makes the changes of one run, and undoes them.
type Actor struct {
	// Job is asked what to wait for, and what can still be used.
	Job migration.Job
	Log *zap.Logger
	// Findings are what the run tells people.
	Findings *findings.List
	// Writer sends the requests, and Recorder knows what is known of each change.
	Writer   *write.Writer
	Recorder *journal.Recorder
	// NewCluster returns a view of the cluster that has read nothing yet.
	NewCluster     func() *migration.Cluster
	Namespaces     *Namespaces
	StateNamespace string
	// Undo returns the command that undoes the newest run of a job; nil: there is none to name.
	Undo func(job string) string

	// Otherwise counts objects that the API server stored otherwise than this run sent them.
	Otherwise atomic.Int64
	// LeftEffects counts objects that an undo left since there is no proof that they
	// come from the run.
	LeftEffects atomic.Int64
}

// Preimages reads what the changes of a unit are about to change. last: the unit
// is made after all others, which may change what it expects.
func (a *Actor) Preimages(ctx context.Context, u *migration.Unit, last bool) ([]journal.Preimage, error) {
	pre := make([]journal.Preimage, len(u.Changes))
	g, gctx := errgroup.WithContext(ctx)
	for i := range u.Changes {
		ch := &u.Changes[i]
		g.Go(func() (err error) {
			pre[i], err = a.preimage(gctx, ch, last)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return pre, err
	}
	for _, s := range journal.NewEntry(0, *u, pre).Steps() {
		if _, deleted := s.Deletion(); !deleted && s.Verb == migration.Recreate {
			return pre, k8sutil.Permanent(fmt.Errorf("the plan recreates %s, and no change of the unit before deletes it", s.Ref))
		}
		// What is patched and then deleted must still be what the deletion was decided
		// on: the list edits of the patch alone would fit any object.
		if deletion, ok := s.DeletedBy(); ok && s.Verb == migration.Patch && deletion.Object != nil && patch.Hash(s.Pre().Object, a.Recorder.Ignored) != patch.Hash(deletion.Object, a.Recorder.Ignored) {
			return pre, &write.ChangedError{Ref: s.Ref, Problem: "was edited after the plan was made; it is left as it is"}
		}
	}
	return pre, nil
}

func (a *Actor) preimage(ctx context.Context, ch *migration.Change, last bool) (journal.Preimage, error) {
	var pre journal.Preimage
	switch ch.Verb {
	case migration.Delete:
		if pre.Object = ch.Object; pre.Object != nil {
			break
		}
		fallthrough
	case migration.Patch:
		obj, err := a.Writer.Get(ctx, ch.Ref, ch.Subresource)
		if err != nil {
			return pre, err
		}
		if obj == nil && ch.Verb == migration.Patch {
			return pre, &write.ChangedError{Ref: ch.Ref, Problem: "does not exist any more"}
		}
		if obj != nil && ch.Verb == migration.Patch && !last {
			if err := asDecided(ch, obj); err != nil {
				return pre, err
			}
		}
		pre.Object = obj
	case migration.Restart:
		deployment, err := a.Writer.Get(ctx, ch.Ref, "")
		if err != nil {
			return pre, err
		}
		if deployment == nil {
			return pre, &write.ChangedError{Ref: ch.Ref, Problem: "does not exist any more"}
		}
		if ch.Late != nil {
			break // decided when its turn comes
		}
		if pre.Pods, err = a.Writer.PodsOf(ctx, deployment, nil); err != nil {
			return pre, err
		}
	}
	if pre.Object != nil && ch.UID != "" && pre.Object.GetUID() != ch.UID {
		return pre, &write.ChangedError{Ref: ch.Ref, Problem: "is another object than when the plan was made"}
	}
	if ch.Verb == migration.Delete && pre.Object != nil {
		one, _ := a.Namespaces.Of(ctx, ch.Ref.Namespace)
		pre.NamespaceUID = one.UID
	}
	for _, ref := range ch.SideEffects {
		obj, err := a.Writer.Get(ctx, ref, "")
		if err != nil {
			return pre, err
		}
		if obj == nil {
			pre.Absent = append(pre.Absent, ref)
		}
	}
	return pre, nil
}

// asDecided says whether the fields that a patch changes are as they were when it
// was decided on. Change.Object holds them.
func asDecided(ch *migration.Change, live *unstructured.Unstructured) error {
	if ch.Object == nil || len(ch.Patch) == 0 {
		return nil
	}
	same, err := patch.Untouched(ch.Object, live, ch.Patch)
	switch {
	case err != nil:
		return err
	case same || patch.AlreadyPatched(live, ch.Patch):
		return nil
	}
	return &write.ChangedError{Ref: ch.Ref, Problem: "was edited after the plan was made; it is left as it is"}
}

// Apply makes one change. It returns ChangeDone, or ChangeUnchanged if it was
// made already. Whatever the outcome of an earlier attempt, calling it again has
// no second effect.
func (a *Actor) Apply(ctx context.Context, s journal.Step) (string, error) {
	var err error
	result, before := migration.ChangeDone, s.State()
	switch s.Verb {
	case migration.Create:
		result, err = a.create(ctx, s)
	case migration.Recreate:
		result, err = a.recreate(ctx, s)
	case migration.Delete:
		if _, recreates := s.Recreation(); recreates {
			result, err = a.deleteForRecreation(ctx, s)
			break
		}
		result, err = a.Writer.Delete(ctx, s.Ref, s.Pre().Object, s.Latest(), s.Beginning())
	case migration.Patch:
		if over, failed := a.alreadyReplaced(ctx, s); over || failed != nil {
			result, err = migration.ChangeUnchanged, failed
			break
		}
		result, err = a.patch(ctx, s)
	case migration.Restart:
		if s.Late != nil {
			result, err = a.LateRestart(ctx, s, s.Entry.AnyUnusable())
			break
		}
		s.Beginning().Sending()
		err = a.Writer.Restart(ctx, s.Ref, s.Pre().Pods)
	default:
		err = fmt.Errorf("unknown verb %q", s.Verb)
	}
	if err != nil {
		if moved, ok := errors.AsType[*write.ChangedError](err); ok {
			moved.NoEffect = s.State() == before
		}
		return migration.ChangeFailed, &changeError{s.Verb, s.Ref, err}
	}
	return result, nil
}

// changeError says which change could not be made.
type changeError struct {
	verb migration.Verb
	ref  migration.Ref
	err  error
}

func (e *changeError) Error() string { return fmt.Sprintf("cannot %s %s: %v", e.verb, e.ref, e.err) }

func (e *changeError) Unwrap() error { return e.err }

func (a *Actor) create(ctx context.Context, s journal.Step) (string, error) {
	obj := s.Object.DeepCopy()
	mark := a.Recorder.Mark(s)
	if s.IsShown() {
		return a.stillMade(ctx, s.Ref, mark)
	}
	if err := a.Namespaces.sameAsDeleted(ctx, s); err != nil {
		return "", err
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[a.Writer.Names.Mark()] = mark
	obj.SetAnnotations(annotations)
	created, existed, err := a.Writer.CreateOnce(ctx, s.Ref, obj, mark, s.Beginning())
	if err != nil {
		return "", err
	}
	if existed {
		// It may have been edited since an earlier attempt created it: no hash of what
		// it is now, so that an undo compares it with what was planned.
		return migration.ChangeUnchanged, nil
	}
	a.Recorder.SetHash(s, created)
	a.storedOtherwise(s.Ref, patch.Lost(created, obj, a.Recorder.Ignored))
	return migration.ChangeDone, nil
}

// stillMade says whether an object is there that an interrupted run has created. Who
// deleted it since has decided so: it is not created once more.
func (a *Actor) stillMade(ctx context.Context, ref migration.Ref, mark string) (string, error) {
	live, err := a.Writer.Get(ctx, ref, "")
	switch {
	case err != nil:
		return "", err
	case live == nil:
		return "", &write.ChangedError{Ref: ref, Problem: "was deleted by somebody else since an interrupted run had created it"}
	case live.GetAnnotations()[a.Writer.Names.Mark()] != mark:
		return "", &write.ChangedError{Ref: ref, Problem: "exists already and was not made by this run; it is left alone"}
	}
	// It may have been edited since: no hash of what it is now, so that an undo compares
	// it with what was planned.
	return migration.ChangeUnchanged, nil
}

func (a *Actor) patch(ctx context.Context, s journal.Step) (string, error) {
	pre := s.Pre().Object
	var subresources []string
	if s.Subresource != "" {
		subresources = []string{s.Subresource}
	}
	client := s.Ref.Resource.In(a.Writer.Client, s.Ref.Namespace)
	try := s.Beginning()
	basis := pre
	if latest := s.Latest(); latest != nil && latest.GetUID() == pre.GetUID() && s.Subresource == "" {
		basis = latest
	}
	result := migration.ChangeDone
	first := true
	// A call ends with the Lease; what is read after it has more time.
	err := a.Writer.Write(ctx, func(call context.Context) error {
		body, err := patch.For(s.Change, basis)
		if err != nil {
			return k8sutil.Permanent(err)
		}
		try.Sending()
		live, err := client.Patch(call, s.Ref.Name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
		if err == nil {
			k8sutil.Trim(live)
			a.Recorder.SetHash(s, live)
			lost, err := patch.LostOfPatch(live, body)
			if err != nil {
				return k8sutil.Permanent(err)
			}
			a.storedOtherwise(s.Ref, lost)
			a.noteOthers(ctx, s, live.GetResourceVersion())
			if s.Subresource == "" {
				s.SetLatest(live)
			}
			return nil
		}
		// A run that was killed may have deleted it before the next one gets here. One that was
		// being deleted is gone when its last finalizer is, which an attempt may have removed whose
		// answer was lost.
		gone := func(err error) bool {
			return apierrors.IsNotFound(err) && (s.Goes() || pre.GetDeletionTimestamp() != nil)
		}
		if gone(err) {
			result = migration.ChangeUnchanged
			return nil
		}
		if !apierrors.IsConflict(err) {
			if first && !k8sutil.IsTransient(err) {
				try.Refused()
			}
			first = false
			return err
		}
		answer := err
		live, err = write.Look(call, client, s.Ref.Name, subresources...)
		if gone(err) {
			result = migration.ChangeUnchanged
			return nil
		}
		if err != nil {
			return err
		}
		k8sutil.Trim(live)
		switch {
		case live.GetUID() != pre.GetUID():
			if first {
				try.Refused()
			}
			return k8sutil.Permanent(&write.ChangedError{Ref: s.Ref, Problem: "is another object than when the plan was made"})
		case s.IsShown() && !patch.IsMade(live, s.Change):
			// An earlier process had made it.
			try.Refused()
			return k8sutil.Permanent(&write.ChangedError{Ref: s.Ref, Problem: "was changed by somebody else since an interrupted run had patched it; it is left as it is"})
		case patch.IsMade(live, s.Change):
			if first {
				result = migration.ChangeUnchanged
				try.Refused()
			}
			a.Recorder.SetHash(s, live)
			a.noteOthers(ctx, s, live.GetResourceVersion())
			return nil
		}
		decided := asDecided(s.Change, live)
		if s.Goes() && patch.Hash(live, a.Recorder.Ignored) != patch.Hash(pre, a.Recorder.Ignored) {
			decided = &write.ChangedError{Ref: s.Ref, Problem: "was edited after the plan was made; it is left as it is"}
		}
		if decided == nil && s.Object == nil {
			same, err := patch.Untouched(pre, live, s.Patch)
			if err != nil {
				return k8sutil.Permanent(err)
			}
			if !same {
				decided = &write.ChangedError{Ref: s.Ref, Problem: "was edited after its pre-image was read; it is left as it is"}
			}
		}
		if decided != nil {
			if first {
				try.Refused()
			}
			return k8sutil.Permanent(decided)
		}
		basis = live
		return k8sutil.Retryable(answer)
	})
	return result, err
}

// After returns what the engine itself waits for after a change, in addition to the
// job's conditions.
func (a *Actor) After(s journal.Step) []migration.Condition {
	switch s.Verb {
	case migration.Delete:
		if s.Pre().Object == nil {
			return nil
		}
		uid := s.Pre().Object.GetUID()
		if discarded := s.Unusable(); discarded != "" {
			uid = discarded
		}
		return []migration.Condition{Gone(s.Ref, uid, s.Change)}
	case migration.Restart:
		replaced := s.Pre().Pods
		return []migration.Condition{{
			Text: "its pods to be replaced", Timeout: s.Timeout,
			On: []migration.Subject{{GroupKind: migration.Pods.GroupKind(), Namespace: s.Ref.Namespace}, s.Ref.Subject()},
			Eval: func(v migration.View) migration.Status {
				for _, pod := range v.List(migration.Pods.GroupKind(), s.Ref.Namespace) {
					for _, uid := range replaced {
						if pod.GetUID() == uid {
							return migration.Status{Message: "Pod " + pod.GetName() + " is terminating"}
						}
					}
				}
				deployment := v.Get(s.Ref.Subject())
				if deployment == nil {
					return migration.Status{State: migration.Failed, Message: "the Deployment is gone"}
				}
				result, err := status.Compute(deployment)
				switch {
				case err != nil:
					return migration.Status{Message: err.Error()}
				case result.Status == status.FailedStatus:
					return migration.Status{State: migration.Failed, Message: result.Message}
				case result.Status != status.CurrentStatus:
					return migration.Status{Message: result.Message}
				}
				if s.Late != nil {
					return replicasReady(v, s.Ref.Namespace, deployment)
				}
				return migration.Status{State: migration.Met}
			},
		}}
	}
	return nil
}

// replicasReady says whether a Deployment has its pods, by the pods themselves:
// its status may be about those that went.
func replicasReady(v migration.View, namespace string, deployment *unstructured.Unstructured) migration.Status {
	want, found, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if err != nil || !found {
		want = 1
	}
	selector, err := write.SelectorOf(deployment)
	if err != nil {
		return migration.Status{State: migration.Failed, Message: err.Error()}
	}
	ready := int64(0)
	for _, pod := range v.List(migration.Pods.GroupKind(), namespace) {
		if pod.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(pod.GetLabels())) && isReady(pod) {
			ready++
		}
	}
	if ready < want {
		return migration.Status{Message: fmt.Sprintf("%d of its %s ready", ready, migration.Count(int(want), "pod"))}
	}
	return migration.Status{State: migration.Met}
}

func isReady(pod *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Ready" && condition["status"] == "True"
	})
}

// removeFinalizersCommand removes all finalizers of an object.
func removeFinalizersCommand(ref migration.Ref) string {
	return migration.Kubectl(ref.Namespace, "patch", ref.GroupResource().String(), ref.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// Gone is the condition that the object of that UID does not exist any more.
func Gone(ref migration.Ref, uid types.UID, ch *migration.Change) migration.Condition {
	return migration.Condition{
		Text: "its deletion to end", On: []migration.Subject{ref.Subject()}, Timeout: ch.Timeout,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref.Subject())
			if obj == nil || obj.GetUID() != uid {
				return migration.Status{State: migration.Met}
			}
			if finalizers := obj.GetFinalizers(); len(finalizers) > 0 {
				return migration.Status{
					Message: fmt.Sprintf("it still has the finalizers %q", finalizers),
					Note:    "Start the controller that owns the finalizer, and run the job again. If there is none any more, remove the finalizer:",
					Command: removeFinalizersCommand(ref),
				}
			}
			return migration.Status{Message: "it still exists"}
		},
	}
}

// Waits says whether any change of the unit is waited for.
func (a *Actor) Waits(u *migration.Unit) bool {
	for i := range u.Changes {
		if u.Changes[i].Verb == migration.Delete || u.Changes[i].Verb == migration.Restart || len(a.Job.Await(&u.Changes[i])) > 0 {
			return true
		}
	}
	return false
}

// RestoreAdvice says how to undo the run later, when the cause of a failure is fixed.
func (a *Actor) RestoreAdvice() migration.Advice {
	advice := migration.Advice{Note: "The journal keeps the former state. Fix the cause, then undo the run."}
	if a.Undo != nil {
		advice.Command = a.Undo(a.Job.Name())
	}
	return advice
}
