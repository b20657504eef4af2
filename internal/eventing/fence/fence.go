// Package fence keeps a process that was paused from acting when another one may lead by now.
package fence

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the election.
const (
	LeaseDuration = 15 * time.Second
	RenewDeadline = 10 * time.Second
	RetryPeriod   = 2 * time.Second
)

// Fence is the Lease with the time of its last renewal. A process that was paused for longer than the Lease is valid would go on with the
// write that it was about to do; the fence refuses that.
type Fence struct {
	resourcelock.Interface
	renewed atomic.Int64
}

// Create and Update note the time before the request: what the API server stored is not older.
func (f *Fence) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.noting(func() error { return f.Interface.Create(ctx, record) })
}

// Update is like Create.
func (f *Fence) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.noting(func() error { return f.Interface.Update(ctx, record) })
}

func (f *Fence) noting(write func() error) error {
	at := time.Now()
	err := write()
	if err == nil {
		f.renewed.Store(at.UnixNano())
	}
	return err
}

// Check is an error if another operator may lead by now.
func (f *Fence) Check() error {
	if f.Interface == nil {
		return nil // there is no election
	}
	if since := time.Since(time.Unix(0, f.renewed.Load())); since > RenewDeadline {
		return fmt.Errorf("the Lease was renewed %s ago: another operator may act by now", since.Round(time.Second))
	}
	return nil
}
