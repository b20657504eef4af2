package publisher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/test/eventservice/seeds"
)

// capture is the publisher without a server of NATS.
type capture struct{ messages []*nats.Msg }

func (c *capture) Ready(context.Context) error { return nil }

func (c *capture) Send(_ context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem {
	if problem := check(e); problem != nil {
		return problem
	}
	m := message(e, from, requestID)
	m.Data = bytes.Clone(m.Data)
	c.messages = append(c.messages, m)
	return nil
}

// meant is what a receiver reads of an event.
type meant struct {
	ID, Source, Type, Subject, Schema, ContentType, Data string
	Time                                                 time.Time
	Extensions                                           map[string]string
}

// read reads an event with the library of others.
func read(header http.Header, body []byte) (*meant, error) {
	e, err := binding.ToEvent(context.Background(), cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(body))))
	if err != nil {
		return nil, err
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	m := &meant{
		ID: e.ID(), Source: e.Source(), Type: e.Type(), Subject: e.Subject(), Schema: e.DataSchema(), ContentType: e.DataContentType(), Data: string(e.Data()),
		Time: e.Time().UTC(), Extensions: map[string]string{},
	}
	for name, value := range e.Extensions() {
		if !strings.HasPrefix(name, "knative") && name != event.DataContentEncodingKey {
			m.Extensions[name] = fmt.Sprint(value)
		}
	}
	return m, nil
}

// FuzzPublish: whatever a client sends, the answer is valid JSON or empty. A taken event is one
// message, on the subject of its source and type, that NATS carries unchanged; and what is read
// from it by the library of others is what that library reads from the request.
func FuzzPublish(f *testing.F) {
	const structured = "application/cloudevents+json"
	const valid = `{"specversion":"1.0","id":"1","source":"shop","type":"a.b","data":{"a":1}}`
	for _, body := range []string{
		valid, strings.Replace(valid, "1.0", "0.3", 1), strings.Replace(valid, `{"a":1}`, `"x","datacontenttype":"text/plain"`, 1),
		strings.Replace(valid, `"data":{"a":1}`, `"data_base64":"AAH/","time":"2020-03-01T13:00:00+01:00","n":5,"t":true`, 1),
		strings.Replace(valid, `"1.0"`, `"0.3","datacontentencoding":"base64"`, 1), strings.Replace(valid, `{"a":1}`, `null,"subject":"\u00fc"`, 1), "[" + valid + "]",
	} {
		f.Add("/publish", structured, "Ce-Color", "blue", []byte(body))
	}
	f.Add("/publish", "text/plain", "Ce-Subject", "Grüße %25", []byte("x"))
	f.Add("/publish", "", "Ce-Time", "2020-03-01T13:00:00.5Z", []byte{0, 1, 255})
	f.Add("/publish", "application/json", "Ce-Dataschema", "http://schemas/a", []byte(`{`))
	f.Add("/publish", `"`, "", "", []byte("x")) // no media type
	f.Add("/publish", "application/cloudevents-batch+json", "Ce-Id", "2", []byte("[]"))
	v1, v2 := seeds.Bodies()
	for i, body := range append(v1, v2...) {
		path := "/shop/v1/events"
		if i >= len(v1) {
			path = "/shop/v2/events"
		}
		f.Add(path, structured, "Ce-Color", "blue", []byte(body))
		f.Add("/publish", structured, "Ce-Color", "blue", []byte(body))
	}
	f.Fuzz(func(t *testing.T, path, contentType, name, value string, body []byte) {
		if path != "/publish" && path != "/shop/v1/events" && path != "/shop/v2/events" || strings.ContainsAny(value+contentType, "\r\n\x00") {
			return
		}
		to := &capture{}
		s, err := eventservice.New(eventservice.Options{
			Sender: to, Routes: eventservice.All, MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, MaxInFlight: 10, MaxConnections: 10,
		}, zap.NewNop(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		req.Header = http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"shop"}, "Ce-Type": {"a.b"}}
		if contentType = strings.Trim(contentType, " \t"); contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		if canonical := http.CanonicalHeaderKey(name); name != "" && canonical != "Content-Type" {
			req.Header[canonical] = []string{strings.Trim(value, " \t")}
		}
		asked := req.Header.Clone()
		answered := httptest.NewRecorder()
		s.ServeHTTP(answered, req)
		taken := answered.Code/100 == 2
		if answered.Code != http.StatusNoContent && !json.Valid(answered.Body.Bytes()) {
			t.Errorf("the answer is no JSON: %q", answered.Body)
		}
		if answered.Code >= 500 || taken != (len(to.messages) == 1) {
			t.Fatalf("status %d, %d messages: %s", answered.Code, len(to.messages), answered.Body)
		}
		if !taken {
			return
		}
		m := to.messages[0]
		header := http.Header{}
		for name, values := range m.Header {
			if len(values) != 1 || strings.ContainsAny(values[0], "\r\n\x00") || strings.TrimSpace(values[0]) != values[0] || !utf8.ValidString(values[0]) || strings.ToLower(name) != name && name != "Nats-Msg-Id" {
				t.Errorf("header %s of the message: %q", name, values)
			}
			header.Set(name, values[0])
		}
		got, err := read(header, m.Data)
		if err != nil {
			t.Fatalf("the message is no event: %v: %v", err, m.Header)
		}
		if source, eventType, err := backend.ParseSubject(m.Subject); err != nil || source != got.Source || eventType != got.Type || m.Header.Get("Nats-Msg-Id") != backend.MessageID(got.Source, got.ID, got.Type, m.Data) {
			t.Errorf("subject %q and id %q are not those of the event %v: %v", m.Subject, m.Header.Get("Nats-Msg-Id"), got, err)
		}
		if path != "/publish" {
			return // internal/eventservice compares these
		}
		want, err := read(asked, body)
		if err != nil {
			return // the library takes less: names of attributes, or numbers
		}
		if want.ContentType == "" && len(got.Data) > 0 && strings.HasPrefix(strings.ToLower(contentType), "application/cloudevents") {
			want.ContentType = "application/json" // what is implied is said
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what the request said, and what the receiver reads (-want +got):\n%s", diff)
		}
	})
}
