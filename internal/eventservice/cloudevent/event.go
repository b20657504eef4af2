// Package cloudevent is the CloudEvent that the event-service posts to the mesh, and the
// attributes that a client may give it.
package cloudevent

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Event is a CloudEvent 1.0 on its way to the adapter. Its source is the
// server's, so it is none of its fields.
type Event struct {
	ID, Type, Version string
	Time              time.Time
	// ContentType is that of Data, application/json if it is "".
	ContentType string
	subject     string
	dataSchema  string
	// extensions are the client's own; nil if there are none.
	extensions map[string]string
	// extensionBytes is what they take as headers.
	extensionBytes int
	// Data is the body.
	Data []byte
}

const (
	jsonType = "application/json"
	// BinaryType is the ContentType of data of which nothing is known.
	BinaryType = "application/octet-stream"
	// MaxExtensions bounds the extensions of one event together. The adapter, or the
	// proxy before it, refuses a request whose header is too large, and the client
	// would repeat it for ever.
	MaxExtensions = 16 << 10
)

// SetExtension adds what a header carries unchanged; the rest 1.10 ignored, too.
func (e *Event) SetExtension(name, value string) {
	size := len("Ce-: \r\n") + len(name) + len(value)
	if value == "" || !HeaderValue(value) || e.extensionBytes+size > MaxExtensions {
		return
	}
	if e.extensions == nil {
		e.extensions = map[string]string{}
	}
	e.extensions[name] = value
	e.extensionBytes += size
}

// SetSubject sets a subject that a header carries unchanged.
func (e *Event) SetSubject(subject string) {
	if HeaderValue(subject) {
		e.subject = subject
	}
}

// SetSchema takes over what is an absolute URI; 1.0 allows nothing else.
func (e *Event) SetSchema(schema string) {
	if schema == "" || !HeaderValue(schema) {
		return
	}
	if u, err := url.Parse(schema); err == nil && u.IsAbs() {
		e.dataSchema = u.String()
	}
}

// Header writes the event in the binary mode of CloudEvents' HTTP binding. Names
// are in the canonical form, so that net/http need not make it.
func (e *Event) Header(source, sourceID string) http.Header {
	const most = 16 // with those that passTrace and send add
	header := make(http.Header, most+len(e.extensions))
	// One piece of memory for all values.
	values := make([]string, 0, most)
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Ce-Specversion", "1.0")
	set("Ce-Id", e.ID)
	set("Ce-Source", source)
	set("Ce-Type", e.Type)
	set("Ce-Time", e.Time.UTC().Format(time.RFC3339Nano))
	set("Ce-Eventtypeversion", e.Version)
	set("Ce-Sourceid", sourceID)
	if e.ContentType == "" {
		set("Content-Type", jsonType)
	} else {
		set("Content-Type", e.ContentType)
	}
	if e.subject != "" {
		set("Ce-Subject", e.subject)
	}
	if e.dataSchema != "" {
		set("Ce-Dataschema", e.dataSchema)
	}
	for name, value := range e.extensions {
		header["Ce-"+strings.ToUpper(name[:1])+name[1:]] = []string{value}
	}
	return header
}

// HeaderValue says whether a header carries the value unchanged.
func HeaderValue(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			return false
		}
	}
	return len(value) <= maxExtension && strings.TrimSpace(value) == value
}

// maxExtension bounds the value of one extension, like that of one header.
const maxExtension = 4096
