package model

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// pressure is time that passes where a run does not look: the reason of a deletion goes with it.
type pressure int

const (
	_ pressure = iota // none
	// stopped: the first process is asked to stop between the two changes of a guarded step, and
	// the switch is turned back right after the next one has planned to go on.
	stopped
	// later: the server answers the first guarded deletion with 429, to be repeated after 6 s,
	// and the switch is turned back meanwhile.
	later
	// slow: nothing becomes ready in the first process, and what says which objects carry live
	// events takes 2.5 s to read.
	slow
)

// patience is what the server asks for, with later.
const patience = 6

// slowProtector reads for longer than an answer is fresh.
type slowProtector struct{ *Job }

// Protect implements migration.Protector.
func (slowProtector) Protect(context.Context, *migration.Cluster, []migration.Ref) (map[migration.Ref]string, error) {
	time.Sleep(2500 * time.Millisecond)
	return nil, nil
}

// press chooses the pressure of a schedule. It does not use the numbers of the schedule, so that
// what a seed made before stays as it was where there is none.
func (s *Schedule) press() {
	n := mix(s.Seed^0x7072657373) % 16
	if n >= 4 || s.World.Registry && n < 2 {
		return
	}
	s.pressure = []pressure{stopped, stopped, later, slow}[n]
	first := s.processes[0]
	first.kill, first.term, first.spite, first.after, first.deeds = nil, nil, false, false, nil
	first.broken, first.opts.Timeout, first.opts.OnFailure = s.pressure == slow, 0, ""
	if s.pressure != stopped {
		return
	}
	if len(s.processes) == 1 {
		s.processes = append(s.processes, s.process(rand.New(rand.NewPCG(s.Seed, n)), "run"))
	}
	next := s.processes[1]
	next.command, next.kill, next.term, next.deeds, next.opts.Resume = "run", nil, nil, nil, engine.ResumeForward
}

// turnBack turns the switch back when the process that goes on has made its last plan: the first
// one is made beside the open journal, the second one with it.
func (s *Schedule) turnBack(ctx context.Context, p *process) {
	if s.pressure != stopped || p != s.processes[1] {
		return
	}
	plans := 0
	p.job.then = func() {
		if plans++; plans == 2 {
			s.deal(ctx, deed{who: "alice", text: "the switch says bus", do: s.setSwitch("bus")})
			time.Sleep(s.World.shorter(2 * freshFor)) // no answer from before is fresh any more
		}
	}
}

// pressed puts the pressure of the schedule on the client of a process. stop asks the process to
// stop.
func (s *Schedule) pressed(ctx context.Context, p *process, client Process, stop context.CancelCauseFunc) {
	c, ok := client.(*Client)
	if !ok || p != s.processes[0] {
		return
	}
	var once atomic.Bool
	switch s.pressure {
	case stopped:
		c.After(func(r *Request) {
			if r.Verb == "patch" && r.Plural == "sources" && r.Code == http.StatusOK && once.CompareAndSwap(false, true) {
				s.note("%s is asked to stop: %s", p.name, r)
				stop(engine.SignalError{Signal: syscall.SIGTERM})
			}
		})
	case later:
		c.Refuse(func(r *Request) error {
			if r.Verb != "delete" || r.Plural != "sources" || !once.CompareAndSwap(false, true) {
				return nil
			}
			s.note("%s is to come again in %d s: %s", p.name, patience, r)
			s.deal(ctx, deed{who: "alice", text: "the switch says bus", do: s.setSwitch("bus")})
			return apierrors.NewTooManyRequests("later", patience)
		})
	}
}

// jobOf is the job of a process as the engine gets it.
func (s *Schedule) jobOf(p *process) migration.Job {
	if s.pressure == slow {
		return slowProtector{p.job}
	}
	return p.job
}
