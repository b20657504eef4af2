package eventservice

import (
	"context"
	"errors"
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

// TestSendOutlivesItsClient: a sender is not told that the client has left, and has a time of its own. On f3299ef its context ended with
// the client's connection.
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
