package publisher

import (
	"cmp"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
)

// sent is an event as a client sends it: to /publish, or, with a version, to the legacy API. Its
// Application may have the label application-type.
type sent struct{ source, eventType, version, label string }

// asked is a Subscription.
type asked struct {
	exact  bool
	source string
	types  []string
}

// kyma is what Kyma's own eventing does with NATS, by its source: eventing-publisher-proxy 1f3a16d
// (pkg/handler, pkg/cloudevents, pkg/legacy) and eventing-manager 90ca37ae (pkg/backend/jetstream).
// The prefix of its Eventings is sap.kyma.custom.
type kyma struct{}

var (
	notSource = regexp.MustCompile(`[\s.>*/\\]`)
	notType   = regexp.MustCompile(`[\s>*/\\]`)
	notPart   = regexp.MustCompile(`[^a-zA-Z0-9.]`)
	notName   = regexp.MustCompile(`\W|_`)
)

// subjects are where an event is published.
func (kyma) subjects(e sent) []string {
	const prefix = "sap.kyma.custom"
	e.source = cmp.Or(e.label, e.source)
	if e.version != "" {
		built := "kyma." + notSource.ReplaceAllString(e.source, "") + "." + notType.ReplaceAllString(e.eventType+"."+e.version, "")
		name := notPart.ReplaceAllString(e.eventType, "")
		if parts := strings.Split(name, "."); len(parts) > 1 {
			last := len(parts) - 1
			name = strings.Join(parts[:last], "") + "." + parts[last]
		}
		return []string{built, "kyma." + prefix + "." + notName.ReplaceAllString(e.source, "") + "." + name + "." + e.version}
	}
	if rest, ok := strings.CutPrefix(e.eventType, prefix+"."); ok {
		parts := strings.Split(rest, ".")
		last := len(parts) - 1
		parts[0] = cmp.Or(e.label, parts[0])
		clean := notName.ReplaceAllString(parts[0], "") + "." + strings.Join(parts[1:last-1], "") + "." + parts[last-1] + "." + parts[last]
		return []string{"kyma." + notPart.ReplaceAllString(prefix+"."+clean, "")}
	}
	return []string{"kyma." + notSource.ReplaceAllString(e.source, "") + "." + notType.ReplaceAllString(e.eventType, "")}
}

func (kyma) filters(s asked) (all []string) {
	for _, t := range s.types {
		if s.exact {
			all = append(all, "kyma."+t)
		} else {
			all = append(all, "kyma."+notSource.ReplaceAllString(s.source, "")+"."+notType.ReplaceAllString(t, ""))
		}
	}
	return all
}

// ours is what this publisher and the controller do.
type ours struct{}

func (ours) subjects(e sent) []string {
	event := &cloudevent.Event{ID: "1", Source: e.source, Type: e.eventType, Version: e.version}
	if e.version != "" {
		event.Type += "." + e.version
	}
	if backend.IsFormer(event.Type) {
		clean, err := backend.CleanFormer(event.Type)
		if err != nil {
			return nil
		}
		event.Type = clean
	}
	if check(event) != nil {
		return nil
	}
	all := []string{message(event, nil, "").Subject}
	for _, other := range otherNames(event, e.label) {
		all = append(all, message(other, nil, "").Subject)
	}
	return all
}

func (ours) filters(s asked) (all []string) {
	for _, t := range s.types {
		all = append(all, backend.Filter(backend.Matched(s.exact, s.source, t)))
	}
	return all
}

type eventing interface {
	subjects(e sent) []string
	filters(s asked) []string
}

// times is how often a Subscription gets an event.
func times(by eventing, e sent, s asked) (n int) {
	for _, subject := range by.subjects(e) {
		for _, filter := range by.filters(s) {
			if matches(filter, subject) {
				n++
			}
		}
	}
	return n
}

// matches is how NATS compares a subject with a filter that has no ">".
func matches(filter, subject string) bool {
	return slices.EqualFunc(strings.Split(filter, "."), strings.Split(subject, "."), func(f, s string) bool { return f == "*" || f == s })
}

