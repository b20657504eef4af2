package eventservice

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// TestPanic: a bug of ours costs one request, which is answered.
func TestPanic(t *testing.T) {
	s := newServer(t, func(*http.Request) (*http.Response, error) { panic("a bug") })
	got := httptest.NewRecorder()
	s.ServeHTTP(got, httptest.NewRequest(http.MethodPost, "/shop/v1/events", strings.NewReader(
		`{"event-type":"a","event-type-version":"v1","event-time":"2018-11-02T22:08:41Z","data":1}`)))
	want := `{"status":500,"type":"internal_server_error","message":"Internal server error",` +
		`"moreInfo":"the event may have been taken: send it again with the same event-id"}` + "\n"
	if got.Code != 500 || got.Header().Get("Retry-After") != "2" || got.Body.String() != want {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
	if len(s.slots) != 0 || s.bodies.taken.Load() != 0 {
		t.Errorf("%d slots and %d bytes are still taken", len(s.slots), s.bodies.taken.Load())
	}
}

// TestNoCluster: events do not need one.
func TestNoCluster(t *testing.T) {
	s := newServer(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("not asked") })
	got := httptest.NewRecorder()
	s.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/shop/v1/events/subscribed", nil))
	want := `{"code":500,"error":"cannot tell what is subscribed"}` + "\n"
	if got.Code != 500 || got.Body.String() != want {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// sender is a Sender that is a function.
type sender func(context.Context) *legacy.Problem

func (f sender) Send(ctx context.Context, _ *cloudevent.Event, _ http.Header, _ string) *legacy.Problem {
	return f(ctx)
}
func (sender) Ready(context.Context) error { return nil }

// TestSendOutlivesItsClient: a sender is not told that the client has left, and has a time of its
// own. On f3299ef its context ended with the client's connection.
func TestSendOutlivesItsClient(t *testing.T) {
	for path, body := range map[string]string{
		"/shop/v1/events": `{"event-type":"a","event-type-version":"v1","event-time":"2018-11-02T22:08:41Z","data":1}`,
		"/publish":        `{"specversion":"1.0","id":"1","source":"shop","type":"a.b","data":{}}`,
	} {
		client, leave := context.WithCancel(t.Context())
		var ended error
		var left time.Duration
		s, err := New(Options{
			Sender: sender(func(ctx context.Context) *legacy.Problem {
				leave()
				ended = ctx.Err()
				if at, ok := ctx.Deadline(); ok {
					left = time.Until(at)
				}
				return nil
			}),
			Routes: All, MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, SendTimeout: time.Minute, MaxInFlight: 10, MaxConnections: 10,
		}, zap.NewNop(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)).WithContext(client)
		r.Header.Set("Content-Type", "application/cloudevents+json")
		got := httptest.NewRecorder()
		s.ServeHTTP(got, r)
		if got.Code/100 != 2 || ended != nil || left <= 10*time.Second || left > time.Minute {
			t.Errorf("%s: answered %d, the context of the sender ended with %v, and gave it %s", path, got.Code, ended, left)
		}
	}
}

// TestLeftOut: a large ce-* header goes with the event, as with 1.10, and what cannot is named. On
// f3299ef it was dropped in silence from 4,097 bytes on.
func TestLeftOut(t *testing.T) {
	for _, tc := range []struct {
		reason string
		header http.Header
		sent   map[string]int // lengths
		left   string
	}{
		{"nothing of it", http.Header{"Traceparent": {"x"}}, map[string]int{}, ""},
		{"a large one", http.Header{"Ce-A": {strings.Repeat("x", 5000)}}, map[string]int{"Ce-A": 5000}, ""},
		{"a large subject", http.Header{"Ce-Subject": {strings.Repeat("x", 5000)}}, map[string]int{"Ce-Subject": 5000}, ""},
		{"one that is too large", http.Header{"Ce-A": {strings.Repeat("x", 17000)}, "Ce-B": {"1"}}, map[string]int{"Ce-B": 1}, "ce-a"},
		{"too many: always the same are left", http.Header{"Ce-A": {strings.Repeat("x", 9000)}, "Ce-B": {strings.Repeat("x", 9000)}, "Ce-C": {"1"}}, map[string]int{"Ce-A": 9000, "Ce-C": 1}, "ce-b"},
		{"no name of an attribute, no absolute schema", http.Header{"Ce-Not_a_name": {"1"}, "Ce-Dataschema": {"a/b"}}, map[string]int{}, "ce-dataschema, ce-not_a_name"},
		{"what the body or the mesh has", http.Header{"Ce-Id": {"1"}, "Ce-Knativebrokerttl": {"1"}, "Ce-Empty": {""}}, map[string]int{}, ""},
	} {
		sent := map[string]int{}
		s := newServer(t, func(r *http.Request) (*http.Response, error) {
			for _, name := range []string{"Ce-A", "Ce-B", "Ce-C", "Ce-Subject", "Ce-Dataschema", "Ce-Not_a_name", "Ce-Knativebrokerttl"} {
				if value := r.Header.Get(name); value != "" {
					sent[name] = len(value)
				}
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		r := httptest.NewRequest(http.MethodPost, "/shop/v1/events", strings.NewReader(
			`{"event-type":"a","event-type-version":"v1","event-time":"2018-11-02T22:08:41Z","data":1}`))
		maps.Copy(r.Header, tc.header)
		got := httptest.NewRecorder()
		s.ServeHTTP(got, r)
		if left := got.Header().Get("X-Event-Left-Out"); got.Code != http.StatusOK || left != tc.left || !maps.Equal(sent, tc.sent) {
			t.Errorf("%s: status %d, left out %q, sent %v", tc.reason, got.Code, left, sent)
		}
	}
}

// known is a Sender that has each event already.
type known struct{ sender }

func (known) Send(_ context.Context, e *cloudevent.Event, _ http.Header, _ string) *legacy.Problem {
	e.Repeated = true
	return nil
}

// TestRepeats: a client sees that its event was dropped as a repeat, and it is counted. On f3299ef
// nothing told.
func TestRepeats(t *testing.T) {
	s, err := New(Options{
		Sender: known{}, Routes: All, Metrics: Metrics{Prefix: "p", Backend: "NATS", Taken: "stored"}, MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, MaxInFlight: 10, MaxConnections: 10,
	}, zap.NewNop(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/shop/v1/events": `{"event-type":"a","event-type-version":"v1","event-time":"2018-11-02T22:08:41Z","data":1}`,
		"/publish":        `{"specversion":"1.0","id":"1","source":"shop","type":"a.b","data":{}}`,
	} {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/cloudevents+json")
		got := httptest.NewRecorder()
		s.ServeHTTP(got, r)
		if got.Code/100 != 2 || got.Header().Get("X-Event-Repeated") != "true" {
			t.Errorf("%s: %d %v", path, got.Code, got.Header())
		}
	}
	for _, want := range []string{`result="repeated",source="shop",type="a.v1"} 1`, `result="repeated",source="shop",type="a.b"} 1`} {
		if text := gathered(s, "text/plain"); !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s:\n%s", want, text)
		}
	}
}

// TestTrailers: an attribute behind the body is refused, also one that was not announced.
func TestTrailers(t *testing.T) {
	s, err := New(Options{
		Sender: known{}, Routes: All, MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, MaxInFlight: 10, MaxConnections: 10,
	}, zap.NewNop(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	for trailer, want := range map[string]int{"ce-subject": 400, "Content-Encoding": 400, "X-Checksum": 204} {
		for _, announced := range []string{"", "Trailer: " + trailer + "\r\n"} {
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, "POST /publish HTTP/1.1\r\nHost: x\r\nce-specversion: 1.0\r\nce-id: 1\r\nce-source: shop\r\nce-type: a.b\r\n"+
				"Content-Type: text/plain\r\n"+announced+"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"+trailer+": x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _ = resp.Body.Close(); resp.StatusCode != want {
				t.Errorf("%s, announced with %q: %s", trailer, announced, resp.Status)
			}
			_ = c.Close()
		}
	}
}
