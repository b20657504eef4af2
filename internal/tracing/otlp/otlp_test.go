package otlp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kyma-project/eventmesh-migration/internal/tracing"
	"github.com/kyma-project/eventmesh-migration/internal/tracing/otlp"
	"github.com/kyma-project/eventmesh-migration/test/collector"
)

const (
	id     = "4bf92f3577b34da6a3ce929d0e0e4736"
	client = "00f067aa0ba902b7"
)

func header(flags string) http.Header {
	return http.Header{"Traceparent": {"00-" + id + "-" + client + "-" + flags}, "Tracestate": {"vendor=1"}, "Ce-Id": {"1"}}
}

var event = tracing.Event{ID: "1", Type: "order.created.v1", Source: "commerce"}

func TestSpans(t *testing.T) {
	to := collector.Start(t)
	tracer, err := otlp.Start(t.Context(), to.URL, "tester", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	given := header("01")
	outer, first := tracer.Begin(given, tracing.Takes, "outer", time.Now().Add(-time.Second), event)
	inner, second := tracer.Begin(outer, tracing.Posts, "inner", time.Now(), event)
	second.Answer("503")
	second.Answer("error") // nobody answered
	second.End("the sink answers 503")
	first.End("")
	if diff := cmp.Diff(header("01"), given); diff != "" {
		t.Errorf("the caller's header has changed:\n%s", diff)
	}
	unsampled, none := tracer.Begin(header("00"), tracing.Takes, "none", time.Now(), event)
	none.Note("a", "b")
	none.Answer("200")
	none.End("")
	if diff := cmp.Diff(header("00"), unsampled); diff != "" {
		t.Errorf("without a sampled trace, the header changes:\n%s", diff)
	}
	tracer.Stop()
	of := func(h http.Header) string {
		parts := strings.Split(h.Get("Traceparent"), "-")
		if len(parts) != 4 || parts[1] != id || parts[3] != "01" || h.Get("Tracestate") != "vendor=1" || h.Get("Ce-Id") != "1" {
			t.Fatalf("header %v", h)
		}
		return parts[2]
	}
	attributes := func(more ...any) map[string]any {
		all := map[string]any{"cloudevents.event_id": "1", "cloudevents.event_type": "order.created.v1", "cloudevents.event_source": "commerce"}
		for i := 0; i < len(more); i += 2 {
			all[more[i].(string)] = more[i+1]
		}
		return all
	}
	want := []collector.Span{
		{Service: "tester", Name: "inner", Kind: "client", Trace: id, ID: of(inner), Parent: of(outer), Problem: "the sink answers 503", Attributes: attributes("http.response.status_code", int64(503))},
		{Service: "tester", Name: "outer", Kind: "server", Trace: id, ID: of(outer), Parent: client, Attributes: attributes()},
	}
	if diff := cmp.Diff(want, to.Of(id)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// TestNoCollector: a collector that is away, or that refuses, holds up nothing, and is named once.
func TestNoCollector(t *testing.T) {
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	for name, endpoint := range map[string]string{"away": "http://127.0.0.1:1", "refuses": refuses.URL} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			tracer, err := otlp.Start(t.Context(), endpoint, "tester", zap.New(core))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for range 10_000 { // more than it keeps
				_, span := tracer.Begin(header("01"), tracing.Takes, "taken", time.Now(), event)
				span.End("")
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("10,000 spans took %s", took)
			}
			tracer.Stop()
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("the end took %s", took)
			}
			if n := logs.Len(); n != 1 || logs.All()[0].ContextMap()["collector"] != endpoint {
				t.Errorf("the log has %d lines: %v", n, logs.All())
			}
		})
	}
}

