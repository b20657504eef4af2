package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Writer makes the writes of one run. It knows no journal.
type Writer struct {
	Log *zap.Logger
	Job migration.Job
	// Names are those of the program.
	Names migration.Names
	// client writes, reader cannot.
	Client, Reader dynamic.Interface
	Cluster        *migration.Cluster
	Findings       *findings.List
	Ignored        map[string]bool
	// Read repeats a read that failed for a moment.
	Read    func(context.Context, func(context.Context) error) error
	Notify  func() func(error)
	Account *k8sutil.Account
	// Guard returns the context of one write, which ends before the lock does.
	Guard func(context.Context) (context.Context, context.CancelFunc, error)
	// Restored says whether the UID is that of an object which the run deleted.
	Restored func(types.UID) bool
}

// Write makes one write: within the lock's deadline, repeated while it fails for a moment. ctx
// ending stops further attempts, never one in flight. An answer of the job that it acts on is
// looked at before each attempt, when the lock is there. An attempt that this process ended itself,
// with the Lease, says nothing of the API server: if it was the last one, some more are made.
func (w *Writer) Write(ctx context.Context, op func(context.Context) error) error {
	var last error
	ended := false // the last attempt, with its call
	attempt := w.Account.Watch(func(ctx context.Context) error {
		call, cancel, err := w.Guard(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		if err := checkDecision(ctx); err != nil {
			return err
		}
		err = op(call)
		ended = call.Err() != nil
		answered(ctx, err)
		if !errors.Is(err, ErrOldDecision) {
			last = err
		}
		return err
	})
	err := k8sutil.Retry(ctx, k8sutil.RetryBudget, w.Notify(), attempt)
	for n := 0; n < attemptsOfAnEndedCall && ended && k8sutil.IsTransient(err) && ctx.Err() == nil; n++ {
		err = attempt(ctx)
	}
	return tooLate(err, last)
}

const attemptsOfAnEndedCall = 3

// Look reads an object that a write has found otherwise than it was. The context of a write ends
// with the Lease; a read does no harm after it, and may be all that tells what the write did.
func Look(ctx context.Context, client dynamic.ResourceInterface, name string, subresources ...string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.CallTimeout)
	defer cancel()
	return client.Get(ctx, name, metav1.GetOptions{}, subresources...)
}

// Attempt is told of each request of a change.
type Attempt struct {
	// Sending is called before each request.
	Sending func()
	// Refused is called when it is certain that no request had an effect.
	Refused func()
}

// NoAttempt is for writes that no step of a journal stands for.
var NoAttempt = Attempt{Sending: func() {}, Refused: func() {}}

// ChangedError says that an object is not what the plan was made for any more.
type ChangedError struct {
	Ref     migration.Ref
	Problem string
	// ForGood: no later attempt can do better.
	ForGood bool
	// NoEffect: no request of the change had an effect.
	NoEffect bool
}

func (e *ChangedError) Error() string { return fmt.Sprintf("%s %s", e.Ref, e.Problem) }

