package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/decide"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stored"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// observer reads what a decision needs, from the API server and from NATS, and never from a cache.
type observer struct {
	*decide.Rules
	reader client.Reader
	// all are the Subscriptions of the cluster. Each look lists them, and a decoder of its own
	// takes a tenth of the time that the reader takes for thousands.
	all   k8sutil.Source
	needs *dependency.Observer
	nats  *connection
	kept  drift.Kept
}

// observe returns the world of the Eventing that is served. An error means that something could not
// be read: then nothing is decided.
func (ob *observer) observe(ctx context.Context, e *operatorv1alpha1.Eventing) (*observed.World, error) {
	w := &observed.World{Now: time.Now(), NewEpoch: string(uuid.NewUUID()), Eventing: e, Ours: map[observed.Key]*unstructured.Unstructured{}, Kept: ob.kept}
	if err := ob.volumes(ctx, w); err != nil {
		return nil, err
	}
	if err := ob.dependencies(ctx, w); err != nil {
		return nil, err
	}
	mesh, err := ob.needs.Mesh(ctx)
	if err != nil {
		return nil, err
	}
	if err := ob.ours(ctx, w, mesh); err != nil {
		return nil, err
	}
	if err := ob.accounts(ctx, w); err != nil {
		return nil, err
	}
	if err := ob.foreign(ctx, w, mesh); err != nil {
		return nil, err
	}
	if err := ob.subscriptions(ctx, w); err != nil {
		return nil, err
	}
	if w.Object("StatefulSet", ob.Names.NATS()) != nil || len(w.Orphans()) > 0 {
		ob.nats.observe(ctx, w, ob.Rules)
		ofNATS.note(w.NATS)
	} else {
		ob.nats.close()
		ofNATS.forget()
	}
	ob.nats.since(w)
	return w, nil
}

// ours reads what has our labels. mesh says that the kinds of the mesh are served.
func (ob *observer) ours(ctx context.Context, w *observed.World, mesh bool) error {
	all := slices.Clone(observed.Kinds)
	for _, dep := range w.Dependencies {
		if dep.Feature != "" && dep.Presence == dependency.Served {
			all = append(all, dep.Kind)
		}
	}
	if mesh {
		all = append(all, dependency.Broker, dependency.Trigger)
	}
	labelled := client.MatchingLabelsSelector{Selector: planes()}
	for _, kind := range all {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		which := []client.ListOption{client.InNamespace(ob.Namespace), labelled}
		if kind == observed.Autoscaler { // anybody's may scale our Deployments
			which = which[:1]
		}
		if err := ob.reader.List(ctx, list, which...); err != nil {
			return fmt.Errorf("cannot list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			if !ob.Names.Ours(list.Items[i].GetLabels()) {
				if kind == observed.Autoscaler {
					ob.scaled(w, &list.Items[i])
				}
				continue
			}
			if kind == dependency.Trigger { // the controller's
				w.Triggers = append(w.Triggers, list.Items[i].GetName())
				continue
			}
			w.Ours[observed.Key{Kind: kind.Kind, Name: list.Items[i].GetName()}] = &list.Items[i]
		}
	}
	var pods corev1.PodList
	if err := ob.reader.List(ctx, &pods, client.InNamespace(ob.Namespace), labelled); err != nil {
		return fmt.Errorf("cannot list Pods: %w", err)
	}
	w.Pods = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !ob.Names.Ours(p.Labels) || observed.Ended(&p) })
	return nil
}

// scaled notes an autoscaler of somebody else that decides the number of pods of a program.
func (ob *observer) scaled(w *observed.World, autoscaler *unstructured.Unstructured) {
	target := func(field string) string {
		value, _, _ := unstructured.NestedString(autoscaler.Object, "spec", "scaleTargetRef", field)
		return value
	}
	group, _, _ := strings.Cut(target("apiVersion"), "/")
	name := target("name")
	if group != "apps" || target("kind") != "Deployment" || name != ob.Names.Controller() && name != ob.Names.Publisher() {
		return
	}
	if w.Scaled == nil {
		w.Scaled = map[string]string{}
	}
	w.Scaled[name] = autoscaler.GetName()
}

// accounts reads the ServiceAccounts of the programs.
func (ob *observer) accounts(ctx context.Context, w *observed.World) error {
	w.Accounts = map[string]*metav1.PartialObjectMetadata{}
	for _, name := range []string{ob.Names.Controller(), ob.Names.Publisher()} {
		is := metadataOf(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
		err := ob.reader.Get(ctx, client.ObjectKey{Namespace: ob.Namespace, Name: name}, is)
		switch {
		case err == nil:
			w.Accounts[name] = is
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("cannot read ServiceAccount %s: %w", name, err)
		}
	}
	return nil
}

func (ob *observer) volumes(ctx context.Context, w *observed.World) error {
	var claims corev1.PersistentVolumeClaimList
	if err := ob.reader.List(ctx, &claims, client.InNamespace(ob.Namespace), client.MatchingLabelsSelector{Selector: planes()}); err != nil {
		return fmt.Errorf("cannot list PersistentVolumeClaims: %w", err)
	}
	mine := slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !ob.Names.Ours(c.Labels) })
	w.Claims = slices.SortedFunc(slices.Values(mine), func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// foreign looks for objects of others with the names of those that are to be created.
func (ob *observer) foreign(ctx context.Context, w *observed.World, mesh bool) error {
	spec := w.Eventing.Spec.Backend
	if spec == nil || w.Eventing.DeletionTimestamp != nil {
		return nil
	}
	for _, key := range ob.Planned(&w.Eventing.Spec) {
		if key.Kind == observed.Autoscaler.Kind && w.Scaled[key.Name] != "" {
			continue // it is not created
		}
		if w.Ours[key] == nil && (mesh || key.Kind != dependency.Broker.Kind) {
			if err := ob.stranger(ctx, w, gvk(key.Kind), key.Name); err != nil {
				return err
			}
		}
	}
	if spec.Type.Canonical() != operatorv1alpha1.NATS {
		return nil
	}
	// A StatefulSet takes a claim of its name as its own, and with it the events of another NATS.
	for i := range spec.Config.NATSStreamReplicas {
		name := fmt.Sprintf("%s%d", ob.Names.NATSClaimPrefix(), i)
		if !slices.ContainsFunc(w.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name }) {
			if err := ob.stranger(ctx, w, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), name); err != nil {
				return err
			}
		}
	}
	return nil
}

