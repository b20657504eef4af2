package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// operator plays the page of an operator: it is known by its certificate, and answers by path.
func operator(t *testing.T, answer http.HandlerFunc) (*httptest.Server, func(context.Context) (*PageClient, error)) {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	sum := sha256.Sum256(server.Certificate().Raw)
	return server, func(context.Context) (*PageClient, error) {
		return NewPageClient(&rest.Config{Host: "https://127.0.0.1:1", BearerToken: "jane"}, server.URL, hex.EncodeToString(sum[:]), func() {})
	}
}

// get asks the page as a browser that has its address.
func get(p *Page, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, p.URL()+path, http.NoBody))
	return w
}

// TestPagePasses: the operator is asked with the token, which the browser does not have, and its
// answer comes with the policy. Its headers do not decide what is cached.
func TestPagePasses(t *testing.T) {
	_, connect := operator(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Security-Policy", "of the operator")
		w.Header().Set("Cache-Control", "public")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("ETag", `"1"`)
		if q.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintf(w, "%s %s %s", q.Header.Get("Authorization"), q.URL.Path, q.URL.RawQuery)
	})
	p := NewPage("127.0.0.1:1234", connect)
	w := get(p, "state?q=a%20b&have=1.2")
	if want := "Bearer jane " + backend.PageStatePath + " q=a%20b&have=1.2"; w.Body.String() != want {
		t.Errorf("%q, want %q", w.Body, want)
	}
	if h := w.Header(); h.Get("Content-Security-Policy") != "of the operator" || h.Get("Cache-Control") != "no-store" || h.Get("Set-Cookie") != "" || h.Get("ETag") != `"1"` {
		t.Errorf("headers %v", h)
	}
	again := httptest.NewRequest(http.MethodGet, p.URL()+"state", http.NoBody)
	again.Header.Set("If-None-Match", `"1"`)
	w = httptest.NewRecorder()
	if p.ServeHTTP(w, again); w.Code != http.StatusNotModified {
		t.Errorf("%d, want 304", w.Code)
	}
}

// TestPageRefuses whoever has not the whole address, comes by another name, or is another site.
func TestPageRefuses(t *testing.T) {
	var asked atomic.Int32
	_, connect := operator(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	p := NewPage("127.0.0.1:1234", connect)
	other := NewPage("127.0.0.1:1234", connect)
	if p.URL() == other.URL() {
		t.Error("two pages have the same secret")
	}
	for _, tc := range []struct {
		reason, method, url, host, site string
		want                            int
	}{
		{"no secret", "GET", "http://127.0.0.1:1234/", "", "", http.StatusNotFound},
		{"the secret of another page", "GET", other.URL(), "", "", http.StatusNotFound},
		{"a part of the secret", "GET", strings.TrimSuffix(p.URL(), "a/")[:len(p.URL())-3] + "/", "", "", http.StatusNotFound},
		{"another name", "GET", p.URL(), "evil.example.com:1234", "", http.StatusMisdirectedRequest},
		{"another port", "GET", p.URL(), "127.0.0.1:1", "", http.StatusMisdirectedRequest},
		{"a method that changes", "POST", p.URL(), "", "", http.StatusMethodNotAllowed},
		{"another site", "GET", p.URL() + "state", "", "cross-site", http.StatusForbidden},
		{"another path", "GET", p.URL() + "x", "", "", http.StatusNotFound},
	} {
		q := httptest.NewRequest(tc.method, tc.url, http.NoBody)
		if tc.host != "" {
			q.Host = tc.host
		}
		if tc.site != "" {
			q.Header.Set("Sec-Fetch-Site", tc.site)
		}
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, q); w.Code != tc.want || w.Header().Get("Content-Security-Policy") != strict {
			t.Errorf("%s: %d, want %d, headers %v", tc.reason, w.Code, tc.want, w.Header())
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the operator was asked %d times", n)
	}
	if w := get(p, ""); w.Code != http.StatusOK {
		t.Errorf("the whole address: %d", w.Code)
	}
	q := httptest.NewRequest(http.MethodGet, strings.Replace(p.URL(), "127.0.0.1", "localhost", 1), http.NoBody)
	w := httptest.NewRecorder()
	if p.ServeHTTP(w, q); w.Code != http.StatusOK {
		t.Errorf("by the name localhost: %d", w.Code)
	}
}

// TestPageFindsTheOperatorAgain when it has gone to another place, and says so when it is nowhere.
func TestPageFindsTheOperatorAgain(t *testing.T) {
	first, toFirst := operator(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "first") })
	_, toSecond := operator(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "second") })
	ways := []func(context.Context) (*PageClient, error){toFirst, toSecond}
	p := NewPage("127.0.0.1:1234", func(ctx context.Context) (*PageClient, error) {
		if len(ways) == 0 {
			return nil, errors.New("the operator shows no page")
		}
		way := ways[0]
		ways = ways[1:]
		return way(ctx)
	})
	if w := get(p, ""); w.Body.String() != "first" {
		t.Fatalf("%q", w.Body)
	}
	first.Close()
	if w := get(p, ""); w.Body.String() != "second" {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	p.drop(p.client)
	if w := get(p, "state"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), `"error":"the operator shows no page"`) {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if w := get(p, ""); w.Code != http.StatusBadGateway || !strings.Contains(w.Header().Get("Content-Type"), "html") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// TestPageTellsErrors of the operator, as text.
func TestPageTellsErrors(t *testing.T) {
	_, connect := operator(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":"the API server does not know <you>"}`)
	})
	p := NewPage("127.0.0.1:1234", connect)
	if w := get(p, ""); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "does not know &lt;you&gt;") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if err := p.Check(t.Context()); err == nil || err.Error() != "the API server does not know <you>" {
		t.Errorf("%v", err)
	}
}

// TestPageOfAnImpostor: the token is not sent to a certificate that is not the expected one.
func TestPageOfAnImpostor(t *testing.T) {
	var asked atomic.Int32
	server, _ := operator(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	p := NewPage("127.0.0.1:1234", func(context.Context) (*PageClient, error) {
		return NewPageClient(&rest.Config{BearerToken: "jane"}, server.URL, strings.Repeat("00", 32), func() {})
	})
	if w := get(p, ""); w.Code != http.StatusBadGateway || asked.Load() != 0 || !strings.Contains(w.Body.String(), "who answers is not the operator that leads") {
		t.Errorf("%d %q, asked %d times", w.Code, w.Body, asked.Load())
	}
	if _, err := NewPageClient(&rest.Config{Impersonate: rest.ImpersonationConfig{UserName: "bob"}}, server.URL, "", nil); err == nil {
		t.Error("a kubeconfig that acts as somebody else is not refused")
	}
}
