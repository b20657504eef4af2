package remote

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// pageTimeout is how long the operator may take for an answer.
const pageTimeout = time.Minute

// strict is the policy of what has none of the operator's.
const strict = "default-src 'none'; frame-ancestors 'none'"

// PageClient is the page of an operator. It is known there by the credentials of the kubeconfig.
type PageClient struct {
	base  *url.URL
	http  *http.Client
	close func()
}

// NewPageClient returns the page at an address, https://<host>:<port>, whose certificate has this
// SHA-256. close ends the way there.
func NewPageClient(cfg *rest.Config, address, certificate string, closes func()) (*PageClient, error) {
	if cfg.Impersonate.UserName != "" {
		return nil, errors.New("the kubeconfig asks to act as somebody else (as: ...), which the operator does not know. Use the credentials of that account")
	}
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("%q is no address such as https://127.0.0.1:%d", address, backend.PagePort)
	}
	client, err := pinned(cfg, certificate, "the operator that leads")
	if err != nil {
		return nil, err
	}
	client.Timeout = pageTimeout
	return &PageClient{base, client, closes}, nil
}

// Page shows the page of the operator to the browsers of one person on this machine, without
// credentials. Who else is on this machine does not know the secret in its address; other sites do
// not either, and a name that they let point here is refused.
type Page struct {
	connect func(context.Context) (*PageClient, error)
	secret  string
	hosts   []string

	mu     sync.Mutex
	client *PageClient
}

// NewPage shows it at a local address, <host>:<port>. The operator is reached by connect, again
// when it has gone.
func NewPage(address string, connect func(context.Context) (*PageClient, error)) *Page {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	_, port, _ := strings.Cut(address, ":")
	return &Page{connect: connect, secret: base64.RawURLEncoding.EncodeToString(secret), hosts: []string{address, "localhost:" + port}}
}

// URL is the address for a browser, which nobody else may know.
func (p *Page) URL() string { return "http://" + p.hosts[0] + "/" + p.secret + "/" }

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": strict, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
	} {
		w.Header().Set(name, value)
	}
	secret, path, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/")
	switch {
	case !slices.Contains(p.hosts, q.Host):
		http.Error(w, "this address is not known here by that name", http.StatusMisdirectedRequest)
	case subtle.ConstantTimeCompare([]byte(secret), []byte(p.secret)) != 1:
		http.Error(w, "open the whole address that kubectl eventing page has printed", http.StatusNotFound)
	case q.Method != http.MethodGet && q.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
	case path == "":
		p.pass(w, q, backend.PagePath)
	case path == "state" && slices.Contains([]string{"", "none", "same-origin"}, q.Header.Get("Sec-Fetch-Site")):
		p.pass(w, q, backend.PageStatePath)
	case path == "state":
		http.Error(w, "another site may not ask", http.StatusForbidden)
	default:
		http.NotFound(w, q)
	}
}

// pass asks the operator, and answers what it has answered.
func (p *Page) pass(w http.ResponseWriter, q *http.Request, path string) {
	res, err := p.ask(q, path)
	if err != nil {
		fail(w, path, http.StatusBadGateway, err.Error())
		return
	}
	defer func() { _ = res.Body.Close() }()
	body := io.LimitReader(res.Body, mostAnswer)
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNotModified {
		var answer struct{ Error string }
		if json.NewDecoder(body).Decode(&answer) != nil || answer.Error == "" {
			answer.Error = "the operator answers " + res.Status
		}
		fail(w, path, res.StatusCode, answer.Error)
		return
	}
	for _, name := range []string{"Content-Type", "Content-Security-Policy", "Etag"} {
		if value := res.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, body) // the browser has gone
}

// ask asks the operator, and once more where it is now if the way there has ended.
func (p *Page) ask(q *http.Request, path string) (*http.Response, error) {
	for again := false; ; again = true {
		c, err := p.current(q.Context())
		if err != nil {
			return nil, err
		}
		at := c.base.JoinPath(path)
		at.RawQuery = q.URL.RawQuery
		asks, err := http.NewRequestWithContext(q.Context(), http.MethodGet, at.String(), http.NoBody)
		if err != nil {
			return nil, err
		}
		if tag := q.Header.Get("If-None-Match"); tag != "" {
			asks.Header.Set("If-None-Match", tag)
		}
		res, err := c.http.Do(asks)
		if err == nil {
			return res, nil
		}
		if q.Context().Err() != nil {
			return nil, context.Cause(q.Context())
		}
		p.drop(c)
		if again {
			if wrapped, ok := errors.AsType[*url.Error](err); ok {
				err = wrapped.Err
			}
			return nil, fmt.Errorf("cannot ask the operator: %w", err)
		}
	}
}

// current is the way to the operator, which is opened if there is none.
func (p *Page) current(ctx context.Context) (*PageClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client == nil {
		c, err := p.connect(ctx)
		if err != nil {
			return nil, err
		}
		p.client = c
	}
	return p.client, nil
}

// drop ends a way that led nowhere.
func (p *Page) drop(c *PageClient) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client == c {
		p.client = nil
		c.close()
	}
}

// fail tells what went wrong: a text for a person, or what the script of the page reads.
func fail(w http.ResponseWriter, path string, status int, text string) {
	w.Header().Del("Etag")
	if path == backend.PageStatePath {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": text}) // nobody is there to be told
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<!DOCTYPE html><html lang=\"en\"><title>Eventing</title><h1>The page cannot be shown</h1><p>%s</p>\n", html.EscapeString(text)) // nobody is there to be told
}

// Check asks the operator once, as a browser will.
func (p *Page) Check(ctx context.Context) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL(), http.NoBody)
	if err != nil {
		return err
	}
	res, err := p.ask(q, backend.PagePath)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var answer struct{ Error string }
	if json.NewDecoder(io.LimitReader(res.Body, mostAnswer)).Decode(&answer) != nil || answer.Error == "" {
		answer.Error = "the operator answers " + res.Status
	}
	return &RefusedError{Status: res.StatusCode, Text: answer.Error}
}
