// Package plan reads what a Subscription asks for, and what its author has to fix.
package plan

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
)

const (
	maxType     = 253
	maxInFlight = 1000
	// defaultInFlight is what the definition fills in; an object that was stored before has none.
	defaultInFlight = 10
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

// Of reads a Subscription. Problems are what its author has to fix, empty if it is valid. The
// API server checks most of it, too, but an object may be older than its rules, and they know no
// namespace.
func Of(s *eventingv1alpha2.Subscription) (p Plan, problems []string) {
	p.UID = s.UID
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	exact := s.Spec.TypeMatching == eventingv1alpha2.Exact
	if !exact && s.Spec.TypeMatching != eventingv1alpha2.Standard && s.Spec.TypeMatching != "" {
		add("typeMatching %q is not known: use standard or exact", s.Spec.TypeMatching)
	}
	var err error
	if p.Sink, err = delivery.ParseSink(s.Namespace, s.Spec.Sink); err != nil {
		add("%v", err)
	}
	switch _, err := url.Parse(s.Spec.Source); {
	case len(s.Spec.Source) > backend.MaxSource:
		add("source has more than %d bytes", backend.MaxSource)
	case exact:
	case s.Spec.Source == "":
		add("source is empty: name the source of the events, or use typeMatching exact")
	case err != nil:
		add("source is no URI reference: use another one, or typeMatching exact")
	}
	if len(s.Spec.Types) == 0 {
		add("types are empty: name at least one type")
	}
	for i, t := range s.Spec.Types {
		switch {
		case slices.Contains(s.Spec.Types[:i], t):
			add("type %q is there twice", t)
		case len(t) > maxType:
			add("type %q has more than %d characters", t, maxType)
		case strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }):
			add("type %q has characters that are not printable ASCII", t)
		case !strings.Contains(t, "."):
			add("type %q has only one part: a type has at least two, with a dot between them", t)
		case !exact && strings.HasPrefix(t, backend.FormerPrefix):
			add("type %q begins with %s: leave that out, or use typeMatching exact", t, backend.FormerPrefix)
		case exact && !backend.IsFormer(t):
			if source, of, _ := strings.Cut(t, "."); source == "" || !strings.Contains(of, ".") {
				add("type %q is no whole name: with typeMatching exact it is <source>.<type>, and a type has two parts itself; or use typeMatching standard", t)
			} else if backend.IsFormer(of) {
				add("type %q names a source: leave it out, events whose type begins with %s are matched by their type alone", t, backend.FormerPrefix)
			}
		}
		p.Filters = append(p.Filters, backend.Filter(backend.Matched(exact, s.Spec.Source, t)))
	}
	p.InFlight = defaultInFlight
	if text, ok := s.Spec.Config[eventingv1alpha2.MaxInFlight]; ok {
		if p.InFlight, err = strconv.Atoi(text); err != nil || p.InFlight < 1 || p.InFlight > maxInFlight {
			add("config.%s is %q: use a number from 1 to %d", eventingv1alpha2.MaxInFlight, text, maxInFlight)
		}
	}
	if s.Spec.DeadLetterSink != "" {
		if _, err = delivery.ParseSink(s.Namespace, s.Spec.DeadLetterSink); err != nil {
			add("deadLetterSink: %v", err)
		}
	}
	return p, problems
}

// Settings are how the events of the Subscription are delivered.
func (p *Plan) Settings(s *eventingv1alpha2.Subscription) delivery.Settings {
	return delivery.Settings{UID: s.UID, Generation: s.Generation, Sink: s.Spec.Sink, MaxInFlight: p.InFlight, Types: len(p.Filters), DeadLetterSink: s.Spec.DeadLetterSink}
}
