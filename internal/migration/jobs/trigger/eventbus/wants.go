package eventbus

import (
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
)

// Wants are the kinds of events that Kyma Subscriptions ask for. There may be thousands of them, of
// few kinds.
type Wants map[unique.Handle[kindOfEvent]]bool

// kindOfEvent is what a Channel of the Event Bus is for.
type kindOfEvent struct{ source, eventType, version string }

// Add notes what a Kyma Subscription asks for.
func (w Wants) Add(sub *unstructured.Unstructured) {
	spec := k8sobject.MapAt(sub.Object, "spec")
	w[unique.Make(kindOfEvent{k8sobject.Text(spec["source_id"]), k8sobject.Text(spec["event_type"]), k8sobject.Text(spec["event_type_version"])})] = true
}

// Channel says whether a Kyma Subscription asks for that kind of event.
func (w Wants) Channel(source, eventType, version string) bool {
	return w[unique.Make(kindOfEvent{source, eventType, version})]
}
