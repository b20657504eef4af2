// Package k8sutil holds Kubernetes mechanics that know nothing of Kyma:
// transports, discovery, paged lists, watched collections, retries.
package k8sutil

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	return RoundTripper(func(req *http.Request) (*http.Response, error) {
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
	return RoundTripper(func(req *http.Request) (*http.Response, error) {
		if !IsRead(req) {
			return nil, &ReadOnlyError{Method: req.Method, Path: req.URL.Path}
		}
		return next.RoundTrip(req)
	})
}

// WritesOnce returns a transport that makes an answer an error which asks to repeat a write later.
// client-go repeats such a request by itself, up to ten times and up to the end of its context,
// and its caller does not hear of it: whether a write may still be made is for the caller to say.
func WritesOnce(next http.RoundTripper) http.RoundTripper {
	return RoundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || IsRead(req) {
			return resp, err
		}
		if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError || resp.Header.Get("Retry-After") == "" {
			return resp, nil
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			return nil, err
		}
		return nil, laterError(resp, body)
	})
}

// laterError is what client-go makes of such an answer when it is tired of repeating.
func laterError(resp *http.Response, body []byte) error {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		seconds = 0
	}
	refused := &apierrors.StatusError{}
	if json.Unmarshal(body, &refused.ErrStatus) == nil && refused.ErrStatus.Kind == "Status" && refused.ErrStatus.Code == int32(resp.StatusCode) {
		if refused.ErrStatus.Details == nil {
			refused.ErrStatus.Details = &metav1.StatusDetails{}
		}
		refused.ErrStatus.Details.RetryAfterSeconds = max(refused.ErrStatus.Details.RetryAfterSeconds, int32(seconds))
		return refused
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, strings.ToLower(resp.Request.Method), schema.GroupResource{}, "", strings.TrimSpace(string(body)), seconds, true)
}

// TellSilence returns a wrapper for transports. It calls silent once if a request waits and none
// has been answered for so long, and answered with the next answer.
func TellSilence(after time.Duration, silent, answered func()) func(http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	var last time.Time // of an answer
	told := false
	return func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(req *http.Request) (*http.Response, error) {
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

// RoundTripper is a function as a transport.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
