package eventing_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/pull"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

// TestNoPauses: events that are in the stream arrive one after the other without a pause, however
// few may be in flight, and however busy the machine is: threads that only compute make any other
// thread wait, anywhere. See docs/decisions/1021.
func TestNoPauses(t *testing.T) {
	// Two missing heartbeats of 15 s let each client ask again. Half of that is much more than a
	// busy machine needs for one event.
	const longest = 15 * time.Second
	p, ctx, to := startNATS(t), t.Context(), sinks.Start(t)
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSMaxMsgsPerTopic, config.NATSStreamMaxSize = 10_000, resource.MustParse("64Mi")
	if _, err := manager.CreateStream(ctx, stream.Config(config, "e1", true)); err != nil {
		t.Fatal(err)
	}
	deliveries := delivery.New(delivery.Options{
		Sender: delivery.NewSender(to.DNS), Metrics: tally.New(prometheus.NewRegistry()), Log: zap.NewNop(),
		Changed: func(types.NamespacedName, time.Duration) {}, Lost: func(s types.NamespacedName) { t.Errorf("%s is lost", s) },
	})
	defer func() {
		if err := deliveries.StopAll(ctx); err != nil {
			t.Error(err)
		}
	}()

	const busy = 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(busy + 4))
	running, stop := context.WithCancel(ctx)
	defer stop()
	for range busy {
		go func() {
			for running.Err() == nil {
			}
		}()
	}
	for inFlight, events := range map[int]int{1: 3000, 2: 1000} {
		name, kind := fmt.Sprintf("s%d", inFlight), fmt.Sprintf("a.b%d", inFlight)
		consumer := stream.Consumer("shop", name, []string{backend.Filter("", kind)}, inFlight == 1)
		if _, err := controller.CreateConsumer(ctx, backend.Stream, consumer); err != nil {
			t.Fatal(err)
		}
		for i := range events {
			if _, err := publisher.PublishMsgAsync(event(kind, fmt.Sprintf("%d-%d", inFlight, i), "{}")); err != nil {
				t.Fatal(err)
			}
		}
		<-publisher.PublishAsyncComplete()
		before := time.Now()
		err := deliveries.Set(types.NamespacedName{Namespace: "shop", Name: name}, delivery.Settings{Sink: to.URL(name, "shop"), MaxInFlight: inFlight},
			pull.Source{Conn: controller.Conn(), Stream: backend.Stream, Consumer: consumer.Durable})
		if err != nil {
			t.Fatal(err)
		}
		poll.Until(t, 3*time.Minute, "the sink has all events", func(context.Context) error {
			if n := len(to.Of(name)); n < events {
				return fmt.Errorf("%d of %d", n, events)
			}
			return nil
		})
		pause := time.Duration(0)
		for _, r := range to.Of(name) {
			pause, before = max(pause, r.At.Sub(before)), r.At
		}
		t.Logf("%d in flight: the longest pause is %s", inFlight, pause)
		if pause > longest {
			t.Errorf("%d in flight: a pause of %s", inFlight, pause)
		}
	}
}
