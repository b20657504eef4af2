package delivery

import (
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/retry"
)

const (
	// failures is after how many failures in a row a sink that cannot be reached is asked with one
	// event at a time only, and after a pause of up to longestPause.
	failures     = 3
	longestPause = 10 * time.Second
)

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
		r.until = now.Add(min(retry.First<<min(r.failed-failures, 10), longestPause))
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
