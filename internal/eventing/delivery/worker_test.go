package delivery

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

var orders = types.NamespacedName{Namespace: "shop", Name: "orders"}

// toSink returns Deliveries whose sinks are all one handler. They end with the test.
func toSink(t *testing.T, sink http.HandlerFunc) *Deliveries {
	t.Helper()
	server := httptest.NewServer(sink)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	d := New(Options{
		Sender: &Sender{transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		}}},
		Metrics: tally.New(prometheus.NewRegistry()), Log: zap.NewNop(),
		Changed: func(types.NamespacedName, time.Duration) {}, Lost: func(types.NamespacedName) {},
	})
	return d
}

// orderEvents is a real stream with the consumer of a Subscription, publish publishes an event of a
// type, and the channel has what NATS is told of events.
func orderEvents(t *testing.T, inOrder bool) (js jetstream.JetStream, publish func(id int, eventType string), told chan string) {
	t.Helper()
	server := natsserver.Start(t, "jetstream { store_dir: /data }", nil)
	conn := server.Connect(t)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(10_000))
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"kyma.>"}, Retention: jetstream.InterestPolicy, Storage: jetstream.MemoryStorage})
	if err == nil {
		config := stream.Consumer("shop", "orders", []string{"kyma.>"}, inOrder)
		config.Durable = "c"
		_, err = js.CreateConsumer(t.Context(), "s", config)
	}
	if err != nil {
		t.Fatal(err)
	}
	told = make(chan string, 100_000)
	if _, err := conn.Subscribe("$JS.ACK.>", func(m *nats.Msg) {
		if of, err := (&nats.Msg{Reply: m.Subject, Sub: m.Sub}).Metadata(); err == nil {
			told <- fmt.Sprintf("%d %s", of.Sequence.Stream, m.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return js, func(id int, eventType string) {
		t.Helper()
		m := nats.NewMsg("kyma.shop." + eventType)
		m.Header = nats.Header{"ce-specversion": {"1.0"}, "ce-id": {strconv.Itoa(id)}, "ce-source": {"shop"}, "ce-type": {eventType}}
		if _, err := js.PublishMsgAsync(m); err != nil {
			t.Fatal(err)
		}
	}, told
}

// sourceOf is a consumer of the stream s.
func sourceOf(js jetstream.JetStream, consumer string) pull.Source {
	return pull.Source{Conn: js.Conn(), Stream: "s", Consumer: consumer}
}

// next is the next value of a channel.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute): // other tests run beside
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}

// TestEventsThatWait: NATS is told of an event that waits for a slot, too, or it would send the
// event again meanwhile. On f3299ef only the events that the sink had were told of.
func TestEventsThatWait(t *testing.T) {
	began, answer := make(chan string, 10), make(chan struct{})
	d := toSink(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- r.Header.Get("Ce-Id")
		<-answer
	})
	js, publish, told := orderEvents(t, false)
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 2}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		publish(n+1, "a.b")
	}
	got := map[string]bool{next(t, began): true, next(t, began): true}
	w := d.worker(orders)
	poll.Until(t, 20*time.Second, "three events are here", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.busy) < 3 {
			return fmt.Errorf("%d", len(w.busy))
		}
		for sequence, e := range w.busy {
			e.tell = time.Now()
			w.busy[sequence] = e
		}
		return nil
	})
	w.tellProgress()
	for range 3 {
		got[next(t, told)] = true
	}
	if diff := cmp.Diff(map[string]bool{"1": true, "2": true, "1 +WPI": true, "2 +WPI": true, "3 +WPI": true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	close(answer)
	got = map[string]bool{}
	for range 3 {
		got[next(t, told)] = true
	}
	if diff := cmp.Diff(map[string]bool{"1 +ACK": true, "2 +ACK": true, "3 +ACK": true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// answersOn is a sink that works on each event until something comes from the channel.
func answersOn(answer <-chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not seen
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}
}

// TestProgress: NATS is told of an event while the sink works on it, again and again, and of the
// next one, too.
func TestProgress(t *testing.T) {
	t.Parallel() // it waits
	answer := make(chan struct{})
	d := toSink(t, answersOn(answer))
	js, publish, told := orderEvents(t, false)
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 2}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	for id, times := range []int{2, 1} {
		began := time.Now()
		publish(id, "a.b")
		for range times {
			if got := next(t, told); !strings.HasSuffix(got, " +WPI") {
				t.Errorf("NATS is told %q", got)
			}
		}
		if took := time.Since(began); took < backend.ProgressAfter {
			t.Errorf("NATS is told after %s", took)
		}
		answer <- struct{}{}
		if got := next(t, told); !strings.HasSuffix(got, " +ACK") {
			t.Errorf("NATS is told %q", got)
		}
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPulledAhead: while an event has waited here for long, no more are pulled: NATS would have to
// be told of them again and again, and another process could have them.
func TestPulledAhead(t *testing.T) {
	answer := make(chan struct{})
	d := toSink(t, answersOn(answer))
	js, publish, told := orderEvents(t, false)
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 4}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		publish(n+1, "a.b")
	}
	w := d.worker(orders)
	here := func(posted, wait int) {
		t.Helper()
		poll.Until(t, 20*time.Second, fmt.Sprintf("%d are posted and %d wait", posted, wait), func(context.Context) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.lanes.used != posted || len(w.queue) != wait {
				return fmt.Errorf("%d and %d", w.lanes.used, len(w.queue))
			}
			return nil
		})
	}
	here(4, 3) // it asks again when half of the room is empty
	w.mu.Lock()
	for n := range w.queue {
		w.queue[n].since = time.Now().Add(-2 * aheadLimit)
	}
	w.mu.Unlock()
	for range 2 {
		answer <- struct{}{}
		next(t, told)
	}
	here(4, 1)
	if err := js.Conn().Flush(); err != nil { // what was asked for is at NATS
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), "s", "c")
	if err != nil {
		t.Fatal(err)
	}
	if n := c.CachedInfo().Delivered.Consumer; n != 7 {
		t.Errorf("%d were pulled, want 7", n)
	}
	answer <- struct{}{} // none waits any more
	next(t, told)
	here(4, 4)
	close(answer)
	for range 17 {
		next(t, told)
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSentAgainWhileItIsHere: NATS that hears too late of an event that is being delivered sends it
// again, and the sink gets it once. The other ones hold no place, and the next event comes.
func TestSentAgainWhileItIsHere(t *testing.T) {
	began, answer := make(chan string, 10), make(chan struct{})
	d := toSink(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- r.Header.Get("Ce-Id")
		<-answer
	})
	js, publish, told := orderEvents(t, false)
	c, err := js.Consumer(t.Context(), "s", "c")
	if err != nil {
		t.Fatal(err)
	}
	config := c.CachedInfo().Config
	config.AckWait = 100 * time.Millisecond // no progress is told of before ProgressAfter
	if c, err = js.UpdateConsumer(t.Context(), "s", config); err != nil {
		t.Fatal(err)
	}
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 2}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(1, "a.b")
	if got := next(t, began); got != "1" {
		t.Fatalf("the sink gets %s", got)
	}
	poll.Until(t, 20*time.Second, "it was sent four times", func(ctx context.Context) error {
		info, err := c.Info(ctx)
		if err == nil && info.Delivered.Consumer < 4 {
			err = fmt.Errorf("%d times", info.Delivered.Consumer)
		}
		return err
	})
	publish(2, "a.b")
	if got := next(t, began); got != "2" {
		t.Errorf("the sink gets %s", got)
	}
	close(answer)
	got := map[string]bool{next(t, told): true, next(t, told): true}
	if diff := cmp.Diff(map[string]bool{"1 +ACK": true, "2 +ACK": true}, got); diff != "" {
		t.Errorf("NATS is told (-want +got):\n%s", diff)
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(began); n > 0 {
		t.Errorf("%d events came again", n)
	}
}

// TestRefusedEventsStopNobody: events that a sink does not take, whatever their number, do not stop
// others. On f3299ef, none of the good events came: each of the 1,000 places of the consumer, or
// each slot, was taken.
func TestRefusedEventsStopNobody(t *testing.T) {
	t.Parallel() // it waits
	for _, tc := range []struct {
		reason   string
		bad      int
		badType  string
		goodType string
		answer   func(http.ResponseWriter, *http.Request)
	}{
		{"refused events and good ones of the same type", 1500, "a.b", "a.b", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }},
		{"refused events and good ones of another type", 1500, "a.b", "a.c", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }},
		{"an error each time", 1500, "a.b", "a.b", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }},
		{"no answer", 40, "a.b", "a.c", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			good := make(chan string, 100)
			var now, most atomic.Int32
			d := toSink(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not seen
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if id, _ := strconv.Atoi(r.Header.Get("Ce-Id")); id < tc.bad {
					tc.answer(w, r)
					return
				}
				good <- r.Header.Get("Ce-Id")
			})
			js, publish, _ := orderEvents(t, false)
			if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 10, Types: 2}, sourceOf(js, "c")); err != nil {
				t.Fatal(err)
			}
			for id := range tc.bad {
				publish(id, tc.badType)
			}
			const wanted = 20
			for id := range wanted {
				publish(tc.bad+id, tc.goodType)
			}
			got := map[string]bool{}
			for len(got) < wanted {
				got[next(t, good)] = true
			}
			if most.Load() > 10 {
				t.Errorf("%d events at the same time, want at most 10", most.Load())
			}
			d.Stop(orders)
		})
	}
}

