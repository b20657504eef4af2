package eventservice_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
)

// difference is a row of the table "What differs from Kyma's" of docs/migration/event-service.md,
// and how it is played. play returns what is wrong.
type difference struct {
	what string
	play func(t *testing.T, at *eventservice.Process, adapter *eventservice.Adapter) string
}

// answers plays one request, and compares status and type, or error, of the answer.
func answers(method, path, body string, header map[string]string, status int, kind string) func(*testing.T, *eventservice.Process, *eventservice.Adapter) string {
	return func(t *testing.T, at *eventservice.Process, _ *eventservice.Adapter) string {
		got := mustSend(t, method, at.URL+path, body, header)
		if got.status != status || kind != "" && got.body["type"] != kind {
			return got.String()
		}
		return ""
	}
}

// arrives plays one event that is taken, and compares headers of what arrives, and its body if data
// is not "".
func arrives(path string, body func(id string) string, header map[string]string, want map[string]string, data string) func(*testing.T, *eventservice.Process, *eventservice.Adapter) string {
	return func(t *testing.T, at *eventservice.Process, adapter *eventservice.Adapter) string {
		id := uuid.NewString()
		got := mustSend(t, http.MethodPost, at.URL+path, body(id), header)
		all := adapter.Received(id)
		if got.status != http.StatusOK || len(all) != 1 {
			return fmt.Sprintf("%s, and %d arrived", got, len(all))
		}
		for name, value := range want {
			if is := strings.Join(all[0].Header[name], ","); is != value {
				return fmt.Sprintf("%s is %.100q", name, is)
			}
		}
		if data != "" && string(all[0].Body) != data {
			return fmt.Sprintf("the body is %q", all[0].Body)
		}
		return ""
	}
}

func v1With(change fields) func(string) string {
	return func(id string) string {
		members := fields{"event-id": id}
		for name, value := range change {
			members[name] = value
		}
		return v1(members)
	}
}

func v2With(change fields) func(string) string {
	return func(id string) string {
		members := fields{"id": id}
		for name, value := range change {
			members[name] = value
		}
		return v2(members)
	}
}

