package delivery

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/retry"
)

// CompleteAfter is after which time NATS has sent each event again that it waits for: the longest
// delay of a repeat with its spread, and as long as NATS waits for a process that was killed.
const CompleteAfter = retry.Longest + backend.AckWait

const (
	// elsewhere is from when on an event that should have come again counts as one that came to
	// another process, and forgetAfter is when it is forgotten here.
	elsewhere, forgetAfter = 10 * time.Second, time.Minute
)

// Seen is what one process has seen of the events of a Subscription.
type Seen struct {
	Health health.Record
	// Changed is when Health changed last.
	Changed time.Time
	// Known is how many events this process has or waits for that NATS has sent and the sink has
	// not taken, and Repeating how many of them were refused at least once.
	Known, Repeating int64
	// Oldest is when the oldest was published; zero without any.
	Oldest time.Time
}

// With is what two processes have seen together.
func (s Seen) With(other Seen) Seen {
	s.Health = s.Health.With(other.Health)
	s.Known += other.Known
	s.Repeating += other.Repeating
	if s.Oldest.IsZero() || !other.Oldest.IsZero() && other.Oldest.Before(s.Oldest) {
		s.Oldest = other.Oldest
	}
	return s
}

// Seen is what this process has seen of a Subscription, and its sink; false if it does not deliver
// its events. NATS says that all events up to a sequence were taken. alone says that no other
// process delivers. Nothing but what is here is asked.
func (d *Deliveries) Seen(subscription types.NamespacedName, taken uint64, alone bool) (is Seen, settings Settings, ok bool) {
	w := d.worker(subscription)
	if w == nil {
		return Seen{}, Settings{}, false
	}
	now := time.Now()
	is = w.seen(now, taken, alone)
	is.Health, is.Changed = w.health.Record()
	if is.Health.At(now).Problem != "" {
		w.mu.Lock()
		is.Health.Next = w.reach.next(w.traces.next(), len(w.busy) > 0, now)
		w.mu.Unlock()
	}
	return is, w.settings, true
}

func (w *worker) seen(now time.Time, taken uint64, alone bool) (s Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := int64(0)
	see := func(published int64) {
		s.Known++
		if oldest == 0 || published < oldest {
			oldest = published
		}
	}
	for sequence, t := range w.traces {
		late := now.Sub(time.Unix(0, t.next))
		if _, came := w.busy[sequence]; came {
			late = 0
		}
		switch {
		case sequence <= taken, !alone && late > forgetAfter: // somebody has purged it, or has it
			delete(w.traces, sequence)
			continue
		case !alone && late > elsewhere:
			continue
		}
		see(t.published)
		if !t.refused.IsZero() {
			s.Repeating++
		}
	}
	for sequence, e := range w.busy {
		if _, traced := w.traces[sequence]; !traced {
			see(e.about.Timestamp.UnixNano())
		}
	}
	if oldest != 0 {
		s.Oldest = time.Unix(0, oldest)
	}
	return s
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
