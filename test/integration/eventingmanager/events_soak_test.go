//go:build soak

package eventingmanager_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSoakEvents: events through 20 Subscriptions with awkward sinks, while the pods of the
// publisher, the controller or NATS are killed every ten seconds. Each event that was accepted
// reaches each sink; what comes twice has the same id; with one event at a time, events are in
// order. EVENTING_SOAK_EVENTS is the number of events, 100000 by default.
func TestSoakEvents(t *testing.T) {
	const subscribers = 20
	count := measure.Number(t, "EVENTING_SOAK_EVENTS", 100_000)
	s := newSite(t, "soak")
	to := s.withSinks()
	s.start()
	s.create(eventings, strings.NewReplacer("natsStreamMaxSize: 10Mi", "natsStreamMaxSize: 700Mi", "size: 100Mi", "size: 1Gi",
		"min: 1, max: 1", "min: 2, max: 2", "controller: {replicas: 1}", "controller: {replicas: 2}").Replace(one))
	s.await(90*time.Second, "Ready", "", "")

	var refusals atomic.Int64
	began := time.Now()
	to.Answer("sink-01", func(http.ResponseWriter, *http.Request) { time.Sleep(5 * time.Millisecond) })
	to.Answer("sink-02", func(w http.ResponseWriter, _ *http.Request) {
		if refusals.Add(1)%100 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	to.Answer("sink-03", func(http.ResponseWriter, *http.Request) { // dead, then there again
		if time.Since(began) < 20*time.Second {
			panic(http.ErrAbortHandler)
		}
	})
	to.Answer("sink-04", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("200 ok")) })
	types := make([]string, 4)
	for i := range types {
		types[i] = fmt.Sprintf("soak.type%d", i)
	}
	for i := range subscribers {
		more := ""
		if i == 0 {
			more = `, config: {maxInFlightMessages: "1"}`
		}
		s.subscribe(to, fmt.Sprintf("sink-%02d", i), fmt.Sprintf("source: commerce, types: [%s]%s", types[i%len(types)], more))
	}
	for i := range subscribers {
		s.awaitSubscription(fmt.Sprintf("sink-%02d", i))
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := s.http()
	published, refused := make([][]string, len(types)), atomic.Int64{}
	var publishing sync.WaitGroup
	for of, eventType := range types { // one client for each type, one event after the other
		publishing.Go(func() {
			for i := of; i < count; i += len(types) {
				id := fmt.Sprintf("s%07d", i)
				header := created(id)
				header["Ce-Type"] = eventType
				err := poll.For(ctx, 5*time.Minute, "the publisher takes event "+id, func(ctx context.Context) error {
					status, answer, err := ask(ctx, client, http.MethodPost, "/publish", header, fmt.Sprintf(`{"number":%d}`, i))
					if err == nil && status/100 != 2 {
						err = fmt.Errorf("%d %s", status, answer)
					}
					if err != nil {
						refused.Add(1)
					}
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
				published[of] = append(published[of], id)
			}
		})
	}
	killed := make(chan int, 1)
	killing, calm := context.WithCancel(ctx)
	go func() { killed <- s.killing(killing, 10*time.Second) }()
	publishing.Wait()
	took := time.Since(began)

	requests, deliveries := 0, 0
	for i := range subscribers {
		name, want := fmt.Sprintf("sink-%02d", i), published[i%len(types)]
		to.Await(t, name, 15*time.Minute, want...)
		if i == 2 || i == 3 {
			continue // these refuse events, and get them again
		}
		requests += len(to.IDs(name))
		deliveries += len(want)
	}
	calm()
	inOrder(t, to.Of("sink-00"))
	s.awaitEmpty()
	t.Logf("%d events in %.0f s, delivered in %.0f s, %d kills, %d tries refused: sinks that refuse nothing got %d requests for %d deliveries, %d more than once", count, took.Seconds(), time.Since(began).Seconds(),
		<-killed, refused.Load(), requests, deliveries, requests-deliveries)
}

// awaitEmpty waits until the stream holds no events.
func (s *site) awaitEmpty() {
	s.t.Helper()
	poll.Until(s.t, time.Minute, "the stream is empty", func(ctx context.Context) error {
		stream, err := s.js("manager").Stream(ctx, backend.Stream)
		if err == nil && stream.CachedInfo().State.Msgs > 0 {
			err = fmt.Errorf("%d events", stream.CachedInfo().State.Msgs)
		}
		return err
	})
}
