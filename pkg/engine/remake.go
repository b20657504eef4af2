package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// touchAnnotation is what is written upon an object whose deletion stalled.
const nudgeAnnotation = labelPrefix + "touched"

const (
	// remakeAttempts is how often a rollback tries to make an object again.
	recreateAttempts = 3
	// touchPause is how long the owner of a stalled deletion has to go on with it.
	nudgePause = time.Second
)

// remadeBy returns the change that creates again what change i deletes, -1 if
// none does.
func recreatedBy(u *migration.Unit, i int) int {
	if u.Changes[i].Verb != migration.Delete {
		return -1
	}
	for j := i + 1; j < len(u.Changes); j++ {
		if u.Changes[j].Verb == migration.Create && u.Changes[j].Ref == u.Changes[i].Ref && !u.Changes[j].Replaces {
			return j
		}
	}
	return -1
}

// remakes says whether the unit deletes the object of change i, now or later, and
// creates it again.
func recreates(u *migration.Unit, i int) bool {
	for j := i; j < len(u.Changes); j++ {
		if u.Changes[j].Ref == u.Changes[i].Ref && recreatedBy(u, j) >= 0 {
			return true
		}
	}
	return false
}

// remakesAny says whether the unit deletes any object and creates it again: such a
// unit looks at all of its objects again when it is resumed.
func recreatesAny(u *migration.Unit) bool {
	for i := range u.Changes {
		if recreatedBy(u, i) >= 0 {
			return true
		}
	}
	return false
}

// overtaken says whether the object that change i is for was deleted already by
// a later change of the unit, in an earlier attempt.
func (a *actor) alreadyReplaced(ctx context.Context, e *entry, i int) (bool, error) {
	if !recreates(&e.Unit, i) || e.Pre[i].Object == nil {
		return false, nil
	}
	live, err := a.get(ctx, e.Unit.Changes[i].Ref)
	if err != nil {
		return false, err
	}
	return live == nil || live.GetUID() != e.Pre[i].Object.GetUID(), nil
}

// deleteRemade is the deletion of an object that the unit makes again. What an
// earlier attempt has made stays, unless it is spoilt.
func (a *actor) deleteForRecreation(ctx context.Context, e *entry, i int) (string, error) {
	ch, pre := &e.Unit.Changes[i], e.Pre[i].Object
	if pre == nil {
		return migration.ChangeUnchanged, nil
	}
	live, err := a.get(ctx, ch.Ref)
	if err != nil {
		return "", err
	}
	if live == nil || live.GetUID() == pre.GetUID() {
		return a.delete(ctx, ch.Ref, pre, e.latest[ch.Ref], a.beginning(e, i))
	}
	going, err := a.deleteUnusable(ctx, ch.Ref, live)
	if going {
		if e.unusable == nil {
			e.unusable = map[int]types.UID{}
		}
		e.unusable[i] = live.GetUID()
	}
	return migration.ChangeUnchanged, err
}

// discard deletes an object that is spoilt, and sees to it that one which is
// being deleted can go; false if it is to stay.
func (a *actor) deleteUnusable(ctx context.Context, ref migration.Ref, live *unstructured.Unstructured) (going bool, err error) {
	var judged migration.Assessment
	if remaker, ok := a.job.(migration.Recreator); ok {
		if judged, err = remaker.Assess(ctx, a.cluster, live); err != nil {
			return false, err
		}
	}
	if live.GetDeletionTimestamp() == nil {
		if judged.Unusable == "" {
			return false, nil
		}
		a.log.Warn("made again in vain; it is made once more", zap.String("object", ref.String()), zap.String("problem", judged.Unusable))
		if _, err := a.delete(ctx, ref, live, nil, noAttempt); err != nil {
			return false, err
		}
	}
	if !slices.ContainsFunc(live.GetFinalizers(), func(f string) bool { return slices.Contains(judged.RemoveFinalizers, f) }) {
		return true, nil
	}
	a.log.Warn("its deletion cannot end by itself; taking off finalizers", zap.String("object", ref.String()), zap.Strings("finalizers", judged.RemoveFinalizers))
	return true, a.removeFinalizers(ctx, ref, live.GetUID(), judged.RemoveFinalizers)
}

// unfinalize takes finalizers off an object. Others take off theirs meanwhile, and
// none may be put back on an object that is being deleted.
func (w *writer) removeFinalizers(ctx context.Context, ref migration.Ref, uid types.UID, finalizers []string) error {
	client := ref.Resource.In(w.client, ref.Namespace)
	return w.write(ctx, func(ctx context.Context) error {
		live, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid:
			return nil
		case err != nil:
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(live.GetFinalizers()), func(f string) bool { return slices.Contains(finalizers, f) })
		if len(kept) == len(live.GetFinalizers()) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": live.GetResourceVersion(), "finalizers": kept}})
		if err != nil {
			return k8sutil.Permanent(fmt.Errorf("cannot encode the patch: %w", err))
		}
		_, err = client.Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err):
			return k8sutil.Retryable(err)
		}
		return err
	})
}

