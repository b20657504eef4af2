package takeover

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/valid"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = utiljson.Unmarshal(raw, &u.Object) // numbers as the API server has them
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// readyToGo is a cluster in which nothing is in the way.
func readyToGo(t *testing.T) *snapshot {
	t.Helper()
	sub := &eventingv1alpha2.Subscription{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}}
	sub.Spec.Sink, sub.Spec.Source, sub.Spec.Types = "http://orders.shop.svc.cluster.local", "commerce", []string{"order.created.v1"}
	sub.Spec.TypeMatching = eventingv1alpha2.Standard
	return &snapshot{
		namespace: Namespace, names: "eventing-next", oursIsServed: true, natsIsServed: true, pods: map[string]int{},
		eventing:       object(t, `{metadata: {name: eventing, namespace: kyma-system}, spec: {backend: {type: NATS}}}`),
		theirOperator:  object(t, `{kind: Deployment, metadata: {name: eventing-manager, namespace: kyma-system}, spec: {replicas: 1}}`),
		theirPublisher: object(t, `{kind: Deployment, metadata: {name: eventing-publisher-proxy, namespace: kyma-system}, spec: {replicas: 2, template: {metadata: {labels: {a: b, c: d}}}}}`),
		ourOperator:    object(t, `{kind: Deployment, metadata: {name: eventing-next-manager, namespace: kyma-system}, spec: {replicas: 0}}`),
		nats:           object(t, `{metadata: {name: eventing-nats, namespace: kyma-system}}`),
		service:        object(t, `{metadata: {name: eventing-publisher-proxy, namespace: kyma-system}, spec: {selector: {a: b}}}`),
		theirServers:   object(t, `{metadata: {name: eventing-nats, namespace: kyma-system}, spec: {replicas: 1}}`),
		theirs:         &Backlog{Stream: true, Messages: 5, Waiting: 5},
		subscriptions:  []*subscription{{Subscription: sub}},
		services:       map[string]bool{"shop/orders": true},
	}
}

