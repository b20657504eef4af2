package delivery

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/budget"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/refusal"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/repeats"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/tally"
)

const (
	// failuresToOpen is after how many failures in a row a sink is left alone, for openFor. It is
	// more than the mesh asks for one event.
	failuresToOpen = 5
	openFor        = 5 * time.Second
	// maxEvent is the largest body, with some room: the publisher takes at most 1 MiB.
	maxEvent = 1<<20 + 1
	// What an event is counted as for which the sink was not asked: it is left alone, or has no
	// slot, or there is none.
	codeOpen    = "open"
	codeBusy    = "busy"
	codeRefused = "refused"
	// knativePrefix begins the attributes that Knative adds to an event.
	knativePrefix = "Ce-Knative"
	clockSkew     = 10 * time.Second // of two nodes, at most
)

var (
	// ErrGone is of a Finder: the Subscription is gone, or is being deleted. Its events are
	// dropped.
	ErrGone = errors.New("the Subscription is gone")
	// ErrInvalid is of a Finder: the spec has errors. Its events are refused.
	ErrInvalid = errors.New("the spec of the Subscription has errors")
)

// Finder knows the Subscriptions.
type Finder interface {
	// Find returns the settings of a Subscription: ErrGone, ErrInvalid, or another error if it
	// cannot be known now.
	Find(ctx context.Context, subscription types.NamespacedName) (Settings, error)
	// Match returns who wants the events of a source and a type. An error says that this process
	// cannot know them all now.
	Match(source, eventType string) ([]Recipient, error)
	// Probed is told that a probe of the controller has come through the Trigger, with what the
	// request says of it.
	Probed(ctx context.Context, trigger string)
}

// Recipient is a Subscription that wants an event.
type Recipient struct {
	Subscription types.NamespacedName
	Settings     Settings
}

var (
	probeHeader = http.CanonicalHeaderKey("ce-" + backend.ProbeAttribute)
	timeHeader  = http.CanonicalHeaderKey("ce-" + backend.TimeAttribute)
)

// Receiver delivers events that the mesh posts, and answers when the sinks have them. It is an
// http.Handler.
//
// To [backend.EventsPath] the mesh posts each event once, for all Subscriptions:
//
//	204  each sink that wants the event took it, now or a moment ago, or its dead letter sink did
//	400  the request is no event in the binary mode of CloudEvents, or a sink did not take it: the mesh does not ask again
//	413  the event is too large
//	503  its type has its share of the memory, or this process cannot know who wants the event: the mesh asks another one
//
// To /deliver/<namespace>/<name> the Triggers of an earlier version post it for one Subscription:
//
//	204  the sink took the event, now or a moment ago, or the Subscription is gone, or events have come to EventsPath for longer than an event takes
//	502  the sink did not take the event
//	503  there was no slot in time, or its Subscription has its share of the memory, the sink failed too often a moment ago, or the Subscription cannot be found or has errors
//
// The Broker posts what was not taken after all tries to [backend.DeadLetterPath]. Other paths are
// answered with 404. An answer of success has no body: the mesh would take it for another event.
// The body of a failure is what the event is counted as, which comes back with the dead letter.
type Receiver struct {
	options Options
	find    Finder
	taken   repeats.Taken
	// refusals are of events that this process could not deliver to anybody.
	refusals refusal.Log

	mu      sync.Mutex
	targets map[types.NamespacedName]*target
	bytes   map[types.NamespacedName]*held
	used    bool
	all     time.Time // since when something comes through the Trigger for all
}

// held is what the requests for one Subscription have of the budget. A request may name one that
// does not exist: it is kept as long as there are requests.
type held struct {
	*budget.Share
	requests int
}

// target is the sink of one Subscription in this process.
type target struct {
	settings Settings
	slots    chan struct{}
	breaker  *gobreaker.TwoStepCircuitBreaker[struct{}]
	health   health.Tracker
	refusals refusal.Log
	metrics  *tally.Series
}

// NewReceiver returns a Receiver. It needs Sender, Metrics, Log and Changed of the options.
func NewReceiver(o Options, find Finder) *Receiver {
	return &Receiver{options: o, find: find, taken: repeats.New(), targets: map[types.NamespacedName]*target{}, bytes: map[types.NamespacedName]*held{}}
}

