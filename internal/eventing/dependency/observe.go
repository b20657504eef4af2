package dependency

import (
	"context"
	"fmt"
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

func (ob *Observer) presence(ctx context.Context, r Requirement, dep *Dependency, now time.Time) error {
	served := false
	list, err := ob.resources(ctx, r.kind.GroupVersion())
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
	err = ob.Reader.Get(ctx, client.ObjectKey{Name: r.CRD()}, &crd)
	switch {
	case apierrors.IsNotFound(err):
		if !served {
			dep.Presence = Absent
		}
		return nil
	case err != nil:
		return fmt.Errorf("cannot read CustomResourceDefinition %s: %w", r.CRD(), err)
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

// Mesh tells whether the kinds of the mesh are served, so that there can be objects of them.
func (ob *Observer) Mesh(ctx context.Context) (bool, error) {
	list, err := ob.resources(ctx, Broker.GroupVersion())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot discover %s: %w", Broker.GroupVersion(), err)
	}
	served := 0
	for _, r := range list.APIResources {
		if r.Name == "brokers" || r.Name == "triggers" {
			served++
		}
	}
	return served == 2, nil
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
