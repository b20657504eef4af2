package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"k8s.io/client-go/rest"
)

// controller plays the API of the controller.
func controller(t *testing.T, handler http.HandlerFunc) (address, certificate string) {
	t.Helper()
	s := httptest.NewTLSServer(handler)
	t.Cleanup(s.Close)
	sum := sha256.Sum256(s.Certificate().Raw)
	return s.URL, hex.EncodeToString(sum[:])
}

func api(t *testing.T, handler http.HandlerFunc) *Letters {
	t.Helper()
	address, certificate := controller(t, handler)
	l, err := NewLetters(&rest.Config{BearerToken: "s3cret"}, address, certificate)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestCredentialsGoToTheControllerOnly: who has another certificate sees no token.
func TestCredentialsGoToTheControllerOnly(t *testing.T) {
	asked := 0
	address, certificate := controller(t, func(w http.ResponseWriter, q *http.Request) {
		asked++
		if got := q.Header.Get("Authorization"); got != "Bearer s3cret" {
			t.Errorf("the user is known by %q", got)
		}
		fmt.Fprint(w, `{"items":[],"continue":"","total":0}`)
	})
	for _, tc := range []struct {
		reason, certificate string
		asked               int
		want                string
	}{
		{"another certificate", strings.Repeat("0", 64), 0, "not the controller that leads"},
		{"no certificate is expected", "", 0, "not the controller that leads"},
		{"the expected one", strings.ToUpper(certificate), 1, ""},
	} {
		asked = 0
		l, err := NewLetters(&rest.Config{BearerToken: "s3cret"}, address, tc.certificate)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.List(t.Context(), wire.Filter{}, 0, func(wire.Letter) error { return nil })
		if asked != tc.asked || (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: asked %d times, %v", tc.reason, asked, err)
		}
	}
	if _, err := NewLetters(&rest.Config{Impersonate: rest.ImpersonationConfig{UserName: "jane"}}, address, certificate); err == nil {
		t.Error("somebody else's name is not passed on, and nobody is told")
	}
	if _, err := NewLetters(&rest.Config{BearerToken: "s3cret"}, strings.Replace(address, "https", "http", 1), certificate); err == nil {
		t.Error("credentials would go over HTTP")
	}
}

// TestList: page by page, with the choice in each request.
func TestList(t *testing.T) {
	var queries []string
	l := api(t, func(w http.ResponseWriter, q *http.Request) {
		queries = append(queries, q.URL.RawQuery)
		next := `"7"`
		if q.URL.Query().Get("continue") != "" {
			next = `""`
		}
		fmt.Fprintf(w, `{"items":[{"sequence":%d,"namespace":"shop","subscription":"orders","stored":"2026-01-31T12:00:00Z"},{"sequence":9}],"continue":%s,"total":4}`, len(queries), next)
	})
	filter := wire.Filter{Namespace: "shop", Subscription: "orders", Type: "a.b", Answer: "400", After: time.Date(2026, 1, 31, 13, 0, 0, 0, time.FixedZone("", 3600))}
	for _, tc := range []struct {
		reason    string
		most      int
		sequences []uint64
		pages     int
	}{{"all", 0, []uint64{1, 9, 2, 9}, 2}, {"a page is enough", 1, []uint64{1}, 1}, {"both", 3, []uint64{1, 9, 2}, 2}} {
		queries = nil
		var got []uint64
		total, err := l.List(t.Context(), filter, tc.most, func(l wire.Letter) error {
			got = append(got, l.Sequence)
			return nil
		})
		if err != nil || total != 4 {
			t.Errorf("%s: %d in all, %v", tc.reason, total, err)
		}
		if diff := cmp.Diff(tc.sequences, got); diff != "" || len(queries) != tc.pages {
			t.Errorf("%s: %d pages (-want +got):\n%s", tc.reason, len(queries), diff)
		}
	}
	if want := "after=2026-01-31T12%3A00%3A00Z&answer=400&continue=7&limit=500&namespace=shop&subscription=orders&type=a.b"; queries[1] != want {
		t.Errorf("asked %s, want %s", queries[1], want)
	}
}

func TestShow(t *testing.T) {
	l := api(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/v1/dead-letters/17" {
			t.Errorf("asked %s", q.URL)
		}
		data := ""
		if q.URL.Query().Get("payload") == "true" {
			data = `,"data":"e30="`
		}
		fmt.Fprintf(w, `{"sequence":17,"answer":"error","headers":{"ce-id":"1"}%s}`, data)
	})
	for payload, data := range map[bool]string{true: "{}", false: ""} {
		got, err := l.Show(t.Context(), 17, payload)
		if err != nil {
			t.Fatal(err)
		}
		want := &wire.Shown{Letter: wire.Letter{Sequence: 17, Answer: "error"}, Headers: map[string]string{"ce-id": "1"}}
		if data != "" {
			want.Data = []byte(data)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with data %t (-want +got):\n%s", payload, diff)
		}
	}
}

