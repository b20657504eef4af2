package delivery

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// mostSeen is how many deliveries wait for somebody who watches and does not read: later ones are
// left out.
const mostSeen = 100

// Watches tell people of the deliveries of single events, as they happen.
type Watches struct {
	some atomic.Int32

	mu sync.Mutex
	of map[chan wire.Delivery]watched
}

// watched is an event, by what identifies it.
type watched struct{ source, id string }

// Watch returns the deliveries of an event from now on, until stop is called.
func (w *Watches) Watch(source, id string) (seen <-chan wire.Delivery, stop func()) {
	c := make(chan wire.Delivery, mostSeen)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[chan wire.Delivery]watched{}
	}
	w.of[c] = watched{source, id}
	w.some.Add(1)
	return c, sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.of, c)
		w.some.Add(-1)
	})
}

// tell is called after each delivery. Without anybody who watches it costs one read.
func (w *Watches) tell(subscription types.NamespacedName, sink string, header http.Header, stored, received, posted time.Time, try uint64, o outcome) {
	if w == nil || w.some.Load() == 0 {
		return
	}
	is := watched{header.Get("Ce-Source"), header.Get("Ce-Id")}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, of := range w.of {
		if of != is {
			continue
		}
		d := wire.Delivery{
			Namespace: subscription.Namespace, Subscription: subscription.Name, Sink: redact.URL(sink), Type: header.Get("Ce-Type"),
			Stored: stored, Received: received, Posted: posted, Answered: time.Now(), Try: try, Answer: o.code, Problem: o.problem,
		}
		select {
		case c <- d:
		default:
		}
	}
}
