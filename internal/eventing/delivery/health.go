package delivery

import (
	"strings"
	"sync"
	"time"
)

const (
	// calm is how long no delivery must have failed until a sink counts as one that takes events: a
	// sink that refuses some events of many would change the status of its Subscription all the
	// time.
	calm = 10 * time.Second
	// soon is how long a change waits for others to be told with.
	soon = time.Second
	// letterEvery is how often the time of the last dead letter is told at most, longestID how much
	// of the id of an event is.
	letterEvery = time.Minute
	longestID   = 100
)

// health remembers the last deliveries to one sink.
type health struct {
	mu            sync.Mutex
	taken, failed time.Time // the last of each; zero if there was none
	since         time.Time // the first failure after the sink worked
	problem       string    // of the last failure
	told          string    // the problem that was told last
	toldTaken     bool
	blocking      Blocking
	letter        time.Time
}

// block notes the event that keeps all later ones from being sent.
func (h *health) block(id string, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blocking = Blocking{ID: shortID(id), Since: since}
}

// shortID is as much of the id of an event as is told.
func shortID(id string) string {
	if len(id) > longestID {
		id = id[:longestID]
	}
	return strings.ToValidUTF8(id, "")
}

func (h *health) unblock() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blocking = Blocking{}
}

// noteLetter notes that an event became a dead letter. It returns after which time to tell others;
// 0 if they know of one of a moment ago.
func (h *health) noteLetter(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := now.Sub(h.letter) < letterEvery
	if !known {
		h.letter = now
		return soon
	}
	return 0
}

// note adds a delivery; problem is "" if the sink took the event. It returns after which time to
// tell others of a change; 0 if there is none.
func (h *health) note(problem string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if problem == "" {
		h.taken = now
		switch {
		case h.told != "":
			h.told, h.toldTaken = "", true
			return calm
		case !h.toldTaken:
			h.toldTaken = true
			return soon
		}
		return 0
	}
	if h.works(now) {
		h.since = now
	}
	h.failed, h.problem = now, problem
	switch h.told {
	case problem:
		return 0
	case "":
		h.told = problem
		return soon
	default:
		h.told = problem
		return calm
	}
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
	if other.Letter.After(h.Letter) {
		h.Letter = other.Letter
	}
	return h
}

// works tells whether the sink has refused nothing, or nothing for a while. The caller holds the
// lock.
func (h *health) works(now time.Time) bool {
	return h.failed.IsZero() || !h.failed.After(h.taken) && now.Sub(h.failed) >= calm
}

func (h *health) at(now time.Time) Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := Health{Known: true, Problem: h.problem, Since: h.since, Blocking: h.blocking, Letter: h.letter}
	switch {
	case h.taken.IsZero() && h.failed.IsZero():
		return Health{}
	case h.works(now):
		return Health{Known: true}
	case h.failed.After(h.taken):
		return is
	default:
		is.Again = calm - now.Sub(h.failed)
		return is
	}
}
