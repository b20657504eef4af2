package eventservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
)

const (
	dialTimeout = 2 * time.Second
	// maxRetryAfter bounds what an adapter may ask of our clients.
	maxRetryAfter = time.Minute
	// idleConnection is how long a connection to the adapter is kept unused.
	idleConnection = 90 * time.Second
	// discardLimit is what is read of an answer so that its connection can be used
	// again; nobody looks at it.
	discardLimit = 64 << 10
)

// mesh is the way into the event mesh: one HTTPSource adapter.
type mesh struct {
	url     string
	source  types.URIRef
	name    string
	timeout time.Duration
	client  *http.Client
}

// newMesh posts to target in the name of source. connections are kept open.
func newMesh(target, source string, timeout time.Duration, connections int) (*mesh, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the URL of the event mesh, %q, is not of the form http://<host>", target)
	}
	ref := types.ParseURIRef(source)
	if ref == nil || source == "" || !headerValue(source) {
		return nil, fmt.Errorf("the source %q is no URI reference", source)
	}
	if u.Path == "" {
		u.Path = "/" // the adapter takes events there
	}
	return &mesh{
		url: u.String(), source: *ref, name: source, timeout: timeout,
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: min(dialTimeout, timeout), KeepAlive: 15 * time.Second}).DialContext,
				MaxIdleConns:        connections,
				MaxIdleConnsPerHost: connections,
				// Whoever is let in gets a connection: the bound is before this one.
				MaxConnsPerHost:    0,
				IdleConnTimeout:    idleConnection,
				DisableCompression: true,
				ReadBufferSize:     4 << 10,
				WriteBufferSize:    8 << 10,
			},
			// A POST that is redirected becomes a GET, and the event is gone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// send posts one event and returns nil once the adapter has taken it.
func (m *mesh) send(ctx context.Context, ce *event.EventContextV1, data []byte, from http.Header, requestID string) *apiError {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	ce.Source = m.source
	ce.Extensions[sourceExtension] = m.name
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, nil)
	if err != nil {
		return unwritable(err)
	}
	e := event.Event{Context: ce, DataEncoded: data}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&e), req); err != nil {
		return unwritable(err)
	}
	passTrace(from, req.Header, requestID)
	req.Header.Set("User-Agent", "event-service")
	// Present but empty, it is not sent; it tells the client of net/http that the
	// request may be repeated when a kept connection turns out to be dead. It may:
	// the event keeps its id.
	req.Header["Idempotency-Key"] = nil

	resp, err := m.client.Do(req)
	if err != nil {
		return unreachable(err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, discardLimit)
	_ = resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	return refused(resp)
}

// unwritable is the answer to an event that cannot be written as HTTP. The checks
// before leave none that anybody knows of.
func unwritable(err error) *apiError {
	return &apiError{
		Status: http.StatusBadRequest, Type: typeBadPayload, Message: "The event cannot be carried", MoreInfo: err.Error(), cause: "bad_payload",
	}
}

// unreachable is the answer when there was none: refused, reset, too slow.
func unreachable(err error) *apiError {
	var timeout interface{ Timeout() bool }
	var op *net.OpError
	e := &apiError{
		Status: http.StatusServiceUnavailable, Type: typeUnavailable, Message: "The event mesh cannot be reached",
		MoreInfo: mayBeTaken, retryAfter: retryAfter, cause: "mesh_unreachable",
	}
	switch {
	case errors.Is(err, context.Canceled):
		e.Status, e.Message, e.cause = statusClientGone, "The client has gone", "client_gone"
	case errors.As(err, &op) && op.Op == "dial":
		e.MoreInfo = notTaken
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Status, e.Type, e.Message, e.cause = http.StatusGatewayTimeout, typeTimeout, "The event mesh did not answer in time", "mesh_timeout"
	}
	return e
}

// What a client is told of its event. With its event-id, a second sending can be
// told from a second event.
const (
	notTaken   = "the event was not taken: send it again"
	mayBeTaken = "the event may have been taken: send it again with the same event-id"
)

// statusClientGone is what logs and metrics call a request whose client has left;
// nobody receives it.
const statusClientGone = 499

// refused is the answer when the adapter, or a proxy before it, says no.
//
// 1.11 handed its status on, and so does this, but for those with which the mesh
// says something about itself: 401, 403, 404, 405, 429 and redirects are the
// business of whoever runs it (no route yet, mTLS), and a client that took them
// for its own mistake would throw its event away.
func refused(resp *http.Response) *apiError {
	status := resp.StatusCode
	e := &apiError{
		Status: status, Type: typeRefused, cause: "mesh_" + strconv.Itoa(status),
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
	e.MoreInfo = notTaken
	e.retryAfter = retryAfter
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.retryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return e
}