// Get reads one object past every cache; nil if it does not exist.
func (w *Writer) Get(ctx context.Context, ref migration.Ref, subresources ...string) (*unstructured.Unstructured, error) {
	if len(subresources) == 1 && subresources[0] == "" {
		subresources = nil
	}
	var obj *unstructured.Unstructured
	err := w.Read(ctx, func(ctx context.Context) error {
		var err error
		obj, err = ref.Resource.In(w.Reader, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}, subresources...)
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

// SelectorOf reads which pods a Deployment selects.
func SelectorOf(deployment *unstructured.Unstructured) (labels.Selector, error) {
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

// PodsOf returns the pods that a Deployment selects, and that are wanted; nil: all.
func (w *Writer) PodsOf(ctx context.Context, deployment *unstructured.Unstructured, wanted func(*unstructured.Unstructured) bool) ([]types.UID, error) {
	selector, err := SelectorOf(deployment)
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	err = w.Cluster.Each(ctx, migration.Pods, deployment.GetNamespace(), migration.ListOptions{LabelSelector: selector.String()},
		func(pod *unstructured.Unstructured) error {
			if wanted == nil || wanted(pod) {
				uids = append(uids, pod.GetUID())
			}
			return nil
		})
	return uids, err
}

// CreateOnce creates an object whatever happens to the answers: if it exists
// after all, the mark (or, without one, its content) tells whether it is ours.
func (w *Writer) CreateOnce(ctx context.Context, ref migration.Ref, obj *unstructured.Unstructured, mark string, a Attempt) (live *unstructured.Unstructured, existed bool, err error) {
	client := ref.Resource.In(w.Client, ref.Namespace)
	first := true
	err = w.Write(ctx, func(ctx context.Context) error {
		a.Sending()
		var err error
		// The name of the manager tells later what was so from the beginning.
		live, err = client.Create(ctx, obj, metav1.CreateOptions{FieldManager: w.Names.Program})
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			if first && err != nil && !k8sutil.IsTransient(err) {
				a.Refused()
			}
			first = first && err == nil
			return err
		}
		answer := err
		live, err = Look(ctx, client, ref.Name)
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w (and then it did not exist)", k8sutil.Retryable(answer))
		case err != nil:
			return err
		case mark != "" && live.GetAnnotations()[w.Names.Mark()] == mark,
			mark == "" && patch.Holds(live, obj) && live.GetDeletionTimestamp() == nil:
			existed = first
			return nil
		}
		if first {
			a.Refused()
		}
		if live.GetDeletionTimestamp() != nil {
			return k8sutil.Permanent(&ChangedError{Ref: ref, Problem: "exists already and is being deleted"})
		}
		return k8sutil.Permanent(&ChangedError{Ref: ref, Problem: "exists already and was not made by this run; it is left alone"})
	})
	return live, existed, err
}

// Delete removes the object that pre is the image of, and no other one of its
// name. latest, if not nil, is that object as this unit's own last write left it.
// It does not wait until it is gone.
func (w *Writer) Delete(ctx context.Context, ref migration.Ref, pre, latest *unstructured.Unstructured, a Attempt) (string, error) {
	if pre == nil {
		return migration.ChangeUnchanged, nil
	}
	client := ref.Resource.In(w.Client, ref.Namespace)
	uid, version := pre.GetUID(), pre.GetResourceVersion()
	if latest != nil && latest.GetUID() == uid && patch.Hash(latest, w.Ignored) == patch.Hash(pre, w.Ignored) {
		version = latest.GetResourceVersion()
	}
	if latest != nil && latest.GetUID() == uid && latest.GetDeletionTimestamp() != nil {
		return migration.ChangeUnchanged, nil // somebody else deletes it
	}
	result := migration.ChangeDone
	first := true
	err := w.Write(ctx, func(ctx context.Context) error {
		a.Sending()
		err := client.Delete(ctx, ref.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			PropagationPolicy: w.Propagation(ref),
		})
		if apierrors.IsNotFound(err) {
			if first {
				result = migration.ChangeUnchanged
				a.Refused()
			}
			return nil
		}
		if !apierrors.IsConflict(err) {
			if first && err != nil && !k8sutil.IsTransient(err) {
				a.Refused()
			}
			first = first && err == nil
			return err
		}
		answer := err
		live, err := Look(ctx, client, ref.Name)
		if apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid {
			// What was to go is gone; what is there now came later.
			if first {
				result = migration.ChangeUnchanged
				a.Refused()
			}
			return nil
		}
		if err != nil {
			return err
		}
		k8sutil.Trim(live)
		if live.GetDeletionTimestamp() != nil && first {
			result = migration.ChangeUnchanged
			a.Refused() // somebody else deletes it
			return nil
		}
		if patch.Hash(live, w.Ignored) != patch.Hash(pre, w.Ignored) {
			if first {
				a.Refused()
			}
			return k8sutil.Permanent(&ChangedError{Ref: ref, Problem: "was edited after the plan was made; it is left as it is"})
		}
		version = live.GetResourceVersion()
		return k8sutil.Retryable(answer)
	})
	return result, err
}

