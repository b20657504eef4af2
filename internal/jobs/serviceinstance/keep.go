package serviceinstance

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// keep returns the Knative Subscriptions, and the Brokers with what they need,
// through which events come already: those of Applications that something posts
// to the mesh for.
func keep(ctx context.Context, c reader, k kinds, o options, refs []migration.Ref) (map[migration.Ref]string, error) {
	kept := map[migration.Ref]string{}
	if !slices.ContainsFunc(refs, func(ref migration.Ref) bool { return ref.Kind != kyma.EventActivation.Kind }) {
		return kept, nil
	}
	live := eventpath.Posters{}
	err := migration.EachWorkload(ctx, c, o.integrationNamespace, func(workload migration.Ref, obj *unstructured.Unstructured) {
		live.Add(workload.String(), obj)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot tell what carries live events: %w", err)
	}
	if len(live) == 0 || !k.link.Served {
		return kept, nil
	}
	links, namespacesOf := map[migration.Ref]string{}, map[string]string{}
	err = c.Each(ctx, k.link.Resource, o.integrationNamespace, migration.ListOptions{LabelSelector: kyma.ApplicationNameLabel}, func(link *unstructured.Unstructured) error {
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