// TestWork: each line is told as it comes, and without the last one the work was interrupted.
func TestWork(t *testing.T) {
	const one, two = `{"sequence":1,"namespace":"shop","subscription":"orders","id":"a","result":"delivered"}`, `{"sequence":2,"result":"refused","answer":"400","problem":"the sink answers 400"}`
	for _, tc := range []struct {
		reason, body string
		told         int
		sum          *wire.Summary
		interrupted  bool
	}{
		{"all are done", one + "\n" + two + "\n" + `{"done":true,"total":2,"delivered":1,"refused":1,"left":1}` + "\n", 2, &wire.Summary{Done: true, Total: 2, Delivered: 1, Refused: 1, Left: 1}, false},
		{"nothing was to do", `{"done":true,"total":0,"left":0}` + "\n", 0, &wire.Summary{Done: true}, false},
		{"the controller has ended", one + "\n", 1, nil, true},
		{"in the middle of a line", one + "\n" + two[:20], 1, nil, true},
		{"no JSON", "<html>\n", 0, nil, true},
	} {
		l := api(t, func(w http.ResponseWriter, q *http.Request) {
			raw, err := io.ReadAll(q.Body)
			if want := `{"namespace":"shop","sequences":[1,2]}`; err != nil || string(raw) != want || q.URL.Path != "/v1/dead-letters/redeliver" || q.Method != http.MethodPost {
				t.Errorf("%s: %s %s: %s, want %s", tc.reason, q.Method, q.URL, raw, want)
			}
			fmt.Fprint(w, tc.body)
		})
		told := 0
		sum, err := l.Work(t.Context(), Redeliver, wire.Filter{Namespace: "shop", Sequences: []uint64{1, 2}}, func(wire.Done) { told++ })
		if diff := cmp.Diff(tc.sum, sum); diff != "" || told != tc.told {
			t.Errorf("%s: %d were told, want %d (-want +got):\n%s", tc.reason, told, tc.told, diff)
		}
		if _, is := errors.AsType[*InterruptedError](err); is != tc.interrupted {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

// TestWorkEndsWithItsContext: the controller is told by the end of the request.
func TestWorkEndsWithItsContext(t *testing.T) {
	ended := make(chan struct{})
	l := api(t, func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprintln(w, `{"sequence":1,"result":"delivered"}`)
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	stopped := errors.New("Ctrl-C")
	_, err := l.Work(ctx, Delete, wire.Filter{}, func(wire.Done) { cancel(stopped) })
	if !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the controller goes on")
	}
}

// TestRefused: what the controller says is told in its words.
func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		status    int
		body      string
		text, pod string
	}{
		{status: 403, body: `{"error":"jane may not list subscriptions/deadletters"}`, text: "jane may not list subscriptions/deadletters"},
		{status: 409, body: `{"error":"somebody else does"}`, text: "somebody else does"},
		{status: 421, body: `{"leader":"eventing-controller-2"}`, pod: "eventing-controller-2"},
		{status: 503, body: "upstream is away", text: "the controller answers 503 Service Unavailable"},
		{status: 302, body: "", text: "the controller answers 302 Found"},
	} {
		l := api(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example")
			w.WriteHeader(tc.status)
			fmt.Fprint(w, tc.body)
		})
		_, err := l.Show(t.Context(), 1, false)
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok {
			t.Errorf("%d: %v", tc.status, err)
			continue
		}
		if want := (&RefusedError{tc.status, tc.text, tc.pod}); *refused != *want {
			t.Errorf("%d: %+v, want %+v", tc.status, refused, want)
		}
	}
}

// TestPublish: an event in binary mode, and the answer as it is.
func TestPublish(t *testing.T) {
	var got map[string]string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		raw, _ := io.ReadAll(q.Body)
		got = map[string]string{"path": q.URL.Path, "body": string(raw)}
		for _, name := range []string{"ce-id", "ce-source", "ce-type", "ce-specversion", "content-type"} {
			got[name] = q.Header.Get(name)
		}
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusInsufficientStorage)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": "full"})
	}))
	defer s.Close()
	answer, err := Publish(t.Context(), s.URL, Event{ID: "1", Source: "commerce", Type: "order.created.v1", ContentType: "text/plain", Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Answer{Status: 507, Text: `{"message":"full"}`, RetryAfter: "30"}, answer); diff != "" || answer.Taken() {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	want := map[string]string{"path": "/publish", "body": "x", "ce-id": "1", "ce-source": "commerce", "ce-type": "order.created.v1", "ce-specversion": "1.0", "content-type": "text/plain"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the publisher got (-want +got):\n%s", diff)
	}
}
