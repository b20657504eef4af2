// Package tracing records the spans of events for an OpenTelemetry collector.
//
// An event belongs to the trace that its client names (W3C Trace Context, the headers traceparent
// and tracestate), and has spans if the client, or the proxy before it, has sampled that trace.
// This package never begins or samples a trace, so that events without one cost nothing. Package
// otlp exports the spans.
package tracing

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/eventmesh-migration/internal/exemplar"
)

// Tracer makes spans. A nil Tracer makes none.
type Tracer struct {
	tracer trace.Tracer
	stop   func()
}

// New returns a Tracer that makes spans of a provider. stop ends that, and is for Stop.
func New(provider trace.TracerProvider, service string, stop func()) *Tracer {
	return &Tracer{tracer: provider.Tracer(service), stop: stop}
}

// Stop sends what was not sent yet, for a few seconds at most.
func (t *Tracer) Stop() {
	if t != nil {
		t.stop()
	}
}

// Kind is what a span does with an event.
type Kind = trace.SpanKind

// The kinds: a server takes an event, a producer stores it or hands it on, a client posts it.
const (
	Takes  Kind = trace.SpanKindServer
	Stores Kind = trace.SpanKindProducer
	Posts  Kind = trace.SpanKindClient
)

// Event is what spans say of an event. Nothing of its content is in it.
type Event struct{ ID, Type, Source string }

// Span is a time in which something was done with an event. The zero value is none.
type Span struct{ span trace.Span }

// Begin begins a span, which began at a time, if the trace that a header names is sampled. The
// header that it returns names the span, so that what is sent with it comes behind the span; it is
// the same one without a span.
func (t *Tracer) Begin(header http.Header, kind Kind, name string, since time.Time, e Event) (http.Header, Span) {
	if t == nil || exemplar.Of(header[exemplar.Header]) == "" {
		return header, Span{}
	}
	header = maps.Clone(header)
	var format propagation.TraceContext
	ctx := format.Extract(context.Background(), propagation.HeaderCarrier(header))
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(since), trace.WithAttributes(
		attribute.String("cloudevents.event_id", e.ID), attribute.String("cloudevents.event_type", e.Type), attribute.String("cloudevents.event_source", e.Source)))
	format.Inject(ctx, propagation.HeaderCarrier(header))
	return header, Span{span}
}

// Made says whether there is a span, for notes that cost something. What a note says goes to people
// who may read no Secret.
func (s Span) Made() bool { return s.span != nil }

// Note adds to what the span says.
func (s Span) Note(key, value string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Answer adds the status of an answer, as the number by which collectors search. A code that is no
// number is none: nobody answered.
func (s Span) Answer(code string) {
	if status, err := strconv.Atoi(code); err == nil && s.span != nil {
		s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
}

// End ends the span. problem says why the event went no further; "" if it did.
func (s Span) End(problem string) {
	if s.span == nil {
		return
	}
	if problem != "" {
		s.span.SetStatus(codes.Error, problem)
	}
	s.span.End()
}
