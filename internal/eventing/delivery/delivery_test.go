package delivery

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

func TestParseSink(t *testing.T) {
	for _, tc := range []struct {
		reason, sink string
		want         string // the URL that is posted to; "" if the sink is refused
		said         string
	}{
		{"a Service", "http://orders.shop.svc.cluster.local", "http://orders.shop.svc.cluster.local/", ""},
		{"a port, a path and a query", "https://orders.shop.svc.cluster.local:8443/a%2Fb?c=d", "https://orders.shop.svc.cluster.local:8443/a%2Fb?c=d", ""},
		{"another namespace", "http://orders.other.svc.cluster.local", "", `sink is in namespace "other"`},
		{"a pod of a StatefulSet has six labels", "http://orders-0.orders.shop.svc.cluster.local", "", "sink must be"},
		{"six labels, the last five of which are right", "http://a.orders.shop.svc.cluster.local", "", "sink must be"},
		{"too few labels", "http://orders.shop.svc", "", "sink must be"},
		{"another domain behind it", "http://orders.shop.svc.cluster.local.example.com", "", "sink must be"},
		{"no service", "http://.shop.svc.cluster.local", "", "sink must be"},
		{"an address", "http://169.254.169.254/latest", "", "sink must be"},
		{"a user before another host", "http://orders.shop.svc.cluster.local@example.com/", "", "sink must be"},
		{"a user", "http://user@orders.shop.svc.cluster.local/", "", "sink must be"},
		{"a dot at the end", "http://orders.shop.svc.cluster.local./", "", "sink must be"},
		{"another scheme", "ftp://orders.shop.svc.cluster.local", "", "sink must begin with"},
		{"a port that is none", "http://orders.shop.svc.cluster.local:99999", "", "sink has the port"},
		{"a port of 0", "http://orders.shop.svc.cluster.local:0", "", "sink has the port"},
		{"no URL", "http://%zz", "", "sink is no URL"},
		{"a second line", "http://orders.shop.svc.cluster.local/\n", "", "sink is no URL"},
	} {
		got, err := ParseSink("shop", tc.sink)
		switch {
		case tc.want == "" && err == nil:
			t.Errorf("%s: accepted", tc.reason)
		case tc.want == "" && !strings.Contains(err.Error(), tc.said):
			t.Errorf("%s: refused, but without %q: %v", tc.reason, tc.said, err)
		case tc.want != "" && err != nil:
			t.Errorf("%s: %v", tc.reason, err)
		case tc.want != "" && (got.url.String() != tc.want || got.Service != "orders" || got.Namespace != "shop"):
			t.Errorf("%s: %s of %+v", tc.reason, got.url, got)
		}
	}
}

func TestEventHeader(t *testing.T) {
	full := func(change func(nats.Header)) nats.Header {
		h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"shop"}, "ce-type": {"a.b"}, "Nats-Msg-Id": {"x"}, "content-type": {"text/plain"}}
		if change != nil {
			change(h)
		}
		return h
	}
	want := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"shop"}, "Ce-Type": {"a.b"}, "Ce-Originaltype": {"a.b"}, "Content-Type": {"text/plain"}}
	for _, tc := range []struct {
		reason string
		header nats.Header
		bad    string
	}{
		{"an event, without what is NATS' own", full(nil), ""},
		{"a header of nobody", full(func(h nats.Header) { h["authorization"] = []string{"x"} }), ""},
		{"no headers", nil, "ce-specversion is missing"},
		{"no id", full(func(h nats.Header) { delete(h, "ce-id") }), "ce-id is missing"},
		{"an empty type", full(func(h nats.Header) { h["ce-type"] = []string{""} }), "ce-type is missing"},
		{"another version", full(func(h nats.Header) { h["ce-specversion"] = []string{"0.3"} }), "not 1.0"},
		{"two lines", full(func(h nats.Header) { h["ce-x"] = []string{"a\r\nHost: b"} }), "cannot be sent"},
		{"a name that is none", full(func(h nats.Header) { h["ce-x y"] = []string{"a"} }), "cannot be sent"},
		{"two spellings of one name", full(func(h nats.Header) { h["CE-Id"] = []string{"2"} }), "twice"},
	} {
		got, err := eventHeader(tc.header)
		switch {
		case tc.bad == "" && err != nil:
			t.Errorf("%s: %v", tc.reason, err)
		case tc.bad == "":
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		case err == nil || !strings.Contains(err.Error(), tc.bad):
			t.Errorf("%s: want an error with %q, got %v", tc.reason, tc.bad, err)
		}
	}
}

// TestSend: what an answer means, against a real server.
func TestSend(t *testing.T) {
	elsewhere := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/body":
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		case "/nothing":
			w.WriteHeader(http.StatusNoContent)
		case "/redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/elsewhere":
			elsewhere = true
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/reset":
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	s := NewSender("")
	for path, want := range map[string]outcome{
		"/":         {code: "200"},
		"/body":     {code: "200"},
		"/nothing":  {code: "204"},
		"/redirect": {code: "307", problem: "the sink answers 307"},
		"/busy":     {code: "429", problem: "the sink answers 429", after: 7 * time.Second},
		"/reset":    {code: "error", problem: "the sink closes connections without an answer"},
	} {
		u, err := url.Parse(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		got := s.send(context.Background(), backend.SinkTimeout, u, http.Header{"Ce-Id": {"1"}}, []byte("{}"))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if elsewhere {
		t.Error("a redirect was followed")
	}
	server.Close()
	u, _ := url.Parse(server.URL)
	if got := NewSender("").send(context.Background(), backend.SinkTimeout, u, http.Header{}, nil); got.problem != "the sink refuses connections" || !got.unreachable {
		t.Errorf("nobody listens: %+v", got)
	}
	for _, address := range []string{"169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:80"} {
		if err := notLinkLocal("tcp", address, nil); err == nil {
			t.Errorf("%s is connected to", address)
		}
	}
	if err := notLinkLocal("tcp", "10.96.0.1:80", nil); err != nil {
		t.Error(err)
	}
}

// TestSendToSinkThatClosesConnections: a kept connection that the sink has closed costs no
// delivery. On f3299ef each such delivery failed.
func TestSendToSinkThatClosesConnections(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		again := seen[r.RemoteAddr]
		seen[r.RemoteAddr] = true
		mu.Unlock()
		if again {
			panic(http.ErrAbortHandler) // each connection takes one event
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSender("")
	for _, size := range []int{0, 100, 1 << 20} {
		for range 10 {
			if got := s.send(context.Background(), backend.SinkTimeout, u, http.Header{"Ce-Id": {"1"}}, make([]byte, size)); !got.taken() {
				t.Errorf("%d bytes: %s", size, got.problem)
			}
		}
	}
}
