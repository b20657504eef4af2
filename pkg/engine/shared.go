package engine

import (
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/execute"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
)

// SignalError is the cause of a context that a signal ended.
type SignalError = act.SignalError

// Progress is told how far a run is.
type Progress = execute.Progress

// LockProgress is a Progress that is told of the lock, too.
type LockProgress interface {
	Progress
	// WaitsForLock is called when a run begins to wait for the process that holds the lock, named
	// by its identity, and with "" when the wait has ended.
	WaitsForLock(holder string)
}

// Wait is an object that a run waits for.
type Wait = execute.Wait

// SharedLock lets several jobs of one process write under one Lease: the first one that
// writes takes it, and it is held until Release.
type SharedLock = lease.SharedLock

// Seat is one run's place at a SharedLock: see Options.Seat.
type Seat = lease.Seat

// LockedError says that another run holds the lock.
type LockedError = lease.LockedError

// ErrRevoked is the cause of a run whose Seat was revoked.
var ErrRevoked = lease.ErrRevoked

// NewSharedLock returns a lock that nobody holds. All engines that use it must be
// of one cluster, state namespace and identity.
func NewSharedLock() *SharedLock { return lease.NewSharedLock() }
