package eventservice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Options say how a server is to behave; all are required but the last.
type Options struct {
	// MeshURL is the Application's HTTPSource adapter.
	MeshURL string
	// SourceID is the Application; it becomes the source of every event.
	SourceID string
	// MaxRequestSize is the limit of a request body, in bytes.
	MaxRequestSize int64
	// RequestTimeout bounds the reading of a request, and the answer of the adapter.
	RequestTimeout time.Duration
	// MaxInFlight events are taken at once, the rest is shed.
	MaxInFlight int
	// MaxConnections are open at once, the rest is refused.
	MaxConnections int
	// ShutdownDelay is how long a server that was told to end still takes requests:
	// until then, whoever knows its address may send some.
	ShutdownDelay time.Duration
	// RequestLogging logs every request, not only what went wrong.
	RequestLogging bool
	// Subscriptions answer what is subscribed; nil if there is no cluster to ask.
	Subscriptions Subscriptions
}

// Subscriptions know what somebody has subscribed to.
type Subscriptions interface {
	// Subscribed returns the events of one Application, sorted, each once.
	Subscribed(ctx context.Context, application string) ([]SubscribedEvent, error)
}

// SubscribedEvent is one kind of event that somebody has subscribed to.
type SubscribedEvent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

const (
	// idleClient is how long a connection of a client is kept unused. It is more
	// than the minute that proxies keep theirs, so that it is they who close it.
	idleClient = 2 * time.Minute
	// maxHeaders bounds the header of a request; that of Envoy is 60 KiB.
	maxHeaders = 64 << 10
	// bodyRoom is the memory of all request bodies together: in a pod of 128 MiB it
	// leaves room for their decoded copies, and for the connections (decision 0804).
	bodyRoom = 16 << 20
	// answerReserve is what the writing of an answer may take.
	answerReserve = 5 * time.Second
)

// Server serves the legacy event API of one Application.
type Server struct {
	options Options
	log     *zap.Logger
	mesh    *mesh
	bodies  *bodies
	metrics *metrics
	slots   chan struct{}
	// asking bounds the calls that wait for the cluster: they hold a connection each.
	asking   chan struct{}
	draining atomic.Bool
}

// New makes a server. An error is one of the options'.
func New(o Options, log *zap.Logger) (*Server, error) {
	m, err := newMesh(o.MeshURL, o.SourceID, o.RequestTimeout, o.MaxInFlight)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, log: log, mesh: m, slots: make(chan struct{}, o.MaxInFlight), asking: make(chan struct{}, o.MaxInFlight),
		bodies: &bodies{limit: o.MaxRequestSize, room: max(bodyRoom, 2*(o.MaxRequestSize+1))},
	}
	s.metrics = newMetrics(func() float64 { return float64(s.bodies.taken.Load()) })
	return s, nil
}

// Serve answers on the listener until ctx ends, then for the shutdown delay, and
// then what it has begun. It returns nil if every request it had read is answered.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: s.options.RequestTimeout,
		ReadTimeout:       s.options.RequestTimeout,
		// An answer is due when the body is read and the adapter has had its time.
		WriteTimeout:   2*s.options.RequestTimeout + answerReserve,
		IdleTimeout:    idleClient,
		MaxHeaderBytes: maxHeaders,
		ErrorLog:       zap.NewStdLog(s.log.Named("http")),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(limitConnections(l, s.options.MaxConnections, s.metrics.connections.Inc)) }()
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	s.log.Info("ending: taking requests until nobody sends them here any more", zap.Duration("delay", s.options.ShutdownDelay))
	s.draining.Store(true)
	delay := time.NewTimer(s.options.ShutdownDelay)
	defer delay.Stop()
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve: %w", err)
	case <-delay.C:
	}
	// ctx has ended; what was begun has its own time.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), srv.WriteTimeout)
	defer cancel()
	if err := srv.Shutdown(last); err != nil {
		return fmt.Errorf("cannot answer every request: %w", err)
	}
	s.log.Info("every request is answered")
	return nil
}

// Metrics serves what Prometheus asks for, and nothing else: it is for a port of
// its own, since the other one is open to clients outside of the cluster.
func (s *Server) Metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.handler())
	return mux
}

// request is one request on its way through the server.
type request struct {
	id          string
	route       string
	application string
	began       time.Time
	eventID     string
	problem     *apiError
	err         error
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := &request{id: requestID(r.Header), began: time.Now()}
	out := &recorder{ResponseWriter: w}
	out.Header()[requestIDHeader] = []string{req.id}
	if s.draining.Load() {
		// The client's next request goes to another pod.
		out.Header().Set("Connection", "close")
	}
	defer func() {
		if crash := recover(); crash != nil {
			s.log.Error("this is a bug", zap.String("requestID", req.id), zap.String("route", req.route), zap.Any("panic", crash), zap.Stack("stack"))
			if out.status == 0 {
				req.problem = internalError()
				req.problem.write(out)
			}
		}
		s.finish(req, out.status)
	}()
	s.dispatch(req, out, r)
}

