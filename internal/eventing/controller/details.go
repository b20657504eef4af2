package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/fleet"
)

const (
	// numbersEvery is how often the numbers of one Subscription are written at most, and
	// answersEvery another answer of its sink.
	numbersEvery = 30 * time.Second
	answersEvery = 10 * time.Second
	// Each round writes the details of at most so many Subscriptions: each write of a status lets
	// the operator look at everything, and one look is enough for all of a round.
	roundEvery   = 12 * time.Second
	mostInARound = 60
	// waitsLong is from when on an event counts as one that waits. Until then it is on its way:
	// with those, the numbers of each Subscription with events would change all the time.
	waitsLong = 30 * time.Second
	// A number is written when it is more than a part of itself off: 1/worthPart.
	worthPart = 5
)

// details has what the status of Subscriptions says of their delivery, beyond yes and no. Of a
// thousand sinks that fail together, or whose answers change all the time, each would be written
// for each change. So these writes have rounds.
type details struct {
	mu    sync.Mutex
	of    map[types.NamespacedName]*detail
	round time.Time
}

// detail is that of one Subscription.
type detail struct {
	// written is what its status has. changed is when this process wrote other numbers, and at when
	// it wrote anything; zero if it has not.
	written     *eventingv1alpha2.DeliveryStatus
	changed, at time.Time
	// is what would be written now; nil if nobody has looked. waiting are all events of it, and
	// since when there are some.
	is      *eventingv1alpha2.DeliveryStatus
	waiting uint64
	since   time.Time
	// taken is up to which sequence all events were taken, and still since when it is that one
	// while some wait.
	taken uint64
	still time.Time
	// next is the time of the next try that the status names. differs says that the message of the
	// status is another one than what it would be now, and answer that the answer of the sink is.
	next            time.Time
	differs, answer bool
	// unsure says that the status has what a former process has seen of the sink.
	unsure bool
	// turn says that it may be written now.
	turn bool
}

// found is what NATS says of the events of a Subscription: those that it has not sent, those that
// were sent and not taken, how many of these were sent again, and up to which sequence all were
// taken. numbers is what this process knows.
type found struct {
	unsent      uint64
	unanswered  int
	redelivered int
	taken       uint64
	numbers     fleet.Numbers
	deadLetters int64
}

// get returns the detail of a Subscription. The caller holds the lock.
func (d *details) get(key types.NamespacedName) *detail {
	x := d.of[key]
	if x == nil {
		x = &detail{}
		d.of[key] = x
	}
	return x
}

func (d *details) forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, key)
}

// status is what a status is to say that has something already: the numbers of the last look at
// NATS. Without one, what is there stays. Where nobody can look, there is nothing. waits is false
// if it is known that no event waits.
func (d *details) status(key types.NamespacedName, has *eventingv1alpha2.DeliveryStatus, canLook bool) (is *eventingv1alpha2.DeliveryStatus, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.get(key)
	x.written = has
	switch {
	case !canLook:
		x.is, x.waiting, x.since = nil, 0, time.Time{}
		return nil, false
	case x.is == nil:
		return has, true
	default:
		return x.is, x.waiting > 0
	}
}

// mayWrite tells whether a status that differs in details may be written now. differs says that the
// message does, and answer that the answer of the sink does.
func (d *details) mayWrite(key types.NamespacedName, differs, answer bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.get(key)
	x.differs, x.answer = differs, answer
	return x.turn
}

// wrote notes what a status has now, by this process if it is new. next is the time of the next try
// that it names.
func (d *details) wrote(key types.NamespacedName, has *eventingv1alpha2.DeliveryStatus, next, now time.Time, isNew bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.get(key)
	if isNew {
		x.at = now
		if !equality.Semantic.DeepEqual(x.written, has) {
			x.changed = now
		}
	}
	x.written, x.turn, x.differs, x.answer, x.next = has, false, false, false, next
}

// keeps notes whether a status has what a former process has seen of the sink.
func (d *details) keeps(key types.NamespacedName, unsure bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.get(key).unsure = unsure
}

