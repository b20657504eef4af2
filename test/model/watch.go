package model

import (
	"context"
	"io"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/json"
)

// watcher is the body of one watch's answer. Events come some milliseconds late, in
// order.
type watcher struct {
	server   *Server
	r        *Request
	kind     *Kind
	selected selection
	ctx      context.Context //nolint:containedctx // that of the request, whose answer this is
	dead     chan struct{}
	closed   chan struct{}
	once     sync.Once
	wake     chan struct{}

	// pending is guarded by the server's lock, rest by the one reader.
	pending []delivery
	rest    []byte
}

type delivery struct {
	at  time.Time
	raw []byte
}

// watch begins after the given version; without one, with all that exists.
func (s *Server) watch(ctx context.Context, r *Request, kind *Kind) (*watcher, error) {
	selected, err := selectionOf(r)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		server: s, r: r, kind: kind, selected: selected, ctx: ctx,
		closed: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	if r.Name != "" {
		return nil, apierrors.NewMethodNotSupported(kind.Resource(), r.Verb)
	}
	from := int64(0)
	if given := r.query.Get("resourceVersion"); given != "" {
		if from, err = strconv.ParseInt(given, 10, 64); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	switch {
	case from == 0:
		for _, key := range s.sorted() {
			w.tell("ADDED", kind, key, nil, s.objects[key], s.version)
		}
	case from < s.oldest:
		return nil, apierrors.NewResourceExpired("too old resource version: " + strconv.FormatInt(from, 10) + " (" + strconv.FormatInt(s.oldest, 10) + ")")
	default:
		for _, past := range s.history {
			if past.Version <= from {
				continue
			}
			typ, shown := "MODIFIED", past.After
			switch {
			case past.After == nil:
				typ, shown = "DELETED", withVersion(past.Before, past.Version)
			case past.Before == nil:
				typ = "ADDED"
			}
			w.tell(typ, s.kinds[kind.Resource()], past.Key, past.Before, shown, past.Version)
		}
	}
	s.watchers[w] = struct{}{}
	return w, nil
}

// tell queues an event, if it is for this watch. The server's lock is held.
func (w *watcher) tell(typ string, kind *Kind, key Key, before, shownNow Object, version int64) {
	if key.Group != w.kind.Group || key.Plural != w.kind.Plural || kind == nil || w.r.Namespace != "" && key.Namespace != w.r.Namespace {
		return
	}
	was, is := w.selected.matches(before), w.selected.matches(shownNow) && typ != "DELETED"
	switch {
	case is && !was:
		typ = "ADDED"
	case is:
		typ = "MODIFIED"
	case was:
		typ = "DELETED"
		shownNow = withVersion(shownNow, version)
	default:
		return
	}
	raw, err := json.Marshal(map[string]any{"type": typ, "object": atVersion(shown(shownNow, w.r), w.r)})
	if err != nil {
		return
	}
	at := time.Now()
	if w.server.lag > 0 {
		at = at.Add(w.server.pause("watch "+w.r.Actor+" "+w.r.Plural, time.Millisecond, w.server.lag))
	}
	if n := len(w.pending); n > 0 && at.Before(w.pending[n-1].at) {
		at = w.pending[n-1].at
	}
	w.pending = append(w.pending, delivery{at, append(raw, '\n')})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// withVersion is a copy of the object as it is shown once it is gone.
func withVersion(obj Object, version int64) Object {
	out := Object{}
	for k, v := range obj {
		out[k] = v
	}
	m := map[string]any{}
	for k, v := range meta(obj) {
		m[k] = v
	}
	m["resourceVersion"] = strconv.FormatInt(version, 10)
	out["metadata"] = m
	return out
}

// Read implements io.Reader: it blocks until an event is due or the watch ends.
func (w *watcher) Read(p []byte) (int, error) {
	for {
		if len(w.rest) > 0 {
			n := copy(p, w.rest)
			w.rest = w.rest[n:]
			return n, nil
		}
		var due <-chan time.Time
		w.server.mu.Lock()
		if len(w.pending) > 0 {
			if wait := time.Until(w.pending[0].at); wait > 0 {
				due = time.After(wait)
			} else {
				w.rest = w.pending[0].raw
				w.pending = w.pending[1:]
			}
		}
		w.server.mu.Unlock()
		if len(w.rest) > 0 {
			continue
		}
		select {
		case <-w.closed:
			return 0, errWatchClosed
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		case <-w.dead:
			return 0, io.ErrUnexpectedEOF
		case <-w.wake:
		case <-due:
		}
	}
}

// Close implements io.Closer.
func (w *watcher) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		delete(w.server.watchers, w)
	})
	return nil
}
