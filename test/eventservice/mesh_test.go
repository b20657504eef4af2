package eventservice_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// TestMeshAnswers: what a client is told when the adapter, or what is before it,
// answers this.
func TestMeshAnswers(t *testing.T) {
	adapter := newAdapter(t)
	service := start(t, adapter.URL)
	elsewhere := newAdapter(t)
	for _, tc := range []struct {
		reason string
		mesh   int
		header string // Retry-After of the mesh
		want   int
		retry  string
	}{
		{"200 is the adapter's own", 200, "", 200, ""},
		{"202 is that of a Broker", 202, "", 200, ""},
		{"204 says nothing, but yes", 204, "", 200, ""},
		{"400 is handed on: the event itself is refused", 400, "", 400, ""},
		{"413, too", 413, "", 413, ""},
		{"500: the adapter's sink has refused", 500, "", 500, "2"},
		{"502: the adapter's sink is down", 502, "", 502, "2"},
		{"503: no adapter", 503, "", 503, "2"},
		{"503 that knows better when to come again", 503, "17", 503, "17"},
		{"but not for ever", 503, "86400", 503, "60"},
		{"504", 504, "", 504, "2"},
		{"404 is the mesh's own: a client must not think its event wrong", 404, "", 503, "2"},
		{"so is 403", 403, "", 503, "2"},
		{"and 401", 401, "", 503, "2"},
		{"and 405", 405, "", 503, "2"},
		{"429 with its own time", 429, "5", 503, "5"},
		{"a redirect is not followed: the event would be gone", 301, "", 503, "2"},
		{"nor is one that keeps the method", 307, "", 503, "2"},
		{"a status nobody knows", 299, "", 200, ""},
	} {
		adapter.Answer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			if tc.header != "" {
				w.Header().Set("Retry-After", tc.header)
			}
			w.WriteHeader(tc.mesh)
		})
		id := uuid.NewString()
		got := mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(id), nil)
		if got.status != tc.want || got.header.Get("Retry-After") != tc.retry {
			t.Errorf("%s: status %d, want %d; Retry-After %q, want %q", tc.reason, got.status, tc.want, got.header.Get("Retry-After"), tc.retry)
		}
		switch {
		case tc.want == 200 && got.body["event-id"] != id:
			t.Errorf("%s: %s", tc.reason, got)
		case tc.want != 200 && (got.body["status"] != float64(tc.want) || got.body["type"] != "refused_by_mesh" ||
			!strings.HasPrefix(fmt.Sprint(got.body["message"]), fmt.Sprintf("error sending cloudevent: %d", tc.mesh))):
			t.Errorf("%s: %s", tc.reason, got)
		}
		if n := len(adapter.Received(id)); n != 1 {
			t.Errorf("%s: posted %d times", tc.reason, n)
		}
	}
	if n := elsewhere.Total(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// socket is an adapter below HTTP: each connection is handed to serve.
func socket(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

// reset closes a connection so that the other end sees a reset.
func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
}

// readRequest reads until the end of an event; its data is {"order":1}.
func readRequest(conn net.Conn) bool {
	var got strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(got.String(), `{"order":1}`) {
		n, err := conn.Read(buffer)
		if err != nil {
			return false
		}
		got.Write(buffer[:n])
	}
	return true
}

// TestMeshFaults: an adapter that is down, slow or resets never makes a panic or a
// reset connection of it.
func TestMeshFaults(t *testing.T) {
	ended := make(chan struct{})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	const taken, notTaken = "the event may have been taken: send it again with the same event-id", "the event was not taken: send it again"
	cases := []struct {
		reason, url string
		status      int
		kind, info  string
	}{
		{"it is down", "http://" + closed.Addr().String(), 503, "service_unavailable", notTaken},
		{"it has no address", "http://adapter.invalid", 503, "service_unavailable", notTaken},
		// Depending on when the reset comes, the event was under way, or not yet.
		{"it resets at once", socket(t, reset), 503, "service_unavailable", someInfo},
		{"it resets after it has read the event", socket(t, func(c net.Conn) { readRequest(c); reset(c) }), 503, "service_unavailable", taken},
		{"it closes without an answer", socket(t, func(c net.Conn) { readRequest(c) }), 503, "service_unavailable", taken},
		{"it is not HTTP", socket(t, func(c net.Conn) { readRequest(c); fmt.Fprint(c, "220 smtp ready\r\n") }), 503, "service_unavailable", taken},
		{"its answer breaks off", socket(t, func(c net.Conn) { readRequest(c); fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Le") }), 503, "service_unavailable", taken},
		{"its answer has no end", socket(t, func(c net.Conn) {
			readRequest(c)
			for _, err := fmt.Fprint(c, "HTTP/1.1 200 OK\r\n"); err == nil; _, err = fmt.Fprintf(c, "X-More: %s\r\n", strings.Repeat("x", 4096)) {
			}
		}), 503, "service_unavailable", taken},
		{"it does not read", socket(t, func(net.Conn) { <-ended }), 504, "timeout", taken},
		{"it reads and does not answer", socket(t, func(c net.Conn) { readRequest(c); <-ended }), 504, "timeout", taken},
	}
	t.Cleanup(func() { close(ended) }) // before the sockets are closed, which wait for this
	for _, tc := range cases {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			limit := "60" // on a loaded machine, a second may pass before a fault is seen
			if tc.status == http.StatusGatewayTimeout {
				limit = "3"
			}
			service := start(t, tc.url, "--requestTimeout="+limit)
			got := mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(uuid.NewString()), nil)
			if info := fmt.Sprint(got.body["moreInfo"]); tc.info == someInfo && (info == taken || info == notTaken) {
				tc.info = info
			}
			want := fields{"status": float64(tc.status), "type": tc.kind, "moreInfo": tc.info, "message": got.body["message"]}
			if diff := cmp.Diff(map[string]any(want), got.body); got.status != tc.status || got.header.Get("Retry-After") == "" || diff != "" {
				t.Errorf("%s (-want +got):\n%s", got, diff)
			}
			// And it goes on.
			if got := mustSend(t, http.MethodGet, service.URL+"/v1/health", "", nil); got.status != 200 {
				t.Errorf("health is %s", got)
			}
		})
	}
}

// TestAnswerThatIsCutOff: the status has come, so the event is taken, whatever
// becomes of the rest of the answer.
func TestAnswerThatIsCutOff(t *testing.T) {
	url := socket(t, func(c net.Conn) {
		readRequest(c)
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
	})
	service := start(t, url)
	if got := mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(uuid.NewString()), nil); got.status != 200 {
		t.Errorf("%s", got)
	}
}

