// Package repeats remembers for a while which events the sinks of the mesh have accepted. When one
// of several sinks refuses an event, the client sends the event again to all of them.
package repeats

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// remembered is how many events are remembered at most, the last ones: 265 bytes each. NATS finds
// a repeat for stream.DuplicateWindow, and so does a process that gets fewer events meanwhile.
const remembered = 20_000

// Taken are events that sinks have taken a moment ago.
type Taken struct {
	events *cache.LRUExpireCache
}

// New returns a Taken without events.
func New() Taken { return Taken{cache.NewLRUExpireCache(remembered)} }

// Event is one at the sink of a Subscription. It is the same as for NATS.
type Event struct {
	subscription types.UID
	sink, id     string
}

// ID returns that of an event in the binary mode of CloudEvents, for all Subscriptions. All of the
// data is read for it.
func ID(header http.Header, data []byte) string {
	return backend.MessageID(header.Get("Ce-Source"), header.Get("Ce-Id"), header.Get("Ce-Type"), data)
}

// EventOf returns the event with an ID, for the sink of a Subscription.
func EventOf(subscription types.UID, sink, id string) Event { return Event{subscription, sink, id} }

// Note remembers that the sink has taken an event.
func (t Taken) Note(e Event) { t.events.Add(e, nil, stream.DuplicateWindow) }

// Has tells whether it has, as far as that is remembered.
func (t Taken) Has(e Event) bool {
	_, ok := t.events.Get(e)
	return ok
}
