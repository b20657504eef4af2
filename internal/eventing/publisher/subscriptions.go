package publisher

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/subscribed"
)

// Subscriptions answers what is subscribed from the Subscriptions of all namespaces, by each name
// that an Application has. It lists them when a client asks; one list may take up to timeout.
func (p *Publisher) Subscriptions(cfg *rest.Config, timeout time.Duration) (*subscribed.Lists, error) {
	return subscribed.Of(cfg, timeout, subscribed.Kind{
		GroupKind: schema.GroupKind{Group: eventingv1alpha2.GroupVersion.Group, Kind: "Subscription"}, From: "eventing-manager", Read: readSubscription,
		Also: p.alsoNamed,
	})
}

// alsoNamed are the sources of the events of an Application, in addition to its name.
func (p *Publisher) alsoNamed(application string) []string {
	names := []string{backend.FormerApplication(application)}
	if of := p.applications.typeOf(application); of != "" {
		names = append(names, of, backend.FormerApplication(of))
	}
	return names
}

// readSubscription returns the events of a Subscription by their source. The last segment of a type
// is the version. Types that are named as by Kyma's first eventing have their application instead.
func readSubscription(obj *unstructured.Unstructured) map[string][]subscribed.Event {
	spec, err := specOf(obj)
	if err != nil || spec.Sink == "" {
		return nil // a kind of the same name
	}
	events := map[string][]subscribed.Event{}
	for _, t := range spec.Types {
		source, of := backend.Matched(spec.TypeMatching == eventingv1alpha2.Exact, spec.Source, t)
		if backend.IsFormer(of) && source == "" {
			application, event, _ := strings.Cut(of[len(backend.FormerPrefix)+1:], ".")
			source, of = backend.FormerApplication(application), event
		}
		if dot := strings.LastIndexByte(of, '.'); dot >= 0 && source != "" {
			events[source] = append(events[source], subscribed.Event{Name: of[:dot], Version: of[dot+1:]})
		}
	}
	return events
}

// specOf reads the spec of a Subscription, whatever the rest of it is.
func specOf(obj *unstructured.Unstructured) (*eventingv1alpha2.SubscriptionSpec, error) {
	var s eventingv1alpha2.Subscription
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": obj.Object["spec"]}, &s)
	return &s.Spec, err
}
