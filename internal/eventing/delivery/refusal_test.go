package delivery

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestRefusalIsLogged: of hundreds of refused events, one is in the log, with what it takes to find
// it, and with nothing of its data and of the sink's URL.
func TestRefusalIsLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	d := toSink(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("the answer of the sink"))
	})
	d.options.Log = zap.New(core)
	js, publish, _ := orderEvents(t, false)
	const sink = "http://orders.shop.svc.cluster.local/in?token=secret"
	if err := d.Set(orders, Settings{Sink: sink, MaxInFlight: 10}, sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	for id := range 200 {
		publish(id, "a.b")
	}
	w := d.worker(orders)
	poll.Until(t, 20*time.Second, "all are refused", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.traces) < 200 {
			return fmt.Errorf("%d", len(w.traces))
		}
		return nil
	})
	d.Stop(orders)
	lines := logs.FilterMessageSnippet("did not take an event").AllUntimed()
	if len(lines) != 1 {
		t.Fatalf("%d lines, want one", len(lines))
	}
	got := lines[0].ContextMap()
	id, _ := got["id"].(string)
	delete(got, "id")
	want := map[string]any{"subscription": "shop/orders", "type": "a.b", "answer": "400", "problem": "the sink answers 400", "try": uint64(1), "othersSince": int64(0)}
	if diff := cmp.Diff(want, got); diff != "" || id == "" {
		t.Errorf("event %q (-want +got):\n%s", id, diff)
	}
	for _, line := range logs.AllUntimed() {
		if text := line.Message + fmt.Sprint(line.ContextMap()); strings.Contains(text, "secret") || strings.Contains(text, "the answer of the sink") {
			t.Errorf("the log says %s", text)
		}
	}
}

// TestRefusalOfADeadLetter: an event that is given up at once is not said to be sent again.
func TestRefusalOfADeadLetter(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	d := toSink(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	d.options.Log, d.options.DeadLetterAfter = zap.New(core), 0
	js, publish, _ := orderEvents(t, false)
	store := keeping(t, d, js, 8<<20)
	if err := d.Set(orders, settings(1), sourceOf(js, "c")); err != nil {
		t.Fatal(err)
	}
	publish(1, "a.b")
	poll.Until(t, 20*time.Second, "it is a dead letter", func(context.Context) error {
		if n := len(stored(t, store)); n != 1 || logs.FilterMessageSnippet("did not take an event").Len() == 0 {
			return fmt.Errorf("%d dead letters", n)
		}
		return nil
	})
	d.Stop(orders)
	for _, line := range logs.FilterMessageSnippet("did not take an event").AllUntimed() {
		if line.Message != "a sink did not take an event, which is a dead letter now" {
			t.Errorf("the log says %q", line.Message)
		}
	}
}

// TestRefusalOnTheMesh: the same of an event of the mesh, which has no number of tries.
func TestRefusalOnTheMesh(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	s := startMeshSink(t, ordersSink)
	s.receiver.options.Log = zap.New(core)
	s.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	for range 3 {
		s.post(http.MethodPost, "/deliver/shop/orders", "x", nil)
	}
	lines := logs.FilterMessageSnippet("did not take an event").AllUntimed()
	if len(lines) != 1 {
		t.Fatalf("%d lines, want one", len(lines))
	}
	want := map[string]any{"subscription": "shop/orders", "id": "1", "type": "a.b", "answer": "500", "problem": "the sink answers 500", "othersSince": int64(0)}
	if diff := cmp.Diff(want, lines[0].ContextMap()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if h := s.receiver.Health(orders); h.Since.IsZero() || !h.Next.IsZero() {
		t.Errorf("health: %+v", h)
	}
}
