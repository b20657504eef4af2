// Package publish implements POST /publish without its server: it decodes the CloudEvent of a
// request. It accepts one event, in binary or structured mode, of version 1.0 or 0.3. The receiver
// gets the content of the request unchanged, byte for byte. An event that does not fit unchanged
// into headers is refused. Only the attributes of Knative itself (knative*) are removed, as at the
// legacy endpoint.
package publish

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

const (
	v1  = "1.0"
	v03 = "0.3"
	// formats begins the content types of whole events, batches that of several.
	formats = "application/cloudevents"
	batches = "application/cloudevents-batch"
	prefix  = "Ce-"
)

// Decode reads the event of a request. Its data may be a part of body.
func Decode(header http.Header, body []byte) (*cloudevent.Event, *legacy.Problem) {
	if problem := checkContent(header); problem != nil {
		return nil, problem
	}
	contentType, problem := one(header, "Content-Type")
	if problem != nil {
		return nil, problem
	}
	switch lower := strings.ToLower(strings.TrimSpace(contentType)); {
	case strings.HasPrefix(lower, batches):
		return nil, unsupported("batches of events are not supported: send one event in each request")
	case strings.HasPrefix(lower, formats):
		if why := unreadable(contentType); why != "" {
			return nil, unsupported(why)
		}
		return structured(body)
	case strings.Contains(lower, formats):
		// Receivers differ in how they find that a body is a whole event.
		return nil, legacy.InvalidField("content-type", "data cannot have a type of CloudEvents")
	}
	return binary(header, contentType, body)
}

// unreadable says why an event in this format cannot be read.
func unreadable(contentType string) string {
	format, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || format != formats && format != formats+"+json" {
		return "only the JSON format of CloudEvents is supported: application/cloudevents+json"
	}
	if charset := strings.ToLower(parameters["charset"]); charset != "" && charset != "utf-8" && charset != "us-ascii" {
		return "the charset must be utf-8"
	}
	return ""
}

func unsupported(why string) *legacy.Problem {
	return &legacy.Problem{
		Status: http.StatusUnsupportedMediaType, Type: "unsupported_media_type", Message: "Unsupported content type", MoreInfo: why, Cause: "invalid",
	}
}

// one returns a header that may be there once.
func one(header http.Header, name string) (string, *legacy.Problem) {
	values := header[name]
	if len(values) > 1 {
		return "", legacy.InvalidField(strings.ToLower(name), "it is there more than once")
	}
	if len(values) == 0 {
		return "", nil
	}
	return values[0], nil
}

// binary reads an event whose attributes are headers and whose data is the body.
func binary(header http.Header, contentType string, body []byte) (*cloudevent.Event, *legacy.Problem) {
	e := &cloudevent.Event{ContentType: contentType, Untyped: contentType == "", Data: body}
	if _, _, err := mime.ParseMediaType(contentType); err != nil && contentType != "" || !cloudevent.HeaderValue(contentType) {
		return nil, legacy.InvalidField("content-type", "it must be a media type as in RFC 2046")
	}
	version, problem := one(header, prefix+"Specversion")
	if problem == nil {
		problem = checkVersion("ce-specversion", version)
	}
	if problem != nil {
		return nil, problem
	}
	encoding := ""
	for key, values := range header {
		name, ok := strings.CutPrefix(key, prefix)
		if name = strings.ToLower(name); !ok || name == "specversion" {
			continue
		}
		if len(values) > 1 {
			return nil, legacy.InvalidField("ce-"+name, "it is there more than once")
		}
		if name == "datacontenttype" && contentType != "" && sameType(values[0], contentType) {
			continue
		}
		if version == v03 && name == "datacontentencoding" {
			encoding = values[0]
			continue
		}
		if problem := set(e, version, "ce-", name, values[0]); problem != nil {
			return nil, problem
		}
	}
	if problem := complete(e, "ce-"); problem != nil {
		return nil, problem
	}
	if problem := decode(e, "ce-datacontentencoding", encoding, string(body)); problem != nil {
		return nil, problem
	}
	return e, nil
}

// structured reads an event that is the body, in JSON.
func structured(body []byte) (*cloudevent.Event, *legacy.Problem) {
	if !utf8.Valid(body) {
		return nil, legacy.BadPayload("the body is not UTF-8")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, legacy.BadPayload(err.Error())
	}
	for name, raw := range members {
		if string(raw) == "null" && name != "data" {
			delete(members, name) // an attribute that is null is not there
		}
	}
	version, problem := text(members, "specversion")
	if problem == nil {
		problem = checkVersion("specversion", version)
	}
	if problem != nil {
		return nil, problem
	}
	e := &cloudevent.Event{}
	said, problem := text(members, "datacontenttype")
	if problem != nil {
		return nil, problem
	}
	contentType, isJSON := legacy.MediaType(said)
	if contentType != said {
		return nil, legacy.InvalidField("datacontenttype", "it is no content type that data can have")
	}
	e.ContentType = contentType
	encoding := ""
	if version == v03 {
		if encoding, problem = text(members, "datacontentencoding"); problem != nil {
			return nil, problem
		}
		delete(members, "datacontentencoding")
	}
	if problem := content(e, members, version, encoding, isJSON); problem != nil {
		return nil, problem
	}
	for _, name := range []string{"specversion", "datacontenttype", "data", "data_base64"} {
		delete(members, name)
	}
	for name, raw := range members {
		value, problem := scalar(name, raw)
		if problem == nil {
			problem = set(e, version, "", name, value)
		}
		if problem != nil {
			return nil, problem
		}
	}
	return e, complete(e, "")
}

