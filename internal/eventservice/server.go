package eventservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/google/uuid"

	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/publish"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/subscribed"
	"github.com/kyma-project/eventmesh-migration/internal/tracing"
)

// Options say how a server is to behave. Required are MeshURL and SourceID, or a Sender, and all
// limits.
type Options struct {
	// MeshURL is the Application's HTTPSource adapter.
	MeshURL string
	// SourceID is the Application; it becomes the source of every event.
	SourceID string
	// Sender hands events on; nil: to the adapter at MeshURL.
	Sender Sender
	// Routes are the requests that are taken, Application by default.
	Routes Routes
	// Metrics says how the metrics are called.
	Metrics Metrics
	// MaxRequestSize is the limit of a request body, in bytes.
	MaxRequestSize int64
	// RequestTimeout bounds the reading of a request, and the answer of the adapter.
	RequestTimeout time.Duration
	// SendTimeout is how long a Sender takes at most; 0: as long as RequestTimeout.
	SendTimeout time.Duration
	// MaxInFlight events are taken at once, the rest is shed.
	MaxInFlight int
	// MaxConnections are open at once. For more, those that do nothing are closed.
	MaxConnections int
	// ShutdownDelay is how long requests are still accepted after the signal to end:
	// until then, clients that know the address may send some.
	ShutdownDelay time.Duration
	// RequestLogging logs every request, not only what went wrong.
	RequestLogging bool
	// Tracer makes spans; nil: none.
	Tracer *tracing.Tracer
	// Subscriptions answer what is subscribed; nil if there is no cluster to ask.
	Subscriptions Subscriptions
}

// Subscriptions know which events have subscribers.
type Subscriptions interface {
	// Subscribed returns the events of one Application, sorted, each once.
	Subscribed(ctx context.Context, application string) ([]subscribed.Event, error)
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
	sender  Sender
	mesh    *mesh // the sender, if it is the adapter
	bodies  *bodies
	metrics *metrics
	slots   chan struct{}
	// asking bounds the calls that wait for the cluster: they hold a connection each.
	asking   chan struct{}
	draining atomic.Bool
	// requestLog gets the line of each request if RequestLogging is on.
	requestLog *zap.Logger
	requests   atomic.Int64
}

// New makes a server. Lines about single requests go to requests if all of them are
// wanted: a log that leaves out some of many is for the others. An error is one of the
// options'.
func New(o Options, log, requests *zap.Logger) (*Server, error) {
	s := &Server{
		options: o, log: log, requestLog: requests, sender: o.Sender, slots: make(chan struct{}, o.MaxInFlight), asking: make(chan struct{}, o.MaxInFlight),
		bodies: newBodies(o.MaxRequestSize),
	}
	if s.sender == nil {
		var err error
		if s.mesh, err = newMesh(o.MeshURL, o.SourceID, o.RequestTimeout, o.MaxInFlight); err != nil {
			return nil, err
		}
		s.mesh.tracer = o.Tracer
		s.sender = s.mesh
	}
	s.metrics = newMetrics(o.Metrics, s.sender, func() float64 { return float64(s.bodies.taken.Load()) })
	return s, nil
}

// Serve answers on the listener until ctx ends, then for the shutdown delay, and
// then what it has begun. It returns nil if every request it had read is answered.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := s.httpServer(s)
	// An answer is due when the body is read and the adapter has had its time.
	srv.WriteTimeout = s.options.answered()
	conns := limitConnections(l, s.options.MaxConnections, s.metrics)
	conns.configure(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(conns) }()
	select {
	case err := <-served:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.log.Info("shutting down: requests are still accepted for the delay", zap.Duration("delay", s.options.ShutdownDelay))
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
	// Only the listener, at first: once Shutdown has begun, net/http drops a request
	// that it has just read.
	_ = conns.Close()
	<-served //nolint:errcheck // Serve ends with the error of the closed listener
	if err := conns.drain(last); err != nil {
		return fmt.Errorf("cannot answer every request: %w", err)
	}
	if err := srv.Shutdown(last); err != nil {
		return fmt.Errorf("cannot answer every request: %w", err)
	}
	s.log.Info("every request is answered", zap.Int64("connections", conns.accepted.Load()), zap.Int64("requests", s.requests.Load()))
	return nil
}

// sendTimeout is how long the sender has for an event.
func (o *Options) sendTimeout() time.Duration {
	return cmp.Or(o.SendTimeout, o.RequestTimeout)
}

// answered is how long a request takes at most, from its first byte to the last one of the answer.
func (o *Options) answered() time.Duration {
	return o.RequestTimeout + o.sendTimeout() + answerReserve
}

