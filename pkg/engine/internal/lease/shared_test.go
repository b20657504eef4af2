package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// seats returns two seats at one lock, and a lock of another process.
func seats(client *fake.Clientset) (shared *SharedLock, one, two *Seat, other *Lock) {
	shared = NewSharedLock()
	one, two = shared.Seat(), shared.Seat()
	own := fakeLock(client, "a")
	one.Sit(own)
	two.Sit(fakeLock(client, "unused"))
	return shared, one, two, fakeLock(client, "b")
}

func sit(t *testing.T, s *Seat, job string, peek bool) (contended bool) {
	t.Helper()
	if peek {
		if err := s.Peek(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	contended, err := s.Acquire(t.Context(), job, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return contended
}

// TestSeats: jobs of one process write under one Lease, and each closes its own mark.
func TestSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, one, two, other := seats(fake.NewClientset())
		if one.Wrote() || one.WasTaken() {
			t.Error("nothing was written yet")
		}
		if sit(t, one, "one", true) || sit(t, two, "two", true) {
			t.Error("nobody else has had it")
		}
		if one.Acquisition() != 1 || two.Acquisition() != 1 || !two.WasTaken() || !one.IsMarked("one") || !one.IsMarked("two") {
			t.Errorf("numbers %d, %d; marks %+v", one.Acquisition(), two.Acquisition(), shared.lock.OpenRuns())
		}
		if _, cancel, err := one.Guard(t.Context()); err != nil {
			t.Error(err)
		} else {
			cancel()
		}
		if !one.Wrote() || two.Wrote() {
			t.Error("one has written, and two has not")
		}
		one.Release("one")
		if one.IsMarked("one") || !one.IsMarked("two") {
			t.Error("what is closed is not marked any more")
		}
		if locked := func() error { _ = other.Peek(t.Context()); _, err := other.Acquire(t.Context(), "job", 0); return err }(); locked == nil {
			t.Error("the Lease is held until all are done")
		}
		two.Release()
		shared.Release()
		shared.Release() // there is nothing more to release
		mustAcquire(t, other)
		defer other.Release()
		if got := other.OpenRuns(); len(got) != 2 || got[1].Job != "two" {
			t.Errorf("marks %+v", got)
		}
	})
}

// TestSeatContended: what a job had read before somebody else wrote is stale, and what it read
// afterwards is not.
func TestSeatContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, one, two, other := seats(fake.NewClientset())
		mustAcquire(t, other)
		three := shared.Seat()
		for _, s := range []*Seat{one, two} {
			if err := s.Peek(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			time.Sleep(10 * time.Second)
			other.Release("job")
		}()
		if !sit(t, one, "one", false) || !sit(t, two, "two", false) {
			t.Error("another run has written since they read the Lease")
		}
		if sit(t, three, "three", true) {
			t.Error("it has read what it builds on under the Lease")
		}
		if one.Waited() != 10*time.Second || two.Waited() != 0 {
			t.Errorf("waited %s, %s", one.Waited(), two.Waited())
		}
		shared.Release()
	})
}

// TestSeatReads: the Lease is read once for all that build on it, and anew when they are done.
func TestSeatReads(t *testing.T) {
	client := fake.NewClientset()
	shared, one, two, _ := seats(client)
	for _, s := range []*Seat{one, two, one} {
		if err := s.Peek(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reads := func() int { return len(client.Actions()) }
	if reads() != 1 {
		t.Errorf("%d reads", reads())
	}
	one.Release()
	three := shared.Seat()
	if _ = three.Peek(t.Context()); reads() != 1 {
		t.Errorf("%d reads: two still builds on it", reads())
	}
	two.Release()
	three.Release()
	if _ = one.Peek(t.Context()); reads() != 2 {
		t.Errorf("%d reads", reads())
	}
}

// TestRevoke: a run that was given up writes nothing any more, nor closes a mark.
func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, one, two, _ := seats(fake.NewClientset())
		sit(t, one, "one", true)
		one.Revoke()
		two.Revoke()
		if _, _, err := one.Guard(t.Context()); !errors.Is(err, ErrRevoked) || one.Wrote() {
			t.Errorf("got %v", err)
		}
		if !errors.Is(one.LossCause(), ErrRevoked) || !one.WasTaken() {
			t.Errorf("got %v", one.LossCause())
		}
		if _, err := two.Acquire(t.Context(), "two", 0); !errors.Is(err, ErrRevoked) {
			t.Errorf("got %v", err)
		}
		one.Release("one")
		if !shared.Seat().IsMarked("one") {
			t.Error("its run is open")
		}
		if shared.Seat().LossCause() != nil {
			t.Error("the lock itself is not lost")
		}
		shared.Release()
	})
}

// TestSeatEnds: who waits for the turn at the lock stops with its run, and a mark is not waited
// for.
func TestSeatEnds(t *testing.T) {
	shared, one, _, _ := seats(fake.NewClientset())
	shared.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := one.Peek(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := one.Acquire(ctx, "one", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if one.IsMarked("one") {
		t.Error("nobody can tell")
	}
	<-shared.turn
	if _, err := one.Acquire(ctx, "one", 0); !errors.Is(err, context.Canceled) || shared.held {
		t.Errorf("a run that has ended takes the lock: %v", err)
	}
}

// TestWaitsForTheHolder: a Lease is taken as soon as it is released, and when it has expired.
func TestWaitsForTheHolder(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		holder func(l *Lock)
		after  time.Duration
	}{
		"Released": {"its holder releases it", func(l *Lock) {
			time.Sleep(7 * time.Second)
			l.Release("job")
		}, 7 * time.Second},
		"Killed": {"its holder is killed: it expires a second after its duration", func(l *Lock) {
			l.stop()
			<-l.stopped
		}, 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				holder, next := fakeLock(client, "a"), fakeLock(client, "b")
				mustAcquire(t, holder)
				began := time.Now()
				go tc.holder(holder)
				if err := next.Peek(t.Context()); err != nil {
					t.Fatal(err)
				}
				contended, err := next.Acquire(t.Context(), "job", time.Minute)
				if took := time.Since(began); err != nil || !contended || took != tc.after {
					t.Errorf("%s: after %s: contended %t, %v", tc.reason, took, contended, err)
				}
				next.Release("job")
			})
		})
	}
}
