package faultproxy

import (
	"context"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// When says on which side of a write a process is killed.
type When int

const (
	// Before kills when the write arrives; the API server never sees it.
	Before When = iota
	// After kills when the API server has answered; the process never hears it.
	After
)

func (w When) String() string { return [...]string{"Before", "After"}[w] }

// Kill is a kill that KillAt has prepared.
type Kill struct {
	dead chan struct{}
	at   Request

	mu      sync.Mutex
	counted int
	due     bool
}

// Dead is closed once the process has been killed.
func (k *Kill) Dead() <-chan struct{} { return k.dead }

// At returns the write the process was killed at, false if it lives.
func (k *Kill) At() (Request, bool) {
	select {
	case <-k.dead:
		return k.at, true
	default:
		return Request{}, false
	}
}

// KillAt kills the process under test at its n-th write. kill must return only
// when the process is dead (waited for): until then its connections stay up and
// silent, so that its last moment never looks like a broken connection to it.
// Writes that arrive later than the n-th never reach the API server.
//
// Renewals of a Lease do not count: how many there are, and between which other
// writes, is a matter of time. KillAmong kills at one.
func (p *Proxy) KillAt(n int, when When, kill func()) *Kill {
	return p.KillAmong(func(r Request) bool { return !r.Renews }, n, when, kill)
}

// KillAmong is KillAt that counts matching writes only.
func (p *Proxy) KillAmong(match func(Request) bool, n int, when When, kill func()) *Kill {
	k := &Kill{dead: make(chan struct{})}
	p.Use(func(_ context.Context, r Request, next Next) (*http.Response, error) {
		if !r.Writes() {
			return next()
		}
		here, late := k.count(match(r), n)
		switch {
		case late:
			select {
			case <-k.dead:
			case <-p.closed:
			}
			return nil, ErrReset
		case !here:
			return next()
		}
		if when == After {
			if response, err := next(); err == nil {
				response.Body.Close()
			}
		}
		kill()
		k.at = r
		close(k.dead)
		return nil, ErrReset
	})
	return k
}

// count says whether a write is the one to kill at, or later than it.
func (k *Kill) count(counts bool, n int) (here, late bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.due {
		return false, true
	}
	if counts {
		k.counted++
		k.due = k.counted == n
	}
	return k.due, false
}

// Hold is a set of requests that wait.
type Hold struct {
	arrived chan struct{}
	release chan struct{}

	mu       sync.Mutex
	released bool
	requests []Request
}

// Hold makes matching requests wait until they are released. One whose client
// gives up meanwhile is dropped.
func (p *Proxy) Hold(match func(Request) bool) *Hold {
	h := &Hold{arrived: make(chan struct{}), release: make(chan struct{})}
	p.Use(func(ctx context.Context, r Request, next Next) (*http.Response, error) {
		if !h.add(r, match) {
			return next()
		}
		p.note(func() {}) // who waits for what is held has seen the log change before
		select {
		case <-h.release:
		case <-p.closed:
		case <-ctx.Done():
		}
		// More than one may hold: only a client that still waits is served.
		select {
		case <-p.closed:
			return nil, ErrReset
		case <-ctx.Done():
			return nil, ErrReset
		default:
			return next()
		}
	})
	return h
}

func (h *Hold) add(r Request, match func(Request) bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released || !match(r) {
		return false
	}
	h.requests = append(h.requests, r)
	if len(h.requests) == 1 {
		close(h.arrived)
	}
	return true
}

// Arrived is closed when the first request is held.
func (h *Hold) Arrived() <-chan struct{} { return h.arrived }

// Requests returns what has been held so far, released or not.
func (h *Hold) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Request(nil), h.requests...)
}

// Release lets all held requests go on, and holds none any more.
func (h *Hold) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.released {
		h.released = true
		close(h.release)
	}
}

// Deny answers matching requests with status, as an admission policy or a
// missing permission would. It returns the function that ends the refusal.
func (p *Proxy) Deny(match func(Request) bool, status metav1.Status) (allow func()) {
	return p.Use(func(_ context.Context, r Request, next Next) (*http.Response, error) {
		if match(r) {
			return Answer(status, -1), nil
		}
		return next()
	})
}