// TestFindings: what was seen to go wrong stops the plan before its first write, by name.
func TestFindings(t *testing.T) {
	deleted := metav1.Now()
	for _, tc := range []struct {
		id, object string
		severity   migration.Severity
		change     func(*snapshot)
	}{
		{"no-eventing", "Eventing kyma-system/eventing", migration.Error, func(s *snapshot) { s.eventing = nil }},
		{"eventing-is-deleted", "Eventing kyma-system/eventing", migration.Error, func(s *snapshot) { s.eventing.SetDeletionTimestamp(&deleted) }},
		{"no-kyma-operator", "Deployment kyma-system/eventing-manager", migration.Error, func(s *snapshot) { s.theirOperator = nil }},
		{"no-kyma-publisher", "Deployment kyma-system/eventing-publisher-proxy", migration.Error, func(s *snapshot) { s.service = nil }},
		{"no-kyma-publisher", "Deployment kyma-system/eventing-publisher-proxy", migration.Error, func(s *snapshot) { s.theirPublisher = nil }},
		{"backend-not-nats", "Eventing kyma-system/eventing", migration.Error, func(s *snapshot) {
			_ = unstructured.SetNestedField(s.eventing.Object, "EventMesh", "spec", "backend", "type")
		}},
		{"module-is-managed", "Kyma kyma-system/default", migration.Error, func(s *snapshot) {
			s.modules = []module{{kyma: kyma{namespace: "kyma-system", name: "default"}, name: "eventing", listed: true, managed: true}}
		}},
		{"no-nats-kind", "CustomResourceDefinition nats.operator.kyma-project.io", migration.Error, func(s *snapshot) { s.natsIsServed = false }},
		{"no-nats", "NATS kyma-system/eventing-nats", migration.Error, func(s *snapshot) { s.nats = nil }},
		{"nats-is-deleted", "NATS kyma-system/eventing-nats", migration.Warning, func(s *snapshot) { s.nats.SetDeletionTimestamp(&deleted) }},
		{"no-account", "ServiceAccount kyma-system/eventing-next-controller", migration.Error, func(s *snapshot) { s.accountless = []string{"eventing-next-controller"} }},
		{"another-eventing", "Eventing shop/mine", migration.Error, func(s *snapshot) { s.eventings = []string{"shop/mine"} }},
		{"half-applied", "Deployment of our operator in namespace kyma-system", migration.Error, func(s *snapshot) { s.names = "" }},
		{"ours-not-installed", "Deployment of our operator in namespace kyma-system", migration.Error, func(s *snapshot) { s.names, s.oursIsServed = "", false }},
		{"ours-has-their-names", "Deployment kyma-system/eventing-next-manager", migration.Error, func(s *snapshot) { s.names = "eventing" }},
		{"definitions-not-ours", "CustomResourceDefinition subscriptions.eventing.kyma-project.io", migration.Error, func(s *snapshot) { s.oursIsServed = false }},
		{"eventing-not-valid", "Eventing kyma-system/eventing", migration.Error, func(s *snapshot) { s.refused = errors.New("natsStreamMaxSize is too large") }},
		{"account-has-an-owner", "ServiceAccount kyma-system/eventing-next-controller", migration.Error, func(s *snapshot) { s.claimed = []string{"eventing-next-controller"} }},
		{"subscription-not-served", "Subscription shop/orders", migration.Error, func(s *snapshot) {
			s.subscriptions[0].Spec.Types = []string{"created"}
			s.subscriptions[0].problems = valid.Problems(s.subscriptions[0].Subscription)
		}},
		{"subscription-is-deleted", "Subscription shop/orders", migration.Error, func(s *snapshot) { s.subscriptions[0].DeletionTimestamp = &deleted }},
		{"subscription-is-deleted", "Subscription shop/orders", migration.Warning, func(s *snapshot) {
			s.subscriptions[0].DeletionTimestamp = &deleted
			s.policy = object(t, `{metadata: {name: eventing-take-over}}`) // nobody may be there who removes its finalizer
		}},
		{"sink-without-service", "Subscription shop/orders", migration.Warning, func(s *snapshot) { delete(s.services, "shop/orders") }},
		{"nats-not-read", "StatefulSet kyma-system/eventing-nats", migration.Deferred, func(s *snapshot) { s.theirs, s.theirsErr = nil, errors.New("no connection") }},
		{"other-streams", "StatefulSet kyma-system/eventing-nats", migration.Warning, func(s *snapshot) { s.theirs.Others = []string{"mine"} }},
		{"other-consumers", "StatefulSet kyma-system/eventing-nats", migration.Warning, func(s *snapshot) { s.theirs.Consumers = []string{"mine"} }},
		{"no-kyma-nats", "StatefulSet kyma-system/eventing-nats", migration.Warning, func(s *snapshot) { s.theirServers, s.theirs = nil, nil }},
		{"", "", "", func(*snapshot) {}},
		{"", "", "", func(s *snapshot) { s.theirs.Consumers = s.subscriptions[0].theirConsumers() }},
	} {
		s := readyToGo(t)
		tc.change(s)
		plan := decide(s, options{to: Over})
		if tc.id == "" {
			if len(plan.Findings) > 0 || len(plan.Units) != 1 || plan.Units[0].ID != "over/freeze" {
				t.Errorf("nothing is in the way: %+v", plan)
			}
			continue
		}
		i := slices.IndexFunc(plan.Findings, func(f migration.Finding) bool { return f.ID == tc.id })
		if i < 0 {
			t.Errorf("%s is not found: %v", tc.id, plan.Findings)
			continue
		}
		f := plan.Findings[i]
		if f.Object != tc.object || f.Severity != tc.severity || f.Problem == "" {
			t.Errorf("%s: %+v", tc.id, f)
		}
		if f.Severity != migration.Warning && (f.Command == "" || len(plan.Units) > 0) {
			t.Errorf("%s has no next command, or does not stop the plan: %+v", tc.id, plan)
		}
	}
}

