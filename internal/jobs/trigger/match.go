package trigger

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

// terms are what makes Triggers and Subscriptions of one namespace equal: which
// events go to which address.
type terms struct{ source, eventType, version, address string }

// termsOf are the terms of a Subscription.
func termsOf(d delivery, isNamespace func(string) bool) terms {
	return terms{d.source, d.eventType, d.version, kyma.Address(d.endpoint, isNamespace)}
}

// overlap says how the events of a Trigger relate to those of exact terms.
type overlap int

const (
	// unrelated: another Broker or address, or a filter that is narrower, or that
	// cannot be judged.
	unrelated overlap = iota
	// same: exactly these events go to the same address.
	same
	// wider: these events, and others, go to the same address.
	wider
)

// selection is what a Trigger selects and where it sends it, read once.
type selection struct {
	// terms of the filter; an attribute that is "" or missing means any value.
	terms
	// opaque filters (those of later Knative releases, or on other attributes)
	// are equal to nothing.
	opaque bool
}

// selectionOf reads a Trigger of any version; ok is false if it has another
// Broker than the default one.
func selectionOf(trigger *unstructured.Unstructured, isNamespace func(string) bool) (s selection, ok bool) {
	spec := kyma.MapAt(trigger.Object, "spec")
	if broker := kyma.Text(spec["broker"]); broker != "" && broker != kyma.DefaultBroker {
		return s, false
	}
	s.address = kyma.Address(kyma.SubscriberOf(trigger), isNamespace)
	attributes, opaque := kyma.FilterOf(trigger)
	if opaque {
		s.opaque = true
		return s, true
	}
	for key, value := range attributes {
		switch key {
		case kyma.SourceAttribute:
			s.source = value
		case kyma.TypeAttribute:
			s.eventType = value
		case kyma.EventTypeVersionAttribute:
			s.version = value
		default:
			s.opaque = true
		}
	}
	return s, true
}

// compare says how what is selected relates to exact terms.
func (s *selection) compare(t terms) overlap {
	if s.opaque || s.address == "" || s.address != t.address {
		return unrelated
	}
	admits := func(has, wants string) bool { return has == "" || has == wants }
	switch {
	case s.terms == t:
		return same
	case admits(s.source, t.source) && admits(s.eventType, t.eventType) && admits(s.version, t.version):
		return wider
	default:
		return unrelated
	}
}
