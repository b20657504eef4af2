// Package inspect answers the questions of users about eventing in a cluster: what is installed and
// whether it is healthy, which Subscriptions have problems, which of them receive an event, and
// whether eventing can be installed. It only reads, with the permissions of the user.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// The kinds that are read.
var (
	Eventings     = operatorv1alpha1.GroupVersion.WithResource("eventings")
	Subscriptions = eventingv1alpha2.GroupVersion.WithResource("subscriptions")
	deployments   = appsv1.SchemeGroupVersion.WithResource("deployments")
	statefulSets  = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	pods          = corev1.SchemeGroupVersion.WithResource("pods")
	namespaces    = corev1.SchemeGroupVersion.WithResource("namespaces")
	events        = corev1.SchemeGroupVersion.WithResource("events")
	configMaps    = corev1.SchemeGroupVersion.WithResource("configmaps")
	definitions   = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	classes       = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
)

// Cluster is what a person may read of a cluster.
type Cluster struct {
	Client    dynamic.Interface
	Discovery discovery.DiscoveryInterface
	config    *rest.Config
}

// New returns the cluster of a configuration. It asks nothing.
func New(cfg *rest.Config) (*Cluster, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disc, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Cluster{Client: client, Discovery: disc, config: cfg}, nil
}

// NotInstalledError says that eventing is not installed, or not whole.
type NotInstalledError struct{ What string }

func (e *NotInstalledError) Error() string {
	return e.What + ". To see what an installation needs: kubectl eventing check"
}

// Each hands over all objects of a kind in a namespace, "" for all, page by page. Objects that it
// hands over twice, because a list had to begin again, are told by begin.
func (c *Cluster) Each(ctx context.Context, of schema.GroupVersionResource, namespace string, options metav1.ListOptions, begin func(), do func(*unstructured.Unstructured) error) error {
	var source k8sutil.Source = c.Client.Resource(of)
	if namespace != "" {
		source = c.Client.Resource(of).Namespace(namespace)
	}
	once := func(ctx context.Context, page func(context.Context) error) error { return page(ctx) }
	_, err := k8sutil.Page(ctx, source, options, once, begin, do)
	return explained("list", of, namespace, "", err)
}

// List returns all objects of a kind in a namespace, "" for all.
func (c *Cluster) List(ctx context.Context, of schema.GroupVersionResource, namespace, selector string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	err := c.Each(ctx, of, namespace, metav1.ListOptions{LabelSelector: selector}, func() { all = nil }, func(u *unstructured.Unstructured) error {
		k8sutil.Trim(u)
		all = append(all, u)
		return nil
	})
	return all, err
}

// Get returns an object, nil if it does not exist.
func (c *Cluster) Get(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	u, err := c.Client.Resource(of).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explained("get", of, namespace, name, err)
	}
	return u, nil
}

// isAbsent tells an object that does not exist from a kind that is not served.
func isAbsent(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name != ""
}

// explained says what to do about an error of the API server.
func explained(verb string, of schema.GroupVersionResource, namespace, name string, err error) error {
	resource := of.GroupResource().String()
	where := " in all namespaces"
	flag := "--all-namespaces"
	switch {
	case namespace != "":
		where, flag = " in namespace "+namespace, "--namespace="+namespace
	case name != "": // of no namespace
		where = ""
	}
	what := resource
	if name != "" {
		what += " " + name
	}
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && k8sutil.RefusalOf(err).Kind == k8sutil.NoPermission:
		return fmt.Errorf("cannot %s %s%s: %w. To see the permission that is missing: kubectl auth can-i %s %s %s", verb, what, where, err, verb, resource, flag)
	case apierrors.IsNotFound(err) && (of.Group == Eventings.Group || of.Group == Subscriptions.Group):
		return &NotInstalledError{fmt.Sprintf("eventing is not installed: the cluster has no kind %s at version %s", resource, of.Version)}
	default:
		return fmt.Errorf("cannot %s %s%s: %s", verb, what, where, redact.URLs(err.Error()))
	}
}

// serves tells whether a kind is served at one of its versions.
func (c *Cluster) serves(group, kind string) (versions []string, err error) {
	groups, err := c.Discovery.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("cannot read which kinds the cluster has: %s", redact.URLs(err.Error()))
	}
	for _, g := range groups.Groups {
		if g.Name != group {
			continue
		}
		for _, v := range g.Versions {
			resources, err := c.Discovery.ServerResourcesForGroupVersion(v.GroupVersion)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read which kinds the cluster has of %s: %s", v.GroupVersion, redact.URLs(err.Error()))
			}
			for i := range resources.APIResources {
				if r := &resources.APIResources[i]; r.Kind == kind && !strings.Contains(r.Name, "/") {
					versions = append(versions, v.Version)
				}
			}
		}
	}
	return versions, nil
}
