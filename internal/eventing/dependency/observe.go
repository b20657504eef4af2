package dependency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// defaultClassAnnotation is on the StorageClass for claims that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

const (
	// discoveryLimit is how long discovery may need to show a kind whose definition is established.
	discoveryLimit = 10 * time.Second
	// DiscoveryRetry is when to ask again in that time.
	DiscoveryRetry = 200 * time.Millisecond
)

// Observer asks the API server. Reader reads from it, and not from a cache.
type Observer struct {
	Reader    client.Reader
	Discovery discovery.DiscoveryInterface
}

// Of says how what a backend needs is there. A group that cannot be asked is an error, not absent.
func (ob *Observer) Of(ctx context.Context, target operatorv1alpha1.BackendType, now time.Time) (all []Dependency, err error) {
	for _, r := range Requirements {
		if r.backend != "" && r.backend != target {
			continue
		}
		dep := Dependency{Name: fmt.Sprintf("API %s %s", r.kind.GroupVersion(), r.kind.Kind), Feature: r.feature, Remedy: r.remedy, Kind: r.kind}
		if err := ob.presence(ctx, r, &dep, now); err != nil {
			return nil, err
		}
		all = append(all, dep)
	}
	return all, nil
}

// ReadBudget is how long a read is repeated that fails for a moment.
const ReadBudget = 5 * time.Second

// resources are what is served of a version. It asks again when the API server fails for a moment.
func (ob *Observer) resources(ctx context.Context, version schema.GroupVersion) (list *metav1.APIResourceList, err error) {
	err = k8sutil.Retry(ctx, ReadBudget, nil, func(context.Context) (err error) {
		list, err = ob.Discovery.ServerResourcesForGroupVersion(version.String())
		return err
	})
	return list, err
}

// served are those of some resources that a version has. That the API server does not know the
// version is an answer.
func (ob *Observer) served(ctx context.Context, version schema.GroupVersion, resources ...string) (are []string, err error) {
	list, err := ob.resources(ctx, version)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot discover %s: %w", version, err)
	}
	for _, a := range list.APIResources {
		if slices.Contains(resources, a.Name) {
			are = append(are, a.Name)
		}
	}
	return are, nil
}

// pauses are those before a resource is asked for again that is defined and not served: one "not
// found" proves nothing. An API server may just have started, and of several, one may not know a
// definition yet.
var pauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond}

// patiently asks until it is certain, and after the last pause takes what it was told.
func patiently(ctx context.Context, ask func() (certain bool, err error)) error {
	for _, pause := range pauses {
		if certain, err := ask(); certain || err != nil {
			return err
		}
		if err := k8sutil.Sleep(ctx, pause); err != nil {
			return err
		}
	}
	_, err := ask()
	return err
}

func (ob *Observer) presence(ctx context.Context, r Requirement, dep *Dependency, now time.Time) error {
	before := *dep
	return patiently(ctx, func() (bool, error) {
		*dep = before
		return ob.look(ctx, r, dep, now)
	})
}

// look is certain unless a definition is established, and what it defines is not served.
func (ob *Observer) look(ctx context.Context, r Requirement, dep *Dependency, now time.Time) (certain bool, err error) {
	are, err := ob.served(ctx, r.kind.GroupVersion(), r.resource)
	if err != nil {
		return false, err
	}
	served := len(are) > 0
	own := r.kind.Group == eventingv1alpha2.GroupVersion.Group
	if served && !own {
		return true, nil
	}
	var crd apiextensionsv1.CustomResourceDefinition
	err = ob.Reader.Get(ctx, client.ObjectKey{Name: r.CRD()}, &crd)
	switch {
	case apierrors.IsNotFound(err):
		if !served {
			dep.Presence = Absent
		}
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot read CustomResourceDefinition %s: %w", r.CRD(), err)
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
		dep.Presence, dep.Remedy = Conflict, "Migrate its objects first, see docs/migration/migration-guide-1.12.md: eventmesh-migrate run eventbus-purge --yes"
	case own && !reportsBackends(definition):
		dep.Presence, dep.Remedy = Conflict, "Another eventing operator has installed it. Remove that operator, and apply the manifest of this one again"
	case served:
	case definition == nil:
		dep.Presence = WrongVersion
	case recentlyEstablished(&crd, now):
		dep.Presence = Soon
	default:
		dep.Presence = Absent
		return !established(&crd), nil
	}
	return true, nil
}