func gvk(kind string) schema.GroupVersionKind {
	if kind == dependency.Broker.Kind {
		return dependency.Broker
	}
	return observed.Kinds[slices.IndexFunc(observed.Kinds, func(k schema.GroupVersionKind) bool { return k.Kind == kind })]
}

func (ob *observer) stranger(ctx context.Context, w *observed.World, kind schema.GroupVersionKind, name string) error {
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(kind)
	err := ob.reader.Get(ctx, client.ObjectKey{Namespace: ob.Namespace, Name: name}, is)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read %s %s: %w", kind.Kind, name, err)
	case ob.Names.Ours(is.Labels):
		return fmt.Errorf("%s %s was created just now", kind.Kind, name) // by another operator, or late by this one: look again
	}
	w.Foreign = append(w.Foreign, kind.Kind+" "+name)
	return nil
}

// dependencies asks for what the backend of the Eventing needs. Where all volumes are there, no
// StorageClass is needed.
func (ob *observer) dependencies(ctx context.Context, w *observed.World) (err error) {
	target, config := operatorv1alpha1.BackendType(""), operatorv1alpha1.BackendConfig{}
	if w.Eventing.Spec.Backend != nil {
		target, config = w.Eventing.Spec.Backend.Type.Canonical(), w.Eventing.Spec.Backend.Config
	}
	if w.Dependencies, err = ob.needs.Of(ctx, target, w.Now); err != nil || target != operatorv1alpha1.NATS || config.NATSStreamStorageType == operatorv1alpha1.StorageMemory {
		return err
	}
	bound := 0
	for _, c := range w.Claims {
		if c.Status.Phase == corev1.ClaimBound {
			bound++
		}
	}
	if bound >= int(config.NATSStreamReplicas) {
		return nil
	}
	class, err := ob.needs.StorageClass(ctx, config.NATSStorage.StorageClassName)
	w.Dependencies = append(w.Dependencies, class)
	return err
}

// subscriptions lists all, in pages: a decision must not miss one that a cache has not seen yet.
func (ob *observer) subscriptions(ctx context.Context, w *observed.World) error {
	_, err := k8sutil.Page(ctx, ob.all, metav1.ListOptions{}, k8sutil.Retrying(dependency.ReadBudget, nil),
		func() { w.Subscriptions = nil },
		func(u *unstructured.Unstructured) error {
			w.Subscriptions = append(w.Subscriptions, subscription(u))
			return nil
		})
	switch {
	case apierrors.IsNotFound(err):
		w.Subscriptions = nil // a kind that is not defined has no objects
		if len(w.Ours) == 0 {
			return nil // nothing takes events
		}
		return ob.needs.Subscriptions(ctx)
	case err != nil:
		return fmt.Errorf("cannot list Subscriptions: %w", err)
	}
	return nil
}

func discoveryFailed(err error) bool {
	var none *meta.NoResourceMatchError
	return errors.As(err, &none)
}

// subscription is what a decision needs of one. A part that cannot be decoded is left out: an older
// version has accepted it, or another definition of the kind.
func subscription(u *unstructured.Unstructured) observed.Subscription {
	out := observed.Subscription{
		Namespace: u.GetNamespace(), Name: u.GetName(), Version: u.GetResourceVersion(), Generation: u.GetGeneration(), Deleting: u.GetDeletionTimestamp() != nil,
		Finalizer: slices.Contains(u.GetFinalizers(), eventingv1alpha2.Finalizer), Valid: true, Skipped: u.GetLabels()[eventingv1alpha2.SkipSwitchLabel] == "true",
		Epochs: map[operatorv1alpha1.BackendType]string{},
	}
	_, status, problem := stored.Parts(u)
	for _, c := range status.Conditions {
		switch bad := c.Status == corev1.ConditionFalse; c.Type {
		case eventingv1alpha2.ConditionSpecValid:
			out.Valid = !bad
		case eventingv1alpha2.ConditionDelivering:
			out.Refused = bad
		}
	}
	for _, b := range status.Backends {
		if b.ObservedGeneration != out.Generation {
			out.Valid = true // what was found invalid may be valid by now
			continue
		}
		if b.Ready {
			out.Epochs[operatorv1alpha1.BackendType(b.Type)] = b.Epoch
		}
	}
	out.Valid = out.Valid && problem == nil
	return out
}

// pick returns the Eventing that is served: the oldest in the cluster, by name among those of one
// second. nil if there is none. One that cannot be read, and was never served, keeps no other one
// from being served.
func pick(all []stored.Eventing) *stored.Eventing {
	if len(all) == 0 {
		return nil
	}
	unreadable := func(e stored.Eventing) bool {
		return e.Problem != nil && !slices.Contains(e.Finalizers, operatorv1alpha1.Finalizer)
	}
	if readable := slices.DeleteFunc(slices.Clone(all), unreadable); len(readable) > 0 {
		all = readable
	}
	oldest := slices.MinFunc(all, func(a, b stored.Eventing) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return &oldest
}
