package delivery

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// keeper remembers dead letters.
type keeper struct {
	mu  sync.Mutex
	all []*wire.Letter
}

func (k *keeper) Put(_ context.Context, l *wire.Letter, _ *nats.Msg, _ string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, l)
	return nil
}

// takenAreKept is a stream that keeps what was taken, with the consumer of a Subscription to some
// types, and what its sink has got, by the ids of events. refuse are those that it refuses.
func takenAreKept(t *testing.T, most int64, inOrder bool, dead Keeper) (s jetstream.Stream, publish func(id int, eventType string), got func() []string, refuse func(ids ...string)) {
	t.Helper()
	server := natsserver.Start(t, "jetstream { store_dir: /data }", nil)
	js, err := jetstream.New(server.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"kyma.>"}, Storage: jetstream.MemoryStorage, MaxMsgs: most, Discard: jetstream.DiscardNew})
	if err != nil {
		t.Fatal(err)
	}
	consumer := stream.WithRetries(stream.Consumer("shop", "orders", []string{"kyma.shop.a", "kyma.shop.b"}, inOrder))
	if _, err := s.CreateConsumer(t.Context(), consumer); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	refused := map[string]bool{}
	d := toSink(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if id := r.Header.Get("Ce-Id"); refused[id] {
			w.WriteHeader(http.StatusBadRequest)
		} else {
			all = append(all, id)
		}
	})
	d.options.firstRetry, d.options.requeueBehind = 50*time.Millisecond, 10
	d.options.DeadLetters, d.options.DeadLetterAfter = dead, time.Hour
	inFlight := 2
	if inOrder {
		inFlight = 1
	}
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: inFlight}, sourceOf(js, consumer.Durable)); err != nil {
		t.Fatal(err)
	}
	publish = func(id int, eventType string) {
		t.Helper()
		m := nats.NewMsg("kyma.shop." + eventType)
		m.Header = nats.Header{"ce-specversion": {"1.0"}, "ce-id": {strconv.Itoa(id)}, "ce-source": {"shop"}, "ce-type": {eventType}}
		if _, err := js.PublishMsg(t.Context(), m, jetstream.WithMsgID(fmt.Sprint("id", id))); err != nil {
			t.Fatal(err)
		}
	}
	got = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), all...)
	}
	refuse = func(ids ...string) {
		mu.Lock()
		defer mu.Unlock()
		clear(refused)
		for _, id := range ids {
			refused[id] = true
		}
	}
	return s, publish, got, refuse
}

// floor waits until the consumer has acknowledged all up to a sequence.
func floor(t *testing.T, s jetstream.Stream, least uint64) {
	t.Helper()
	poll.Until(t, 20*time.Second, "nothing holds up what came later", func(ctx context.Context) error {
		consumer, err := s.Consumer(ctx, backend.ConsumerName("shop", "orders"))
		if err != nil {
			return err
		}
		if is := consumer.CachedInfo().AckFloor.Stream; is < least {
			return fmt.Errorf("all are taken up to %d, want %d", is, least)
		}
		return nil
	})
}

// TestRequeue: an event that its sink refuses is stored again, behind those that the sink has
// taken, so that these can be purged. It stays the event that it was, and comes once.
func TestRequeue(t *testing.T) {
	s, publish, got, refuse := takenAreKept(t, -1, false, nil)
	refuse("1", "2")
	want := map[string]int{"1": 1}
	for id := 1; id <= 30; id++ {
		eventType := "a"
		if id == 2 {
			eventType = "b"
		}
		publish(id, eventType)
		if id > 2 {
			want[strconv.Itoa(id)] = 1
		}
	}
	floor(t, s, 30)
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("kyma.=retry.>"))
	if err != nil || len(info.State.Subjects) != 1 {
		t.Fatalf("what is stored again has the subjects %v, %v", info.State.Subjects, err)
	}
	// One is of a type that is not asked for any more.
	consumer := stream.WithRetries(stream.Consumer("shop", "orders", []string{"kyma.shop.a"}, false))
	if _, err := s.UpdateConsumer(t.Context(), consumer); err != nil {
		t.Fatal(err)
	}
	refuse()
	floor(t, s, 32)
	counts := map[string]int{}
	for _, id := range got() {
		counts[id]++
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("how often events came (-want +got):\n%s", diff)
	}
}

// TestRequeueWithoutRoom: the stream is full of events that were taken and cannot be purged,
// because one was not. That one becomes a dead letter.
func TestRequeueWithoutRoom(t *testing.T) {
	dead := &keeper{}
	s, publish, _, refuse := takenAreKept(t, 20, false, dead)
	refuse("1")
	for id := 1; id <= 20; id++ {
		publish(id, "a")
	}
	floor(t, s, 20)
	dead.mu.Lock()
	defer dead.mu.Unlock()
	if len(dead.all) != 1 || dead.all[0].Tries < 1 {
		t.Errorf("dead letters: %v", dead.all)
	}
}

// TestRequeueInOrder: nothing comes later while an event is refused, and nothing is stored again.
func TestRequeueInOrder(t *testing.T) {
	s, publish, got, refuse := takenAreKept(t, -1, true, nil)
	refuse("15")
	for id := 1; id <= 30; id++ {
		publish(id, "a")
	}
	floor(t, s, 14)
	refuse()
	floor(t, s, 30)
	var want []string
	for id := 1; id <= 30; id++ {
		want = append(want, strconv.Itoa(id))
	}
	if diff := cmp.Diff(want, got()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
