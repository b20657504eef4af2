package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSubscription follows one Subscription from its creation, while the stream is closed, to its
// deletion.
func TestSubscription(t *testing.T) {
	r := newRig(t, false)
	mark, markErr := cluster.Mark(t.Context())
	r.controller("pod-1")
	r.subscribe("orders", "order.created.v1", "")
	s := r.await("orders", "ready while the stream is closed", ready)
	epoch := r.followed(t, "pod-1").Epoch
	name := backend.ConsumerName(r.namespace, "orders")
	s.Status.Conditions = slices.Clone(s.Status.Conditions)
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	s.Status.Delivery = nil // it comes with the first look, which may be now
	want := eventingv1alpha2.SubscriptionStatus{
		Ready:    true,
		Types:    []eventingv1alpha2.EventType{{OriginalType: "order.created.v1", CleanType: "order.created.v1"}},
		Backend:  eventingv1alpha2.BackendStatus{Types: []eventingv1alpha2.BackendEventType{{OriginalType: "order.created.v1", ConsumerName: name}}},
		Backends: []eventingv1alpha2.BackendReadiness{{Type: "NATS", Ready: true, ObservedGeneration: 1, Serving: "NATS", Epoch: epoch}},
		Conditions: []eventingv1alpha2.Condition{
			{Type: eventingv1alpha2.ConditionSpecValid, Status: "True", Reason: eventingv1alpha2.ReasonSpecValid},
			{Type: eventingv1alpha2.ConditionActive, Status: "True", Reason: eventingv1alpha2.ReasonNATSActive},
			{
				Type: eventingv1alpha2.ConditionDelivering, Status: "False", Reason: eventingv1alpha2.ReasonRetrying,
				Message: "Service " + r.namespace + "/orders does not exist: create it. Events wait, and are sent again",
			},
		},
	}
	if diff := cmp.Diff(want, s.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{eventingv1alpha2.Finalizer}, s.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if markErr == nil {
		writes, err := cluster.Requests(t.Context(), mark, func(q kubernetes.Request) bool {
			return kubernetes.IsWrite(q) && kubernetes.By("eventing-controller")(q) && q.Name == "orders"
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(writes) > 5 {
			t.Errorf("%d writes until the Subscription was ready, want at most 5: %v", len(writes), writes)
		}
	}
	info, err := r.consumer(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	// Fields that the server adds do not count as a difference, or the consumer would be written
	// again and again.
	for filter, differs := range map[string]bool{"kyma.commerce.order.created.v1": false, "kyma.commerce.order.created.v2": true} {
		if stream.ConsumerDiffers(info.Config, stream.Consumer(r.namespace, "orders", []string{filter}, false)) != differs {
			t.Errorf("a consumer with the filter %s differs from %+v: want %v", filter, info.Config, differs)
		}
	}

	// Its Service comes.
	service := object(t, "{apiVersion: v1, kind: Service, metadata: {name: orders}, spec: {ports: [{port: 80}]}}")
	if _, err := r.client.Resource(namespaces.GroupVersion().WithResource("services")).Namespace(r.namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("orders", "the sink is there", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionDelivering, eventingv1alpha2.ReasonDelivering)
	})

	// An event, as it is published.
	r.open(true)
	m := event("order.created.v1", "1", `{"a": "ü"}`)
	m.Header["ce-time"], m.Header["ce-extension1"], m.Header["traceparent"] = []string{"2026-11-22T10:00:00Z"}, []string{"x y"}, []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if _, err := r.publisher.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.sinks.Await(t, "orders", limit, "1")
	first := r.sinks.Of("orders")[0]
	wantHeader := http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"commerce"}, "Ce-Type": {"order.created.v1"}, "Ce-Originaltype": {"order.created.v1"}, "Ce-Time": {"2026-11-22T10:00:00Z"}, "Ce-Extension1": {"x y"},
		"Content-Type": {"application/json"}, "Content-Length": {"11"}, "User-Agent": {"eventing-controller"}, "Traceparent": m.Header["traceparent"],
	}
	if diff := cmp.Diff(wantHeader, first.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if first.Method != http.MethodPost || first.URI != "/events?a=b" || first.Body != `{"a": "ü"}` {
		t.Errorf("the request is %s %s with %s", first.Method, first.URI, first.Body)
	}
	r.awaitEmpty(t)

	// More types, in order.
	r.patch("orders", `{"spec": {"types": ["order.created.v1", "order.paid.v1"], "config": {"maxInFlightMessages": "1"}}}`)
	r.await("orders", "ready with more types", ready)
	if info, err = r.consumer(t.Context(), "orders"); err != nil || info.Config.MaxAckPending != 1 || len(info.Config.FilterSubjects) != 2 {
		t.Errorf("the consumer was not updated: %+v, %v", info, err)
	}
	r.publish("order.paid.v1", "2")
	r.sinks.Await(t, "orders", limit, "2")

	// A sink in another namespace: the consumer stays, without delivery.
	elsewhere := fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", "default"))
	r.patch("orders", elsewhere)
	s = r.await("orders", "invalid", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionSpecValid, eventingv1alpha2.ReasonSpecInvalid)
	})
	if s.Status.Ready || condition(s, eventingv1alpha2.ConditionActive, eventingv1alpha2.ReasonNATSNotActive) != "" || !strings.Contains(s.Status.Conditions[0].Message, "sink is in namespace") {
		t.Errorf("a Subscription with a sink in another namespace: %+v", s.Status)
	}
	r.publish("order.paid.v1", "3")
	poll.Until(t, limit, "event 3 waits", func(ctx context.Context) error {
		info, err := r.consumer(ctx, "orders")
		if err == nil && info.NumPending != 1 {
			err = fmt.Errorf("%d events wait", info.NumPending)
		}
		return err
	})
	if ids := r.sinks.IDs("orders"); slices.Contains(ids, "3") {
		t.Errorf("event 3 was delivered: %v", ids)
	}
	r.patch("orders", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("orders", r.namespace)))
	r.sinks.Await(t, "orders", limit, "3")

	// The end.
	r.delete("orders")
	poll.Until(t, limit, "the Subscription is gone", func(ctx context.Context) error {
		_, err := r.get(ctx, "orders")
		return poll.Gone(err)
	})
	if _, err := r.consumer(t.Context(), "orders"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer of a deleted Subscription: %v", err)
	}
}

