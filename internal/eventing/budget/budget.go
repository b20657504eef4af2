// Package budget bounds the bytes that a process holds for events.
package budget

import (
	"math"
	"slices"
	"sync"
)

// Budget bounds the bytes that this process holds for events: those that NATS was asked for, those
// that wait, and those that are being posted. Each Subscription may have as much as is free then:
// one that takes all it gets has half of it, two of them have a third each, and others find room at
// once.
type Budget struct {
	total int64

	connections Connections

	mu      sync.Mutex
	used    int64
	most    int64 // that was ever used
	posts   int64 // that have bytes for a connection
	waiting []*Share
	least   int64 // none of them waits for fewer bytes
	// closing says that idle connections are being closed.
	closing bool
}

// Connections are those to sinks.
type Connections interface {
	// Open is how many there are, those that are not in use among them.
	Open() int64
	// CloseIdle closes those that are not in use.
	CloseIdle()
}

const (
	// PerEvent is what an event needs in addition to its bytes, while this process has it.
	PerEvent = 4 << 10
	// perPost is what an event needs while it is posted, until NATS knows what came of it: a
	// goroutine, and a connection with its buffers.
	perPost = 36 << 10
	// perConnection is the part of that which stays while the connection is kept for the next
	// event.
	perConnection = 20 << 10
	// uncounted is how many idle connections no event has to make room for.
	uncounted = 1000
)

// Least is the smallest budget: the largest event has to find room while there are others.
const Least = 8 << 20

// Most is the largest budget. All of it may be on the way at the same time, over one connection,
// and nats-server closes a connection for which more than its max_pending waits to be sent: then
// all that was on the way comes when nobody has acknowledged it for long, and so do the events of
// all Subscriptions. The chart's max_pending has room for it.
const Most = 240 << 20

// New returns a Budget of so many bytes, or of the fewest that are enough, or Most. The connections
// are within it: idle ones are closed when events need their bytes. nil has none.
func New(total int64, to Connections) *Budget {
	return &Budget{total: min(max(total, Least), Most), connections: to}
}

// Usage is how many bytes are used, how many were ever used at the same time, and how many shares
// wait for some.
func (b *Budget) Usage() (used, most int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.most, len(b.waiting)
}

// Share is what one Subscription has of a budget. Without a budget, it has no bound.
type Share struct {
	of   *Budget
	used int64
	// needs is what it waits for, and room is called when it may be there. waits says that it does.
	needs int64
	room  func()
	waits bool
}

// NewShare returns a share of a budget, nil has no bound. room is called when there may be room for
// what was not had; with nil, Room has to say what is.
func NewShare(of *Budget, room func()) *Share { return &Share{of: of, room: room} }

// Room says what is called when there may be room, before anything is taken.
func (s *Share) Room(call func()) { s.room = call }

// Take takes so many bytes, if they may be had now. If not, room is called when they may be, once.
func (s *Share) Take(n int64) bool { return s.takeWith(n, 0) }

// TakePost is Take, with what it takes to post an event.
func (s *Share) TakePost(n int64) bool { return s.takeWith(n+perPost, 1) }

func (s *Share) takeWith(n, posts int64) bool {
	if s.of == nil {
		return true
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if !s.of.allows(s, n) {
		if s.needs = n; !s.waits {
			s.waits = true
			s.of.waiting = append(s.of.waiting, s)
		}
		s.of.least = min(s.of.least, n)
		return false
	}
	s.add(n)
	s.of.posts += posts
	s.of.closeIdle()
	return true
}

// Force takes bytes that are here already.
func (s *Share) Force(n int64) {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.add(n)
}

// Give gives bytes back.
func (s *Share) Give(n int64) { s.giveWith(n, 0) }

// GivePost gives back what TakePost took.
func (s *Share) GivePost(n int64) { s.giveWith(n+perPost, 1) }

func (s *Share) giveWith(n, posts int64) {
	if s.of == nil || n == 0 {
		return
	}
	s.of.mu.Lock()
	s.add(-n)
	s.of.posts -= posts
	called := s.of.call()
	s.of.mu.Unlock()
	for _, w := range called {
		go w.room() // the caller holds locks
	}
}

// call returns those that wait no more, since there are bytes for them. Thousands may wait, and
// most of what is given back is enough for one: the rest is not looked at. The caller holds the
// lock.
func (b *Budget) call() (called []*Share) {
	free, least := b.total-b.used, int64(math.MaxInt64)
	left := b.waiting[:0]
	for i, w := range b.waiting {
		if free < b.least {
			left = append(left, b.waiting[i:]...)
			least = b.least
			break
		}
		if w.needs > free || !b.allows(w, w.needs) {
			left = append(left, w)
			least = min(least, w.needs)
			continue
		}
		free -= w.needs
		w.waits = false
		called = append(called, w)
	}
	clear(b.waiting[len(left):])
	b.waiting, b.least = left, least
	return called
}

// Bound is what a request of so many bytes is bounded to; 0 without a budget.
func (s *Share) Bound(n int64) int64 {
	if s.of == nil {
		return 0
	}
	return n
}

// End lets a Share wait for nothing more.
func (s *Share) End() {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.waits = false
	s.of.waiting = slices.DeleteFunc(s.of.waiting, func(w *Share) bool { return w == s })
}

// add changes what is used. The caller holds the lock.
func (s *Share) add(n int64) {
	s.used += n
	s.of.used += n
	s.of.most = max(s.of.most, s.of.used)
}

// allows tells whether a Share may have more. The caller holds the lock.
func (b *Budget) allows(s *Share, n int64) bool { return s.used+n <= b.total-b.used }

// closeIdle closes the idle connections if the events need what these have. The caller holds the
// lock.
func (b *Budget) closeIdle() {
	if b.connections == nil || b.closing || b.used+max(b.connections.Open()-b.posts-uncounted, 0)*perConnection <= b.total {
		return
	}
	b.closing = true
	go func() { // each costs a call of the system
		b.connections.CloseIdle()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.closing = false
	}()
}
