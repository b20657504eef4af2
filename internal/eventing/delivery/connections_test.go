package delivery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

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
			if is := s.Open(); is != want {
				return fmt.Errorf("%d, want %d", is, want)
			}
			return nil
		})
	}
	post()
	settle(posts)
	post()
	settle(posts) // the same ones
	s.CloseIdle()
	settle(0)
	post()
	server.CloseClientConnections()
	settle(0)
}
