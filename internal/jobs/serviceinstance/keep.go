package serviceinstance

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// unfinished selects pods that may still post. An evicted pod stays for ever,
// with its arguments, and posts nothing.
const unfinished = "status.phase!=Succeeded,status.phase!=Failed"

// keepPage is for objects that are large, such as a pod with its sidecar.
const keepPage = 100

// keep returns the Knative Subscriptions, and the Brokers with what they need,
// through which events come already: those of Applications that something posts
// to the mesh for.
func keep(ctx context.Context, c reader, k kinds, o options, refs []migration.Ref) (map[migration.Ref]string, error) {
	kept := map[migration.Ref]string{}
	if !slices.ContainsFunc(refs, func(ref migration.Ref) bool { return ref.Kind != kyma.EventActivation.Kind }) {
		return kept, nil
	}
	live := map[string]string{} // what posts, by Application
	for _, workload := range []struct {
		migration.Resource
		selector string
	}{{deployments, ""}, {pods, unfinished}} {
		opts := migration.ListOptions{FieldSelector: workload.selector, PageSize: keepPage}
		err := c.Each(ctx, workload.Resource, o.integrationNamespace, opts, func(obj *unstructured.Unstructured) error {
			name := migration.Ref{Resource: workload.Resource, Namespace: o.integrationNamespace, Name: obj.GetName()}.String()
			for _, source := range kyma.MeshSources(obj) {
				if known, ok := live[source]; !ok || workload.Kind == deployments.Kind && name < known {
					live[source] = name
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("cannot tell what carries live events: %w", err)
		}
	}
	if len(live) == 0 || !k.link.Served {
		return kept, nil
	}
	links, namespacesOf := map[migration.Ref]string{}, map[string]string{}
	err := c.Each(ctx, k.link.Resource, o.integrationNamespace, migration.ListOptions{LabelSelector: kyma.ApplicationNameLabel}, func(link *unstructured.Unstructured) error {
		p := pairOf(link)
		workload, ok := live[p.application]
		if !ok {
			return nil
		}
		why := fmt.Sprintf("carries live events: %s posts those of %s to the mesh", workload, p.application)
		links[k.link.RefTo(link)] = why
		if known, ok := namespacesOf[p.namespace]; !ok || why < known {
			namespacesOf[p.namespace] = why
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot tell what carries live events: %w", err)
	}
	for _, ref := range refs {
		why, ok := links[ref]
		switch {
		case ref.Kind == kyma.Broker.Kind, ref.Kind == kyma.AuthenticationPolicy.Kind:
			why, ok = namespacesOf[ref.Namespace]
		case !ok:
			why, ok = kyma.OfBroker(namespacesOf, ref.Namespace, ref.Name)
		}
		if ok {
			kept[ref] = why
		}
	}
	return kept, nil
}
