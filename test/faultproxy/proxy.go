// Package faultproxy stands between a process under test and a kube-apiserver,
// and does to it what networks, API servers and node failures do: it refuses,
// delays, loses answers after the write took place, resets connections, expires
// watches, and has the process killed at an exact write.
//
// A Proxy listens on loopback with TLS and speaks HTTP/2 like a kube-apiserver
// (HTTP/1.1 on request). Credentials pass through: the API server sees the same
// user and the same user agent as without it. Behaviour is added by hooks, which
// nest: the one added first sees a request first and its answer last.
package faultproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ErrReset makes the proxy reset the client's TCP connection. Over HTTP/2 that
// takes all requests of the connection with it, as a real reset does.
var ErrReset = errors.New("connection reset by the fault proxy")

// Next hands a request on to the hooks added later, and in the end to the API
// server. A write that was handed on reaches the API server even if its client
// is gone meanwhile, as one does that left the machine before the crash.
type Next func() (*http.Response, error)

// Hook decides what becomes of a request. ctx ends when the client is gone. An
// error resets the client's connection.
type Hook func(ctx context.Context, r Request, next Next) (*http.Response, error)

// Entry is one request in a proxy's log.
type Entry struct {
	Request
	// Done says that the answer, or its first part, is known.
	Done bool
	// Status is the HTTP status the client was given, 0 if it was given none.
	Status int
	// Forwarded is the HTTP status the API server answered, 0 if it was not
	// asked or did not answer.
	Forwarded int
}

// Proxy is a running fault proxy.
type Proxy struct {
	config   *rest.Config
	server   *httptest.Server
	upstream *http.Transport

	// closed lets go of everything a hook holds.
	closed chan struct{}

	mu       sync.Mutex
	stopping bool
	hooks    []*Hook
	log      []*Entry
	writes   int
	changed  chan struct{} // closed and replaced whenever the log changes
}

// Option changes how a Proxy serves.
type Option func(*Proxy)

// HTTP1 switches HTTP/2 off: each request in flight has a connection of its own,
// so that a reset hits one request only.
func HTTP1() Option {
	return func(p *Proxy) { p.server.EnableHTTP2 = false }
}

// Start starts a proxy in front of the API server of the configuration.
func Start(config *rest.Config, options ...Option) (*Proxy, error) {
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot read address of API server: %w", err)
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot read TLS settings of API server: %w", err)
	}
	p := &Proxy{
		config: rest.CopyConfig(config),
		upstream: &http.Transport{
			TLSClientConfig:     tlsConfig,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 100,
			// What client and server agreed on passes through as it is.
			DisableCompression: true,
		},
		closed:  make(chan struct{}),
		changed: make(chan struct{}),
	}
	// Broken connections are this server's trade: they are no news on stderr.
	silent := log.New(io.Discard, "", 0)
	p.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: host.Scheme, Host: host.Host})
		},
		Transport:     p,
		FlushInterval: -1, // each event of a watch at once
		ErrorHandler:  resetConnection,
		ErrorLog:      silent,
	})
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = silent
	p.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	for _, option := range options {
		option(p)
	}
	p.server.StartTLS()
	return p, nil
}

// Close stops the proxy. When it returns, no write is on its way to the API
// server any more.
func (p *Proxy) Close() {
	p.mu.Lock()
	if p.stopping {
		p.mu.Unlock()
		return
	}
	p.stopping = true
	p.mu.Unlock()

	close(p.closed)
	p.server.CloseClientConnections()
	p.server.Close()
	_ = p.Wait(context.Background(), func(entries []Entry) bool {
		return !slices.ContainsFunc(entries, func(e Entry) bool { return !e.Done && e.Writes() })
	})
	p.upstream.CloseIdleConnections()
}

// Config returns how a client in this process reaches the API server through
// the proxy, with the credentials the proxy was started with.
func (p *Proxy) Config() *rest.Config {
	c := rest.AnonymousClientConfig(p.config)
	c.Host = p.server.URL
	c.TLSClientConfig = rest.TLSClientConfig{CAData: p.certificate()}
	c.BearerToken, c.BearerTokenFile = p.config.BearerToken, p.config.BearerTokenFile
	c.Username, c.Password = p.config.Username, p.config.Password
	c.Impersonate = p.config.Impersonate
	if !p.server.EnableHTTP2 {
		c.NextProtos = []string{"http/1.1"}
	}
	return c
}

