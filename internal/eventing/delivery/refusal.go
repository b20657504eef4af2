package delivery

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// refusalEvery is how often the log says of one Subscription that its sink refused an event. The
// next line says how many others there were.
const refusalEvery = time.Minute

// rarely lets something happen once in refusalEvery.
type rarely struct {
	mu   sync.Mutex
	last time.Time
	left int
}

// now tells whether it may happen now, and how often it was left out before.
func (r *rarely) now(at time.Time) (left int, may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && at.Sub(r.last) < refusalEvery {
		r.left++
		return 0, false
	}
	left, r.last, r.left = r.left, at, 0
	return left, true
}

// logRefusal says in the log which event the sink did not take.
func (w *worker) logRefusal(about *nats.MsgMetadata, header http.Header, o outcome) {
	left, may := w.refusals.now(time.Now())
	if !may {
		return
	}
	w.mu.Lock()
	aside := w.traces[about.Sequence.Stream].aside
	w.mu.Unlock()
	tries := about.NumDelivered - min(aside, about.NumDelivered)
	w.Log.Warn("a sink did not take an event, which is sent again", append(refusal(w.subscription, header, o, left), zap.Uint64("try", tries))...)
}

// refusal is what the log has of an event that was refused: nothing of its data, and nothing of the
// sink's URL.
func refusal(of types.NamespacedName, header http.Header, o outcome, left int) []zap.Field {
	return []zap.Field{
		zap.Stringer("subscription", of), zap.String("id", shortID(header.Get("Ce-Id"))), zap.String("type", header.Get("Ce-Type")),
		zap.String("answer", o.code), zap.String("problem", o.problem), zap.Int("othersSince", left),
	}
}

// shortID is as much of the id of an event as is told.
func shortID(id string) string {
	if len(id) > longestID {
		id = id[:longestID]
	}
	return strings.ToValidUTF8(id, "")
}