// TestBlocking: in order, one event stops all later ones, and it is known which and since when.
// Dead letters are known, too. On f3299ef neither was.
func TestBlocking(t *testing.T) {
	t.Parallel() // it waits
	var takes atomic.Bool
	d := toSink(t, func(w http.ResponseWriter, r *http.Request) {
		if !takes.Load() && r.Host != "letters" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	js, publish, told := orderEvents(t, true)
	began := time.Now()
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 1}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(7, "a.b")
	if got := next(t, told); !strings.HasPrefix(got, "1 -NAK") {
		t.Fatalf("NATS was told %q", got)
	}
	got := healthOf(d)
	if got.Blocking.ID != "7" || got.Blocking.Since.Before(began) || got.Blocking.Since.After(time.Now()) || !got.Letter.IsZero() {
		t.Errorf("an event stops all later ones: %+v", got)
	}
	takes.Store(true)
	for next(t, told) != "1 +ACK" {
	}
	poll.Until(t, 20*time.Second, "nothing blocks", func(context.Context) error {
		if is := healthOf(d).Blocking; is != (health.Blocking{}) {
			return fmt.Errorf("%+v", is)
		}
		return nil
	})
	d.Stop(orders)

	takes.Store(false)
	d.options.DeadLetterSink = &url.URL{Scheme: "http", Host: "letters"}
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 1}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(8, "a.b")
	for next(t, told) != "2 +ACK" {
	}
	if got := healthOf(d); got.Posted.Before(began) || got.Blocking.ID != "" || got.Problem == "" {
		t.Errorf("an event became a dead letter: %+v", got)
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
}
