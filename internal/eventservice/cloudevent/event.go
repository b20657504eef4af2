// Package cloudevent defines the CloudEvent that the event-service posts to the mesh, and the
// attributes that a client may set.
package cloudevent

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Event is a CloudEvent 1.0 on its way to the backend.
type Event struct {
	// Source is "" if each event has that of the server. Version is "" if the type has it, or if
	// there is none.
	ID, Source, Type, Version string
	Time                      time.Time
	// When is the time as the client wrote it; "": Time counts, if it is not zero.
	When string
	// ContentType is that of Data, application/json if it is "".
	ContentType string
	// Untyped: nothing is known of Data, not even that it is JSON.
	Untyped    bool
	subject    string
	dataSchema string
	// extensions are the client's own; nil if there are none.
	extensions map[string]string
	// extensionBytes is what they, subject and schema take as headers.
	extensionBytes int
	// Data is the body.
	Data []byte
	// LeftOut are the ce-* headers of the client that cannot go with the event.
	LeftOut []string
	// Repeated is set by the sender: the backend had this event already, and has not taken it a
	// second time.
	Repeated bool
	// Unsubscribed is set by the sender: the event was taken, and nobody has subscribed to it.
	Unsubscribed bool
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

// SetExtension adds what a header carries unchanged, and says whether it does.
func (e *Event) SetExtension(name, value string) bool {
	if value == "" || !e.take(name, value) {
		return false
	}
	if e.extensions == nil {
		e.extensions = map[string]string{}
	}
	e.extensions[name] = value
	return true
}

// SetSubject sets a subject that a header carries unchanged, and says whether it does.
func (e *Event) SetSubject(subject string) bool {
	if !e.take("subject", subject) {
		return false
	}
	e.subject = subject
	return true
}

// SetSchema takes over what is an absolute URI; 1.0 allows nothing else. It says whether it does.
func (e *Event) SetSchema(schema string) bool {
	u, err := url.Parse(schema)
	if schema == "" || err != nil || !u.IsAbs() || !e.take("dataschema", u.String()) {
		return false
	}
	e.dataSchema = u.String()
	return true
}

// take says whether there is room for a header that carries the value unchanged, and takes that
// room.
func (e *Event) take(name, value string) bool {
	size := len("Ce-: \r\n") + len(name) + len(value)
	if !unchanged(value) || e.extensionBytes+size > MaxExtensions {
		return false
	}
	e.extensionBytes += size
	return true
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

// Set sets an attribute of the client's that is optional. false means that a header does not carry
// it unchanged, or that there are too many.
func (e *Event) Set(name, value string) bool {
	if !HeaderValue(value) {
		return false
	}
	switch name {
	case "subject":
		e.subject = value
	case "dataschema":
		e.dataSchema = value
	default:
		if value == "" {
			return false
		}
		return e.SetExtension(name, value)
	}
	return value != ""
}

// Attributes calls set with each attribute of an event with a source, in no order. The content type
// is none of them.
func (e *Event) Attributes(set func(name, value string)) {
	set("specversion", "1.0")
	set("id", e.ID)
	set("source", e.Source)
	set("type", e.Type)
	if e.When != "" {
		set("time", e.When)
	} else if !e.Time.IsZero() {
		set("time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	for _, optional := range []struct{ name, value string }{{VersionExtension, e.Version}, {"subject", e.subject}, {"dataschema", e.dataSchema}} {
		if optional.value != "" {
			set(optional.name, optional.value)
		}
	}
	for name, value := range e.extensions {
		set(name, value)
	}
}

// MediaType is the type of Data; "" if it is unknown.
func (e *Event) MediaType() string {
	if e.ContentType == "" && !e.Untyped {
		return jsonType
	}
	return e.ContentType
}

// HeaderValue says whether a header carries the value unchanged.
func HeaderValue(value string) bool {
	return len(value) <= maxValue && unchanged(value)
}

func unchanged(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			return false
		}
	}
	return strings.TrimSpace(value) == value
}

// maxValue bounds one attribute of a CloudEvent, and one content type.
const maxValue = 4096
