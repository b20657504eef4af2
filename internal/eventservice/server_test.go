package eventservice

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
