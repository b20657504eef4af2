package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// defaultClassAnnotation is on the StorageClass for claims that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// controllerFinalizer is the finalizer of the controller on Subscriptions, that of Kyma's own controller.
const controllerFinalizer = "eventing.kyma-project.io"

// observer reads what a decision needs, from the API server and from NATS, and never from a cache.
type observer struct {
	*decider
	reader    client.Reader
	discovery discovery.DiscoveryInterface
	nats      *connection
}

// observe returns the world of the Eventing that is served. An error means that something could not be read: then nothing is decided.
func (ob *observer) observe(ctx context.Context, e *operatorv1alpha1.Eventing) (*World, error) {
	w := &World{Now: time.Now(), NewEpoch: string(uuid.NewUUID()), Eventing: e, Ours: map[Key]*unstructured.Unstructured{}}
	if err := ob.dependencies(ctx, w); err != nil {
		return nil, err
	}
	if err := ob.ours(ctx, w); err != nil {
		return nil, err
	}
	if err := ob.foreign(ctx, w); err != nil {
		return nil, err
	}
	if err := ob.subscriptions(ctx, w); err != nil {
		return nil, err
	}
	if sts := statefulSet(w.object("StatefulSet", ob.names.NATS())); sts != nil {
		ob.nats.observe(ctx, w, ob.decider)
	} else {
		ob.nats.close()
	}
	return w, nil
}

// mine selects objects with our labels. Both are needed: several operators may share a namespace.
func (d *decider) mine() client.ListOption {
	return client.MatchingLabelsSelector{Selector: ours(d.names)}
}

func (ob *observer) ours(ctx context.Context, w *World) error {
	all := slices.Clone(kinds)
	for _, dep := range w.Dependencies {
		if dep.Feature != "" && dep.Presence == Served {
			all = append(all, dep.Kind)
		}
	}
	for _, kind := range all {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := ob.reader.List(ctx, list, client.InNamespace(ob.namespace), ob.mine()); err != nil {
			return fmt.Errorf("cannot list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			w.Ours[Key{kind.Kind, list.Items[i].GetName()}] = &list.Items[i]
		}
	}
	var claims corev1.PersistentVolumeClaimList
	if err := ob.reader.List(ctx, &claims, client.InNamespace(ob.namespace), ob.mine()); err != nil {
		return fmt.Errorf("cannot list PersistentVolumeClaims: %w", err)
	}
	w.Claims = slices.SortedFunc(slices.Values(claims.Items), func(a, b corev1.PersistentVolumeClaim) int { return strings.Compare(a.Name, b.Name) })
	var pods corev1.PodList
	if err := ob.reader.List(ctx, &pods, client.InNamespace(ob.namespace), ob.mine()); err != nil {
		return fmt.Errorf("cannot list Pods: %w", err)
	}
	w.Pods = pods.Items
	return nil
}

// foreign looks for objects of others with the names of those that are to be created.
func (ob *observer) foreign(ctx context.Context, w *World) error {
	spec := w.Eventing.Spec.Backend
	if spec == nil || spec.Type.Canonical() != operatorv1alpha1.NATS || w.Eventing.DeletionTimestamp != nil {
		return nil
	}
	n := ob.names
	wanted := []Key{
		{"StatefulSet", n.NATS()}, {"Service", n.NATS()}, {"Service", n.NATSHeadless()}, {"ConfigMap", n.NATSConfig()}, {"ConfigMap", n.Backends()},
		{"Secret", n.NATSUsers()}, {"Secret", n.NATSCA()}, {"Secret", n.NATSTLS()},
	}
	if spec.Config.NATSStreamReplicas > 1 {
		wanted = append(wanted, Key{"PodDisruptionBudget", n.NATS()})
	}
	for _, key := range wanted {
		if w.Ours[key] == nil {
			if err := ob.stranger(ctx, w, gvk(key.Kind), key.Name); err != nil {
				return err
			}
		}
	}
	// A StatefulSet takes a claim of its name as its own, and with it the events of another NATS.
	for i := range spec.Config.NATSStreamReplicas {
		name := fmt.Sprintf("%s%d", n.NATSClaimPrefix(), i)
		if !slices.ContainsFunc(w.Claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name }) {
			if err := ob.stranger(ctx, w, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), name); err != nil {
				return err
			}
		}
	}
	return nil
}

