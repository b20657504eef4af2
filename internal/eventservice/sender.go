package eventservice

import (
	"context"
	"net/http"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

// Sender hands events on.
type Sender interface {
	// Send returns nil if the event was taken, and will not be lost. A problem is the answer to the client. from is the header of the
	// client's request, for what ties the event to a trace. The data of the event is valid until Send returns.
	Send(ctx context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem
	// Ready says why no event can be taken yet. Once it was nil, it stays so: without a ready pod, clients get no answer that says when to
	// try again.
	Ready(ctx context.Context) error
}

// Routes says which requests a server takes.
type Routes int

const (
	// Application are the routes of the legacy endpoint. The application in the path does not count: the source of each event is SourceID.
	Application Routes = iota
	// All are those of the legacy endpoint of every application, whose name in the path is the source, and POST /publish, which takes
	// CloudEvents. On the port of probes, GET /readyz answers 200 once the sender is ready, and GET /healthz always.
	All
)

// Trace are the headers that tie a request to its trace, and its id: those of from, in canonical spelling.
func Trace(from http.Header, requestID string) http.Header {
	to := make(http.Header, 2)
	passTrace(from, to, requestID)
	return to
}
