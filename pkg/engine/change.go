package engine

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
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// actor makes the changes of one run, and undoes them.
type actor struct {
	*findings
	*writer
	*recorder
	job migration.Job
	log *zap.Logger
	// newCluster returns a view of the cluster that has read nothing yet.
	newCluster     func() *migration.Cluster
	stateNamespace string
	// undoFlags are the flags of the command that undoes the run.
	undoFlags []string

	// leftEffects counts objects that an undo left since there is no proof that they
	// come from the run.
	leftEffects atomic.Int64
}

// changedError says that an object is not what the plan was made for any more.
type changedError struct {
	ref     migration.Ref
	problem string
	// forGood: no later attempt can do better.
	forGood bool
	// noEffect: no request of the change had an effect.
	noEffect bool
}

func (e *changedError) Error() string { return fmt.Sprintf("%s %s", e.ref, e.problem) }

// mark is the value of MarkAnnotation for one change.
func (rec *recorder) mark(e *entry, i int) string {
	return fmt.Sprintf("%s/%d/%d", rec.journal.Run, e.Seq, i)
}

// restores says whether change i creates again what an earlier change of the
// unit deletes.
func (e *entry) restores(i int) bool {
	for j := range i {
		if e.Unit.Changes[j].Verb == migration.Delete && e.Unit.Changes[j].Ref == e.Unit.Changes[i].Ref && !e.Unit.Changes[i].Replaces {
			return true
		}
	}
	return false
}

// goes says whether a later change of the unit deletes the object of change i.
func (e *entry) goes(i int) bool { return deletes(&e.Unit, i) > i }

// preimages reads what the changes of a unit are about to change. last: the unit
// is made after all others, which may change what it expects.
func (a *actor) preimages(ctx context.Context, u *migration.Unit, last bool) ([]preimage, error) {
	pre := make([]preimage, len(u.Changes))
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
	for i := range u.Changes {
		// What is patched and then deleted must still be what the deletion was decided
		// on: the list edits of the patch alone would fit any object.
		if j := deletes(u, i); j > i && u.Changes[i].Verb == migration.Patch && u.Changes[j].Object != nil && hashOf(pre[i].Object, a.recorder.ignored) != hashOf(u.Changes[j].Object, a.recorder.ignored) {
			return pre, &changedError{ref: u.Changes[i].Ref, problem: "was edited after the plan was made; it is left as it is"}
		}
	}
	return pre, nil
}

// deletes returns the change, i or a later one, that deletes the object of change i,
// -1 if none does.
func deletes(u *migration.Unit, i int) int {
	for j := i; j < len(u.Changes); j++ {
		if u.Changes[j].Verb == migration.Delete && u.Changes[j].Ref == u.Changes[i].Ref {
			return j
		}
	}
	return -1
}

