package delivery

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/nats-io/nats.go"
	"golang.org/x/net/http/httpguts"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

const (
	attributePrefix = "Ce-"
	// originalType is where sinks of Kyma's own eventing find the type as the client sent it.
	originalType = "Ce-Originaltype"
)

// passed are the headers of a message that go to the sink as they are, in addition to the
// attributes of the event.
var passed = map[string]bool{
	"Content-Type": true,
	"Traceparent":  true, "Tracestate": true, "B3": true,
	"X-B3-Traceid": true, "X-B3-Spanid": true, "X-B3-Parentspanid": true, "X-B3-Sampled": true, "X-B3-Flags": true,
	"X-Ot-Span-Context": true, "X-Request-Id": true,
}

// required are the attributes without which there is no CloudEvent.
var required = []string{"Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type"}

// eventHeader is the header of a request with the event of a message in the binary mode of
// CloudEvents. Headers that are NATS' own stay behind. An error means that the message is no event,
// and will be none at the next delivery.
func eventHeader(message nats.Header) (http.Header, error) {
	header := make(http.Header, len(message)+4)
	for name, values := range message {
		attribute := len(name) > len(attributePrefix) && strings.EqualFold(name[:len(attributePrefix)], attributePrefix)
		name = textproto.CanonicalMIMEHeaderKey(name)
		if len(values) == 0 || !attribute && !passed[name] {
			continue
		}
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(values[0]) {
			return nil, fmt.Errorf("header %q cannot be sent with HTTP", name)
		}
		if header[name] != nil {
			return nil, fmt.Errorf("header %q is there twice", name)
		}
		header[name] = values[:1]
	}
	for _, name := range required {
		if header.Get(name) == "" {
			return nil, fmt.Errorf("attribute %s is missing", strings.ToLower(name))
		}
	}
	if header.Get("Ce-Specversion") != "1.0" {
		return nil, errors.New("attribute ce-specversion is not 1.0")
	}
	if eventType := header["Ce-Type"]; !backend.IsFormer(eventType[0]) {
		header[originalType] = eventType
	}
	return header, nil
}