// said reads what a ConfigMap has.
func (r *rig) said(ctx context.Context, name string) (map[string]string, error) {
	u, err := r.client.Resource(configMaps).Namespace(r.control).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	return data, err
}

// followed waits until the controller says that it follows the present backends.
func (r *rig) followed(t *testing.T, pod string) backend.ControllerState {
	t.Helper()
	var state backend.ControllerState
	poll.Until(t, limit, pod+" follows the backends", func(ctx context.Context) error {
		data, err := r.said(ctx, backend.Names(backend.DefaultPrefix).Backends())
		if err != nil {
			return err
		}
		b, err := backend.ParseBackends(data)
		if err != nil {
			return err
		}
		if data, err = r.said(ctx, backend.Names(backend.DefaultPrefix).ControllerState()); err != nil {
			return err
		}
		if state, err = backend.ParseControllerState(data); err == nil && (!state.Follows(b) || state.Leader != pod) {
			err = fmt.Errorf("%+v", state)
		}
		return err
	})
	return state
}

// awaitEmpty waits until NATS holds no event any more.
func (r *rig) awaitEmpty(t *testing.T) {
	t.Helper()
	poll.Until(t, limit, "NATS holds no event", func(ctx context.Context) error {
		s, err := r.manager.Stream(ctx, backend.Stream)
		if err == nil && s.CachedInfo().State.Msgs > 0 {
			err = fmt.Errorf("%d events", s.CachedInfo().State.Msgs)
		}
		return err
	})
}

