package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fence"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// errChanged says that something is not as it was observed: look again.
var errChanged = errors.New("it was changed since it was read")

// actor carries actions out. Each write carries the version that was observed, and is refused if
// somebody was faster.
type actor struct {
	*decide.Rules
	client   client.Client
	reader   client.Reader
	nats     *connection
	recorder events.EventRecorder
	fence    *fence.Fence
	kept     drift.Kept
}

// do carries out one action.
func (a *actor) do(ctx context.Context, w *observed.World, todo decide.Action) error {
	logr.FromContextOrDiscard(ctx).Info("acting", "action", todo.String())
	switch todo := todo.(type) {
	case decide.Finalize:
		return a.finalizer(ctx, w, controllerutil.AddFinalizer)
	case decide.Release:
		return a.finalizer(ctx, w, controllerutil.RemoveFinalizer)
	case decide.Credentials:
		return a.credentials(ctx, w, todo.Name)
	case decide.Create:
		return a.noted(todo.Object, func(u *unstructured.Unstructured) error { return a.create(ctx, u) })
	case decide.Apply:
		return a.noted(todo.Object, func(u *unstructured.Unstructured) error { return a.apply(ctx, u, todo.Observed) })
	case decide.Patch:
		merge := map[string]any{"metadata": map[string]any{}}
		for key, value := range todo.Merge {
			merge[key] = value
		}
		metadata, _ := merge["metadata"].(map[string]any)
		metadata["resourceVersion"], metadata["uid"] = todo.Observed.GetResourceVersion(), string(todo.Observed.GetUID())
		raw, err := json.Marshal(merge)
		if err != nil {
			return err
		}
		return a.client.Patch(ctx, todo.Observed.DeepCopy(), client.RawPatch(types.MergePatchType, raw), client.FieldOwner(a.Names.Marks()))
	case decide.Remove:
		uid, version := todo.Observed.GetUID(), todo.Observed.GetResourceVersion()
		err := a.client.Delete(ctx, todo.Observed.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return client.IgnoreNotFound(err)
	case decide.Orphan:
		uid, version := todo.Observed.GetUID(), todo.Observed.GetResourceVersion()
		err := a.client.Delete(ctx, todo.Observed.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
		return client.IgnoreNotFound(err)
	case decide.RemoveTrigger:
		return a.removeTrigger(ctx, todo.Name)
	case decide.CreateStream, decide.UpdateStream, decide.DeleteStream:
		return a.stream(ctx, w, todo)
	case decide.Reload:
		return a.nats.reload(ctx, a.Account(w, "system"), a.Certificate(w))
	case decide.Abandon:
		return a.abandon(ctx, todo.Subscription)
	case decide.Tell:
		a.recorder.Eventf(&stored.Eventing{Eventing: *w.Eventing}, nil, todo.Kind, todo.Reason, "Reconcile", "%s", todo.Message)
		return nil
	default:
		return fmt.Errorf("unknown action %s", todo)
	}
}

// noted writes an object, and remembers what the API server has made of it.
func (a *actor) noted(want *unstructured.Unstructured, write func(*unstructured.Unstructured) error) error {
	is := want.DeepCopy()
	if err := write(is); err != nil {
		return err
	}
	a.kept.Note(want, is, time.Now())
	return nil
}

// finalizer changes the finalizers of the Eventing that is served.
func (a *actor) finalizer(ctx context.Context, w *observed.World, change func(client.Object, string) bool) error {
	e := &stored.Eventing{Eventing: *w.Eventing}
	before := e.DeepCopy()
	change(e, operatorv1alpha1.Finalizer)
	err := a.client.Patch(ctx, e, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(a.Names.Owner()))
	*w.Eventing = e.Eventing
	return err
}

// create posts an object, so that one of the same name that somebody has created meanwhile is
// refused, and never taken over. After that its fields are those of a server-side apply, so that a
// later apply can remove some.
func (a *actor) create(ctx context.Context, u *unstructured.Unstructured) error {
	owner := a.Names.Owner()
	if err := a.client.Create(ctx, u, client.FieldOwner(owner)); err != nil {
		return err
	}
	if err := a.owned(ctx, u); !apierrors.IsConflict(err) {
		return err
	}
	return nil // its controller was faster, for example with a status; the next apply does it
}

// owned makes what a create wrote the operator's own for later applies. It does nothing where that
// was done.
func (a *actor) owned(ctx context.Context, u *unstructured.Unstructured) error {
	owner := a.Names.Owner()
	if !slices.ContainsFunc(u.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == owner && m.Operation == metav1.ManagedFieldsOperationUpdate && m.Subresource == ""
	}) {
		return nil
	}
	raw, err := csaupgrade.UpgradeManagedFieldsPatch(u, sets.New(owner), owner)
	if err != nil || raw == nil {
		return err
	}
	return a.client.Patch(ctx, u, client.RawPatch(types.JSONPatchType, raw), client.FieldOwner(owner))
}

func (a *actor) apply(ctx context.Context, u, live *unstructured.Unstructured) error {
	live = live.DeepCopy()
	if err := a.owned(ctx, live); err != nil { // the operator was killed after the create
		return err
	}
	if err := a.handOver(ctx, u, live); err != nil {
		return err
	}
	u.SetUID(live.GetUID())
	u.SetResourceVersion(live.GetResourceVersion())
	applies.Inc()
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(a.Names.Owner()), client.ForceOwnership)
	if !apierrors.IsInvalid(err) {
		return err
	}
	// A list may have an item of somebody else that does not go with ours: the same name of a port
	// with another number. An apply leaves it, so the list is replaced.
	whole := &unstructured.Unstructured{Object: drift.Overlay(live.Object, u.Object)}
	if a.client.Update(ctx, whole, client.FieldOwner(a.Names.Owner())) != nil {
		return err // the first one names the field of ours
	}
	u.Object = whole.Object
	return nil
}