// LongestEnd is how long Serve goes on at most after its context has ended. The pod needs at least
// as much before it is killed.
func (o *Options) LongestEnd() time.Duration {
	return o.ShutdownDelay + o.answered()
}

// httpServer has what the servers of both ports have in common.
func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.options.RequestTimeout,
		ReadTimeout:       s.options.RequestTimeout,
		IdleTimeout:       idleClient,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          zap.NewStdLog(s.log.Named("http")),
	}
}

// ServeInternal serves the probes of the kubelet and the metrics of Prometheus, until
// ctx ends. It is for a port of its own: the other one is open to clients outside of
// the cluster, and whatever they do, a probe must have its answer.
func (s *Server) ServeInternal(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.handler())
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) { legacy.WriteJSON(w, http.StatusOK, healthy) })
	if s.options.Routes == All {
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { legacy.WriteJSON(w, http.StatusOK, healthy) })
		mux.HandleFunc("GET /readyz", s.ready)
	}
	srv := s.httpServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if connOf(r).begin() {
			w.Header().Set("Connection", "close")
		}
		mux.ServeHTTP(w, r)
	}))
	srv.WriteTimeout = time.Minute
	conns := limitConnections(l, maxInternal, nil)
	conns.configure(srv)
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(conns); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ready answers the probe of readiness. What is missing is for the log: a kubelet shows the answer
// to nobody who could look into it.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.sender.Ready(context.WithoutCancel(r.Context())); err != nil {
		s.log.Info("not ready yet", zap.Error(err))
		legacy.WriteJSON(w, http.StatusServiceUnavailable, legacy.RouteError{Code: http.StatusServiceUnavailable, Error: "not ready yet"})
		return
	}
	legacy.WriteJSON(w, http.StatusOK, healthy)
}

// maxInternal connections to the port of probes and metrics are open at once.
const maxInternal = 64

var healthy = map[string]string{"status": "ok"}

// request is one request on its way through the server.
type request struct {
	id          string
	route       string
	application string
	began       time.Time
	eventID     string
	leftOut     []string
	problem     *legacy.Problem
	err         error
	// last: the connection is closed after the answer.
	last bool
}

const requestIDHeader = "X-Request-Id"

// repeatedHeader is in the answer to an event that the backend had already.
const repeatedHeader = "X-Event-Repeated"

// leftOutHeader names the ce-* headers that did not go with the event. The log has them, too.
const leftOutHeader = "X-Event-Left-Out"

// requestID is the client's own, if it can stand in a log, else a new one.
func requestID(header http.Header) string {
	id := header.Get(requestIDHeader)
	if id == "" || len(id) > 128 || !cloudevent.Printable(id) {
		return uuid.NewString()
	}
	return id
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	req := &request{id: requestID(r.Header), began: time.Now()}
	out := &recorder{ResponseWriter: w}
	out.Header()[requestIDHeader] = []string{req.id}
	if s.draining.Load() {
		// The client's next request goes to another pod.
		out.Header().Set("Connection", "close")
	}
	defer func() {
		crash := recover()
		if crash != nil {
			s.log.Error("this is a bug", zap.String("requestID", req.id), zap.String("route", req.route), zap.Any("panic", crash), zap.Stack("stack"))
			if out.status == 0 {
				crash = nil
				req.problem = legacy.InternalError()
				req.problem.Write(out)
			}
		}
		s.finish(req, r, out.status)
		if crash != nil {
			// Half of an answer is out. Nothing but the end of the connection tells the
			// client.
			panic(http.ErrAbortHandler)
		}
	}()
	if r.ContentLength == 0 {
		s.begin(req, out, r)
	}
	s.dispatch(req, out, r)
}

// begin says that nothing more is expected of the client: what follows is answered.
func (s *Server) begin(req *request, w http.ResponseWriter, r *http.Request) {
	if connOf(r).begin() && !req.last {
		req.last = true
		w.Header().Set("Connection", "close")
	}
}

