package post

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSinksThatCloseConnections: a sink that has closed a kept connection, as Node.js does after 5
// s, costs no event. On f3299ef, 13 to 16 % of the controller's deliveries failed at such a sink:
// its sender was another one, that repeated nothing.
func TestSinksThatCloseConnections(t *testing.T) {
	for _, tc := range []struct {
		reason string
		size   int
		abrupt bool
	}{
		{"no data", 0, true},
		{"a small event", 100, true},
		{"an event of several packets, of which the first may be sent", 100 << 10, true},
		{"the largest event", 1 << 20, true},
		{"the connection ends when the event was sent", 100, false},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var answered atomic.Int64
		serve := func(c net.Conn) {
			defer c.Close()
			in := bufio.NewReader(c)
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			answered.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			if !tc.abrupt {
				if r, err = http.ReadRequest(in); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				return
			}
			_, _ = in.Peek(1) // the next event is on its way, and nobody reads it
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		to := &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}
		through := &http.Transport{MaxIdleConnsPerHost: 100}
		const events = 100
		for i := range events {
			if status, _, err := Event(t.Context(), through, to, http.Header{"Ce-Id": {"1"}}, make([]byte, tc.size)); err != nil || status != http.StatusOK {
				t.Errorf("%s: event %d: status %d, %v", tc.reason, i, status, err)
			}
		}
		if n := answered.Load(); n != events {
			t.Errorf("%s: the sink took %d events of %d", tc.reason, n, events)
		}
		_ = l.Close()
	}
}

// transport is a receiver without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endless is an answer whose status has come, and whose body never ends.
type endless struct{ r *http.Request }

func (e endless) Read([]byte) (int, error) {
	<-e.r.Context().Done()
	return 0, e.r.Context().Err()
}
func (endless) Close() error { return nil }

// TestAnswersWithoutEnd: who has sent a status has answered. On f3299ef such a sink held a slot of
// its Subscription for 30 seconds.
func TestAnswersWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		through := transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: endless{r}}, nil
		})
		began := time.Now()
		status, _, err := Event(t.Context(), through, &url.URL{Scheme: "http", Host: "sink"}, http.Header{}, []byte("{}"))
		if took := time.Since(began); status != http.StatusOK || err != nil || took != discardTime {
			t.Errorf("status %d, %v, after %s", status, err, took)
		}
	})
}

// TestLongAnswers: of an answer no more is read than may be worth a connection.
func TestLongAnswers(t *testing.T) {
	written := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sum := 0
		for piece := make([]byte, 64<<10); sum < 1<<30; {
			n, err := w.Write(piece)
			if sum += n; err != nil {
				break
			}
		}
		written <- sum
	}))
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if status, _, err := Event(t.Context(), http.DefaultTransport, to, http.Header{}, nil); status != http.StatusOK || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	if n := <-written; n == 1<<30 {
		t.Errorf("%d bytes of an answer were read", n)
	}
}

// TestKinds: an event without an answer says why, and whether the receiver was reached.
func TestKinds(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		err     error
		kind    Kind
		reached bool
	}{
		{"no answer in time", context.DeadlineExceeded, NoAnswer, true},
		{"the connection is reset", &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, Closed, true},
		{"the connection ends", io.EOF, Closed, true},
		{"an answer ends too early", io.ErrUnexpectedEOF, Closed, true},
		{"no such host", &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}, UnknownHost, false},
		{"the DNS server does not answer", &net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}}, Unresolved, false},
		{"nobody listens", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Refused, false},
		{"a connection takes too long", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, SlowConnect, false},
		{"no route", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, Unreachable, false},
	} {
		through := transport(func(*http.Request) (*http.Response, error) { return nil, fmt.Errorf("post: %w", tc.err) })
		_, _, err := Event(t.Context(), through, &url.URL{Scheme: "http", Host: "sink"}, http.Header{}, nil)
		got, ok := errors.AsType[*Error](fmt.Errorf("cannot post: %w", err))
		if !ok || got.Kind != tc.kind || got.Kind.Reached() != tc.reached || !errors.Is(err, tc.err) {
			t.Errorf("%s: %#v, want kind %d", tc.reason, err, tc.kind)
		}
	}
}
