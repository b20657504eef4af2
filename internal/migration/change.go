package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// pods is the one kind the engine reads on its own account, for Restart.
var pods = Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod"}

// errMoved says that an object is not what the plan was made for any more.
type errMoved struct {
	ref  Ref
	what string
}

func (e *errMoved) Error() string { return fmt.Sprintf("%s %s", e.ref, e.what) }

// mark is the value of MarkAnnotation for one change.
func (r *run) mark(e *entry, i int) string {
	return fmt.Sprintf("%s/%d/%d", r.journal.Run, e.Seq, i)
}

// restores says whether change i creates again what an earlier change of the
// unit deletes.
func (e *entry) restores(i int) bool {
	for j := range i {
		if e.Unit.Changes[j].Verb == Delete && e.Unit.Changes[j].Ref == e.Unit.Changes[i].Ref && !e.Unit.Changes[i].Replaces {
			return true
		}
	}
	return false
}

// goes says whether a later change of the unit deletes the object of change i.
func (e *entry) goes(i int) bool {
	for j := i + 1; j < len(e.Unit.Changes); j++ {
		if e.Unit.Changes[j].Verb == Delete && e.Unit.Changes[j].Ref == e.Unit.Changes[i].Ref {
			return true
		}
	}
	return false
}

// preimages reads what the changes of a unit are about to change.
func (r *run) preimages(ctx context.Context, u *Unit) ([]preimage, error) {
	pre := make([]preimage, len(u.Changes))
	g, ctx := errgroup.WithContext(ctx)
	for i := range u.Changes {
		ch := &u.Changes[i]
		g.Go(func() (err error) {
			pre[i], err = r.preimage(ctx, ch)
			return err
		})
	}
	return pre, g.Wait()
}

func (r *run) preimage(ctx context.Context, ch *Change) (preimage, error) {
	var pre preimage
	switch ch.Verb {
	case Delete:
		if pre.Object = ch.Object; pre.Object != nil {
			break
		}
		fallthrough
	case Patch:
		obj, err := r.get(ctx, ch.Ref, ch.Subresource)
		if err != nil {
			return pre, err
		}
		if obj == nil && ch.Verb == Patch {
			return pre, &errMoved{ch.Ref, "does not exist any more"}
		}
		pre.Object = obj
	case Restart:
		deployment, err := r.get(ctx, ch.Ref, "")
		if err != nil {
			return pre, err
		}
		if deployment == nil {
			return pre, &errMoved{ch.Ref, "does not exist any more"}
		}
		if ch.Late != nil {
			break // decided when its turn comes
		}
		if pre.Pods, err = r.podsOf(ctx, deployment, nil); err != nil {
			return pre, err
		}
	}
	if pre.Object != nil && ch.UID != "" && pre.Object.GetUID() != ch.UID {
		return pre, &errMoved{ch.Ref, "is another object than when the plan was made"}
	}
	for _, ref := range ch.SideEffects {
		obj, err := r.get(ctx, ref, "")
		if err != nil {
			return pre, err
		}
		if obj == nil {
			pre.Absent = append(pre.Absent, ref)
		}
	}
	return pre, nil
}

