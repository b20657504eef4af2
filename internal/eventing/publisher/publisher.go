package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
	"github.com/kyma-project/eventmesh-migration/internal/tracing"
)

const (
	// StoreTimeout is how long JetStream has to store an event: the SendTimeout of the server.
	StoreTimeout = 5 * time.Second
	// answerTimeout is how long it has to answer a probe. The kubelet waits longer.
	answerTimeout = 2 * time.Second
	// maxType is the longest type that a Subscription can name.
	maxType = 253
)

// Publisher is an eventservice.Sender.
type Publisher struct {
	backend   operatorv1alpha1.BackendType
	log       *zap.Logger
	backends  atomic.Pointer[backend.Backends]
	transport transport
	// applications have other names for their events.
	applications applications
	// interest is what somebody has subscribed to.
	interest interest
	// Tracer makes spans; nil: none.
	Tracer *tracing.Tracer
	// answered: the backend has answered once.
	answered atomic.Bool
}

// transport is what leads to a backend.
type transport interface {
	// use is told where the backends are.
	use(b *backend.Backends)
	// send sends one event. nil: the backend has it.
	send(ctx context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem
	// ask returns nil if the backend answers.
	ask(ctx context.Context) error
	// connected tells whether there is a connection; known is false for a way that needs none.
	connected() (is, known bool)
	// follow follows what else the way depends on, until ctx ends.
	follow(ctx context.Context) error
	close()
}

// NewNATS returns a Publisher that sends to NATS with the seed of a user, and trusts the
// authorities of a file. Follow tells it where NATS is.
func NewNATS(seedFile, caFile string, log *zap.Logger) *Publisher {
	return &Publisher{backend: operatorv1alpha1.NATS, log: log, transport: newNATS(seedFile, caFile, log)}
}

// NewMesh returns a Publisher that posts to the Broker of the mesh. Of maxInFlight events that are
// posted at the same time, a quarter may have the same type.
func NewMesh(maxInFlight int, log *zap.Logger) *Publisher {
	return &Publisher{backend: operatorv1alpha1.EventMesh, log: log, transport: newMesh(maxInFlight)}
}

// Close closes the connection. It is for the end, when every request is answered.
func (p *Publisher) Close() { p.transport.close() }

// Ready implements eventservice.Sender.
func (p *Publisher) Ready(ctx context.Context) error {
	if p.answered.Load() {
		return nil
	}
	if p.backends.Load() == nil {
		return errors.New("the ConfigMap with the backends is not read yet")
	}
	if !p.applications.known() {
		return errors.New("the Applications are not read yet")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := p.transport.ask(ctx); err != nil {
		return err
	}
	p.answered.Store(true)
	return nil
}

// Send implements eventservice.Sender.
func (p *Publisher) Send(ctx context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem {
	of := e.Source // the Application that has the label
	if backend.IsFormer(e.Type) {
		of = backend.FormerOf(e.Type)
		clean, err := backend.CleanFormer(e.Type)
		if err != nil {
			return legacy.InvalidField("type", err.Error())
		}
		e.Type = clean
	}
	if problem := check(e); problem != nil {
		return problem
	}
	if !p.accepts() {
		return unavailable("The backend takes no events now", "not_accepted")
	}
	others := otherNames(e, p.applications.typeOf(of))
	if len(others) == 0 {
		problem := p.store(ctx, e, from, requestID)
		e.Unsubscribed = p.interest.none(e.Source, e.Type)
		return problem
	}
	// The client repeats an event of which one is missing. The others are then found by their ids.
	problems := make(chan *legacy.Problem, len(others))
	for _, other := range others {
		go func() { problems <- p.store(ctx, other, from, requestID) }()
	}
	problem := p.store(ctx, e, from, requestID)
	for range others {
		problem = cmp.Or(problem, <-problems)
	}
	e.Unsubscribed = p.interest.none(e.Source, e.Type)
	for _, other := range others {
		e.Repeated = e.Repeated && other.Repeated
		e.Unsubscribed = e.Unsubscribed && p.interest.none(other.Source, other.Type)
	}
	return problem
}

// store sends one event to the backend.
func (p *Publisher) store(ctx context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem {
	from, span := p.Tracer.Begin(from, tracing.Stores, "store event in "+string(p.backend), time.Now(), tracing.Event{ID: e.ID, Type: e.Type, Source: e.Source})
	problem := p.transport.send(ctx, e, from, requestID)
	span.End(problem.Why())
	return problem
}

// otherNames is an event by the other names by which Subscriptions may ask for it: as its
// Application is called by the label application-type, "" if it has none, and by the former name of
// each. An event is published by all of them, as by Kyma's own publisher: nothing is stored of what
// nobody has subscribed to.
func otherNames(e *cloudevent.Event, applicationType string) []*cloudevent.Event {
	var all []*cloudevent.Event
	former := formerOf(e)
	if former != nil {
		all = append(all, former)
	}
	if applicationType == "" {
		return all
	}
	typed := *e
	if backend.IsFormer(e.Type) { // of any source
		if typed.Type = backend.OfApplication(e.Type, applicationType); typed.Type == "" || typed.Type == e.Type {
			return all
		}
		return append(all, &typed)
	}
	typed.Source = applicationType
	all = append(all, &typed)
	if of := formerOf(&typed); of != nil && (former == nil || of.Type != former.Type) {
		all = append(all, of)
	}
	return all
}

// formerOf is an event of the legacy API as Subscriptions with typeMatching exact name it; nil if
// there is none.
func formerOf(e *cloudevent.Event) *cloudevent.Event {
	if e.Version == "" { // of the legacy API alone
		return nil
	}
	source, eventType, ok := backend.Former(e.Source, strings.TrimSuffix(e.Type, "."+e.Version), e.Version)
	if !ok || len(eventType) > maxType {
		return nil
	}
	former := *e
	former.Source, former.Type = source, eventType
	return &former
}

// check refuses what cannot be addressed. A Subscription cannot ask for it either.
func check(e *cloudevent.Event) *legacy.Problem {
	switch {
	case len(e.Source) > backend.MaxSource:
		return legacy.InvalidField("source", fmt.Sprintf("longer than %d bytes", backend.MaxSource))
	case !cloudevent.Printable(e.Source):
		// It is the application in the path; that of a CloudEvent was checked before.
		return legacy.InvalidField("source", "only printable ASCII characters without spaces can be carried")
	case len(e.Type) > maxType:
		return legacy.InvalidField("type", fmt.Sprintf("longer than %d characters", maxType))
	case !cloudevent.Printable(e.Type) || !strings.Contains(e.Type, "."):
		return legacy.InvalidField("type", "it must have two segments with a dot between them, in printable ASCII characters")
	}
	return nil
}

// message is an event in the binary mode of CloudEvents for NATS.
func message(e *cloudevent.Event, from http.Header, requestID string) *nats.Msg {
	const most = 16 // of most events
	header := make(nats.Header, most)
	values := make([]string, 0, most) // one piece of memory for all
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	e.Attributes(func(name, value string) { set("ce-"+name, value) })
	if t := e.MediaType(); t != "" {
		set("content-type", t)
	}
	eventservice.Trace(from, requestID, set)
	set(jetstream.MsgIDHeader, backend.MessageID(e.Source, e.ID, e.Type, e.Data))
	return &nats.Msg{Subject: backend.Subject(e.Source, e.Type), Header: header, Data: e.Data}
}

// Errors of JetStream that mean something of their own.
const (
	errStoreFailed   jetstream.ErrorCode = 10077 // the stream is full, or has enough of one type of one source
	errNoStorage     jetstream.ErrorCode = 10047
	errNoVolume      jetstream.ErrorCode = 10002 // the server keeps the rest of its volume free
	errSameInProcess jetstream.ErrorCode = 10158
)

// retryFull is when a client is asked to try again if there is no room: that takes longer than an
// interruption.
const retryFull = 30 * time.Second

// answer is what the client is told of an event that was published.
func answer(err error) *legacy.Problem {
	var refused *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return &legacy.Problem{
			Status: http.StatusGatewayTimeout, Type: legacy.TypeTimeout, Message: "The backend did not answer in time",
			MoreInfo: legacy.MayBeTaken, RetryAfter: legacy.RetryAfter, Cause: "backend_timeout",
		}
	case errors.Is(err, nats.ErrMaxPayload):
		return legacy.TooLarge()
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return unavailable("The backend takes no events now", "no_stream")
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting):
		return unavailable("The backend cannot be reached", "not_connected")
	case errors.As(err, &refused):
		switch refused.ErrorCode {
		case errStoreFailed, errNoStorage, errNoVolume:
			return &legacy.Problem{
				Status: http.StatusInsufficientStorage, Type: "storage_full", Message: "The backend has no room for the event",
				MoreInfo: legacy.NotTaken, RetryAfter: retryFull, Cause: cause(refused),
			}
		case errSameInProcess:
			return unavailable("The same event is being stored", cause(refused))
		}
		return unavailable("The backend refused the event", cause(refused))
	}
	problem := unavailable("The backend cannot be reached", "backend_unreachable")
	problem.MoreInfo = legacy.MayBeTaken
	return problem
}

func cause(err *jetstream.APIError) string { return fmt.Sprintf("backend_%d", err.ErrorCode) }

// unavailable is the answer to an event that was not taken, and may be soon.
func unavailable(message, cause string) *legacy.Problem {
	return &legacy.Problem{
		Status: http.StatusServiceUnavailable, Type: legacy.TypeUnavailable, Message: message,
		MoreInfo: legacy.NotTaken, RetryAfter: legacy.RetryAfter, Cause: cause,
	}
}
