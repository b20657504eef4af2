package migration

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// ListOptions narrow Cluster.List.
type ListOptions struct {
	LabelSelector string
	FieldSelector string
	// Trim removes what the job does not need from each object as it is read,
	// so that thousands fit into little memory. managedFields go in any case.
	Trim func(*unstructured.Unstructured)
	// PageSize is the number of objects a request returns at most; 0: 500.
	PageSize int64
}

// Cluster is a job's view of the cluster: it reads, and refuses every write.
type Cluster struct {
	// ExcludeNamespaces are the user's: see LeavesOut.
	ExcludeNamespaces []string
	// OnlyNamespace is the one that the run is limited to; "": none. Only the run of a
	// NamespaceLimiter is.
	OnlyNamespace string
	// Budget is how long the run may take in all, its --timeout; 0 if it is
	// unknown.
	Budget time.Duration

	connection Connection

	// made says whether an interrupted run of this job, which this run goes on with,
	// made the object.
	made func(*unstructured.Unstructured) bool

	mu          sync.Mutex
	collections map[scope]*k8sutil.Collection
	// listing makes callers who miss the same collection at once share one. Two
	// would each see another state: what one showed, the other might not know yet.
	listing singleflight.Group
}

// scope is what one collection covers.
type scope struct {
	resource  schema.GroupVersionResource
	namespace string
}

// Connection is what a Cluster reads through. The client must refuse writes.
type Connection struct {
	Client dynamic.Interface
	Lister *k8sutil.Lister
	Served *k8sutil.Served
	// Read repeats a read that failed for a moment.
	Read func(context.Context, func(context.Context) error) error
}

// NewCluster returns a view that has read nothing yet. made may be nil: see Cluster.Made.
// Jobs get theirs from the engine.
func NewCluster(connection Connection, made func(*unstructured.Unstructured) bool) *Cluster {
	return &Cluster{connection: connection, made: made, collections: map[scope]*k8sutil.Collection{}}
}

// Made says whether an interrupted run of this job, which this run goes on with,
// created the object, and nobody has edited it since. A plan that wants another
// object of that name may then create it: the engine replaces the former one.
func (c *Cluster) Made(obj *unstructured.Unstructured) bool {
	return c.made != nil && c.made(obj)
}

// LeavesOut says whether the person who runs the job leaves a namespace out of it.
func (c *Cluster) LeavesOut(namespace string) bool {
	return slices.Contains(c.ExcludeNamespaces, namespace) || c.OnlyNamespace != "" && c.OnlyNamespace != namespace
}

// Served returns the best served version of a kind, false if the API server
// does not serve it. Discovery that failed for the group is an error, never
// "not served". It asks the API server once in the life of a process, and not at all
// for the kinds that every Kubernetes serves.
func (c *Cluster) Served(ctx context.Context, gk schema.GroupKind) (Resource, bool, error) {
	if r, ok := coreResource(gk); ok {
		return r, true, nil
	}
	gvr, ok, err := c.connection.Served.Find(ctx, gk)
	gvr.Group = gk.Group
	return Resource{GroupVersionResource: gvr, Kind: gk.Kind}, ok, err
}

// List reads all objects of r in the namespace ("" for all), in pages. What is
// listed is remembered, with its resource version, so that conditions on the
// same resource and namespace go on from there with one watch. The objects are
// shared and must not be changed.
func (c *Cluster) List(ctx context.Context, r Resource, namespace string, opts ListOptions) ([]*unstructured.Unstructured, error) {
	collection, err := c.list(ctx, r, namespace, opts, false)
	if err != nil {
		return nil, err
	}
	return collection.All(), nil
}

// list reads a collection and remembers it.
func (c *Cluster) list(ctx context.Context, r Resource, namespace string, opts ListOptions, packed bool) (*k8sutil.Collection, error) {
	collection := k8sutil.NewCollection(c.connection.Lister.Source(r.GroupVersionResource, namespace), listOptions(opts), opts.Trim, c.connection.Read)
	if packed {
		collection.Pack()
	}
	if err := collection.List(ctx); err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", r.GroupResource(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collections[scope{r.GroupVersionResource, namespace}] = collection
	return collection, nil
}

// ListEach is List for kinds with very many objects. They are remembered as JSON, which
// takes a fifth of the memory, and handed over one after the other, by namespace and
// name. Each is the caller's own.
func (c *Cluster) ListEach(ctx context.Context, r Resource, namespace string, opts ListOptions, fn func(*unstructured.Unstructured)) error {
	collection, err := c.list(ctx, r, namespace, opts, true)
	if err == nil {
		collection.Each(fn)
	}
	return err
}

