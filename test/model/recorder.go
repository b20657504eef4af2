package model

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// Recorder is a place for worlds on a real server: it tells the history from the
// answers to its clients, who are all that write.
type Recorder struct {
	base *rest.Config

	mu   sync.Mutex
	past []Write
	last map[Key]Object
}

// NewRecorder makes a place on the server of base. Worlds on one server need
// namespaces of their own, and a recorder each.
func NewRecorder(base *rest.Config) *Recorder {
	return &Recorder{base: base, last: map[Key]Object{}}
}

// Actor implements Place.
func (r *Recorder) Actor(name string) *rest.Config { return r.client(name).Config() }

// Process implements Place.
func (r *Recorder) Process(name string) Process { return r.client(name) }

// Past implements Place.
func (r *Recorder) Past() []Write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.past)
}

func (r *Recorder) client(name string) *recorded {
	return &recorded{recorder: r, name: name, dead: make(chan struct{})}
}

// recorded is one client.
type recorded struct {
	recorder *Recorder
	name     string

	mu            sync.Mutex
	calls         int
	before, after []func(*Request)
	dead          chan struct{}
	killed        bool
}

// Config implements Process.
func (c *recorded) Config() *rest.Config {
	cfg := rest.CopyConfig(c.recorder.base)
	cfg.UserAgent, cfg.QPS = c.name, -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) { return c.roundTrip(next, req) })
	})
	return cfg
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Before implements Process.
func (c *recorded) Before(hook func(*Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = append(c.before, hook)
}

// After implements Process.
func (c *recorded) After(hook func(*Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = append(c.after, hook)
}

// Kill implements Process.
func (c *recorded) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.killed {
		c.killed = true
		close(c.dead)
	}
}

// Killed implements Process.
func (c *recorded) Killed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// Calls implements Process.
func (c *recorded) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func (c *recorded) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	r, err := parse(c.name, req)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	killed := c.killed
	if !killed {
		c.calls++
		r.N = c.calls
	}
	before, after := c.before, c.after
	c.mu.Unlock()
	if killed {
		return nil, errKilled
	}
	r.Time = time.Now()
	for _, hook := range before {
		hook(r)
	}
	if c.Killed() {
		return nil, errKilled
	}
	ctx := req.Context()
	if r.Writes() {
		// A request in flight arrives and is recorded, even if its sender is killed.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
	}
	sent := req.Clone(ctx)
	if r.body != nil {
		sent.Body = io.NopCloser(bytes.NewReader(r.body))
	}
	resp, err := next.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	r.Code = resp.StatusCode
	if r.Writes() {
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(answer))
		if resp.StatusCode < http.StatusMultipleChoices {
			c.recorder.record(r, answer)
		}
	}
	for _, hook := range after {
		hook(r)
	}
	if c.Killed() {
		_ = resp.Body.Close()
		return nil, errKilled
	}
	if r.Verb == "watch" {
		resp.Body = &cutBody{ReadCloser: resp.Body, dead: c.dead}
	}
	return resp, nil
}

// cutBody ends with the process that reads it.
type cutBody struct {
	io.ReadCloser
	dead chan struct{}
	once sync.Once
}

// Read implements io.Reader.
func (b *cutBody) Read(p []byte) (int, error) {
	b.once.Do(func() {
		go func() {
			<-b.dead
			_ = b.ReadCloser.Close()
		}()
	})
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.dead:
		return 0, io.ErrUnexpectedEOF
	default:
		return n, err
	}
}

// record adds what a write did to the history. The versions count the answers: the
// server's own are not told for a deletion.
func (r *Recorder) record(req *Request, answer []byte) {
	obj := Object{}
	if json.Unmarshal(answer, &obj) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := req.Key()
	before := r.last[key]
	after := obj
	// Answers overtake one another. What is created was gone before, and what was told of
	// the former object comes late.
	if before != nil && req.Verb == "create" {
		r.add(Write{Actor: "controllers", Verb: "update", Key: key, Before: before})
		before = nil
	} else if uid := text(obj, "uid"); before != nil && obj["kind"] != "Status" && uid != text(before, "uid") || before == nil && req.Verb != "create" {
		return
	}
	switch {
	case obj["kind"] == "Status", req.Verb == "delete" && (len(finalizers(obj)) == 0 || !deleting(obj)):
		after = nil
	case before != nil && deleting(obj) && len(finalizers(obj)) == 0 && req.Plural != "namespaces":
		after = nil // the answer has the version of before
	case before != nil && text(before, "resourceVersion") == text(obj, "resourceVersion"):
		return // nothing was changed
	}
	r.add(Write{Actor: req.Actor, Verb: req.Verb, Call: req.N, Key: key, Before: before, After: after})
}

func (r *Recorder) add(w Write) {
	w.Version, w.Time = int64(len(r.past)+1), time.Now()
	for _, obj := range []Object{w.Before, w.After} {
		if obj != nil {
			w.Kind, _ = obj["kind"].(string)
		}
	}
	r.past = append(r.past, w)
	if w.After == nil {
		delete(r.last, w.Key)
	} else {
		r.last[w.Key] = w.After
	}
}