// TestNATSIsDeleted: a NATS that is being deleted loses its volumes. Nobody goes back to it, and
// who goes over is told what to do in each state.
func TestNATSIsDeleted(t *testing.T) {
	deleted := metav1.Now()
	s := readyToGo(t)
	s.nats.SetDeletionTimestamp(&deleted)
	s.theirPublisher.Object["spec"].(map[string]any)["replicas"] = int64(0)
	s.theirs.Bound = s.subscriptions[0].theirConsumers()
	s.theirs.Consumers = s.theirs.Bound
	finding := func(to Direction) (is migration.Finding) {
		for _, f := range decide(s, options{to: to}).Findings {
			if f.ID == "nats-is-deleted" {
				is = f
			}
		}
		return is
	}
	if why := s.unsafe(openPublisher); finding(Back).Severity != migration.Error || !strings.Contains(why, "being deleted") {
		t.Errorf("Kyma's publisher would accept events again: %q, %+v", why, finding(Back))
	}
	if f := finding(Over); f.Severity != migration.Warning || f.Command != "" {
		t.Errorf("it holds events: %+v", f)
	}
	s.theirs.Messages, s.theirs.Waiting = 0, 0
	if f := finding(Over); f.Severity != migration.Warning || !strings.Contains(f.Command, "--replicas=0") {
		t.Errorf("it is empty, and its consumers keep it: %+v", f)
	}
	s.nats.SetDeletionTimestamp(nil)
	if why := s.unsafe(openPublisher); why != "" || finding(Back).ID != "" {
		t.Errorf("it is not being deleted: %q, %+v", why, finding(Back))
	}
}

// TestKymaIsRemoved: who has gone over does not need Kyma's operator, its NATS or their kind any
// more, and who goes back does.
func TestKymaIsRemoved(t *testing.T) {
	s := readyToGo(t)
	s.theirOperator, s.theirPublisher, s.theirServers, s.theirs, s.nats, s.natsIsServed = nil, nil, nil, nil, nil, false
	stops := func(to Direction) (all []string) {
		for _, f := range decide(s, options{to: to}).Findings {
			if f.Severity == migration.Error {
				all = append(all, f.ID)
			}
		}
		return all
	}
	if got := stops(Over); got != nil {
		t.Errorf("over: %v", got)
	}
	if got := stops(Back); !slices.Equal(got, []string{"no-kyma-operator"}) {
		t.Errorf("back: %v", got)
	}
	s.theirsErr = errors.New("no connection") // nobody knows whether it is empty
	if got := stops(Over); !slices.Equal(got, []string{"no-kyma-operator"}) {
		t.Errorf("over, with a NATS that nobody has read: %v", got)
	}
}

// TestSinkWithoutService: Kyma's operator makes no consumer then, and an event for it is gone. One
// that is there keeps events.
func TestSinkWithoutService(t *testing.T) {
	s := readyToGo(t)
	s.services, s.theirPublisher.Object["spec"].(map[string]any)["replicas"] = nil, int64(0)
	stops := func() bool {
		return slices.ContainsFunc(decide(s, options{to: Back}).Findings, func(f migration.Finding) bool { return f.ID == "sink-without-service" && f.Severity == migration.Error })
	}
	if why := s.unsafe(openPublisher); !stops() || !strings.Contains(why, "Service shop/orders does not exist") {
		t.Errorf("Kyma's publisher would be opened without a consumer: %q", why)
	}
	s.theirs.Consumers = s.subscriptions[0].theirConsumers()
	if why := s.unsafe(openPublisher); stops() || why != "" {
		t.Errorf("a consumer that is there keeps events: %q", why)
	}
	s.theirs.Consumers = nil
	deleted := metav1.Now()
	s.subscriptions[0].DeletionTimestamp = &deleted
	if why := s.unsafe(openPublisher); stops() || why != "" || unserved(s.subscriptions[0], "1") != "" {
		t.Errorf("one that is being deleted needs no consumer: %q", why)
	}
}

// TestWaiting: who waits is named, and why.
func TestWaiting(t *testing.T) {
	s := readyToGo(t)
	s.theirs.waits, s.services = map[string]int64{s.subscriptions[0].theirConsumers()[0]: 5}, nil
	f := s.waits(awaitTheirDrain)
	for _, want := range []string{"Subscription shop/orders (5 events)", "Service shop/orders does not exist"} {
		if f == nil || !strings.Contains(f.Note, want) {
			t.Errorf("%q is not in %+v", want, f)
		}
	}
}

