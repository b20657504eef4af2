//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

const (
	meshNamespace = "mesh"
	meshBroker    = "eventing"
	// meshLimit is how long a publish may take with the delivery of the Broker below: three times
	// twelve seconds, and the pauses.
	meshLimit = 40 * time.Second
)

// meshDelivery is the delivery of the Broker of eventing.
var meshDelivery = map[string]any{"retry": int64(2), "backoffPolicy": "exponential", "backoffDelay": "PT0.2S", "timeout": "PT12S"}

// mesh is a Broker, and subscribers behind it.
type mesh struct {
	*cluster
	sinks *recorder
}

// trigger lets the events of a type come to a path.
func (m *mesh) trigger(t *testing.T, path, eventType string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": triggers.GroupVersion().String(), "kind": "Trigger", "metadata": map[string]any{"name": path},
		"spec": map[string]any{
			"broker": meshBroker, "filter": map[string]any{"attributes": map[string]any{"type": eventType}},
			"subscriber": map[string]any{"uri": m.sinks.URL + "/" + path},
		},
	}}
	if _, err := m.dynamic.Resource(triggers).Namespace(meshNamespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// post publishes an event, and returns the status of the answer, 0 without one, and how long it
// took.
func (m *mesh) post(ctx context.Context, eventType, id string) (status int, took time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, meshLimit)
	defer cancel()
	began := time.Now()
	path := "/api/v1/namespaces/" + knativeNamespace + "/services/http:broker-ingress:80/proxy/" + meshNamespace + "/" + meshBroker
	result := m.client.CoreV1().RESTClient().Post().AbsPath(path).MaxRetries(0).Body([]byte(`{}`)).
		SetHeader("Content-Type", "application/json").SetHeader("Ce-Specversion", "1.0").SetHeader("Ce-Type", eventType).SetHeader("Ce-Source", "e2e").SetHeader("Ce-Id", id).
		Do(ctx)
	result.StatusCode(&status)
	return status, time.Since(began)
}

// came is how often an event came to each path, those without it left out.
func (m *mesh) came(id string) map[string]int {
	m.sinks.mu.Lock()
	defer m.sinks.mu.Unlock()
	all := map[string]int{}
	for path, events := range m.sinks.got {
		for event, n := range events {
			if strings.HasSuffix(event, " "+id) {
				all[path] = n
			}
		}
	}
	return all
}

func (m *mesh) answer(path string, with func(n int, w http.ResponseWriter)) {
	m.sinks.mu.Lock()
	defer m.sinks.mu.Unlock()
	m.sinks.answers["/"+path] = with
}

// known waits until the dispatcher has every Trigger. Knative says before that they are ready: what
// is published meanwhile is accepted, and does not come (docs/decisions/1201-the-mesh.md).
func (m *mesh) known(t *testing.T, subscribers map[string]string) {
	t.Helper()
	poll.Until(t, time.Minute, "an event comes to every Trigger", func(ctx context.Context) error {
		for _, eventType := range slices.Compact(slices.Sorted(maps.Values(subscribers))) {
			id := "known-" + string(uuid.NewUUID())
			status, _ := m.post(ctx, eventType, id)
			for path, of := range subscribers {
				if of == eventType && m.came(id)["/"+path] == 0 {
					return fmt.Errorf("an event of type %s got %d, and has not come to %s", eventType, status, path)
				}
			}
		}
		return nil
	})
	m.sinks.mu.Lock()
	defer m.sinks.mu.Unlock()
	clear(m.sinks.asked)
}

const knativeNamespace = "knative-eventing"

