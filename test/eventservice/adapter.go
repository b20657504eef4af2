package eventservice

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
)

// Received is one event as the adapter got it.
type Received struct {
	Event  event.Event
	Header http.Header
	// Body is what was on the wire.
	Body []byte
}

// Adapter takes events as the adapter of an HTTPSource does (docs/migration/domain.md §2.3):
// only CloudEvents 1.0, only POST to "/".
type Adapter struct {
	URL string

	server *httptest.Server

	mu       sync.Mutex
	answer   http.HandlerFunc
	received map[string][]Received // by id
	total    int
}

// NewAdapter starts an adapter.
func NewAdapter() *Adapter {
	a := &Adapter{received: map[string][]Received{}}
	a.server = httptest.NewServer(a)
	a.URL = a.server.URL
	return a
}

// Close ends the adapter.
func (a *Adapter) Close() {
	a.server.CloseClientConnections()
	a.server.Close()
}

// Answer makes the adapter answer like this from now on, to events it still
// records; nil: with 200.
func (a *Adapter) Answer(answer http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// Received returns what arrived under an id.
func (a *Adapter) Received(id string) []Received {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Received(nil), a.received[id]...)
}

// Forget forgets what arrived.
func (a *Adapter) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.received, a.total = map[string][]Received{}, 0
}

// Total is the number of requests that were no valid event, or were one.
func (a *Adapter) Total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

// IDs returns the ids of all events that arrived, and how often.
func (a *Adapter) IDs() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := make(map[string]int, len(a.received))
	for id, all := range a.received {
		ids[id] = len(all)
	}
	return ids
}

// ServeHTTP implements http.Handler.
func (a *Adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got, err := read(r)
	a.mu.Lock()
	a.total++
	answer := a.answer
	if err == nil {
		id := got.Event.ID()
		a.received[id] = append(a.received[id], got)
	}
	a.mu.Unlock()
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case answer != nil:
		answer(w, r)
	}
}

func read(r *http.Request) (Received, error) {
	if r.Method != http.MethodPost || r.URL.Path != "/" {
		return Received{}, fmt.Errorf("%s %s: the adapter takes POST / only", r.Method, r.URL.Path)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return Received{}, err
	}
	message := cehttp.NewMessage(r.Header, io.NopCloser(strings.NewReader(string(body))))
	if encoding := message.ReadEncoding(); encoding != binding.EncodingBinary {
		return Received{}, fmt.Errorf("the event is %s, not binary", encoding)
	}
	e, err := binding.ToEvent(r.Context(), message)
	if err != nil {
		return Received{}, err
	}
	if version := e.SpecVersion(); version != event.CloudEventsVersionV1 {
		return Received{}, fmt.Errorf("unsupported cloudevents version %s", version)
	}
	if err := e.Validate(); err != nil {
		return Received{}, err
	}
	return Received{Event: *e, Header: r.Header, Body: body}, nil
}
