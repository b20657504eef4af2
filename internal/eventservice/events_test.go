package eventservice

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// answering is a Sender that does what a test says.
type answering func(e *cloudevent.Event) *legacy.Problem

func (a answering) Send(_ context.Context, e *cloudevent.Event, _ http.Header, _ string) *legacy.Problem {
	return a(e)
}

func (answering) Ready(context.Context) error { return nil }

// counting is a server with metrics of eventing.
func counting(t testing.TB, named Metrics, sender Sender) *Server {
	t.Helper()
	s, err := New(Options{
		Sender: sender, Routes: All, Metrics: named, MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, MaxInFlight: 10, MaxConnections: 10,
	}, zap.NewNop(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func eventRequest(path, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/cloudevents+json")
	return r
}

func structured(eventType string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"shop","type":%q,"data":{}}`, eventType)
}

// gathered are the lines about events.
func gathered(s *Server, accept string) string {
	r, got := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
	r.Header.Set("Accept", accept)
	s.metrics.handler().ServeHTTP(got, r)
	return "\n" + strings.Join(slices.DeleteFunc(strings.Split(got.Body.String(), "\n"), func(line string) bool {
		return !strings.Contains(line, "event") && !strings.Contains(line, "duration") || strings.Contains(line, "request")
	}), "\n") + "\n"
}

// TestEventMetrics: each event counts once, by what became of it, its type and its source, and by
// Kyma's name too.
func TestEventMetrics(t *testing.T) {
	s := counting(t, Metrics{Prefix: "p", Backend: "NATS", Taken: "stored"}, answering(func(e *cloudevent.Event) *legacy.Problem {
		switch e.Type {
		case "full.v1":
			return &legacy.Problem{Status: http.StatusInsufficientStorage, Cause: "backend_10077"}
		case "wrong.v1":
			return legacy.InvalidField("type", "")
		case "twice.v1":
			e.Repeated = true
		case "alone.v1":
			e.Unsubscribed = true
		}
		return nil
	}))
	for _, body := range []string{
		structured("order.v1"), structured("order.v1"), structured("twice.v1"), structured("alone.v1"), structured("full.v1"), structured("wrong.v1"), "{", "",
	} {
		s.ServeHTTP(httptest.NewRecorder(), eventRequest("/publish", body))
	}
	// On 778ef17a the metrics made a panic of this one.
	legacyEvent := eventRequest("/shop/v1/events", `{"event-type":"wrong","event-type-version":"v1","event-time":"2018-11-02T22:08:41Z","data":1}`)
	legacyEvent.URL.Path = "/\xff/v1/events"
	got := httptest.NewRecorder()
	s.ServeHTTP(got, legacyEvent)
	if got.Code != http.StatusBadRequest {
		t.Errorf("an application that is no text: %d %s", got.Code, got.Body)
	}
	text := gathered(s, "text/plain")
	for _, line := range []string{
		`p_events_accepted_total{backend="NATS",result="stored",source="shop",type="order.v1"} 2`,
		`p_events_accepted_total{backend="NATS",result="repeated",source="shop",type="twice.v1"} 1`,
		`p_events_accepted_total{backend="NATS",result="unsubscribed",source="shop",type="alone.v1"} 1`,
		`p_events_refused_total{backend="NATS",cause="backend_10077",source="shop",type="full.v1"} 1`,
		`p_events_refused_total{backend="NATS",cause="invalid",source="shop",type="wrong.v1"} 1`,
		`p_events_refused_total{backend="NATS",cause="invalid",source="other",type="other"} 1`,
		`p_events_refused_total{backend="NATS",cause="bad_payload",source="",type=""} 2`,
		`p_backend_duration_seconds_count{backend="NATS"} 7`,
		`eventing_epp_event_type_published_total{code="204",event_source="shop",event_type="order.v1"} 2`,
		`eventing_epp_event_type_published_total{code="507",event_source="shop",event_type="full.v1"} 1`,
		`eventing_epp_backend_duration_milliseconds_count{code="204",destination_service="NATS"} 4`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}

// TestEventMetricsAreBounded: clients choose types and sources, and cannot fill the memory with
// them.
func TestEventMetricsAreBounded(t *testing.T) {
	s := counting(t, Metrics{Prefix: "p", Backend: "NATS", Taken: "stored"}, answering(func(*cloudevent.Event) *legacy.Problem { return nil }))
	for n := range mostEvents + 10 {
		s.ServeHTTP(httptest.NewRecorder(), eventRequest("/publish", structured(fmt.Sprintf("order.v%d", n))))
	}
	text := gathered(s, "text/plain")
	for line, want := range map[string]int{
		"\np_events_accepted_total{": mostEvents + 1, `p_events_accepted_total{backend="NATS",result="stored",source="other",type="other"} 10`: 1,
		"\neventing_epp_event_type_published_total{": mostEvents + 1,
	} {
		if got := strings.Count(text, line); got != want {
			t.Errorf("%d lines with %q, want %d", got, line, want)
		}
	}
	if got := len(s.metrics.events.known); got != mostEvents+1 {
		t.Errorf("%d kinds are remembered", got)
	}
}

// TestEventServiceMetrics: those of the event-service say no types.
func TestEventServiceMetrics(t *testing.T) {
	s := counting(t, Metrics{}, answering(func(e *cloudevent.Event) *legacy.Problem {
		if e.Type == "full.v1" {
			return legacy.Overloaded()
		}
		return nil
	}))
	for _, body := range []string{structured("order.v1"), structured("full.v1"), "{"} {
		s.ServeHTTP(httptest.NewRecorder(), eventRequest("/publish", body))
	}
	text := gathered(s, "text/plain")
	for _, line := range []string{
		`event_service_events_refused_total{cause="overloaded"} 1`, `event_service_events_refused_total{cause="bad_payload"} 1`, `event_service_mesh_duration_seconds_count 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "order.v1") || strings.Contains(text, "accepted") || strings.Contains(text, "eventing_") {
		t.Errorf("it says too much:\n%s", text)
	}
}

// TestExemplars: Prometheus gets the trace of an event, in the format that it asks for.
func TestExemplars(t *testing.T) {
	s := counting(t, Metrics{Prefix: "p", Backend: "NATS", Taken: "stored"}, answering(func(*cloudevent.Event) *legacy.Problem { return nil }))
	for _, trace := range []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-00000000000000000000000000000001-00f067aa0ba902b7-00"} {
		r := eventRequest("/publish", structured("order.v1"))
		r.Header.Set("Traceparent", trace)
		s.ServeHTTP(httptest.NewRecorder(), r)
	}
	text := gathered(s, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
	for _, want := range []string{`type="order.v1"} 2.0 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 1.0 `, ` # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} `} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "00000000000000000000000000000001") {
		t.Error("a trace that nobody keeps is there")
	}
}

// BenchmarkPublish: what one event costs between the request and the sender, metrics included.
func BenchmarkPublish(b *testing.B) {
	for _, trace := range []string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		b.Run(fmt.Sprintf("Traced=%v", trace != ""), func(b *testing.B) {
			s := counting(b, Metrics{Prefix: "p", Backend: "NATS", Taken: "stored"}, answering(func(*cloudevent.Event) *legacy.Problem { return nil }))
			event := &cloudevent.Event{Source: "shop", Type: "order.created.v1"}
			header := http.Header{}
			if trace != "" {
				header["Traceparent"] = []string{trace}
			}
			b.ReportAllocs()
			for b.Loop() {
				s.metrics.events.sent(event, header, nil, time.Millisecond)
			}
		})
	}
}

// BenchmarkAnswered: what the metrics of one request cost.
func BenchmarkAnswered(b *testing.B) {
	s := counting(b, Metrics{Prefix: "p", Backend: "NATS", Taken: "stored"}, answering(func(*cloudevent.Event) *legacy.Problem { return nil }))
	b.ReportAllocs()
	for b.Loop() {
		s.metrics.answered("publish", http.MethodPost, http.StatusNoContent, time.Millisecond)
	}
}
