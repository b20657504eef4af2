package delivery

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// slowAfter is how long a sink may work on an event until its type counts as slow, which has a
	// smaller part of the slots.
	slowAfter = 5 * time.Second
	// makesWay is how long an event waits for a slot before it makes way for events of other types.
	makesWay = time.Second
)

// lanes divide the slots of one Subscription between its types, so that a type whose events hang
// does not stop the others.
type lanes struct {
	slots, types int
	used         int
	of           map[string]*lane
}

// lane is one type.
type lane struct {
	// started has the events that have a slot, and since when; zero once the sink has answered.
	started map[*nats.Msg]time.Time
	// slow says that the last answer came late, or not at all.
	slow bool
	// stuck says that an event made way since the last answer.
	stuck bool
}

// verdict is what becomes of an event now.
type verdict int

const (
	waits verdict = iota // there is no slot, and there will be one soon
	posts                // it has a slot
	steps                // its type has no slot for long: it makes way for events of other types
)

func newLanes(slots, types int) *lanes {
	return &lanes{slots: slots, types: max(types, 1), of: map[string]*lane{}}
}

// laneOf is the type in a subject: kyma.<source>.<type>.
func laneOf(subject string) string {
	parts := strings.SplitN(subject, ".", 3)
	return parts[len(parts)-1]
}

// take decides about an event that has waited here since a time, and gives it a slot if it may have
// one.
func (l *lanes) take(m *nats.Msg, since, now time.Time) verdict {
	of := laneOf(m.Subject)
	t := l.of[of]
	if t == nil {
		t = &lane{started: map[*nats.Msg]time.Time{}}
		l.of[of] = t
	}
	divided := l.types > 1 && l.slots > 1
	slow := divided && t.slowAt(now)
	switch {
	case l.used < l.slots && (!divided || len(t.started) == 0 || l.more(t, slow, now)):
		t.started[m] = now
		l.used++
		return posts
	case divided && (slow || t.stuck || now.Sub(since) >= makesWay):
		t.stuck = true
		return steps
	default:
		return waits
	}
}

// more tells whether a type that has slots may have one more. A slow one leaves as many as it has
// to each other slow one, and to all the others together. One that is not slow leaves some for
// types that have none.
func (l *lanes) more(t *lane, slow bool, now time.Time) bool {
	without, others := l.types-1, 0
	for _, other := range l.of {
		switch {
		case other == t:
			continue
		case other.slowAt(now):
			others++
		}
		if len(other.started) > 0 {
			without--
		}
	}
	if slow {
		return len(t.started) < l.slots/(others+2)
	}
	return l.slots-l.used > min(max(without, 0), (l.slots+3)/4)
}

// answered notes that the sink has answered. The event has its slot until NATS was told, but how
// long that takes says nothing about the type.
func (l *lanes) answered(m *nats.Msg, now time.Time) {
	t := l.of[laneOf(m.Subject)]
	t.slow = now.Sub(t.started[m]) >= slowAfter
	t.stuck = false
	t.started[m] = time.Time{}
}

// release ends what take has begun.
func (l *lanes) release(m *nats.Msg, now time.Time) {
	of := laneOf(m.Subject)
	t := l.of[of]
	if !t.started[m].IsZero() {
		l.answered(m, now)
	}
	delete(t.started, m)
	l.used--
	if len(t.started) == 0 && !t.slow {
		delete(l.of, of)
	}
}

// slowAt tells whether the type is slow: its last answer was, or one is overdue.
func (t *lane) slowAt(now time.Time) bool {
	if t.slow {
		return true
	}
	for _, since := range t.started {
		if !since.IsZero() && now.Sub(since) >= slowAfter {
			return true
		}
	}
	return false
}
