package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

// subscription is a Subscription with a status.
func subscription(t *testing.T, name, status string) *unstructured.Unstructured {
	t.Helper()
	return object(t, `
metadata: {namespace: shop, name: `+name+`, creationTimestamp: "2026-01-30T12:00:00Z"}
spec: {source: commerce, types: [order.created.v1], sink: "http://orders.shop.svc.cluster.local"}
status: `+status)
}

const good = `conditions: [{type: Subscription spec valid, status: "True"}, {type: Subscription active, status: "True"}, {type: Sink delivering, status: "True"}], ready: true, types: []`

// TestTrouble: what is wrong, since when, the next command; and the worst first.
func TestTrouble(t *testing.T) {
	for _, tc := range []struct {
		name, reason, status string
		want                 []string // parts of the condition, the message and the command
		answer               string
	}{
		{"a-unreadable", "a field of another type", `{ready: true, types: order.created}`, []string{"fields of another type", "edit subscriptions.eventing.kyma-project.io a-unreadable"}, ""},
		{"b-invalid", "the spec is wrong", `{ready: false, types: [], conditions: [{type: Subscription spec valid, status: "False", reason: Subscription spec has validation errors, message: "sink is no URL", lastTransitionTime: "2026-01-31T11:00:00Z"}, {type: Subscription active, status: "False", message: "the spec has validation errors"}]}`, []string{"Subscription spec valid", "sink is no URL", "edit"}, ""},
		{"c-inactive", "no backend", `{ready: false, types: [], conditions: [{type: Subscription spec valid, status: "True"}, {type: Subscription active, status: "False", reason: NATS Subscription not active, message: there is no backend}]}`, []string{"Subscription active", "there is no backend", "kubectl eventing status"}, ""},
		{"d-silent", "no controller", `{ready: false, types: []}`, []string{"no controller has written", "kubectl eventing status"}, ""},
		{"e-most", "the sink refuses, and most events wait", `{ready: true, types: [], delivery: {backlog: 100, repeating: 3, oldest: "2026-01-31T11:00:00Z"}, conditions: [{type: Sink delivering, status: "False", reason: Retrying, message: "the sink answers 503. Events wait, and are sent again", lastTransitionTime: "2026-01-31T11:59:00Z"}]}`, []string{"Sink delivering", "the sink answers 503. Events wait", "endpointslices -l kubernetes.io/service-name=orders"}, "the sink answers 503"},
		{"f-longest", "the sink refuses for longer, and fewer wait", `{ready: true, types: [], delivery: {backlog: 1, repeating: 1}, conditions: [{type: Sink delivering, status: "False", reason: Retrying, message: "the sink answers 500. Events wait", lastTransitionTime: "2026-01-31T10:00:00Z"}]}`, []string{"the sink answers 500"}, "the sink answers 500"},
		{"g-unknown", "nobody has looked how many wait", `{ready: true, types: [], conditions: [{type: Sink delivering, status: "False", reason: Retrying, message: the sink refuses connections}]}`, []string{"refuses connections"}, "the sink refuses connections"},
		{"h-letters", "events were given up", `{` + good + `, delivery: {backlog: 0, repeating: 0, deadLetters: 2}}`, []string{"2 events were given up", "dead-letters list --namespace=shop --subscription=h-letters"}, "taken"},
		{"i-repeating", "one event is refused", `{` + good + `, delivery: {backlog: 1, repeating: 1, oldest: "2026-01-31T11:00:00Z"}}`, []string{"1 event were refused"}, "taken"},
		{"j-good", "all is well", `{` + good + `, delivery: {backlog: 7, repeating: 0}}`, nil, "taken"},
		{"k-old", "a controller that writes no numbers", `{` + good + `}`, nil, "taken"},
	} {
		s := SubscriptionOf(subscription(t, tc.name, tc.status), noon)
		if (s.Problem == nil) != (tc.want == nil) {
			t.Errorf("%s: problem %+v", tc.reason, s.Problem)
			continue
		}
		if s.Problem != nil {
			text := s.Problem.Condition + "|" + s.Problem.Message + "|" + s.Problem.Next
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: no %q in %s", tc.reason, want, text)
				}
			}
		}
		if got := s.LastAnswer(); got != tc.answer {
			t.Errorf("%s: the last answer is %q, want %q", tc.reason, got, tc.answer)
		}
	}
}