func gvk(kind string) schema.GroupVersionKind {
	return kinds[slices.IndexFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Kind == kind })]
}

func (ob *observer) stranger(ctx context.Context, w *World, kind schema.GroupVersionKind, name string) error {
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(kind)
	err := ob.reader.Get(ctx, client.ObjectKey{Namespace: ob.namespace, Name: name}, is)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read %s %s: %w", kind.Kind, name, err)
	case ours(ob.names).Matches(labels.Set(is.Labels)):
		return fmt.Errorf("%s %s was created just now", kind.Kind, name) // by another operator, or late by this one: look again
	}
	w.Foreign = append(w.Foreign, kind.Kind+" "+name)
	return nil
}

// dependencies asks for the kinds of others at the very version that is needed. A group that cannot be asked is an error, not absent.
func (ob *observer) dependencies(ctx context.Context, w *World) error {
	target := operatorv1alpha1.BackendType("")
	if w.Eventing.Spec.Backend != nil {
		target = w.Eventing.Spec.Backend.Type.Canonical()
	}
	for _, r := range requirements {
		if r.backend != "" && r.backend != target {
			continue
		}
		dep := Dependency{Name: fmt.Sprintf("API %s %s", r.kind.GroupVersion(), r.kind.Kind), Feature: r.feature, Remedy: r.remedy, Kind: r.kind}
		if err := ob.presence(ctx, r, &dep, w.Now); err != nil {
			return err
		}
		w.Dependencies = append(w.Dependencies, dep)
	}
	if target == operatorv1alpha1.NATS && w.Eventing.Spec.Backend.Config.NATSStreamStorageType != operatorv1alpha1.StorageMemory {
		return ob.storageClass(ctx, w)
	}
	return nil
}

func (ob *observer) presence(ctx context.Context, r requirement, dep *Dependency, now time.Time) error {
	served := false
	list, err := ob.discovery.ServerResourcesForGroupVersion(r.kind.GroupVersion().String())
	switch {
	case err == nil:
		served = slices.ContainsFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == r.resource })
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("cannot discover %s: %w", r.kind.GroupVersion(), err)
	}
	own := r.kind.Group == eventingv1alpha2.GroupVersion.Group
	if served && !own {
		return nil
	}
	var crd apiextensionsv1.CustomResourceDefinition
	err = ob.reader.Get(ctx, client.ObjectKey{Name: r.crd()}, &crd)
	switch {
	case apierrors.IsNotFound(err):
		if !served {
			dep.Presence = Absent
		}
		return nil
	case err != nil:
		return fmt.Errorf("cannot read CustomResourceDefinition %s: %w", r.crd(), err)
	}
	var definition *apiextensionsv1.CustomResourceDefinitionVersion
	for i, v := range crd.Spec.Versions {
		if v.Served {
			dep.Versions = append(dep.Versions, v.Name)
			if v.Name == r.kind.Version {
				definition = &crd.Spec.Versions[i]
			}
		}
	}
	switch {
	case own && definition == nil:
		dep.Presence, dep.Remedy = Conflict, "Migrate its objects first, see docs/migration-guide-1.12.md: eventmesh-migrate run eventbus-purge --yes"
	case own && !reportsBackends(definition):
		dep.Presence, dep.Remedy = Conflict, "Another eventing operator has installed it. Remove that operator, and apply the manifest of this one again"
	case served:
	case definition == nil:
		dep.Presence = WrongVersion
	case recentlyEstablished(&crd, now):
		dep.Presence = Soon
	default:
		dep.Presence = Absent
	}
	return nil
}

