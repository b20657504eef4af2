package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// Lease is the lock as one run uses it: its own, or a seat at a shared one.
type Lease interface {
	Peek(context.Context) error
	Acquire(ctx context.Context, job string, patience time.Duration) (contended bool, err error)
	Guard(context.Context) (context.Context, context.CancelFunc, error)
	WasTaken() bool
	Acquisition() int
	LossCause() error
	// Lost is closed when the Lease is lost while it is held.
	Lost() <-chan struct{}
	// isMarked says whether the Lease says that a run of the job is open.
	IsMarked(job string) bool
	// release is told the jobs whose journals are all closed: their marks go.
	Release(closed ...string)
}

var (
	_ Lease = (*Lock)(nil)
	_ Lease = (*Seat)(nil)
)

// SharedLock lets several jobs of one process write under one Lease: the one that
// writes first takes it, and it is held until Release. Runs of one process that
// had a lock each would take it from one another, or wait for one another for
// ever.
type SharedLock struct {
	// turn is taken by the one that reads, takes or releases the Lease.
	turn chan struct{}

	lock *Lock
	held bool
	// contended says that somebody else had written since the Lease was read.
	contended bool
	// reading counts the runs that build on what was read of the Lease.
	reading int
	read    bool
}

// NewSharedLock returns a lock that nobody holds. All engines that use it must be
// of one cluster, state namespace and identity.
func NewSharedLock() *SharedLock {
	return &SharedLock{turn: make(chan struct{}, 1)}
}

func (s *SharedLock) enter(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *SharedLock) leave() { <-s.turn }

// Release gives the Lease back, if it is held, so that others may write: while a
// component is deployed, whose own hooks need it, and at the end. No run may be
// under way, but for those whose seat was revoked.
func (s *SharedLock) Release() {
	s.turn <- struct{}{}
	defer s.leave()
	if s.held {
		s.lock.Release()
	}
	s.held, s.read, s.reading = false, false, 0
}

// Seat returns the place of one job at the lock, for Options.Seat.
func (s *SharedLock) Seat() *Seat { return &Seat{shared: s} }

// ErrRevoked says that a run writes after it was given up.
var ErrRevoked = errors.New("this run was given up, and may not write any more")

// Seat is one run's place at a SharedLock.
type Seat struct {
	shared *SharedLock

	// early: what the run builds on was read before the Lease was taken.
	early, joined bool
	// marked: the Lease was taken, and says so.
	marked bool

	mu      sync.Mutex
	revoked bool
	wrote   bool
	waited  time.Duration
	since   time.Time // of a wait that goes on
}

// Revoke lets nothing be written any more by the run that has the seat, neither
// objects nor journal, report or Lease. A call that is on its way goes on.
func (s *Seat) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = true
}

// Wrote says whether the run has begun to write.
func (s *Seat) Wrote() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrote
}

// Waited is how long the run has waited for others to release the lock.
func (s *Seat) Waited() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.waited
	}
	return s.waited + time.Since(s.since)
}

func (s *Seat) isRevoked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked
}

// Sit makes the lock of the first engine the one of all.
func (s *Seat) Sit(own *Lock) Lease {
	s.shared.turn <- struct{}{}
	defer s.shared.leave()
	if s.shared.lock == nil {
		s.shared.lock = own
	}
	return s
}

// Peek implements Lease.
func (s *Seat) Peek(ctx context.Context) error {
	if err := s.shared.enter(ctx); err != nil {
		return err
	}
	defer s.shared.leave()
	sh := s.shared
	if sh.held {
		s.early = false
		return nil
	}
	s.early = true
	if !s.joined {
		s.joined = true
		sh.reading++
	}
	if sh.read {
		return nil
	}
	if err := sh.lock.Peek(ctx); err != nil {
		return err
	}
	sh.read = true
	return nil
}

// Acquire implements Lease.
func (s *Seat) Acquire(ctx context.Context, job string, patience time.Duration) (contended bool, err error) {
	began := time.Now()
	s.mu.Lock()
	s.since = began
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waited += time.Since(began)
		s.since = time.Time{}
	}()
	if err := s.shared.enter(ctx); err != nil {
		return false, err
	}
	defer s.shared.leave()
	switch {
	case s.isRevoked():
		return false, k8sutil.Permanent(ErrRevoked)
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	}
	sh := s.shared
	if sh.held {
		err = sh.lock.mark(ctx, job)
	} else {
		sh.contended, err = sh.lock.Acquire(ctx, job, patience)
	}
	if err != nil {
		return sh.contended, err
	}
	sh.held, s.marked = true, true
	return s.early && sh.contended, nil
}

// Guard implements Lease.
func (s *Seat) Guard(ctx context.Context) (context.Context, context.CancelFunc, error) {
	s.mu.Lock()
	revoked := s.revoked
	s.wrote = s.wrote || !revoked
	s.mu.Unlock()
	if revoked {
		return nil, nil, k8sutil.Permanent(ErrRevoked)
	}
	return s.shared.lock.Guard(ctx)
}

// WasTaken is true for a revoked seat, too: then not even a report is written
// past the guard.
func (s *Seat) WasTaken() bool { return s.isRevoked() || s.shared.lock.WasTaken() }

// Acquisition implements Lease.
func (s *Seat) Acquisition() int { return s.shared.lock.Acquisition() }

// LossCause implements Lease.
func (s *Seat) LossCause() error {
	if s.isRevoked() {
		return ErrRevoked
	}
	return s.shared.lock.LossCause()
}

// Lost implements Lease.
func (s *Seat) Lost() <-chan struct{} { return s.shared.lock.Lost() }

// IsMarked does not wait while another job of this process waits for the Lease: to remove
// a mark is not urgent.
func (s *Seat) IsMarked(job string) bool {
	select {
	case s.shared.turn <- struct{}{}:
		defer s.shared.leave()
		return s.shared.lock.IsMarked(job)
	default:
		return false
	}
}

// Release leaves the Lease to the others. Its next renewal removes the marks.
func (s *Seat) Release(closed ...string) {
	s.shared.turn <- struct{}{}
	defer s.shared.leave()
	if s.marked && s.shared.held && !s.isRevoked() {
		for _, job := range closed {
			s.shared.lock.unmark(job)
		}
	}
	if s.joined {
		s.joined = false
		if s.shared.reading--; s.shared.reading == 0 && !s.shared.held {
			s.shared.read = false
		}
	}
}
