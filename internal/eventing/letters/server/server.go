package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
)

const (
	// group, kind and the subresources are what rights are given for. None of them is served by the
	// API server: RBAC does not need that.
	group           = "eventing.kyma-project.io"
	kind            = "subscriptions"
	resourceLetters = "deadletters"
	resourcePayload = "events"
	// resourceDeliveries is for what became of an event that the user can name.
	resourceDeliveries = "deliveries"
)

const (
	defaultLimit, mostListed = 500, 1000
	// atOnce is how many dead letters are delivered again at the same time, and so bounds their
	// memory: each has at most 1 MiB.
	atOnce = 4
	// mostBody bounds a request, and mostSequences the dead letters that it names.
	mostBody, mostSequences = 256 << 10, 10_000
	longestWatch            = 10 * time.Minute
)

// Deliverer sends events to the sinks of Subscriptions: delivery.Deliveries.
type Deliverer interface {
	// InOrder tells whether events are delivered one after the other. The error is
	// letters.ErrNotDelivered.
	InOrder(subscription types.NamespacedName) (bool, error)
	// Redeliver sends an event once, marked as one that is delivered again. An error means that it
	// was not sent.
	Redeliver(ctx context.Context, subscription types.NamespacedName, m *nats.Msg) (letters.Outcome, error)
}

// Server lets people see dead letters, deliver them again and delete them:
//
//	GET  /v1/dead-letters               a Page
//	GET  /v1/dead-letters/<sequence>    a wire.Shown
//	POST /v1/dead-letters/redeliver     lines: a wire.Done for each, and a wire.Summary
//	POST /v1/dead-letters/delete        the same
//	GET  /v1/deliveries                 lines: a Delivery for each of an event, from now on
//
// Each call needs a right in the namespace of the Subscription, or in all: list, update or delete
// subscriptions/deadletters, get subscriptions/events for what is in an event, and list
// subscriptions/deliveries.
type Server struct {
	Store     *letters.Store
	Deliverer Deliverer
	// Watch returns the deliveries of an event from now on.
	Watch  func(source, id string) (seen <-chan wire.Delivery, stop func())
	Access *access.Access
	Log    *zap.Logger

	mu sync.Mutex
	// busy: dead letters are being delivered again or deleted. Two at once would deliver them
	// twice.
	busy bool
}

// handler answers all calls.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/dead-letters", s.answer(s.list))
	mux.HandleFunc("GET /v1/dead-letters/{sequence}", s.answer(s.show))
	mux.HandleFunc("POST /v1/dead-letters/redeliver", s.work("update", s.redeliver))
	mux.HandleFunc("POST /v1/dead-letters/delete", s.work("delete", s.delete))
	mux.HandleFunc("GET /v1/deliveries", s.watch)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, q)
	})
}

func (s *Server) answer(what func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		content, err := what(q)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(content) // nobody is there to be told
	}
}

func fail(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(statusOf(err))
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // nobody is there to be told
}

func statusOf(err error) int {
	var r *access.RefusedError
	switch {
	case errors.As(err, &r):
		return r.Status
	case errors.Is(err, letters.ErrNone):
		return http.StatusNotFound
	default:
		return http.StatusServiceUnavailable
	}
}

func (s *Server) list(q *http.Request) (any, error) {
	f, err := filterOf(q.URL.Query())
	if err != nil {
		return nil, err
	}
	values := q.URL.Query()
	limit, from := defaultLimit, uint64(0)
	if text := values.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostListed {
			return nil, access.Refuse(http.StatusBadRequest, "limit must be a number from 1 to %d", mostListed)
		}
	}
	if text := values.Get("continue"); text != "" {
		if from, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, access.Refuse(http.StatusBadRequest, "continue must be what the page before said")
		}
	}
	if _, err := s.allowed(q, "list", resourceLetters, f.Namespace); err != nil {
		return nil, err
	}
	return s.Store.List(q.Context(), f, from, limit)
}

func (s *Server) show(q *http.Request) (any, error) {
	sequence, err := strconv.ParseUint(q.PathValue("sequence"), 10, 64)
	if err != nil {
		return nil, access.Refuse(http.StatusBadRequest, "%q is no sequence of a dead letter", q.PathValue("sequence"))
	}
	user, err := s.Access.Who(q)
	if err != nil {
		return nil, err
	}
	l, m, err := s.Store.Get(q.Context(), sequence)
	namespace := ""
	if l != nil {
		namespace = l.Namespace
	}
	// Who may not list them is not told which sequences there are.
	if err := s.may(q.Context(), user, "list", resourceLetters, namespace); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	shown := &wire.Shown{Letter: *l, Headers: letters.Headers(m)}
	if q.URL.Query().Get("payload") == "true" {
		if err := s.may(q.Context(), user, "get", resourcePayload, namespace); err != nil {
			return nil, err
		}
		shown.Data = m.Data
	}
	return shown, nil
}

