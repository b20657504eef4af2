package suite

import (
	"syscall"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// gracePeriod is how long a run may take to stop. Kubernetes gives 30 s.
const gracePeriod = 10 * time.Second

// SIGTERM tells a run to stop in mid-work: it must finish the calls in flight,
// begin no change, leave the journal open, and exit in time with 143. The next
// run finishes.
func SIGTERM(t *testing.T, subject Subject) {
	s := subject.with(t)
	s.reset(t)
	p, proxy, hold := s.midway(t, heldLease)
	p.Signal(syscall.SIGTERM)
	told := time.Now()
	aMoment()
	mark := len(proxy.Log())
	hold.Release()
	out := p.outcome()
	if took := time.Since(told); took > gracePeriod {
		t.Errorf("the run took %s to stop", took)
	}
	out.mustExit(t, migration.ExitSignal+int(syscall.SIGTERM))
	if out.report.Result != migration.Interrupted {
		t.Errorf("result %q, want %q", out.report.Result, migration.Interrupted)
	}
	log := proxy.Log()
	for _, e := range log[:mark] {
		if e.Writes() && e.Status == 0 {
			t.Errorf("the run did not wait for the answer to %s", e.Request)
		}
	}
	for _, e := range log[mark:] {
		if s.works(e.Request) {
			t.Errorf("the run went on after it was asked to stop: %s", e.Request)
		}
	}
	if open := s.openJournals(t); len(open) != 1 {
		t.Errorf("open journals: %v, want the run's", open)
	}
	proxy.Close()
	s.finishes(t)
}
