package eventservice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/internal/tracing"
)

// maxRetryAfter bounds what an adapter may ask of our clients.
const maxRetryAfter = time.Minute

// mesh is the Sender into the event mesh: one HTTPSource adapter.
type mesh struct {
	*Poster

	tracer *tracing.Tracer
	url    *url.URL
	// source is what every event says, sourceID the same as it was given.
	source, sourceID string
	authorization    []string
}

// newMesh posts to target in the name of source. connections are kept open.
func newMesh(target, source string, timeout time.Duration, connections int) (*mesh, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the URL of the event mesh, %q, is not of the form http://<host>", target)
	}
	ref, err := url.Parse(source)
	if err != nil || source == "" || !cloudevent.HeaderValue(source) {
		return nil, fmt.Errorf("the source %q is no URI reference", source)
	}
	if u.Path == "" {
		u.Path = "/" // the adapter takes events there
	}
	m := &mesh{Poster: NewPoster("event-service", timeout, connections), url: u, source: ref.String(), sourceID: source}
	if u.User != nil {
		password, _ := u.User.Password()
		withAuth := http.Request{Header: http.Header{}}
		withAuth.SetBasicAuth(u.User.Username(), password)
		m.authorization = withAuth.Header["Authorization"]
	}
	return m, nil
}

// Ready implements Sender. The adapter is not asked: clients are answered with Retry-After while it
// is down.
func (m *mesh) Ready(context.Context) error { return nil }

// Send implements Sender: it posts one event, and returns nil once the adapter has taken it.
func (m *mesh) Send(ctx context.Context, ce *cloudevent.Event, from http.Header, requestID string) *legacy.Problem {
	from, span := m.tracer.Begin(from, tracing.Posts, "post event to the mesh", time.Now(), tracing.Event{ID: ce.ID, Type: ce.Type, Source: m.source})
	problem := m.post(ctx, ce, from, requestID)
	span.End(problem.Why())
	return problem
}

func (m *mesh) post(ctx context.Context, ce *cloudevent.Event, from http.Header, requestID string) *legacy.Problem {
	header := ce.Header(m.source, m.sourceID)
	passTrace(from, header, requestID)
	if m.authorization != nil {
		header["Authorization"] = m.authorization
	}
	status, answer, err := m.Post(ctx, m.url, header, ce.Data)
	switch {
	case err != nil:
		return Unreachable(err)
	case status/100 == 2:
		return nil
	default:
		return refused(status, answer)
	}
}

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

// Unreachable is the answer when there was none: refused, reset, too slow.
func Unreachable(err error) *legacy.Problem {
	var timeout interface{ Timeout() bool }
	var op *net.OpError
	e := &legacy.Problem{
		Status: http.StatusServiceUnavailable, Type: legacy.TypeUnavailable, Message: "The event mesh cannot be reached",
		MoreInfo: legacy.MayBeTaken, RetryAfter: legacy.RetryAfter, Cause: "mesh_unreachable",
	}
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		e.MoreInfo = legacy.NotTaken
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Status, e.Type, e.Message, e.Cause = http.StatusGatewayTimeout, legacy.TypeTimeout, "The event mesh did not answer in time", "mesh_timeout"
	}
	return e
}

// refused is the answer when the adapter, or a proxy before it, says no.
//
// 1.11 handed its status on, and so does this, but for those with which the mesh
// says something about itself: 401, 403, 404, 405, 429 and redirects are the
// business of the operator (no route yet, mTLS), and a client that took them
// for its own mistake would throw its event away.
func refused(status int, answer http.Header) *legacy.Problem {
	e := &legacy.Problem{
		Status: status, Type: legacy.TypeRefused, Cause: "mesh_" + strconv.Itoa(status),
		Message: fmt.Sprintf("error sending cloudevent: %d %s", status, http.StatusText(status)),
	}
	switch {
	case status >= 500 && status <= 599:
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge,
		status == http.StatusUnsupportedMediaType, status == http.StatusUnprocessableEntity:
		return e
	default:
		e.Status = http.StatusServiceUnavailable
	}
	e.MoreInfo = legacy.NotTaken
	e.RetryAfter = legacy.RetryAfter
	if seconds, err := strconv.Atoi(answer.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return e
}