// TestAnswers: what a collector may answer,
// https://opentelemetry.io/docs/specs/otlp/#otlphttp-response.
func TestAnswers(t *testing.T) {
	// As go.opentelemetry.io/proto/otlp/collector/trace/v1 writes an ExportTraceServiceResponse:
	// with 3 rejected spans and an error message, and with neither. That package needs modules for
	// gRPC, and nobody else does.
	const partial, none = "\n\x16\b\x03\x12\x12too many\nfor today", "\n\x00"
	for name, test := range map[string]struct {
		codes   []int // of one request each; the last one of all others
		wait    string
		body    string
		asked   int
		problem string
	}{
		"taken":              {codes: []int{200}, asked: 1},
		"taken with nothing": {codes: []int{200}, body: none, asked: 1},
		"not understood":     {codes: []int{200}, body: "\x0a\xff", asked: 1},
		"taken in part":      {codes: []int{200}, body: partial, asked: 1, problem: "it rejects 3 spans: too many for today"},
		"busy":               {codes: []int{503, 429, 200}, asked: 3},
		"busy for long":      {codes: []int{502}, body: " no\r\nroom ", asked: 3, problem: "it answers 502 Bad Gateway: no room"},
		"busy, until":        {codes: []int{503}, wait: "30", asked: 1, problem: "it answers 503 Service Unavailable: "},
		"refused":            {codes: []int{400}, body: strings.Repeat("long ", 1000), asked: 1, problem: "it answers 400 Bad Request: long"},
		"elsewhere":          {codes: []int{307}, asked: 1, problem: "it answers 307 Temporary Redirect: "},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := int(asked.Add(1)) - 1
				if test.wait != "" {
					w.Header().Set("Retry-After", test.wait)
				}
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(test.codes[min(n, len(test.codes)-1)])
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			core, logs := observer.New(zap.WarnLevel)
			tracer, err := otlp.Start(t.Context(), server.URL, "tester", zap.New(core))
			if err != nil {
				t.Fatal(err)
			}
			_, span := tracer.Begin(header("01"), tracing.Takes, "taken", time.Now(), event)
			span.End("")
			tracer.Stop()
			if n := int(asked.Load()); n != test.asked {
				t.Errorf("it is asked %d times, want %d", n, test.asked)
			}
			said := ""
			for _, line := range logs.All() {
				said += line.ContextMap()["error"].(string)
			}
			if !strings.Contains(said, test.problem) || (said == "") != (test.problem == "") || len(said) > 400 {
				t.Errorf("it says %q, want %q", said, test.problem)
			}
		})
	}
}

// TestEnvironment: what somebody else, such as the operator of OpenTelemetry, puts into the
// environment is in the spans, keeps no program from starting, and samples nothing.
func TestEnvironment(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=publisher-0,broken")
	t.Setenv("OTEL_SERVICE_NAME", "another")
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	to := collector.Start(t)
	core, logs := observer.New(zap.WarnLevel)
	tracer, err := otlp.Start(t.Context(), to.URL, "tester", zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range []string{"00", "01"} {
		_, span := tracer.Begin(header(flags), tracing.Takes, "taken", time.Now(), event)
		span.End("")
	}
	tracer.Stop()
	if spans := to.Of(id); len(spans) != 1 || spans[0].Service != "tester" {
		t.Errorf("spans %v", spans)
	}
	if n := logs.Len(); n != 1 || !strings.Contains(logs.All()[0].ContextMap()["error"].(string), "missing value: [broken]") {
		t.Errorf("the log has %d lines: %v", n, logs.All())
	}
}

// TestEndpoint: the forms in which people know the address of a collector.
func TestEndpoint(t *testing.T) {
	for _, path := range []string{"", "/", "/v1/traces", "/v1/traces/"} {
		to := collector.Start(t)
		tracer, err := otlp.Start(t.Context(), to.URL+path, "tester", zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		_, span := tracer.Begin(header("01"), tracing.Takes, "taken", time.Now(), event)
		span.End("")
		tracer.Stop()
		if spans := to.Of(id); len(spans) != 1 {
			t.Errorf("with %q behind its address, the collector has %v", path, spans)
		}
	}
}

func TestOff(t *testing.T) {
	tracer, err := otlp.Start(t.Context(), "", "tester", zap.NewNop())
	if tracer != nil || err != nil {
		t.Fatal(tracer, err)
	}
	given := header("01")
	allocations := testing.AllocsPerRun(100, func() {
		_, span := tracer.Begin(given, tracing.Takes, "none", time.Time{}, event)
		span.Note("a", "b")
		span.End("")
	})
	if allocations != 0 {
		t.Errorf("%v allocations for each event", allocations)
	}
	tracer.Stop()
}

func TestCheck(t *testing.T) {
	for endpoint, good := range map[string]bool{
		"": true, "http://collector:4318": true, "https://collector.tracing.svc.cluster.local:4318/prefix": true,
		"collector:4318": false, "grpc://collector:4317": false, "http://": false, "http://user:pass@collector": false, "http://c?a=b": false, "http://[": false,
	} {
		if err := otlp.Check(endpoint); (err == nil) != good {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// BenchmarkSpan is what an event pays for each span: without a Tracer, with one for an event whose
// trace is not sampled, and for one whose trace is.
func BenchmarkSpan(b *testing.B) {
	taken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer taken.Close()
	for _, c := range []struct{ name, endpoint, flags string }{{"off", "", "01"}, {"not sampled", taken.URL, "00"}, {"sampled", taken.URL, "01"}} {
		b.Run(c.name, func(b *testing.B) {
			tracer, err := otlp.Start(b.Context(), c.endpoint, "tester", zap.NewNop())
			if err != nil {
				b.Fatal(err)
			}
			defer tracer.Stop()
			given, since := header(c.flags), time.Now()
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.Begin(given, tracing.Takes, "taken", since, event)
				span.End("")
			}
		})
	}
}
