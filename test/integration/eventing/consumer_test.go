package eventing_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// TestRestoredSubscriptions: a backup is restored on a cluster whose volumes still have the events.
// The controller runs before the Subscriptions are there, and has never seen them. One comes back
// as Velero restores it, with its finalizer and another UID, and gets what waited. The other one
// never does.
func TestRestoredSubscriptions(t *testing.T) {
	r := newRig(t, true)
	of := r.client.Resource(subscriptions).Namespace(r.namespace)
	p := r.controller("pod-1")
	var saved *unstructured.Unstructured
	for _, name := range []string{"forgotten", "orders"} {
		r.sinks.Answer(name, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		r.subscribe(name, "a.b", "")
		r.await(name, "ready", ready)
		var err error
		if saved, err = of.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.publish("a.b", "before")
	r.sinks.Await(t, "orders", limit, "before")
	p.Kill()
	p.Wait()
	for _, name := range []string{"forgotten", "orders"} {
		r.patch(name, `{"metadata": {"finalizers": null}}`)
		r.delete(name)
	}

	const kept = 20 * time.Second
	began := time.Now()
	p = r.controller("pod-2", "--keep-consumers="+kept.String())
	poll.Until(t, limit, "the controller has found the consumers", func(context.Context) error {
		if strings.Count(p.Stderr(), "a consumer has no Subscription") < 2 {
			return errors.New("it has not")
		}
		return nil
	})
	r.sinks.Answer("orders", nil)
	before := len(r.sinks.IDs("orders"))
	metadata := map[string]any{"name": "orders"}
	copied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": saved.GetAPIVersion(), "kind": saved.GetKind(), "metadata": metadata, "spec": saved.Object["spec"]}}
	copied.SetFinalizers(saved.GetFinalizers())
	if _, err := of.Create(t.Context(), copied, strict); err != nil {
		t.Fatal(err)
	}
	s := r.await("orders", "ready again", ready)
	poll.Until(t, limit, "what waited is delivered", func(context.Context) error {
		if !slices.Contains(r.sinks.IDs("orders")[before:], "before") {
			return errors.New("it is not")
		}
		return nil
	})
	if info, err := r.consumer(t.Context(), "orders"); err != nil || info.Config.Metadata[stream.UIDKey] != string(s.UID) {
		t.Errorf("the consumer is not that of the restored Subscription: %v, %+v", err, info)
	}
	poll.Until(t, kept+limit, "the other consumer is deleted", func(ctx context.Context) error {
		_, err := r.consumer(ctx, "forgotten")
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	if after := time.Since(began); after < kept {
		t.Errorf("the consumer without a Subscription was deleted after %s, want %s", after, kept)
	}
}