// TestSinks: whatever a sink does, it gets each event, and no sink holds up another one.
func TestSinks(t *testing.T) {
	r := newRig(t, true)
	var failed, asked atomic.Int32
	r.sinks.Answer("slow", func(http.ResponseWriter, *http.Request) { time.Sleep(200 * time.Millisecond) })
	r.sinks.Answer("failing", func(w http.ResponseWriter, _ *http.Request) {
		if failed.Add(1) <= 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	r.sinks.Answer("talking", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("no CloudEvent ", 10_000)))
	})
	r.sinks.Answer("redirecting", func(w http.ResponseWriter, q *http.Request) {
		if len(r.sinks.IDs("redirecting")) == 1 {
			http.Redirect(w, q, r.sinks.URL("elsewhere", r.namespace), http.StatusTemporaryRedirect)
		}
	})
	r.sinks.Answer("busy", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	r.sinks.Answer("ordered", func(w http.ResponseWriter, q *http.Request) {
		if ids := r.sinks.IDs("ordered"); q.Header.Get("Ce-Id") == "e00003" && len(ids) <= 5 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r.sinks.Answer("parallel", func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) })
	all := []string{"slow", "failing", "talking", "redirecting", "busy", "ordered", "parallel"}
	r.controller("pod-1")
	for _, name := range all {
		more := ""
		if name == "ordered" {
			more = `, config: {maxInFlightMessages: "1"}`
		}
		r.subscribe(name, "a.b", more)
	}
	r.subscribe("missing", "a.b", "") // its host is not known
	for _, name := range append(all, "missing") {
		r.await(name, "ready", ready)
	}
	ids := numbers("e", 20)
	r.publish("a.b", ids...)
	for _, name := range all {
		r.sinks.Await(t, name, limit, ids...)
	}
	if got := r.sinks.IDs("elsewhere"); len(got) > 0 {
		t.Errorf("a redirect was followed: %v", got)
	}
	wantOrder := slices.Insert(slices.Clone(ids), 3, "e00003", "e00003")
	if diff := cmp.Diff(wantOrder[:len(r.sinks.IDs("ordered"))], r.sinks.IDs("ordered")); diff != "" {
		t.Errorf("with one event at a time, events are out of order (-want +got):\n%s", diff)
	}
	for _, name := range []string{"slow", "talking", "parallel"} {
		if got := len(r.sinks.IDs(name)); got != len(ids) {
			t.Errorf("sink %s got %d requests for %d events", name, got, len(ids))
		}
	}
	busy := r.sinks.Of("busy")
	for i, g := range busy[1:] {
		if waited := g.At.Sub(busy[0].At); g.ID == busy[0].ID && waited < 3*time.Second {
			t.Errorf("request %d: the sink asked for 3s, and got the event again after %s", i+1, waited)
		}
	}
	s := r.await("missing", "the sink without host is told", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionDelivering, eventingv1alpha2.ReasonRetrying)
	})
	if ready(s) != "" {
		t.Errorf("a Subscription whose sink takes no events is not ready: %+v", s.Status)
	}

	// A message that is no event is deleted, and holds up nothing.
	if _, err := r.publisher.PublishMsg(t.Context(), &nats.Msg{Subject: backend.Subject("commerce", "a.b"), Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	r.publish("a.b", "last")
	r.sinks.Await(t, "ordered", limit, "last")
	poll.Until(t, limit, "the message that is no event is deleted", func(ctx context.Context) error {
		info, err := r.consumer(ctx, "ordered")
		if err == nil && (info.NumAckPending > 0 || info.NumPending > 0) {
			err = fmt.Errorf("%d pending, %d unanswered", info.NumPending, info.NumAckPending)
		}
		return err
	})
}

// TestNATSComesAndGoes: NATS is killed, its stream is replaced, and a consumer without Subscription
// is deleted.
func TestNATSComesAndGoes(t *testing.T) {
	r := newRig(t, true)
	r.subscribe("orders", "a.b", "")
	// A consumer from before, and one that is not ours.
	if _, err := r.manager.CreateConsumer(t.Context(), backend.Stream, stream.Consumer(r.namespace, "gone", []string{"kyma.x.a.b"}, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.manager.CreateConsumer(t.Context(), backend.Stream, jetstream.ConsumerConfig{Durable: "theirs", FilterSubject: "kyma.x.a.b"}); err != nil {
		t.Fatal(err)
	}
	r.controller("pod-1", "--keep-consumers=1s")
	r.await("orders", "ready", ready)
	poll.Until(t, limit, "the consumer without Subscription is deleted", func(ctx context.Context) error {
		_, err := r.consumer(ctx, "gone")
		if err == nil {
			return errors.New("it is there")
		}
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	})
	if _, err := r.manager.Consumer(t.Context(), backend.Stream, "theirs"); err != nil {
		t.Errorf("the consumer of somebody else: %v", err)
	}

	// The sink takes events while NATS is killed.
	before, after := numbers("b", 50), numbers("a", 50)
	r.sinks.Answer("orders", func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Millisecond) })
	r.publish("a.b", before...)
	r.Kill()
	r.Launch()
	r.publish("a.b", after...)
	r.sinks.Await(t, "orders", limit, append(before, after...)...)
	if n := len(r.sinks.IDs("orders")); n > 120 {
		t.Errorf("%d requests for 100 events", n)
	}

	// Somebody deletes the ConfigMap of the backends, and nothing serves in the next one yet. What
	// was served is served on, and an event that waits for its next try is not lost.
	refused := make(chan struct{}, 100)
	r.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		refused <- struct{}{}
	})
	r.publish("a.b", "waits")
	select {
	case <-refused:
	case <-time.After(limit):
		t.Fatal("the sink was not asked")
	}
	r.writeBackends(backend.Backends{Epoch: "undecided"})
	r.subscribe("meanwhile", "c.d", "")
	r.await("meanwhile", "ready", ready)
	r.serve()
	r.sinks.Answer("orders", nil)
	r.sinks.Await(t, "orders", limit, "waits")

	// Another stream: ready is said only when the consumer is in it.
	if err := r.manager.DeleteStream(t.Context(), backend.Stream); err != nil {
		t.Fatal(err)
	}
	r.createStream(false)
	epoch := r.serve()
	r.await("orders", "ready in the new stream", func(s *eventingv1alpha2.Subscription) string {
		if wrong := ready(s); wrong != "" || s.Status.Backends[0].Epoch != epoch {
			return "another epoch than " + epoch
		}
		return ""
	})
	if _, err := r.consumer(t.Context(), "orders"); err != nil {
		t.Fatalf("ready in the new stream, but: %v", err)
	}
	r.open(true)
	r.publish("a.b", "new")
	r.sinks.Await(t, "orders", limit, "new")

	// No backend any more: what the controller made is removed.
	r.writeBackends(backend.Backends{Epoch: "end", Removed: true, NATS: &backend.NATSAddress{URL: strings.Replace(r.URL, "127.0.0.1", "localhost", 1), Stream: backend.Stream}})
	s := r.await("orders", "without finalizer", func(s *eventingv1alpha2.Subscription) string {
		if len(s.Finalizers) > 0 || s.Status.Ready || len(s.Status.Backends) > 0 {
			return "something is left"
		}
		return ""
	})
	if _, err := r.consumer(t.Context(), "orders"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("no backend serves, and the consumer of %s is: %v", s.Name, err)
	}
	if state := r.followed(t, "pod-1"); state.Epoch != "end" || len(state.ObservedServing) > 0 {
		t.Errorf("the controller says %+v", state)
	}
}

