package delivery

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/retry"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestNumbers: while a sink is down, its events count as backlog for as long as they wait for their
// next try, and it is known since when the oldest waits, how many are repeated, and when the next
// try is. Another process says that it does not know all of them.
func TestNumbers(t *testing.T) {
	t.Parallel() // it waits
	const events = 5
	var takes atomic.Bool
	var tries atomic.Int32
	sink := func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		if !takes.Load() {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	d := toSink(t, sink)
	js, publish, _ := orderEvents(t, false)
	set := func(d *Deliveries) {
		t.Helper()
		d.options.firstRetry = retry.First / 10 // the sink asks for more, but for the last time
		if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 10}, sourceOf(js, "c")); err != nil {
			t.Fatal(err)
		}
	}
	look := func(ctx context.Context, d *Deliveries) (Seen, error) {
		c, err := js.Consumer(ctx, "s", "c")
		if err != nil {
			return Seen{}, err
		}
		info := c.CachedInfo()
		d.Waiting(orders, info.NumAckPending)
		n, _, _ := d.Seen(orders, info.AckFloor.Stream, true)
		return n, nil
	}
	began := time.Now()
	set(d)
	for id := range events {
		publish(id, "a.b")
	}
	for tries.Load() < 4*events { // each was sent again, more than once
		time.Sleep(50 * time.Millisecond)
		if time.Since(began) > time.Minute {
			t.Fatalf("%d tries in a minute", tries.Load())
		}
		if tries.Load() < events {
			continue
		}
		if n, err := look(t.Context(), d); err != nil || n.Known != events {
			t.Fatalf("after %d tries, %d are known, %v", tries.Load(), n.Known, err)
		}
	}
	poll.Until(t, 20*time.Second, "all are refused", func(ctx context.Context) error {
		n, err := look(ctx, d)
		if err == nil && (n.Repeating != events || n.Known != events || n.Oldest.Before(began.Add(-time.Second)) || n.Oldest.After(time.Now())) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	if h := healthOf(d); h.Since.Before(began) || h.Next.Before(began) || h.Next.After(time.Now().Add(time.Minute)) {
		t.Errorf("since %s, next try at %s", h.Since, h.Next)
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Another process.
	d = toSink(t, sink)
	set(d)
	if n, err := look(t.Context(), d); err != nil || n.Known == events {
		t.Errorf("it has seen no event yet: %+v, %v", n, err)
	}
	poll.Until(t, 30*time.Second, "all have come again", func(ctx context.Context) error {
		n, err := look(ctx, d)
		if err == nil && (n.Repeating != events || n.Known != events || n.Oldest.After(began.Add(20*time.Second))) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	takes.Store(true)
	poll.Until(t, 30*time.Second, "nothing waits", func(ctx context.Context) error {
		n, err := look(ctx, d)
		if err == nil && (n.Known != 0 || n.Repeating != 0 || !n.Oldest.IsZero()) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// healthOf is what was seen of the sink of orders.
func healthOf(d *Deliveries) health.Health {
	is, _, _ := d.Seen(orders, 0, true)
	return is.Health.At(time.Now())
}

// TestNumbersAreOfNow: what somebody has purged in NATS waits no more; and what should have come
// again is with another process, if there is one.
func TestNumbersAreOfNow(t *testing.T) {
	now := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	published := waiting{about: &nats.MsgMetadata{Timestamp: now.Add(-time.Second)}, since: now}
	w := &worker{
		busy: present{9: published, 7: published},
		traces: map[uint64]trace{
			3: {published: ago(time.Hour), refused: now},
			5: {published: ago(2 * time.Minute), next: ago(-time.Minute), refused: now},
			7: {published: ago(time.Minute), aside: 1, next: ago(-time.Hour)},
		},
	}
	if n := w.seen(now, 3, true); !n.Oldest.Equal(now.Add(-2*time.Minute)) || n.Repeating != 1 || n.Known != 3 || len(w.traces) != 2 {
		t.Errorf("%+v of %v", n, w.traces)
	}
	w.traces[11], w.traces[12] = trace{published: ago(time.Hour), refused: now, next: ago(elsewhere + 1)}, trace{published: ago(time.Hour), refused: now, next: ago(forgetAfter + 1)}
	if n := w.seen(now, 3, false); !n.Oldest.Equal(now.Add(-2*time.Minute)) || n.Repeating != 1 || n.Known != 3 || len(w.traces) != 3 {
		t.Errorf("with another process, %+v of %v", n, w.traces)
	}
	delete(w.traces, 11)

	next := func() time.Time { return w.reach.next(w.traces.next(), len(w.busy) > 0, now) }
	if next := next(); !next.Equal(now) {
		t.Errorf("two are being posted, and the next try is at %s", next)
	}
	w.reach = reach{failures, now.Add(7 * time.Second)}
	if next := next(); !next.Equal(now.Add(7 * time.Second)) {
		t.Errorf("the sink is left alone, and the next try is at %s", next)
	}
	w.reach = reach{}
	clear(w.busy)
	if next := next(); !next.Equal(now.Add(time.Minute)) {
		t.Errorf("the next try is at %s", next)
	}
	clear(w.traces)
	if next := next(); !next.IsZero() {
		t.Errorf("nothing waits here, and the next try is at %s", next)
	}
}

// TestFloor: NATS says up to where all events were taken.
func TestFloor(t *testing.T) {
	js, publish, _ := orderEvents(t, false)
	d := toSink(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ce-Id") != "0" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 10}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	for id := range 3 {
		publish(id, "a.b")
	}
	numbers := func(ctx context.Context) (Seen, error) {
		c, err := js.Consumer(ctx, "s", "c")
		if err != nil {
			return Seen{}, err
		}
		n, _, _ := d.Seen(orders, c.CachedInfo().AckFloor.Stream, true)
		return n, nil
	}
	await := func(what string, repeating int64) {
		t.Helper()
		poll.Until(t, 20*time.Second, what, func(ctx context.Context) error {
			n, err := numbers(ctx)
			if err == nil && n.Repeating != repeating {
				err = fmt.Errorf("%+v", n)
			}
			return err
		})
	}
	await("two are refused", 2)
	s, err := js.Stream(t.Context(), "s")
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	await("nothing is left", 0)
	d.Stop(orders)
}