// dispatch finds the route; its paths are matched exactly, as those of 1.11 were.
func (s *Server) dispatch(req *request, w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	method := http.MethodPost
	var handle func()
	switch {
	case len(path) == 2 && path[0] == "v1" && path[1] == "health":
		req.route, method = "health", http.MethodGet
		handle = func() { writeJSON(w, http.StatusOK, map[string]string{"status": "ok"}) }
	case len(path) == 3 && path[0] != "" && path[1] == "v1" && path[2] == "events":
		req.route = "v1/events"
		handle = func() { s.publish(req, w, r, decodeV1) }
	case len(path) == 3 && path[0] != "" && path[1] == "v2" && path[2] == "events":
		req.route = "v2/events"
		handle = func() { s.publish(req, w, r, decodeV2) }
	case len(path) == 4 && path[0] != "" && path[1] == "v1" && path[2] == "events" && path[3] == "subscribed":
		req.route, method = "subscribed", http.MethodGet
		handle = func() { s.subscribed(req, w, r) }
	default:
		req.route = "other"
		writeJSON(w, http.StatusNotFound, routeError{http.StatusNotFound, "Requested resource could not be found."})
		return
	}
	if len(path) > 2 {
		// It is not checked against our own: it never was.
		req.application, _, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		writeJSON(w, http.StatusMethodNotAllowed, routeError{http.StatusMethodNotAllowed, "Method not allowed."})
		return
	}
	handle()
}

// publish takes one event.
func (s *Server) publish(req *request, w http.ResponseWriter, r *http.Request,
	decode func([]byte) (*cloudEvent, *apiError),
) {
	eventID, problem := s.take(req, w, r, decode)
	if problem != nil {
		req.problem = problem
		s.metrics.refused.WithLabelValues(problem.cause).Inc()
		problem.write(w)
		return
	}
	writeJSON(w, http.StatusOK, accepted{EventID: eventID})
}

func (s *Server) take(req *request, w http.ResponseWriter, r *http.Request,
	decode func([]byte) (*cloudEvent, *apiError),
) (string, *apiError) {
	switch {
	case r.ContentLength == 0:
		return "", badPayload("Bad payload syntax")
	case r.ContentLength > s.bodies.limit:
		return "", tooLarge()
	}
	// A body is read outside of the slots: clients that send slowly take memory,
	// which has its own bound, and keep nobody else out.
	body, problem := s.bodies.read(r)
	if problem != nil {
		if problem.cause == "too_large" || problem.cause == "slow_client" || problem.cause == "overloaded" {
			// What is left of the body is not worth reading.
			w.Header().Set("Connection", "close")
		}
		return "", problem
	}
	defer body.release()
	// The deadline was for the body. Left in place it would end the request while
	// the adapter still has time.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})

	ce, problem := decode(body.bytes)
	if problem != nil {
		return "", problem
	}
	req.eventID = ce.id
	select {
	case s.slots <- struct{}{}:
	default:
		return "", overloaded()
	}
	s.metrics.inFlight.Inc()
	defer func() {
		s.metrics.inFlight.Dec()
		<-s.slots
	}()
	passAttributes(ce, r.Header)
	posted := time.Now()
	problem = s.mesh.send(r.Context(), ce, r.Header, req.id)
	s.metrics.mesh.Observe(time.Since(posted).Seconds())
	return ce.id, problem
}

var errNoCluster = errors.New("there is no cluster to ask")

// subscribedAnswer is the shape that Kyma 1.10 and 1.11 answer, and publish.
type subscribedAnswer struct {
	EventsInfo []SubscribedEvent `json:"eventsInfo"`
}

func (s *Server) subscribed(req *request, w http.ResponseWriter, r *http.Request) {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		overloaded().write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.options.RequestTimeout)
	defer cancel()
	events, err := []SubscribedEvent(nil), errNoCluster
	if s.options.Subscriptions != nil {
		events, err = s.options.Subscriptions.Subscribed(ctx, req.application)
	}
	if err != nil {
		// Names of the cluster's objects, users and addresses are for the log only: the
		// client may be outside of the cluster. It finds the line by the request id.
		req.err = err
		w.Header().Set("Retry-After", "2")
		writeJSON(w, http.StatusInternalServerError, routeError{http.StatusInternalServerError, "cannot tell what is subscribed"})
		return
	}
	writeJSON(w, http.StatusOK, subscribedAnswer{append([]SubscribedEvent{}, events...)})
}

// finish counts a request and logs it, never its content.
func (s *Server) finish(req *request, status int) {
	took := time.Since(req.began)
	s.metrics.answered(req.route, status, took)
	level, message := zap.DebugLevel, "answered"
	switch {
	case status >= http.StatusInternalServerError || status == statusClientGone:
		level, message = zap.WarnLevel, "failed"
	case s.options.RequestLogging:
		level = zap.InfoLevel
	}
	entry := s.log.Check(level, message)
	if entry == nil {
		return
	}
	fields := []zap.Field{
		zap.String("requestID", req.id), zap.String("route", req.route), zap.String("application", req.application),
		zap.Int("status", status), zap.Duration("took", took),
	}
	if req.eventID != "" {
		fields = append(fields, zap.String("eventID", req.eventID))
	}
	if req.problem != nil {
		fields = append(fields, zap.String("cause", req.problem.cause), zap.String("problem", req.problem.Message))
	}
	if req.err != nil {
		fields = append(fields, zap.Error(req.err))
	}
	entry.Write(fields...)
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
