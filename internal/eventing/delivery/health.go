package delivery

import (
	"sync"
	"time"
)

const (
	// calm is how long no delivery must have failed until a sink counts as one that takes events: a sink that refuses some events
	// of many would change the status of its Subscription all the time.
	calm = 10 * time.Second
	// soon is how long a change waits for others to be told with.
	soon = time.Second
)

// health remembers the last deliveries to one sink.
type health struct {
	mu            sync.Mutex
	taken, failed time.Time // the last of each; zero if there was none
	problem       string    // of the last failure
	told          string    // the problem that was told last
	toldTaken     bool
}

// note adds a delivery; problem is "" if the sink took the event. It returns after which time to tell others of a change; 0 if there is none.
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
		h.Problem = other.Problem
	}
	if h.Again == 0 || other.Again > 0 && other.Again < h.Again {
		h.Again = other.Again
	}
	h.Known = h.Known || other.Known
	return h
}

func (h *health) at(now time.Time) Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.taken.IsZero() && h.failed.IsZero():
		return Health{}
	case h.failed.IsZero(), !h.failed.After(h.taken) && now.Sub(h.failed) >= calm:
		return Health{Known: true}
	case h.failed.After(h.taken):
		return Health{Known: true, Problem: h.problem}
	default:
		return Health{Known: true, Problem: h.problem, Again: calm - now.Sub(h.failed)}
	}
}
