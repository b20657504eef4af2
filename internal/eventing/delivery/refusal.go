package delivery

import (
	"net/http"
	"strings"
	"sync"
	"time"

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

// log says which event a sink did not take: nothing of its data, and nothing of the sink's URL.
func (r *rarely) log(to *zap.Logger, message string, of types.NamespacedName, header http.Header, o outcome, more ...zap.Field) {
	left, may := r.now(time.Now())
	if !may {
		return
	}
	to.Warn(message, append([]zap.Field{
		zap.Stringer("subscription", of), zap.String("id", shortID(header.Get("Ce-Id"))), zap.String("type", header.Get("Ce-Type")),
		zap.String("answer", o.code), zap.String("problem", o.problem), zap.Int("othersSince", left),
	}, more...)...)
}

// shortID is as much of the id of an event as is told.
func shortID(id string) string {
	if len(id) > longestID {
		id = id[:longestID]
	}
	return strings.ToValidUTF8(id, "")
}
