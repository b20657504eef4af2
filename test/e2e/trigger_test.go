//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

var (
	triggers      = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}
	brokers       = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "brokers"}
	channels      = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1", Resource: "channels"}
	links         = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1", Resource: "subscriptions"}
	knativeServes = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
)

// recorder is where the events of all subscribers end: a server of the test, which pods reach.
type recorder struct {
	*httptest.Server
	mu sync.Mutex
	// got is how often each event came to each path, by "type version source id".
	got     map[string]map[string]int
	changed chan struct{}
	// answers says how a path answers its n-th request, n from 1. Without one, each request is
	// accepted at once.
	answers map[string]func(n int, w http.ResponseWriter)
	asked   map[string]int
}

func newRecorder(t *testing.T, host string) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{got: map[string]map[string]int{}, changed: make(chan struct{}), answers: map[string]func(int, http.ResponseWriter){}, asked: map[string]int{}}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		r.mu.Lock()
		if r.got[req.URL.Path] == nil {
			r.got[req.URL.Path] = map[string]int{}
		}
		header := req.Header.Get
		r.got[req.URL.Path][fmt.Sprintf("%s %s %s %s", header("Ce-Type"), header("Ce-Eventtypeversion"), header("Ce-Source"), header("Ce-Id"))]++
		r.asked[req.URL.Path]++
		n, answer := r.asked[req.URL.Path], r.answers[req.URL.Path]
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
		if answer != nil {
			answer(n, w)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	_ = r.Listener.Close()
	r.Listener = l
	r.Start()
	t.Cleanup(r.Close)
	return r
}

// await waits until every event that should come has come, and returns all that have, and which
// came more than once.
func (r *recorder) await(ctx context.Context, want map[string][]string) (map[string][]string, error) {
	for {
		r.mu.Lock()
		changed, missing := r.changed, ""
		got := map[string][]string{}
		for path, events := range r.got {
			got[path] = slices.Sorted(maps.Keys(events))
			for event, times := range events {
				if times > 1 {
					got[path] = append(got[path], fmt.Sprintf("%s: %d times", event, times))
				}
			}
		}
		r.mu.Unlock()
		for path, events := range want {
			for _, event := range events {
				if !slices.Contains(got[path], event) {
					missing = event + " at " + path
				}
			}
		}
		if missing == "" {
			return got, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return got, fmt.Errorf("%s has not come: %w", missing, ctx.Err())
		}
	}
}

// awaitReady waits until all objects of a kind in a namespace, as many as are wanted, are Ready in
// the eyes of Knative.
func (c *cluster) awaitReady(t *testing.T, gvr schema.GroupVersionResource, namespace string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	client := c.dynamic.Resource(gvr).Namespace(namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return client.Watch(ctx, o) },
	}
	states := map[string]string{}
	ready := func() bool {
		count := 0
		for _, state := range states {
			if state == "True" {
				count++
			}
		}
		return count == n && len(states) == n
	}
	if n == 0 {
		return
	}
	if _, err := watchtools.UntilWithSync(ctx, lw, &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		delete(states, u.GetName())
		if e.Type != watch.Deleted {
			states[u.GetName()] = readiness(u)
		}
		return ready(), nil
	}); err != nil {
		t.Fatalf("%s of %s are not ready, want %d: %q: %v\n%s", gvr.Resource, namespace, n, states, err, c.describe("knative-eventing"))
	}
}

// readiness is the status of the condition Ready, and the reason if it is not True.
func readiness(u *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range conditions {
		if condition, ok := one.(map[string]any); ok && condition["type"] == "Ready" {
			if condition["status"] == "True" {
				return "True"
			}
			return fmt.Sprint(condition["status"], " ", condition["reason"], " ", condition["message"])
		}
	}
	return "unknown"
}

