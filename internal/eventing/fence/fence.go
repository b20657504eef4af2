// Package fence prevents a paused process from writing after another process may have become the
// leader.
package fence

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the election.
const (
	LeaseDuration = 15 * time.Second
	RenewDeadline = 10 * time.Second
	RetryPeriod   = 2 * time.Second
)

// TakenOver is when the election has a Lease at the latest that another one has and does not renew
// any more, in whole seconds. seen is when the Lease was first seen as it is, by this process. The
// election looks each RetryPeriod and up to leaderelection.JitterFactor of it later, so that it may
// have looked just before the Lease ended.
func TakenOver(seen time.Time) time.Time {
	const looks = RetryPeriod + time.Duration(leaderelection.JitterFactor*float64(RetryPeriod))
	return seen.Add(LeaseDuration + looks + time.Second - 1).Truncate(time.Second)
}

// Fence is the Lease with the time of its last renewal. A process that was paused for longer than
// the Lease is valid would go on with the write that it was about to do; the fence refuses that.
type Fence struct {
	resourcelock.Interface
	// Deadline is how old the last renewal may be; 0: RenewDeadline.
	Deadline time.Duration
	renewed  atomic.Int64
}

// New returns the Lease of a process, whose identity begins with its name. A request for it takes
// at most half of the deadline.
func New(cfg *rest.Config, namespace, name, process string, deadline time.Duration) (*Fence, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = deadline / 2
	leases, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Fence{Deadline: deadline, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: process + "_" + string(uuid.NewUUID())},
	}}, nil
}

// Guard refuses each request that writes when Check does.
func (f *Fence) Guard(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := f.Check(); err != nil {
				return nil, err
			}
		}
		return next.RoundTrip(r)
	})
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

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

// Check is an error if another process may lead by now.
func (f *Fence) Check() error {
	if f.Interface == nil {
		return nil // there is no election
	}
	if since := time.Since(time.Unix(0, f.renewed.Load())); since > cmp.Or(f.Deadline, RenewDeadline) {
		return fmt.Errorf("the Lease was renewed %s ago: another process may act by now", since.Round(time.Second))
	}
	return nil
}
