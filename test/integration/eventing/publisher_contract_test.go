package eventing_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// say is a header, or the headers of a message: names and values in turns.
type say []string

// published is one line of the contract: a request, and what becomes of it.
type published struct {
	reason string
	method string // POST if ""
	path   string // /publish if ""
	header http.Header
	body   string

	// An event that is taken: answered with status, and received as said. Each message has an id of
	// its own.
	status      int // 204 if 0
	source, typ string
	message     say
	data        string

	// An event that is refused: problem is in the answer.
	problem string
	allow   string
}

// theID is the id of the event of a case. Each case has another one, or the second would be a
// duplicate.
const theID = "<id>"

// binary is a request in binary mode: the required attributes, and more. A value of "-" removes
// one, "again …" is a second one.
func binary(more ...string) http.Header {
	h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {theID}, "Ce-Source": {"commerce"}, "Ce-Type": {"order.created.v1"}, "Content-Type": {"application/json"}}
	for i := 0; i < len(more); i += 2 {
		switch name, value := more[i], more[i+1]; {
		case value == "-":
			delete(h, name)
		case strings.HasPrefix(value, "again "):
			h[name] = append(h[name], value)
		default:
			h[name] = []string{value}
		}
	}
	return h
}

var jsonEvent = http.Header{"Content-Type": {"application/cloudevents+json"}}

func asJSON(contentType string) http.Header { return http.Header{"Content-Type": {contentType}} }

// jsonBody is a body in structured mode: the required attributes, and more JSON.
func jsonBody(more string) string {
	return `{"specversion":"1.0","id":"` + theID + `","source":"commerce","type":"order.created.v1"` + more + `}`
}

func jsonBody03(more string) string { return strings.Replace(jsonBody(more), `"1.0"`, `"0.3"`, 1) }

// The ids of the legacy endpoint are UUIDs.
func legacyV1(more string) string {
	return `{"event-type":"order.created","event-type-version":"v1","event-id":"` + theID + `","event-time":"2020-03-01T13:00:00+01:00"` + more + `}`
}

func legacyV2(more string) string {
	return `{"type":"order.created","eventtypeversion":"v1","id":"` + theID + `","time":"2020-03-01T13:00:00+01:00","specversion":"0.3"` + more + `}`
}

const (
	v1Path   = "/commerce/v1/events"
	v2Path   = "/commerce/v2/events"
	wholeMiB = 1 << 20
)

var legacyMessage = say{"content-type", "application/json", "ce-time", "2020-03-01T12:00:00Z", "ce-eventtypeversion", "v1"}

