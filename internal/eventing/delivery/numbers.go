package delivery

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// completeAfter is after which time NATS has sent each event that it waits for: the longest delay
// of a repeat with its spread, and as long as NATS waits for a process that was killed.
const completeAfter = longestRefused*12/10 + backend.AckWait

// Numbers are of the events of a Subscription that NATS has sent and that the sink has not taken.
type Numbers struct {
	// Complete is false while there may be events that this process has not seen yet. Then there
	// may be more of them, and older ones.
	Complete bool
	// Oldest is when the oldest was published; zero without any.
	Oldest time.Time
	// Repeating is how many were refused at least once.
	Repeating int64
}

// Numbers are those of a Subscription. NATS says that it waits for so many events, and that all up
// to a sequence were taken. Nothing but what is here is asked.
func (d *Deliveries) Numbers(subscription types.NamespacedName, unanswered int, taken uint64) Numbers {
	w := d.worker(subscription)
	if w == nil {
		return Numbers{}
	}
	return w.numbers(time.Now(), unanswered, taken)
}

func (w *worker) numbers(now time.Time, unanswered int, taken uint64) (n Numbers) {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest, known := int64(0), 0
	see := func(published int64) {
		known++
		if oldest == 0 || published < oldest {
			oldest = published
		}
	}
	for sequence, t := range w.traces {
		if sequence <= taken { // somebody has purged it
			delete(w.traces, sequence)
			continue
		}
		see(t.published)
		if !t.refused.IsZero() {
			n.Repeating++
		}
	}
	for m := range w.busy {
		about, err := m.Metadata()
		if err != nil {
			continue
		}
		if _, traced := w.traces[about.Sequence.Stream]; !traced {
			see(about.Timestamp.UnixNano())
		}
	}
	if known >= unanswered || now.Sub(w.began) > completeAfter {
		w.complete = true
	}
	n.Complete = w.complete
	if oldest != 0 {
		n.Oldest = time.Unix(0, oldest)
	}
	return n
}

// traces are of events by their sequences.
type traces map[uint64]trace

// next is when the first of them comes again; zero without any.
func (t traces) next() (next time.Time) {
	first := int64(0)
	for _, of := range t {
		if first == 0 || of.next < first {
			first = of.next
		}
	}
	if first != 0 {
		next = time.Unix(0, first)
	}
	return next
}
