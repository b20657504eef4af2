package delivery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestMemory: a Subscription with 1,000 events of 1 MiB in flight, whose sink takes its time, stays
// within the budget, and slows only itself. On f3299ef nothing bounded the bytes: all its events
// were here at the same time.
func TestMemory(t *testing.T) {
	const total, greedy, modest = 24 << 20, 40, 50
	var here, most atomic.Int64
	arrived := make(chan string, 1000)
	answer := make(chan struct{})
	d := toSink(t, func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if n > 1000 {
			now := here.Add(n)
			defer here.Add(-n)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			<-answer
		}
		arrived <- r.Header.Get("Ce-Id")
	})
	d.options.Budget = budget.New(total, d.options.Sender)
	js, _, _ := orderEvents(t, false)
	others := types.NamespacedName{Namespace: "shop", Name: "others"}
	publish := func(subject string, id int, data []byte) {
		t.Helper()
		m := nats.NewMsg(subject)
		m.Header = nats.Header{"ce-specversion": {"1.0"}, "ce-id": {strconv.Itoa(id)}, "ce-source": {"shop"}, "ce-type": {"a.b"}}
		m.Data = data
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for name, subject := range map[string]string{"large": "kyma.shop.large", "small": "kyma.shop.small"} {
		config := stream.Consumer("shop", name, []string{subject}, false)
		config.Durable = name
		if _, err := js.CreateConsumer(t.Context(), "s", config); err != nil {
			t.Fatal(err)
		}
	}
	large := make([]byte, 1<<20-1000)
	for id := range greedy {
		publish("kyma.shop.large", id, large)
	}
	if err := d.Set(orders, Settings{Sink: ordersSink.Sink, MaxInFlight: 1000}, sourceOf(js, "large")); err != nil {
		t.Fatal(err)
	}
	if err := d.Set(others, Settings{Sink: ordersSink.Sink, MaxInFlight: 10}, sourceOf(js, "small")); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for id := range modest {
		publish("kyma.shop.small", 1000+id, []byte("{}"))
	}
	for len(got) < modest { // while the other one has all it gets
		got[next(t, arrived)] = true
	}
	poll.Until(t, time.Minute, "the sink has many bytes at the same time", func(context.Context) error {
		if n := most.Load(); n < 4<<20 {
			return fmt.Errorf("at most %d bytes at the same time: the budget is not used", n)
		}
		return nil
	})
	close(answer)
	for len(got) < modest+greedy {
		got[next(t, arrived)] = true
	}
	if err := d.StopAll(t.Context()); err != nil {
		t.Error(err)
	}
	b := d.options.Budget
	used, peak, waiting := b.Usage()
	t.Logf("at most %d of %d bytes, %d at the sink", peak, total, most.Load())
	if peak > total || most.Load() > total || used != 0 || waiting > 0 {
		t.Errorf("at most %d of %d bytes, %d at the sink; %d are used at the end, and %d wait", peak, total, most.Load(), used, waiting)
	}
}