// content sets the data of a structured event.
func content(e *cloudevent.Event, members map[string]json.RawMessage, version, encoding string, isJSON bool) *legacy.Problem {
	data, hasData := members["data"]
	_, hasBase64 := members["data_base64"]
	switch {
	case hasBase64 && version != v1:
		return legacy.InvalidField("data_base64", "only version 1.0 has it")
	case hasBase64 && hasData:
		return legacy.InvalidField("data_base64", "there is data, too")
	case hasBase64:
		encoded, problem := text(members, "data_base64")
		if problem != nil {
			return problem
		}
		return decode(e, "data_base64", "base64", encoded)
	case !hasData:
		e.Untyped = e.ContentType == ""
		return nil
	case encoding != "" || !isJSON && data[0] == '"':
		plain, problem := text(members, "data")
		if problem != nil {
			return problem
		}
		e.Data = []byte(plain)
		return decode(e, "datacontentencoding", encoding, plain)
	}
	e.Data = data
	return nil
}

// decode sets data that is encoded.
func decode(e *cloudevent.Event, field, encoding, data string) *legacy.Problem {
	switch {
	case encoding == "":
		return nil
	case !strings.EqualFold(encoding, "base64"):
		return legacy.InvalidField(field, "only base64 is supported")
	}
	var err error
	if e.Data, err = base64.StdEncoding.DecodeString(data); err != nil {
		return legacy.InvalidField(field, err.Error())
	}
	return nil
}

// set sets an attribute. mode begins what the client calls it.
func set(e *cloudevent.Event, version, mode, name, value string) *legacy.Problem {
	field := mode + name
	switch {
	case !cloudevent.ValidName(name):
		return legacy.InvalidField(field, "names of attributes have lower-case letters and digits only")
	case !cloudevent.HeaderValue(value) || !utf8.ValidString(value):
		return legacy.InvalidField(field, "no header carries this value unchanged")
	}
	switch name {
	case "id":
		e.ID = value
	case "type":
		e.Type = value
	case "source":
		if !isSource(value) {
			return legacy.InvalidField(field, "it must be a URI reference")
		}
		e.Source = value
	case "time":
		when, ok := timestamp(value)
		if !ok {
			return legacy.InvalidField(field, "it must be a time as in RFC 3339")
		}
		e.When = when
	case "dataschema", "schemaurl":
		if name == "schemaurl" && version != v03 {
			return setOptional(e, field, name, value) // an extension
		}
		if name == "dataschema" && version == v03 {
			return legacy.InvalidField(field, "CloudEvents 0.3 calls it schemaurl")
		}
		if u, err := url.Parse(value); err != nil || !u.IsAbs() {
			return legacy.InvalidField(field, "it must be an absolute URI")
		}
		return setOptional(e, field, "dataschema", value)
	case "datacontenttype":
		return legacy.InvalidField(field, "it is not the Content-Type of the request, which says what the data is: send that header only")
	case "data", "specversion":
		return legacy.InvalidField(field, "it cannot be here")
	default:
		if strings.HasPrefix(name, "knative") {
			return nil // a receiver of the mesh could have its event dropped by it
		}
		return setOptional(e, field, name, value)
	}
	return nil
}

func setOptional(e *cloudevent.Event, field, name, value string) *legacy.Problem {
	if !e.Set(name, value) {
		return legacy.InvalidField(field, fmt.Sprintf("it is empty, or extensions have more than %d bytes together", cloudevent.MaxExtensions))
	}
	return nil
}

// isSource says whether a source is a URI reference of printable characters; "" is missing, and no
// error here.
func isSource(value string) bool {
	if value == "" || plainSource(value) {
		return true
	}
	_, err := url.Parse(value)
	return err == nil && cloudevent.Printable(value)
}

// plainSource is a path that needs no parser, such as the name of an application.
var plainSource = cloudevent.OnlyOf(func(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '.' || c == '_'
})

// complete says what is missing.
func complete(e *cloudevent.Event, mode string) *legacy.Problem {
	for _, required := range []struct{ name, value string }{{"id", e.ID}, {"source", e.Source}, {"type", e.Type}} {
		if required.value == "" {
			return legacy.MissingField(mode + required.name)
		}
	}
	return nil
}

func checkVersion(field, version string) *legacy.Problem {
	switch version {
	case v1, v03:
		return nil
	case "":
		return legacy.MissingField(field)
	}
	return legacy.InvalidField(field, "only CloudEvents 1.0 and 0.3 are supported")
}

// text is a member that must be text; "" if it is not there.
func text(members map[string]json.RawMessage, name string) (value string, problem *legacy.Problem) {
	raw, ok := members[name]
	if !ok {
		return "", nil
	}
	if raw[0] != '"' || json.Unmarshal(raw, &value) != nil {
		return "", legacy.InvalidField(name, "it must be text")
	}
	return value, nil
}

// scalar is a text, number or truth value as a header has it.
func scalar(name string, raw json.RawMessage) (string, *legacy.Problem) {
	switch raw[0] {
	case '{', '[':
		return "", legacy.InvalidField(name, "it must be text, a number, true or false")
	case '"':
		return text(map[string]json.RawMessage{name: raw}, name)
	}
	return string(raw), nil // as it was written
}