// Each is List for collections that are not awaited: it hands over one object
// after the other and keeps none. fn may see an object twice, when the server
// makes the list start over.
func (c *Cluster) Each(ctx context.Context, r Resource, namespace string, opts ListOptions, fn func(*unstructured.Unstructured) error) error {
	_, err := k8sutil.Page(ctx, c.connection.Lister.Source(r.GroupVersionResource, namespace), listOptions(opts), c.connection.Read, func() {},
		func(obj *unstructured.Unstructured) error {
			if opts.Trim != nil {
				opts.Trim(obj)
			}
			return fn(obj)
		})
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", r.GroupResource(), err)
	}
	return nil
}

// Get reads one object; a nil object and no error if it does not exist.
func (c *Cluster) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	var obj *unstructured.Unstructured
	err := c.connection.Read(ctx, func(ctx context.Context) error {
		var err error
		obj, err = c.resource(ref.Resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot get %s: %w", ref, err)
	}
	return obj, nil
}

// Resolve is Served for the engine, which cannot put the question off: it repeats
// discovery that failed, as it repeats any other read.
func (c *Cluster) Resolve(ctx context.Context, gk schema.GroupKind) (r Resource, served bool, err error) {
	err = c.connection.Read(ctx, func(ctx context.Context) (err error) {
		r, served, err = c.Served(ctx, gk)
		return err
	})
	return r, served, err
}

// ResolveAt is Resolve for an object that was read or written at the version of gvk: that
// version is the best one as long as it is served. again: what discovery said before does not
// count, since kinds and versions come and go.
func (c *Cluster) ResolveAt(ctx context.Context, gvk schema.GroupVersionKind, again bool) (r Resource, served bool, err error) {
	if r, ok := coreResource(gvk.GroupKind()); ok {
		return r, true, nil
	}
	if again {
		c.connection.Served.Forget()
	}
	err = c.connection.Read(ctx, func(ctx context.Context) (err error) {
		r.GroupVersionResource, served, err = c.connection.Served.FindAt(ctx, gvk)
		return err
	})
	r.Group, r.Kind = gvk.Group, gvk.Kind
	return r, served, err
}

// Collection returns the remembered collection that covers a scope, listing it
// first if there is none. One of the whole cluster covers every namespace of it,
// so that a job which looks at fifty namespaces has one watch and not fifty. It is what
// the engine watches.
func (c *Cluster) Collection(ctx context.Context, r Resource, namespace string) (*k8sutil.Collection, error) {
	if collection := c.Known(r, namespace); collection != nil {
		return collection, nil
	}
	_, err, _ := c.listing.Do(fmt.Sprintf("%s %s", r.GroupVersionResource, namespace), func() (any, error) {
		if c.Known(r, namespace) != nil {
			return nil, nil // the caller before this one listed it
		}
		_, err := c.List(ctx, r, namespace, ListOptions{})
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return c.Known(r, namespace), nil
}

// Known returns the remembered collection that covers a scope, nil if there is none.
func (c *Cluster) Known(r Resource, namespace string) *k8sutil.Collection {
	c.mu.Lock()
	defer c.mu.Unlock()
	if collection := c.collections[scope{r.GroupVersionResource, namespace}]; collection != nil {
		return collection
	}
	return c.collections[scope{r.GroupVersionResource, ""}]
}

func (c *Cluster) resource(r Resource, namespace string) dynamic.ResourceInterface {
	return r.In(c.connection.Client, namespace)
}

func listOptions(o ListOptions) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector, Limit: o.PageSize}
}

// podTimeout bounds one request to a pod.
const podTimeout = 15 * time.Second

// PodGet gets a path over HTTP from a port of a pod, through the API server's
// proxy, once: where no Service exposes the port, and a job runs outside the pod
// network. It needs the permission to get pods/proxy.
func (c *Cluster) PodGet(ctx context.Context, namespace, pod string, port int, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	body, err := c.connection.Served.Raw(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy%s", namespace, pod, port, path), query)
	if err != nil {
		return nil, fmt.Errorf("cannot get %s from port %d of Pod %s/%s: %w", path, port, namespace, pod, err)
	}
	return body, nil
}

// TryCreate asks the API server, by a dry run, whether it would create the object
// from this pre-image, also while an object of its name exists. It needs the
// permission to create it. Nil: it would; otherwise what it answered.
func (c *Cluster) TryCreate(ctx context.Context, ref Ref, pre *unstructured.Unstructured) error {
	err := c.connection.Read(ctx, func(ctx context.Context) error {
		_, err := c.resource(ref.Resource, ref.Namespace).Create(ctx, k8sutil.Restorable(pre), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	if apierrors.IsAlreadyExists(err) {
		return nil // existence is looked at after validation and admission
	}
	return err
}