// TestKeptConnections: connections to the adapter are used again, and one that it
// has closed meanwhile costs no client an error.
func TestKeptConnections(t *testing.T) {
	var mu sync.Mutex
	opened := 0
	// Each connection takes two events and then is dead without a word, which is
	// what a client of a restarted adapter meets.
	url := socket(t, func(c net.Conn) {
		mu.Lock()
		opened++
		mu.Unlock()
		for range 2 {
			if !readRequest(c) {
				return
			}
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
	})
	service := start(t, url)
	const events = 10
	for range events {
		if got := mustSend(t, http.MethodPost, service.URL+eventsV1, eventOf(uuid.NewString()), nil); got.status != 200 {
			t.Errorf("%s", got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if opened >= events {
		t.Errorf("%d connections for %d events: none was used again", opened, events)
	}
}

// TestAdapterComesBack: nothing is remembered of an adapter that was down.
func TestAdapterComesBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	service := start(t, "http://"+address)
	for range 3 {
		if got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil); got.status != 503 {
			t.Errorf("%s", got)
		}
	}
	adapter := newAdapter(t)
	l, err = net.Listen("tcp", address)
	if err != nil {
		t.Skipf("another process has taken the port meanwhile: %v", err)
	}
	server := &http.Server{Handler: adapter, ReadHeaderTimeout: patience}
	go server.Serve(l) //nolint:errcheck // it ends when the test closes it
	defer server.Close()
	if got := mustSend(t, http.MethodPost, service.URL+eventsV1, v1(nil), nil); got.status != 200 {
		t.Errorf("%s", got)
	}
}
