package manager

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"k8s.io/apimachinery/pkg/api/resource"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestBarrier: what a real server had in its queue when the stream was closed is stored before the
// barrier, and a stream behind its barrier is known to stay empty.
func TestBarrier(t *testing.T) {
	const events = 1000
	conn := natsserver.Start(t, "jetstream { store_dir: /data, sync_interval: always }", nil).Connect(t)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	open := stream.Config(operatorv1alpha1.BackendConfig{NATSStreamReplicas: 1, NATSMaxMsgsPerTopic: 10 * events, NATSStreamMaxSize: resource.MustParse("100Mi")}, "e1", true)
	if _, err := js.CreateStream(t.Context(), open); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	acks, latest := 0, 0
	if _, err := conn.Subscribe("acks", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		var sequence int
		if _, err := fmt.Sscanf(string(m.Data), `{"stream":"sap","seq":%d`, &sequence); err != nil {
			t.Errorf("answer %q: %v", m.Data, err)
		}
		acks, latest = acks+1, max(latest, sequence)
	}); err != nil {
		t.Fatal(err)
	}
	for range events {
		if err := conn.PublishRequest("kyma.noapp.order", "acks", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil { // the server has read all of them
		t.Fatal(err)
	}
	closing, err := js.UpdateStream(t.Context(), stream.Closed(open, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d events were stored when the stream was closed", closing.CachedInfo().State.LastSeq, events)

	var c connection
	now := time.Now()
	wants := func(info *jetstream.StreamInfo, after time.Duration) bool {
		return c.wantsBarrier(info, reading{now.Add(after), now.Add(after)})
	}
	if wants(closing.CachedInfo(), 0) || c.behindBarrier(closing.CachedInfo()) {
		t.Error("a stream that was closed just now is known to stay empty")
	}
	if !wants(closing.CachedInfo(), barrierDelay) {
		t.Error("no barrier is published")
	}
	info, err := c.raise(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 10*time.Second, "all events are acknowledged", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if acks < events {
			return fmt.Errorf("%d are", acks)
		}
		return nil
	})
	if mu.Lock(); uint64(latest) >= c.barrier.last {
		t.Errorf("event %d was stored after barrier %d", latest, c.barrier.last)
	}
	mu.Unlock()
	if !c.behindBarrier(info) || wants(info, time.Minute) {
		t.Errorf("it is not known that %+v stays empty, barrier %d", info.State, c.barrier.last)
	}

	// What would show that it does not stay so.
	for reason, change := range map[string]func(*jetstream.StreamInfo){
		"an event came and went":    func(i *jetstream.StreamInfo) { i.State.LastSeq++ },
		"an event came":             func(i *jetstream.StreamInfo) { i.State.LastSeq++; i.State.Msgs++ },
		"another stream":            func(i *jetstream.StreamInfo) { i.Created = i.Created.Add(time.Second) },
		"it was opened":             func(i *jetstream.StreamInfo) { i.Config = open },
		"it was opened, and closed": func(i *jetstream.StreamInfo) { i.Config = stream.Closed(open, time.Now().Add(time.Minute)) },
		"it has copies":             func(i *jetstream.StreamInfo) { i.Config.Replicas = 3 },
	} {
		is := *info
		if change(&is); c.behindBarrier(&is) {
			t.Errorf("%s: it is known that the stream stays empty", reason)
		}
	}
	later := *info
	if later.State.LastSeq++; !wants(&later, 2*time.Minute) {
		t.Error("no barrier is published after an event")
	}

	// Without an answer it is not published again.
	conn.Close()
	if _, err := c.raise(t.Context(), js); err == nil || !c.barrier.failed || wants(&later, 3*time.Minute) {
		t.Errorf("without a connection: %v, failed %v", err, c.barrier.failed)
	}
}