// Kubeconfig writes a kubeconfig for Config into the directory, and returns its
// path. A client certificate stays with the proxy, which shows it to the API
// server itself.
func (p *Proxy) Kubeconfig(dir string) (string, error) {
	c := p.Config()
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"proxy": {
			Server: c.Host, CertificateAuthorityData: c.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"user": {
			Token: c.BearerToken, TokenFile: c.BearerTokenFile,
			Username: c.Username, Password: c.Password,
			Impersonate: c.Impersonate.UserName, ImpersonateUID: c.Impersonate.UID,
			ImpersonateGroups: c.Impersonate.Groups, ImpersonateUserExtra: c.Impersonate.Extra,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy", AuthInfo: "user"}},
		CurrentContext: "proxy",
	}
	path := filepath.Join(dir, "faultproxy.kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return "", fmt.Errorf("cannot write kubeconfig of fault proxy: %w", err)
	}
	return path, nil
}

func (p *Proxy) certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// Use adds a hook, and returns the function that removes it.
func (p *Proxy) Use(hook Hook) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &hook
	p.hooks = append(p.hooks, h)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hooks = slices.DeleteFunc(slices.Clone(p.hooks), func(o *Hook) bool { return o == h })
	}
}

// Writes returns how many writes have arrived.
func (p *Proxy) Writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

// Log returns all requests that have arrived, in that order.
func (p *Proxy) Log() []Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entries()
}

func (p *Proxy) entries() []Entry {
	out := make([]Entry, len(p.log))
	for i, e := range p.log {
		out[i] = *e
	}
	return out
}

// Wait waits until the log is as the test wants it, or the context ends.
func (p *Proxy) Wait(ctx context.Context, until func([]Entry) bool) error {
	for {
		p.mu.Lock()
		entries, changed := p.entries(), p.changed
		p.mu.Unlock()
		if until(entries) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// note changes the log.
func (p *Proxy) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// RoundTrip takes one request through the hooks. It is the proxy's transport;
// nothing else calls it.
func (p *Proxy) RoundTrip(out *http.Request) (*http.Response, error) {
	var body []byte
	if out.Body != nil {
		var err error
		// A write is forwarded whole or not at all.
		if body, err = io.ReadAll(out.Body); err != nil {
			return nil, fmt.Errorf("cannot read request: %w", err)
		}
		out.Body.Close()
	}
	entry := &Entry{Request: classify(out.Method, out.URL, out.Header, body)}
	var hooks []*Hook
	refused := false
	p.note(func() {
		if refused = p.stopping; refused {
			return
		}
		if entry.Writes() {
			p.writes++
			entry.Write = p.writes
		}
		p.log = append(p.log, entry)
		hooks = p.hooks
	})
	if refused {
		return nil, ErrReset
	}

	next := func() (*http.Response, error) { return p.forward(out, body, entry) }
	for _, hook := range slices.Backward(hooks) {
		inner := next
		next = func() (*http.Response, error) { return (*hook)(out.Context(), entry.Request, inner) }
	}
	response, err := next()
	p.note(func() {
		entry.Done = true
		if err == nil {
			entry.Status = response.StatusCode
		}
	})
	return response, err
}

// forward asks the API server. But for streams it returns once the whole answer
// is here, so that an answer that is then discarded was complete.
func (p *Proxy) forward(out *http.Request, body []byte, entry *Entry) (*http.Response, error) {
	ctx := out.Context()
	if entry.Writes() {
		ctx = context.WithoutCancel(ctx)
	}
	out = out.Clone(ctx)
	if body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
		out.ContentLength = int64(len(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	response, err := p.upstream.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	p.note(func() { entry.Forwarded = response.StatusCode })
	stream := entry.Verb == "watch" || entry.Subresource == "log" || response.StatusCode == http.StatusSwitchingProtocols
	if stream {
		return response, nil
	}
	content, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("cannot read answer of API server: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	response.ContentLength = int64(len(content))
	response.TransferEncoding = nil
	return response, nil
}

// connKey finds the client's connection in the context of its requests.
type connKey struct{}

// resetConnection ends the client's connection with a TCP reset.
func resetConnection(_ http.ResponseWriter, r *http.Request, _ error) {
	if r.Context().Err() != nil {
		// This client gave up by itself; over HTTP/2, others share its connection.
		panic(http.ErrAbortHandler)
	}
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		if t, ok := c.(interface{ NetConn() net.Conn }); ok {
			c = t.NetConn() // below TLS, which would say goodbye
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

// Answer makes the answer of an API server that says status. With a retryAfter
// that is not negative, it tells the client how many seconds to wait.
func Answer(status metav1.Status, retryAfter int) *http.Response {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // a Status is plain data
	}
	response := JSON(int(status.Code), body)
	if retryAfter >= 0 {
		response.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return response
}

// JSON makes an answer with this body.
func JSON(code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}
