package route

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Follow lets the Trigger of a Subscription that was edited bring what that asks for now. The run
// in whose middle the edit was, and each run before it, made it for what the Subscription asked for
// then. subs has the Subscription, and those that are equal to it now.
func Follow(trigger migration.Ref, uid types.UID, former, now Delivery, subs []*unstructured.Unstructured) migration.Change {
	content := func(of Delivery, mark string) map[string]any {
		annotations := map[string]any{kyma.DeliveryAnnotation: nil} // null removes it
		if mark != "" {
			annotations[kyma.DeliveryAnnotation] = mark
		}
		return map[string]any{
			"metadata": map[string]any{"annotations": annotations},
			"spec": map[string]any{
				"filter": map[string]any{"attributes": map[string]any{
					knative.SourceAttribute: of.Source, knative.TypeAttribute: of.EventType, knative.EventTypeVersionAttribute: of.Version,
				}},
				"subscriber": map[string]any{"uri": of.Endpoint},
			},
		}
	}
	basis := &unstructured.Unstructured{Object: content(former, Mark(subs[0], former))}
	basis.SetAPIVersion(trigger.GroupVersion().String())
	basis.SetKind(trigger.Kind)
	basis.SetNamespace(trigger.Namespace)
	basis.SetName(trigger.Name)
	basis.SetUID(uid)
	patch, err := json.Marshal(content(now, Mark(subs[0], now, subs[1:]...)))
	if err != nil {
		panic(err) // it is text
	}
	return migration.Change{
		Verb: migration.Patch, Ref: trigger, UID: uid, Object: basis, Patch: patch,
		Why: fmt.Sprintf("Subscription %s was edited, and brings %s", subs[0].GetName(), now),
	}
}

// Followed says whether a Trigger is not any more what it was before Follow's change.
func Followed(ch *migration.Change, trigger *unstructured.Unstructured) bool {
	was, _ := FilterOf(ch.Object)
	is, _ := FilterOf(trigger)
	return is != was || kyma.SubscriberOf(trigger) != kyma.SubscriberOf(ch.Object)
}