// dispatch finds the route of a path as Kyma's router did: the decoded path counts,
// and one that is not clean is redirected to the clean one. Kyma answered every
// method with 301. Clients make a GET of a POST then, and the event is gone, so that
// other methods get 308, which keeps them.
func (s *Server) dispatch(req *request, w http.ResponseWriter, r *http.Request) {
	if clean := cleanPath(r.URL.Path); clean != r.URL.Path {
		req.route = "other"
		status := http.StatusPermanentRedirect
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			status = http.StatusMovedPermanently
		}
		w.Header().Set("Location", (&url.URL{Path: clean, RawQuery: r.URL.RawQuery}).String())
		legacy.WriteJSON(w, status, legacy.RouteError{Code: status, Error: http.StatusText(status)})
		return
	}
	method := http.MethodPost
	// The application is not checked against our own: it never was.
	if req.route, req.application = s.options.Routes.route(r.URL.Path); req.route == "health" || req.route == "ready" || req.route == "subscribed" {
		method = http.MethodGet
	}
	switch {
	case req.route == "other":
		legacy.WriteJSON(w, http.StatusNotFound, legacy.RouteError{Code: http.StatusNotFound, Error: "Requested resource could not be found."})
	case r.Method != method:
		w.Header().Set("Allow", method)
		legacy.WriteJSON(w, http.StatusMethodNotAllowed, legacy.RouteError{Code: http.StatusMethodNotAllowed, Error: "Method not allowed."})
	case req.route == "health":
		s.begin(req, w, r)
		legacy.WriteJSON(w, http.StatusOK, healthy)
	case req.route == "ready":
		s.begin(req, w, r)
		s.ready(w, r)
	case req.route == "subscribed":
		s.begin(req, w, r)
		s.subscribed(req, w, r)
	case req.route == "v1/events":
		s.publish(req, w, r, s.legacy(req, r, legacy.DecodeV1))
	case req.route == "publish":
		s.publish(req, w, r, func(body []byte) (*cloudevent.Event, *legacy.Problem) {
			if problem := publish.CheckTrailer(r.Trailer); problem != nil {
				return nil, problem
			}
			return publish.Decode(r.Header, body)
		})
	default:
		s.publish(req, w, r, s.legacy(req, r, legacy.DecodeV2))
	}
}

// legacy decodes an event of the legacy endpoint, and adds what the client said in the header. For
// all applications, the version is a part of the type, as Subscriptions name it.
func (s *Server) legacy(req *request, r *http.Request, decode func([]byte) (*cloudevent.Event, *legacy.Problem)) func([]byte) (*cloudevent.Event, *legacy.Problem) {
	return func(body []byte) (*cloudevent.Event, *legacy.Problem) {
		e, problem := decode(body)
		if problem != nil {
			return nil, problem
		}
		e.AddHeaders(r.Header)
		if s.options.Routes == All {
			e.Source = req.application
			e.Type += "." + e.Version
		}
		return e, nil
	}
}

// route returns the name of a path's route, and the application in it.
func (routes Routes) route(clean string) (name, application string) {
	switch {
	case clean == "/v1/health", clean == "/healthz" && routes == All:
		return "health", ""
	case clean == "/readyz" && routes == All:
		return "ready", ""
	case clean == "/publish" && routes == All:
		return "publish", ""
	}
	application, rest, _ := strings.Cut(clean[1:], "/")
	switch {
	case application == "":
		return "other", ""
	case rest == "v1/events":
		return "v1/events", application
	case rest == "v2/events":
		return "v2/events", application
	case rest == "v1/events/subscribed":
		return "subscribed", application
	}
	return "other", ""
}

// cleanPath returns the path without empty, "." and ".." elements. A slash at the end
// stays, for such a path is another one.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if p[len(p)-1] == '/' && clean != "/" {
		clean += "/"
	}
	return clean
}

// publish takes one event.
func (s *Server) publish(req *request, w http.ResponseWriter, r *http.Request,
	decode func([]byte) (*cloudevent.Event, *legacy.Problem),
) {
	ce, problem := s.take(req, w, r, decode)
	if problem != nil {
		req.problem = problem
		if ce == nil {
			s.metrics.events.unread(problem)
		}
		problem.Write(w)
		return
	}
	if len(ce.LeftOut) > 0 {
		w.Header()[leftOutHeader] = []string{bounded(strings.Join(ce.LeftOut, ", "))}
	}
	if ce.Repeated {
		w.Header()[repeatedHeader] = []string{"true"}
	}
	if req.route == "publish" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	legacy.WriteAccepted(w, ce.ID)
}