// get reads one object past every cache; nil if it does not exist.
func (r *run) get(ctx context.Context, ref Ref, subresources ...string) (*unstructured.Unstructured, error) {
	if len(subresources) == 1 && subresources[0] == "" {
		subresources = nil
	}
	var obj *unstructured.Unstructured
	err := r.e.read(ctx, func(ctx context.Context) error {
		var err error
		obj, err = resourceIn(r.e.reader, ref.Resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}, subresources...)
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
func (r *run) podsOf(ctx context.Context, deployment *unstructured.Unstructured, wanted func(*unstructured.Unstructured) bool) ([]types.UID, error) {
	selector, err := selectorOf(deployment)
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	err = r.cluster.Each(ctx, pods, deployment.GetNamespace(), ListOptions{LabelSelector: selector.String()},
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
func (r *run) apply(ctx context.Context, e *entry, i int) (string, error) {
	ch := &e.Unit.Changes[i]
	var err error
	result := ChangeDone
	switch ch.Verb {
	case Create:
		result, err = r.create(ctx, e, i)
	case Delete:
		if e.Unit.remadeBy(i) >= 0 {
			result, err = r.deleteRemade(ctx, e, i)
			break
		}
		result, err = r.delete(ctx, ch.Ref, e.Pre[i].Object)
	case Patch:
		if over, failed := r.overtaken(ctx, e, i); over || failed != nil {
			result, err = ChangeUnchanged, failed
			break
		}
		result, err = r.patch(ctx, e, i)
	case Restart:
		if ch.Late != nil {
			result, err = r.lateRestart(ctx, e, i, len(e.discarded) > 0)
			break
		}
		err = r.restart(ctx, ch.Ref, e.Pre[i].Pods)
	default:
		err = fmt.Errorf("unknown verb %q", ch.Verb)
	}
	if err != nil {
		return ChangeFailed, &changeError{ch.Verb, ch.Ref, err}
	}
	return result, nil
}

// changeError says which change could not be made.
type changeError struct {
	verb Verb
	ref  Ref
	err  error
}

func (e *changeError) Error() string { return fmt.Sprintf("cannot %s %s: %v", e.verb, e.ref, e.err) }
func (e *changeError) Unwrap() error { return e.err }

func (r *run) create(ctx context.Context, e *entry, i int) (string, error) {
	ch := &e.Unit.Changes[i]
	obj := ch.Object.DeepCopy()
	if e.restores(i) {
		created, err := r.createRemade(ctx, ch.Ref, obj)
		if err != nil {
			return "", err
		}
		e.hashes[i] = hashOf(created, r.ignored)
		return ChangeDone, nil
	}
	mark := r.mark(e, i)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[MarkAnnotation] = mark
	obj.SetAnnotations(annotations)
	created, existed, err := r.createOnce(ctx, ch.Ref, obj, mark)
	if err != nil {
		return "", err
	}
	e.hashes[i] = hashOf(created, r.ignored)
	if existed {
		return ChangeUnchanged, nil
	}
	return ChangeDone, nil
}

// createOnce creates an object whatever happens to the answers: if it exists
// after all, the mark (or, without one, its content) tells whether it is ours.
func (r *run) createOnce(ctx context.Context, ref Ref, obj *unstructured.Unstructured, mark string) (live *unstructured.Unstructured, existed bool, err error) {
	client := resourceIn(r.e.writer, ref.Resource, ref.Namespace)
	first := true
	err = r.write(ctx, func(ctx context.Context) error {
		var err error
		live, err = client.Create(ctx, obj, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			first = first && err == nil
			return err
		}
		answer := err
		live, err = client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w (and then it did not exist)", transient{answer})
		case err != nil:
			return err
		case mark != "" && live.GetAnnotations()[MarkAnnotation] == mark,
			mark == "" && contains(live.Object["spec"], obj.Object["spec"]) && live.GetDeletionTimestamp() == nil:
			existed = first
			return nil
		case live.GetDeletionTimestamp() != nil:
			return k8sutil.Permanent(&errMoved{ref, "exists already and is being deleted"})
		default:
			return k8sutil.Permanent(&errMoved{ref, "exists already and was not made by this run; it is left alone"})
		}
	})
	return live, existed, err
}

// transient wraps an answer that says "conflict" where trying again is right:
// the object it conflicts with is not there.
type transient struct{ err error }

func (t transient) Error() string { return t.err.Error() }

// again makes an answer transient that another attempt may well not get: for
// writes without a precondition, to objects that only the holder of the lock
// writes, "conflict" and "not found" after "already exists" are such.
func again(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return transient{err}
	}
	return err
}

// delete removes the object that pre is the image of, and no other one of its
// name. It does not wait until it is gone.
func (r *run) delete(ctx context.Context, ref Ref, pre *unstructured.Unstructured) (string, error) {
	if pre == nil {
		return ChangeUnchanged, nil
	}
	client := resourceIn(r.e.writer, ref.Resource, ref.Namespace)
	uid, version := pre.GetUID(), pre.GetResourceVersion()
	result := ChangeDone
	first := true
	err := r.write(ctx, func(ctx context.Context) error {
		err := client.Delete(ctx, ref.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			PropagationPolicy: r.propagation(ref),
		})
		if apierrors.IsNotFound(err) {
			if first {
				result = ChangeUnchanged
			}
			return nil
		}
		if !apierrors.IsConflict(err) {
			first = false
			return err
		}
		answer := err
		live, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case live.GetUID() != uid:
			// What was to go is gone; what is there now came later.
			return nil
		case hashOf(live, r.ignored) != hashOf(pre, r.ignored):
			return k8sutil.Permanent(&errMoved{ref, "was edited after its pre-image was taken; it is left alone"})
		}
		version = live.GetResourceVersion()
		return transient{answer}
	})
	return result, err
}

