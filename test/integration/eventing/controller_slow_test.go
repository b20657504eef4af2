//go:build slow

package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestLeaderIsKilled: what a killed leader held is delivered by the next one when NATS has waited
// for an answer. One event at a time stays in order: the event that the leader was delivering may
// come twice, and no other one comes before it.
func TestLeaderIsKilled(t *testing.T) {
	r := newRig(t, true)
	first := r.controller("pod-1")
	r.followed(t, "pod-1")
	r.controller("pod-2")
	r.subscribe("ordered", "a.b", `, config: {maxInFlightMessages: "1"}`)
	r.subscribe("parallel", "a.b", "")
	r.await("ordered", "ready", ready)
	r.await("parallel", "ready", ready)
	for _, name := range []string{"ordered", "parallel"} {
		r.sinks.Answer(name, func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) })
	}
	ids := numbers("e", 100)
	r.publish("a.b", ids...)
	r.sinks.Await(t, "ordered", limit, ids[:20]...)
	first.Kill()
	r.followed(t, "pod-2")
	for _, name := range []string{"ordered", "parallel"} {
		r.sinks.Await(t, name, 2*time.Minute, ids...)
	}
	var inOrder []string
	got := r.sinks.IDs("ordered")
	for i, id := range got {
		if i == 0 || got[i-1] != id {
			inOrder = append(inOrder, id)
		}
	}
	if diff := cmp.Diff(ids, inOrder); diff != "" || len(got) > len(ids)+1 {
		t.Errorf("%d requests, out of order (-want +got):\n%s", len(got), diff)
	}
}

// TestDeletionWithoutNATS: a Subscription that is deleted while NATS is down does not hang, and its
// consumer is deleted later.
func TestDeletionWithoutNATS(t *testing.T) {
	r := newRig(t, true)
	r.controller("pod-1")
	r.subscribe("orders", "a.b", "")
	r.subscribe("others", "a.b", "")
	r.await("orders", "ready", ready)
	r.await("others", "ready", ready)
	r.Kill()
	began := time.Now()
	r.delete("orders")
	poll.Until(t, 2*time.Minute, "the Subscription is gone", func(ctx context.Context) error {
		_, err := r.get(ctx, "orders")
		return poll.Gone(err)
	})
	if took := time.Since(began); took < 25*time.Second {
		t.Errorf("the finalizer was removed after %s: NATS might have come back", took)
	}
	if s, err := r.get(t.Context(), "others"); err != nil || ready(s) != "" {
		t.Errorf("NATS is down, and the other Subscription is %+v, %v", s.Status, err)
	}
	r.Launch()
	poll.Until(t, limit, "the consumer is deleted", func(ctx context.Context) error {
		_, err := r.consumer(ctx, "orders")
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			return nil
		case err == nil:
			return errors.New("it is there")
		}
		return err
	})
	r.publish("a.b", "1")
	r.sinks.Await(t, "others", limit, "1")
}

// TestASinkThatWasDead: the status says that a sink takes no events, and that it takes them again.
// Events that it refuses for too long go to the dead letter sink, if there is one.
func TestASinkThatWasDead(t *testing.T) {
	r := newRig(t, true)
	r.controller("pod-1", "--dead-letter-sink="+r.sinks.URL("letters", r.namespace), "--dead-letter-after=3s")
	r.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	r.subscribe("orders", "a.b", "")
	r.await("orders", "ready", ready)
	r.publish("a.b", "1")
	r.await("orders", "the sink takes no events", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionDelivering, eventingv1alpha2.ReasonRetrying)
	})
	r.sinks.Await(t, "letters", limit, "1")
	r.awaitEmpty(t)
	letter := r.sinks.Of("letters")[0]
	if letter.Header.Get("Ce-Knativeerrorcode") != "502" || letter.Body != `"1"` {
		t.Errorf("the dead letter has %v and %s", letter.Header, letter.Body)
	}
	r.sinks.Answer("orders", nil)
	r.publish("a.b", "2")
	r.sinks.Await(t, "orders", limit, "2")
	r.await("orders", "the sink takes events", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionDelivering, eventingv1alpha2.ReasonDelivering)
	})
}

// TestALongRequest: NATS does not send an event again while a sink works on it, also beyond the
// time that NATS waits.
func TestALongRequest(t *testing.T) {
	r := newRig(t, true)
	r.controller("pod-1", "--dead-letter-sink="+r.sinks.URL("letters", r.namespace), "--dead-letter-after=0s")
	// The sink does not answer, and the dead letter sink takes 25 seconds: 55 in all.
	stopped := make(chan struct{})
	defer close(stopped)
	r.sinks.Answer("orders", func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-q.Context().Done():
		case <-stopped:
		}
	})
	r.sinks.Answer("letters", func(http.ResponseWriter, *http.Request) { time.Sleep(25 * time.Second) })
	r.subscribe("orders", "a.b", "")
	r.await("orders", "ready", ready)
	r.publish("a.b", "1")
	poll.Until(t, 2*time.Minute, "the letter is taken", func(ctx context.Context) error {
		info, err := r.consumer(ctx, "orders")
		if err == nil && (info.NumAckPending > 0 || len(r.sinks.Of("letters")) == 0) {
			err = errors.New("it is not")
		}
		return err
	})
	if got := len(r.sinks.IDs("orders")); got != 1 {
		t.Errorf("%d requests for one event", got)
	}
}

// TestDNSIsAway: the DNS server answers nothing for half a minute, while sinks need a connection
// for each event. No event is lost or comes twice; all say why nothing is delivered, and work again
// soon afterwards.
func TestDNSIsAway(t *testing.T) {
	const subscriptions, away = 20, 30 * time.Second
	r := newRig(t, true)
	r.fleet(2)
	var names, ids []string
	for i := range subscriptions {
		name := fmt.Sprintf("sink-%02d", i)
		names = append(names, name)
		r.sinks.Answer(name, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
		r.subscribe(name, "a.b", "")
	}
	for _, name := range names {
		r.await(name, "ready", ready)
	}
	publish := func(prefix string, pause time.Duration, until time.Time) {
		for n := 0; time.Now().Before(until); n++ {
			id := fmt.Sprintf("%s-%d", prefix, n)
			ids = append(ids, id)
			r.publish("a.b", id)
			time.Sleep(pause)
		}
	}
	publish("before", 20*time.Millisecond, time.Now().Add(3*time.Second))
	r.sinks.SilenceDNS(true)
	publish("away", 200*time.Millisecond, time.Now().Add(away))
	for _, name := range names {
		r.await(name, "it says that no sink is found", func(s *eventingv1alpha2.Subscription) string {
			if !strings.Contains(fmt.Sprint(s.Status.Conditions), "cannot be resolved") {
				return "another reason"
			}
			return condition(s, eventingv1alpha2.ConditionDelivering, eventingv1alpha2.ReasonRetrying)
		})
	}
	r.sinks.SilenceDNS(false)
	began := time.Now()
	publish("after", 20*time.Millisecond, time.Now().Add(3*time.Second))
	twice := 0
	for _, name := range names {
		r.sinks.Await(t, name, limit, ids...)
		twice += len(r.sinks.IDs(name)) - len(ids)
	}
	t.Logf("%d events for each of %d sinks: all were there after %.1f s, %d twice", len(ids), subscriptions, time.Since(began).Seconds(), twice)
	if twice > 0 {
		t.Errorf("%d came twice", twice)
	}
}
