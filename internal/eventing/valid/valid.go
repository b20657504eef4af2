// Package valid validates Subscriptions, and describes each problem to the author. The controller
// does not serve a Subscription that has a problem, and the takeover reports the problem in
// advance.
package valid

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

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

// Problems are what the author of a Subscription has to fix, empty if it is valid. The API server
// checks most of it, too, but an object may be older than its rules, and they know no namespace.
func Problems(s *eventingv1alpha2.Subscription) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	exact := s.Spec.TypeMatching == eventingv1alpha2.Exact
	if !exact && s.Spec.TypeMatching != eventingv1alpha2.Standard && s.Spec.TypeMatching != "" {
		add("typeMatching %q is not known: use standard or exact", s.Spec.TypeMatching)
	}
	if _, err := delivery.ParseSink(s.Namespace, s.Spec.Sink); err != nil {
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
		if slices.Contains(s.Spec.Types[:i], t) {
			add("type %q is there twice", t)
		} else if problem := typeProblem(t, exact); problem != "" {
			add("type %q %s", t, problem)
		}
	}
	if _, err := InFlight(s); err != nil {
		add("%v", err)
	}
	if s.Spec.DeadLetterSink != "" {
		if _, err := delivery.ParseSink(s.Namespace, s.Spec.DeadLetterSink); err != nil {
			add("deadLetterSink: %v", err)
		}
	}
	return problems
}

// SinkService is the Service of a Subscription's sink, in its namespace; "" if the sink is none.
func SinkService(s *eventingv1alpha2.Subscription) string {
	sink, err := delivery.ParseSink(s.Namespace, s.Spec.Sink)
	if err != nil {
		return ""
	}
	return sink.Service
}

// typeProblem is what is wrong with a type, "" if nothing is.
func typeProblem(t string, exact bool) string {
	switch {
	case len(t) > maxType:
		return fmt.Sprintf("has more than %d characters", maxType)
	case strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "has characters that are not printable ASCII"
	case !strings.Contains(t, "."):
		return "has only one part: a type has at least two, with a dot between them"
	case !exact && strings.HasPrefix(t, backend.FormerPrefix):
		return fmt.Sprintf("begins with %s: leave that out, or use typeMatching exact", backend.FormerPrefix)
	case !exact || backend.IsFormer(t):
		return ""
	}
	switch source, of, _ := strings.Cut(t, "."); {
	case source == "" || !strings.Contains(of, "."):
		return "is no whole name: with typeMatching exact it is <source>.<type>, and a type has two parts itself; or use typeMatching standard"
	case backend.IsFormer(of):
		return fmt.Sprintf("names a source: leave it out, events whose type begins with %s are matched by their type alone", backend.FormerPrefix)
	}
	return ""
}

// InFlight is the number of events that are posted at the same time, from 1 on; with 1 in their
// order.
func InFlight(s *eventingv1alpha2.Subscription) (int, error) {
	text, ok := s.Spec.Config[eventingv1alpha2.MaxInFlight]
	if !ok {
		return defaultInFlight, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxInFlight {
		return n, fmt.Errorf("config.%s is %q: use a number from 1 to %d", eventingv1alpha2.MaxInFlight, text, maxInFlight)
	}
	return n, nil
}