func (a *actor) preimage(ctx context.Context, ch *migration.Change, last bool) (preimage, error) {
	var pre preimage
	switch ch.Verb {
	case migration.Delete:
		if pre.Object = ch.Object; pre.Object != nil {
			break
		}
		fallthrough
	case migration.Patch:
		obj, err := a.get(ctx, ch.Ref, ch.Subresource)
		if err != nil {
			return pre, err
		}
		if obj == nil && ch.Verb == migration.Patch {
			return pre, &changedError{ref: ch.Ref, problem: "does not exist any more"}
		}
		if obj != nil && ch.Verb == migration.Patch && !last {
			if err := asDecided(ch, obj); err != nil {
				return pre, err
			}
		}
		pre.Object = obj
	case migration.Restart:
		deployment, err := a.get(ctx, ch.Ref, "")
		if err != nil {
			return pre, err
		}
		if deployment == nil {
			return pre, &changedError{ref: ch.Ref, problem: "does not exist any more"}
		}
		if ch.Late != nil {
			break // decided when its turn comes
		}
		if pre.Pods, err = a.podsOf(ctx, deployment, nil); err != nil {
			return pre, err
		}
	}
	if pre.Object != nil && ch.UID != "" && pre.Object.GetUID() != ch.UID {
		return pre, &changedError{ref: ch.Ref, problem: "is another object than when the plan was made"}
	}
	for _, ref := range ch.SideEffects {
		obj, err := a.get(ctx, ref, "")
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
	same, err := untouched(ch.Object, live, ch.Patch)
	switch {
	case err != nil:
		return err
	case same || alreadyPatched(live, ch.Patch):
		return nil
	}
	return &changedError{ref: ch.Ref, problem: "was edited after the plan was made; it is left as it is"}
}

// get reads one object past every cache; nil if it does not exist.
func (w *writer) get(ctx context.Context, ref migration.Ref, subresources ...string) (*unstructured.Unstructured, error) {
	if len(subresources) == 1 && subresources[0] == "" {
		subresources = nil
	}
	var obj *unstructured.Unstructured
	err := w.read(ctx, func(ctx context.Context) error {
		var err error
		obj, err = ref.Resource.In(w.reader, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}, subresources...)
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot get %s: %w", ref, err)
	}
	k8sutil.Trim(obj)
	return obj, nil
}

func selectorOf(deployment *unstructured.Unstructured) (labels.Selector, error) {
	raw, _, err := unstructured.NestedMap(deployment.Object, "spec", "selector")
	if err != nil {
		return nil, err
	}
	given := metav1.LabelSelector{}
	if err := runtimeConvert(raw, &given); err != nil {
		return nil, fmt.Errorf("cannot read the selector of %s %s/%s: %w", deployment.GetKind(), deployment.GetNamespace(), deployment.GetName(), err)
	}
	return metav1.LabelSelectorAsSelector(&given)
}

// podsOf returns the pods that a Deployment selects, and that are wanted; nil: all.
func (w *writer) podsOf(ctx context.Context, deployment *unstructured.Unstructured, wanted func(*unstructured.Unstructured) bool) ([]types.UID, error) {
	selector, err := selectorOf(deployment)
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	err = w.cluster.Each(ctx, migration.Pods, deployment.GetNamespace(), migration.ListOptions{LabelSelector: selector.String()},
		func(pod *unstructured.Unstructured) error {
			if wanted == nil || wanted(pod) {
				uids = append(uids, pod.GetUID())
			}
			return nil
		})
	return uids, err
}

// apply makes one change. It returns ChangeDone, or ChangeUnchanged if it was
// made already. Whatever the outcome of an earlier attempt, calling it again has
// no second effect.
func (a *actor) apply(ctx context.Context, e *entry, i int) (string, error) {
	ch := &e.Unit.Changes[i]
	var err error
	result, before := migration.ChangeDone, a.stateOf(e, i)
	switch ch.Verb {
	case migration.Create:
		result, err = a.create(ctx, e, i)
	case migration.Delete:
		if recreatedBy(&e.Unit, i) >= 0 {
			result, err = a.deleteForRecreation(ctx, e, i)
			break
		}
		result, err = a.delete(ctx, ch.Ref, e.Pre[i].Object, e.latest[ch.Ref], a.beginning(e, i))
	case migration.Patch:
		if over, failed := a.alreadyReplaced(ctx, e, i); over || failed != nil {
			result, err = migration.ChangeUnchanged, failed
			break
		}
		result, err = a.patch(ctx, e, i)
	case migration.Restart:
		if ch.Late != nil {
			result, err = a.lateRestart(ctx, e, i, len(e.unusable) > 0)
			break
		}
		a.beginning(e, i).sending()
		err = a.restart(ctx, ch.Ref, e.Pre[i].Pods)
	default:
		err = fmt.Errorf("unknown verb %q", ch.Verb)
	}
	if err != nil {
		if moved, ok := errors.AsType[*changedError](err); ok {
			moved.noEffect = a.stateOf(e, i) == before
		}
		return migration.ChangeFailed, &changeError{ch.Verb, ch.Ref, err}
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

func (a *actor) create(ctx context.Context, e *entry, i int) (string, error) {
	ch := &e.Unit.Changes[i]
	obj := ch.Object.DeepCopy()
	if e.restores(i) {
		created, existed, err := a.createAgain(ctx, ch.Ref, obj, a.beginning(e, i))
		if err != nil {
			return "", err
		}
		if !existed {
			a.setHash(e, i, created)
		}
		return migration.ChangeDone, nil
	}
	mark := a.mark(e, i)
	if e.steps[i].made {
		return a.stillMade(ctx, ch.Ref, mark)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[MarkAnnotation] = mark
	obj.SetAnnotations(annotations)
	created, existed, err := a.createOnce(ctx, ch.Ref, obj, mark, a.beginning(e, i))
	if err != nil {
		return "", err
	}
	if existed {
		// It may have been edited since an earlier attempt created it: no hash of what
		// it is now, so that an undo compares it with what was planned.
		return migration.ChangeUnchanged, nil
	}
	a.setHash(e, i, created)
	return migration.ChangeDone, nil
}

// stillMade says whether an object is there that an interrupted run has created. Who
// deleted it since has decided so: it is not created once more.
func (a *actor) stillMade(ctx context.Context, ref migration.Ref, mark string) (string, error) {
	live, err := a.get(ctx, ref, "")
	switch {
	case err != nil:
		return "", err
	case live == nil:
		return "", &changedError{ref: ref, problem: "was deleted by somebody else since an interrupted run had created it"}
	case live.GetAnnotations()[MarkAnnotation] != mark:
		return "", &changedError{ref: ref, problem: "exists already and was not made by this run; it is left alone"}
	}
	// It may have been edited since: no hash of what it is now, so that an undo compares
	// it with what was planned.
	return migration.ChangeUnchanged, nil
}

// attempt is told of each request of a change.
type attempt struct {
	// sending is called before each request.
	sending func()
	// refused is called when it is certain that no request had an effect.
	refused func()
}

// beginning keeps the state of a change: begun from its first request on, unless
// all of them are known to have had no effect.
func (rec *recorder) beginning(e *entry, i int) attempt {
	before := e.steps[i].state
	set := func(s stepState) {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		e.steps[i].state = s
	}
	return attempt{sending: func() { set(stepBegun) }, refused: func() { set(before) }}
}

// noAttempt is for writes that no step of a journal stands for.
var noAttempt = attempt{sending: func() {}, refused: func() {}}

// createOnce creates an object whatever happens to the answers: if it exists
// after all, the mark (or, without one, its content) tells whether it is ours.
func (w *writer) createOnce(ctx context.Context, ref migration.Ref, obj *unstructured.Unstructured, mark string, a attempt) (live *unstructured.Unstructured, existed bool, err error) {
	client := ref.Resource.In(w.client, ref.Namespace)
	first := true
	err = w.write(ctx, func(ctx context.Context) error {
		a.sending()
		var err error
		live, err = client.Create(ctx, obj, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			if first && err != nil && !k8sutil.IsTransient(err) {
				a.refused()
			}
			first = first && err == nil
			return err
		}
		answer := err
		live, err = client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w (and then it did not exist)", k8sutil.Retryable(answer))
		case err != nil:
			return err
		case mark != "" && live.GetAnnotations()[MarkAnnotation] == mark,
			mark == "" && holds(live, obj) && live.GetDeletionTimestamp() == nil:
			existed = first
			return nil
		}
		if first {
			a.refused()
		}
		if live.GetDeletionTimestamp() != nil {
			return k8sutil.Permanent(&changedError{ref: ref, problem: "exists already and is being deleted"})
		}
		return k8sutil.Permanent(&changedError{ref: ref, problem: "exists already and was not made by this run; it is left alone"})
	})
	return live, existed, err
}

// again makes an answer transient that another attempt may well not get: for
// writes without a precondition, to objects that only the holder of the lock
// writes, "conflict" and "not found" after "already exists" are such.
func again(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return k8sutil.Retryable(err)
	}
	return err
}

// delete removes the object that pre is the image of, and no other one of its
// name. latest, if not nil, is that object as this unit's own last write left it.
// It does not wait until it is gone.
func (w *writer) delete(ctx context.Context, ref migration.Ref, pre, latest *unstructured.Unstructured, a attempt) (string, error) {
	if pre == nil {
		return migration.ChangeUnchanged, nil
	}
	client := ref.Resource.In(w.client, ref.Namespace)
	uid, version := pre.GetUID(), pre.GetResourceVersion()
	if latest != nil && latest.GetUID() == uid && hashOf(latest, w.ignored) == hashOf(pre, w.ignored) {
		version = latest.GetResourceVersion()
	}
	if latest != nil && latest.GetUID() == uid && latest.GetDeletionTimestamp() != nil {
		return migration.ChangeUnchanged, nil // somebody else deletes it
	}
	result := migration.ChangeDone
	first := true
	err := w.write(ctx, func(ctx context.Context) error {
		a.sending()
		err := client.Delete(ctx, ref.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			PropagationPolicy: w.propagation(ref),
		})
		if apierrors.IsNotFound(err) {
			if first {
				result = migration.ChangeUnchanged
				a.refused()
			}
			return nil
		}
		if !apierrors.IsConflict(err) {
			if first && err != nil && !k8sutil.IsTransient(err) {
				a.refused()
			}
			first = first && err == nil
			return err
		}
		answer := err
		live, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid {
			// What was to go is gone; what is there now came later.
			if first {
				result = migration.ChangeUnchanged
				a.refused()
			}
			return nil
		}
		if err != nil {
			return err
		}
		k8sutil.Trim(live)
		if live.GetDeletionTimestamp() != nil && first {
			result = migration.ChangeUnchanged
			a.refused() // somebody else deletes it
			return nil
		}
		if hashOf(live, w.ignored) != hashOf(pre, w.ignored) {
			if first {
				a.refused()
			}
			return k8sutil.Permanent(&changedError{ref: ref, problem: "was edited after the plan was made; it is left as it is"})
		}
		version = live.GetResourceVersion()
		return k8sutil.Retryable(answer)
	})
	return result, err
}

func (a *actor) patch(ctx context.Context, e *entry, i int) (string, error) {
	ch := &e.Unit.Changes[i]
	pre := e.Pre[i].Object
	var subresources []string
	if ch.Subresource != "" {
		subresources = []string{ch.Subresource}
	}
	client := ch.Ref.Resource.In(a.client, ch.Ref.Namespace)
	try := a.beginning(e, i)
	basis := pre
	if latest := e.latest[ch.Ref]; latest != nil && latest.GetUID() == pre.GetUID() && ch.Subresource == "" {
		basis = latest
	}
	result := migration.ChangeDone
	first := true
	err := a.write(ctx, func(ctx context.Context) error {
		patch, err := patchFor(ch, basis)
		if err != nil {
			return k8sutil.Permanent(err)
		}
		try.sending()
		live, err := client.Patch(ctx, ch.Ref.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
		if err == nil {
			k8sutil.Trim(live)
			a.setHash(e, i, live)
			if ch.Subresource == "" {
				e.setLatest(ch.Ref, live)
			}
			return nil
		}
		// A run that was killed may have deleted it before the next one gets here.
		gone := func(err error) bool { return apierrors.IsNotFound(err) && e.goes(i) }
		if gone(err) {
			result = migration.ChangeUnchanged
			return nil
		}
		if !apierrors.IsConflict(err) {
			if first && !k8sutil.IsTransient(err) {
				try.refused()
			}
			first = false
			return err
		}
		answer := err
		live, err = client.Get(ctx, ch.Ref.Name, metav1.GetOptions{}, subresources...)
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
				try.refused()
			}
			return k8sutil.Permanent(&changedError{ref: ch.Ref, problem: "is another object than when the plan was made"})
		case e.steps[i].made && !isPatched(live, ch):
			// An earlier process had made it.
			try.refused()
			return k8sutil.Permanent(&changedError{ref: ch.Ref, problem: "was changed by somebody else since an interrupted run had patched it; it is left as it is"})
		case isPatched(live, ch):
			if first {
				result = migration.ChangeUnchanged
				try.refused()
			}
			a.setHash(e, i, live)
			return nil
		}
		decided := asDecided(ch, live)
		if e.goes(i) && hashOf(live, a.recorder.ignored) != hashOf(pre, a.recorder.ignored) {
			decided = &changedError{ref: ch.Ref, problem: "was edited after the plan was made; it is left as it is"}
		}
		if decided == nil && ch.Object == nil {
			same, err := untouched(pre, live, ch.Patch)
			if err != nil {
				return k8sutil.Permanent(err)
			}
			if !same {
				decided = &changedError{ref: ch.Ref, problem: "was edited after its pre-image was read; it is left as it is"}
			}
		}
		if decided != nil {
			if first {
				try.refused()
			}
			return k8sutil.Permanent(decided)
		}
		basis = live
		return k8sutil.Retryable(answer)
	})
	return result, err
}

