package delivery

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
	"github.com/kyma-project/eventmesh-migration/test/collector"
)

// TestSpan: a span has the sink, but not what only the owner of the Subscription may know of it.
func TestSpan(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer sink.Close()
	at, err := url.Parse(strings.Replace(sink.URL, "://", "://user:password@", 1) + "/hook?token=secret")
	if err != nil {
		t.Fatal(err)
	}
	to := collector.Start(t)
	s := NewSender("")
	if s.Tracer, err = otlp.Start(t.Context(), to.URL, "tester", zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Traceparent": {"00-" + id + "-00f067aa0ba902b7-01"}, "Ce-Id": {"1"}, "Ce-Type": {"a.b"}, "Ce-Source": {"shop"}}
	s.send(t.Context(), 10*time.Second, at, header, []byte("{}"))
	s.Tracer.Stop()
	spans := to.Of(id)
	if len(spans) != 1 {
		t.Fatalf("spans %v", spans)
	}
	want := map[string]any{
		"cloudevents.event_id": "1", "cloudevents.event_type": "a.b", "cloudevents.event_source": "shop",
		"url.full": sink.URL + "/hook?token=…", "http.response.status_code": int64(400),
	}
	if diff := cmp.Diff(want, spans[0].Attributes); diff != "" || spans[0].Problem != "the sink answers 400" || spans[0].Kind != "client" {
		t.Errorf("%q, and attributes (-want +got):\n%s", spans[0].Problem, diff)
	}
}
