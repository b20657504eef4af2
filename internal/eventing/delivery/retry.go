package delivery

import (
	"net/http"
	"strconv"
	"time"
)

const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
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
	refusedPace, failedPace       = 50, 200
	longestRefused, longestFailed = 10 * time.Minute, 2 * time.Minute
	// aside is the shortest delay of an event that has made way for others and was not sent.
	aside = 5 * time.Second
	// failures is after how many failures in a row a sink that cannot be reached is asked with one
	// event at a time only, and after a pause of up to longestPause.
	failures     = 3
	longestPause = 10 * time.Second
	// spread is the part of a delay that is random, to both sides: events that were refused
	// together are not sent together.
	spread = 0.2
)

// retryDelay is how long an event waits after it was refused for the n-th time, n from 1, and first
// after the first time. random is from 0 to 1. What the sink asked for counts if it is longer.
func retryDelay(first time.Duration, n uint64, asked time.Duration, random float64) time.Duration {
	delay := min(first<<(min(max(n, 1), 30)-1), lastRetry) // 2^29 seconds do not overflow
	return max(spreadOut(delay, random), min(asked, longestAsked))
}

func spreadOut(delay time.Duration, random float64) time.Duration {
	return time.Duration(float64(delay) * (1 - spread + 2*spread*random))
}

// repeatDelay is how long an event waits that was refused for the n-th time, while so many of its
// Subscription wait.
func repeatDelay(o outcome, first time.Duration, n uint64, waiting int, random float64) time.Duration {
	delay := retryDelay(first, n, o.after, random)
	if !refusesEvent(o) {
		return max(delay, spreadOut(min(time.Duration(waiting)*time.Second/failedPace, longestFailed), random))
	}
	least := min(time.Duration(waiting)*time.Second/refusedPace, longestRefused)
	if n > afterTries {
		least = max(least, slowest)
	}
	return max(delay, spreadOut(least, random))
}

// asideDelay is how long an event waits that has made way for others.
func asideDelay(waiting int, random float64) time.Duration {
	return spreadOut(min(max(aside, time.Duration(waiting)*time.Second/failedPace), longestFailed), random)
}

// refusesEvent tells whether the sink works, and does not want this event: it will hardly want it
// later.
func refusesEvent(o outcome) bool {
	code, err := strconv.Atoi(o.code)
	switch {
	case err != nil, code < 400, code > 499:
		return false
	default:
		return code != http.StatusRequestTimeout && code != http.StatusTooEarly && code != http.StatusTooManyRequests
	}
}

// reach is how often a sink could not be reached in a row, and until when it is left alone.
type reach struct {
	failed int
	until  time.Time
}

// note adds an outcome.
func (r *reach) note(o outcome, now time.Time) {
	if !o.unreachable {
		*r = reach{}
		return
	}
	if r.failed++; r.failed >= failures {
		r.until = now.Add(min(firstRetry<<min(r.failed-failures, 10), longestPause))
	}
}

// may tells whether an event may be posted now, while so many are.
func (r *reach) may(posted int, now time.Time) bool {
	return r.failed < failures || posted == 0 && !now.Before(r.until)
}

// next is when the sink is asked again, while events come again from a time on, or one is here;
// zero if that is not known.
func (r *reach) next(from time.Time, here bool, now time.Time) time.Time {
	if here {
		from = now
	}
	if !from.IsZero() && r.failed >= failures && from.Before(r.until) {
		return r.until
	}
	return from
}

// retryAfter reads what a sink asks for: seconds, or a date. 0 if it asks for nothing.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