// meshIsSynchronous: with Channels in memory, an event that the Broker has accepted was delivered
// to every Trigger. What ends the backend EventMesh without loss rests on this
// (docs/decisions/1201-the-mesh.md).
func meshIsSynchronous(t *testing.T) {
	m := &mesh{cluster: knative(t)}
	ctx := t.Context()
	m.sinks = newRecorder(t, m.Host)
	m.namespaces(t, meshNamespace)
	if _, err := m.dynamic.Resource(brokers).Namespace(meshNamespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": brokers.GroupVersion().String(), "kind": "Broker", "metadata": map[string]any{"name": meshBroker}, "spec": map[string]any{"delivery": meshDelivery},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.awaitReady(t, brokers, meshNamespace, 1)
	broker, err := m.dynamic.Resource(brokers).Namespace(meshNamespace).Get(ctx, meshBroker, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	annotations, _, _ := unstructured.NestedStringMap(broker.Object, "status", "annotations")
	if kind := annotations["knative.dev/channelKind"]; kind != "InMemoryChannel" {
		t.Errorf("the kind of Channel behind the Broker is %q in %v", kind, annotations)
	}

	subscribers := map[string]string{
		"slow": "slow", "beside-slow": "slow", "failing": "failing", "beside-failing": "failing", "down": "down", "talking": "talking", "refusing": "refusing",
		"long": "long", "silent": "silent", "steady": "steady", "removed": "steady",
	}
	for _, path := range slices.Sorted(maps.Keys(subscribers)) {
		m.trigger(t, path, subscribers[path])
	}
	m.awaitReady(t, triggers, meshNamespace, len(subscribers))
	m.known(t, subscribers)

	const slow, long = 3 * time.Second, 8 * time.Second
	var repaired atomic.Bool
	status := func(code int) func(int, http.ResponseWriter) {
		return func(_ int, w http.ResponseWriter) { w.WriteHeader(code) }
	}
	m.answer("slow", func(int, http.ResponseWriter) { time.Sleep(slow) })
	m.answer("long", func(int, http.ResponseWriter) { time.Sleep(long) })
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	m.answer("silent", func(int, http.ResponseWriter) { <-end })
	m.answer("talking", func(_ int, w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) })
	m.answer("refusing", status(http.StatusBadRequest))
	m.answer("failing", func(_ int, w http.ResponseWriter) {
		if !repaired.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	m.answer("down", func(n int, w http.ResponseWriter) {
		if n <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})

	// It takes longest, and needs nobody.
	type answered struct {
		status int
		took   time.Duration
	}
	silent := make(chan answered, 1)
	go func() {
		status, took := m.post(ctx, "silent", "silent-1")
		silent <- answered{status, took}
	}()

	accepted := func(status int) bool { return status/100 == 2 }
	for _, tc := range []struct {
		reason, eventType, id string
		before                func()
		accepted              bool
		least                 time.Duration
		came                  map[string]int
	}{
		{reason: "nobody is subscribed", eventType: "nobody", id: "nobody-1", accepted: true, came: map[string]int{}},
		{reason: "a slow sink: the answer comes after it has taken the event", eventType: "slow", id: "slow-1", accepted: true, least: slow, came: map[string]int{"/slow": 1, "/beside-slow": 1}},
		{reason: "a sink that was down is asked again within the publish", eventType: "down", id: "down-1", accepted: true, came: map[string]int{"/down": 3}},
		{reason: "a sink that fails lets the publish fail", eventType: "failing", id: "failing-1", came: map[string]int{"/failing": 3, "/beside-failing": 1}},
		{
			reason: "the client repeats, and the others have the event twice", eventType: "failing", id: "failing-1", accepted: true,
			before: func() { repaired.Store(true) }, came: map[string]int{"/failing": 4, "/beside-failing": 2},
		},
		{reason: "a sink that answers with a body counts as one that fails", eventType: "talking", id: "talking-1", came: map[string]int{"/talking": 3}},
		{reason: "a sink that refuses with 400 lets the publish fail, and is asked once", eventType: "refusing", id: "refusing-1", came: map[string]int{"/refusing": 1}},
	} {
		if tc.before != nil {
			tc.before()
		}
		status, took := m.post(ctx, tc.eventType, tc.id)
		t.Logf("%s: %d after %s", tc.reason, status, took.Round(time.Millisecond))
		if accepted(status) != tc.accepted || took < tc.least {
			t.Errorf("%s: %d after %s, want it accepted %v after at least %s", tc.reason, status, took, tc.accepted, tc.least)
		}
		if diff := cmp.Diff(tc.came, m.came(tc.id)); diff != "" {
			t.Errorf("%s: what has come when the answer was there (-want +got):\n%s", tc.reason, diff)
		}
	}

	m.deletedTrigger(t)
	got := <-silent
	t.Logf("a sink that does not answer: %d after %s", got.status, got.took.Round(time.Millisecond))
	if accepted(got.status) || got.took < 36*time.Second || got.took > meshLimit {
		t.Errorf("a sink that does not answer: %d after %s", got.status, got.took)
	}
	m.killedDispatcher(t, long)
	m.deletedBroker(t)
}

// deletedTrigger publishes while a Trigger is deleted: what is refused meanwhile is repeated, and
// comes to the others.
func (m *mesh) deletedTrigger(t *testing.T) {
	t.Helper()
	if err := m.dynamic.Resource(triggers).Namespace(meshNamespace).Delete(t.Context(), "removed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused, last := 0, time.Duration(0)
	began := time.Now()
	for i := 0; time.Since(began) < 10*time.Second; i++ {
		id := fmt.Sprintf("deleted-%03d", i)
		status, _ := m.post(t.Context(), "steady", id)
		switch {
		case status/100 == 2 && m.came(id)["/steady"] == 0:
			t.Errorf("event %s was accepted, and has not come", id)
		case status/100 != 2:
			refused, last = refused+1, time.Since(began)
		}
	}
	t.Logf("after a Trigger was deleted, %d publishes failed, the last after %s", refused, last.Round(time.Millisecond))
}

// killedDispatcher kills the program behind the Channels while it waits for a sink: the client is
// told of no success.
func (m *mesh) killedDispatcher(t *testing.T, long time.Duration) {
	t.Helper()
	ctx := t.Context()
	done := make(chan int, 1)
	began := time.Now()
	go func() {
		status, _ := m.post(ctx, "long", "long-1")
		done <- status
	}()
	poll.Until(t, long, "the sink has the event", func(context.Context) error {
		if m.came("long-1")["/long"] == 0 {
			return errors.New("it has not come")
		}
		return nil
	})
	now := int64(0)
	if err := m.client.CoreV1().Pods(knativeNamespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{
		LabelSelector: "messaging.knative.dev/channel=in-memory-channel,messaging.knative.dev/role=dispatcher",
	}); err != nil {
		t.Fatal(err)
	}
	status := <-done
	t.Logf("the dispatcher was killed: %d after %s", status, time.Since(began).Round(time.Millisecond))
	if status/100 == 2 {
		t.Errorf("the dispatcher was killed during a publish, and the client was told %d", status)
	}
	m.rolledOut(t, knativeNamespace, "imc-dispatcher")
	// Nothing is accepted before the new dispatcher knows the Triggers.
	gap := time.Now()
	for i := 0; ; i++ {
		id := fmt.Sprintf("again-%03d", i)
		status, _ := m.post(ctx, "steady", id)
		if status/100 != 2 && time.Since(gap) < time.Minute {
			continue
		}
		t.Logf("the dispatcher is there again, and %d publishes failed: %d after %s", i, status, time.Since(gap).Round(time.Millisecond))
		if status/100 != 2 || m.came(id)["/steady"] == 0 {
			t.Errorf("after the dispatcher was killed: %d, and the event came to %v", status, m.came(id))
		}
		return
	}
}

// deletedBroker: who publishes to a Broker that is gone is refused, and nothing is accepted that
// does not come.
func (m *mesh) deletedBroker(t *testing.T) {
	t.Helper()
	if err := m.dynamic.Resource(brokers).Namespace(meshNamespace).Delete(t.Context(), meshBroker, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	statuses := map[int]int{}
	for i := 0; ; i++ {
		id := fmt.Sprintf("gone-%03d", i)
		status, _ := m.post(t.Context(), "steady", id)
		statuses[status]++
		if status/100 == 2 && m.came(id)["/steady"] == 0 {
			t.Errorf("event %s was accepted while the Broker is deleted, and has not come", id)
		}
		if status == http.StatusNotFound {
			break
		}
		if time.Since(began) > time.Minute {
			t.Errorf("the Broker is deleted, and the last answer is %d", status)
			break
		}
	}
	t.Logf("after the Broker was deleted, the answers until 404 were %v, within %s", statuses, time.Since(began).Round(time.Millisecond))
}
