package suite

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
)

// faultRate is how many of the requests fail.
const faultRate = 0.2

// faultLease is long enough to be renewed although requests fail: an API server
// that says "Retry-After: 1" is a second away.
const faultLease = "--lease-duration=15s"

// RandomFaults runs the job through a proxy that lets one request in five fail,
// in all the ways of faultproxy.Kinds. The job must succeed nevertheless; and if
// it is also broken, restore everything. Rounds take the seeds from seed on,
// odd ones over HTTP/1.1, even ones over HTTP/2.
func RandomFaults(t *testing.T, subject Subject, seed uint64, rounds int) {
	s := subject.with(t)
	before := s.before(t)
	for round := range rounds {
		seed := seed + uint64(round)
		t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
			t.Run("Forward", func(t *testing.T) {
				s.reset(t)
				s.faulty(t, seed, 0).mustExit(t, migration.ExitOK)
				s.done(t)
			})
			t.Run("Rollback", func(t *testing.T) {
				s.reset(t)
				mend := s.breakIt(t)
				s.faulty(t, seed, 1<<32, s.BrokenArgs...).mustRollBack(t)
				s.noOpenJournal(t)
				mend()
				s.equals(t, before, "as before the run")
			})
		})
	}
}

// faulty runs the job through random faults. Another stream of the same seed
// gives other faults.
func (s *Subject) faulty(t *testing.T, seed, stream uint64, args ...string) outcome {
	t.Helper()
	var options []faultproxy.Option
	if seed%2 == 1 {
		options = append(options, faultproxy.HTTP1())
	}
	proxy, kubeconfig := s.proxy(t, options...)
	faults := proxy.RandomFaults(seed+stream, faultRate)
	out := s.start(t, kubeconfig, "run", slices.Concat(args, []string{faultLease})...).outcome()
	proxy.Close()
	t.Logf("seed %d: %s", seed, faults)
	if _, dealt := faults.Total(); dealt == 0 {
		t.Error("not a single request failed: this run proves nothing")
	}
	return out
}
