// Package collector is the receiver of an OpenTelemetry collector: OTLP over HTTP, with the
// messages of the specification (https://opentelemetry.io/docs/specs/otlp/#otlphttp-request).
package collector

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that arrived.
type Span struct {
	// Service is the program that made it.
	Service, Name string
	// Trace, ID and Parent are in hexadecimal digits.
	Trace, ID, Parent string
	// Problem is what its status says; "" if that is no error.
	Problem string
	// Kind is what it does: "client", "server".
	Kind string
	// Attributes are texts (string) and numbers (int64).
	Attributes map[string]any
}

// String is a Span on one line.
func (s Span) String() string {
	return fmt.Sprintf("%s: %s (%s, behind %s; %s)", s.Service, s.Name, s.ID, s.Parent, s.Problem)
}

// Collector keeps all spans.
type Collector struct {
	// URL is its address.
	URL string

	mu    sync.Mutex
	spans []Span
}

// Start starts a Collector, which ends with the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		packed, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = packed
	}
	raw, err := io.ReadAll(body)
	// On the wire it is the same as ExportTraceServiceRequest, whose package needs gRPC.
	request := &tracev1.TracesData{}
	if err == nil {
		err = proto.Unmarshal(raw, request)
	}
	if r.Method != http.MethodPost {
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, fmt.Sprintf("%s %s: %v", r.Method, r.URL.Path, err), http.StatusBadRequest)
		return
	}
	if err := valid(request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, spanOf(service, s))
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// valid refuses what the collector of OpenTelemetry cannot decode, ids of other lengths, and spans
// of which a backend could make nothing.
func valid(request *tracev1.TracesData) error {
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if len(s.GetTraceId()) != 16 || len(s.GetSpanId()) != 8 || len(s.GetParentSpanId())%8 != 0 || len(s.GetParentSpanId()) > 8 {
					return fmt.Errorf("invalid length for an id of %q", s.GetName())
				}
				if s.GetStartTimeUnixNano() == 0 || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
					return fmt.Errorf("%q is from %d to %d", s.GetName(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
				}
			}
		}
	}
	return nil
}

func spanOf(service string, s *tracev1.Span) Span {
	out := Span{
		Service: service, Name: s.GetName(), Attributes: map[string]any{}, Kind: strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
	}
	if s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		out.Problem = s.GetStatus().GetMessage()
	}
	for _, a := range s.GetAttributes() {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			out.Attributes[a.GetKey()] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			out.Attributes[a.GetKey()] = v.IntValue
		default:
			out.Attributes[a.GetKey()] = fmt.Sprint("not expected: ", v)
		}
	}
	return out
}

// Of are the spans of one trace, in the order in which they arrived.
func (c *Collector) Of(trace string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s Span) bool { return s.Trace != trace })
}
