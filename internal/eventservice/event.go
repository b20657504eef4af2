package eventservice

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// cloudEvent is a CloudEvent 1.0 on its way to the adapter. Its source is the
// server's, so it is none of its fields.
type cloudEvent struct {
	id, eventType, version string
	time                   time.Time
	// contentType is that of data, application/json if it is "".
	contentType string
	subject     string
	dataSchema  string
	// extensions are the client's own; nil if there are none.
	extensions map[string]string
	// extensionBytes is what they take as headers.
	extensionBytes int
	data           []byte
}

const (
	jsonType   = "application/json"
	binaryType = "application/octet-stream"
	// maxExtensions bounds the extensions of one event together. The adapter, or the
	// proxy before it, refuses a request whose header is too large, and the client
	// would repeat it for ever.
	maxExtensions = 16 << 10
)

// setExtension adds what a header carries unchanged; the rest 1.10 ignored, too.
func (e *cloudEvent) setExtension(name, value string) {
	size := len("Ce-: \r\n") + len(name) + len(value)
	if value == "" || !headerValue(value) || e.extensionBytes+size > maxExtensions {
		return
	}
	if e.extensions == nil {
		e.extensions = map[string]string{}
	}
	e.extensions[name] = value
	e.extensionBytes += size
}

func (e *cloudEvent) setSubject(subject string) {
	if headerValue(subject) {
		e.subject = subject
	}
}

// setSchema takes over what is an absolute URI; 1.0 allows nothing else.
func (e *cloudEvent) setSchema(schema string) {
	if schema == "" || !headerValue(schema) {
		return
	}
	if u, err := url.Parse(schema); err == nil && u.IsAbs() {
		e.dataSchema = u.String()
	}
}

// header writes the event in the binary mode of CloudEvents' HTTP binding. Names
// are in the canonical form, so that net/http need not make it.
func (e *cloudEvent) header(source, sourceID string) http.Header {
	const most = 16 // with those that passTrace and send add
	header := make(http.Header, most+len(e.extensions))
	// One piece of memory for all values.
	values := make([]string, 0, most)
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Ce-Specversion", "1.0")
	set("Ce-Id", e.id)
	set("Ce-Source", source)
	set("Ce-Type", e.eventType)
	set("Ce-Time", e.time.UTC().Format(time.RFC3339Nano))
	set("Ce-Eventtypeversion", e.version)
	set("Ce-Sourceid", sourceID)
	if e.contentType == "" {
		set("Content-Type", jsonType)
	} else {
		set("Content-Type", e.contentType)
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

// headerValue says whether a header carries the value unchanged.
func headerValue(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			return false
		}
	}
	return len(value) <= maxExtension && strings.TrimSpace(value) == value
}