func TestWorstFirst(t *testing.T) {
	var all []Subscription
	add := func(name string, rank int, backlog int64) {
		s := Subscription{Namespace: "shop", Name: name, rank: rank}
		if backlog >= 0 {
			s.Delivery = &Delivery{Backlog: backlog}
		}
		all = append(all, s)
	}
	add("good", rankGood, 1000)
	add("few", rankRefused, 1)
	add("letters", rankDeadLetters, 0)
	add("invalid", rankInvalid, -1)
	add("many", rankRefused, 100)
	slices.SortStableFunc(all, compareTrouble)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff([]string{"invalid", "many", "few", "letters", "good"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestNewSubscription: the controller may not have seen it yet.
func TestNewSubscription(t *testing.T) {
	u := subscription(t, "new", `{}`)
	u.Object["metadata"].(map[string]any)["creationTimestamp"] = "2026-01-31T11:59:50Z"
	if s := SubscriptionOf(u, noon); s.Problem != nil {
		t.Errorf("after 10 seconds: %+v", s.Problem)
	}
}

func TestWants(t *testing.T) {
	for _, tc := range []struct {
		reason       string
		sub          Subscription
		source, kind string
		want         bool
	}{
		{"source and type", Subscription{Source: "commerce", Types: []string{"a.b", "order.created.v1"}}, "commerce", "order.created.v1", true},
		{"another source", Subscription{Source: "commerce", Types: []string{"order.created.v1"}}, "shop", "order.created.v1", false},
		{"another type", Subscription{Source: "commerce", Types: []string{"order.created.v1"}}, "commerce", "order.created.v2", false},
		{"no prefix", Subscription{Source: "commerce", Types: []string{"order.created"}}, "commerce", "order.created.v1", false},
		{"exact: the whole name", Subscription{Exact: true, Types: []string{"commerce.order.created.v1"}}, "commerce", "order.created.v1", true},
		{"exact: the source is in the name", Subscription{Exact: true, Types: []string{"commerce.order.created.v1"}}, "shop", "order.created.v1", false},
		{"former names have any source", Subscription{Exact: true, Types: []string{"sap.kyma.custom.commerce.order.created.v1"}}, "kyma", "sap.kyma.custom.commerce.order.created.v1", true},
		{"and are cleaned", Subscription{Exact: true, Types: []string{"sap.kyma.custom.commerce.order.created.v1"}}, "kyma", "sap.kyma.custom.com-merce.order.created.v1", true},
	} {
		if got := tc.sub.Wants(tc.source, tc.kind); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
}

// TestEventing: the conditions that are not good, the place of the programs, the switch.
func TestEventing(t *testing.T) {
	e, home := eventingOf(object(t, `
metadata: {namespace: kyma-system, name: eventing}
spec: {backend: {type: nats, config: {natsStreamReplicas: 3, natsStreamMaxSize: 700Mi}}}
status:
  state: Warning
  activeBackend: NATS
  publisherService: other-publisher-proxy.events
  nats: {messages: 3, bytes: 1024, servers: 2, storage: File}
  switch: {from: EventMesh, to: NATS, step: Draining, since: "2026-01-31T11:00:00Z", pending: 3}
  conditions:
  - {type: Served, status: "True", reason: Served, message: "", lastTransitionTime: "2026-01-31T11:00:00Z"}
  - {type: OptionalFeatures, status: "False", reason: Skipped, message: no ServiceMonitor, lastTransitionTime: "2026-01-31T11:00:00Z"}
  - {type: Switching, status: "False", reason: Idle, message: "", lastTransitionTime: "2026-01-31T11:00:00Z"}
  - {type: PodsReady, status: "False", reason: Degraded, message: 2 of 3, lastTransitionTime: "2026-01-31T11:00:00Z"}
`))
	if home.Namespace != "events" || home.Names != "other" {
		t.Errorf("the programs are at %+v", home)
	}
	if !e.Served || e.Good() || e.Backend != "NATS" || e.Switch == nil || e.NATS == nil || e.NATS.Wanted != 3 || e.NATS.MaxBytes != 700<<20 {
		t.Errorf("%+v", e)
	}
	if len(e.Problems) != 1 || e.Problems[0].Reason != "Degraded" || e.Problems[0].Next != "kubectl eventing explain Degraded" {
		t.Errorf("%+v", e.Problems)
	}
}
