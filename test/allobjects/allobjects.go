// Package allobjects visits all objects of a cluster, whatever their kind.
package allobjects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// pageSize and parallel keep a visit quick without being a burden.
const (
	pageSize = 500
	parallel = 8
)

// Each visits, one after the other, the objects of every kind that can be listed and that is
// wanted, at the version its group prefers. A kind that cannot be discovered or listed is an error.
func Each(ctx context.Context, config *rest.Config, wanted func(schema.GroupResource) bool, visit func(schema.GroupVersionResource, *unstructured.Unstructured)) error {
	config = rest.CopyConfig(config)
	config.QPS = -1
	kinds, err := listable(ctx, config, wanted)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}

	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, gvr := range kinds {
		group.Go(func() error {
			objects, err := list(ctx, client.Resource(gvr))
			if err != nil {
				return fmt.Errorf("cannot list %s: %w", gvr.GroupResource(), err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, obj := range objects {
				visit(gvr, obj)
			}
			return nil
		})
	}
	return group.Wait()
}

// listable returns every wanted resource that can be listed, at the version its group
// prefers.
func listable(ctx context.Context, config *rest.Config, wanted func(schema.GroupResource) bool) ([]schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	lists, err := client.ServerPreferredResourcesWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot discover all kinds: %w", err)
	}
	var kinds []schema.GroupVersionResource
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("cannot discover all kinds: %w", err)
		}
		for _, r := range l.APIResources {
			gvr := gv.WithResource(r.Name)
			if slices.Contains(r.Verbs, "list") && !strings.Contains(r.Name, "/") && wanted(gvr.GroupResource()) {
				kinds = append(kinds, gvr)
			}
		}
	}
	return kinds, nil
}

func list(ctx context.Context, client dynamic.ResourceInterface) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			objects = append(objects, &page.Items[i])
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return objects, nil
		}
	}
}
