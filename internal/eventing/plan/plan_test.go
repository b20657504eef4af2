package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
)

func subscription(change func(*eventingv1alpha2.SubscriptionSpec)) *eventingv1alpha2.Subscription {
	s := &eventingv1alpha2.Subscription{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", Generation: 3},
		Spec: eventingv1alpha2.SubscriptionSpec{
			Sink: "http://orders.shop.svc.cluster.local", TypeMatching: eventingv1alpha2.Standard, Source: "commerce", Types: []string{"order.created.v1"},
			Config: map[string]string{eventingv1alpha2.MaxInFlight: "7"},
		},
	}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func TestPlanOf(t *testing.T) {
	type spec = eventingv1alpha2.SubscriptionSpec
	for _, tc := range []struct {
		reason   string
		change   func(*spec)
		problems []string // a part of each
		filters  []string
		inFlight int
	}{
		{reason: "the usual", filters: []string{"kyma.commerce.order.created.v1"}, inFlight: 7},
		{reason: "without config, as an old object", change: func(s *spec) { s.Config = nil }, filters: []string{"kyma.commerce.order.created.v1"}, inFlight: 10},
		{reason: "whole names, whatever the source", change: func(s *spec) {
			s.TypeMatching, s.Source, s.Types = eventingv1alpha2.Exact, "%zz", []string{"commerce.order.created.v1", "sap.kyma.custom.a.b.c.v1"}
		}, filters: []string{"kyma.commerce.order.created.v1", "kyma.*.sap.kyma.custom.a.b.c.v1"}, inFlight: 7},
		{reason: "names that are not whole", change: func(s *spec) {
			s.TypeMatching, s.Source, s.Types = eventingv1alpha2.Exact, "", []string{"order.created", ".order.created", "a.sap.kyma.custom.b.c.d.v1"}
		}, problems: []string{"no whole name", "no whole name", "names a source"}},
		{reason: "a URI", change: func(s *spec) { s.Source = "http://shop/a" }, filters: []string{"kyma.http=3A=2F=2Fshop=2Fa.order.created.v1"}, inFlight: 7},
		{reason: "a sink elsewhere", change: func(s *spec) { s.Sink = "http://orders.other.svc.cluster.local" }, problems: []string{"sink is in namespace"}},
		{reason: "a source that is no URI", change: func(s *spec) { s.Source = "%zz" }, problems: []string{"source is no URI reference"}},
		{reason: "a source that is too long", change: func(s *spec) { s.Source = strings.Repeat("a", 513) }, problems: []string{"source has more than 512 bytes"}},
		{reason: "no source", change: func(s *spec) { s.Source = "" }, problems: []string{"source is empty"}},
		{reason: "no types", change: func(s *spec) { s.Types = nil }, problems: []string{"types are empty"}},
		{reason: "all that is wrong with types", change: func(s *spec) {
			s.Types = []string{"a.b", "a.b", "a", "a .b", "é.b", "a." + strings.Repeat("x", 252), "sap.kyma.custom.a"}
		}, problems: []string{"twice", "only one part", "not printable", "not printable", "more than 253", "begins with sap.kyma.custom"}},
		{reason: "too much at once, and a kind of matching that is not known", change: func(s *spec) {
			s.Config[eventingv1alpha2.MaxInFlight], s.TypeMatching = "1001", "fuzzy"
		}, problems: []string{"typeMatching", "config.maxInFlightMessages"}},
		{reason: "no number", change: func(s *spec) { s.Config[eventingv1alpha2.MaxInFlight] = "ten" }, problems: []string{"config.maxInFlightMessages"}},
	} {
		p, problems := Of(subscription(tc.change))
		if len(problems) != len(tc.problems) {
			t.Errorf("%s: problems %q, want %q", tc.reason, problems, tc.problems)
			continue
		}
		for i, part := range tc.problems {
			if !strings.Contains(problems[i], part) {
				t.Errorf("%s: problem %q, want one with %q", tc.reason, problems[i], part)
			}
		}
		if len(problems) > 0 {
			continue
		}
		if diff := cmp.Diff(tc.filters, p.Filters); diff != "" || p.InFlight != tc.inFlight {
			t.Errorf("%s: %d in flight, filters (-want +got):\n%s", tc.reason, p.InFlight, diff)
		}
	}
}
