package migrationtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

// wire is the way of one run to the API server. It counts writes, and closes, refuses or
// loses them as the test asks.
type wire struct {
	// killAt is the write at which the run is killed, from 1; 0: none. after says that the
	// API server still gets that write.
	killAt int
	after  bool
	// refuseAt is the write of the job's own objects that is refused, from 1; 0: none.
	refuseAt int
	// onFirst is called before the first write is sent; nil: nothing is.
	onFirst func()
	// faults lets requests fail at random; nil: none.
	faults *rand.Rand

	// stateNamespace holds what the engine writes for itself.
	stateNamespace string
	// end ends the context of the run when it is killed.
	end context.CancelCauseFunc

	// flight is held for reading while a write is under way.
	flight sync.RWMutex
	dead   atomic.Bool

	mu       sync.Mutex
	writes   []string
	work     []schema.GroupResource
	faulty   int
	answered int
}

// killSignal is that of a process which gets no chance to end in order.
const killSignal = 9

// errKilled is permanent: the run must not wait for a connection that stays closed.
var errKilled = k8sutil.Permanent(errors.New("this run was killed"))

// faultRate is how many of the requests fail at random.
const faultRate = 0.2

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if k8sutil.IsRead(req) {
			if w.dead.Load() {
				return nil, errKilled
			}
			return w.faultily(next, req)
		}
		w.flight.RLock()
		defer w.flight.RUnlock()
		// A write that was sent is waited for, also when the run has ended: close relies on it.
		req = req.WithContext(context.WithoutCancel(req.Context()))
		n, work := w.count(req)
		switch {
		case n == 0:
			return nil, errKilled
		case n == w.killAt:
			return nil, w.kill(next, req)
		case n == 1 && w.onFirst != nil:
			w.onFirst()
		}
		if work > 0 && work == w.refuseAt {
			return refusal(req, apierrors.NewInvalid(schema.GroupKind{}, req.URL.Path, nil))
		}
		return w.faultily(next, req)
	})
}

// count returns the number of the write, 0 if the run is dead, and its number among those
// of the job's own objects, 0 if it is none.
func (w *wire) count(req *http.Request) (n, work int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead.Load() {
		return 0, 0
	}
	w.writes = append(w.writes, req.Method+" "+req.URL.Path)
	if w.isWork(req.URL.Path) {
		w.work = append(w.work, resourceOf(req.URL.Path))
		work = len(w.work)
	}
	if len(w.writes) == w.killAt {
		w.dead.Store(true)
	}
	return len(w.writes), work
}

// kill sends the write if the run is to be killed after it, and ends the run.
func (w *wire) kill(next http.RoundTripper, req *http.Request) error {
	if w.after {
		if resp, err := next.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	w.end(engine.SignalError{Signal: killSignal})
	return errKilled
}

// close waits until no write is under way, and lets none begin any more.
func (w *wire) close() {
	w.dead.Store(true)
	w.flight.Lock()
	defer w.flight.Unlock()
}

// isWork says whether a write is one of the job's, rather than of the lock, the journal,
// the report or an Event.
func (w *wire) isWork(path string) bool {
	return !strings.Contains(path, "/namespaces/"+w.stateNamespace+"/") && resourceOf(path).Resource != "events"
}

// faultily sends the request, or lets it fail at random.
func (w *wire) faultily(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	switch w.fault(req) {
	case 1:
		return refusal(req, apierrors.NewTooManyRequests("migrationtest", 1))
	case 2:
		return refusal(req, apierrors.NewInternalError(errors.New("migrationtest")))
	case 3:
		return nil, syscall.ECONNRESET // before the API server gets it
	case 4:
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		_ = resp.Body.Close()
		return nil, syscall.ECONNRESET // the answer is lost
	}
	return next.RoundTrip(req)
}

// fault draws the fault of a request, 0 for none.
func (w *wire) fault(req *http.Request) int {
	if w.faults == nil || req.URL.Query().Get("watch") != "" {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.faults.Float64() >= faultRate {
		w.answered++
		return 0
	}
	w.faulty++
	return 1 + w.faults.IntN(4)
}

// refusal is the answer of an API server that refuses the request.
func refusal(req *http.Request, why *apierrors.StatusError) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	status := why.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	return &http.Response{
		Status: http.StatusText(int(status.Code)), StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// resourceOf returns what kind of objects a path of the API is about.
func resourceOf(path string) schema.GroupResource {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, parts = parts[1], parts[3:]
	default:
		return schema.GroupResource{}
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return schema.GroupResource{Group: group, Resource: parts[0]}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
