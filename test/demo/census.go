package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/controlplane"
	"github.com/kyma-project/eventmesh-migration/test/kyma"
)

// census is what of the cluster the demo tells about.
type census struct {
	applications int
	sources      map[string]source
}

// source is one HTTPSource.
type source struct {
	uid        types.UID
	generation int64
	// ready says that the HTTPSource, its Channel and its adapter are, each by
	// its own condition.
	ready bool
}

func (c census) ready() int {
	n := 0
	for _, s := range c.sources {
		if s.ready {
			n++
		}
	}
	return n
}

func takeCensus(ctx context.Context, cfg *rest.Config) (census, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "eventmesh-demo"
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return census{}, err
	}
	knative := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: string(controlplane.KnativeV1alpha1), Resource: resource}
	}
	read := func(gvr schema.GroupVersionResource) (map[string]unstructured.Unstructured, error) {
		// The sample fits into a page.
		list, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot list %s: %w", gvr.Resource, err)
		}
		byName := map[string]unstructured.Unstructured{}
		for _, u := range list.Items {
			byName[u.GetName()] = u
		}
		return byName, nil
	}
	var lists [4]map[string]unstructured.Unstructured
	for i, gvr := range []schema.GroupVersionResource{
		kyma.Applications, kyma.HTTPSources, knative("messaging.knative.dev", "channels"), knative("serving.knative.dev", "services"),
	} {
		if lists[i], err = read(gvr); err != nil {
			return census{}, err
		}
	}
	c := census{applications: len(lists[0]), sources: map[string]source{}}
	for name, src := range lists[1] {
		c.sources[name] = source{
			uid: src.GetUID(), generation: src.GetGeneration(),
			ready: ready(src) && ready(lists[2][name]) && ready(lists[3][name]),
		}
	}
	return c, nil
}

func ready(u unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Ready" {
			return m["status"] == "True"
		}
	}
	return false
}