// Used tells whether there was a request.
func (r *Receiver) Used() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// Health is that of a Subscription, as seen by this process.
func (r *Receiver) Health(subscription types.NamespacedName) health.Health {
	r.mu.Lock()
	t := r.targets[subscription]
	r.mu.Unlock()
	if t == nil {
		return health.Health{}
	}
	is, _ := t.health.Record()
	return is.At(time.Now())
}

// Forget removes what is known of a Subscription that is gone.
func (r *Receiver) Forget(subscription types.NamespacedName) {
	r.mu.Lock()
	_, known := r.targets[subscription]
	delete(r.targets, subscription)
	r.mu.Unlock()
	if known {
		r.options.Metrics.Forget(subscription)
	}
}

func (r *Receiver) target(subscription types.NamespacedName, s Settings, sink Sink) *target {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.targets[subscription]
	if t == nil || t.settings != s {
		t = &target{
			settings: s, slots: make(chan struct{}, s.MaxInFlight),
			metrics: r.options.Metrics.Series(subscription, backend.ConsumerName(subscription.Namespace, subscription.Name), sink.url.String()),
			breaker: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
				Timeout: openFor, ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failuresToOpen },
			}),
		}
		r.targets[subscription] = t
	}
	return t
}

// hold returns what a Subscription has of the budget, for one request more.
func (r *Receiver) hold(subscription types.NamespacedName) *held {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.bytes[subscription]
	if h == nil {
		h = &held{Share: budget.NewShare(r.options.Budget, func() {})} // the mesh asks again by itself
		r.bytes[subscription] = h
	}
	h.requests++
	return h
}

func (r *Receiver) release(subscription types.NamespacedName, h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.requests--; h.requests == 0 {
		h.End()
		delete(r.bytes, subscription)
	}
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.used = true
	if r.all.IsZero() && q.URL.Path == backend.EventsPath {
		r.all = time.Now()
	}
	r.mu.Unlock()
	key, serve := r.serverOf(q)
	switch {
	case serve == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case q.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithTimeout(q.Context(), backend.MeshAnswer)
	defer cancel()
	size := q.ContentLength
	if size < 0 || size > maxEvent {
		size = maxEvent
	}
	size += budget.PerEvent
	bytes := r.hold(key)
	defer r.release(key, bytes)
	if !bytes.TakePost(size) {
		r.count(key, codeBusy)
		unavailable(w, time.Second)
		return
	}
	defer bytes.GivePost(size)
	data, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxEvent))
	if err != nil {
		status := http.StatusBadRequest
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		w.WriteHeader(status)
		return
	}
	header, err := meshHeader(q.Header)
	if err != nil {
		r.count(key, "invalid")
		r.options.Log.Warn("refused a request of the mesh that is no event", zap.Stringer("subscription", key), zap.Error(err))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	serve(ctx, w, q, key, header, data)
}

// serverOf is how a request is answered, nil if there is nothing at its path, and whose budget it
// has: that of a Subscription, or of a type.
func (r *Receiver) serverOf(q *http.Request) (types.NamespacedName, serveFunc) {
	switch q.URL.Path {
	case backend.EventsPath:
		return types.NamespacedName{Name: q.Header.Get("Ce-Type")}, r.serveAll
	case backend.DeadLetterPath:
		return r.letterOf(q.Header)
	}
	if key, ok := cutPath(q.URL.Path); ok {
		return key, r.serveEvent
	}
	return types.NamespacedName{}, nil
}

// serveEvent answers with what became of an event for one Subscription.
func (r *Receiver) serveEvent(ctx context.Context, w http.ResponseWriter, q *http.Request, key types.NamespacedName, header http.Header, data []byte) {
	if isProbe(q) || r.replaced(q) { // nobody waits for a probe of an earlier version any more
		w.WriteHeader(http.StatusNoContent)
		return
	}
	settings, err := r.find.Find(ctx, key)
	if err != nil {
		r.notFound(w, key, err)
		return
	}
	status, code, after := r.deliver(ctx, Recipient{key, settings}, newMeshEvent(header, data))
	if status == http.StatusServiceUnavailable {
		unavailable(w, after)
	} else {
		w.WriteHeader(status)
	}
	if status != http.StatusNoContent {
		_, _ = io.WriteString(w, code)
	}
}

// replaced tells whether an event of a Trigger of an earlier version comes through the one for all,
// too: that one was there before the Broker got the event.
func (r *Receiver) replaced(q *http.Request) bool {
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	arrived, _ := time.Parse(time.RFC3339Nano, q.Header.Get(knativePrefix+"arrivaltime")) // zero if it is not known
	return !all.IsZero() && (time.Since(all) > backend.MeshTimeout || arrived.After(all.Add(clockSkew)))
}

