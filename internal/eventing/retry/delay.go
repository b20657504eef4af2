// Package retry has what becomes of an event that its sink has refused: when it comes again, and
// how it is stored again while the sink takes later ones.
package retry

import (
	"net/http"
	"strconv"
	"time"
)

const (
	// First is how long an event waits that was refused once.
	First = time.Second

	last = 30 * time.Second
	// longestAsked bounds what a sink may ask for with Retry-After.
	longestAsked = 5 * time.Minute
	// afterTries is how often an event is sent again at these delays that the sink refuses because
	// of the event itself, and slowest is its delay from then on.
	afterTries = 10
	slowest    = 5 * time.Minute
	// Repeats take the places of new events, because NATS sends them first. So all of a
	// Subscription together come at most as often as this in a second, if that makes none wait for
	// longer than the longest delay. Those of a sink that has no time come sooner than those that
	// it will hardly ever take.
	refusedPace, failedPace = 50, 200
	longestRefused          = 10 * time.Minute
	longestFailed           = 2 * time.Minute
	// aside is the shortest delay of an event that has made way for others and was not sent.
	aside = 5 * time.Second
	// spread is the part of a delay that is random, to both sides: events that were refused
	// together are not sent together.
	spread = 0.2

	// Longest is the longest delay of an event.
	Longest = longestRefused * 12 / 10
)

// Refusal is what a sink says of an event that it does not take.
type Refusal struct {
	// Code is the status of the answer; something else if there was none.
	Code string
	// Asked is how long the sink wants to be left alone; 0 if it has not said so.
	Asked time.Duration
}

// OfEvent tells whether the sink works, and does not want this event: it will hardly want it later.
func (r Refusal) OfEvent() bool {
	code, err := strconv.Atoi(r.Code)
	switch {
	case err != nil, code < 400, code > 499:
		return false
	default:
		return code != http.StatusRequestTimeout && code != http.StatusTooEarly && code != http.StatusTooManyRequests
	}
}

// Delay is how long an event waits that was refused for the n-th time, n from 1, while so many of
// its Subscription wait, and first after the first time. random is from 0 to 1. What the sink asks
// for counts if it is longer.
func (r Refusal) Delay(first time.Duration, n uint64, waiting int, random float64) time.Duration {
	delay := delayOf(first, n, r.Asked, random)
	if !r.OfEvent() {
		return max(delay, spreadOut(min(time.Duration(waiting)*time.Second/failedPace, longestFailed), random))
	}
	least := min(time.Duration(waiting)*time.Second/refusedPace, longestRefused)
	if n > afterTries {
		least = max(least, slowest)
	}
	return max(delay, spreadOut(least, random))
}

// Aside is how long an event waits that has made way for others, while so many of its Subscription
// wait. random is from 0 to 1.
func Aside(waiting int, random float64) time.Duration {
	return spreadOut(min(max(aside, time.Duration(waiting)*time.Second/failedPace), longestFailed), random)
}

// After reads what a sink asks for: seconds, or a date. 0 if it asks for nothing.
func After(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

func delayOf(first time.Duration, n uint64, asked time.Duration, random float64) time.Duration {
	delay := min(first<<(min(max(n, 1), 30)-1), last) // 2^29 seconds do not overflow
	return max(spreadOut(delay, random), min(asked, longestAsked))
}

func spreadOut(delay time.Duration, random float64) time.Duration {
	return time.Duration(float64(delay) * (1 - spread + 2*spread*random))
}
