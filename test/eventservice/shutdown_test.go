package eventservice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestTerminationUnderLoad: no request that the service has accepted stays without
// an answer, and each event that the adapter got was said to be taken.
func TestTerminationUnderLoad(t *testing.T) {
	t.Parallel()
	adapter := newAdapter(t)
	adapter.Answer(func(http.ResponseWriter, *http.Request) { time.Sleep(5 * time.Millisecond) })
	service := start(t, adapter.URL, "--shutdownDelay=2s")
	const clients, before = 20, 200
	var (
		mu       sync.Mutex
		answered = map[string]int{}
		failed   = map[string]error{}
		enough   = make(chan struct{})
		all      sync.WaitGroup
	)
	for range clients {
		all.Go(func() {
			for {
				id := uuid.NewString()
				got, err := send(t.Context(), http.MethodPost, service.URL+eventsV1, strings.NewReader(eventOf(id)), nil)
				if errors.Is(err, syscall.ECONNREFUSED) {
					return // it has ended
				}
				mu.Lock()
				if err != nil {
					failed[id] = err
				} else if answered[id] = got.status; len(answered) == before {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(patience):
		t.Fatal("the clients get no answers")
	}
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	end(t, service)
	all.Wait()

	got := adapter.IDs()
	for id, times := range got {
		if answered[id] != http.StatusOK {
			t.Errorf("the adapter has event %s, %d times; its client got status %d, error %v", id, times, answered[id], failed[id])
		}
	}
	for id, status := range answered {
		if status != http.StatusOK || got[id] == 0 {
			t.Errorf("event %s was answered with %d; the adapter has it %d times", id, status, got[id])
		}
	}
	if len(answered) <= before+clients {
		t.Errorf("%d events before the signal and %d after it: this proves nothing", before, len(answered)-before)
	}
	// Connections that nobody had accepted yet when the port was closed are reset, and
	// those that a client had opened in advance are closed: no request of them was
	// read, and the loops above have seen that none was. They are few.
	if len(failed) > 5*clients {
		t.Errorf("%d connections broke: %v", len(failed), failed)
	}
}

// TestTerminationAnswersAll: whatever a client does around the signal, and however
// late it sends on a connection that it has opened in time, its request is answered; or
// its connection was never accepted. Fails on the commit before: of connections that were
// open when the delay ended, nearly all were closed without an answer, and the log said
// that every request was answered.
func TestTerminationAnswersAll(t *testing.T) {
	t.Parallel()
	adapter := newAdapter(t)
	adapter.Answer(func(http.ResponseWriter, *http.Request) { time.Sleep(5 * time.Millisecond) })
	service := start(t, adapter.URL, "--shutdownDelay=500ms", "--requestTimeout=30")
	const clients, before = 60, 300
	var (
		mu         sync.Mutex
		answered   = map[string]int{}
		unanswered = map[string]error{}
		enough     = make(chan struct{})
		all        sync.WaitGroup
	)
	for i := range clients {
		all.Go(func() {
			for n := 0; ; n++ {
				// One request on each connection, so that connections can be counted.
				conn, err := net.Dial("tcp", strings.TrimPrefix(service.URL, "http://"))
				if err != nil {
					return // it has ended
				}
				// Up to 600 ms: longer than the delay, so that many are silent when it ends.
				time.Sleep(time.Duration((i*37+n*101)%600) * time.Millisecond)
				id := uuid.NewString()
				got, err := ask(conn, http.MethodPost, eventsV1, eventOf(id))
				_ = conn.Close()
				mu.Lock()
				if err != nil {
					unanswered[id] = err
				} else if answered[id] = got.status; len(answered) == before {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(patience):
		t.Fatal("the clients get no answers")
	}
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	end(t, service)
	all.Wait()

	got := adapter.IDs()
	for id, status := range answered {
		if status != http.StatusOK || got[id] != 1 {
			t.Errorf("event %s was answered with %d; the adapter has it %d times", id, status, got[id])
		}
	}
	for id, err := range unanswered {
		if got[id] != 0 {
			t.Errorf("the adapter has event %s, and its client no answer: %v", id, err)
		}
	}
	// What the service says of itself: those without an answer are those that it never
	// had.
	var last struct {
		Message               string
		Connections, Requests int
	}
	for line := range strings.Lines(service.Log()) {
		if strings.Contains(line, "every request is answered") {
			if err := json.Unmarshal([]byte(line), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Connections != len(answered) || last.Requests != len(answered) {
		t.Errorf("%d answers and %d without one; the service says it had %d connections and %d requests: %v",
			len(answered), len(unanswered), last.Connections, last.Requests, unanswered)
	}
	t.Logf("%d answers, %d connections that were not accepted", len(answered), len(unanswered))
}

// end waits until the service has ended, with exit code 0.
func end(t *testing.T, service *eventservice.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := service.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestTerminationWaits: what was accepted before the signal is answered, however
// long the adapter takes; connections are not kept any longer.
func TestTerminationWaits(t *testing.T) {
	adapter := newAdapter(t)
	arrived, hold := make(chan struct{}, 1), make(chan struct{})
	adapter.Answer(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hold
	})
	service := start(t, adapter.URL, "--shutdownDelay=10ms", "--requestTimeout=60")
	answers := make(chan answer, 1)
	go func() {
		got, err := send(t.Context(), http.MethodPost, service.URL+eventsV1, strings.NewReader(v1(nil)), nil)
		if err != nil {
			t.Errorf("no answer: %v", err)
		}
		answers <- got
	}()
	<-arrived
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	// The port is closed while the request is still under way.
	poll.Until(t, patience, "the port is closed", func(ctx context.Context) error {
		got, err := send(ctx, http.MethodGet, service.URL+"/v1/health", nil, nil)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("answer %s, error %v", got, err) //nolint:errorlint // either may be what is wrong
		}
		return nil
	})
	select {
	case got := <-answers:
		t.Fatalf("answered before the adapter: %s", got)
	default:
	}
	close(hold)
	if got := <-answers; got.status != 200 {
		t.Errorf("%s", got)
	}
	end(t, service)
}

// TestDraining: between the signal and its end the service takes requests, and
// tells clients to open their next connection elsewhere.
func TestDraining(t *testing.T) {
	service := start(t, newAdapter(t).URL, "--shutdownDelay=1h")
	if got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil); got.header.Get("Connection") != "" {
		t.Errorf("before the signal: %s", got)
	}
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, patience, "it has seen the signal", func(context.Context) error {
		got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil)
		if got.status != 200 {
			return poll.Stop(fmt.Errorf("it does not serve: %s", got))
		}
		// net/http's client takes the header "Connection: close" out of an answer.
		if log := service.Log(); !strings.Contains(log, "shutting down:") {
			return fmt.Errorf("its log:\n%s", log)
		}
		return nil
	})
	resp, err := client.Get(service.URL + "/v1/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if !resp.Close {
		t.Error("connections are kept")
	}
	// Another signal ends it at once. One that comes in the same instant as the first
	// may be taken for the same.
	poll.Until(t, patience, "a second signal ends it", func(context.Context) error {
		_ = service.Terminate() // it may have ended
		select {
		case <-service.Exited():
			return nil
		case <-time.After(100 * time.Millisecond):
			return errors.New("it runs")
		}
	})
}
