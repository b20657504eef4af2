package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// load is the sink of the events that are counted.
const load = "load"

// sinks are all sinks: the first part of the path says which.
type sinks struct {
	// say tells people what came.
	say func(format string, args ...any)

	mu   sync.Mutex
	got  map[string][]string // sinks, by the type of the event
	load http.Handler
}

func newSinks(say func(string, ...any)) *sinks { return &sinks{say: say, got: map[string][]string{}} }

// count lets a handler count what comes to the sink of the load.
func (s *sinks) count(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load = h
}

// ServeHTTP implements http.Handler.
func (s *sinks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.Trim(r.URL.Path, "/")
	s.mu.Lock()
	counter := s.load
	s.mu.Unlock()
	if name == load && counter != nil {
		counter.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind := r.Header.Get("Ce-Type")
	s.mu.Lock()
	s.got[kind] = append(s.got[kind], name)
	s.mu.Unlock()
	s.say("   The sink %s got event %s: type %s, source %s, data %s", name, r.Header.Get("Ce-Id"), kind, r.Header.Get("Ce-Source"), body)
}

// await waits until exactly these sinks have an event of the type. Each event is of another type.
func (s *sinks) await(ctx context.Context, kind string, want ...string) error {
	return poll.For(ctx, time.Minute, "the event of type "+kind+" is at its sinks", func(context.Context) error {
		s.mu.Lock()
		got := slices.Sorted(slices.Values(s.got[kind]))
		s.mu.Unlock()
		for _, name := range got {
			if !slices.Contains(want, name) {
				return poll.Stop(fmt.Errorf("the sink %s got it, and has no Subscription for it", name))
			}
		}
		if !slices.Equal(slices.Compact(got), slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("it is at %q, and not at all of %q", got, want)
		}
		return nil
	})
}
