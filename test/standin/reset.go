package standin

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// stateObjects is how the names of all state objects of the migration begin.
const stateObjects = "eventmesh-migration"

// madeForTests labels the namespaces and Applications that this package makes: a
// cluster with Kyma in it must not lose its Applications to a test.
const madeForTests = kubernetes.MadeForTests

// Names returns the names of n Applications as Put makes them.
func Names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("app-%04d", i+1)
	}
	return names
}

// Put makes n Applications, and nothing else of them, in a cluster with Kyma's
// namespaces, and returns their names. What else an Application has can be added
// with Load.
func Put(ctx context.Context, cfg *rest.Config, n int) ([]string, error) {
	client, _, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	if err := ensureNamespaces(ctx, client, []string{SystemNamespace, IntegrationNamespace}); err != nil {
		return nil, err
	}
	names := Names(n)
	objects := make([]*unstructured.Unstructured, n)
	for i, name := range names {
		objects[i] = Application(name, false)
	}
	return names, createAll(ctx, client, objects)
}

// PutHTTPSources makes the HTTPSources of the Applications, as their releases
// do.
func PutHTTPSources(ctx context.Context, cfg *rest.Config, apps ...string) error {
	objects := make([]*unstructured.Unstructured, len(apps))
	for i, app := range apps {
		objects[i] = HTTPSource(app)
	}
	return Load(ctx, cfg, objects...)
}

// Clear removes what tests of the migration leave behind, whatever the
// namespace: Applications, HTTPSources, Channels, adapters, Tiller's releases,
// event-services, and the migration's state objects. It returns when they are
// gone.
func Clear(ctx context.Context, cfg *rest.Config) error {
	client, served, err := connect(cfg)
	if err != nil {
		return err
	}
	if err := guard(ctx, client); err != nil {
		return err
	}
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	events := schema.GroupVersionResource{Version: "v1", Resource: "events"}
	// Sources go first: while one is there, its controller recreates the rest.
	rounds := [][]collection{
		{
			{gvr: HTTPSources}, {gvr: Applications}, {gvr: ApplicationMappings},
			{gvr: ConfigMaps, labels: "OWNER=TILLER"},
			{gvr: Deployments, labels: "heritage=Tiller"},
			{gvr: leases, prefix: stateObjects}, {gvr: secrets, prefix: stateObjects}, {gvr: ConfigMaps, prefix: stateObjects},
			{gvr: events, prefix: stateObjects},
		},
		{{gvr: served.channels}, {gvr: served.services}},
	}
	for _, round := range rounds {
		group, ctx := errgroup.WithContext(ctx)
		for _, col := range round {
			group.Go(func() error { return col.clear(ctx, client) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// guard refuses a cluster with Applications that were not put there by this
// package. kubernetes.Start did the same; this is for an Application that
// somebody created since.
func guard(ctx context.Context, client dynamic.Interface) error {
	return kubernetes.RefuseOthers(ctx, client)
}

// Reset is Clear, and then Put.
func Reset(ctx context.Context, cfg *rest.Config, n int) ([]string, error) {
	if err := Clear(ctx, cfg); err != nil {
		return nil, err
	}
	return Put(ctx, cfg, n)
}

// collection is some objects of one kind in all namespaces.
type collection struct {
	gvr    schema.GroupVersionResource
	labels string
	// prefix of the name; "" takes every name.
	prefix string
}

// clear deletes the collection until it is empty: a controller that was at work
// may have added to it meanwhile.
func (c collection) clear(ctx context.Context, client dynamic.Interface) error {
	for {
		left, err := c.list(ctx, client)
		if err != nil || len(left) == 0 {
			return err
		}
		if err := c.delete(ctx, client, left); err != nil {
			return fmt.Errorf("cannot delete %s: %w", c.gvr.Resource, err)
		}
	}
}

func (c collection) list(ctx context.Context, client dynamic.Interface) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	opts := metav1.ListOptions{LabelSelector: c.labels, Limit: 500}
	for {
		page, err := client.Resource(c.gvr).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("cannot list %s: %w", c.gvr.Resource, err)
		}
		for _, u := range page.Items {
			if strings.HasPrefix(u.GetName(), c.prefix) {
				out = append(out, u)
			}
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return out, nil
		}
	}
}

// delete deletes one by one, many at a time: a deletecollection, which the API
// server works off one after the other, takes several times as long.
func (c collection) delete(ctx context.Context, client dynamic.Interface, objects []unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, u := range objects {
		group.Go(func() error {
			resource := client.Resource(c.gvr).Namespace(u.GetNamespace())
			if len(u.GetFinalizers()) > 0 {
				_, err := resource.Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if kubernetes.IgnoreNotFound(err) != nil {
					return err
				}
			}
			return kubernetes.IgnoreNotFound(resource.Delete(ctx, u.GetName(), metav1.DeleteOptions{}))
		})
	}
	return group.Wait()
}