// handOver makes the number of pods that the operator has set so far that of another manager, if
// it does not want to set it any more. Otherwise the apply would remove it, which makes it 1, until
// the autoscaler looks: kubernetes.io/docs/reference/using-api/server-side-apply, "Transferring
// ownership".
func (a *actor) handOver(ctx context.Context, u, live *unstructured.Unstructured) error {
	replicas := []string{"spec", "replicas"}
	if _, set, _ := unstructured.NestedFieldNoCopy(u.Object, replicas...); set || !owns(live, a.Names.Owner(), "f:spec", "f:replicas") {
		return nil
	}
	is, _, _ := unstructured.NestedInt64(live.Object, replicas...)
	only := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": is}}}
	only.SetGroupVersionKind(live.GroupVersionKind())
	only.SetNamespace(live.GetNamespace())
	only.SetName(live.GetName())
	only.SetUID(live.GetUID())
	only.SetResourceVersion(live.GetResourceVersion())
	if err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(only), client.FieldOwner(a.Names.Marks())); err != nil {
		return err
	}
	live.SetResourceVersion(only.GetResourceVersion())
	return nil
}

// owns tells whether a manager has applied a field, which managedFields have as a path of keys.
func owns(u *unstructured.Unstructured, manager string, path ...string) bool {
	for _, m := range u.GetManagedFields() {
		if m.Manager != manager || m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || m.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(fields, path...); found {
			return true
		}
	}
	return false
}

// stream creates, changes or deletes the stream, if it is as it was observed. NATS has no versions:
// the look and the change are two requests.
func (a *actor) stream(ctx context.Context, w *observed.World, todo decide.Action) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := a.nats.ensure(a.Account(w, "manager"))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	var observed *jetstream.StreamInfo
	deletes := false
	var change func() error
	switch todo := todo.(type) {
	case decide.CreateStream:
		change = func() error {
			_, err := js.CreateStream(ctx, todo.Config)
			return err
		}
	case decide.UpdateStream:
		observed = todo.Observed
		change = func() error {
			_, err := js.UpdateStream(ctx, todo.Config)
			return err
		}
	case decide.DeleteStream:
		observed, deletes = todo.Observed, true
		change = func() error {
			if err := js.DeleteStream(ctx, observed.Config.Name); err != nil {
				logr.FromContextOrDiscard(ctx).Info("NATS ends with its stream, which takes longer", "reason", err.Error())
			}
			return nil
		}
	}
	if observed != nil {
		s, err := js.Stream(ctx, observed.Config.Name)
		if err != nil {
			return fmt.Errorf("cannot %s: %w", todo, err)
		}
		is := s.CachedInfo()
		if !is.Created.Equal(observed.Created) || stream.Differs(is.Config, observed.Config) || deletes && is.State.Msgs > 0 {
			return fmt.Errorf("stream %s: %w", observed.Config.Name, errChanged)
		}
	}
	// An operator that slept must not act on what it saw before. Writes to the API server are
	// checked one by one (fence.Guard).
	if err := a.fence.Check(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return fmt.Errorf("cannot %s: %w", todo, err)
	}
	return nil
}

