package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
)

// fakeLock is the lock of one process, at a Lease without a cluster.
func fakeLock(client *fake.Clientset, identity string) *Lock {
	direct := func(ctx context.Context, op func(context.Context) error) error { return op(ctx) }
	return New(client.CoordinationV1(), enginetest.Names, "state", identity, 20*time.Second, zap.NewNop(), direct, &k8sutil.Account{})
}

func mustAcquire(t *testing.T, l *Lock) (contended bool) {
	t.Helper()
	if err := l.Peek(t.Context()); err != nil {
		t.Fatal(err)
	}
	contended, err := l.Acquire(t.Context(), "job", 0)
	if err != nil {
		t.Fatal(err)
	}
	return contended
}

// blocked says whether a write would have to wait now; if not, how long it may take.
func blocked(t *testing.T, l *Lock) (bool, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	call, done, err := l.Guard(ctx)
	if err != nil {
		return true, 0
	}
	defer done()
	end, _ := call.Deadline()
	return false, time.Until(end)
}

// TestDeadline: the earlier of the two clocks counts. Fails on the commit before: it
// knew the monotonic clock only, which stops while the machine is suspended.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			reason          string
			monotonic, wall time.Duration
			left            time.Duration
		}{
			"Awake":     {"both agree", 10 * time.Second, 10 * time.Second, 10 * time.Second},
			"Suspended": {"the machine slept for an hour: only the wall clock went on", 10 * time.Second, 10*time.Second - time.Hour, 10*time.Second - time.Hour},
			"SetBack":   {"somebody set the wall clock back: the monotonic one went on", 10 * time.Second, time.Hour, 10 * time.Second},
		} {
			now := time.Now()
			d := deadline{monotonic: now.Add(tc.monotonic), wall: now.Round(0).Add(tc.wall)}
			if got := d.left(); got != tc.left {
				t.Errorf("%s: %s: %s are left", name, tc.reason, got)
			}
			l := fakeLock(fake.NewClientset(), "a")
			l.held, l.deadline = true, d
			if got, _ := blocked(t, l); got != (tc.left < 0) {
				t.Errorf("%s: %s: a write has to wait: %t", name, tc.reason, got)
			}
		}
		now := time.Now()
		if d := deadlineAfter(now, 10*time.Second); d.left() != 10*time.Second || d.wall != now.Round(0).Add(10*time.Second) {
			t.Errorf("after: %+v", d)
		}
	})
}

// TestHolderStops (M16b): a holder that cannot renew stops writing before its Lease is
// over, and no write may last longer than that.
func TestHolderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var silent atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return silent.Load(), nil, errors.New("no answer")
		})
		l := fakeLock(client, "a")
		mustAcquire(t, l)
		defer l.Release()
		if wait, limit := blocked(t, l); wait || limit > 15*time.Second {
			t.Errorf("at once: it waits %t, a write may take %s", wait, limit)
		}
		// Renewals keep it going.
		time.Sleep(time.Minute)
		if wait, limit := blocked(t, l); wait || limit < 10*time.Second || limit > 15*time.Second {
			t.Errorf("after a minute of renewals: it waits %t, a write may take %s", wait, limit)
		}
		silent.Store(true)
		time.Sleep(8 * time.Second)
		if wait, limit := blocked(t, l); wait || limit > 8*time.Second {
			t.Errorf("8 s after the last renewal: it waits %t, a write may take %s", wait, limit)
		}
		time.Sleep(8 * time.Second)
		if wait, _ := blocked(t, l); !wait {
			t.Error("16 s after the last renewal of 20 s it still writes")
		}
		silent.Store(false)
		time.Sleep(5 * time.Second)
		if wait, _ := blocked(t, l); wait {
			t.Error("it renewed, and does not write")
		}
	})
}

// TestContended (M15): a Lease that expired while the plan was made had a holder who
// wrote meanwhile: what was read before is stale.
func TestContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		killed := fakeLock(client, "killed")
		if mustAcquire(t, killed) {
			t.Error("nobody had the first one")
		}
		killed.stop() // it renews no more
		<-killed.stopped
		next := fakeLock(client, "next")
		if err := next.Peek(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the plan takes its time
		contended, err := next.Acquire(t.Context(), "job", 0)
		if err != nil || !contended {
			t.Errorf("contended: %t, %v", contended, err)
		}
		if killed.Acquisition() != 1 || next.Acquisition() != 2 {
			t.Errorf("numbers %d, %d", killed.Acquisition(), next.Acquisition())
		}
		next.Release()
		if after := fakeLock(client, "after"); mustAcquire(t, after) || after.Acquisition() != 3 {
			t.Errorf("one that was given back has no holder; number %d", after.Acquisition())
		} else {
			after.Release()
		}
	})
}

