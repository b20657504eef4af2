package eventservice

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSmoke(t *testing.T) {
	answer := func(code int, server, body string) transport {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Server": {server}}, Body: io.NopCloser(bytes.NewBufferString(body)),
			}, nil
		}
	}
	for _, tc := range []struct {
		reason   string
		answer   transport
		severity migration.Severity // "": nothing is wrong
		problem  string
	}{
		{"its own validation has refused it", answer(400, "", `{"status":400,"type":"validation_violation","message":"Missing field"}`), "", ""},
		{"a reset is mTLS", func(*http.Request) (*http.Response, error) { return nil, errors.New("read: connection reset by peer") }, migration.Warning, "not reachable from outside the mesh"},
		{"from a laptop there is no such name", func(*http.Request) (*http.Response, error) { return nil, &net.DNSError{Err: "no such host"} }, migration.Warning, "not reachable from here"},
		{"so is a 403", answer(403, "envoy", "RBAC: access denied"), migration.Warning, "not reachable from outside the mesh"},
		{"and what a proxy on the way says", answer(503, "istio-envoy", "upstream connect error"), migration.Warning, "not reachable from outside the mesh"},
		{"a 400 by somebody else proves nothing", answer(400, "", "Client sent an HTTP request to an HTTPS server."), migration.Error, "not 400 with validation_violation"},
		{"an event without a type was accepted", answer(200, "", "{}"), migration.Error, "not 400 with validation_violation"},
		{"a server error is one", answer(500, "", "oops"), migration.Error, "not 400 with validation_violation"},
	} {
		var asked []string
		through := transport(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			asked = append(asked, r.Method+" "+r.URL.String()+" "+string(body))
			return tc.answer(r)
		})
		findings := smoke(t.Context(), through, "kyma-integration", []string{"shop"})
		if diff := cmp.Diff([]string{"POST http://shop-event-service.kyma-integration:8081/shop/v1/events {}"}, asked); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
		}
		summary := findings[len(findings)-1]
		switch {
		case tc.severity == "" && (len(findings) != 1 || !strings.HasPrefix(summary.Problem, "1 of 1")):
			t.Errorf("%s: %v", tc.reason, findings)
		case tc.severity != "" && (len(findings) != 2 || findings[0].Severity != tc.severity || !strings.Contains(findings[0].Problem, tc.problem)):
			t.Errorf("%s: %v", tc.reason, findings)
		}
	}
}

// TestSmokeConnects: a Service that leads to a pod which has just gone leads to another the next
// time.
func TestSmokeConnects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"status":400,"type":"validation_violation"}`)
	}))
	t.Cleanup(server.Close)
	attempts := 0
	fails := 2
	through := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if attempts++; attempts <= fails {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}}
	if f := smokeOne(t.Context(), through, "kyma-integration", "shop"); f != nil || attempts != fails+1 {
		t.Errorf("%d attempts: %v", attempts, f)
	}

	// Nobody ever answers, and the run's time is over before the second attempt.
	fails = 1 << 30
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := smokeOne(ctx, transport(func(r *http.Request) (*http.Response, error) {
		resp, err := through.RoundTrip(r)
		cancel()
		return resp, err
	}), "kyma-integration", "shop")
	if f == nil || f.Severity != migration.Warning || !strings.Contains(f.Problem, "not reachable from here: dial tcp") || !strings.Contains(f.Note, "NetworkPolicy") {
		t.Errorf("got %v, want a warning that there was no connection", f)
	}
}

func TestSmokeOfAnInterruptedRun(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	none := transport(func(*http.Request) (*http.Response, error) {
		t.Error("a run that was interrupted asks no more")
		return nil, errors.New("no")
	})
	smoke(ended, none, "kyma-integration", []string{"a", "b"})
}