// credentials creates a Secret, or completes the one that was observed. What can be used stays.
func (a *actor) credentials(ctx context.Context, w *observed.World, name string) error {
	content := map[string][]byte{}
	switch name {
	case a.Names.NATSUsers():
		have := a.Keys(w)
		for _, user := range identity.Users {
			if have[user] != "" {
				continue
			}
			seed, err := natsutil.NewUser()
			if err != nil {
				return err
			}
			content[user] = seed
		}
	case a.Names.NATSCA():
		pair, err := natsutil.NewAuthority(a.Names.NATS()+"."+a.Namespace, time.Now())
		if err != nil {
			return err
		}
		content[identity.CACertificate], content[identity.CAKey] = pair.Certificate, pair.Key
	case a.Names.NATSTLS():
		// The CA may have been created just now.
		var ca corev1.Secret
		if err := a.reader.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Names.NATSCA()}, &ca); err != nil {
			return fmt.Errorf("cannot read Secret %s: %w", a.Names.NATSCA(), err)
		}
		pair, err := natsutil.Pair{Certificate: ca.Data[identity.CACertificate], Key: ca.Data[identity.CAKey]}.Issue(a.ServerNames(), time.Now())
		if err != nil {
			return fmt.Errorf("cannot issue a certificate: %w", err)
		}
		content[identity.TLSCertificate], content[identity.TLSKey], content[identity.CACertificate] = pair.Certificate, pair.Key, ca.Data[identity.CACertificate]
	}
	is := w.Object("Secret", name)
	if is == nil {
		plane := backend.PlaneNATS
		if observed.Lasting(a.Names, observed.Key{Kind: "Secret", Name: name}) {
			plane = backend.PlaneShared
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: name, Annotations: w.Eventing.Spec.Annotations,
			Labels: a.Names.Labels(plane, "nats", a.Version, w.Eventing.Spec.Labels),
		}, Data: content}
		return a.client.Create(ctx, s, client.FieldOwner(a.Names.Owner()))
	}
	values := map[string]any{}
	for key, value := range content {
		values[key] = value // JSON of bytes is base64, as a Secret has it
	}
	return a.do(ctx, w, decide.Patch{Observed: is, Merge: map[string]any{"data": values}, Why: "renew"})
}

// abandon removes the finalizer of a controller that is gone, if the Subscription still has it.
func (a *actor) abandon(ctx context.Context, s observed.Subscription) error {
	var is stored.Subscription
	if err := a.reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Name}, &is); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(a.release(ctx, &is, eventingv1alpha2.Finalizer))
}

// release removes a finalizer, if the object still has it in the version that was read.
func (a *actor) release(ctx context.Context, is client.Object, finalizer string) error {
	before, _ := is.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(is, finalizer) {
		return nil
	}
	return a.client.Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(a.Names.Owner()))
}

// removeTrigger deletes a Trigger that has our labels, and lets it go.
func (a *actor) removeTrigger(ctx context.Context, name string) error {
	is := metadataOf(dependency.Trigger)
	if err := a.reader.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, is); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !a.Names.Ours(is.Labels) {
		return nil
	}
	if err := a.release(ctx, is, backend.TriggerFinalizer); err != nil {
		return client.IgnoreNotFound(err)
	}
	if is.DeletionTimestamp != nil {
		return nil
	}
	return client.IgnoreNotFound(a.client.Delete(ctx, is, client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion}))
}
