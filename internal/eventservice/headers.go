package eventservice

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
)

const requestIDHeader = "X-Request-Id"

// traceHeaders are passed on to the adapter: those that 1.10 passed on, and what
// has come into use since (W3C Trace Context, the single b3 header).
var traceHeaders = []string{
	"Traceparent", "Tracestate", "B3",
	"X-B3-Traceid", "X-B3-Spanid", "X-B3-Parentspanid", "X-B3-Sampled", "X-B3-Flags",
	"X-Ot-Span-Context",
}

// passTrace copies what ties the event to the trace of the request.
func passTrace(from, to http.Header, requestID string) {
	for _, name := range traceHeaders {
		if values := from[name]; len(values) > 0 {
			to[name] = values
		}
	}
	to[requestIDHeader] = []string{requestID}
}

// requestID is the client's own, if it can stand in a log, else a new one.
func requestID(header http.Header) string {
	id := header.Get(requestIDHeader)
	if id == "" || len(id) > 128 || !cloudevent.Printable(id) {
		return uuid.NewString()
	}
	return id
}
