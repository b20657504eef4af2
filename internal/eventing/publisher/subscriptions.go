package publisher

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/subscribed"
)

// Subscriptions answers what is subscribed from the Subscriptions of all namespaces. It lists them
// when a client asks; one list may take up to timeout.
func Subscriptions(cfg *rest.Config, timeout time.Duration) (*subscribed.Lists, error) {
	return subscribed.Of(cfg, timeout, subscribed.Kind{
		GroupKind: schema.GroupKind{Group: eventingv1alpha2.GroupVersion.Group, Kind: "Subscription"}, From: "eventing-manager", Read: readSubscription,
	})
}

// readSubscription returns the source of a Subscription, "" for any, and its events. The last
// segment of a type is the version.
func readSubscription(obj *unstructured.Unstructured) (string, []subscribed.Event) {
	var s eventingv1alpha2.Subscription
	spec := map[string]any{"spec": obj.Object["spec"]} // whatever the rest of it is
	if runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &s) != nil || s.Spec.Sink == "" {
		return "", nil // a kind of the same name
	}
	if s.Spec.Source == "" && s.Spec.TypeMatching != eventingv1alpha2.Exact {
		return "", nil
	}
	events := make([]subscribed.Event, 0, len(s.Spec.Types))
	for _, t := range s.Spec.Types {
		if dot := strings.LastIndexByte(t, '.'); dot >= 0 {
			events = append(events, subscribed.Event{Name: t[:dot], Version: t[dot+1:]})
		}
	}
	return s.Spec.Source, slices.Clip(events)
}
