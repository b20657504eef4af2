package suite

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
)

// heldLease is long enough for a call to be held for some seconds: a run gives
// up a call that outlasts its lease.
const heldLease = "--lease-duration=10s"

// midway starts a run and returns it in the middle of its work: its first change
// is made, and the next ones are on their way and held.
func (s *Subject) midway(t *testing.T, args ...string) (*Process, *faultproxy.Proxy, *faultproxy.Hold) {
	t.Helper()
	proxy, kubeconfig := s.proxy(t)
	var n atomic.Int32
	hold := proxy.Hold(func(r faultproxy.Request) bool { return s.works(r) && n.Add(1) > 1 })
	p := s.start(t, kubeconfig, "run", args...)
	p.Await(hold.Arrived(), "its second change (the suite needs two)")
	return p, proxy, hold
}

// aMoment is for a process to take note of what it was told or has read; nothing
// outside shows that it did.
func aMoment() { time.Sleep(time.Second) }

// TwoRuns starts a second run while the first is at work: the second must end
// with exit code 5 and change nothing, and the first must finish.
func TwoRuns(t *testing.T, subject Subject) {
	s := subject.with(t)
	s.reset(t)
	first, _, hold := s.midway(t, heldLease)

	proxy, kubeconfig := s.proxy(t)
	second := s.start(t, kubeconfig, "run", "--lock-wait=2s").outcome()
	second.mustExit(t, migration.ExitLocked)
	if n := proxy.Writes(); n > 0 {
		t.Errorf("the second run made %d writes: %v", n, writes(proxy.Log()))
	}

	hold.Release()
	first.outcome().mustExit(t, migration.ExitOK)
	s.done(t)
}

// SecondRunWaits starts a second run while the first is at work, and lets the
// first finish: the second must wait for that, and find nothing left to do.
func SecondRunWaits(t *testing.T, subject Subject) {
	s := subject.with(t)
	s.reset(t)
	first, _, hold := s.midway(t, heldLease)

	proxy, kubeconfig := s.proxy(t)
	second := s.start(t, kubeconfig, "run")
	// It has looked at the Lease before it waits.
	looked := make(chan struct{})
	go func() {
		if proxy.Wait(t.Context(), func(log []faultproxy.Entry) bool {
			for _, e := range log {
				if e.Is("leases", "watch", "list") {
					return true
				}
			}
			return false
		}) == nil {
			close(looked)
		}
	}()
	second.Await(looked, "it waited for the lock")
	hold.Release()
	first.outcome().mustExit(t, migration.ExitOK)
	out := second.outcome()
	out.mustExit(t, migration.ExitOK)
	for _, e := range proxy.Log() {
		if s.works(e.Request) {
			t.Errorf("the second run repeated a change: %s", e.Request)
		}
	}
	s.done(t)
}

// LockTheft gives the Lease of a run to another holder while calls of it are on
// their way. From when it can know, the run must not write any more, and say so;
// a later run finishes the migration.
func LockTheft(t *testing.T, subject Subject) {
	s := subject.with(t)
	s.reset(t)
	p, proxy, hold := s.midway(t, heldLease)

	leases := s.client(t).CoordinationV1().Leases(s.StateNamespace)
	stolen := s.steal(t, "thief")
	// The API server tells the run when it renews.
	told := make(chan struct{})
	go func() {
		if proxy.Wait(t.Context(), toldOfTheft) == nil {
			close(told)
		}
	}()
	p.Await(told, "it learned that its lock was taken")
	aMoment()
	mark := len(proxy.Log())
	hold.Release()
	out := p.outcome()
	if out.code == migration.ExitOK || out.report == nil {
		t.Errorf("exit code %d%s; want a failure", out.code, out.said())
	}
	if later := writes(proxy.Log()[mark:]); len(later) > 0 {
		t.Errorf("the run wrote on after it had lost its lock: %v", later)
	}
	now, err := leases.Get(t.Context(), stateName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now.ResourceVersion != stolen {
		t.Errorf("the run wrote the Lease of another holder, it is now %v", now.Spec)
	}
	proxy.Close()

	if err := leases.Delete(t.Context(), stateName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.finishes(t)
}

// steal makes somebody else the holder of the Lease, and returns its resource
// version. A patch, since the run renews all the while.
func (s *Subject) steal(t *testing.T, thief string) string {
	t.Helper()
	now := metav1.NowMicro().UTC().Format(metav1.RFC3339Micro)
	patch := fmt.Sprintf(`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":3600,"acquireTime":%q,"renewTime":%q}}`, thief, now, now)
	lease, err := s.client(t).CoordinationV1().Leases(s.StateNamespace).
		Patch(t.Context(), stateName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("cannot steal the Lease: %v", err)
	}
	return lease.ResourceVersion
}

// toldOfTheft says whether the log shows a renewal that was refused, and that
// the run has then read who holds the Lease.
func toldOfTheft(log []faultproxy.Entry) bool {
	refused := false
	for _, e := range log {
		refused = refused || e.Is("leases", "update") && e.Status == http.StatusConflict
		if refused && e.Is("leases", "get") && e.Status == http.StatusOK {
			return true
		}
	}
	return false
}

// Frozen stops a run in mid-work for longer than its lease, as a node does that
// is suspended or starved. Another run takes over and finishes. When the first
// wakes up, it must not write any more.
func Frozen(t *testing.T, subject Subject) {
	s := subject.with(t)
	s.reset(t)
	// A process that is stopped sends a pending request when it resumes, and no look at the clock
	// can prevent that. So one write is held, those beside it are sent by now, too, and none is
	// given up and sent again for two seconds.
	p, proxy, hold := s.midway(t, "--lease-duration=3s")
	time.Sleep(500 * time.Millisecond)
	p.Signal(syscall.SIGSTOP)
	// What had left the process before still arrives.
	hold.Release()
	arrived := func(log []faultproxy.Entry) bool {
		for _, e := range log {
			if e.Writes() && !e.Done {
				return false
			}
		}
		return true
	}
	if err := proxy.Wait(t.Context(), arrived); err != nil {
		t.Fatal(err)
	}
	s.finishes(t)
	want := s.stable(t)

	mark := len(proxy.Log())
	p.Signal(syscall.SIGCONT)
	out := p.outcome()
	if out.code == migration.ExitOK {
		t.Errorf("a run that was overtaken says that it succeeded%s", out.said())
	}
	for _, e := range proxy.Log()[mark:] {
		// It may try to renew, and is refused.
		if e.Writes() && (!e.Renews || e.Forwarded < http.StatusBadRequest) {
			t.Errorf("the run that was overtaken wrote: %s (%d)", e.Request, e.Forwarded)
		}
	}
	s.done(t)
	s.equals(t, want, "as the second run left it")
}

// writes returns the writes in a log.
func writes(log []faultproxy.Entry) []faultproxy.Request {
	var out []faultproxy.Request
	for _, e := range log {
		if e.Writes() {
			out = append(out, e.Request)
		}
	}
	return out
}