func (r *run) patch(ctx context.Context, e *entry, i int) (string, error) {
	ch := &e.Unit.Changes[i]
	pre := e.Pre[i].Object
	var subresources []string
	if ch.Subresource != "" {
		subresources = []string{ch.Subresource}
	}
	client := resourceIn(r.e.writer, ch.Ref.Resource, ch.Ref.Namespace)
	basis := pre
	result := ChangeDone
	first := true
	err := r.write(ctx, func(ctx context.Context) error {
		patch, err := withPrecondition(ch.Patch, basis)
		if err != nil {
			return k8sutil.Permanent(err)
		}
		live, err := client.Patch(ctx, ch.Ref.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
		if err == nil {
			e.hashes[i] = hashOf(live, r.ignored)
			return nil
		}
		// A run that was killed may have deleted it before the next one gets here.
		gone := func(err error) bool { return apierrors.IsNotFound(err) && e.goes(i) }
		if gone(err) {
			result = ChangeUnchanged
			return nil
		}
		if !apierrors.IsConflict(err) {
			first = false
			return err
		}
		answer := err
		live, err = client.Get(ctx, ch.Ref.Name, metav1.GetOptions{}, subresources...)
		if gone(err) {
			result = ChangeUnchanged
			return nil
		}
		if err != nil {
			return err
		}
		k8sutil.Trim(live)
		switch {
		case live.GetUID() != pre.GetUID():
			return k8sutil.Permanent(&errMoved{ch.Ref, "is another object than when the plan was made"})
		case alreadyPatched(live, ch.Patch):
			if first {
				result = ChangeUnchanged
			}
			e.hashes[i] = hashOf(live, r.ignored)
			return nil
		}
		if same, err := untouched(pre, live, ch.Patch); err != nil || !same {
			return k8sutil.Permanent(errors.Join(err, &errMoved{ch.Ref, "was edited after its pre-image was taken; it is left alone"}))
		}
		basis = live
		return transient{answer}
	})
	return result, err
}

// restart deletes those of the pods that still exist; their controller replaces
// them.
func (r *run) restart(ctx context.Context, deployment Ref, uids []types.UID) error {
	alive := map[types.UID]string{}
	err := r.cluster.Each(ctx, pods, deployment.Namespace, ListOptions{}, func(pod *unstructured.Unstructured) error {
		alive[pod.GetUID()] = pod.GetName()
		return nil
	})
	if err != nil {
		return err
	}
	client := r.e.writer.Resource(pods.GroupVersionResource).Namespace(deployment.Namespace)
	for _, uid := range uids {
		name, ok := alive[uid]
		if !ok {
			continue
		}
		err := r.write(ctx, func(ctx context.Context) error {
			err := client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if apierrors.IsConflict(err) {
				live, err := client.Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid {
					return nil
				}
				return transient{errors.Join(errors.New("conflict"), err)}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("cannot delete Pod %s/%s: %w", deployment.Namespace, name, err)
		}
		r.log.Info("deleted pod for its controller to replace", zap.String("pod", deployment.Namespace+"/"+name))
	}
	return nil
}

// after returns what the engine itself waits for after a change, besides the
// job's conditions.
func (r *run) after(e *entry, i int) []Condition {
	ch := &e.Unit.Changes[i]
	switch ch.Verb {
	case Delete:
		if e.Pre[i].Object == nil {
			return nil
		}
		uid := e.Pre[i].Object.GetUID()
		if discarded, ok := e.discarded[i]; ok {
			uid = discarded
		}
		return []Condition{gone(ch.Ref, uid, ch)}
	case Restart:
		replaced := e.Pre[i].Pods
		return []Condition{{
			Text: "its pods to be replaced", Timeout: ch.Timeout,
			On: []Ref{{Resource: pods, Namespace: ch.Ref.Namespace}, ch.Ref},
			Eval: func(v View) Status {
				for _, pod := range v.List(pods, ch.Ref.Namespace) {
					for _, uid := range replaced {
						if pod.GetUID() == uid {
							return Status{Message: "Pod " + pod.GetName() + " is terminating"}
						}
					}
				}
				deployment := v.Get(ch.Ref)
				if deployment == nil {
					return Status{State: Failed, Message: "the Deployment is gone"}
				}
				result, err := status.Compute(deployment)
				switch {
				case err != nil:
					return Status{Message: err.Error()}
				case result.Status == status.FailedStatus:
					return Status{State: Failed, Message: result.Message}
				case result.Status != status.CurrentStatus:
					return Status{Message: result.Message}
				}
				if ch.Late != nil {
					return replicasReady(v, ch.Ref.Namespace, deployment)
				}
				return Status{State: Met}
			},
		}}
	}
	return nil
}

// replicasReady says whether a Deployment has its pods, by the pods themselves:
// its status may be about those that went.
func replicasReady(v View, namespace string, deployment *unstructured.Unstructured) Status {
	want, found, err := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if err != nil || !found {
		want = 1
	}
	selector, err := selectorOf(deployment)
	if err != nil {
		return Status{State: Failed, Message: err.Error()}
	}
	ready := int64(0)
	for _, pod := range v.List(pods, namespace) {
		if pod.GetDeletionTimestamp() == nil && selector.Matches(labels.Set(pod.GetLabels())) && isReady(pod) {
			ready++
		}
	}
	if ready < want {
		return Status{Message: fmt.Sprintf("%d of its %d pods are ready", ready, want)}
	}
	return Status{State: Met}
}

func isReady(pod *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Ready" && condition["status"] == "True"
	})
}

// gone is the condition that the object of that UID does not exist any more.
func gone(ref Ref, uid types.UID, ch *Change) Condition {
	return Condition{
		Text: "its deletion to end", On: []Ref{ref}, Timeout: ch.Timeout,
		Eval: func(v View) Status {
			obj := v.Get(ref)
			if obj == nil || obj.GetUID() != uid {
				return Status{State: Met}
			}
			if finalizers := obj.GetFinalizers(); len(finalizers) > 0 {
				return Status{
					Message: fmt.Sprintf("it still has the finalizers %q", finalizers),
					Hint:    "the controller that owns a finalizer removes it; look whether it runs",
				}
			}
			return Status{Message: "it still exists"}
		},
	}
}