// Restart deletes those of the pods that still exist; their controller replaces
// them.
func (w *Writer) Restart(ctx context.Context, deployment migration.Ref, uids []types.UID) error {
	alive := map[types.UID]string{}
	err := w.Cluster.Each(ctx, migration.Pods, deployment.Namespace, migration.ListOptions{}, func(pod *unstructured.Unstructured) error {
		alive[pod.GetUID()] = pod.GetName()
		return nil
	})
	if err != nil {
		return err
	}
	client := w.Client.Resource(migration.Pods.GroupVersionResource).Namespace(deployment.Namespace)
	for _, uid := range uids {
		name, ok := alive[uid]
		if !ok {
			continue
		}
		err := w.Write(ctx, func(ctx context.Context) error {
			err := client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if apierrors.IsConflict(err) {
				live, err := Look(ctx, client, name)
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
		w.Log.Info("deleted pod for its controller to replace", zap.String("pod", deployment.Namespace+"/"+name))
	}
	return nil
}

// Propagation says what becomes of the objects that belong to one that is deleted.
func (w *Writer) Propagation(ref migration.Ref) *metav1.DeletionPropagation {
	if o, ok := w.Job.(migration.Orphaner); ok && o.Orphans(ref) {
		return new(metav1.DeletePropagationOrphan)
	}
	return new(metav1.DeletePropagationBackground)
}

// runtimeConvert reads an untyped JSON value into a typed one.
func runtimeConvert(from map[string]any, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(from, into)
}

// RemoveFinalizers removes finalizers of an object. Others remove theirs meanwhile, and
// none may be added to an object that is being deleted.
func (w *Writer) RemoveFinalizers(ctx context.Context, ref migration.Ref, uid types.UID, finalizers []string) error {
	client := ref.Resource.In(w.Client, ref.Namespace)
	return w.Write(ctx, func(ctx context.Context) error {
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

// PatchExactly merges into the metadata of one object, and no other of its name.
// One that is gone is left alone.
func (w *Writer) PatchExactly(ctx context.Context, ref migration.Ref, uid types.UID, metadata map[string]any) error {
	metadata["uid"] = uid
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("cannot encode the patch: %w", err)
	}
	client := ref.Resource.In(w.Client, ref.Namespace)
	return w.Write(ctx, func(ctx context.Context) error {
		_, err := client.Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		// A merge patch conflicts over the UID alone.
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}

// Recreate creates an object again, or finds it made by an earlier attempt,
// with the owners that live now and the finalizers it had.
func (w *Writer) Recreate(ctx context.Context, ref migration.Ref, obj *unstructured.Unstructured, a Attempt) (created *unstructured.Unstructured, existed bool, err error) {
	return w.recreate(ctx, ref, obj, a, true)
}

// Restore is Recreate, and leaves one that exists as it is: somebody else has created it a moment
// ago.
func (w *Writer) Restore(ctx context.Context, ref migration.Ref, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	created, _, err := w.recreate(ctx, ref, obj, NoAttempt, false)
	return created, err
}

func (w *Writer) recreate(ctx context.Context, ref migration.Ref, obj *unstructured.Unstructured, a Attempt, complete bool) (created *unstructured.Unstructured, existed bool, err error) {
	if err := w.remapOwners(ctx, obj); err != nil {
		return nil, false, err
	}
	created, existed, err = w.CreateOnce(ctx, ref, obj, "", a)
	if err != nil || existed && !complete {
		return created, existed, err
	}
	return created, existed, w.addFinalizers(ctx, ref, created, obj.GetFinalizers())
}

// remapOwners points owner references at the owners that live now: one that was
// restored has a new UID. A reference to an owner that is really gone would have
// the garbage collector delete the restored object at once: it is left out, and
// said.
func (w *Writer) remapOwners(ctx context.Context, obj *unstructured.Unstructured) error {
	var owners []metav1.OwnerReference
	for _, owner := range obj.GetOwnerReferences() {
		live, err := w.owner(ctx, obj.GetNamespace(), owner)
		switch {
		case err != nil && (ctx.Err() != nil || w.Restored(owner.UID)):
			return err
		case err != nil:
			// This account may not read every kind. It is not ours that went.
			w.Log.Warn("cannot check whether the owner exists; keeping the ownerReference", zap.String("owner", owner.Kind+" "+owner.Name), zap.Error(err))
		case live == nil || live.GetUID() != owner.UID && !w.Restored(owner.UID):
			w.Findings.Add(migration.Finding{
				ID: "owner-gone", Severity: migration.Warning, Object: obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName(),
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
func (w *Writer) owner(ctx context.Context, namespace string, owner metav1.OwnerReference) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, err
	}
	kind, served, err := w.Cluster.Served(ctx, gv.WithKind(owner.Kind).GroupKind())
	if err != nil || !served {
		return nil, err
	}
	for _, namespace := range slices.Compact([]string{namespace, ""}) {
		live, err := w.Get(ctx, migration.Ref{Resource: kind, Namespace: namespace, Name: owner.Name}, "")
		if err != nil || live != nil {
			return live, err
		}
	}
	return nil, nil
}

// addFinalizers adds the finalizers that an admission webhook removed at creation.
func (w *Writer) addFinalizers(ctx context.Context, ref migration.Ref, created *unstructured.Unstructured, want []string) error {
	missing := make([]any, 0, len(want))
	for _, f := range want {
		if !slices.Contains(created.GetFinalizers(), f) {
			missing = append(missing, f)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	client := ref.Resource.In(w.Client, ref.Namespace)
	live := created
	return w.Write(ctx, func(ctx context.Context) error {
		patch, err := patch.For(&migration.Change{Lists: []migration.ListEdit{{Path: []string{"metadata", "finalizers"}, Add: missing}}}, live)
		if err != nil {
			return k8sutil.Permanent(err)
		}
		_, err = client.Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		answer := err
		now, err := Look(ctx, client, ref.Name)
		switch {
		case err != nil:
			return err
		case now.GetUID() != created.GetUID():
			return k8sutil.Permanent(&ChangedError{Ref: ref, Problem: "was created again by somebody else"})
		}
		live = now
		return k8sutil.Retryable(answer)
	})
}
