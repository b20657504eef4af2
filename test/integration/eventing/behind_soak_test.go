//go:build soak

package eventing_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSoakRefusedBesideOthers: with three servers, a sink refuses three events for good, one in
// each of three rounds, and takes 40,000 others. What was taken does not stay in the stream because
// of them, and the three come when the sink takes them.
func TestSoakRefusedBesideOthers(t *testing.T) {
	const rounds, each = 4, 10_000
	r := newRigOn(t, startServers(t, 3, 0, "10s"), true)
	var works atomic.Bool
	var mu sync.Mutex
	taken := map[string]int{}
	r.sinks.Answer("orders", func(w http.ResponseWriter, q *http.Request) {
		id := q.Header.Get("Ce-Id")
		if !works.Load() && strings.HasPrefix(id, "bad") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		taken[id]++
	})
	r.controller("pod-1")
	r.controller("pod-2")
	r.subscribe("orders", "a.v1", "")
	r.await("orders", "ready", ready)
	stored := func(ctx context.Context) uint64 {
		s, err := r.manager.Stream(ctx, "sap")
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.Msgs
	}
	most := uint64(0)
	var bad []string
	for round := range rounds {
		if round < 3 {
			bad = append(bad, fmt.Sprintf("bad%d", round))
			r.publish("a.v1", bad[round])
		}
		r.publish("a.v1", numbers(fmt.Sprintf("good%d-", round), each)...)
		most = max(most, stored(t.Context()))
		t.Logf("round %d: %d events are stored", round, stored(t.Context()))
	}
	poll.Until(t, 3*time.Minute, "what was taken is deleted", func(ctx context.Context) error {
		if n := stored(ctx); n > 2*each {
			return fmt.Errorf("%d events are stored", n)
		}
		return nil
	})
	t.Logf("at most %d events were stored at the end of a round, %d at the end", most, stored(t.Context()))
	works.Store(true)
	poll.Until(t, 6*time.Minute, "the stream is empty", func(ctx context.Context) error {
		if n := stored(ctx); n > 0 {
			return fmt.Errorf("%d events are stored", n)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if len(taken) != rounds*each+len(bad) {
		t.Errorf("%d events were taken, want %d", len(taken), rounds*each+len(bad))
	}
	twice := 0
	for _, n := range taken {
		twice += n - 1
	}
	t.Logf("%d events were taken twice", twice)
}