// reportsBackends tells whether a Subscription has status.backends. That of Kyma's own operator has not, and the API server would drop it.
func reportsBackends(v *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return false
	}
	_, ok := v.Schema.OpenAPIV3Schema.Properties["status"].Properties["backends"]
	return ok
}

func recentlyEstablished(crd *apiextensionsv1.CustomResourceDefinition, now time.Time) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) < discoveryLimit
		}
	}
	return now.Sub(crd.CreationTimestamp.Time) < discoveryLimit // it is not established yet
}

// storageClass finds the StorageClass of new volumes. Where all volumes are there, none is needed.
func (ob *observer) storageClass(ctx context.Context, w *World) error {
	var claims corev1.PersistentVolumeClaimList
	if err := ob.reader.List(ctx, &claims, client.InNamespace(ob.namespace), ob.mine()); err != nil {
		return fmt.Errorf("cannot list PersistentVolumeClaims: %w", err)
	}
	bound := 0
	for _, c := range claims.Items {
		if c.Status.Phase == corev1.ClaimBound {
			bound++
		}
	}
	if bound >= int(w.Eventing.Spec.Backend.Config.NATSStreamReplicas) {
		return nil
	}
	var classes storagev1.StorageClassList
	if err := ob.reader.List(ctx, &classes); err != nil {
		return fmt.Errorf("cannot list StorageClasses: %w", err)
	}
	name := w.Eventing.Spec.Backend.Config.NATSStorage.StorageClassName
	dep := Dependency{Name: "StorageClass " + name, AtOnce: true, Remedy: "Create it, or set spec.backend.config.natsStreamStorageType to Memory"}
	if name == "" {
		dep.Name, dep.Remedy = "A default StorageClass", "Annotate one with "+defaultClassAnnotation+"=true"
	}
	if !slices.ContainsFunc(classes.Items, func(c storagev1.StorageClass) bool {
		return c.Name == name || name == "" && c.Annotations[defaultClassAnnotation] == "true"
	}) {
		dep.Presence = Absent
	}
	w.Dependencies = append(w.Dependencies, dep)
	return nil
}

// subscriptions lists all, in pages: a decision must not miss one that a cache has not seen yet.
func (ob *observer) subscriptions(ctx context.Context, w *World) error {
	const page = 500
	var list eventingv1alpha2.SubscriptionList
	for {
		err := ob.reader.List(ctx, &list, client.Limit(page), client.Continue(list.Continue))
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || discoveryFailed(err) {
			w.Subscriptions = nil // a kind that is not served has no objects
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot list Subscriptions: %w", err)
		}
		for i := range list.Items {
			w.Subscriptions = append(w.Subscriptions, subscription(&list.Items[i]))
		}
		if list.Continue == "" {
			return nil
		}
	}
}

func discoveryFailed(err error) bool {
	var none *meta.NoResourceMatchError
	return errors.As(err, &none)
}

func subscription(s *eventingv1alpha2.Subscription) Subscription {
	out := Subscription{
		Namespace: s.Namespace, Name: s.Name, Generation: s.Generation, Deleting: s.DeletionTimestamp != nil,
		Finalizer: slices.Contains(s.Finalizers, controllerFinalizer), Valid: true, Epochs: map[operatorv1alpha1.BackendType]string{},
	}
	for _, c := range s.Status.Conditions {
		if c.Type == eventingv1alpha2.ConditionSpecValid && c.Status == corev1.ConditionFalse {
			out.Valid = false
		}
	}
	for _, b := range s.Status.Backends {
		if b.ObservedGeneration != s.Generation {
			out.Valid = true // what was found invalid may be valid by now
			continue
		}
		if b.Ready {
			out.Epochs[operatorv1alpha1.BackendType(b.Type)] = b.Epoch
		}
	}
	return out
}

// pick returns the Eventing that is served: the oldest in the cluster, by name among those of one second. nil if there is none.
func pick(all []operatorv1alpha1.Eventing) *operatorv1alpha1.Eventing {
	if len(all) == 0 {
		return nil
	}
	oldest := slices.MinFunc(all, func(a, b operatorv1alpha1.Eventing) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return &oldest
}