// add takes over a look. It tells whether the status has to be written without waiting for a round:
// no event waits any more that the sink was said not to take. age is that of the oldest event that
// waits.
func (d *details) add(key types.NamespacedName, l found, now time.Time) (atOnce bool, age time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.of[key]
	if x == nil {
		return false, 0 // it was not reconciled yet
	}
	x.waiting = l.unsent + uint64(max(l.unanswered, 0)) //nolint:gosec // not negative
	if x.waiting == 0 {
		x.since = time.Time{}
	} else if x.since.IsZero() {
		x.since = now
	}
	if x.waiting == 0 || l.taken != x.taken || x.still.IsZero() {
		x.taken, x.still = l.taken, now
	}
	if x.is == nil || now.Sub(x.changed) >= numbersEvery {
		x.is = x.numbers(l, now)
	}
	return x.unsure && x.waiting == 0, x.age(l, now)
}

// age is how long ago the oldest event was published that waits. While that is not known, because
// nobody has it, it is how long no event was taken.
func (x *detail) age(l found, now time.Time) time.Duration {
	if x.waiting == 0 {
		return 0
	}
	oldest := x.oldest(l.numbers)
	if oldest.IsZero() {
		oldest = x.still
	}
	return max(now.Sub(oldest), 0)
}

// oldest is when the oldest event was published that waits, as far as that is known: a process that
// has just begun takes what the status has.
func (x *detail) oldest(known fleet.Numbers) time.Time {
	if w := x.written; !known.Complete && w != nil && w.Oldest != nil && (known.Oldest.IsZero() || w.Oldest.Time.Before(known.Oldest)) {
		return w.Oldest.Time
	}
	return known.Oldest
}

// numbers are those of a look.
func (x *detail) numbers(l found, now time.Time) *eventingv1alpha2.DeliveryStatus {
	is := &eventingv1alpha2.DeliveryStatus{DeadLetters: l.deadLetters}
	if x.waiting == 0 {
		return is
	}
	known := l.numbers
	is.Repeating = known.Repeating
	if !known.Complete {
		is.Repeating = max(is.Repeating, int64(min(l.redelivered, l.unanswered)))
	}
	oldest := x.oldest(known)
	since := oldest
	if since.IsZero() {
		since = x.since
	}
	if is.Repeating == 0 && now.Sub(since) < waitsLong {
		return is
	}
	is.Backlog = int64(min(x.waiting, 1<<62)) //nolint:gosec // bounded
	if !oldest.IsZero() {
		at := metav1.NewTime(oldest.Truncate(time.Second))
		is.Oldest = &at
	}
	return is
}

// next begins a round if it is time for one, and returns those whose turn it is: first those whose
// status has another answer than their sink, then those that were written longest ago.
func (d *details) next(now time.Time) (turns []types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.round) < roundEvery {
		return nil
	}
	d.round = now
	for key, x := range d.of {
		if x.wants(now) {
			turns = append(turns, key)
		}
	}
	slices.SortFunc(turns, func(a, b types.NamespacedName) int {
		x, y := d.of[a], d.of[b]
		if x.answer != y.answer {
			if x.answer {
				return -1
			}
			return 1
		}
		return x.at.Compare(y.at)
	})
	turns = turns[:min(len(turns), mostInARound)]
	for _, key := range turns {
		d.of[key].turn = true
	}
	return turns
}

// wants tells whether a status needs another write for its details.
func (x *detail) wants(now time.Time) bool {
	switch {
	case x.answer && now.Sub(x.at) >= answersEvery:
		return true
	case now.Sub(x.at) >= numbersEvery && (x.differs || !x.next.IsZero() && now.After(x.next)):
		return true
	case x.is == nil:
		return false
	default:
		return x.written == nil || worth(*x.written, *x.is, now)
	}
}

// worth tells whether other numbers are worth a write.
func worth(has, is eventingv1alpha2.DeliveryStatus, now time.Time) bool {
	return far(has.Backlog, is.Backlog) || far(has.Repeating, is.Repeating) || far(has.DeadLetters, is.DeadLetters) || older(has.Oldest, is.Oldest, now)
}

// far tells whether one of two numbers is 0, or the second is more than a part of the first off.
func far(has, is int64) bool {
	off := max(has-is, is-has)
	return (has == 0) != (is == 0) || off > has/worthPart
}

// older tells whether the time of the oldest event is off by more than a part of its age, and more
// than events take that are on their way.
func older(has, is *metav1.Time, now time.Time) bool {
	if has == nil || is == nil {
		return has != is
	}
	return has.Sub(is.Time).Abs() > max(now.Sub(is.Time)/worthPart, waitsLong)
}
