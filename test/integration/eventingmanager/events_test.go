package eventingmanager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

// withSinks has sinks that the controller finds.
func (s *site) withSinks() *sinks.Sinks {
	s.t.Helper()
	all := sinks.Start(s.t)
	s.pods.More[eventingpods.Controller] = []string{"--dns-server=" + all.DNS}
	return all
}

// subscribe creates a Subscription in the namespace of the site, with the sink of its name, and its
// Service.
func (s *site) subscribe(to *sinks.Sinks, name string, spec string) {
	s.t.Helper()
	s.create(services, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {ports: [{port: 80}]}}", name))
	s.create(subscriptions, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: %s}, spec: {sink: %q, %s}}", name, to.URL(name, s.namespace), spec))
}

func (s *site) awaitSubscription(name string) {
	s.t.Helper()
	poll.Until(s.t, time.Minute, "Subscription "+name+" is ready", func(context.Context) error {
		u, err := s.get(subscriptions, name)
		if err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedBool(u.Object, "status", "ready"); !ready {
			return fmt.Errorf("%v", u.Object["status"])
		}
		return nil
	})
}

// http is a client of the publisher.
func (s *site) http() *http.Client {
	return &http.Client{Timeout: 15 * time.Second, Transport: s.pods.Service(eventingpods.Publisher, 8080)}
}

// publisherURL is for clients of the site.
const publisherURL = "http://publisher"

// ask sends a request to the publisher.
func ask(ctx context.Context, client *http.Client, method, path string, header map[string]string, body string) (status int, answer string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, publisherURL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for key, value := range header {
		request.Header.Set(key, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}

func created(id string) map[string]string {
	return map[string]string{"Ce-Specversion": "1.0", "Ce-Id": id, "Ce-Source": "commerce", "Ce-Type": "order.created.v1", "Content-Type": "application/json", "Ce-Color": "blue"}
}

// TestEvents: what clients send to the publisher arrives at the sinks. A deletion waits for the
// Subscriptions, and leaves nothing.
func TestEvents(t *testing.T) {
	s := newSite(t, "events")
	to := s.withSinks()
	s.start()
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	s.installed()
	s.awaitSubscription("orders")

	client := s.http()
	const body = `{"order": 7}`
	status, answer, err := ask(t.Context(), client, http.MethodPost, "/publish", created("e1"), body)
	if err != nil || status != http.StatusNoContent && status != http.StatusOK {
		t.Fatalf("%d %s, %v", status, answer, err)
	}
	to.Await(t, "orders", 30*time.Second, "e1")
	got := to.Of("orders")[0]
	want := map[string]string{}
	for key, value := range created("e1") {
		want[key] = value
	}
	have := map[string]string{}
	for key := range want {
		have[key] = got.Header.Get(key)
	}
	if diff := cmp.Diff(want, have); diff != "" || got.Body != body || got.URI != "/events?a=b" {
		t.Errorf("the sink got %s %q (-want +got):\n%s", got.URI, got.Body, diff)
	}

	const legacy = `{"event-type":"order.created","event-type-version":"v1","event-id":"8b1a9953-4c5d-4a34-8f6e-2f3b0a8c1d2e","event-time":"2026-11-23T10:00:00Z","data":{"order":8}}`
	status, answer, err = ask(t.Context(), client, http.MethodPost, "/commerce/v1/events", map[string]string{"Content-Type": "application/json"}, legacy)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%d %s, %v", status, answer, err)
	}
	to.Await(t, "orders", 30*time.Second, "8b1a9953-4c5d-4a34-8f6e-2f3b0a8c1d2e")
	if got := to.Of("orders")[1]; got.Body != `{"order":8}` || got.Header.Get("Ce-Type") != "order.created.v1" || got.Header.Get("Ce-Source") != "commerce" {
		t.Errorf("the sink got %q %v", got.Body, got.Header)
	}
	status, answer, err = ask(t.Context(), client, http.MethodGet, "/commerce/v1/events/subscribed", nil, "")
	if err != nil || status != http.StatusOK || !strings.Contains(answer, "order.created") {
		t.Errorf("%d %s, %v", status, answer, err)
	}

	s.remove(metav1.DeletePropagationBackground)
	s.await(time.Minute, operatorv1alpha1.StateWarning, operatorv1alpha1.ConditionDeleted, operatorv1alpha1.ReasonSubscriptions)
	if status, _, err := ask(t.Context(), client, http.MethodPost, "/publish", created("e2"), body); err != nil || status/100 != 2 {
		t.Errorf("while the deletion waits, the publisher answers %d, %v", status, err)
	}
	to.Await(t, "orders", 30*time.Second, "e2")
	s.delete(subscriptions, "orders")
	s.gone(time.Minute)
	if left := s.left(false); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestEventsThroughKills: the publisher, the controller and NATS are killed in turns while events
// are published. No event that was accepted is lost, and the order is kept where it is promised.
func TestEventsThroughKills(t *testing.T) {
	s := newSite(t, "kills")
	to := s.withSinks()
	// Another process delivers well before the next kill of the controller.
	s.pods.More[eventingpods.Controller] = append(s.pods.More[eventingpods.Controller], "--lease-duration=2s")
	s.start()
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	s.subscribe(to, "ordered", "source: commerce, types: [order.created.v1], config: {maxInFlightMessages: '1'}")
	s.installed()
	s.awaitSubscription("orders")
	s.awaitSubscription("ordered")

	duration := 15 * time.Second
	if all {
		duration = 2 * time.Minute
	}
	p := prober.New([]prober.Target{{Application: "commerce", EventType: "order.created", URL: publisherURL + "/commerce/v1/events"}},
		prober.Options{Client: s.http(), MaxPending: 1}) // one after the other, so that they have an order
	to.Answer("orders", p.ServeHTTP)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	killing := make(chan struct{})
	go func() {
		defer close(killing)
		s.killing(ctx, duration/6)
	}()
	p.Run(ctx)
	<-killing
	waiting, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	if err := p.Await(waiting); err != nil {
		t.Error(err)
	}
	r := p.Report()
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 || r.Accepted < 50 {
		t.Errorf("events were lost, or not taken:\n%s", r)
	}
	var accepted []string
	for _, id := range to.IDs("orders") {
		if !slices.Contains(accepted, id) {
			accepted = append(accepted, id)
		}
	}
	to.Await(t, "ordered", 90*time.Second, accepted...)
	inOrder(t, to.Of("ordered"))
	t.Logf("the prober's report:\n%s", r)
	for _, name := range []string{"orders", "ordered"} {
		s.delete(subscriptions, name)
	}
}

// killing kills the controller, NATS and the publisher in turns, until the context ends.
func (s *site) killing(ctx context.Context, every time.Duration) (kills int) {
	for ; ctx.Err() == nil; kills++ {
		program := []string{eventingpods.Controller, "nats-server", eventingpods.Publisher}[kills%3]
		s.node.Kill(func(pod *corev1.Pod) bool { return node.Program(pod) == program })
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
	return kills
}

// inOrder checks that nothing came for the first time after something newer. What was delivered
// when a process was killed may come again.
func inOrder(t *testing.T, requests []sinks.Request) {
	t.Helper()
	seen, last := map[string]bool{}, -1
	for _, r := range requests {
		var data struct{ Number int }
		if err := json.Unmarshal([]byte(r.Body), &data); err != nil {
			t.Fatal(err)
		}
		if !seen[r.ID] && data.Number < last {
			t.Errorf("event %d comes for the first time after %d", data.Number, last)
		}
		seen[r.ID], last = true, max(last, data.Number)
	}
}
