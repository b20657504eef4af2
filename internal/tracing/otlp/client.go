package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kyma-project/eventmesh-migration/internal/version"
)

const (
	contentType = "application/x-protobuf"
	// requestLimit is that of the specification of the exporter (OTEL_EXPORTER_OTLP_TIMEOUT).
	requestLimit = 10 * time.Second
	// answerLimit is how much of an answer is read, in bytes.
	answerLimit = 64 << 10
	// shown is how much of a refusal is in an error, in bytes.
	shown = 200
)

// tries of a batch: while a collector is replaced, it is away for a moment. One that is away for
// longer costs the spans.
var tries = wait.Backoff{Steps: 3, Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.2}

// errAgain is of what may pass: https://opentelemetry.io/docs/specs/otlp/#otlphttp-response.
var errAgain = errors.New("the collector may take it later")

// errGRPC is of a port that sends frames of HTTP/2 as soon as it is connected to.
var errGRPC = errors.New("it does not speak HTTP/1.1: the port may be the one for OTLP over gRPC (4317). The one over HTTP is 4318")

// noHTTP are the texts of net/http, which has no types for them: the frames came after the request,
// and before it, where they are an answer that nobody has asked for.
var noHTTP = []string{"malformed HTTP response", "readLoopPeekFailLocked: %!w(<nil>)"}

// client posts the spans of the exporter otlptrace. The library's own brings gRPC: decision 1452.
type client struct {
	url  string
	lost func(error) // says that spans were not sent
	http http.Client
}

func newClient(url string, lost func(error)) *client {
	return &client{url: url, lost: lost, http: http.Client{
		Timeout:       requestLimit,
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Start implements otlptrace.Client: there is no connection to prepare.
func (*client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. An error that it returned would go to the handler of
// errors that a process has, which does not know of which client it is.
func (c *client) UploadTraces(ctx context.Context, spans []*tracev1.ResourceSpans) error {
	if err := c.upload(ctx, spans); err != nil {
		c.lost(err)
	}
	return nil
}

// upload posts a batch. A TracesData is an ExportTraceServiceRequest on the wire, whose package has
// the stubs of gRPC.
func (c *client) upload(ctx context.Context, spans []*tracev1.ResourceSpans) error {
	body, err := proto.Marshal(&tracev1.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("cannot encode spans: %w", err)
	}
	var last error
	err = wait.ExponentialBackoffWithContext(ctx, tries, func(ctx context.Context) (bool, error) {
		last = c.post(ctx, body)
		if errors.Is(last, errAgain) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

func (c *client) post(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", "eventmesh-migration/"+version.String())
	response, err := c.http.Do(request)
	switch {
	case err != nil && slices.ContainsFunc(noHTTP, func(text string) bool { return strings.Contains(err.Error(), text) }):
		return errGRPC
	case err != nil:
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	defer response.Body.Close()
	// An answer that is cut off is no loss: its status says whether the spans were taken.
	answer, _ := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	switch code := response.StatusCode; {
	case code >= 200 && code < 300:
		return rejected(answer)
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		err = fmt.Errorf("it answers %s: %s", response.Status, brief(answer))
		if response.Header.Get("Retry-After") != "" { // not within the time of tries
			return err
		}
		return fmt.Errorf("%w: %w", errAgain, err)
	default:
		return fmt.Errorf("it answers %s: %s", response.Status, brief(answer))
	}
}

// brief is the beginning of an answer, on one line.
func brief(answer []byte) string {
	return strings.Join(strings.Fields(string(bytes.ToValidUTF8(answer[:min(len(answer), shown)], nil))), " ")
}

// rejected reads the partial success of an ExportTraceServiceResponse: field 1, in which 1 is the
// number of spans that were rejected, and 2 why.
func rejected(answer []byte) error {
	partial, _ := field(answer, 1)
	_, n := field(partial, 1)
	why, _ := field(partial, 2)
	if n == 0 && len(why) == 0 {
		return nil
	}
	return fmt.Errorf("it rejects %d spans: %s", n, brief(why))
}

// field is the last field of this number in a message of protobuf: its bytes, or its number.
func field(message []byte, number protowire.Number) (value []byte, count uint64) {
	for len(message) > 0 {
		this, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return value, count
		}
		rest := message[size:]
		size = protowire.ConsumeFieldValue(this, kind, rest)
		if size < 0 {
			return value, count
		}
		if this == number {
			switch kind {
			case protowire.BytesType:
				value, _ = protowire.ConsumeBytes(rest)
			case protowire.VarintType:
				count, _ = protowire.ConsumeVarint(rest)
			}
		}
		message = rest[size:]
	}
	return value, count
}
