package route

import (
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// Terms are what makes Triggers and Subscriptions of one namespace equal: which
// events go to which address.
type Terms struct{ Source, EventType, Version, Address string }

// TermsOf are the terms of a Subscription.
func TermsOf(d Delivery, isNamespace func(string) bool) Terms {
	return Terms{d.Source, d.EventType, d.Version, kyma.Address(d.Endpoint, isNamespace)}
}

// Overlap says how the events of a Trigger relate to those of exact terms.
type Overlap int

const (
	// Unrelated: another Broker or address, or a filter that is narrower, or that
	// cannot be judged.
	Unrelated Overlap = iota
	// Same: exactly these events go to the same address.
	Same
	// Wider: these events, and others, go to the same address.
	Wider
)

// Selection is what a Trigger selects and where it sends it, read once.
type Selection struct {
	// Terms of the filter; an attribute that is "" or missing means any value.
	Terms
	// Opaque filters (those of later Knative releases, or on other attributes)
	// are equal to nothing.
	Opaque bool
}

// SelectionOf reads a Trigger of any version; ok is false if it has another
// Broker than the default one.
func SelectionOf(trigger *unstructured.Unstructured, isNamespace func(string) bool) (s Selection, ok bool) {
	s, ok = FilterOf(trigger)
	s.Address = kyma.Address(kyma.SubscriberOf(trigger), isNamespace)
	return s, ok
}

// FilterOf is SelectionOf without the address.
func FilterOf(trigger *unstructured.Unstructured) (s Selection, ok bool) {
	spec := k8sobject.MapAt(trigger.Object, "spec")
	if broker := k8sobject.Text(spec["broker"]); broker != "" && broker != kyma.DefaultBroker {
		return s, false
	}
	attributes, opaque := kyma.FilterOf(trigger)
	if opaque {
		s.Opaque = true
		return s, true
	}
	for key, value := range attributes {
		switch key {
		case knative.SourceAttribute:
			s.Source = Share(value)
		case knative.TypeAttribute:
			s.EventType = Share(value)
		case knative.EventTypeVersionAttribute:
			s.Version = Share(value)
		default:
			s.Opaque = true
		}
	}
	return s, true
}

// Share returns one copy of equal strings.
func Share(s string) string { return unique.Make(s).Value() }

// Compare says how what is selected relates to exact terms.
func (s *Selection) Compare(t Terms) Overlap {
	if s.Opaque || s.Address == "" || s.Address != t.Address {
		return Unrelated
	}
	admits := func(has, wants string) bool { return has == "" || has == wants }
	switch {
	case s.Terms == t:
		return Same
	case admits(s.Source, t.Source) && admits(s.EventType, t.EventType) && admits(s.Version, t.Version):
		return Wider
	default:
		return Unrelated
	}
}
