package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/peers"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

// TestRecovered: what another process saw fail, this one delivers, for which that is no news.
// Nobody else would say that the sink works again.
func TestRecovered(t *testing.T) {
	server, at := natsserver.Start(t, "jetstream { store_dir: /data }", nil), sinks.Start(t)
	conn := server.Connect(t)
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"kyma.>"}})
	}
	if err == nil {
		_, err = js.CreateConsumer(t.Context(), "s", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	}
	if err != nil {
		t.Fatal(err)
	}
	d := delivery.New(delivery.Options{
		Sender: delivery.NewSender(at.DNS), Metrics: tally.New(prometheus.NewRegistry()), Log: zap.NewNop(),
		Changed: func(types.NamespacedName, time.Duration) {}, Lost: func(types.NamespacedName) {},
	})
	var changed []types.NamespacedName
	f := New(zap.NewNop(), func(key types.NamespacedName, _ time.Duration) { changed = append(changed, key) })
	f.Join(peers.New(peers.Options{Log: zap.NewNop(), Changed: f.Divide, Lapsed: func() {}}), d, &delivery.Watches{})
	settings := delivery.Settings{UID: "a", Sink: at.URL("orders", "shop"), MaxInFlight: 1}
	if err := d.Set(orders, settings, pull.Source{Conn: conn, Stream: "s", Consumer: "c"}); err != nil {
		t.Fatal(err)
	}
	defer d.Stop(orders)
	publish := func(id string) {
		t.Helper()
		m := nats.NewMsg("kyma.shop.a.b")
		m.Header = nats.Header{"ce-specversion": {"1.0"}, "ce-id": {id}, "ce-source": {"shop"}, "ce-type": {"a.b"}}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		at.Await(t, "orders", time.Minute, id)
	}
	report := func(of delivery.Settings, seen delivery.Seen) {
		t.Helper()
		raw, err := json.Marshal([]sinkReport{reportOf(orders, seen, settingsHash(of), time.Now())})
		if err == nil {
			err = f.reported("another", raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	publish("1")
	poll.Until(t, time.Minute, "the sink works", func(context.Context) error {
		if h := f.Health(orders); !h.Known || h.Problem != "" {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})

	now := time.Now()
	former := settings
	former.Sink = at.URL("before", "shop")
	report(former, delivery.Seen{Health: health.Record{Failed: now, Since: now, Problem: "the sink of before answers 503"}})
	if h := f.Health(orders); h.Problem != "" {
		t.Errorf("what was seen of another sink counts: %+v", h)
	}
	report(settings, delivery.Seen{Health: health.Record{Failed: now, Since: now, Problem: "the sink answers 503"}, Known: 1, Repeating: 1, Oldest: now.Add(-time.Minute)})
	if !slices.Contains(changed, orders) {
		t.Error("nobody is told that the sink fails")
	}
	if h := f.Health(orders); h.Problem != "the sink answers 503" {
		t.Errorf("what another process has seen does not count: %+v", h)
	}
	if n := f.Numbers(orders, 1, 0); n.Repeating != 1 || !n.Complete || now.Sub(n.Oldest).Round(time.Second) != time.Minute {
		t.Errorf("%+v", n)
	}
	if got := f.Recovered(); len(got) > 0 {
		t.Errorf("it still fails: %v", got)
	}
	publish("2")
	poll.Until(t, time.Minute, "it is known to work", func(context.Context) error {
		if got := f.Recovered(); !slices.Equal(got, []types.NamespacedName{orders}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if h := f.Health(orders); h.Again == 0 || h.Again > health.Calm {
		t.Errorf("it is looked at again after %s", h.Again)
	}
	if got := f.Recovered(); len(got) > 0 {
		t.Errorf("that was said: %v", got)
	}

	f.others = map[string]map[types.NamespacedName]sighting{}
	at.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	f.Forget(orders)
	if n := f.Numbers(orders, 3, 0); n.Complete {
		t.Errorf("two are not known: %+v", n)
	}
}