// may asks for a right to what is below Subscriptions, in a namespace or, without one, in all.
func (s *Server) may(ctx context.Context, user authenticationv1.UserInfo, verb, subresource, namespace string) error {
	return s.Access.May(ctx, user, access.Right{Verb: verb, Group: group, Resource: kind, Subresource: subresource, Namespace: namespace})
}

func (s *Server) allowed(q *http.Request, verb, subresource, namespace string) (user string, err error) {
	who, err := s.Access.Who(q)
	if err == nil {
		err = s.may(q.Context(), who, verb, subresource, namespace)
	}
	return who.Username, err
}

func filterOf(values url.Values) (f wire.Filter, err error) {
	f = wire.Filter{Namespace: values.Get("namespace"), Subscription: values.Get("subscription"), Type: values.Get("type"), Answer: values.Get("answer")}
	for name, to := range map[string]*time.Time{"after": &f.After, "before": &f.Before} {
		if text := values.Get(name); text != "" {
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return f, access.Refuse(http.StatusBadRequest, "%s must be a time such as 2026-01-31T12:00:00Z", name)
			}
		}
	}
	return f, check(f)
}

// check refuses a filter that cannot choose anything.
func check(f wire.Filter) error {
	switch {
	case f.Subscription != "" && f.Namespace == "":
		return access.Refuse(http.StatusBadRequest, "a subscription needs its namespace")
	case strings.ContainsAny(f.Namespace+f.Subscription, "*> \t\r\n") || strings.Contains(f.Namespace, "."):
		return access.Refuse(http.StatusBadRequest, "%q is no name of a Subscription", f.Namespace+"/"+f.Subscription)
	case len(f.Sequences) > mostSequences:
		return access.Refuse(http.StatusBadRequest, "at most %d sequences can be named at once", mostSequences)
	}
	return nil
}

// work answers with a line for each dead letter that it did something with.
func (s *Server) work(verb string, do func(context.Context, *wire.Letter) wire.Done) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		var f wire.Filter
		decoder := json.NewDecoder(http.MaxBytesReader(w, q.Body, mostBody))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&f)
		if err != nil {
			err = access.Refuse(http.StatusBadRequest, "the request cannot be read: %v", err)
		} else {
			err = check(f)
		}
		var user string
		if err == nil {
			user, err = s.allowed(q, verb, resourceLetters, f.Namespace)
		}
		if err == nil && !s.begin() {
			err = access.Refuse(http.StatusConflict, "dead letters are being delivered again or deleted by somebody else. Try again in a minute")
		}
		if err != nil {
			fail(w, err)
			return
		}
		defer s.end()
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines := &lines{encoder: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
		sum, err := s.each(q.Context(), f, lines, do)
		s.Log.Info("dead letters", zap.String("done", verb), zap.String("user", user), zap.Int("total", sum.Total), zap.Int("delivered", sum.Delivered),
			zap.Int("deleted", sum.Deleted), zap.Int("left", sum.Left), zap.Error(err))
		if err == nil {
			lines.write(sum)
		}
	}
}

// watch answers with a line for each delivery of an event to a Subscription whose namespace the
// user may see, until the client goes away. The first line is empty, and says that it watches.
func (s *Server) watch(w http.ResponseWriter, q *http.Request) {
	source, id := q.URL.Query().Get("source"), q.URL.Query().Get("id")
	user, err := s.Access.Who(q)
	if err == nil && (source == "" || id == "") {
		err = access.Refuse(http.StatusBadRequest, "source and id must name an event")
	}
	if err != nil {
		fail(w, err)
		return
	}
	seen, stop := s.Watch(source, id)
	defer stop()
	ctx, cancel := context.WithTimeout(q.Context(), longestWatch)
	defer cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := &lines{encoder: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
	lines.write(struct{}{})
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-seen:
			if s.may(ctx, user, "list", resourceDeliveries, d.Namespace) == nil {
				lines.write(d)
			}
		}
	}
}

func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.busy
	s.busy = true
	return !was
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
}

// lines writes what was done as soon as it is done. A client that is gone ends the work by its
// context.
type lines struct {
	mu      sync.Mutex
	encoder *json.Encoder
	flush   func() error
}

func (l *lines) write(line any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.encoder.Encode(line) == nil {
		_ = l.flush()
	}
}

