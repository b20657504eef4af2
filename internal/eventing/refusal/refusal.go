// Package refusal logs a sample of the events that a sink did not accept.
package refusal

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// every is how often the log says of one Subscription that its sink refused an event. The next line
// says how many others there were.
const every = time.Minute

// Log is of one Subscription.
type Log struct {
	mu   sync.Mutex
	last time.Time
	left int
}

// Refusal is what is logged of an event: nothing of its data, and nothing of the sink's URL.
type Refusal struct {
	Subscription types.NamespacedName
	// ID and Type are the event's.
	ID, Type string
	// Answer is the status, or "error" without one, and Problem a text for people.
	Answer, Problem string
}

// Say logs a refusal, if none was logged for a while.
func (l *Log) Say(to *zap.Logger, message string, r Refusal, more ...zap.Field) {
	left, may := l.may(time.Now())
	if !may {
		return
	}
	to.Warn(message, append([]zap.Field{
		zap.Stringer("subscription", r.Subscription), zap.String("id", r.ID), zap.String("type", r.Type),
		zap.String("answer", r.Answer), zap.String("problem", r.Problem), zap.Int("othersSince", left),
	}, more...)...)
}

// may tells whether a refusal is logged now, and how many were left out before.
func (l *Log) may(now time.Time) (left int, may bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() && now.Sub(l.last) < every {
		l.left++
		return 0, false
	}
	left, l.last, l.left = l.left, now, 0
	return left, true
}
