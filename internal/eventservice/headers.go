package eventservice

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// maxExtension bounds the value of one extension, like that of one header.
const maxExtension = 4096

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
	if id == "" || len(id) > 128 || !validType(id) {
		return uuid.NewString()
	}
	return id
}

// reserved are attributes that come from the body, or from us: a header, or an
// extension, must not say something else.
var reserved = map[string]bool{
	"id": true, "source": true, "type": true, "time": true, "specversion": true, "data": true, "database64": true,
	"datacontenttype": true, "datacontentencoding": true, "schemaurl": true,
	versionExtension: true, sourceExtension: true,
	// Names that the Event Bus used for the same.
	"eventid": true, "eventtype": true, "eventtime": true, "cloudeventsversion": true,
}

// mayPass says whether an attribute of the client's goes with the event: any that
// is nobody else's. Knative's own (knativebrokerttl: how often the event may be
// handed on) are the mesh's to set: with one of them a client could have its
// event dropped.
func mayPass(name string) bool {
	return validExtension(name) && !reserved[name] && !strings.HasPrefix(name, "knative")
}

// passAttributes adds what the client said in ce-* headers. What is in the body
// wins: that is what the API documents.
func passAttributes(ce *cloudEvent, header http.Header) {
	for key, values := range header {
		if len(key) <= 3 || !strings.EqualFold(key[:3], "ce-") || len(values) == 0 {
			continue
		}
		name := strings.ToLower(key[3:])
		if !mayPass(name) {
			continue
		}
		switch value := values[0]; name {
		case "subject":
			if ce.subject == "" {
				ce.setSubject(value)
			}
		case "dataschema":
			if ce.dataSchema == "" {
				ce.setSchema(value)
			}
		default:
			if _, ok := ce.extensions[name]; !ok {
				ce.setExtension(name, value)
			}
		}
	}
}