// reportsBackends tells whether a Subscription has status.backends. That of Kyma's own operator has
// not, and the API server would drop it.
func reportsBackends(v *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return false
	}
	_, ok := v.Schema.OpenAPIV3Schema.Properties["status"].Properties["backends"]
	return ok
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

func recentlyEstablished(crd *apiextensionsv1.CustomResourceDefinition, now time.Time) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) < discoveryLimit
		}
	}
	return now.Sub(crd.CreationTimestamp.Time) < discoveryLimit // it is not established yet
}

// Mesh tells whether the kinds of the mesh are served, so that there can be objects of them. A kind
// that is defined and not served is an error: its objects are there, and carry events.
func (ob *Observer) Mesh(ctx context.Context) (is bool, err error) {
	wanted := map[string]schema.GroupVersionKind{"brokers": Broker, "triggers": Trigger}
	var away error
	err = patiently(ctx, func() (bool, error) {
		are, err := ob.served(ctx, Broker.GroupVersion(), slices.Sorted(maps.Keys(wanted))...)
		if err != nil {
			return false, err
		}
		is, away = len(are) == len(wanted), nil
		for _, resource := range slices.Sorted(maps.Keys(wanted)) {
			if !slices.Contains(are, resource) && away == nil {
				if away, err = ob.away(ctx, wanted[resource], resource); err != nil {
					return false, err
				}
			}
		}
		return away == nil, nil
	})
	return is, errors.Join(err, away)
}

// Subscriptions is an error if the API server has answered that it does not serve Subscriptions,
// and their definition is there, and so may they be.
func (ob *Observer) Subscriptions(ctx context.Context) error {
	away, err := ob.away(ctx, Requirements[0].kind, Requirements[0].resource)
	return errors.Join(err, away)
}

// away is why objects of a kind that is not served may be there nevertheless; nil if they cannot
// be.
func (ob *Observer) away(ctx context.Context, kind schema.GroupVersionKind, resource string) (why, err error) {
	name := resource + "." + kind.Group
	var crd apiextensionsv1.CustomResourceDefinition
	switch err := ob.Reader.Get(ctx, client.ObjectKey{Name: name}, &crd); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read CustomResourceDefinition %s: %w", name, err)
	}
	if !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == kind.Version }) {
		return nil, nil
	}
	return fmt.Errorf("the API server does not serve %s %s now, although CustomResourceDefinition %s has it: objects of it may carry events, so nothing is changed. "+
		"Next: kubectl describe customresourcedefinitions.apiextensions.k8s.io %s", kind.GroupVersion(), kind.Kind, name, name), nil
}

// StorageClass says whether the StorageClass of new volumes is there; "" is the default one.
func (ob *Observer) StorageClass(ctx context.Context, name string) (Dependency, error) {
	var classes storagev1.StorageClassList
	if err := ob.Reader.List(ctx, &classes); err != nil {
		return Dependency{}, fmt.Errorf("cannot list StorageClasses: %w", err)
	}
	dep := Dependency{Name: "StorageClass " + name, AtOnce: true, Remedy: "Create it, or set spec.backend.config.natsStreamStorageType to Memory"}
	if name == "" {
		dep.Name, dep.Remedy = "A default StorageClass", "Annotate one with "+defaultClassAnnotation+"=true"
	}
	if !slices.ContainsFunc(classes.Items, func(c storagev1.StorageClass) bool {
		return c.Name == name || name == "" && c.Annotations[defaultClassAnnotation] == "true"
	}) {
		dep.Presence = Absent
	}
	return dep, nil
}
