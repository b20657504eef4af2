package publisher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/cloudevent"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice/legacy"
)

const (
	// shareOfType is the part of the slots that events of one type may have. The mesh answers when
	// all sinks have: without a bound, one slow sink would keep everybody else out.
	shareOfType = 4
)

// mesh is the transport to the Broker of the mesh.
type mesh struct {
	poster *eventservice.Poster
	probes *http.Client
	broker atomic.Pointer[url.URL] // nil: there is none

	mu     sync.Mutex
	most   int
	ofType map[string]int // events that are being posted
}

func newMesh(maxInFlight int) *mesh {
	return &mesh{
		poster: eventservice.NewPoster("eventing-publisher-proxy", backend.MeshTimeout, maxInFlight),
		// A redirect is an answer, too.
		probes: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		most:   max(1, maxInFlight/shareOfType), ofType: map[string]int{},
	}
}

// use implements transport.
func (m *mesh) use(b *backend.Backends) {
	if b.Mesh == nil {
		m.broker.Store(nil)
		return
	}
	u, err := url.Parse(b.Mesh.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		u = nil
	}
	m.broker.Store(u)
}

// ask implements transport. Any answer of the ingress counts: that it has no such Broker is one,
// too.
func (m *mesh) ask(ctx context.Context) error {
	to := m.broker.Load()
	if to == nil {
		return errors.New("the Broker has no address yet")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodOptions, to.String(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := m.probes.Do(r)
	if err != nil {
		return fmt.Errorf("the Broker does not answer: %w", err)
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 4<<10)
	return answer.Body.Close()
}

// connected implements transport: each event may have a connection of its own.
func (*mesh) connected() (is, known bool) { return false, false }

// follow implements transport.
func (*mesh) follow(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// close implements transport.
func (m *mesh) close() { m.probes.CloseIdleConnections() }

// send implements transport.
func (m *mesh) send(ctx context.Context, e *cloudevent.Event, from http.Header, requestID string) *legacy.Problem {
	to := m.broker.Load()
	if to == nil {
		return unavailable("The backend cannot be reached", "not_connected")
	}
	if !m.enter(e.Type) {
		return unavailable("Too many events of this type wait for their sinks", "type_overloaded")
	}
	defer m.leave(e.Type)
	status, _, err := m.poster.Post(ctx, to, meshHeader(e, from, requestID), e.Data)
	if err != nil {
		return eventservice.Unreachable(err)
	}
	return meshAnswer(status)
}

func (m *mesh) enter(eventType string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ofType[eventType] >= m.most {
		return false
	}
	m.ofType[eventType]++
	return true
}

func (m *mesh) leave(eventType string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ofType[eventType]--; m.ofType[eventType] == 0 {
		delete(m.ofType, eventType)
	}
}

// meshHeader is an event in the binary mode of CloudEvents for HTTP.
func meshHeader(e *cloudevent.Event, from http.Header, requestID string) http.Header {
	header := http.Header{}
	set := func(name, value string) { header[textproto.CanonicalMIMEHeaderKey("ce-"+name)] = []string{value} }
	e.Attributes(set)
	if e.When != "" {
		set(backend.TimeAttribute, e.When) // the mesh writes the time in its own way
	}
	if t := e.MediaType(); t != "" {
		header["Content-Type"] = []string{t}
	}
	eventservice.Trace(from, requestID, func(name, value string) { header[textproto.CanonicalMIMEHeaderKey(name)] = []string{value} })
	return header
}

// meshAnswer is what the client is told of an event that the Broker has answered. A failure means
// that a sink did not take the event; others may have.
func meshAnswer(status int) *legacy.Problem {
	cause := fmt.Sprintf("backend_%d", status)
	switch {
	case status/100 == 2:
		return nil
	case status == http.StatusNotFound:
		return unavailable("The backend takes no events now", cause)
	case status == http.StatusRequestEntityTooLarge:
		return legacy.TooLarge()
	case status == http.StatusBadRequest:
		return &legacy.Problem{Status: status, Type: legacy.TypeRefused, Message: "The backend cannot carry the event", Cause: cause}
	case status >= 500:
		p := unavailable("The backend could not deliver the event to each sink", cause)
		p.MoreInfo = legacy.MayBeTaken
		return p
	default: // a proxy, or the access to the Broker
		return unavailable("The backend refused the event", cause)
	}
}