// TestDeliveredAsByKyma: whatever is sent and asked for, a Subscription gets an event as often as
// with Kyma's own eventing. The values are those that mean the same to both; what does not is in
// TestDifferencesFromKyma.
func TestDeliveredAsByKyma(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // the same values each time
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	part := func() string { return pick("order", "created", "Paid", "v1", "v2", "a1") }
	name := func(most int) string {
		all := []string{part(), part()}
		for range r.IntN(most) {
			all = append(all, part())
		}
		return strings.Join(all, ".")
	}
	source := func() string { return pick("commerce", "Commerce", "commerce-mock", "shop_1", "shop1", "order", "x") }
	clean := func() string { return notName.ReplaceAllString(source(), "") }
	former := func() string { return "sap.kyma.custom." + clean() + "." + name(1) + "." + pick("v1", "v2") }
	delivered, twice := 0, 0
	for range 20_000 {
		e := sent{source: source(), eventType: name(2)}
		switch r.IntN(3) {
		case 0:
			e.version = pick("v1", "v2")
		case 1:
			e.eventType = pick("sap.kyma.custom."+source()+"."+name(2)+".v1", former())
		}
		s := asked{exact: r.IntN(2) == 0, source: source()}
		for range 1 + r.IntN(3) {
			next := name(2)
			if s.exact {
				next = pick(source()+"."+name(2), former(), "sap.kyma.custom."+clean()+"."+part()+part()+"."+part()+".v1")
			}
			if e.version != "" && r.IntN(2) == 0 { // one that is meant
				next = e.eventType + "." + e.version
				if s.exact {
					next = e.source + "." + next
				}
				if _, of, ok := backend.Former(e.source, e.eventType, e.version); s.exact && ok && r.IntN(2) == 0 {
					next = of
				}
			}
			if !slices.Contains(s.types, next) {
				s.types = append(s.types, next)
			}
		}
		want, got := times(kyma{}, e, s), times(ours{}, e, s)
		if want != got {
			t.Fatalf("%+v for %+v: Kyma delivers it %d times, we %d times\n%q\n%q", e, s, want, got, kyma{}.subjects(e), ours{}.subjects(e))
		}
		if want > 0 {
			delivered++
		}
		if want > 1 {
			twice++
		}
	}
	if delivered < 200 || twice < 10 {
		t.Errorf("only %d events were delivered, %d of them by two names: the values do not meet", delivered, twice)
	}
}

// TestLabelledApplications: who asks for events by the label of their Application gets them as with
// Kyma's own eventing. By the name, Kyma delivers none.
func TestLabelledApplications(t *testing.T) {
	const label = "shop-1"
	r := rand.New(rand.NewPCG(8, 8)) //nolint:gosec // the same values each time
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	delivered := 0
	for range 2_000 {
		e := sent{source: "commerce-mock", eventType: pick("a.b", "a.b.c", "a.b.c.d"), label: label}
		switch r.IntN(3) {
		case 0:
			e.version = "v1"
		case 1:
			e.eventType = "sap.kyma.custom.commerce-mock." + e.eventType + ".v1"
		}
		of := strings.TrimPrefix(e.eventType, "sap.kyma.custom.commerce-mock.")
		for _, s := range []asked{
			{source: label, types: []string{of + pick("", ".v1")}},
			{exact: true, source: label, types: []string{label + "." + of + pick("", ".v1")}},
			{exact: true, types: []string{"sap.kyma.custom.shop1." + pick("a.b.v1", "ab.c.v1", "abc.d.v1")}},
		} {
			want, got := times(kyma{}, e, s), times(ours{}, e, s)
			if want != got {
				t.Fatalf("%+v for %+v: Kyma delivers it %d times, we %d times\n%q\n%q", e, s, want, got, kyma{}.subjects(e), ours{}.subjects(e))
			}
			delivered += want
		}
	}
	if delivered < 1000 {
		t.Errorf("only %d events were delivered: the values do not meet", delivered)
	}
}

// TestDifferencesFromKyma holds what docs/eventing/coming-from-kyma.md says is different.
func TestDifferencesFromKyma(t *testing.T) {
	for _, tc := range []struct {
		reason     string
		event      sent
		asks       asked
		kyma, ours int
	}{
		{"sources that Kyma makes one", sent{source: "com.merce", eventType: "a.b.v1"}, asked{source: "commerce", types: []string{"a.b.v1"}}, 1, 0},
		{"the same source", sent{source: "com.merce", eventType: "a.b.v1"}, asked{source: "com.merce", types: []string{"a.b.v1"}}, 1, 1},
		{"a source that is an address", sent{source: "/default/shop", eventType: "a.b.v1"}, asked{source: "/default/shop", types: []string{"a.b.v1"}}, 1, 1},
		{"types that Kyma makes one", sent{source: "x", eventType: "a*.b.v1"}, asked{source: "x", types: []string{"a.b.v1"}}, 1, 0},
		{"a type of one part is refused", sent{source: "x", eventType: "created"}, asked{source: "x", types: []string{"created"}}, 1, 0},
		{"the name of an Application that has a label", sent{source: "a-1", eventType: "a.b", version: "v1", label: "shop"}, asked{source: "a-1", types: []string{"a.b.v1"}}, 0, 1},
		{"its label", sent{source: "a-1", eventType: "a.b", version: "v1", label: "shop"}, asked{source: "shop", types: []string{"a.b.v1"}}, 1, 1},
		{"and so are types that are not ASCII", sent{source: "x", eventType: "é.b"}, asked{source: "x", types: []string{"é.b"}}, 1, 0},
	} {
		if want, got := times(kyma{}, tc.event, tc.asks), times(ours{}, tc.event, tc.asks); want != tc.kyma || got != tc.ours {
			t.Errorf("%s: Kyma delivers it %d times, we %d times; want %d and %d", tc.reason, want, got, tc.kyma, tc.ours)
		}
	}
}
