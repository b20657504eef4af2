package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// Request is one call of one client.
type Request struct {
	Actor string
	// N counts the calls of the client from 1, in the order in which the server takes
	// them.
	N int
	// Verb is that of Kubernetes: get, list, watch, create, update, patch, delete; "" if
	// the path is no resource.
	Verb                                    string
	Group, Version, Plural, Namespace, Name string
	Subresource                             string
	DryRun                                  bool
	// Time is when the server took it.
	Time time.Time
	// Code is the answer's, in After and in the log.
	Code int

	method      string
	path        string
	query       url.Values
	body        []byte
	accept      string
	contentType string
}

// Writes says whether the request changes what is stored.
func (r *Request) Writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete":
		return !r.DryRun && r.Group != "authorization.k8s.io"
	}
	return false
}

// Key names the object of the request.
func (r *Request) Key() Key { return Key{r.Group, r.Plural, r.Namespace, r.Name} }

func (r *Request) String() string {
	verb := r.Verb
	if verb == "" {
		verb = r.method
	}
	s := fmt.Sprintf("%s#%d %s %s", r.Actor, r.N, verb, r.path)
	if r.Code != 0 {
		s += fmt.Sprintf(" -> %d", r.Code)
	}
	return s
}

// Body is what the request sent.
func (r *Request) Body() []byte { return r.body }

// Client is the server as one process sees it: an http.RoundTripper.
type Client struct {
	server *Server
	name   string
	slow   time.Duration

	mu            sync.Mutex
	calls         int
	before, after []func(*Request)
	refuse        func(*Request) error
	// dead is closed by Kill.
	dead   chan struct{}
	killed bool
}

// Client returns the handle of a process. Its calls take some milliseconds, which
// depend on the seed, so that their order does not depend on the scheduler.
func (s *Server) Client(name string) *Client {
	return &Client{server: s, name: name, slow: 8 * time.Millisecond, dead: make(chan struct{})}
}

// Actor returns the handle of somebody whose calls take no time: what one of them
// does between two calls of a run, in a hook, is done before the second.
func (s *Server) Actor(name string) *Client {
	c := s.Client(name)
	c.slow = 0
	return c
}

// Config is what clients are made from.
func (c *Client) Config() *rest.Config {
	return &rest.Config{
		Host: "http://model.invalid", Transport: c, QPS: -1, UserAgent: c.name,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
	}
}

// Before makes the client call hook before each call takes effect. The hook may use
// other clients, and may kill this one: then the call has no effect.
func (c *Client) Before(hook func(*Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = append(c.before, hook)
}

// After is called when a call took effect, before it is answered. If the hook kills
// the client, the answer is lost.
func (c *Client) After(hook func(*Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = append(c.after, hook)
}

// Refuse makes the server answer with the error instead of carrying a call out, unless that is nil.
func (c *Client) Refuse(with func(*Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = with
}

// Kill makes all calls of the client fail without effect from now on, as if its
// process were gone. Of those on their way, the seed says which take effect.
func (c *Client) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.killed {
		c.killed = true
		close(c.dead)
	}
}

// Killed says whether Kill was called.
func (c *Client) Killed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// Calls is how many calls the server has taken from the client.
func (c *Client) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

var errKilled = errors.New("model: the process of this client is gone")

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	r, err := parse(c.name, req)
	if err != nil {
		return nil, err
	}
	if c.Killed() {
		return nil, errKilled
	}
	there, back, applied := c.latencies(r)
	if err := c.pause(ctx, there); err != nil {
		return nil, err
	}
	c.mu.Lock()
	killed := c.killed
	if !killed {
		c.calls++
		r.N = c.calls
	}
	before, after, refuse := c.before, c.after, c.refuse
	c.mu.Unlock()
	if killed {
		if !applied || !r.Writes() {
			return nil, errKilled
		}
		// It was on its way when the process was killed, and arrives.
		c.server.take(ctx, r)
		return nil, errKilled
	}
	for _, hook := range before {
		hook(r)
	}
	if c.Killed() {
		return nil, errKilled
	}
	if refuse != nil {
		if err := refuse(r); err != nil {
			return refused(req, err), c.pause(ctx, back)
		}
	}
	resp := c.server.take(ctx, r)
	if w, ok := resp.Body.(*watcher); ok {
		w.dead = c.dead
	}
	resp.Request = req
	for _, hook := range after {
		hook(r)
	}
	if err := c.pause(ctx, back); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	if c.Killed() {
		_ = resp.Body.Close()
		return nil, errKilled
	}
	return resp, nil
}

// refused is an answer with that error, and with the header by which clients know when to come
// again.
func refused(req *http.Request, err error) *http.Response {
	status := statusOf(err)
	resp := respondJSON(int(status.Code), status)
	resp.Request = req
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		resp.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	return resp
}

// latencies are derived from what is asked for, not from when. Names of Events hold
// that of the run.
func (c *Client) latencies(r *Request) (there, back time.Duration, applied bool) {
	// Reviews are asked for side by side in the order of a map. The engine holds a
	// mutex while it marks its journal, and a goroutine that waits for a mutex keeps the clock of
	// a bubble from going on: see testing/synctest.
	if c.slow == 0 || r.Group == "authorization.k8s.io" || r.Plural == "secrets" {
		return 0, 0, false
	}
	name := c.name + " " + r.method + " " + r.Plural + " " + r.Namespace
	if r.Plural != "events" {
		name += " " + r.Name
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pause(name+" there", c.slow/8, c.slow), s.pause(name+" back", c.slow/8, c.slow), s.chance(name+" applied", 2) == 0
}

func (c *Client) pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// parse reads a request, body included.
func parse(actor string, req *http.Request) (*Request, error) {
	r := &Request{
		Actor: actor, method: req.Method, path: req.URL.Path, query: req.URL.Query(),
		accept: req.Header.Get("Accept"), contentType: req.Header.Get("Content-Type"),
	}
	if req.Body != nil {
		var err error
		if r.body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		r.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		r.Group, r.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return r, nil
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Plural = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = strings.Join(parts[2:], "/")
	}
	switch req.Method {
	case http.MethodGet:
		r.Verb = "get"
		if r.Name == "" {
			r.Verb = "list"
		}
		if w := r.query.Get("watch"); w == "true" || w == "1" {
			r.Verb = "watch"
		}
	case http.MethodPost:
		r.Verb = "create"
		if r.Name == "" {
			// For hooks and the log.
			var obj struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if json.Unmarshal(r.body, &obj) == nil {
				r.Name = obj.Metadata.Name
			}
		}
	case http.MethodPut:
		r.Verb = "update"
	case http.MethodPatch:
		r.Verb = "patch"
	case http.MethodDelete:
		r.Verb = "delete"
		if r.Name == "" {
			r.Verb = "deletecollection"
		}
	}
	r.DryRun = r.query.Get("dryRun") == "All"
	return r, nil
}

func respond(code int, contentType string, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)),
	}
}

func respondJSON(code int, v any) *http.Response {
	raw, err := json.Marshal(v)
	if err != nil {
		return respond(http.StatusInternalServerError, "text/plain", []byte(err.Error()))
	}
	return respond(code, "application/json", raw)
}
