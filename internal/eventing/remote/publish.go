package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// PublisherPort is that of the publisher's pods.
const PublisherPort = 8080

// Event is a CloudEvent to send.
type Event struct {
	ID, Source, Type, ContentType string
	Data                          []byte
}

// Answer is that of the publisher.
type Answer struct {
	Status int `json:"status"`
	// Text is its body, "" if the event was taken.
	Text string `json:"text,omitempty"`
	// RetryAfter is when to send the event again, as the publisher asks for it.
	RetryAfter string `json:"retryAfter,omitempty"`
	// Repeated: the same event was there already.
	Repeated bool `json:"repeated,omitempty"`
}

// Taken tells whether the event is stored.
func (a *Answer) Taken() bool { return a.Status >= 200 && a.Status < 300 }

// Publish sends an event to the publisher at an address, http://<host>:<port>, in binary mode.
func Publish(ctx context.Context, address string, e Event) (*Answer, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(address, "/")+"/publish", bytes.NewReader(e.Data))
	if err != nil {
		return nil, fmt.Errorf("%q is no address of a publisher", address)
	}
	for name, value := range map[string]string{"ce-specversion": "1.0", "ce-id": e.ID, "ce-source": e.Source, "ce-type": e.Type, "content-type": e.ContentType} {
		if value != "" {
			q.Header.Set(name, value)
		}
	}
	client := &http.Client{Transport: &http.Transport{}} // no proxy: the address is on this machine
	res, err := client.Do(q)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("cannot send the event to the publisher: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer of the publisher: %w", err)
	}
	return &Answer{
		Status: res.StatusCode, Text: strings.TrimSpace(string(raw)), RetryAfter: res.Header.Get("Retry-After"),
		Repeated: res.Header.Get("X-Event-Repeated") == "true",
	}, nil
}
