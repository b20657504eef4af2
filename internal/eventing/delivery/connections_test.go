package delivery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// manyConnections counts how often it is closed.
type manyConnections struct{ is, closed atomic.Int64 }

func (c *manyConnections) open() int64 { return c.is.Load() }
func (c *manyConnections) closeIdle()  { c.closed.Add(1) }

// TestIdleConnections: idle connections are closed when events need their bytes, and not before.
// What is being posted has bytes for its connection.
func TestIdleConnections(t *testing.T) {
	const posts = 20 // that take as much as 36 connections
	for _, tc := range []struct {
		reason string
		open   int64
		posts  int
		events int64 // in connections
		closed bool
	}{
		{"few are open", uncounted, 0, 100, false},
		{"there is room for all", uncounted + 40, 0, 60, false},
		{"events need the room", uncounted + 41, 0, 60, true},
		{"they are in use", uncounted + 50, posts, 30, false},
		{"some are in use", uncounted + 55, posts, 30, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			kept := &manyConnections{}
			kept.is.Store(tc.open)
			b := &Budget{total: 100 * perConnection, connections: kept}
			posting, others := &share{of: b}, &share{of: b}
			for range tc.posts {
				if !posting.takePost(0) {
					t.Fatal("there is no room")
				}
			}
			if !others.take(tc.events * perConnection) {
				t.Fatal("there is no room")
			}
			poll.Until(t, time.Minute, "idle connections are closed or not", func(context.Context) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.closing {
					return fmt.Errorf("they are being closed")
				}
				return nil
			})
			if is := kept.closed.Load() > 0; is != tc.closed {
				t.Errorf("closed: %t, want %t", is, tc.closed)
			}
		})
	}
}

// TestSenderCountsConnections: a connection counts until it is closed, by either side.
func TestSenderCountsConnections(t *testing.T) {
	const posts = 5
	arrived, answer := make(chan bool, posts), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- true
		<-answer
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSender("")
	post := func() {
		t.Helper()
		var all sync.WaitGroup
		for range posts {
			all.Go(func() {
				if got := s.send(context.Background(), backend.SinkTimeout, u, http.Header{"Ce-Id": {"1"}}, []byte("{}")); !got.taken() {
					t.Error(got.problem)
				}
			})
		}
		for range posts {
			<-arrived
		}
		for range posts {
			answer <- true
		}
		all.Wait()
	}
	settle := func(want int64) {
		t.Helper()
		poll.Until(t, time.Minute, "connections are counted", func(context.Context) error {
			if is := s.open(); is != want {
				return fmt.Errorf("%d, want %d", is, want)
			}
			return nil
		})
	}
	post()
	settle(posts)
	post()
	settle(posts) // the same ones
	s.closeIdle()
	settle(0)
	post()
	server.CloseClientConnections()
	settle(0)
}
