// Package plan reads the desired state from a Subscription, and finds the problems that its author
// has to fix.
package plan

import (
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/valid"
)

// Plan is what a valid Subscription asks for.
type Plan struct {
	// UID is whose events they are: a Subscription that is created again has another one.
	UID types.UID
	// Filters are the subjects of its events in NATS.
	Filters []string
	// InFlight is the number of events that are posted at the same time, from 1 on; with 1 in their
	// order.
	InFlight int
	Sink     delivery.Sink
}

// Of reads a Subscription. Problems are what its author has to fix, empty if it is valid.
func Of(s *eventingv1alpha2.Subscription) (p Plan, problems []string) {
	p.UID = s.UID
	p.Sink, _ = delivery.ParseSink(s.Namespace, s.Spec.Sink) // Problems has its error
	for _, t := range s.Spec.Types {
		p.Filters = append(p.Filters, backend.Filter(backend.Matched(s.Spec.TypeMatching == eventingv1alpha2.Exact, s.Spec.Source, t)))
	}
	p.InFlight, _ = valid.InFlight(s) // the same
	return p, valid.Problems(s)
}

// Settings are how the events of the Subscription are delivered.
func (p *Plan) Settings(s *eventingv1alpha2.Subscription) delivery.Settings {
	return delivery.Settings{UID: s.UID, Generation: s.Generation, Sink: s.Spec.Sink, MaxInFlight: p.InFlight, Types: len(p.Filters), DeadLetterSink: s.Spec.DeadLetterSink}
}

// MeshSettings are how the events of the mesh are delivered.
func (p *Plan) MeshSettings(s *eventingv1alpha2.Subscription) delivery.Settings {
	return delivery.Settings{UID: s.UID, Sink: s.Spec.Sink, MaxInFlight: p.InFlight, DeadLetterSink: s.Spec.DeadLetterSink}
}