// patchExactly merges into the metadata of one object, and no other of its name.
// One that is gone is left alone.
func (w *writer) patchExactly(ctx context.Context, ref migration.Ref, uid types.UID, metadata map[string]any) error {
	metadata["uid"] = uid
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("cannot encode the patch: %w", err)
	}
	client := ref.Resource.In(w.client, ref.Namespace)
	return w.write(ctx, func(ctx context.Context) error {
		_, err := client.Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		// A merge patch conflicts over the UID alone.
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}

// lateRestart replaces the pods of a Deployment that have to be replaced now. Once
// something was made in vain, no pod is spared.
func (a *actor) lateRestart(ctx context.Context, e *entry, i int, inVain bool) (string, error) {
	ch := &e.Unit.Changes[i]
	if ch.Late.Unless != nil {
		live, err := a.get(ctx, *ch.Late.Unless)
		if err != nil {
			return "", err
		}
		if live != nil && live.GetDeletionTimestamp() == nil {
			return migration.ChangeUnchanged, nil
		}
	}
	deployment, err := a.get(ctx, ch.Ref)
	if err != nil {
		return "", err
	}
	if deployment == nil {
		return "", &changedError{ref: ch.Ref, problem: "does not exist any more"}
	}
	all := inVain || ch.Late.After.IsZero()
	if traces := ch.Late.Leftovers; traces != nil && !all {
		err := a.cluster.Each(ctx, traces.Ref.Resource, traces.Ref.Namespace, migration.ListOptions{LabelSelector: traces.LabelSelector},
			func(obj *unstructured.Unstructured) error {
				all = all || obj.GetDeletionTimestamp() == nil
				return nil
			})
		if err != nil {
			return "", err
		}
	}
	e.Pre[i].Pods, err = a.podsOf(ctx, deployment, func(pod *unstructured.Unstructured) bool {
		return all || pod.GetDeletionTimestamp() != nil || k8sutil.PodStart(pod).After(ch.Late.After)
	})
	if err != nil {
		return "", err
	}
	if len(e.Pre[i].Pods) == 0 {
		return migration.ChangeUnchanged, nil
	}
	return migration.ChangeDone, a.restart(ctx, ch.Ref, e.Pre[i].Pods)
}

// touching waits like wait, and touches the object of a deletion whenever that
// stalls.
func (a *actor) nudging(ctx context.Context, w *waiter, ch *migration.Change, wait func() error) error {
	remaker, ok := a.job.(migration.Recreator)
	if !ok || ch.Verb != migration.Delete {
		return wait()
	}
	stalled := remaker.Stuck(ch)
	if stalled == nil {
		return wait()
	}
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for w.wait(watching, []migration.Condition{*stalled}, time.Now()) == nil {
			live := w.Get(ch.Ref)
			if live == nil {
				return
			}
			a.log.Info("its deletion stalled; touching it", zap.String("object", ch.Ref.String()))
			err := a.patchExactly(watching, ch.Ref, live.GetUID(), map[string]any{
				"annotations": map[string]any{nudgeAnnotation: time.Now().UTC().Format(time.RFC3339Nano)},
			})
			if err != nil && watching.Err() == nil {
				a.log.Warn("cannot touch it", zap.String("object", ch.Ref.String()), zap.Error(err))
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

// remake brings back an object that a unit deletes and makes again.
func (v *rollback) recreate(ctx context.Context, e *entry, i int) (string, error) {
	outcome := ""
	for attempt := 1; ; attempt++ {
		made, err := v.recreateOnce(ctx, e, i)
		if made {
			outcome = migration.ChangeRolledBack
		}
		var waited *WaitError
		if err == nil || attempt == recreateAttempts || !errors.As(err, &waited) {
			return outcome, err
		}
		v.r.log.Warn("not back yet; trying again", zap.String("object", e.Unit.Changes[i].Ref.String()), zap.Error(err))
	}
}

func (v *rollback) recreateOnce(ctx context.Context, e *entry, i int) (made bool, err error) {
	ch, pre := &e.Unit.Changes[i], e.Pre[i].Object
	if pre == nil {
		return false, nil
	}
	again := recreatedBy(&e.Unit, i)
	obj := e.Unit.Changes[again].Object.DeepCopy()
	live, err := v.r.get(ctx, ch.Ref)
	if err != nil {
		return false, err
	}
	if live != nil {
		if live.GetUID() == pre.GetUID() && live.GetDeletionTimestamp() == nil {
			return false, nil // never deleted
		}
		going, err := v.r.deleteUnusable(ctx, ch.Ref, live)
		if err != nil {
			return false, err
		}
		if going {
			err := v.r.nudging(ctx, v.waiter, ch, func() error {
				return v.waiter.wait(ctx, append([]migration.Condition{gone(ch.Ref, live.GetUID(), ch)}, v.r.job.Await(ch)...), time.Now())
			})
			if err != nil {
				return false, err
			}
			live = nil
		}
	}
	if live == nil {
		if err := v.betweenDeleteAndCreate(ctx, e, i+1, again); err != nil {
			return false, err
		}
		made = true
	}
	if _, _, err := v.r.createAgain(ctx, ch.Ref, obj, noAttempt); err != nil {
		return made, err
	}
	return made, v.waitRestored(ctx, ch)
}

// between does what stands between the deletion of an object and its creation.
// What it should wait for is worth some time, but not that the object stays away.
func (v *rollback) betweenDeleteAndCreate(ctx context.Context, e *entry, from, to int) error {
	for i := from; i < to; i++ {
		step := &e.Unit.Changes[i]
		switch {
		case step.Verb == migration.Await:
			err := v.waiter.wait(ctx, v.r.job.Await(step), time.Now())
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				v.r.addFinding(migration.Finding{Severity: migration.Warning, Object: step.Ref.String(), Problem: "not waited for any longer: " + err.Error()})
			}
		case step.Verb == migration.Restart && step.Late != nil:
			if _, err := v.r.lateRestart(ctx, e, i, true); err != nil {
				return fmt.Errorf("cannot restart %s: %w", step.Ref, err)
			}
			if err := v.waiter.wait(ctx, v.r.after(e, i), time.Now()); err != nil {
				return fmt.Errorf("%s: %w", step.Ref, err)
			}
		}
	}
	return nil
}

// createRemade creates an object again, or finds it made by an earlier attempt,
// with the owners that live now and the finalizers it had.
func (w *writer) createAgain(ctx context.Context, ref migration.Ref, obj *unstructured.Unstructured, a attempt) (created *unstructured.Unstructured, existed bool, err error) {
	if err := w.remapOwners(ctx, obj); err != nil {
		return nil, false, err
	}
	created, existed, err = w.createOnce(ctx, ref, obj, "", a)
	if err != nil {
		return nil, existed, err
	}
	return created, existed, w.addFinalizers(ctx, ref, created, obj.GetFinalizers())
}

// remapOwners points owner references at the owners that live now: one that was
// restored has a new UID. A reference to an owner that is really gone would have
// the garbage collector delete the restored object at once: it is left out, and
// said.
func (w *writer) remapOwners(ctx context.Context, obj *unstructured.Unstructured) error {
	var owners []metav1.OwnerReference
	for _, owner := range obj.GetOwnerReferences() {
		live, err := w.owner(ctx, obj.GetNamespace(), owner)
		switch {
		case err != nil && (ctx.Err() != nil || w.restored(owner.UID)):
			return err
		case err != nil:
			// This account may not read every kind. It is not ours that went.
			w.log.Warn("cannot tell whether an owner lives; its reference stays", zap.String("owner", owner.Kind+" "+owner.Name), zap.Error(err))
		case live == nil || live.GetUID() != owner.UID && !w.restored(owner.UID):
			w.findings.addFinding(migration.Finding{
				Severity: migration.Warning, Object: obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName(),
				Problem: fmt.Sprintf("restored without its owner %s %s, which is gone", owner.Kind, owner.Name),
			})
			continue
		default:
			owner.UID = live.GetUID()
		}
		owners = append(owners, owner)
	}
	obj.SetOwnerReferences(owners)
	return nil
}

// owner reads the object that an owner reference names, nil if there is none: in
// the object's namespace, or cluster-scoped.
func (w *writer) owner(ctx context.Context, namespace string, owner metav1.OwnerReference) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, err
	}
	kind, served, err := w.cluster.Served(ctx, gv.WithKind(owner.Kind).GroupKind())
	if err != nil || !served {
		return nil, err
	}
	for _, namespace := range slices.Compact([]string{namespace, ""}) {
		live, err := w.get(ctx, migration.Ref{Resource: kind, Namespace: namespace, Name: owner.Name}, "")
		if err != nil || live != nil {
			return live, err
		}
	}
	return nil, nil
}

// refinalize adds the finalizers that an admission webhook removed at creation.
func (w *writer) addFinalizers(ctx context.Context, ref migration.Ref, created *unstructured.Unstructured, want []string) error {
	missing := make([]any, 0, len(want))
	for _, f := range want {
		if !slices.Contains(created.GetFinalizers(), f) {
			missing = append(missing, f)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	client := ref.Resource.In(w.client, ref.Namespace)
	live := created
	return w.write(ctx, func(ctx context.Context) error {
		patch, err := patchFor(&migration.Change{Lists: []migration.ListEdit{{Path: []string{"metadata", "finalizers"}, Add: missing}}}, live)
		if err != nil {
			return k8sutil.Permanent(err)
		}
		_, err = client.Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		answer := err
		now, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case now.GetUID() != created.GetUID():
			return k8sutil.Permanent(&changedError{ref: ref, problem: "was created again by somebody else"})
		}
		live = now
		return k8sutil.Retryable(answer)
	})
}
