package eventservice

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"go.uber.org/zap"
)

// transport is an adapter without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newServer(t testing.TB, adapter transport) *Server {
	t.Helper()
	s, err := New(Options{
		MeshURL: "http://shop.kyma-integration", SourceID: "shop", MaxRequestSize: 65536, RequestTimeout: 10 * time.Second, MaxInFlight: 10, MaxConnections: 10,
	}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s.mesh.client.Transport = adapter
	return s
}

// FuzzPublish: whatever a client sends, it gets valid JSON, and only what is a
// CloudEvent 1.0 gets to the adapter.
func FuzzPublish(f *testing.F) {
	const valid = `{"event-type":"a","event-type-version":"v1","event-id":"31109198-4d69-4ae0-972d-76117f3748c8","event-time":"2018-11-02T22:08:41Z","data":{"a":1}}`
	const validV2 = `{"type":"a","eventtypeversion":"v1","id":"31109198-4d69-4ae0-972d-76117f3748c8","time":"2018-11-02T22:08:41Z","specversion":"0.3","data":"AA==","datacontentencoding":"base64"}`
	for _, body := range []string{
		valid, validV2, "", " ", "null", "[]", `"a"`, "{", valid + valid, valid[:40], strings.Replace(valid, `{"a":1}`, "\"\xff\\ud800\"", 1),
		strings.Replace(valid, "2018-11-02T22:08:41Z", "0000-01-01T00:00:00+23:59", 1), strings.Replace(valid, "2018-11-02T22:08:41Z", "9999-12-31T23:59:59-23:59", 1),
		strings.Replace(valid, `"a"`, `"a\r\nce-id: 2"`, 1), strings.Replace(validV2, `"data"`, `"x":"y\n","subject":"\u0000","data"`, 1),
		strings.Repeat("[", 60000), strings.Repeat(`{"data":`, 5000), strings.Replace(valid, `"v1"`, `"`+strings.Repeat("9", 300)+`"`, 1),
	} {
		f.Add([]byte(body), false, "ce-subject", "x")
		f.Add([]byte(body), true, "Ce-Ünknown", "\x00\n")
	}
	f.Fuzz(func(t *testing.T, body []byte, second bool, header, value string) {
		posted := 0
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
			e, err := binding.ToEvent(r.Context(), cehttp.NewMessage(r.Header, r.Body))
			if err != nil {
				t.Errorf("it is no event: %v", err)
				return nil, err
			}
			if err := e.Validate(); err != nil || e.SpecVersion() != "1.0" || e.Source() != "shop" {
				t.Errorf("it is no valid event: %v\n%s", err, e)
			}
			if !second && !json.Valid(e.Data()) {
				t.Errorf("its data is no JSON: %q", e.Data())
			}
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
		got := httptest.NewRecorder()
		s.ServeHTTP(got, req)

		var answer map[string]any
		if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
			t.Fatalf("the answer is no JSON: %v: %q", err, got.Body)
		}
		switch got.Code {
		case http.StatusOK:
			if id, _ := answer["event-id"].(string); posted != 1 || !validID(id) {
				t.Errorf("taken, but posted %d times: %s", posted, got.Body)
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			if posted != 0 || answer["status"] != float64(got.Code) || answer["type"] == "" || answer["message"] == "" {
				t.Errorf("refused, and posted %d times: %s", posted, got.Body)
			}
		default:
			t.Errorf("status %d: %s", got.Code, got.Body)
		}
		if taken := s.bodies.taken.Load(); taken != 0 {
			t.Errorf("%d bytes are still taken", taken)
		}
	})
}