// TestBacklog: what one of three servers still holds is held, and what nobody waits for was given
// up.
func TestBacklog(t *testing.T) {
	answer := func(messages, pending string) string {
		return `{"account_details":[{"stream_detail":[{"name":"sap","state":{"messages":` + messages + `,"last_seq":9},"consumer_detail":[{"name":"c","num_pending":` + pending + `,"num_ack_pending":0,"push_bound":true}]},{"name":"other","state":{"messages":3}}]}]}`
	}
	for _, tc := range []struct {
		answers []string
		drained bool
		givenUp int64
	}{
		{[]string{answer("0", "0"), answer("0", "0")}, true, 0},
		{[]string{answer("0", "0"), answer("2", "1"), answer("0", "0")}, false, 0},
		{[]string{answer("4", "0")}, false, 4},
		{[]string{`{}`}, true, 0},
	} {
		s := readyToGo(t)
		s.theirServers.Object["spec"].(map[string]any)["replicas"] = int64(len(tc.answers))
		asked := 0
		s.readStreams(t.Context(), func(context.Context, string, string, int, string) ([]byte, error) {
			asked++
			return []byte(tc.answers[asked-1]), nil
		})
		if s.theirs == nil || s.theirs.Drained() != tc.drained || s.theirs.GivenUp() != tc.givenUp || s.theirs.waits["c"] != s.theirs.Waiting {
			t.Errorf("%v: %+v, %v", tc.answers, s.theirs, s.theirsErr)
		}
		if tc.givenUp > 0 {
			if s.leaving(options{leaveGivenUp: true}); !s.theirs.Drained() {
				t.Error("what was given up is waited for, although nobody wants it")
			}
		}
	}
	s := readyToGo(t)
	s.readStreams(t.Context(), func(context.Context, string, string, int, string) ([]byte, error) { return nil, errors.New("refused") })
	if is := s.state(); is.TheirDrained || s.theirsErr == nil || !strings.Contains(s.theirsErr.Error(), "eventing-nats-0") {
		t.Errorf("what nobody could read counts as drained: %+v %v", is, s.theirsErr)
	}
}

// TestTheirConsumer are names that Kyma's operator gives: pkg/backend/jetstream/utils.go.
func TestTheirConsumer(t *testing.T) {
	if a, b := theirConsumer("shop", "orders", "com.merce", "order.created.v1", false), theirConsumer("shop", "orders", "commerce", "order.created.v1", false); a != b || len(a) != 32 {
		t.Errorf("%s, %s", a, b)
	}
	if a, b := theirConsumer("shop", "orders", "x", "commerce.order.created.v1", true), theirConsumer("shop", "orders", "commerce", "order.created.v1", false); a != b {
		t.Errorf("exact: %s, %s", a, b)
	}
}

// TestUnsafe: a step that would leave clients, or events, with nobody is left.
func TestUnsafe(t *testing.T) {
	up := `{metadata: {name: x, generation: 1}, spec: {replicas: 1, template: {metadata: {labels: {a: b}}}}, status: {observedGeneration: 1, updatedReplicas: 1, availableReplicas: 1}}`
	s := readyToGo(t)
	for _, n := range []step{makeBridge, closePublisher, leadToOurs, leadToTheirs, openPublisher, removeBridge} {
		if s.unsafe(n) == "" {
			t.Errorf("%s is made at once", n)
		}
	}
	s.bridge = object(t, up)
	for _, n := range []step{closePublisher, leadToTheirs} {
		if why := s.unsafe(n); why != "" {
			t.Errorf("%s: %s", n, why)
		}
	}
	s.theirs.Bound = s.subscriptions[0].theirConsumers()
	if why := s.unsafe(openPublisher); why != "" {
		t.Error(why)
	}
	s.theirPublisher = object(t, up)
	if why := s.unsafe(removeBridge); why != "" {
		t.Error(why)
	}
}

// TestUnreadIsNotEmpty: a way does not end because nobody can read what ours holds.
func TestUnreadIsNotEmpty(t *testing.T) {
	s := readyToGo(t)
	s.oursErr = errors.New("no connection")
	if f := s.waits(awaitOurDrain); f == nil || f.ID != "nats-not-read" {
		t.Errorf("%+v", f)
	}
	if is := s.state(); is.OurDrained {
		t.Errorf("%+v", is)
	}
	if plan := decide(s, options{to: Over}); len(plan.Units) != 1 {
		t.Errorf("the way over needs nothing of our NATS: %+v", plan)
	}
}

// TestInstallIsDocumented: what a finding says is what the document says, and what the tests of
// test/integration/takeover install with.
func TestInstallIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/eventing/coming-from-kyma.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n"+Install+"\n") {
		t.Errorf("docs/eventing/coming-from-kyma.md has not the command %s", Install)
	}
}
