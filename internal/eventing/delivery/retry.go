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
	// spread is the part of a delay that is random, to both sides: events that were refused together are not sent together.
	spread = 0.2
)

// retryDelay is how long an event waits after it was refused for the n-th time, n from 1. random is from 0 to 1. What the sink asked for
// counts if it is longer.
func retryDelay(n uint64, asked time.Duration, random float64) time.Duration {
	delay := lastRetry
	if n < 6 { // 2^5 seconds are more than the last delay
		delay = min(firstRetry<<(max(n, 1)-1), lastRetry)
	}
	delay = time.Duration(float64(delay) * (1 - spread + 2*spread*random))
	return max(delay, min(asked, longestAsked))
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
