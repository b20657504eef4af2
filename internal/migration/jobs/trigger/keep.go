package trigger

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// keep returns the Triggers, and the Brokers with what they need, through which
// events come already: those of sources that something posts to the mesh for. A Broker stays
// also if a Trigger gets its events through it that is none of refs: it is somebody else's.
func keep(ctx context.Context, c reader, k kinds, integration string, refs []migration.Ref) (map[migration.Ref]string, error) {
	live := eventpath.Posters{}
	err := migration.EachWorkload(ctx, c, integration, func(workload migration.Ref, obj *unstructured.Unstructured) {
		live.Add(workload.String(), obj)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot tell what carries live events: %w", err)
	}
	kept := map[migration.Ref]string{}
	if !k.trigger.Served {
		return kept, nil
	}
	others := eventpath.NewOthers(refs)
	triggers := map[migration.Ref]string{}
	brokers := map[string]string{}
	err = c.Each(ctx, k.trigger.Resource, "", migration.ListOptions{}, func(trigger *unstructured.Unstructured) error {
		others.Add(k.trigger.RefTo(trigger), trigger)
		selected, ours := route.SelectionOf(trigger, func(string) bool { return true })
		if !ours {
			return nil
		}
		for source, workload := range live {
			if selected.Opaque || selected.Source == "" || selected.Source == source {
				why := fmt.Sprintf("carries live events: %s posts those of %s to the mesh", workload, source)
				ref := k.trigger.RefTo(trigger)
				if known, ok := triggers[ref]; !ok || why < known {
					triggers[ref] = why
				}
				if known, ok := brokers[trigger.GetNamespace()]; !ok || why < known {
					brokers[trigger.GetNamespace()] = why
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot tell what carries live events: %w", err)
	}
	others.Protect(brokers)
	for _, ref := range refs {
		var why string
		var ok bool
		switch {
		case ref.Kind == knative.Trigger.Kind:
			why, ok = triggers[ref]
		case ref.Kind == knative.Broker.Kind:
			why, ok = brokers[ref.Namespace]
		default:
			why, ok = kyma.OfBroker(brokers, ref.Namespace, ref.Name)
		}
		if ok {
			kept[ref] = why
		}
	}
	return kept, nil
}
