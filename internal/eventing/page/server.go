package page

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

const (
	// readEvery is how old what was read may be: however many people look, the cluster is read
	// no more often.
	readEvery    = 2 * time.Second
	readTimeout  = 30 * time.Second
	writeTimeout = 2 * time.Minute
	mostHave     = 1000
)

// Server serves the page:
//
//	GET /v1/page?q=             the page, for browsers without scripts, too
//	GET /v1/page/state?q=&have= the parts that have changed
//
// Each request says who asks, as one to the API server does.
type Server struct {
	// Read reads the cluster.
	Read   func(context.Context) (*State, error)
	Rights *Rights
	Log    *zap.Logger

	// now is the clock that ages are told by, time.Now if it is nil.
	now   func() time.Time
	reads singleflight.Group
	mu    sync.Mutex
	last  *State
}

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+backend.PagePath, s.page)
	mux.HandleFunc("GET "+backend.PageStatePath, s.state)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		harden(w.Header())
		mux.ServeHTTP(w, q)
	})
}

// harden sets what browsers have to keep to.
func harden(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
	} {
		h.Set(name, value)
	}
}

// view is what the one who asks may see.
func (s *Server) view(q *http.Request) (*view, error) {
	who, err := s.Rights.who(q)
	if err != nil {
		return nil, err
	}
	state, err := s.read(q.Context())
	if err != nil {
		return nil, err
	}
	seen, err := s.Rights.seen(q.Context(), who, state)
	if err != nil {
		return nil, err
	}
	now := time.Now
	if s.now != nil {
		now = s.now
	}
	return viewOf(state, seen, q.URL.Query().Get("q"), now()), nil
}

// read returns what was read a moment ago, or reads. People who ask at once share an answer, and
// none of them ends it for the others by going.
func (s *Server) read(ctx context.Context) (*State, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil && time.Since(last.At) < readEvery {
		return last, nil
	}
	answer, err, _ := s.reads.Do("", func() (any, error) {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		state, err := s.Read(limit)
		if err != nil {
			return nil, access.Refuse(http.StatusServiceUnavailable, "the operator cannot read the cluster: %v", err)
		}
		s.mu.Lock()
		s.last = state
		s.mu.Unlock()
		return state, nil
	})
	if err != nil {
		return nil, err
	}
	return answer.(*State), nil
}

func (s *Server) page(w http.ResponseWriter, q *http.Request) {
	v, err := s.view(q)
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := write(w, v); err != nil {
		s.Log.Debug("the page was not written whole", zap.Error(err))
	}
}

func (s *Server) state(w http.ResponseWriter, q *http.Request) {
	v, err := s.view(q)
	var u update
	tag := ""
	if err == nil {
		have := q.URL.Query().Get("have")
		u, tag, err = updateOf(v, strings.Split(have[:min(len(have), mostHave)], "."))
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("ETag", tag)
	if slices.Contains(q.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(u) // nobody is there to be told
}

// fail answers with an error, as the API of the controller does.
func (s *Server) fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if refused, ok := errors.AsType[*access.RefusedError](err); ok {
		status = refused.Status
	} else {
		s.Log.Error("the page cannot be shown", zap.Error(err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // nobody is there to be told
}

// Serve serves until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener, i *access.Identity) error {
	handshakes, err := zap.NewStdLogAt(s.Log, zap.DebugLevel) // that a client has ended
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.Handler(), WriteTimeout: writeTimeout, ErrorLog: handshakes}
	return i.Serve(ctx, server, listener)
}
