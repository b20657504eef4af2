package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// keeping lets d store dead letters in a stream of this size.
func keeping(t *testing.T, d *Deliveries, js jetstream.JetStream, size int64) *letters.Store {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), stream.DeadLetters(operatorv1alpha1.BackendConfig{NATSStreamReplicas: 1}, size)); err != nil {
		t.Fatal(err)
	}
	store := &letters.Store{JetStream: func() (jetstream.JetStream, error) { return js, nil }}
	d.options.DeadLetters = store
	return store
}

func stored(t *testing.T, s *letters.Store) []wire.Letter {
	t.Helper()
	page, err := s.List(t.Context(), wire.Filter{}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

func settings(inFlight int) Settings {
	return Settings{UID: "uid-1", Sink: ordersSink.Sink, MaxInFlight: inFlight}
}

// TestGivenUp: what a sink refuses for longer than it may is stored before it is acknowledged, with
// what became of it, and is delivered again when the sink takes it. A message that is no event is
// stored, too: before, it was deleted.
func TestGivenUp(t *testing.T) {
	t.Parallel() // it waits
	var takes atomic.Bool
	marks := make(chan string, 10)
	d := toSink(t, func(w http.ResponseWriter, r *http.Request) {
		marks <- r.Header.Get("Ce-Id") + " " + r.Header.Get("Ce-Redelivered")
		if !takes.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	js, publish, told := orderEvents(t, false)
	store := keeping(t, d, js, 8<<20)
	d.options.DeadLetterAfter = 1500 * time.Millisecond // more than the first delay
	began := time.Now()
	if err := d.Set(orders, settings(10), sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(7, "a.b")
	for next(t, told) != "1 +ACK" {
	}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "kyma.x", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	for next(t, told) != "2 +ACK" {
	}
	got := stored(t, store)
	const shown = "http://orders.shop.svc.cluster.local/in?a=…"
	want := []wire.Letter{
		{Sequence: 1, Namespace: "shop", Subscription: "orders", UID: "uid-1", Sink: shown, ID: "7", Source: "shop", Type: "a.b", Answer: "422", Problem: "the sink answers 422"},
		{Sequence: 2, Namespace: "shop", Subscription: "orders", UID: "uid-1", Sink: shown, Answer: "invalid", Problem: "attribute ce-specversion is missing", Bytes: 1},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(wire.Letter{}, "Tries", "Published", "First", "Last", "Stored")); diff != "" {
		t.Fatalf("dead letters (-want +got):\n%s", diff)
	}
	l := got[0]
	if l.Tries < 2 || l.Tries > 4 || l.Published.Before(began) || !l.First.After(l.Published) || !l.Last.After(l.First) || l.Stored.Before(l.Last) || got[1].Tries != 0 {
		t.Errorf("times and tries: %+v", got)
	}

	_, m, err := store.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := d.Redeliver(t.Context(), orders, m); err != nil || o != (letters.Outcome{Answer: "422", Problem: "the sink answers 422"}) {
		t.Errorf("delivered again to a sink that refuses it: %+v, %v", o, err)
	}
	takes.Store(true)
	if o, err := d.Redeliver(t.Context(), orders, m); err != nil || o != (letters.Outcome{Answer: "200"}) {
		t.Errorf("delivered again: %+v, %v", o, err)
	}
	last := ""
	for len(marks) > 0 {
		last = <-marks
	}
	if last != "7 true" {
		t.Errorf("the sink got %q, want the event, marked", last)
	}
	_, m, err = store.Get(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Redeliver(t.Context(), orders, m); err == nil || !strings.Contains(err.Error(), "it is no event") {
		t.Errorf("a message that is no event: %v", err)
	}
	d.Stop(orders)
	if _, err := d.Redeliver(t.Context(), orders, m); err == nil {
		t.Error("a Subscription that is not delivered to: no error")
	}
	if _, err := d.InOrder(orders); !errors.Is(err, letters.ErrNotDelivered) {
		t.Errorf("InOrder: %v", err)
	}
}

// TestNoRoomForDeadLetters: an event that cannot be stored waits where it is, and becomes a dead
// letter when there is room.
func TestNoRoomForDeadLetters(t *testing.T) {
	t.Parallel() // it waits
	d := toSink(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	js, publish, told := orderEvents(t, false)
	store := keeping(t, d, js, 1<<20)
	d.options.DeadLetterAfter = 0
	filler := nats.NewMsg("dead-letters.shop.other")
	filler.Data = make([]byte, 1<<20-200)
	if _, err := js.PublishMsg(t.Context(), filler); err != nil {
		t.Fatal(err)
	}
	l := &wire.Letter{Namespace: "shop", Subscription: "orders"}
	if err := store.Put(t.Context(), l, &nats.Msg{Data: make([]byte, 300)}, "x"); !errors.Is(err, letters.ErrFull) {
		t.Errorf("a full stream: %v, want ErrFull", err)
	}
	if err := d.Set(orders, settings(10), sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(7, "a.b")
	if got := next(t, told); !strings.HasPrefix(got, "1 -NAK") {
		t.Fatalf("NATS was told %q of an event that could not be stored", got)
	}
	if err := store.Delete(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for next(t, told) != "1 +ACK" {
	}
	if got := stored(t, store); len(got) != 1 || got[0].ID != "7" {
		t.Errorf("dead letters: %+v", got)
	}
	d.Stop(orders)
}

// TestASinkForDeadLettersThatFails: what the sink for dead letters does not take is stored.
func TestASinkForDeadLettersThatFails(t *testing.T) {
	var letterSink, ownGot atomic.Int32
	letterSink.Store(http.StatusOK)
	d := toSink(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "letters" {
			w.WriteHeader(int(letterSink.Load()))
			return
		}
		if r.Host == "letters.shop.svc.cluster.local" {
			ownGot.Add(1)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	js, publish, told := orderEvents(t, false)
	store := keeping(t, d, js, 8<<20)
	d.options.DeadLetterSink, d.options.DeadLetterAfter = &url.URL{Scheme: "http", Host: "letters"}, 0
	if err := d.Set(orders, settings(10), sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(7, "a.b")
	for next(t, told) != "1 +ACK" {
	}
	if got := stored(t, store); len(got) != 0 {
		t.Errorf("its sink took the dead letter, and it is stored: %+v", got)
	}
	letterSink.Store(http.StatusInternalServerError)
	publish(8, "a.b")
	for next(t, told) != "2 +ACK" {
	}
	if got := stored(t, store); len(got) != 1 || got[0].ID != "8" || got[0].Answer != "503" {
		t.Errorf("dead letters: %+v", got)
	}
	own := settings(10)
	own.DeadLetterSink = "http://letters.shop.svc.cluster.local"
	if err := d.Set(orders, own, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(9, "a.b")
	for next(t, told) != "3 +ACK" {
	}
	if got := stored(t, store); len(got) != 1 || ownGot.Load() != 1 {
		t.Errorf("the Subscription has a sink for dead letters of its own, which got %d events: %+v", ownGot.Load(), got)
	}
	d.Stop(orders)
}

// TestOneDeadLetter: the same event is stored once when it is given up twice, as after a kill
// between both writes.
func TestOneDeadLetter(t *testing.T) {
	d := toSink(t, func(http.ResponseWriter, *http.Request) {})
	js, _, _ := orderEvents(t, false)
	store := keeping(t, d, js, 8<<20)
	for range 2 {
		if err := store.Put(t.Context(), &wire.Letter{Namespace: "shop", Subscription: "orders"}, &nats.Msg{Data: []byte("x")}, "c/1/2"); err != nil {
			t.Fatal(err)
		}
	}
	if got := stored(t, store); len(got) != 1 {
		t.Errorf("%d dead letters of one event", len(got))
	}
}

// TestManyDeadLetters: pages have all of them, each once, whatever a filter leaves.
func TestManyDeadLetters(t *testing.T) {
	t.Parallel() // it waits
	d := toSink(t, func(http.ResponseWriter, *http.Request) {})
	js, _, _ := orderEvents(t, false)
	store := keeping(t, d, js, 64<<20)
	const all = 12_000
	for n := range all {
		m := nats.NewMsg(fmt.Sprintf("dead-letters.shop.s%d", n%3))
		m.Header = nats.Header{"ce-type": {fmt.Sprintf("t.%d", n%1000)}, "Dead-Letter-Answer": {"400"}}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	poll.Until(t, time.Minute, "all are stored", func(ctx context.Context) error {
		counts, err := store.Counts(ctx)
		if err == nil && counts["dead-letters.shop.s0"]+counts["dead-letters.shop.s1"]+counts["dead-letters.shop.s2"] != all {
			err = fmt.Errorf("%v", counts)
		}
		return err
	})
	for _, tc := range []struct {
		reason string
		filter wire.Filter
		want   int
		total  uint64
	}{
		{"all", wire.Filter{}, all, all},
		{"of a Subscription", wire.Filter{Namespace: "shop", Subscription: "s1"}, all / 3, all / 3},
		{"of a namespace", wire.Filter{Namespace: "shop"}, all, all},
		{"of another namespace", wire.Filter{Namespace: "sho"}, 0, 0},
		{"few of many", wire.Filter{Type: "t.999"}, all / 1000, all},
		{"another answer", wire.Filter{Answer: "503"}, 0, all},
	} {
		seen, pages := map[uint64]bool{}, 0
		for from := uint64(0); ; pages++ {
			page, err := store.List(t.Context(), tc.filter, from, 1000)
			if err != nil || len(page.Items) > 1000 || page.Total != tc.total {
				t.Fatalf("%s: %d items, total %d, %v", tc.reason, len(page.Items), page.Total, err)
			}
			for _, l := range page.Items {
				if seen[l.Sequence] {
					t.Fatalf("%s: %d is there twice", tc.reason, l.Sequence)
				}
				seen[l.Sequence] = true
			}
			if from = page.Continue; from == 0 {
				break
			}
		}
		s, err := js.Stream(t.Context(), backend.DeadLetters)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().State.Consumers; n != 0 {
			t.Errorf("%s: %d consumers are left, of which NATS takes a limited number", tc.reason, n)
		}
		if len(seen) != tc.want || pages > all/1000+1 {
			t.Errorf("%s: %d of %d, on %d pages", tc.reason, len(seen), tc.want, pages)
		}
	}
}

// TestWatches: who watches an event is told of each try, and of no other event.
func TestWatches(t *testing.T) {
	t.Parallel() // it waits
	var takes atomic.Bool
	d := toSink(t, func(w http.ResponseWriter, _ *http.Request) {
		if !takes.Swap(true) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	d.options.Watches = &Watches{}
	js, publish, told := orderEvents(t, false)
	seen, stop := d.options.Watches.Watch("shop", "7")
	defer stop()
	if err := d.Set(orders, settings(10), sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(7, "a.b")
	for next(t, told) != "1 +ACK" {
	}
	publish(8, "a.b")
	for next(t, told) != "2 +ACK" {
	}
	first, second := next(t, seen), next(t, seen)
	if first.Answer != "503" || first.Try != 1 || first.Problem == "" || second.Answer != "200" || second.Try != 2 || second.Subscription != "orders" || len(seen) > 0 {
		t.Errorf("%+v, %+v", first, second)
	}
	if second.Received.Before(second.Stored) || second.Posted.Before(second.Received) || second.Answered.Before(second.Posted) {
		t.Errorf("the times have no order: %+v", second)
	}
	d.Stop(orders)
}