// TestHeldByAnother: without patience it is locked, and names the holder.
func TestHeldByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		l := fakeLock(client, "a")
		mustAcquire(t, l)
		defer l.Release()
		other := fakeLock(client, "b")
		if err := other.Peek(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := other.Acquire(t.Context(), "job", 0)
		locked, ok := errors.AsType[*LockedError](err)
		if !ok || locked.Holder != "a" || locked.Lost {
			t.Errorf("got %v", err)
		}
	})
}

// TestLostLease: a Lease that somebody deletes or takes stops the run, which says which.
// Fails on the commit before: a deleted one was told as one that was taken.
func TestLostLease(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(t *testing.T, client *fake.Clientset, taken *atomic.Bool)
		want LockedError
	}{
		"Deleted": {func(t *testing.T, client *fake.Clientset, _ *atomic.Bool) {
			if err := client.CoordinationV1().Leases("state").Delete(t.Context(), enginetest.Names.Program, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, LockedError{Lost: true, Deleted: true}},
		"Taken": {func(t *testing.T, client *fake.Clientset, taken *atomic.Bool) {
			leases := client.CoordinationV1().Leases("state")
			live, err := leases.Get(t.Context(), enginetest.Names.Program, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			live.Spec.HolderIdentity = new("thief")
			if _, err := leases.Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			taken.Store(true)
		}, LockedError{Lost: true, Holder: "thief"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				// The fake does not compare versions.
				var taken atomic.Bool
				client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
					return taken.Load(), nil, apierrors.NewConflict(a.GetResource().GroupResource(), enginetest.Names.Program, errors.New("it was changed"))
				})
				l := fakeLock(client, "a")
				mustAcquire(t, l)
				defer l.Release()
				tc.lose(t, client, &taken)
				time.Sleep(5 * time.Second)
				lost, ok := errors.AsType[*LockedError](l.LossCause())
				if !ok || *lost != tc.want {
					t.Errorf("got %v", l.LossCause())
				}
				if _, _, err := l.Guard(t.Context()); err == nil {
					t.Error("it still writes")
				}
			})
		})
	}
}

// TestMarkSurvivesConflicts: a person who edits the Lease meanwhile does not take the
// mark away, nor the lock.
func TestMarkSurvivesConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var conflicts atomic.Int32
		client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return conflicts.Add(-1) >= 0, nil, apierrors.NewConflict(a.GetResource().GroupResource(), enginetest.Names.Program, errors.New("it was changed"))
		})
		l := fakeLock(client, "a")
		l.Past = func(context.Context) ([]string, int, error) { return []string{"killed"}, 7, nil }
		mustAcquire(t, l)
		conflicts.Store(2)
		if err := l.mark(t.Context(), "second"); err != nil {
			t.Fatal(err)
		}
		if got := l.OpenRuns(); len(got) != 3 || got[0].Job != "job" || got[1].Job != "killed" || got[2].Job != "second" || got[2].Since.IsZero() {
			t.Errorf("marks %+v", got)
		}
		if l.Acquisition() != 8 {
			t.Errorf("a Lease that was deleted goes on from the highest number: %d", l.Acquisition())
		}
		l.unmark("second")
		if l.IsMarked("second") || !l.IsMarked("killed") {
			t.Error("what is closed is not marked any more, and what another left is")
		}
		conflicts.Store(1)
		l.Release("job")
		if err := l.Peek(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := l.OpenRuns(); len(got) != 1 || got[0].Job != "killed" || l.Seen.HolderIdentity != "" {
			t.Errorf("after the release: %+v, held by %q", got, l.Seen.HolderIdentity)
		}
		if l.LossCause() != nil {
			t.Error(l.LossCause())
		}
	})
}

// TestTakenMeanwhile: whoever meets another who takes the Lease looks again, and what was read
// before is stale; any other answer is an error.
func TestTakenMeanwhile(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, tc := range map[string]struct {
		answer error
		fails  bool
	}{
		"Conflict":      {apierrors.NewConflict(leases, enginetest.Names.Program, errors.New("it was changed")), false},
		"AlreadyExists": {apierrors.NewAlreadyExists(leases, enginetest.Names.Program), false},
		"NotFound":      {apierrors.NewNotFound(leases, enginetest.Names.Program), false},
		"Busy":          {apierrors.NewTooManyRequestsError("later"), false},
		"Forbidden":     {apierrors.NewForbidden(leases, enginetest.Names.Program, errors.New("no")), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				var once atomic.Bool
				client.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					return once.CompareAndSwap(false, true), nil, tc.answer
				})
				l := fakeLock(client, "a")
				if err := l.Peek(t.Context()); err != nil {
					t.Fatal(err)
				}
				var told []string
				l.Waiting = func(holder string) { told = append(told, holder) }
				contended, err := l.Acquire(t.Context(), "job", time.Minute)
				if len(told)%2 != 0 || len(told) > 0 && (told[0] == "" || told[len(told)-1] != "") {
					t.Errorf("told of the lock: %q", told)
				}
				if !contended || (err != nil) != tc.fails {
					t.Errorf("contended %t, %v", contended, err)
				}
				l.Release("job")
			})
		})
	}
}
