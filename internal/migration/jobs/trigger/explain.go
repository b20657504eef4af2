package trigger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// explain tells what becomes of the Subscriptions of a group.
func (g *group) explain(k kinds) *migration.Replacement {
	first := g.subscriptions[0]
	r := &migration.Replacement{Of: k.subscription.RefTo(first).String()}
	if others := g.subscriptions[1:]; len(others) > 0 {
		r.Of += fmt.Sprintf(", and of its equals %s", names(others))
	}
	field := func(from, to, value string) {
		r.Fields = append(r.Fields, migration.FieldMapping{From: from + ": " + value, To: to + ": " + value})
	}
	field("spec.source_id", "spec.filter.attributes."+knative.SourceAttribute, g.Delivery.Source)
	field("spec.event_type", "spec.filter.attributes."+knative.TypeAttribute, g.Delivery.EventType)
	field("spec.event_type_version", "spec.filter.attributes."+knative.EventTypeVersionAttribute, g.Delivery.Version)
	field("spec.endpoint", "spec.subscriber.uri", redact.URL(g.Delivery.Endpoint))
	r.Fields = append(r.Fields, migration.FieldMapping{To: "spec.broker: " + kyma.DefaultBroker})
	if route.AsksForNameHeader(first) {
		r.Fields = append(r.Fields, migration.FieldMapping{From: "spec.include_subscription_name_header: true"})
	}
	wanted := g.newTrigger(&k.trigger)
	labels := wanted.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if own, ok := first.GetLabels()[key]; ok && own == labels[key] {
			field("label "+key, "label "+key, own)
			continue
		}
		r.Fields = append(r.Fields, migration.FieldMapping{To: fmt.Sprintf("label %s: %s", key, labels[key])})
	}
	annotations := wanted.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		r.Fields = append(r.Fields, migration.FieldMapping{To: fmt.Sprintf("annotation %s: %s", key, annotations[key])})
	}
	return r
}
