package trigger

import (
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
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
	s, ok = filterOf(trigger)
	s.address = kyma.Address(kyma.SubscriberOf(trigger), isNamespace)
	return s, ok
}

// filterOf is selectionOf without the address.
func filterOf(trigger *unstructured.Unstructured) (s selection, ok bool) {
	spec := kyma.MapAt(trigger.Object, "spec")
	if broker := kyma.Text(spec["broker"]); broker != "" && broker != kyma.DefaultBroker {
		return s, false
	}
	attributes, opaque := kyma.FilterOf(trigger)
	if opaque {
		s.opaque = true
		return s, true
	}
	for key, value := range attributes {
		switch key {
		case kyma.SourceAttribute:
			s.source = share(value)
		case kyma.TypeAttribute:
			s.eventType = share(value)
		case kyma.EventTypeVersionAttribute:
			s.version = share(value)
		default:
			s.opaque = true
		}
	}
	return s, true
}

// share returns one copy of equal strings.
func share(s string) string { return unique.Make(s).Value() }

// existing is what the job needs of a Trigger that exists: there may be thousands.
type existing struct {
	namespace, name string
	// selected, without its address, is nil if the Trigger is none of the default
	// Broker's.
	selected   *selection
	subscriber string
	// problem says why it does not count as ready; "" if it does.
	problem         string
	ready, deleting bool
	// made: an interrupted run of this job created it, and nobody has edited it since.
	made bool
}

// existingOf reads a Trigger. made may be nil.
func existingOf(k migration.Kind, obj *unstructured.Unstructured, made func(*unstructured.Unstructured) bool) *existing {
	e := &existing{
		namespace: share(obj.GetNamespace()), name: strings.Clone(obj.GetName()), subscriber: kyma.SubscriberOf(obj),
		problem: unready(k.RefTo(obj), obj), ready: kyma.ReadinessOf(obj).OK(), deleting: obj.GetDeletionTimestamp() != nil,
		made: made != nil && made(obj),
	}
	if selected, ours := filterOf(obj); ours {
		e.selected = &selected
	}
	return e
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
