// Package health judges by the last deliveries whether the sink of a Subscription takes events.
// Each process keeps a Tracker of its own deliveries; the Records of several processes are one,
// with With.
package health

import (
	"strings"
	"sync"
	"time"
)

const (
	// Calm is how long no delivery must have failed until a sink counts as one that takes events: a
	// sink that refuses some events of many would change the status of its Subscription all the
	// time.
	Calm = 10 * time.Second
	// Soon is how long a change waits for others to be told with.
	Soon = time.Second
	// letterEvery is how often the time of the last dead letter is told at most, longestID how much
	// of the id of an event is.
	letterEvery = time.Minute
	longestID   = 100
)

// Health is what came of the last deliveries of a Subscription.
type Health struct {
	// Known is false if there was none.
	Known bool
	// Problem says why the sink does not take events; "" if it does. It does not change with each
	// event.
	Problem string
	// Since is when the sink began not to take events, and Next when it is asked again; zero if
	// that is not known.
	Since, Next time.Time
	// Blocking is the event that keeps later ones from being sent, with MaxInFlight 1.
	Blocking Blocking
	// Letter is when an event became a dead letter that is stored, and Posted when a dead letter
	// sink took one, to a minute; zero if there was none.
	Letter, Posted time.Time
	// Again, if not 0, is when to ask again: the sink takes events, but it refused some a moment
	// ago.
	Again time.Duration
}

// Blocking is an event that the sink refuses, and since when. Without an ID there is none.
type Blocking struct {
	ID    string
	Since time.Time
}

// With is what two ways to the same sink say together.
func (h Health) With(other Health) Health {
	if h.Problem == "" {
		h.Problem, h.Since, h.Next = other.Problem, other.Since, other.Next
	}
	if h.Again == 0 || other.Again > 0 && other.Again < h.Again {
		h.Again = other.Again
	}
	h.Known = h.Known || other.Known
	if h.Blocking.ID == "" {
		h.Blocking = other.Blocking
	}
	h.Letter, h.Posted = later(h.Letter, other.Letter), later(h.Posted, other.Posted)
	return h
}

// Record is what was seen of the deliveries to one sink. The zero value is none.
type Record struct {
	// Taken and Failed are when the last event was taken, and when the last one was not; zero if
	// there was none.
	Taken, Failed time.Time
	// Since is the first failure after the sink worked, Problem says what the last one was, and
	// Next is when the sink is asked again; zero if that is not known.
	Since   time.Time
	Problem string
	Next    time.Time
	// Blocking is as in Health, and Blocked when it was refused last.
	Blocking Blocking
	Blocked  time.Time
	// Letter and Posted are as in Health.
	Letter, Posted time.Time
}

// With is what two processes have seen together. What one of them saw long ago, and the other one
// has seen end, does not count any more.
func (r Record) With(other Record) Record {
	both := r
	both.Taken = later(r.Taken, other.Taken)
	both.Letter, both.Posted = later(r.Letter, other.Letter), later(r.Posted, other.Posted)
	if other.Failed.After(r.Failed) {
		both.Failed, both.Problem = other.Failed, other.Problem
	}
	both.Since = time.Time{}
	for _, one := range []Record{r, other} {
		if one.Failed.IsZero() || one.Failed.Before(both.Taken) && both.Failed.Sub(one.Failed) >= Calm {
			continue
		}
		both.Since = earlier(both.Since, one.Since)
	}
	both.Next = earlier(r.Next, other.Next)
	if other.Blocked.After(r.Blocked) {
		both.Blocking, both.Blocked = other.Blocking, other.Blocked
	}
	if !both.Blocked.After(later(both.Taken, later(both.Letter, both.Posted))) {
		both.Blocking, both.Blocked = Blocking{}, time.Time{}
	}
	return both
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// earlier is the first of two times, of those that are known.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// works tells whether the sink has refused nothing, or nothing for a while.
func (r Record) works(now time.Time) bool {
	return r.Failed.IsZero() || !r.Failed.After(r.Taken) && now.Sub(r.Failed) >= Calm
}

// At judges what was seen.
func (r Record) At(now time.Time) Health {
	is := Health{Known: true, Problem: r.Problem, Since: r.Since, Next: r.Next, Blocking: r.Blocking, Letter: r.Letter, Posted: r.Posted}
	switch {
	case r.Taken.IsZero() && r.Failed.IsZero():
		return Health{}
	case r.works(now):
		return Health{Known: true}
	case r.Failed.After(r.Taken):
		return is
	default:
		is.Again = Calm - now.Sub(r.Failed)
		return is
	}
}

// Tracker remembers the last deliveries of this process to one sink. Its methods can be called at
// the same time.
type Tracker struct {
	mu        sync.Mutex
	is        Record
	told      string // the problem that was told last
	toldTaken bool
	changed   time.Time
}

// Record is what was seen so far, and when it changed last.
func (h *Tracker) Record() (is Record, changed time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.is, h.changed
}

// Block notes the event that keeps all later ones from being sent.
func (h *Tracker) Block(id string, since, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.is.Blocking, h.is.Blocked, h.changed = Blocking{ID: ShortID(id), Since: since}, now, now
}

// ShortID is as much of the id of an event as is told.
func ShortID(id string) string {
	if len(id) > longestID {
		id = id[:longestID]
	}
	return strings.ToValidUTF8(id, "")
}

// Unblock notes that the event does not come again.
func (h *Tracker) Unblock() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.is.Blocking, h.is.Blocked = Blocking{}, time.Time{}
}

// NoteLetter notes that an event became a dead letter that is stored. It returns after which time
// to tell others; 0 if they know of one of a moment ago.
func (h *Tracker) NoteLetter(now time.Time) time.Duration { return h.noteGivenUp(&h.is.Letter, now) }

// NotePosted is NoteLetter for an event that a dead letter sink has taken.
func (h *Tracker) NotePosted(now time.Time) time.Duration { return h.noteGivenUp(&h.is.Posted, now) }

func (h *Tracker) noteGivenUp(last *time.Time, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(*last) < letterEvery {
		return 0
	}
	*last, h.changed = now, now
	return Soon
}

// Note adds a delivery; problem is "" if the sink took the event. It returns after which time to
// tell others of a change; 0 if there is none.
func (h *Tracker) Note(problem string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = now
	if problem == "" {
		h.is.Taken = now
		switch {
		case h.told != "":
			h.told, h.toldTaken = "", true
			return Calm
		case !h.toldTaken:
			h.toldTaken = true
			return Soon
		}
		return 0
	}
	if h.is.works(now) {
		h.is.Since = now
	}
	h.is.Failed, h.is.Problem = now, problem
	switch h.told {
	case problem:
		return 0
	case "":
		h.told = problem
		return Soon
	default:
		h.told = problem
		return Calm
	}
}