// application puts an Application in place whose events come into the mesh as they do in Kyma 1.11,
// but for the programs: HTTPSource, Channel and the adapter in front of it, here a relay; and the
// event-service of 1.10.
func (c *cluster) application(t *testing.T, app string) {
	t.Helper()
	c.create(t, standin.Application(app, false), c.eventService(t, app, false))
	c.service(t, standin.IntegrationNamespace, app+"-event-service", app+"-event-service", 8081, 8081)
	channel := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": channels.GroupVersion().String(), "kind": "Channel",
		"metadata": map[string]any{"name": app, "namespace": standin.IntegrationNamespace, "labels": map[string]any{"application-name": app}},
	}}
	adapter := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": knativeServes.GroupVersion().String(), "kind": "Service",
		"metadata": map[string]any{"name": app, "namespace": standin.IntegrationNamespace},
		"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": "adapter"}}}}},
	}}
	for gvr, u := range map[schema.GroupVersionResource]*unstructured.Unstructured{
		channels: channel, knativeServes: adapter, standin.HTTPSources: standin.HTTPSource(app),
	} {
		client := c.dynamic.Resource(gvr).Namespace(standin.IntegrationNamespace)
		if _, err := client.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if gvr == channels {
			continue // it is Knative's own
		}
		status := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		if _, err := client.Patch(t.Context(), app, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
}

// publish posts an event to the event-service of an Application as its clients do, and returns it
// as the recorder spells it.
func (c *cluster) publish(t *testing.T, app, eventType, version, id string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"event-type": eventType, "event-type-version": version, "event-id": id,
		"event-time": time.Now().UTC().Format(time.RFC3339), "data": map[string]any{"order": id},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/services/http:%s-event-service:8081/proxy/%s/v1/events", standin.IntegrationNamespace, app, app)
	answer, err := c.client.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("cannot publish %s: %v: %s\n%s", eventType, err, answer, logs(c.client, standin.IntegrationNamespace, "app="+app+"-event-service"))
	}
	return fmt.Sprintf("%s %s %s %s", eventType, version, app, id)
}

// leadsTo waits until a Service has only endpoints that are pods with an argument: a former pod
// would swallow events until it has ended.
func (c *cluster) leadsTo(t *testing.T, namespace, service, argument string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	lw := cache.NewFilteredListWatchFromClient(c.client.DiscoveryV1().RESTClient(), "endpointslices", namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = discoveryv1.LabelServiceName + "=" + service
	})
	var last []string
	if _, err := watchtools.UntilWithSync(ctx, lw, &discoveryv1.EndpointSlice{}, nil, func(e watch.Event) (bool, error) {
		slice, ok := e.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			return false, nil
		}
		last = nil
		fresh := 0
		for _, endpoint := range slice.Endpoints {
			last = append(last, endpoint.TargetRef.Name)
			pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, endpoint.TargetRef.Name, metav1.GetOptions{})
			if err == nil && pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Spec.Containers[0].Args, func(a string) bool { return strings.HasPrefix(a, argument) }) {
				fresh++
			}
		}
		return fresh > 0 && fresh == len(slice.Endpoints), nil
	}); err != nil {
		t.Fatalf("Service %s/%s leads to the pods %q: %v", namespace, service, last, err)
	}
}

// subscription is a Kyma Subscription as the Event Bus's controller has left it, which is gone.
func subscription(namespace, name, source, eventType, version, endpoint string) *unstructured.Unstructured {
	u := standin.KymaSubscription(namespace, name, source, eventType)
	spec := u.Object["spec"].(map[string]any)
	spec["event_type_version"], spec["endpoint"] = version, endpoint
	delete(spec, "include_subscription_name_header")
	return u
}

func (c *cluster) names(t *testing.T, gvr schema.GroupVersionResource) []string {
	t.Helper()
	list, err := c.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].GetNamespace()+"/"+list.Items[i].GetName())
	}
	slices.Sort(names)
	return names
}

