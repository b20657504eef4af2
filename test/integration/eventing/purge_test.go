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
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// span is how many sequences NATS looks through when a consumer is deleted, and some more.
const span = 100_500

// pass lets sequences pass: events that nobody subscribed to have some.
func pass(t *testing.T, c *nats.Conn, n int) {
	t.Helper()
	for range n {
		if err := c.Publish(backend.Subject("commerce", "nobody.asks"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js(t, c).Publish(t.Context(), backend.Subject("commerce", "nobody.asks"), nil); err != nil {
		t.Fatal(err)
	}
}

// subjects are how many events of each type the stream holds.
func subjects(ctx context.Context, js jetstream.JetStream) (map[string]uint64, error) {
	s, err := js.Stream(ctx, backend.Stream)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, err
	}
	all := map[string]uint64{}
	for subject, n := range info.State.Subjects {
		_, eventType, err := backend.ParseSubject(subject)
		if err != nil {
			return nil, err
		}
		all[eventType] = n
	}
	return all, nil
}

// TestNothingIsLeft deletes a Subscription, and removes a type from one, 100,000 sequences after
// their events were stored, while another one has a backlog. On f3299ef, the events stayed for
// ever, and those of the removed type were delivered.
func TestNothingIsLeft(t *testing.T) { nothingIsLeft(t, newRig(t, true)) }

func nothingIsLeft(t *testing.T, r *rig) {
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }
	for _, name := range []string{"dead", "changed", "busy"} {
		r.sinks.Answer(name, refuse)
	}
	r.controller("pod-1")
	r.subscribe("busy", "busy.v1", "")
	r.subscribe("dead", "shared.v1", "")
	r.subscribe("changed", "removed.v1", "")
	r.subscribe("live", "shared.v1", "")
	r.patch("changed", `{"spec": {"types": ["removed.v1", "stays.v1"]}}`)
	r.patch("dead", `{"spec": {"types": ["shared.v1", "alone.v1"]}}`)
	for _, name := range []string{"busy", "dead", "changed", "live"} {
		r.await(name, "ready", ready)
	}
	theirs := jetstream.ConsumerConfig{Durable: "theirs", FilterSubject: backend.Subject("commerce", "theirs.v1"), AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := r.manager.CreateConsumer(t.Context(), backend.Stream, theirs); err != nil {
		t.Fatal(err)
	}
	for _, eventType := range []string{"busy.v1", "shared.v1", "alone.v1", "removed.v1", "stays.v1", "theirs.v1"} {
		r.publish(eventType, numbers(eventType, 20)...)
	}
	r.sinks.Await(t, "live", limit, numbers("shared.v1", 20)...)
	pass(t, r.as(t, "publisher"), span)

	r.patch("changed", `{"spec": {"types": ["stays.v1"]}}`)
	r.delete("dead")
	want := map[string]uint64{"busy.v1": 20, "stays.v1": 20, "theirs.v1": 20}
	poll.Until(t, limit, "what nobody waits for is deleted", func(ctx context.Context) error {
		got, err := subjects(ctx, r.manager)
		if err == nil && !cmp.Equal(want, got) {
			err = errors.New(cmp.Diff(want, got))
		}
		return err
	})

	// What was on its way to the sink when its type was removed may still arrive.
	poll.Until(t, limit, "what was on its way has arrived", func(context.Context) error {
		for _, q := range r.sinks.Of("changed") {
			if strings.HasPrefix(q.ID, "removed.v1") && time.Since(q.At) < time.Second {
				return fmt.Errorf("%s arrived a moment ago", q.ID)
			}
		}
		return nil
	})
	// The sink takes what is left of its events, and what comes later.
	before := len(r.sinks.IDs("changed"))
	r.sinks.Answer("changed", func(http.ResponseWriter, *http.Request) {})
	r.publish("stays.v1", "later")
	r.sinks.Await(t, "changed", limit, append(numbers("stays.v1", 20), "later")...)
	for _, id := range r.sinks.IDs("changed")[before:] {
		if len(id) == len("removed.v1")+5 {
			t.Errorf("event %s of the removed type was sent after the sink was repaired", id)
		}
	}
	poll.Until(t, limit, "the consumer waits for nothing", func(ctx context.Context) error {
		info, err := r.consumer(ctx, "changed")
		if err == nil && info.NumPending+uint64(info.NumAckPending) > 0 {
			err = fmt.Errorf("%d pending, %d unanswered", info.NumPending, info.NumAckPending)
		}
		return err
	})
}

// actor is a stream, and what somebody else does before a request number at.
type actor struct {
	jetstream.Stream
	act   func()
	at, n int
}

func (a *actor) request() {
	if a.n == a.at {
		a.act()
	}
	a.n++
}

func (a *actor) Info(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	a.request()
	return a.Stream.Info(ctx, o...)
}

func (a *actor) ConsumerNames(ctx context.Context) jetstream.ConsumerNameLister {
	a.request()
	return a.Stream.ConsumerNames(ctx)
}

func (a *actor) ListConsumers(ctx context.Context) jetstream.ConsumerInfoLister {
	a.request()
	return a.Stream.ListConsumers(ctx)
}

func (a *actor) Purge(ctx context.Context, o ...jetstream.StreamPurgeOpt) error {
	a.request()
	return a.Stream.Purge(ctx, o...)
}

// TestPurgeBesideACreation creates a consumer of the same types at each moment of a purge, and
// stores an event for it. The purge deletes what was left before, and nothing that the consumer
// waits for.
func TestPurgeBesideACreation(t *testing.T) {
	p := startNATS(t)
	ctx := t.Context()
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSMaxMsgsPerTopic = 1000
	if _, err := manager.CreateStream(ctx, stream.Config(config, "e1", true)); err != nil {
		t.Fatal(err)
	}
	create := func(name string, types ...string) {
		t.Helper()
		var filters []string
		for _, eventType := range types {
			filters = append(filters, backend.Filter("", eventType))
		}
		if _, err := controller.CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", name, filters, false)); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(types ...string) {
		t.Helper()
		for _, eventType := range types {
			if _, err := publisher.Publish(ctx, backend.Subject("commerce", eventType), []byte(eventType)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const requests = 20 // and some moments after the last one
	of := func(i int) []string { return []string{fmt.Sprintf("a.v%d", i), fmt.Sprintf("b.v%d", i)} }
	create("busy", "busy.v1")
	publish("busy.v1")
	for i := range requests + 1 {
		create(fmt.Sprint("former", i), of(i)...)
		publish(of(i)...)
	}
	pass(t, p.as(t, "publisher"), span)
	for i := range requests + 1 {
		if err := controller.DeleteConsumer(ctx, backend.Stream, backend.ConsumerName("shop", fmt.Sprint("former", i))); err != nil {
			t.Fatal(err)
		}
		left, err := subjects(ctx, manager)
		if err != nil || left[of(i)[0]] != 1 || left[of(i)[1]] != 1 {
			t.Fatalf("a deleted consumer leaves %v, %v. If NATS deletes that itself, the purge is not needed", left, err)
		}
		s, err := controller.Stream(ctx, backend.Stream)
		if err != nil {
			t.Fatal(err)
		}
		a := &actor{Stream: s, at: i}
		a.act = func() {
			create(fmt.Sprint("next", i), of(i)...)
			publish(of(i)...)
		}
		if _, _, err := (stream.Purge{Removed: []string{backend.Filter("", of(i)[0]), backend.Filter("", of(i)[1])}}).Do(ctx, a); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if a.n <= i {
			a.act() // after the last request
		}
		consumer, err := controller.Consumer(ctx, backend.Stream, backend.ConsumerName("shop", fmt.Sprint("next", i)))
		if err != nil {
			t.Fatalf("%d: nobody acted: %v", i, err)
		}
		var got []string
		for range of(i) {
			m, err := consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
			if err != nil {
				t.Fatalf("the consumer that was created before request %d does not get its event: %v", i, err)
			}
			got = append(got, string(m.Data()))
		}
		if diff := cmp.Diff(of(i), got); diff != "" {
			t.Errorf("what the consumer created before request %d gets (-want +got):\n%s", i, diff)
		}
	}
}