func (rec *recorder) setHash(e *entry, i int, live *unstructured.Unstructured) {
	hash := hashOf(live, rec.ignored)
	rec.mu.Lock()
	defer rec.mu.Unlock()
	e.steps[i].hash = hash
}

func (e *entry) setLatest(ref migration.Ref, live *unstructured.Unstructured) {
	if e.latest == nil {
		e.latest = map[migration.Ref]*unstructured.Unstructured{}
	}
	e.latest[ref] = live
}

// restart deletes those of the pods that still exist; their controller replaces
// them.
func (w *writer) restart(ctx context.Context, deployment migration.Ref, uids []types.UID) error {
	alive := map[types.UID]string{}
	err := w.cluster.Each(ctx, migration.Pods, deployment.Namespace, migration.ListOptions{}, func(pod *unstructured.Unstructured) error {
		alive[pod.GetUID()] = pod.GetName()
		return nil
	})
	if err != nil {
		return err
	}
	client := w.client.Resource(migration.Pods.GroupVersionResource).Namespace(deployment.Namespace)
	for _, uid := range uids {
		name, ok := alive[uid]
		if !ok {
			continue
		}
		err := w.write(ctx, func(ctx context.Context) error {
			err := client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if apierrors.IsConflict(err) {
				live, err := client.Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid {
					return nil
				}
				return k8sutil.Retryable(errors.Join(errors.New("conflict"), err))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("cannot delete Pod %s/%s: %w", deployment.Namespace, name, err)
		}
		w.log.Info("deleted pod for its controller to replace", zap.String("pod", deployment.Namespace+"/"+name))
	}
	return nil
}

// after returns what the engine itself waits for after a change, besides the
// job's conditions.
func (a *actor) after(e *entry, i int) []migration.Condition {
	ch := &e.Unit.Changes[i]
	switch ch.Verb {
	case migration.Delete:
		if e.Pre[i].Object == nil {
			return nil
		}
		uid := e.Pre[i].Object.GetUID()
		if discarded, ok := e.unusable[i]; ok {
			uid = discarded
		}
		return []migration.Condition{gone(ch.Ref, uid, ch)}
	case migration.Restart:
		replaced := e.Pre[i].Pods
		return []migration.Condition{{
			Text: "its pods to be replaced", Timeout: ch.Timeout,
			On: []migration.Ref{{Resource: migration.Pods, Namespace: ch.Ref.Namespace}, ch.Ref},
			Eval: func(v migration.View) migration.Status {
				for _, pod := range v.List(migration.Pods, ch.Ref.Namespace) {
					for _, uid := range replaced {
						if pod.GetUID() == uid {
							return migration.Status{Message: "Pod " + pod.GetName() + " is terminating"}
						}
					}
				}
				deployment := v.Get(ch.Ref)
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
				if ch.Late != nil {
					return replicasReady(v, ch.Ref.Namespace, deployment)
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
	selector, err := selectorOf(deployment)
	if err != nil {
		return migration.Status{State: migration.Failed, Message: err.Error()}
	}
	ready := int64(0)
	for _, pod := range v.List(migration.Pods, namespace) {
		if pod.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(pod.GetLabels())) && isReady(pod) {
			ready++
		}
	}
	if ready < want {
		return migration.Status{Message: fmt.Sprintf("%d of its %d pods are ready", ready, want)}
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

// unfinalizeCommand removes all finalizers of an object.
func removeFinalizersCommand(ref migration.Ref) string {
	namespace := ""
	if ref.Namespace != "" {
		namespace = " -n " + ref.Namespace
	}
	return fmt.Sprintf(`kubectl%s patch %s %s --type=merge -p '{"metadata":{"finalizers":null}}'`, namespace, ref.GroupResource(), ref.Name)
}

// gone is the condition that the object of that UID does not exist any more.
func gone(ref migration.Ref, uid types.UID, ch *migration.Change) migration.Condition {
	return migration.Condition{
		Text: "its deletion to end", On: []migration.Ref{ref}, Timeout: ch.Timeout,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(ref)
			if obj == nil || obj.GetUID() != uid {
				return migration.Status{State: migration.Met}
			}
			if finalizers := obj.GetFinalizers(); len(finalizers) > 0 {
				return migration.Status{
					Message: fmt.Sprintf("it still has the finalizers %q", finalizers),
					Hint: fmt.Sprintf("start the controller that owns the finalizer. If there is none any more, remove the finalizer: %s. Then run the job again",
						removeFinalizersCommand(ref)),
				}
			}
			return migration.Status{Message: "it still exists"}
		},
	}
}

// propagation says what becomes of the objects that belong to one that is deleted.
func (w *writer) propagation(ref migration.Ref) *metav1.DeletionPropagation {
	if o, ok := w.job.(migration.Orphaner); ok && o.Orphans(ref) {
		return new(metav1.DeletePropagationOrphan)
	}
	return new(metav1.DeletePropagationBackground)
}
