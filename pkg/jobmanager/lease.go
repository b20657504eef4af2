package jobmanager

import (
	"sync"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

// lease is the one Lease of all jobs that a manager runs at a time. They have one
// identity, so that jobs with a Lease each would take it from one another.
type lease struct {
	mu     sync.Mutex
	users  int
	shared *engine.SharedLock
}

// join returns the lock for jobs that run until leave.
func (l *lease) join() *engine.SharedLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A new one each time: a lock that was lost stays lost, and an abandoned run may
	// still have a seat at the former one.
	if l.users == 0 {
		l.shared = engine.NewSharedLock()
	}
	l.users++
	return l.shared
}

// leave releases the Lease after the last user.
func (l *lease) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 {
		l.shared.Release()
	}
}
