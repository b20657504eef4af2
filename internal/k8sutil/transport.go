// Package k8sutil holds Kubernetes mechanics that know nothing of Kyma:
// transports, discovery, paged lists, watched collections, retries.
package k8sutil

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Counter counts requests at the transport, retries included.
type Counter struct {
	reads, writes atomic.Int64
}

// Reads is the number of requests so far that changed nothing: GETs, dry runs, and
// access reviews, which are created but never stored.
func (c *Counter) Reads() int64 { return c.reads.Load() }

// Writes is the number of all other requests so far.
func (c *Counter) Writes() int64 { return c.writes.Load() }

// Wrap returns a transport that counts; it fits rest.Config.Wrap.
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if IsRead(req) {
			c.reads.Add(1)
		} else {
			c.writes.Add(1)
		}
		return next.RoundTrip(req)
	})
}

// ReadOnly returns a transport that refuses every request that could change
// something, before it leaves the process.
func ReadOnly(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if !IsRead(req) {
			return nil, &ReadOnlyError{Method: req.Method, Path: req.URL.Path}
		}
		return next.RoundTrip(req)
	})
}

// TellSilence returns a wrapper for transports. It calls silent once if a request waits and none has been answered for so
// long, and answered with the next answer.
func TellSilence(after time.Duration, silent, answered func()) func(http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	var last time.Time // of an answer
	told := false
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			var timer *time.Timer
			timer = time.AfterFunc(after, func() {
				mu.Lock()
				defer mu.Unlock()
				switch left := after - time.Since(last); {
				case left > 0:
					timer.Reset(left)
				case !told:
					told = true
					silent()
				}
			})
			mu.Unlock()
			resp, err := next.RoundTrip(req)
			mu.Lock()
			defer mu.Unlock()
			timer.Stop()
			if err == nil {
				last = time.Now()
				if told {
					told = false
					answered()
				}
			}
			return resp, err
		})
	}
}

// ReadOnlyError says that a write was attempted through a read-only client.
type ReadOnlyError struct{ Method, Path string }

func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("this client reads only: refused %s %s", e.Method, e.Path)
}

// IsRead says whether a request changes nothing: GETs, dry runs, and reviews of the account, which
// are created but never stored.
func IsRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead ||
		strings.HasPrefix(req.URL.Path, "/apis/authorization.k8s.io/") || strings.HasSuffix(req.URL.Path, "/selfsubjectreviews") ||
		// Every API server since Kubernetes 1.13 stores nothing then.
		req.Method == http.MethodPost && req.URL.Query().Get("dryRun") == "All"
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
