package eventservice

import (
	"context"
	"net/http"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// Sender hands events on. One that is a prometheus.Collector, too, has metrics of its own, which
// are served with those of the server.
type Sender interface {
	// Send returns nil if the event was taken, and will not be lost. A problem is the answer to the
	// client. from is the header of the client's request, for what ties the event to a trace. The
	// data of the event is valid until Send returns. ctx has the deadline of this event, and does
	// not end when the client leaves. An event that the backend had already is taken, and Repeated.
	Send(ctx context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem
	// Ready says why no event can be taken yet. Once it was nil, it stays so: without a ready pod,
	// clients get no answer that says when to try again.
	Ready(ctx context.Context) error
}

// Routes says which requests a server takes.
type Routes int

const (
	// Application are the routes of the legacy endpoint. The application in the path does not
	// count: the source of each event is SourceID.
	Application Routes = iota
	// All are those of the legacy endpoint of every application, whose name in the path is the
	// source, and POST /publish, which takes CloudEvents. On the port of probes, GET /readyz
	// answers 200 once the sender is ready, and GET /healthz always.
	All
)

// Trace calls set with the headers that tie a request to its trace, and with its id. Names are in
// lower case.
func Trace(from http.Header, requestID string, set func(name, value string)) {
	for i, name := range traceHeaders {
		if values := from[name]; len(values) > 0 {
			set(lowerTraceHeaders[i], values[0])
		}
	}
	set(lowerRequestID, requestID)
}

var (
	lowerRequestID    = strings.ToLower(requestIDHeader)
	lowerTraceHeaders = func() []string {
		names := make([]string, len(traceHeaders))
		for i, name := range traceHeaders {
			names[i] = strings.ToLower(name)
		}
		return names
	}()
)
