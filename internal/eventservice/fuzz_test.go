package eventservice

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/test/eventservice/seeds"
)

// transport is an adapter without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newServer(t testing.TB, adapter transport) *Server {
	t.Helper()
	s, err := New(Options{
		MeshURL: "http://shop.kyma-integration", SourceID: "shop", MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, MaxInFlight: 10, MaxConnections: 10,
	}, zap.NewNop(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s.mesh.transport = adapter
	return s
}

// identity is what Triggers and subscribers tell one event from another by.
type identity struct {
	ID, Type, Version, Source string
	Time                      string
	Extensions                map[string]string
}

// said is the identity that a request gives its event, read apart from the code
// that it checks: with encoding/json, and rules that are written out here. The id
// is "" if v1 leaves it to the service.
func said(t *testing.T, body []byte, second bool, header http.Header) identity {
	t.Helper()
	var v1 struct {
		ID      string `json:"event-id"`
		Type    string `json:"event-type"`
		Version string `json:"event-type-version"`
		Time    string `json:"event-time"`
	}
	var v2 struct {
		ID      string `json:"id"`
		Type    string `json:"type"`
		Version string `json:"eventtypeversion"`
		Time    string `json:"time"`
	}
	var members map[string]any
	decode := func(into any) {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(into); err != nil {
			t.Fatalf("it was taken, but is no JSON: %v", err)
		}
	}
	decode(&members)
	if second {
		decode(&v2)
	} else {
		decode(&v1)
	}
	want := identity{ID: v1.ID, Type: v1.Type, Version: v1.Version, Time: v1.Time, Source: "shop", Extensions: map[string]string{}}
	if second {
		want.ID, want.Type, want.Version, want.Time = v2.ID, v2.Type, v2.Version, v2.Time
	}
	at, err := time.Parse(time.RFC3339, want.Time)
	if err != nil {
		t.Fatalf("it was taken, but has no time: %v", err)
	}
	want.Time = at.UTC().Format(time.RFC3339Nano)
	carried := func(name, value string) bool {
		ours := strings.Fields("id source type time specversion data database64 datacontenttype datacontentencoding schemaurl dataschema subject " +
			"eventtypeversion sourceid eventid eventtype eventtime cloudeventsversion")
		for _, other := range ours {
			if name == other {
				return false
			}
		}
		return regexp.MustCompile(`^[a-z0-9]+$`).MatchString(name) && !strings.HasPrefix(name, "knative") &&
			value != "" && strings.TrimSpace(value) == value && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })
	}
	for key, values := range header {
		if name := strings.ToLower(strings.TrimPrefix(key, "Ce-")); strings.HasPrefix(key, "Ce-") && carried(name, values[0]) {
			want.Extensions[name] = values[0]
		}
	}
	for name, value := range members {
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		case bool:
			text = map[bool]string{true: "true", false: "false"}[v]
		}
		if second && carried(name, text) {
			want.Extensions[name] = text
		}
	}
	return want
}

// seen is the identity that a receiver reads.
func seen(e *event.Event) identity {
	got := identity{ID: e.ID(), Type: e.Type(), Source: e.Source(), Time: e.Time().UTC().Format(time.RFC3339Nano), Extensions: map[string]string{}}
	for name, value := range e.Extensions() {
		got.Extensions[name], _ = value.(string)
	}
	got.Version = got.Extensions[cloudevent.VersionExtension]
	delete(got.Extensions, cloudevent.VersionExtension)
	return got
}

// FuzzPublish: whatever a client sends, it gets valid JSON. What gets to the adapter
// is a CloudEvent 1.0, and what its receiver sees as type, id, version, time, source
// and extensions is what the request said, in whichever way the content is written.
//
// The seeds with a datacontenttype of CloudEvents, and that of year 1, fail on the
// commit before: the content's own attributes, or no time, were what was seen.
func FuzzPublish(f *testing.F) {
	v1, v2 := seeds.Bodies()
	for _, body := range v1 {
		f.Add([]byte(body), false, "ce-subject", "x")
		f.Add([]byte(body), false, "ce-partitionkey", "7")
		f.Add([]byte(body), false, "Content-Type", "application/cloudevents+json")
	}
	for _, body := range v2 {
		f.Add([]byte(body), true, "Ce-Ünknown", "\x00\n")
		f.Add([]byte(body), true, "Ce-Type", "spoofed")
	}
	f.Fuzz(func(t *testing.T, body []byte, second bool, header, value string) {
		var sent http.Header
		posted := 0
		var got identity
		s := newServer(t, func(r *http.Request) (*http.Response, error) {
			posted++
			// What net/http would refuse to send.
			if err := r.Header.Write(io.Discard); err != nil {
				t.Errorf("the header cannot be written: %v", err)
			}
			for name, values := range r.Header {
				for _, v := range values {
					if strings.ContainsAny(v, "\r\n\x00") {
						t.Errorf("header %s is %q", name, v)
					}
				}
			}
			// Receivers differ in how they tell a whole event in the body.
			if said := strings.ToLower(r.Header.Get("Content-Type")); strings.Contains(said, "cloudevents") {
				t.Errorf("the Content-Type is %q", said)
			}
			message := cehttp.NewMessage(r.Header, r.Body)
			if encoding := message.ReadEncoding(); encoding != binding.EncodingBinary {
				t.Errorf("the event is %s", encoding)
			}
			e, err := binding.ToEvent(r.Context(), message)
			if err != nil {
				t.Errorf("it is no event: %v", err)
				return nil, err
			}
			if err := e.Validate(); err != nil || e.SpecVersion() != "1.0" || r.Header.Get("Ce-Sourceid") != "shop" {
				t.Errorf("it is no valid event: %v\n%s", err, e)
			}
			if e.DataContentType() == "application/json" && !json.Valid(e.Data()) {
				t.Errorf("its data is no JSON: %q", e.Data())
			}
			got = seen(e)
			delete(got.Extensions, cloudevent.SourceExtension)
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		path := "/shop/v1/events"
		if second {
			path = "/shop/v2/events"
		}
		req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		// The server has refused what is no header before we see it.
		if canonical := http.CanonicalHeaderKey(header); header != "" && !strings.ContainsAny(value, "\r\n\x00") {
			req.Header[canonical] = []string{value}
		}
		sent = req.Header.Clone()
		answered := httptest.NewRecorder()
		s.ServeHTTP(answered, req)

		var answer map[string]any
		if err := json.Unmarshal(answered.Body.Bytes(), &answer); err != nil {
			t.Fatalf("the answer is no JSON: %v: %q", err, answered.Body)
		}
		switch answered.Code {
		case http.StatusOK:
			id, _ := answer["event-id"].(string)
			if posted != 1 || !legacy.ValidID(id) || id != got.ID {
				t.Errorf("taken, but posted %d times, with id %q: %s", posted, got.ID, answered.Body)
			}
			want := said(t, body, second, sent)
			if want.ID == "" {
				want.ID = id
			}
			if len(got.Extensions) < len(want.Extensions) && len(body)+len(value) > cloudevent.MaxExtensions {
				return // more than one event may have
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what the request said, and what the receiver sees (-want +got):\n%s", diff)
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			if posted != 0 || answer["status"] != float64(answered.Code) || answer["type"] == "" || answer["message"] == "" {
				t.Errorf("refused, and posted %d times: %s", posted, answered.Body)
			}
		default:
			t.Errorf("status %d: %s", answered.Code, answered.Body)
		}
		if taken := s.bodies.taken.Load(); taken != 0 {
			t.Errorf("%d bytes are still taken", taken)
		}
	})
}
