package delivery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// quiet tells whether a sink got nothing more for a while.
func quiet(requests *atomic.Int32) error {
	before := requests.Load()
	time.Sleep(500 * time.Millisecond)
	if now := requests.Load(); now != before {
		return fmt.Errorf("%d more", now-before)
	}
	return nil
}

// TestHeld: a process that does not know whether what it knows is old posts nothing, and gives back
// what it has, until it is told that its settings are those of now. It does not pull what is stored
// only to give that back, too.
func TestHeld(t *testing.T) {
	t.Parallel() // it waits
	var requests atomic.Int32
	answer := make(chan struct{})
	d := toSink(t, func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		<-answer
	})
	js, publish, told := orderEvents(t, false)
	settings := Settings{Sink: ordersSink.Sink, MaxInFlight: 2, Generation: 1}
	source := sourceOf(js, "c")
	if err := d.Set(orders, settings, source); err != nil {
		t.Fatal(err)
	}
	const events = 100
	for id := range events {
		publish(id, "a.b")
	}
	poll.Until(t, 20*time.Second, "two are being posted", func(context.Context) error {
		if requests.Load() != 2 {
			return fmt.Errorf("%d", requests.Load())
		}
		return nil
	})
	d.Hold()
	close(answer) // those that the sink has are finished
	acks, naks := 0, 0
	for acks < 2 || naks == 0 {
		switch got := next(t, told); {
		case strings.HasSuffix(got, "+ACK"):
			acks++
		case strings.Contains(got, "-NAK"):
			naks++
		}
	}
	if err := quiet(&requests); err != nil || requests.Load() != 2 {
		t.Errorf("it is held, and posts: %v", err)
	}
	for n := len(told); n > 0; n-- {
		if strings.Contains(<-told, "-NAK") {
			naks++
		}
	}
	if naks > 10 { // those that were here, and the same again
		t.Errorf("%d events were given back", naks)
	}
	settings.Generation = 2 // the spec says the same
	if err := d.Set(orders, settings, source); err != nil {
		t.Fatal(err)
	}
	for acks < events {
		if strings.HasSuffix(next(t, told), "+ACK") {
			acks++
		}
	}
	if d.Outdated(orders, "", 2) {
		t.Error("the generation that it was told of last is an earlier one")
	}
	d.Stop(orders)
}

// TestNotLive: while a process is not heard, events wait; they are posted when it is.
func TestNotLive(t *testing.T) {
	t.Parallel() // it waits
	var requests atomic.Int32
	var live atomic.Bool
	d := toSink(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	d.options.Live = live.Load
	js, publish, told := orderEvents(t, false)
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 2}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(1, "a.b")
	if err := quiet(&requests); err != nil {
		t.Errorf("it is not heard, and posts: %v", err)
	}
	live.Store(true)
	if got := next(t, told); got != "1 +ACK" {
		t.Errorf("NATS was told %q", got)
	}
	d.Stop(orders)
}

// TestDivide: a process posts no more at the same time than its part, and asks NATS for nothing
// without one.
func TestDivide(t *testing.T) {
	t.Parallel() // it waits
	var now, most atomic.Int32
	d := toSink(t, func(http.ResponseWriter, *http.Request) {
		is := now.Add(1)
		for was := most.Load(); is > was && !most.CompareAndSwap(was, is); was = most.Load() {
		}
		time.Sleep(20 * time.Millisecond)
		now.Add(-1)
	})
	js, publish, told := orderEvents(t, false)
	part := 0
	divide := func(to int) {
		part = to
		d.Divide(func(_ types.NamespacedName, all int) int { return min(part, all) })
	}
	divide(0)
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 8}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	for id := range 40 {
		publish(id, "a.b")
	}
	if err := quiet(&most); err != nil {
		t.Errorf("without a part, it posts: %v", err)
	}
	c, err := js.Consumer(t.Context(), "s", "c")
	if err == nil && (c.CachedInfo().NumWaiting != 0 || c.CachedInfo().NumAckPending != 0) {
		err = errors.New("NATS was asked for events")
	}
	if err != nil {
		t.Error(err)
	}
	divide(3)
	for range 40 {
		if got := next(t, told); !strings.HasSuffix(got, "+ACK") {
			t.Errorf("NATS was told %q", got)
		}
	}
	if most.Load() != 3 {
		t.Errorf("%d at the same time, want 3", most.Load())
	}
	divide(0)
	poll.Until(t, 20*time.Second, "what comes goes to another process", func(context.Context) error {
		publish(100, "a.b")
		select {
		case got := <-told:
			if strings.Contains(got, "-NAK") {
				return nil
			}
			return errors.New(got)
		case <-time.After(100 * time.Millisecond):
			return errors.New("nothing is told")
		}
	})
	d.Stop(orders)
}

// TestOutdated: the events of an earlier spec, and of another Subscription of the same name, are
// not delivered any more; and an earlier spec that comes late changes nothing.
func TestOutdated(t *testing.T) {
	d := toSink(t, func(http.ResponseWriter, *http.Request) {})
	js, _, _ := orderEvents(t, false)
	source := sourceOf(js, "c")
	set := func(uid types.UID, generation int64, sink string) {
		t.Helper()
		if err := d.Set(orders, Settings{UID: uid, Generation: generation, Sink: sink, MaxInFlight: 1}, source); err != nil {
			t.Fatal(err)
		}
	}
	if d.Outdated(orders, "a", 1) {
		t.Error("nothing is delivered, and it is an earlier one")
	}
	set("a", 2, ordersSink.Sink)
	set("a", 1, "http://before.shop.svc.cluster.local")
	if _, settings, _ := d.Seen(orders, 0, true); settings.Sink != ordersSink.Sink {
		t.Errorf("an earlier spec came late, and events go to %s", settings.Sink)
	}
	for _, tc := range []struct {
		uid        types.UID
		generation int64
		want       bool
	}{{"a", 1, false}, {"a", 2, false}, {"a", 3, true}, {"b", 1, true}} {
		set("a", 2, ordersSink.Sink)
		if got := d.Outdated(orders, tc.uid, tc.generation); got != tc.want {
			t.Errorf("%s at %d: %t", tc.uid, tc.generation, got)
		}
		if _, _, delivers := d.Seen(orders, 0, true); delivers == tc.want {
			t.Errorf("%s at %d: delivers %t", tc.uid, tc.generation, delivers)
		}
	}
	d.Stop(orders)
}