// notFound answers where the Subscription cannot be delivered to: one that is gone wants nothing.
func (r *Receiver) notFound(w http.ResponseWriter, key types.NamespacedName, err error) {
	if errors.Is(err, ErrGone) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	r.options.Log.Info("cannot deliver an event of the mesh", zap.Stringer("subscription", key), zap.Error(err))
	unavailable(w, 0)
}

func isProbe(q *http.Request) bool { return q.Header.Get(probeHeader) != "" }

// meshEvent is an event of the mesh. Its id is the same for all sinks, and read from all of it.
type meshEvent struct {
	header http.Header
	data   []byte
	id     string
}

func newMeshEvent(header http.Header, data []byte) meshEvent {
	return meshEvent{header, data, repeats.ID(header, data)}
}

// deliver posts an event when there is a slot, and returns the status of the answer, and what the
// event is counted as.
func (r *Receiver) deliver(ctx context.Context, to Recipient, e meshEvent) (status int, code string, after time.Duration) {
	key, settings := to.Subscription, to.Settings
	sink, err := ParseSink(key.Namespace, settings.Sink)
	if err != nil {
		r.count(key, codeRefused)
		return http.StatusServiceUnavailable, codeRefused, 0
	}
	event := repeats.EventOf(settings.UID, settings.Sink, e.id)
	if r.taken.Has(event) {
		r.count(key, "repeat")
		return http.StatusNoContent, "", 0
	}
	t := r.target(key, settings, sink)
	if t.breaker.State() == gobreaker.StateOpen {
		r.count(key, codeOpen)
		return http.StatusServiceUnavailable, codeOpen, openFor
	}
	timer := time.NewTimer(backend.MeshSlotTimeout)
	defer timer.Stop()
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-timer.C:
		r.count(key, codeBusy)
		return http.StatusServiceUnavailable, codeBusy, 0
	case <-ctx.Done():
		return http.StatusServiceUnavailable, "", 0 // nobody waits for it
	}
	done, err := t.breaker.Allow()
	if err != nil { // it failed while this one waited, or another event is the try
		r.count(key, codeOpen)
		return http.StatusServiceUnavailable, codeOpen, openFor
	}
	t.metrics.InFlight.Inc()
	defer t.metrics.InFlight.Dec()
	began := time.Now()
	// An event that the sink works on is not abandoned because the mesh is gone: the sink would
	// have it twice.
	o := r.options.Sender.send(context.WithoutCancel(ctx), min(backend.MeshSinkTimeout, time.Until(deadline(ctx))), sink.url, e.header, e.data)
	t.metrics.Posted(e.header, o.code, time.Since(began))
	if after := t.health.Note(o.problem, time.Now()); after > 0 {
		r.options.Changed(key, after)
	}
	if !o.taken() {
		t.refusals.Say(r.options.Log, "a sink did not take an event, which the mesh or its client sends again", refused(key, e.header, o))
		done(errors.New(o.problem))
		return http.StatusBadGateway, o.code, o.after
	}
	done(nil)
	r.taken.Note(event)
	return http.StatusNoContent, o.code, 0
}

// count counts an event of a Subscription. That of a type is of nobody.
func (r *Receiver) count(key types.NamespacedName, code string) {
	if key.Namespace != "" {
		r.options.Metrics.Count(key, code)
	}
}

func deadline(ctx context.Context) time.Time {
	at, ok := ctx.Deadline()
	if !ok {
		return time.Now().Add(backend.MeshSinkTimeout)
	}
	return at
}

func unavailable(w http.ResponseWriter, after time.Duration) {
	if after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}

// cutPath reads the path /deliver/<namespace>/<name>.
func cutPath(path string) (subscription types.NamespacedName, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != "" || parts[1] != "deliver" || parts[2] == "" || parts[3] == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: parts[2], Name: parts[3]}, true
}

// meshHeader is the header of a request to the sink for an event of the mesh: that of NATS, without
// what Knative adds and changes.
func meshHeader(from http.Header) (http.Header, error) {
	header, err := eventHeader(nats.Header(from))
	if err != nil {
		return nil, err
	}
	if written := header[timeHeader]; written != nil {
		header["Ce-Time"] = written
	}
	for name := range header {
		if strings.HasPrefix(name, knativePrefix) {
			delete(header, name)
		}
	}
	return header, nil
}
