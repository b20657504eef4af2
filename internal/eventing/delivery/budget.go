package delivery

import (
	"slices"
	"sync"
)

// Budget bounds the bytes that this process holds for events: those that NATS was asked for, those
// that wait, and those that are being posted. Each Subscription may have as much as is free then:
// one that takes all it gets has half of it, two of them have a third each, and others find room at
// once.
type Budget struct {
	total int64

	mu      sync.Mutex
	used    int64
	most    int64 // that was ever used
	waiting []*share
}

// least is the smallest budget: the largest event has to find room while there are others.
const least = 8 << 20

// Most is the largest budget. All of it may be on the way at the same time, over one connection,
// and nats-server closes a connection for which more than its max_pending waits to be sent: then
// all that was on the way comes when nobody has acknowledged it for long, and so do the events of
// all Subscriptions. The chart's max_pending has room for it.
const Most = 240 << 20

// NewBudget returns a Budget of so many bytes, or of the fewest that are enough, or Most.
func NewBudget(total int64) *Budget { return &Budget{total: min(max(total, least), Most)} }

// share is what one Subscription has of a budget. Without a budget, it has no bound.
type share struct {
	of   *Budget
	used int64
	// needs is what it waits for, and room is called when it may be there.
	needs int64
	room  func()
}

// take takes so many bytes, if they may be had now. If not, room is called when they may be, once.
func (s *share) take(n int64) bool {
	if s.of == nil {
		return true
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if !s.of.allows(s, n) {
		if s.needs = n; !slices.Contains(s.of.waiting, s) {
			s.of.waiting = append(s.of.waiting, s)
		}
		return false
	}
	s.add(n)
	return true
}

// force takes bytes that are here already.
func (s *share) force(n int64) {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.add(n)
}

// give gives bytes back.
func (s *share) give(n int64) {
	if s.of == nil || n == 0 {
		return
	}
	s.of.mu.Lock()
	s.add(-n)
	free := s.of.total - s.of.used
	var called []*share
	s.of.waiting = slices.DeleteFunc(s.of.waiting, func(w *share) bool {
		if w.needs > free || !s.of.allows(w, w.needs) {
			return false
		}
		free -= w.needs
		called = append(called, w)
		return true
	})
	s.of.mu.Unlock()
	for _, w := range called {
		go w.room() // the caller holds locks
	}
}

// bound is what a request of so many bytes is bounded to; 0 without a budget.
func (s *share) bound(n int64) int64 {
	if s.of == nil {
		return 0
	}
	return n
}

// end lets a share wait for nothing more.
func (s *share) end() {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.waiting = slices.DeleteFunc(s.of.waiting, func(w *share) bool { return w == s })
}

// add changes what is used. The caller holds the lock.
func (s *share) add(n int64) {
	s.used += n
	s.of.used += n
	s.of.most = max(s.of.most, s.of.used)
}

// allows tells whether a share may have more. The caller holds the lock.
func (b *Budget) allows(s *share, n int64) bool { return s.used+n <= b.total-b.used }