// each does something with all dead letters that a filter chooses and that were there when it
// began. Those of a Subscription whose events come in order are done one after the other.
func (s *Server) each(ctx context.Context, f wire.Filter, to *lines, do func(context.Context, *wire.Letter) wire.Done) (sum wire.Summary, err error) {
	sum.Done = true
	var mu sync.Mutex
	one := func(l *wire.Letter) {
		d := do(ctx, l)
		if ctx.Err() != nil && d.Result == wire.ResultFailed {
			return
		}
		d.Sequence, d.Namespace, d.Subscription, d.ID = l.Sequence, l.Namespace, l.Subscription, l.ID
		mu.Lock()
		sum.Add(d)
		mu.Unlock()
		to.write(d)
	}
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	defer all.Wait()
	for page, failed := range s.chosen(ctx, f) {
		if failed != nil {
			all.Wait()
			return sum, failed
		}
		for i := range page {
			l := &page[i]
			if ordered, err := s.Deliverer.InOrder(l.Key()); err != nil || ordered {
				one(l)
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return sum, context.Cause(ctx)
			}
			all.Go(func() {
				defer func() { <-slots }()
				one(l)
			})
		}
		if ctx.Err() != nil {
			return sum, context.Cause(ctx)
		}
	}
	all.Wait()
	return sum, ctx.Err()
}

// chosen are the dead letters that a filter chooses, page by page.
func (s *Server) chosen(ctx context.Context, f wire.Filter) func(yield func([]wire.Letter, error) bool) {
	return func(yield func([]wire.Letter, error) bool) {
		if len(f.Sequences) > 0 {
			for _, sequence := range slices.Compact(slices.Sorted(slices.Values(f.Sequences))) {
				l, _, err := s.Store.Get(ctx, sequence)
				switch {
				case errors.Is(err, letters.ErrNone):
					l, err = &wire.Letter{Sequence: sequence, Namespace: f.Namespace, Subscription: f.Subscription}, nil
				case err == nil && !f.Passes(l):
					continue
				}
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield([]wire.Letter{*l}, nil) {
					return
				}
			}
			return
		}
		began := time.Now()
		for from := uint64(0); ; {
			page, err := s.Store.List(ctx, f, from, defaultLimit)
			if err != nil {
				yield(nil, err)
				return
			}
			page.Items = slices.DeleteFunc(page.Items, func(l wire.Letter) bool { return l.Stored.After(began) }) // given up again meanwhile
			if !yield(page.Items, nil) || page.Continue == 0 {
				return
			}
			from = page.Continue
		}
	}
}

func (s *Server) redeliver(ctx context.Context, l *wire.Letter) wire.Done {
	_, m, err := s.Store.Get(ctx, l.Sequence)
	switch {
	case errors.Is(err, letters.ErrNone):
		return wire.Done{Result: wire.ResultGone}
	case err != nil:
		return wire.Done{Result: wire.ResultFailed, Problem: err.Error()}
	}
	o, err := s.Deliverer.Redeliver(ctx, l.Key(), m)
	switch {
	case errors.Is(err, letters.ErrNotDelivered):
		return wire.Done{Result: wire.ResultFailed, Problem: fmt.Sprintf("%v. See why: kubectl -n %s get subscriptions.%s %s", err, l.Namespace, group, l.Subscription)}
	case err != nil:
		return wire.Done{Result: wire.ResultFailed, Problem: err.Error()}
	case o.Problem != "":
		return wire.Done{Result: wire.ResultRefused, Answer: o.Answer, Problem: o.Problem}
	}
	// It was taken: that a client is gone must not leave it here, to be delivered a second time.
	if err := s.Store.Delete(context.WithoutCancel(ctx), l.Sequence); err != nil {
		return wire.Done{Result: wire.ResultFailed, Answer: o.Answer, Problem: fmt.Sprintf("the sink took it, but it cannot be deleted, and would be delivered again: %v", err)}
	}
	return wire.Done{Result: wire.ResultDelivered, Answer: o.Answer}
}

func (s *Server) delete(ctx context.Context, l *wire.Letter) wire.Done {
	if err := s.Store.Delete(ctx, l.Sequence); err != nil {
		return wire.Done{Result: wire.ResultFailed, Problem: err.Error()}
	}
	return wire.Done{Result: wire.ResultDeleted}
}

// Run serves until the context ends. address is <host>:<port>.
func (s *Server) Run(ctx context.Context, address string, i *access.Identity) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen at %s: %w", address, err)
	}
	return s.serve(ctx, listener, i)
}

func (s *Server) serve(ctx context.Context, listener net.Listener, i *access.Identity) error {
	server := &http.Server{
		Handler:  s.handler(),
		ErrorLog: zap.NewStdLog(s.Log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))),
	}
	return i.Serve(ctx, server, listener)
}
