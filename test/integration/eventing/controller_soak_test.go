//go:build soak

package eventing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// TestSoakDelivery: events through 20 Subscriptions while the controller or NATS is killed every ten seconds. Each event that NATS has stored
// reaches each sink; what comes twice has the same id; with one event at a time, events are in order. EVENTING_SOAK_EVENTS is the number
// of events, 100000 by default.
func TestSoakDelivery(t *testing.T) {
	const subscribers = 20
	count := 100_000
	if text := os.Getenv("EVENTING_SOAK_EVENTS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, true)
	var refusals atomic.Int64
	began := time.Now()
	r.sinks.answer("sink-01", func(http.ResponseWriter, *http.Request) { time.Sleep(5 * time.Millisecond) })
	r.sinks.answer("sink-02", func(w http.ResponseWriter, _ *http.Request) {
		if refusals.Add(1)%100 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	r.sinks.answer("sink-03", func(_ http.ResponseWriter, _ *http.Request) { // dead, then there again
		if time.Since(began) < 20*time.Second {
			panic(http.ErrAbortHandler)
		}
	})
	r.sinks.answer("sink-04", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("200 ok")) })
	pods := 0
	next := func() *suite.Process {
		pods++
		return r.controller(fmt.Sprintf("pod-%d", pods), "--log-level=warn")
	}
	controllers := []*suite.Process{next(), next()}
	types := make([]string, 4)
	for i := range types {
		types[i] = fmt.Sprintf("soak.type%d", i)
	}
	for i := range subscribers {
		more := ""
		if i == 0 {
			more = `, config: {maxInFlightMessages: "1"}`
		}
		name := fmt.Sprintf("sink-%02d", i)
		r.subscribe(name, types[i%len(types)], more)
		r.await(name, "ready", ready)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	published := make([][]string, len(types))
	done := make(chan struct{})
	background.Go(func() {
		defer close(done)
		for i := 0; i < count && ctx.Err() == nil; i++ {
			of, id := i%len(types), fmt.Sprintf("s%07d", i)
			err := poll.For(ctx, 5*time.Minute, "NATS takes event "+id, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				_, err := r.publisher.PublishMsg(ctx, event(types[of], id, `"`+id+`"`), jetstream.WithRetryAttempts(0))
				return err
			})
			if err != nil {
				t.Error(err)
				return
			}
			published[of] = append(published[of], id)
		}
	})
	kills := 0
	for ticker := time.NewTicker(10 * time.Second); ; {
		select {
		case <-done:
			ticker.Stop()
		case <-ticker.C:
			if kills++; rand.IntN(2) == 0 {
				r.Kill()
				r.Launch()
			} else {
				i := rand.IntN(len(controllers))
				controllers[i].Kill()
				controllers[i] = next()
			}
			continue
		}
		break
	}
	requests, deliveries := 0, 0
	for i := range subscribers {
		name, want := fmt.Sprintf("sink-%02d", i), published[i%len(types)]
		r.sinks.await(t, name, 15*time.Minute, want...)
		if i == 2 || i == 3 {
			continue // these refuse events, and get them again
		}
		requests += len(r.sinks.ids(name))
		deliveries += len(want)
	}
	r.awaitEmpty(t)
	// What was delivered when a process was killed may come again, but nothing new comes before it.
	seen, last := map[string]bool{}, ""
	for _, id := range r.sinks.ids("sink-00") {
		if !seen[id] && id < last {
			t.Errorf("event %s comes for the first time after %s", id, last)
		}
		seen[id], last = true, max(last, id)
	}
	t.Logf("%d events, %d kills: sinks that refuse nothing got %d requests for %d deliveries, %d more than once", count, kills, requests, deliveries, requests-deliveries)
}