// TestLeaderEnds: a leader that is asked to end gives back what it holds, and another one goes on
// at once and in order.
func TestLeaderEnds(t *testing.T) {
	r := newRig(t, true)
	first := r.controller("pod-1")
	r.followed(t, "pod-1")
	r.controller("pod-2")
	r.subscribe("ordered", "a.b", `, config: {maxInFlightMessages: "1"}`)
	r.subscribe("parallel", "a.b", "")
	r.await("ordered", "ready", ready)
	r.await("parallel", "ready", ready)
	// Both sinks have most of their events before them when the leader ends, and it holds some that
	// wait for a slot.
	r.sinks.Answer("ordered", func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) })
	r.sinks.Answer("parallel", func(http.ResponseWriter, *http.Request) { time.Sleep(200 * time.Millisecond) })
	ids := numbers("e", 200)
	r.publish("a.b", ids...)
	r.sinks.Await(t, "ordered", limit, ids[:20]...)
	first.Signal(syscall.SIGTERM)
	if code := first.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.followed(t, "pod-2")
	began := time.Now()
	for _, name := range []string{"ordered", "parallel"} {
		r.sinks.Await(t, name, limit, ids...)
		if took := time.Since(began); took > 30*time.Second { // less than NATS waits for an answer, on a busy machine, too
			t.Errorf("%s has all events after %s", name, took)
		}
		began = time.Now()
	}
	if diff := cmp.Diff(ids, r.sinks.IDs("ordered")); diff != "" {
		t.Errorf("events are out of order, or there twice (-want +got):\n%s", diff)
	}
}

// TestSaidAgain: what the controller says in its ConfigMap is there again when somebody deletes or
// changes that. The operator waits for it.
func TestSaidAgain(t *testing.T) {
	r := newRig(t, true)
	r.controller("pod-1")
	r.followed(t, "pod-1")
	of, name := r.client.Resource(configMaps).Namespace(r.control), backend.Names(backend.DefaultPrefix).ControllerState()
	if err := of.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}) // as the operator does
	r.followed(t, "pod-1")
	if _, err := of.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"epoch":"of a backup"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.followed(t, "pod-1")
}