// triggerSync migrates two Applications and two namespaces beside the real Knative Eventing: what
// trigger-sync makes becomes Ready there, an event goes from a client's request to the subscribers'
// endpoints and to nobody else, and the Subscriptions go once that is so.
func triggerSync(t *testing.T) {
	c := knative(t)
	ctx := t.Context()
	subscribers := newRecorder(t, c.Host)
	const one, two = "app-0001", "app-0002"
	c.namespaces(t, standin.SystemNamespace, standin.IntegrationNamespace, "shop", "crm")
	for _, app := range []string{one, two} {
		c.application(t, app)
	}
	c.awaitReady(t, channels, standin.IntegrationNamespace, 2)
	for _, app := range []string{one, two} {
		channel, err := c.dynamic.Resource(channels).Namespace(standin.IntegrationNamespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		url, _, _ := unstructured.NestedString(channel.Object, "status", "address", "url")
		c.relay(t, standin.IntegrationNamespace, app, 80, url)
	}
	// Kyma's Broker has an address of its own in its namespace; the one of today is shared by all.
	for _, namespace := range []string{"shop", "crm"} {
		c.relay(t, namespace, "default-broker", 80, "http://broker-ingress.knative-eventing.svc.cluster.local/"+namespace+"/default")
	}
	for _, link := range []*unstructured.Unstructured{
		standin.Link("v1", one, "shop", "brokersub-1"), standin.Link("v1", one, "crm", "brokersub-2"), standin.Link("v1", two, "crm", "brokersub-3"),
	} {
		if _, err := c.dynamic.Resource(links).Namespace(link.GetNamespace()).Create(ctx, link, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// One namespace has its Broker, the other gets it from the job.
	broker := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": brokers.GroupVersion().String(), "kind": "Broker", "metadata": map[string]any{"name": "default"},
	}}
	if _, err := c.dynamic.Resource(brokers).Namespace("crm").Create(ctx, broker, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Some subscribers are pods behind a Service, some are not in the cluster.
	c.relay(t, "shop", "orders", 8080, subscribers.URL+"/orders")
	for _, sub := range []*unstructured.Unstructured{
		subscription("shop", "created", one, "order.created", "v1", "http://orders.shop:8080/"),
		subscription("shop", "created-too", one, "order.created", "v1", "http://orders.shop.svc.cluster.local:8080"),
		subscription("shop", "cancelled", one, "order.cancelled", "v1", "http://orders.shop:8080/cancelled"),
		subscription("shop", "created-v2", one, "order.created", "v2", subscribers.URL+"/shop"),
		subscription("crm", "created", two, "order.created", "v1", subscribers.URL+"/crm"),
	} {
		if _, err := c.dynamic.Resource(standin.KymaSubscriptions).Namespace(sub.GetNamespace()).Create(ctx, sub, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitReady(t, links, standin.IntegrationNamespace, 3)
	c.awaitReady(t, brokers, "crm", 1)
	for _, name := range []string{one + "-event-service", two + "-event-service", one, two} {
		c.rolledOut(t, standin.IntegrationNamespace, name)
	}
	for _, name := range []string{"default-broker", "orders"} {
		c.rolledOut(t, "shop", name)
	}
	c.rolledOut(t, "crm", "default-broker")

	// A run that fails takes its Triggers and its Broker away again, and with them what Knative
	// made of them.
	activation := standin.EventActivation("crm", "service-1", "app-without-link")
	activation.SetFinalizers(nil)
	c.create(t, activation)
	before := c.names(t, links)
	r, code := c.run(t, "./cmd/trigger-sync", "run", "--activation-timeout=5s")
	want(t, r, code, migration.RolledBack, 1)
	if diff := cmp.Diff([]string{"crm/default"}, c.names(t, brokers)); diff != "" {
		t.Errorf("Brokers after a rollback (-want +got):\n%s", diff)
	}
	if got := c.names(t, triggers); len(got) != 0 {
		t.Errorf("Triggers after a rollback: %q", got)
	}
	if err := c.dynamic.Resource(standin.EventActivations).Namespace("crm").Delete(ctx, "service-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	// Expand: the event-services still post to the Event Bus.
	r, code = c.run(t, "./cmd/trigger-sync", "run")
	want(t, r, code, migration.DeferredResult, 0)
	c.awaitReady(t, brokers, "shop", 1)
	c.awaitReady(t, triggers, "shop", 3)
	c.awaitReady(t, triggers, "crm", 1)
	// One Knative Subscription for each Trigger, and none of the Triggers that were rolled back.
	if got := c.names(t, links); len(got) != len(before)+4 {
		t.Errorf("Knative Subscriptions: %q, want 4 more than %q", got, before)
	}
	if got := c.names(t, standin.KymaSubscriptions); len(got) != 5 {
		t.Errorf("Subscriptions: %q, want all 5", got)
	}
	r, code = c.run(t, "./cmd/trigger-sync", "run")
	want(t, r, code, migration.DeferredResult, 0)
	if r.Requests.Writes != 0 {
		t.Errorf("a second deferred run made %d writes", r.Requests.Writes)
	}

	// Switch.
	for _, app := range []string{one, two} {
		fresh := c.eventService(t, app, true)
		c.upgrade(ctx, t, fresh)
	}
	for _, app := range []string{one, two} {
		c.rolledOut(t, standin.IntegrationNamespace, app+"-event-service")
		c.leadsTo(t, standin.IntegrationNamespace, app+"-event-service", "--eventMeshURL")
	}
	expected := map[string][]string{}
	round := 0
	deliver := func(when string) {
		t.Helper()
		round++
		for i := range 5 {
			id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%04d%04d%04d", round, n, i) }
			for n, event := range []struct{ app, eventType, version, path string }{
				// Whoever subscribed to none of these gets none.
				{app: one, eventType: "order.shipped", version: "v1"},
				{app: two, eventType: "order.cancelled", version: "v1"},
				{app: two, eventType: "order.created", version: "v2"},
				{app: one, eventType: "order.created", version: "v1", path: "/orders/"},
				{app: one, eventType: "order.cancelled", version: "v1", path: "/orders/cancelled"},
				{app: one, eventType: "order.created", version: "v2", path: "/shop"},
				{app: two, eventType: "order.created", version: "v1", path: "/crm"},
			} {
				if spelt := c.publish(t, event.app, event.eventType, event.version, id(n)); event.path != "" {
					expected[event.path] = append(expected[event.path], spelt)
				}
			}
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		got, err := subscribers.await(ctx, expected)
		if err != nil {
			t.Errorf("%s: %v", when, err)
		}
		for path := range expected {
			slices.Sort(expected[path])
		}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("%s: what the subscribers got (-want +got):\n%s", when, diff)
		}
	}
	deliver("after the switch")

	// Contract.
	r, code = c.run(t, "./cmd/trigger-sync", "run", "--defer=fail")
	want(t, r, code, migration.Succeeded, 0)
	if got := c.names(t, standin.KymaSubscriptions); len(got) != 0 {
		t.Errorf("Subscriptions: %q, want none", got)
	}
	deliver("after the Subscriptions are gone")
	// The stored report is corrected once.
	for range 2 {
		r, code = c.run(t, "./cmd/trigger-sync", "run", "--defer=fail")
		want(t, r, code, migration.NothingToDo, 0)
	}
	if r.Requests.Writes != 0 {
		t.Errorf("a run with nothing to do made %d writes", r.Requests.Writes)
	}

	// Backwards: not before somebody takes notice of Subscriptions again; and what carries events
	// stays.
	r, code = c.run(t, "./cmd/trigger-sync", "undo")
	want(t, r, code, migration.Refused, 4)
	for _, d := range standin.EventBus() {
		if d.GetName() == standin.SubscriptionController {
			c.create(t, c.runnable(t, d, "serve", ":8080"))
		}
	}
	c.rolledOut(t, standin.SystemNamespace, standin.SubscriptionController)
	r, code = c.run(t, "./cmd/trigger-sync", "undo")
	want(t, r, code, migration.Succeeded, 0)
	if got := c.names(t, standin.KymaSubscriptions); len(got) != 5 {
		t.Errorf("Subscriptions after an undo: %q, want all 5", got)
	}
	r, code = c.run(t, "./cmd/trigger-sync", "undo")
	want(t, r, code, migration.PartlyRestored, 3)
	c.awaitReady(t, triggers, "shop", 3)
	c.awaitReady(t, triggers, "crm", 1)
	deliver("after an undo")
	if t.Failed() {
		t.Log(strings.Join([]string{c.describe("knative-eventing"), c.describe("shop"), c.describe("crm"), c.describe(standin.IntegrationNamespace)}, "\n"))
	}
}
