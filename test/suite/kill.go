package suite

import (
	"fmt"
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
)

// killLimit bounds the kill loops: suites are for plans of a dozen changes.
const killLimit = 300

// patience is how many kills may go wrong before a loop ends: the rest would
// mostly say the same.
const patience = 3

// victim is a process that is killed again and again, one write later each time.
type victim struct {
	command string
	args    []string
	when    faultproxy.When
	// prepare puts the cluster into the state the process starts from.
	prepare func(t *testing.T)
	// killed is what is to hold after a kill, and what is to be done then.
	killed func(t *testing.T)
	// survived is for the last round, in which there were no more writes.
	survived func(t *testing.T, out outcome)
}

// everyWrite kills the process at its first write, and at each sampled one after that, until it
// makes no more.
func (s *Subject) everyWrite(t *testing.T, v victim) {
	t.Helper()
	failures, step := 0, sampledAfter
	if v.when == faultproxy.Before {
		step = sampledBefore
	}
	for n := 1; n <= killLimit; n += step {
		ran, survived := false, false
		ok := t.Run(fmt.Sprintf("Write%02d", n), func(t *testing.T) {
			ran = true
			v.prepare(t)
			at, out, killed := s.killAt(t, v, n)
			if survived = !killed; survived {
				v.survived(t, out)
				return
			}
			t.Logf("killed %s: %s", v.when, at)
			v.killed(t)
		})
		if failures += map[bool]int{false: 1}[ok]; failures == patience {
			t.Fatalf("%d kills went wrong; the other writes are not tried", failures)
		}
		switch {
		case survived && n == 1:
			t.Fatalf("%s %s made no write at all", s.Name, v.command)
		case survived:
			t.Logf("%s %s makes fewer than %d writes", s.Name, v.command, n)
			return
		case n+step > killLimit && ran:
			t.Fatalf("%s %s makes more than %d writes", s.Name, v.command, killLimit)
		}
	}
}

// killAt runs the job and kills it at its n-th write, if it makes so many. When
// it returns, nothing of the process is on its way to the API server, and its
// Lease is free: some hundred kills need not wait for it to expire. Renewal of
// KillForward, RandomFaults and Frozen do.
func (s *Subject) killAt(t *testing.T, v victim, n int) (faultproxy.Request, outcome, bool) {
	t.Helper()
	proxy, kubeconfig := s.proxy(t)
	running := make(chan *Process, 1)
	kill := proxy.KillAt(n, v.when, func() { (<-running).Kill() })
	p := s.start(t, kubeconfig, v.command, v.args...)
	running <- p
	out := p.outcome()
	if out.code < 0 {
		<-kill.Dead()
	}
	proxy.Close()
	at, killed := kill.At()
	if killed {
		s.freeLock(t)
	}
	return at, out, killed
}

// sides calls f for kills before writes and for kills after them.
func sides(t *testing.T, f func(t *testing.T, when faultproxy.When)) {
	for _, when := range []faultproxy.When{faultproxy.Before, faultproxy.After} {
		t.Run(when.String(), func(t *testing.T) { f(t, when) })
	}
}

// KillForward kills a run after and before its sampled writes, and runs the job again: the
// migration must be finished then, and the whole cluster be the same as after a run that nobody
// disturbed.
func KillForward(t *testing.T, subject Subject) {
	s := subject.killed(t)
	s.reset(t)
	s.finishes(t)
	want := s.stable(t)
	finished := func(t *testing.T) {
		s.finishes(t)
		s.equals(t, want, "as after an undisturbed run")
	}
	sides(t, func(t *testing.T, when faultproxy.When) {
		t.Run("Renewal", func(t *testing.T) {
			s.reset(t)
			p, proxy, _ := s.midway(t)
			kill := proxy.KillAmong(func(r faultproxy.Request) bool { return r.Renews }, 1, when, p.Kill)
			if out := p.outcome(); out.code >= 0 {
				t.Fatalf("the process ended before it renewed its lock%s", out.said())
			}
			<-kill.Dead()
			proxy.Close()
			finished(t)
		})
		s.everyWrite(t, victim{
			command: "run", when: when, prepare: func(t *testing.T) { s.reset(t) }, killed: finished,
			survived: func(t *testing.T, out outcome) {
				out.mustExit(t, migration.ExitOK)
				s.done(t)
			},
		})
	})
}

