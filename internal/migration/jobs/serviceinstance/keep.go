package serviceinstance

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// keep returns the Knative Subscriptions, and the Brokers with what they need, through which events
// come already: those of Applications that something posts to the mesh for. A Broker stays also if
// a Trigger gets its events through it: this job makes none.
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
	links, namespacesOf := map[migration.Ref]string{}, map[string]string{}
	if len(live) > 0 && k.link.Served {
		if err := liveLinks(ctx, c, k, o, live, links, namespacesOf); err != nil {
			return nil, err
		}
	}
	if err := addUsers(ctx, c, k, refs, namespacesOf); err != nil {
		return nil, err
	}
	for _, ref := range refs {
		why, ok := links[ref]
		switch {
		case ok, ref.Kind == kyma.ChannelSubscription.Kind:
		case ref.Kind == knative.Broker.Kind, ref.Kind == kyma.AuthenticationPolicy.Kind:
			why, ok = namespacesOf[ref.Namespace]
		default:
			why, ok = kyma.OfBroker(namespacesOf, ref.Namespace, ref.Name)
		}
		if ok {
			kept[ref] = why
		}
	}
	return kept, nil
}

// addUsers adds the namespaces of refs whose Broker has Triggers.
func addUsers(ctx context.Context, c reader, k kinds, refs []migration.Ref, namespaces map[string]string) error {
	if !k.trigger.Served || !slices.ContainsFunc(refs, func(ref migration.Ref) bool {
		return ref.Kind != kyma.EventActivation.Kind && ref.Kind != kyma.ChannelSubscription.Kind
	}) {
		return nil
	}
	others := eventpath.NewOthers(refs)
	err := c.Each(ctx, k.trigger.Resource, "", migration.ListOptions{}, func(trigger *unstructured.Unstructured) error {
		others.Add(k.trigger.RefTo(trigger), trigger)
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot tell who uses the Brokers: %w", err)
	}
	others.Protect(namespaces)
	return nil
}

// liveLinks adds the Knative Subscriptions that carry live events, and the namespaces that get
// them.
func liveLinks(ctx context.Context, c reader, k kinds, o options, live eventpath.Posters, links map[migration.Ref]string, namespacesOf map[string]string) error {
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
		return fmt.Errorf("cannot tell what carries live events: %w", err)
	}
	return nil
}
