package eventservice_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// leavers is how many clients send an event and leave.
const leavers = 100

// slowSink makes an adapter take its time for each event, and counts those that it got to answer: a
// post that is given up before is lost at an adapter that hands it on.
func slowSink(adapter *eventservice.Adapter, took time.Duration) (finished func() int) {
	var mu sync.Mutex
	n := 0
	adapter.Answer(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(took):
		}
		mu.Lock()
		defer mu.Unlock()
		n++
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// hand sends one whole event, and returns without a look at the answer.
func hand(conn net.Conn, path, body string) error {
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	return err
}

// answered reads the answer to one event.
func answered(conn net.Conn) (int, error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// TestClientsThatLeave: an event that was received whole is finished, also if nobody listens. On
// f3299ef, of 100 events one was delivered if the client closed its connection at once, none if it
// did so after 5 ms, and half-closed clients got 499 instead of their answer.
func TestClientsThatLeave(t *testing.T) {
	for _, tc := range []struct {
		reason string
		path   string
		leave  func(net.Conn) error
	}{
		{"closed at once", eventsV1, func(c net.Conn) error { return c.Close() }},
		{"closed after 5 ms", eventsV1, func(c net.Conn) error {
			time.Sleep(5 * time.Millisecond)
			return c.Close()
		}},
		{"reset after 5 ms", eventsV1, func(c net.Conn) error {
			time.Sleep(5 * time.Millisecond)
			reset(c)
			return c.Close()
		}},
		{"an event of v2, closed at once", eventsV2, func(c net.Conn) error { return c.Close() }},
		{"half-closed: the client waits for its answer", eventsV1, func(c net.Conn) error {
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				return err
			}
			if status, err := answered(c); err != nil || status != http.StatusOK {
				return fmt.Errorf("answered %d, %v", status, err) //nolint:errorlint // either may be what is wrong
			}
			return c.Close()
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			adapter := newAdapter(t)
			finished := slowSink(adapter, 20*time.Millisecond)
			service := start(t, adapter.URL)
			var all sync.WaitGroup
			for range leavers {
				all.Go(func() {
					body := v1(fields{"event-id": uuid.NewString()})
					if tc.path == eventsV2 {
						body = v2(fields{"id": uuid.NewString()})
					}
					conn, err := net.Dial("tcp", strings.TrimPrefix(service.URL, "http://"))
					if err == nil {
						err = hand(conn, tc.path, body)
					}
					if err == nil {
						err = tc.leave(conn)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			poll.Until(t, patience, "each event is delivered", func(context.Context) error {
				if n := finished(); n != leavers {
					return fmt.Errorf("%d of %d", n, leavers)
				}
				return nil
			})
			if ids := adapter.IDs(); len(ids) != leavers {
				t.Errorf("%d events of %d", len(ids), leavers)
			}
		})
	}
}

// TestClientsThatLeaveAProxy: a reverse proxy closes its connection to the service when its client
// leaves. On f3299ef that was the end of the post that was under way.
func TestClientsThatLeaveAProxy(t *testing.T) {
	t.Parallel()
	adapter := newAdapter(t)
	gone := make(chan struct{})
	var arrived, finished sync.WaitGroup
	arrived.Add(leavers)
	finished.Add(leavers)
	adapter.Answer(func(_ http.ResponseWriter, r *http.Request) {
		arrived.Done()
		<-gone
		defer finished.Done()
		select {
		case <-r.Context().Done():
			t.Error("a post was given up")
		case <-time.After(20 * time.Millisecond):
		}
	})
	service := start(t, adapter.URL, "--requestTimeout=60")
	to, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}, // its client has left
	})
	defer proxy.Close()
	var conns []net.Conn
	for range leavers {
		conn, err := net.Dial("tcp", proxy.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if err := hand(conn, eventsV1, eventOf(uuid.NewString())); err != nil {
			t.Fatal(err)
		}
	}
	arrived.Wait()
	for _, conn := range conns {
		_ = conn.Close()
	}
	close(gone)
	finished.Wait()
}

// TestClientsThatLeaveAtTheEnd: what clients sent and left is finished before the process ends, and
// half-closed clients get their answers. On f3299ef the posts were given up when the clients left.
func TestClientsThatLeaveAtTheEnd(t *testing.T) {
	t.Parallel()
	adapter := newAdapter(t)
	var arrived sync.WaitGroup
	arrived.Add(leavers)
	hold := make(chan struct{})
	var mu sync.Mutex
	finished := 0
	adapter.Answer(func(_ http.ResponseWriter, r *http.Request) {
		arrived.Done()
		<-hold
		select {
		case <-r.Context().Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
		mu.Lock()
		defer mu.Unlock()
		finished++
	})
	service := start(t, adapter.URL, "--shutdownDelay=0", "--requestTimeout=60")
	var waiting []net.Conn
	for i := range leavers {
		conn := dial(t, service)
		if err := hand(conn, eventsV1, eventOf(uuid.NewString())); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = conn.Close()
			continue
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, conn)
	}
	arrived.Wait()
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	close(hold)
	for _, conn := range waiting {
		if status, err := answered(conn); err != nil || status != http.StatusOK {
			t.Errorf("answered %d, %v", status, err)
		}
	}
	end(t, service)
	if finished != leavers {
		t.Errorf("%d events of %d are delivered", finished, leavers)
	}
}

// TestClientsThatLeaveAreBounded: events of clients that have left take the same slots and the same
// memory as all others, and their time is over at some point.
func TestClientsThatLeaveAreBounded(t *testing.T) {
	t.Parallel()
	adapter := newAdapter(t)
	hang := make(chan struct{})
	defer close(hang)
	adapter.Answer(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-hang:
		}
	})
	const slots = 4
	service := start(t, adapter.URL, fmt.Sprintf("--maxInFlight=%d", slots), "--requestTimeout=2")
	for range leavers {
		conn := dial(t, service)
		if err := hand(conn, eventsV1, eventOf(uuid.NewString())); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	poll.Until(t, patience, "what has no slot is refused, and what has one is given up in its time", func(context.Context) error {
		refused, late := metric(t, service, `event_service_events_refused_total{cause="overloaded"}`), metric(t, service, `event_service_events_refused_total{cause="mesh_timeout"}`)
		if refused+late != leavers || late < slots {
			return fmt.Errorf("%v are refused, %v were given up", refused, late)
		}
		return nil
	})
	if n := adapter.Total(); n >= leavers {
		t.Errorf("%d events were posted", n)
	}
	for _, name := range []string{"event_service_body_bytes", "event_service_events_in_flight"} {
		if held := metric(t, service, name); held != 0 {
			t.Errorf("afterwards %s is %v", name, held)
		}
	}
	adapter.Answer(nil)
	if got := mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(uuid.NewString()), nil); got.status != 200 {
		t.Errorf("afterwards: %s", got)
	}
}