// KillRollback kills a run that fails, after and before the sampled writes of its way forward and
// of its way back. The next run must leave the cluster as it was
// before the first if the fault is still there, and finish the migration if it
// is not.
func KillRollback(t *testing.T, subject Subject) {
	s := subject.killed(t)
	before := s.before(t)
	var mend func()
	broken := func(t *testing.T) {
		s.reset(t)
		mend = s.breakIt(t)
	}
	survived := func(t *testing.T, out outcome) {
		out.mustRollBack(t)
		s.noOpenJournal(t)
		mend()
		s.equals(t, before, "as before the run")
	}
	t.Run("FaultStays", func(t *testing.T) {
		sides(t, func(t *testing.T, when faultproxy.When) {
			s.everyWrite(t, victim{
				command: "run", args: s.BrokenArgs, when: when, prepare: broken, survived: survived,
				killed: func(t *testing.T) {
					s.rollsBack(t, s.BrokenArgs...)
					mend()
					s.equals(t, before, "as before the first run")
				},
			})
		})
	})
	t.Run("FaultGone", func(t *testing.T) {
		// Before a write is after the one before it, but for what the process
		// knew; FaultStays tells the two apart.
		s.everyWrite(t, victim{
			command: "run", args: s.BrokenArgs, when: faultproxy.After, prepare: broken, survived: survived,
			killed: func(t *testing.T) {
				mend()
				s.finishes(t)
			},
		})
	})
}

// KillUndo kills an undo after and before its sampled writes, and undoes again: the cluster must be
// as it was before the run.
func KillUndo(t *testing.T, subject Subject) {
	s := subject.killed(t)
	before := s.before(t)
	undone := func(t *testing.T) {
		s.noOpenJournal(t)
		s.equals(t, before, "as before the run")
	}
	sides(t, func(t *testing.T, when faultproxy.When) {
		s.everyWrite(t, victim{
			command: "undo", when: when,
			prepare: func(t *testing.T) {
				s.reset(t)
				s.finishes(t)
			},
			killed: func(t *testing.T) {
				s.start(t, s.Kubeconfig, "undo").outcome().mustExit(t, migration.ExitOK)
				undone(t)
			},
			survived: func(t *testing.T, out outcome) {
				out.mustExit(t, migration.ExitOK)
				undone(t)
			},
		})
	})
}

// KillThenBack kills a run after each of its writes, and goes back from there, by
// "undo" and by "run --resume=back": the cluster must be as it was before the
// run.
func KillThenBack(t *testing.T, subject Subject) {
	s := subject.killed(t)
	before := s.before(t)
	survived := func(t *testing.T, out outcome) { out.mustExit(t, migration.ExitOK) }
	t.Run("Undo", func(t *testing.T) {
		s.everyWrite(t, victim{
			command: "run", when: faultproxy.After, prepare: func(t *testing.T) { s.reset(t) }, survived: survived,
			killed: func(t *testing.T) {
				s.start(t, s.Kubeconfig, "undo").outcome().mustExit(t, migration.ExitOK)
				s.noOpenJournal(t)
				s.equals(t, before, "as before the run")
			},
		})
	})
	t.Run("ResumeBack", func(t *testing.T) {
		s.everyWrite(t, victim{
			command: "run", when: faultproxy.After, prepare: func(t *testing.T) { s.reset(t) }, survived: survived,
			killed: func(t *testing.T) {
				if len(s.openJournals(t)) == 0 {
					// Nothing was begun, or all is done: there is no way back to
					// go, and the run goes forward.
					s.finishes(t, "--resume=back")
					return
				}
				s.rollsBack(t, "--resume=back")
				s.equals(t, before, "as before the run")
			},
		})
	})
}
