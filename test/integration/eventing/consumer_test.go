package eventing_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestConsumersOfOthers: a consumer of the version before is taken over with its events. That of a
// former Subscription of the same name is not: on f3299ef the new Subscription got the events of
// the former one. And whoever pauses or edits a consumer stops it for seconds: on f3299ef it was
// for ten minutes.
func TestConsumersOfOthers(t *testing.T) {
	r := newRig(t, true)
	const inOrder = `, config: {maxInFlightMessages: "1"}`
	former := stream.Consumer(r.namespace, "orders", []string{backend.Filter("commerce", "a.b")}, true)
	if _, err := r.manager.CreateConsumer(t.Context(), backend.Stream, former); err != nil {
		t.Fatal(err)
	}
	r.publish("a.b", "before")
	p := r.controller("pod-1")
	r.subscribe("orders", "a.b", inOrder)
	s := r.await("orders", "ready", ready)
	r.sinks.Await(t, "orders", limit, "before")
	consumer := func(ctx context.Context) jetstream.ConsumerConfig {
		info, err := r.consumer(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		return info.Config
	}
	if uid := consumer(t.Context()).Metadata[stream.UIDKey]; uid != string(s.UID) {
		t.Errorf("the consumer was taken over for the UID %q, want %s", uid, s.UID)
	}

	// Somebody pauses it, and somebody edits it.
	repaired := func(what string) {
		t.Helper()
		poll.Until(t, limit, what+" is repaired", func(ctx context.Context) error {
			want := stream.Consumer(r.namespace, "orders", []string{backend.Filter("commerce", "a.b")}, true)
			want.Metadata[stream.UIDKey] = string(s.UID)
			if stream.ConsumerDiffers(consumer(ctx), want) {
				return errors.New("it is not")
			}
			return nil
		})
	}
	if _, err := r.manager.PauseConsumer(t.Context(), backend.Stream, former.Durable, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	repaired("a pause")
	edited := consumer(t.Context())
	edited.FilterSubject, edited.FilterSubjects = "kyma.commerce.x.y", nil
	if _, err := r.manager.UpdateConsumer(t.Context(), backend.Stream, edited); err != nil {
		t.Fatal(err)
	}
	repaired("an edit")

	// A former Subscription lost its finalizer, and an event of it waits.
	r.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	r.publish("a.b", "old")
	r.sinks.Await(t, "orders", limit, "old")
	p.Kill()
	r.patch("orders", `{"metadata": {"finalizers": null}}`)
	r.delete("orders")
	poll.Until(t, limit, "the Subscription is gone", func(ctx context.Context) error {
		_, err := r.get(ctx, "orders")
		return poll.Gone(err)
	})
	before := len(r.sinks.IDs("orders"))
	r.sinks.Answer("orders", nil)
	r.subscribe("orders", "a.b", inOrder)
	r.controller("pod-2")
	r.await("orders", "ready again", ready)
	r.publish("a.b", "new")
	r.sinks.Await(t, "orders", limit, "new")
	if ids := r.sinks.IDs("orders")[before:]; slices.Contains(ids, "old") {
		t.Errorf("the new Subscription has got the events of the former one: %v", ids)
	}
}
