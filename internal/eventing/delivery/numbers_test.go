package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestNumbers: while a sink is down, its events count as backlog for as long as they wait for their
// next try, and it is known since when the oldest waits, how many are repeated, and when the next
// try is. Another process says that it does not know all of them.
func TestNumbers(t *testing.T) {
	const events = 5
	var takes atomic.Bool
	var tries atomic.Int32
	sink := func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		if !takes.Load() {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	d := toSink(t, sink)
	js, publish, _ := orderEvents(t, false)
	set := func(d *Deliveries) {
		t.Helper()
		if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 10}, Source{js.Conn(), "s", "c"}); err != nil {
			t.Fatal(err)
		}
	}
	look := func(ctx context.Context, d *Deliveries) (Numbers, float64, error) {
		c, err := js.Consumer(ctx, "s", "c")
		if err != nil {
			return Numbers{}, 0, err
		}
		info := c.CachedInfo()
		registry := prometheus.NewRegistry()
		d.options.Metrics = tally.New(registry) // which can be asked
		d.Waiting(orders, info.NumPending, info.NumAckPending)
		n := d.Numbers(orders, info.NumAckPending, info.AckFloor.Stream)
		gathered, err := registry.Gather()
		if err != nil {
			return n, 0, err
		}
		for _, f := range gathered {
			if f.GetName() == "eventing_delivery_backlog" {
				return n, f.GetMetric()[0].GetGauge().GetValue(), nil
			}
		}
		return n, 0, errors.New("there is no backlog")
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
		if _, backlog, err := look(t.Context(), d); err != nil || backlog != events {
			t.Fatalf("after %d tries, the backlog is %v, %v", tries.Load(), backlog, err)
		}
	}
	poll.Until(t, 20*time.Second, "all are refused", func(ctx context.Context) error {
		n, _, err := look(ctx, d)
		if err == nil && (n.Repeating != events || !n.Complete || n.Oldest.Before(began.Add(-time.Second)) || n.Oldest.After(time.Now())) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	if h := d.Health(orders); h.Since.Before(began) || h.Next.Before(began) || h.Next.After(time.Now().Add(time.Minute)) {
		t.Errorf("since %s, next try at %s", h.Since, h.Next)
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Another process.
	d = toSink(t, sink)
	set(d)
	if n, backlog, err := look(t.Context(), d); err != nil || n.Complete || backlog != events {
		t.Errorf("it has seen no event yet: %+v, %v, %v", n, backlog, err)
	}
	poll.Until(t, 30*time.Second, "all have come again", func(ctx context.Context) error {
		n, _, err := look(ctx, d)
		if err == nil && (n.Repeating != events || !n.Complete || n.Oldest.After(began.Add(20*time.Second))) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	takes.Store(true)
	poll.Until(t, 30*time.Second, "nothing waits", func(ctx context.Context) error {
		n, backlog, err := look(ctx, d)
		if err == nil && (backlog != 0 || n != Numbers{Complete: true}) {
			err = fmt.Errorf("%+v, %v", n, backlog)
		}
		return err
	})
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNumbersAreOfNow: what somebody has purged in NATS waits no more; and after the longest delay,
// everything was seen.
func TestNumbersAreOfNow(t *testing.T) {
	now := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	message := func(sequence int) *nats.Msg { // published at 1970
		return &nats.Msg{Reply: fmt.Sprintf("$JS.ACK.s.c.1.%d.1.%d.0", sequence, ago(time.Second)), Sub: &nats.Subscription{}}
	}
	w := &worker{
		began: now.Add(-time.Minute), busy: map[*nats.Msg]time.Time{message(9): now, message(7): now},
		traces: map[uint64]trace{
			3: {published: ago(time.Hour), refused: now},
			5: {published: ago(2 * time.Minute), next: ago(-time.Minute), refused: now},
			7: {published: ago(time.Minute), aside: 1, next: ago(-time.Hour)},
		},
	}
	want := Numbers{Oldest: now.Add(-2 * time.Minute), Repeating: 1}
	if n := w.numbers(now, 4, 3); !n.Oldest.Equal(want.Oldest) || n.Repeating != want.Repeating || n.Complete || len(w.traces) != 2 {
		t.Errorf("%+v of %v", n, w.traces)
	}
	if n := w.numbers(now.Add(completeAfter), 4, 3); !n.Complete {
		t.Errorf("after the longest delay: %+v", n)
	}
	w.complete = false
	if n := w.numbers(now, 3, 3); !n.Complete {
		t.Errorf("all three are here: %+v", n)
	}

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
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 10}, Source{js.Conn(), "s", "c"}); err != nil {
		t.Fatal(err)
	}
	for id := range 3 {
		publish(id, "a.b")
	}
	numbers := func(ctx context.Context) (Numbers, error) {
		c, err := js.Consumer(ctx, "s", "c")
		if err != nil {
			return Numbers{}, err
		}
		return d.Numbers(orders, c.CachedInfo().NumAckPending, c.CachedInfo().AckFloor.Stream), nil
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