// publisherContract is what the publisher takes and refuses, and what of an event the receiver
// sees.
var publisherContract = []published{
	// Binary mode, CloudEvents 1.0.
	{reason: "a whole event", header: binary(), body: `{"a":1}`, message: say{"content-type", "application/json"}, data: `{"a":1}`},
	{reason: "no data", header: binary("Content-Type", "-"), message: say{}},
	{reason: "no data, and a type of it", header: binary(), message: say{"content-type", "application/json"}},
	{reason: "data that nothing is known of", header: binary("Content-Type", "-"), body: "\x00\x01\xff", message: say{}, data: "\x00\x01\xff"},
	{reason: "data is not read", header: binary(), body: `{"a":`, message: say{"content-type", "application/json"}, data: `{"a":`},
	{reason: "binary data", header: binary("Content-Type", "application/octet-stream"), body: "\r\n\x00\xfe", message: say{"content-type", "application/octet-stream"}, data: "\r\n\x00\xfe"},
	{reason: "spaces of data stay", header: binary(), body: " { } \n", message: say{"content-type", "application/json"}, data: " { } \n"},
	{reason: "a content type with parameters", header: binary("Content-Type", `text/xml; charset="utf-8"`), body: "<a/>", message: say{"content-type", `text/xml; charset="utf-8"`}, data: "<a/>"},
	{reason: "a content type that is none", header: binary("Content-Type", "garbage"), body: "x", message: say{"content-type", "garbage"}, data: "x"},
	{reason: "every attribute", header: binary("Ce-Time", "2020-03-01T13:00:00.5+01:00", "Ce-Subject", "a/b", "Ce-Dataschema", "https://schemas/a?b#c", "Ce-Color", "blue"), body: "1",
		message: say{"content-type", "application/json", "ce-time", "2020-03-01T13:00:00.5+01:00", "ce-subject", "a/b", "ce-dataschema", "https://schemas/a?b#c", "ce-color", "blue"}, data: "1"},
	// On f3299ef these three were refused, and the four after them were taken without what changes
	// their data.
	{reason: "the type of the data twice, the same", header: binary("Ce-Datacontenttype", "Application/JSON"), body: "{}", message: say{"content-type", "application/json"}, data: "{}"},
	{reason: "a time with letters in lower case", header: binary("Ce-Time", "2020-03-01t13:00:00z"), body: "1", message: say{"content-type", "application/json", "ce-time", "2020-03-01T13:00:00Z"}, data: "1"},
	{reason: "a leap second", header: binary("Ce-Time", "2016-12-31T23:59:60Z"), body: "1", message: say{"content-type", "application/json", "ce-time", "2016-12-31T23:59:59.999999999Z"}, data: "1"},
	{reason: "compressed data", header: binary("Content-Encoding", "gzip"), body: "\x1f\x8b", status: 415, problem: "content-encoding"},
	{reason: "data in several encodings", header: binary("Content-Encoding", "identity, br"), body: "x", status: 415, problem: "content-encoding"},
	{reason: "data in an encoding of mail", header: binary("Content-Transfer-Encoding", "base64"), body: "eA==", status: 415, problem: "content-transfer-encoding"},
	{reason: "a part of the data", header: binary("Content-Range", "bytes 0-0/2"), body: "x", status: 400, problem: "content-range"},
	{reason: "data that says that it is not encoded", header: binary("Content-Encoding", "identity"), body: "x", message: say{"content-type", "application/json"}, data: "x"},
	{reason: "JSON: a compressed event", header: http.Header{"Content-Type": {"application/cloudevents+json"}, "Content-Encoding": {"gzip"}}, body: "\x1f\x8b", status: 415, problem: "content-encoding"},
	{reason: "a percent sign stays what it is", header: binary("Ce-Subject", "100%25 %20"), message: say{"content-type", "application/json", "ce-subject", "100%25 %20"}},
	{reason: "any language", header: binary("Ce-Subject", "Grüße 世界"), message: say{"content-type", "application/json", "ce-subject", "Grüße 世界"}},
	{reason: "quotes and commas", header: binary("Ce-Subject", `"a, b"; c`), message: say{"content-type", "application/json", "ce-subject", `"a, b"; c`}},
	{reason: "names of attributes have no capitals", header: http.Header{"CE-SPECVERSION": {"1.0"}, "ce-id": {theID}, "cE-sOURCE": {"commerce"}, "CE-Type": {"order.created.v1"}, "CE-COLOR": {"Blue"}}, message: say{"ce-color", "Blue"}},
	{reason: "extensions of the legacy endpoint are ordinary ones", header: binary("Ce-Eventtypeversion", "v7", "Ce-Sourceid", "x"), message: say{"content-type", "application/json", "ce-eventtypeversion", "v7", "ce-sourceid", "x"}},
	{reason: "Knative's own attributes are the mesh's to set", header: binary("Ce-Knativebrokerttl", "0", "Ce-Knativearrivaltime", "now"), message: say{"content-type", "application/json"}},
	{reason: "a trace", header: binary("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate", "a=b", "B3", "1-2-1"),
		message: say{"content-type", "application/json", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate", "a=b", "b3", "1-2-1"}},
	{reason: "the extension of a trace is none of its headers", header: binary("Ce-Traceparent", "x"), message: say{"content-type", "application/json", "ce-traceparent", "x"}},
	{reason: "no other header goes with the event", header: binary("Authorization", "secret", "Cookie", "a=b", "Nats-Expected-Stream", "other", "Nats-Msg-Id", "mine", "X-Other", "x"), message: say{"content-type", "application/json"}},
	{reason: "a source that is a URL", header: binary("Ce-Source", "https://shop.example/a?b=c#d"), source: "https://shop.example/a?b=c#d", message: say{"content-type", "application/json"}},
	{reason: "a source with dots and wildcards", header: binary("Ce-Source", "my.shop/*"), source: "my.shop/*", message: say{"content-type", "application/json"}},
	{reason: "a source with an encoded space", header: binary("Ce-Source", "my%20shop"), source: "my%20shop", message: say{"content-type", "application/json"}},
	{reason: "the longest source", header: binary("Ce-Source", strings.Repeat("s", 512)), source: strings.Repeat("s", 512), message: say{"content-type", "application/json"}},
	{reason: "a type of two segments", header: binary("Ce-Type", "a.b"), typ: "a.b", message: say{"content-type", "application/json"}},
	{reason: "a type with what NATS reads as wildcards", header: binary("Ce-Type", "a.*.>"), typ: "a.*.>", message: say{"content-type", "application/json"}},
	{reason: "a type with empty segments", header: binary("Ce-Type", "a..b."), typ: "a..b.", message: say{"content-type", "application/json"}},
	{reason: "capitals of a type stay", header: binary("Ce-Type", "Order.Created"), typ: "Order.Created", message: say{"content-type", "application/json"}},
	{reason: "the longest type", header: binary("Ce-Type", strings.Repeat("t", 251)+".v"), typ: strings.Repeat("t", 251) + ".v", message: say{"content-type", "application/json"}},
	{reason: "an empty extension is refused", header: binary("Ce-Color", ""), status: 400, problem: "ce-color"},
	{reason: "the largest event", header: binary("Content-Type", "text/plain"), body: strings.Repeat("x", wholeMiB), message: say{"content-type", "text/plain"}, data: strings.Repeat("x", wholeMiB)},
	{reason: "a query is no part of the route", path: "/publish?x=1", header: binary(), message: say{"content-type", "application/json"}},
	{reason: "an id may have spaces", header: binary("Ce-Id", theID+" 2"), message: say{"content-type", "application/json"}},

	// Binary mode, CloudEvents 0.3.
	{reason: "0.3", header: binary("Ce-Specversion", "0.3"), body: "1", message: say{"content-type", "application/json"}, data: "1"},
	{reason: "0.3: the schema has another name", header: binary("Ce-Specversion", "0.3", "Ce-Schemaurl", "http://schemas/a"), message: say{"content-type", "application/json", "ce-dataschema", "http://schemas/a"}},
	{reason: "0.3: base64", header: binary("Ce-Specversion", "0.3", "Ce-Datacontentencoding", "base64", "Content-Type", "application/octet-stream"), body: "AAH/", message: say{"content-type", "application/octet-stream"}, data: "\x00\x01\xff"},
	{reason: "0.3: base64 that is none", header: binary("Ce-Specversion", "0.3", "Ce-Datacontentencoding", "base64"), body: "?", status: 400, problem: "ce-datacontentencoding"},
	{reason: "0.3: another encoding", header: binary("Ce-Specversion", "0.3", "Ce-Datacontentencoding", "gzip"), body: "x", status: 400, problem: "only base64"},
	{reason: "0.3: the name of 1.0", header: binary("Ce-Specversion", "0.3", "Ce-Dataschema", "http://schemas/a"), status: 400, problem: "schemaurl"},
	{reason: "1.0: the schema of 0.3 is an extension", header: binary("Ce-Schemaurl", "x"), message: say{"content-type", "application/json", "ce-schemaurl", "x"}},

	// What is no event in binary mode.
	{reason: "nothing at all", status: 400, problem: "ce-specversion"},
	{reason: "JSON, but no CloudEvent", header: asJSON("application/json"), body: `{"a":1}`, status: 400, problem: "ce-specversion"},
	{reason: "no id", header: binary("Ce-Id", "-"), status: 400, problem: "ce-id"},
	{reason: "an empty id", header: binary("Ce-Id", ""), status: 400, problem: "ce-id"},
	{reason: "no source", header: binary("Ce-Source", "-"), status: 400, problem: "ce-source"},
	{reason: "no type", header: binary("Ce-Type", "-"), status: 400, problem: "ce-type"},
	{reason: "an unknown version", header: binary("Ce-Specversion", "2.0"), status: 400, problem: "1.0 and 0.3"},
	{reason: "the version of drafts", header: binary("Ce-Specversion", "0.2"), status: 400, problem: "1.0 and 0.3"},
	{reason: "an attribute twice", header: binary("Ce-Id", "again x"), status: 400, problem: "more than once"},
	{reason: "a content type twice", header: binary("Content-Type", "again x"), status: 400, problem: "more than once"},
	{reason: "a time that is none", header: binary("Ce-Time", "yesterday"), status: 400, problem: "ce-time"},
	{reason: "a time without a zone", header: binary("Ce-Time", "2020-03-01T13:00:00"), status: 400, problem: "ce-time"},
	{reason: "an empty subject", header: binary("Ce-Subject", ""), status: 400, problem: "ce-subject"},
	{reason: "a source with a space", header: binary("Ce-Source", "my shop"), status: 400, problem: "ce-source"},
	{reason: "a source in another alphabet", header: binary("Ce-Source", "größe"), status: 400, problem: "ce-source"},
	{reason: "a source that is no URI reference", header: binary("Ce-Source", "%zz"), status: 400, problem: "ce-source"},
	{reason: "a source that is too long", header: binary("Ce-Source", strings.Repeat("s", 513)), status: 400, problem: "512"},
	{reason: "a type of one segment", header: binary("Ce-Type", "order"), status: 400, problem: "two segments"},
	{reason: "a type with a space", header: binary("Ce-Type", "order created.v1"), status: 400, problem: "printable ASCII"},
	{reason: "a type in another alphabet", header: binary("Ce-Type", "größe.v1"), status: 400, problem: "printable ASCII"},
	{reason: "a type that is too long", header: binary("Ce-Type", strings.Repeat("t", 252)+".v"), status: 400, problem: "253"},
	{reason: "a name that no attribute can have", header: binary("Ce-My-Color", "blue"), status: 400, problem: "ce-my-color"},
	{reason: "data in a header", header: binary("Ce-Data", "x"), status: 400, problem: "ce-data"},
	{reason: "the type of the data in a header of its own", header: binary("Ce-Datacontenttype", "text/plain"), status: 400, problem: "ce-datacontenttype"},
	{reason: "a tab in a value", header: binary("Ce-Subject", "a\tb"), status: 400, problem: "ce-subject"},
	{reason: "a value that is no UTF-8", header: binary("Ce-Subject", "a\xffb"), status: 400, problem: "ce-subject"},
	{reason: "a value that is too long", header: binary("Ce-Subject", strings.Repeat("x", 4097)), status: 400, problem: "ce-subject"},
	{reason: "too many extensions", header: many(binary(), 5), status: 400, problem: "16384"},
	{reason: "a content type that hides an event", header: binary("Content-Type", "text/plain; x=application/cloudevents+json"), status: 400, problem: "content-type"},
	{reason: "a content type that nobody can read", header: binary("Content-Type", `"`), body: "x", status: 400, problem: "RFC 2046"},
	{reason: "a schema that is no absolute URI", header: binary("Ce-Dataschema", "/a"), status: 400, problem: "ce-dataschema"},
	{reason: "too large", header: binary(), body: strings.Repeat("x", wholeMiB+1), status: 413, problem: "request_body_too_large"},

	// Structured mode, CloudEvents 1.0.
	{reason: "JSON: data that is an object, byte for byte", header: jsonEvent, body: jsonBody(`,"data":{ "b":1.50, "a":"\u00e9" }`), message: say{"content-type", "application/json"}, data: `{ "b":1.50, "a":"\u00e9" }`},
	{reason: "JSON: no data", header: jsonEvent, body: jsonBody(``), message: say{}},
	{reason: "JSON: data that is text is JSON", header: jsonEvent, body: jsonBody(`,"data":"x"`), message: say{"content-type", "application/json"}, data: `"x"`},
	{reason: "JSON: data that is null", header: jsonEvent, body: jsonBody(`,"data":null`), message: say{"content-type", "application/json"}, data: `null`},
	{reason: "JSON: data that is a large number", header: jsonEvent, body: jsonBody(`,"data":12345678901234567890`), message: say{"content-type", "application/json"}, data: `12345678901234567890`},
	{reason: "JSON: text of another type", header: jsonEvent, body: jsonBody(`,"datacontenttype":"text/xml","data":"<a>\n</a>"`), message: say{"content-type", "text/xml"}, data: "<a>\n</a>"},
	{reason: "JSON: an object of another type", header: jsonEvent, body: jsonBody(`,"datacontenttype":"text/plain","data":{"a":1}`), message: say{"content-type", "text/plain"}, data: `{"a":1}`},
	{reason: "JSON: text of a type that ends in +json", header: jsonEvent, body: jsonBody(`,"datacontenttype":"application/a+json","data":"x"`), message: say{"content-type", "application/a+json"}, data: `"x"`},
	{reason: "JSON: base64", header: jsonEvent, body: jsonBody(`,"datacontenttype":"image/png","data_base64":"AAH/"`), message: say{"content-type", "image/png"}, data: "\x00\x01\xff"},
	{reason: "JSON: every attribute", header: jsonEvent, body: jsonBody(`,"time":"2020-03-01T13:00:00.50+01:00","subject":"a/b","dataschema":"https://schemas/a?b#c","color":"blue"`),
		message: say{"ce-time", "2020-03-01T13:00:00.50+01:00", "ce-subject", "a/b", "ce-dataschema", "https://schemas/a?b#c", "ce-color", "blue"}},
	{reason: "JSON: numbers and truth values as they were written", header: jsonEvent, body: jsonBody(`,"n":-5,"t":true,"f":false`), message: say{"ce-n", "-5", "ce-t", "true", "ce-f", "false"}},
	{reason: "JSON: an attribute that is null is not there", header: jsonEvent, body: jsonBody(`,"color":null,"subject":null,"time":null`), message: say{}},
	{reason: "JSON: an escaped value", header: jsonEvent, body: jsonBody(`,"color":"\u0062lue","subject":"\u00fc"`), message: say{"ce-color", "blue", "ce-subject", "ü"}},
	{reason: "JSON: headers are no attributes", header: func() http.Header {
		h := binary("Ce-Color", "blue")
		h.Set("Content-Type", "application/cloudevents+json")
		return h
	}(), body: jsonBody(``), message: say{}},
	{reason: "JSON: with a charset", header: asJSON("application/cloudevents+json; charset=UTF-8"), body: jsonBody(``), message: say{}},
	{reason: "JSON: without the suffix", header: asJSON("application/cloudevents"), body: jsonBody(``), message: say{}},
	{reason: "JSON: in capitals", header: asJSON("Application/CloudEvents+JSON"), body: jsonBody(``), message: say{}},
	{reason: "JSON: spaces around it", header: jsonEvent, body: " \n" + jsonBody(``) + "\r\n", message: say{}},
	{reason: "JSON: a source and a type", header: jsonEvent, body: strings.NewReplacer("commerce", "/my.shop", "order.created.v1", "a.b.c").Replace(jsonBody(``)), source: "/my.shop", typ: "a.b.c", message: say{}},
	{reason: "JSON: Knative's own attributes", header: jsonEvent, body: jsonBody(`,"knativebrokerttl":"0"`), message: say{}},

	// Structured mode, CloudEvents 0.3.
	{reason: "JSON 0.3", header: jsonEvent, body: jsonBody03(`,"data":{"a":1}`), message: say{"content-type", "application/json"}, data: `{"a":1}`},
	{reason: "JSON 0.3: the schema", header: jsonEvent, body: jsonBody03(`,"schemaurl":"http://schemas/a"`), message: say{"ce-dataschema", "http://schemas/a"}},
	{reason: "JSON 0.3: base64", header: jsonEvent, body: jsonBody03(`,"datacontenttype":"image/png","datacontentencoding":"base64","data":"AAH/"`), message: say{"content-type", "image/png"}, data: "\x00\x01\xff"},
	{reason: "JSON 0.3: base64 as 1.0 writes it", header: jsonEvent, body: jsonBody03(`,"data_base64":"AAH/"`), status: 400, problem: "data_base64"},
	{reason: "JSON 0.3: base64 that is a number", header: jsonEvent, body: jsonBody03(`,"datacontentencoding":"base64","data":5`), status: 400, problem: "data"},

	// What is no event in structured mode.
	{reason: "JSON: no body", header: jsonEvent, status: 400, problem: "bad_payload_syntax"},
	{reason: "JSON: it ends early", header: jsonEvent, body: `{"specversion":`, status: 400, problem: "bad_payload_syntax"},
	{reason: "JSON: something follows", header: jsonEvent, body: jsonBody(``) + "x", status: 400, problem: "bad_payload_syntax"},
	{reason: "JSON: two events", header: jsonEvent, body: jsonBody(``) + jsonBody(``), status: 400, problem: "bad_payload_syntax"},
	{reason: "JSON: a list", header: jsonEvent, body: "[" + jsonBody(``) + "]", status: 400, problem: "bad_payload_syntax"},
	{reason: "JSON: no UTF-8", header: jsonEvent, body: jsonBody(`,"data":"` + "\xff" + `"`), status: 400, problem: "UTF-8"},
	{reason: "JSON: null", header: jsonEvent, body: `null`, status: 400, problem: "specversion"},
	{reason: "JSON: no version", header: jsonEvent, body: `{"id":"x","source":"a","type":"a.b"}`, status: 400, problem: "specversion"},
	{reason: "JSON: a version that is a number", header: jsonEvent, body: `{"specversion":1.0,"id":"x","source":"a","type":"a.b"}`, status: 400, problem: "specversion"},
	{reason: "JSON: no id", header: jsonEvent, body: `{"specversion":"1.0","source":"a","type":"a.b"}`, status: 400, problem: `"id"`},
	{reason: "JSON: an id that is null", header: jsonEvent, body: `{"specversion":"1.0","id":null,"source":"a","type":"a.b"}`, status: 400, problem: `"id"`},
	{reason: "JSON: no source", header: jsonEvent, body: `{"specversion":"1.0","id":"x","type":"a.b"}`, status: 400, problem: `"source"`},
	{reason: "JSON: no type", header: jsonEvent, body: `{"specversion":"1.0","id":"x","source":"a"}`, status: 400, problem: `"type"`},
	{reason: "JSON: names have no capitals", header: jsonEvent, body: jsonBody(`,"Color":"blue"`), status: 400, problem: "Color"},
	{reason: "JSON: an attribute that is an object", header: jsonEvent, body: jsonBody(`,"color":{}`), status: 400, problem: "color"},
	{reason: "JSON: an attribute that is a list", header: jsonEvent, body: jsonBody(`,"color":["blue"]`), status: 400, problem: "color"},
	{reason: "JSON: an attribute with a line feed", header: jsonEvent, body: jsonBody(`,"color":"a\r\nce-id: 2"`), status: 400, problem: "color"},
	{reason: "JSON: an attribute with a space at its end", header: jsonEvent, body: jsonBody(`,"color":"a "`), status: 400, problem: "color"},
	{reason: "JSON: two kinds of data", header: jsonEvent, body: jsonBody(`,"data":1,"data_base64":"AA=="`), status: 400, problem: "data_base64"},
	{reason: "JSON: base64 that is none", header: jsonEvent, body: jsonBody(`,"data_base64":"?"`), status: 400, problem: "data_base64"},
	{reason: "JSON: a time that is none", header: jsonEvent, body: jsonBody(`,"time":"now"`), status: 400, problem: "time"},
	{reason: "JSON: data that is an event", header: jsonEvent, body: jsonBody(`,"datacontenttype":"application/cloudevents+json","data":{}`), status: 400, problem: "datacontenttype"},
	{reason: "JSON: a type with a line feed", header: jsonEvent, body: jsonBody(`,"datacontenttype":"a/b\r\nce-id: 2"`), status: 400, problem: "datacontenttype"},
	{reason: "JSON: a type of one segment", header: jsonEvent, body: strings.Replace(jsonBody(``), "order.created.v1", "order", 1), status: 400, problem: "two segments"},

	// Other formats.
	{reason: "a batch", header: asJSON("application/cloudevents-batch+json"), body: "[" + jsonBody(``) + "]", status: 415, problem: "batches of events are not supported: send one event in each request"},
	{reason: "a batch with a charset", header: asJSON("application/cloudevents-batch+json; charset=utf-8"), body: "[]", status: 415, problem: "batches"},
	{reason: "another format", header: asJSON("application/cloudevents+avro"), body: "x", status: 415, problem: "only the JSON format"},
	{reason: "another charset", header: asJSON("application/cloudevents+json; charset=utf-16"), body: jsonBody(``), status: 415, problem: "utf-8"},

	// The legacy endpoint.
	{reason: "v1", path: v1Path, body: legacyV1(`,"data":{"a":1}`), status: 200, message: legacyMessage, data: `{"a":1}`},
	{reason: "v2", path: v2Path, body: legacyV2(`,"data":{"a":1}`), status: 200, message: legacyMessage, data: `{"a":1}`},
	{reason: "v1: the application is the source", path: "/my.shop/v1/events", body: legacyV1(`,"data":1`), status: 200, source: "my.shop", message: legacyMessage, data: `1`},
	{reason: "v1: headers are extensions, but not those of the event", path: v1Path, header: http.Header{"Ce-Color": {"blue"}, "Ce-Type": {"x.y"}, "Ce-Source": {"x"}}, body: legacyV1(`,"data":1`), status: 200,
		message: append(say{"ce-color", "blue"}, legacyMessage...), data: `1`},
	{reason: "v2: attributes", path: v2Path, body: legacyV2(`,"subject":"s","color":"blue","datacontenttype":"text/plain","data":"x"`), status: 200,
		message: say{"content-type", "text/plain", "ce-time", "2020-03-01T12:00:00Z", "ce-eventtypeversion", "v1", "ce-subject", "s", "ce-color", "blue"}, data: `x`},
	{reason: "v1: a trace", path: v1Path, header: http.Header{"Traceparent": {"x"}}, body: legacyV1(`,"data":1`), status: 200, message: append(say{"traceparent", "x"}, legacyMessage...), data: `1`},
	{reason: "v1: a type of one segment gets the version as the second one", path: v1Path, body: strings.Replace(legacyV1(`,"data":1`), "order.created", "order", 1), status: 200, typ: "order.v1", message: legacyMessage, data: `1`},
	{reason: "v1: no data", path: v1Path, body: legacyV1(``), status: 400, problem: "missing_field"},
	{reason: "v1: no JSON", path: v1Path, body: "x", status: 400, problem: "bad_payload_syntax"},
	{reason: "v1: no body", path: v1Path, status: 400, problem: "bad_payload_syntax"},
	{reason: "v1: too large", path: v1Path, body: legacyV1(`,"data":"` + strings.Repeat("x", wholeMiB) + `"`), status: 413, problem: "request_body_too_large"},
	{reason: "v1: an id that is no UUID", path: v1Path, body: strings.Replace(legacyV1(`,"data":1`), theID, "4711", 1), status: 400, problem: "event-id"},
	{reason: "v1: an application that is too long", path: "/" + strings.Repeat("s", 513) + "/v1/events", body: legacyV1(`,"data":1`), status: 400, problem: "512"},
	{reason: "v1: an application with a space", path: "/a%20b/v1/events", body: legacyV1(`,"data":1`), status: 400, problem: "source"},
	{reason: "v1: type and version are too long together", path: v1Path, body: strings.Replace(legacyV1(`,"data":1`), "order.created", strings.Repeat("t", 251), 1), status: 400, problem: "253"},
	{reason: "v2: a version that it does not take", path: v2Path, body: strings.Replace(legacyV2(`,"data":1`), `"0.3"`, `"1.0"`, 1), status: 400, problem: "specversion"},

	// Routes.
	{reason: "a GET of publish", method: http.MethodGet, path: "/publish", status: 405, problem: "Method not allowed.", allow: "POST"},
	{reason: "a PUT of the legacy endpoint", method: http.MethodPut, path: v1Path, status: 405, problem: "Method not allowed.", allow: "POST"},
	{reason: "another path", path: "/publish/x", status: 404, problem: "could not be found"},
	{reason: "no application", path: "/v1/events", status: 404, problem: "could not be found"},
	{reason: "a third version", path: "/commerce/v3/events", status: 404, problem: "could not be found"},
	{reason: "a path that is not clean", path: "//publish", header: binary(), status: 308, problem: "Permanent Redirect"},
	{reason: "health", method: http.MethodGet, path: "/v1/health", status: 200, problem: `{"status":"ok"}`},
	{reason: "health, where Kyma's publisher has it", method: http.MethodGet, path: "/healthz", status: 200, problem: `{"status":"ok"}`},
	{reason: "readiness, where Kyma's publisher has it", method: http.MethodGet, path: "/readyz", status: 200, problem: `{"status":"ok"}`},
	{reason: "a former name with four parts", header: binary("Ce-Type", "sap.kyma.custom.commerce.order.created"), status: 400, problem: "application, business object, operation and version"},
	{reason: "a former name without letters", header: binary("Ce-Type", "sap.kyma.custom.-.order.created.v1"), status: 400, problem: "no letter and no digit"},
}

// many adds n extensions, each as long as one may be.
func many(h http.Header, n int) http.Header {
	for i := range n {
		h.Set(fmt.Sprintf("Ce-X%d", i), strings.Repeat("x", 4096))
	}
	return h
}

// TestPublisherContract: each request is answered as said, and what the receiver of a taken event
// gets is what the request said, byte for byte.
func TestPublisherContract(t *testing.T) {
	if n := len(publisherContract); n < 100 {
		t.Errorf("the contract has %d cases", n)
	}
	p := startNATS(t)
	from := receiver(t, p, stream.Config(wide(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	var former []sent // events of the legacy API, by their former name
	keepsContract(t, pub, func(t *testing.T, source, id string) (sent, map[string]string) {
		is := received(t, from) // its subject and its data are compared with what was sent
		for backend.IsFormer(is.Header["ce-type"]) {
			former = append(former, is)
			is = received(t, from)
		}
		_, eventType, err := backend.ParseSubject(is.Subject)
		if err != nil {
			t.Error(err)
		}
		sum := sha256.Sum256([]byte(source + "\x00" + id + "\x00" + eventType + "\x00" + is.Body))
		return is, map[string]string{"Nats-Msg-Id": hex.EncodeToString(sum[:])}
	})
	legacy := 0
	for i := range publisherContract {
		if tc := &publisherContract[i]; tc.message != nil && strings.HasSuffix(tc.path, "/events") {
			legacy++
		}
	}
	for len(former) < legacy {
		former = append(former, received(t, from))
	}
	for _, is := range former {
		if is.Header["ce-source"] != "kyma" || is.Header["ce-eventtypeversion"] != "v1" || !formerType.MatchString(is.Header["ce-type"]) || is.Subject != backend.Subject("kyma", is.Header["ce-type"]) {
			t.Errorf("by its former name, an event is %+v", is)
		}
	}
	s, err := js(t, p.as(t, "manager")).Stream(t.Context(), backend.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages more than were to be published", n)
	}
}

// formerType are the former names of the events that the contract sends to the legacy API.
var formerType = regexp.MustCompile(`^sap[.]kyma[.]custom[.](commerce|myshop)[.](order[.]created|order)[.]v1$`)

// keepsContract sends each request of the contract. received returns the next event that the
// receiver got, and headers that it has besides. Headers that others change on the way are not
// compared.
func keepsContract(t *testing.T, pub *publisher, received func(t *testing.T, source, id string) (sent, map[string]string), changed ...string) {
	t.Helper()
	for i, tc := range publisherContract {
		t.Run(tc.reason, func(t *testing.T) {
			id := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
			header := http.Header{}
			for name, values := range tc.header {
				for _, value := range values {
					header[name] = append(header[name], strings.ReplaceAll(value, theID, id))
				}
			}
			header["X-Request-Id"] = []string{"request-" + id}
			method, path := tc.method, tc.path
			if method == "" {
				method = http.MethodPost
			}
			if path == "" {
				path = "/publish"
			}
			got, err := ask(t.Context(), method, pub.URL+path, header, strings.ReplaceAll(tc.body, theID, id))
			if err != nil {
				t.Fatal(err)
			}
			status := tc.status
			if status == 0 {
				status = http.StatusNoContent
			}
			if got.status != status || !strings.Contains(got.body, tc.problem) || got.header.Get("Allow") != tc.allow || got.header.Get("X-Request-Id") != "request-"+id {
				t.Fatalf("want %d with %q, got %s", status, tc.problem, got)
			}
			if status == http.StatusNoContent && got.body != "" || status != http.StatusNoContent && !json.Valid([]byte(got.body)) {
				t.Errorf("the body of the answer: %q", got.body)
			}
			if tc.message == nil {
				return // that nothing was published is seen by the next case, and at the end
			}
			source, eventType := "commerce", tc.eventType()
			if tc.source != "" {
				source = tc.source
			}
			if in := tc.header["Ce-Id"]; len(in) == 1 {
				id = strings.ReplaceAll(in[0], theID, id)
			}
			is, more := received(t, source, id)
			want := sent{Subject: backend.Subject(source, eventType), Body: tc.data, Header: map[string]string{
				"ce-specversion": "1.0", "ce-id": id, "ce-source": source, "ce-type": eventType, "x-request-id": header.Get("X-Request-Id"),
			}}
			maps.Copy(want.Header, more)
			for j := 0; j < len(tc.message); j += 2 {
				want.Header[tc.message[j]] = tc.message[j+1]
			}
			for _, name := range changed {
				delete(want.Header, name)
				delete(is.Header, name)
			}
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("what the request said, and what is received (-want +got):\n%s", diff)
			}
		})
	}
}

// eventType is the type of the event of a case.
func (p *published) eventType() string {
	if p.typ == "" {
		return "order.created.v1"
	}
	return p.typ
}
