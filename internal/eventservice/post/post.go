// Package post posts events with HTTP: to the adapters of Applications, to the Broker of the mesh,
// and to the sinks of Subscriptions.
package post

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"syscall"
	"time"
)

// discardLimit and discardTime are what is read of an answer so that its connection can be used
// again; nobody looks at it. Who has sent a status has answered: an answer without an end holds
// nobody up for longer.
const (
	discardLimit = 64 << 10
	discardTime  = time.Second
)

// Kind is why an event got no answer.
type Kind int

// The kinds. After the first two, the receiver may have the event.
const (
	NoAnswer    Kind = iota // not within the time of the event
	Closed                  // the connection ended before the answer
	UnknownHost             // there is no such host
	Unresolved              // it could not be found out whether there is
	Refused                 // the host refuses connections
	SlowConnect             // no connection within its time
	Unreachable             // no connection for another reason
)

// Reached tells whether there was a connection to the receiver.
func (k Kind) Reached() bool { return k == NoAnswer || k == Closed }

// Error is that of an event without an answer. It has the error of net/http.
type Error struct {
	Kind Kind
	err  error
}

func (e *Error) Error() string { return e.err.Error() }

func (e *Error) Unwrap() error { return e.err }

func kindOf(err error) Kind {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return NoAnswer
	case errors.As(err, &dns) && dns.IsNotFound:
		return UnknownHost
	case errors.As(err, &dns):
		return Unresolved
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Closed
	case errors.As(err, &timeout) && timeout.Timeout():
		return SlowConnect
	default:
		return Unreachable
	}
}

// Event posts an event in binary mode, and returns the status of the answer and its header. Without
// an answer, the error is an *Error, that of the last try. ctx has a deadline. Event adds to
// header.
func Event(ctx context.Context, through http.RoundTripper, to *url.URL, header http.Header, data []byte) (status int, answer http.Header, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Present but empty, it is not sent; it tells the client of net/http that the
	// request may be repeated when a kept connection turns out to be dead. It may:
	// the event keeps its id.
	header["Idempotency-Key"] = nil
	resp, kept, err := try(ctx, through, to, header, data)
	// net/http does not repeat what broke while it was written, as a large event does. Each turn
	// takes one of the kept connections; what breaks on a new one is the answer.
	for err != nil && kept && ctx.Err() == nil {
		resp, kept, err = try(ctx, through, to, header, data)
	}
	if err != nil {
		return 0, nil, &Error{kindOf(err), err}
	}
	defer resp.Body.Close()
	defer time.AfterFunc(discardTime, cancel).Stop()
	// An answer that ends too early is an answer: its status has been read.
	_, _ = io.CopyN(io.Discard, resp.Body, discardLimit)
	return resp.StatusCode, resp.Header, nil
}

// try sends the request once, and tells whether its connection was a kept one.
func try(ctx context.Context, through http.RoundTripper, to *url.URL, header http.Header, data []byte) (resp *http.Response, kept bool, err error) {
	content := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	body := io.ReadCloser(http.NoBody)
	if len(data) > 0 {
		body, _ = content()
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { kept = got.Reused }})
	resp, err = through.RoundTrip((&http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: body, GetBody: content, ContentLength: int64(len(data)),
	}).WithContext(ctx))
	return resp, kept, err
}