// take reads an event, and gives it to the sender. Without an event, the sender was given none.
func (s *Server) take(req *request, w http.ResponseWriter, r *http.Request,
	decode func([]byte) (*cloudevent.Event, *legacy.Problem),
) (*cloudevent.Event, *legacy.Problem) {
	switch {
	case r.ContentLength == 0 && req.route != "publish":
		return nil, legacy.BadPayload("Bad payload syntax")
	case r.ContentLength > s.bodies.limit:
		return nil, legacy.TooLarge()
	}
	// A body is read outside of the slots: clients that send slowly take memory,
	// which has its own bound, and keep nobody else out.
	c := connOf(r)
	c.receive()
	body, problem := s.bodies.read(r, c.freeBody)
	if problem != nil {
		switch problem.Cause {
		case "slow_client":
			if c.mustGo() {
				problem = legacy.Overloaded() // it was slow when another one needed its place
			}
			c.leave()
			w.Header().Set("Connection", "close")
		case "overloaded":
			// The rest is read, and forgotten: a client that cannot write any more may not
			// read its answer.
			if _, err := io.CopyN(io.Discard, r.Body, s.bodies.limit); !errors.Is(err, io.EOF) {
				c.leave()
				w.Header().Set("Connection", "close")
			}
		case "too_large":
			// What is left of the body is not worth reading.
			c.leave()
			w.Header().Set("Connection", "close")
		}
		return nil, problem
	}
	defer body.release()
	// The deadline was for the body. Left in place it would end the request while
	// the adapter still has time.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})

	s.begin(req, w, r)
	ce, problem := decode(body.bytes)
	if problem != nil {
		return nil, problem
	}
	req.eventID, req.leftOut = ce.ID, ce.LeftOut
	select {
	case s.slots <- struct{}{}:
	default:
		return nil, legacy.Overloaded()
	}
	s.metrics.inFlight.Inc()
	defer func() {
		s.metrics.inFlight.Dec()
		<-s.slots
	}()
	posted := time.Now()
	// The event is here, and is finished also if nobody listens: clients may send it and leave.
	// net/http ends the context of a request also when the client has only closed its half of the
	// connection, and waits for the answer. What bounds the work of clients that have left is what
	// bounds all: the slot and the body stay taken, and the sender has this long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.options.sendTimeout())
	defer cancel()
	header, span := s.options.Tracer.Begin(r.Header, tracing.Takes, "accept event", req.began, tracing.Event{ID: ce.ID, Type: ce.Type, Source: cmp.Or(ce.Source, s.options.SourceID)})
	problem = s.sender.Send(ctx, ce, header, req.id)
	s.metrics.events.sent(ce, header, problem, time.Since(posted))
	span.End(problem.Why())
	return ce, problem
}

var errNoCluster = errors.New("there is no cluster to ask")

// subscribedAnswer is the shape that Kyma 1.10 and 1.11 answer, and publish.
type subscribedAnswer struct {
	EventsInfo []subscribed.Event `json:"eventsInfo"`
}

func (s *Server) subscribed(req *request, w http.ResponseWriter, r *http.Request) {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		legacy.Overloaded().Write(w)
		return
	}
	// A client that has closed its half of the connection waits for the answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.options.RequestTimeout)
	defer cancel()
	events, err := []subscribed.Event(nil), errNoCluster
	if s.options.Subscriptions != nil {
		events, err = s.options.Subscriptions.Subscribed(ctx, req.application)
	}
	if err != nil {
		// Names of the cluster's objects, users and addresses are for the log only: the
		// client may be outside of the cluster. It finds the line by the request id.
		req.err = err
		w.Header().Set("Retry-After", "2")
		legacy.WriteJSON(w, http.StatusInternalServerError, legacy.RouteError{Code: http.StatusInternalServerError, Error: "cannot tell what is subscribed"})
		return
	}
	legacy.WriteJSON(w, http.StatusOK, subscribedAnswer{append([]subscribed.Event{}, events...)})
}

// finish counts a request and logs it, never its content.
func (s *Server) finish(req *request, r *http.Request, status int) {
	took := time.Since(req.began)
	s.metrics.answered(req.route, r.Method, status, took)
	log, level, message := s.log, zap.DebugLevel, "answered"
	if s.options.RequestLogging {
		log, level = s.requestLog, zap.InfoLevel
	}
	if status >= http.StatusInternalServerError {
		level, message = zap.WarnLevel, "failed"
	}
	if len(req.leftOut) > 0 && level < zap.WarnLevel {
		level, message = zap.WarnLevel, "attributes were left out"
	}
	entry := log.Check(level, message)
	if entry == nil {
		return
	}
	fields := []zap.Field{
		zap.String("requestID", req.id), zap.String("method", bounded(r.Method)), zap.String("path", bounded(r.URL.Path)),
		zap.String("route", req.route), zap.String("application", bounded(req.application)),
		zap.Int("status", status), zap.Duration("took", took),
	}
	if req.eventID != "" {
		fields = append(fields, zap.String("eventID", req.eventID))
	}
	if len(req.leftOut) > 0 {
		fields = append(fields, zap.String("leftOut", bounded(strings.Join(req.leftOut, ", "))))
	}
	if req.problem != nil {
		fields = append(fields, zap.String("cause", req.problem.Cause), zap.String("problem", req.problem.Message))
	}
	if req.err != nil {
		fields = append(fields, zap.Error(req.err))
	}
	entry.Write(fields...)
}

// maxLogged bounds what a client can put into one field of the log. The longest name
// of an Application is shorter.
const maxLogged = 256

func bounded(text string) string {
	if len(text) > maxLogged {
		return text[:maxLogged] + "..."
	}
	return text
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