var differences = []difference{
	{"an event whose client has closed its connection", func(*testing.T, *eventservice.Process, *eventservice.Adapter) string { return "" }}, // TestClientsThatLeave
	{"v2", arrives(eventsV2, v2With(nil), nil, map[string]string{"Ce-Type": "order.created"}, "")},
	{"v2: `datacontenttype`, `subject`, `schemaurl`, extensions", arrives(eventsV2, v2With(fields{"subject": "s", "color": "blue"}), nil, map[string]string{"Ce-Subject": "s", "Ce-Color": "blue"}, "")},
	{"v2: `datacontentencoding` is `base64`", arrives(eventsV2, v2With(fields{"data": "AAEC", "datacontentencoding": "base64"}), nil, nil, "\x00\x01\x02")},
	{"v2: `datacontentencoding` is no text", arrives(eventsV2, v2With(fields{"datacontentencoding": true}), nil, nil, "")},
	{"numbers in `data`", arrives(eventsV1, v1With(fields{"data": json.RawMessage("12345678901234567890")}), nil, nil, "12345678901234567890")},
	{"an event type version such as `v1.0`", answers(http.MethodPost, eventsV1, v1(fields{"event-type-version": "v1.0"}), nil, 400, "validation_violation")},
	{"an event type that no header carries, or of more than 253 characters", answers(http.MethodPost, eventsV1, v1(fields{"event-type": "a\nb"}), nil, 400, "validation_violation")},
	{"two mistakes in one event", func(t *testing.T, at *eventservice.Process, _ *eventservice.Adapter) string {
		got := mustSend(t, http.MethodPost, at.URL+eventsV1, v1(fields{"event-type": nil, "event-time": nil}), nil)
		return cmp.Diff(map[string]any(missing("event-type")), got.body)
	}},
	{"the detail of a field that is wrong", func(t *testing.T, at *eventservice.Process, _ *eventservice.Adapter) string {
		got := mustSend(t, http.MethodPost, at.URL+eventsV1, v1(fields{"event-id": "1"}), nil)
		return cmp.Diff(map[string]any(invalid("event-id")), got.body)
	}},
	{"headers `ce-*` and of a trace", arrives(eventsV1, v1With(nil), map[string]string{"ce-color": "blue", "traceparent": "00-1"}, map[string]string{"Ce-Color": "blue", "Traceparent": "00-1"}, "")},
	{"a header `ce-*` that is there twice", func(t *testing.T, at *eventservice.Process, adapter *eventservice.Adapter) string {
		id := uuid.NewString()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.URL+eventsV1, strings.NewReader(eventOf(id)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header["Ce-Color"] = []string{"blue", "red"}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if all := adapter.Received(id); len(all) != 1 || strings.Join(all[0].Header["Ce-Color"], ",") != "blue" {
			return fmt.Sprint(all)
		}
		return ""
	}},
	{"headers `ce-*` of more than 16 KiB together", func(t *testing.T, at *eventservice.Process, adapter *eventservice.Adapter) string {
		id := uuid.NewString()
		got := mustSend(t, http.MethodPost, at.URL+eventsV1, eventOf(id), map[string]string{"ce-large": strings.Repeat("x", 17<<10), "ce-less": strings.Repeat("x", 5000)})
		if all := adapter.Received(id); got.status != 200 || got.header.Get("X-Event-Left-Out") != "ce-large" || len(all) != 1 || len(all[0].Header.Get("Ce-Less")) != 5000 {
			return got.String()
		}
		return ""
	}},
	{"an `X-Request-Id` with blanks, other than ASCII, or of more than 128 bytes", func(t *testing.T, at *eventservice.Process, _ *eventservice.Adapter) string {
		for _, id := range []string{"a b", "é", strings.Repeat("x", 129)} {
			got := mustSend(t, http.MethodPost, at.URL+eventsV1, v1(nil), map[string]string{"X-Request-Id": id})
			if _, err := uuid.Parse(got.header.Get("X-Request-Id")); err != nil {
				return got.String()
			}
		}
		return ""
	}},
	{"a request with headers of more than 64 KiB", func(t *testing.T, at *eventservice.Process, _ *eventservice.Adapter) string {
		got, err := send(t.Context(), http.MethodPost, at.URL+eventsV1, strings.NewReader(v1(nil)), map[string]string{"X": strings.Repeat("x", 80<<10)})
		if err != nil || got.status != http.StatusRequestHeaderFieldsTooLarge {
			return fmt.Sprint(got, err)
		}
		return ""
	}},
	{"a POST to a path that is not clean", answers(http.MethodPost, "//shop/v1/events", v1(nil), nil, 308, "")},
	{"the adapter does not answer", func(t *testing.T, at *eventservice.Process, adapter *eventservice.Adapter) string {
		adapter.Answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		defer adapter.Answer(nil)
		return answers(http.MethodPost, eventsV1, v1(nil), nil, 503, "service_unavailable")(t, at, adapter)
	}},
	{"the adapter answers 401, 403, 404, 405, 429 or a redirect", func(t *testing.T, at *eventservice.Process, adapter *eventservice.Adapter) string {
		adapter.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		defer adapter.Answer(nil)
		return answers(http.MethodPost, eventsV1, v1(nil), nil, 503, "refused_by_mesh")(t, at, adapter)
	}},
	{"`status` and `reason` of a taken event", func(t *testing.T, at *eventservice.Process, _ *eventservice.Adapter) string {
		return cmp.Diff(map[string]any(taken), mustSend(t, http.MethodPost, at.URL+eventsV1, v1(nil), nil).body)
	}},
	{"too much at once", func(*testing.T, *eventservice.Process, *eventservice.Adapter) string { return "" }}, // TestShedding
	{"probes and metrics", func(t *testing.T, at *eventservice.Process, _ *eventservice.Adapter) string {
		return answers(http.MethodGet, "/metrics", "", nil, 404, "")(t, at, nil)
	}},
	{"`--requestTimeout=0`", func(t *testing.T, _ *eventservice.Process, adapter *eventservice.Adapter) string {
		at := start(t, adapter.URL, "--requestTimeout=0", "--requestLogging", "true", "stray")
		return answers(http.MethodPost, eventsV1, v1(nil), nil, 200, "")(t, at, adapter)
	}},
	{"`--maxRequestSize=0`", func(t *testing.T, _ *eventservice.Process, adapter *eventservice.Adapter) string {
		return answers(http.MethodPost, eventsV1, v1(nil), nil, 413, "request_body_too_large")(t, start(t, adapter.URL, "--maxRequestSize=0"), adapter)
	}},
	{"flags behind an argument that is none", func(*testing.T, *eventservice.Process, *eventservice.Adapter) string { return "" }}, // TestParse
}

// TestDifferences: the page names each difference to Kyma's that a client or an operator can see,
// and each is as it says. On f3299ef there was no such table.
func TestDifferences(t *testing.T) {
	page, err := os.ReadFile("../../docs/migration/event-service.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## What differs from Kyma's\n")
	if !found {
		t.Fatal("the page has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows, facts []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && !strings.HasPrefix(cells[1], "---") && strings.TrimSpace(cells[1]) != "" {
			rows = append(rows, strings.TrimSpace(cells[1]))
		}
	}
	adapter := newAdapter(t)
	service := start(t, adapter.URL)
	for _, d := range differences {
		facts = append(facts, d.what)
		if wrong := d.play(t, service, adapter); wrong != "" {
			t.Errorf("%s: %s", d.what, wrong)
		}
	}
	if diff := cmp.Diff(facts, rows); diff != "" {
		t.Errorf("the table of the page (-facts +table):\n%s", diff)
	}
}
