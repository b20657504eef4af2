package eventservice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// patience bounds every wait: nothing takes nearly as long, unless it never ends.
const patience = time.Minute

// atOnce is how many tests that wait run at the same time. They use no processor, so the number of
// processors is no limit.
const atOnce = 8

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// long marks a test that takes many seconds whatever runs beside it: make test runs it, make
// test-unit does not.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes too long for -short")
	}
}

// start runs the real event-service, posting to meshURL.
func start(t testing.TB, meshURL string, args ...string) *eventservice.Process {
	t.Helper()
	binary := process.Build(t, "./cmd/event-service")
	p, err := eventservice.Start(t.Context(), binary, nil, append([]string{"--eventMeshURL=" + meshURL, "--sourceId=shop"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		log := p.Log()
		if strings.Contains(log, "WARNING: DATA RACE") || strings.Contains(log, "this is a bug") || strings.Contains(log, "\npanic: ") {
			t.Errorf("a data race or a panic:\n%s", log)
		}
		if t.Failed() {
			t.Logf("log of event-service, its end:\n%s", log[max(0, len(log)-8<<10):])
		}
	})
	return p
}

func newAdapter(t testing.TB) *eventservice.Adapter {
	t.Helper()
	a := eventservice.NewAdapter()
	t.Cleanup(a.Close)
	return a
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	raw    []byte
	// body is nil if it is no JSON.
	body map[string]any
}

func (a answer) String() string { return fmt.Sprintf("%d %v %s", a.status, a.header, a.raw) }

// client follows no redirect, so that none goes unnoticed.
var client = &http.Client{
	Timeout:       patience,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{MaxIdleConnsPerHost: 100},
}

func send(ctx context.Context, method, url string, body io.Reader, header map[string]string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, header: resp.Header, raw: raw}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if decoder.Decode(&a.body) != nil || decoder.More() {
		a.body = nil
	}
	return a, nil
}

// mustSend fails the test if there is no answer, or one that is no JSON.
func mustSend(t testing.TB, method, url, body string, header map[string]string) answer {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	a, err := send(t.Context(), method, url, reader, header)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if a.body == nil || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("the answer is no JSON: %s", a)
	}
	if a.header.Get("X-Request-Id") == "" {
		t.Errorf("the answer has no request id: %s", a)
	}
	return a
}

// eventOf makes the body of an event for v1.
func eventOf(id string) string {
	return `{"event-type":"order.created","event-type-version":"v1","event-id":"` + id +
		`","event-time":"2020-03-01T12:00:00Z","data":{"order":1}}`
}

// object decodes a body that must be one JSON object.
func object(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		t.Fatalf("%q is no JSON: %v", raw, err)
	}
	return body
}
