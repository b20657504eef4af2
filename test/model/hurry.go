package model

import (
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

const (
	// shortLease is a Lease of which every call is a good part, and wayOfACall what one way of a
	// call takes at most.
	shortLease = 2 * time.Second
	wayOfACall = 400 * time.Millisecond
)

// hurry gives the runs of one in twelve schedules a short Lease, on a server that takes its time:
// calls end with the Lease before their answers come, and what they did is done. It draws none of
// the numbers of the schedule.
func (s *Schedule) hurry() { s.hurried = mix(s.Seed^0x6875727279)%12 == 0 }

// hurries is hurry for one process.
func (s *Schedule) hurries(client Process, opts *engine.Options) {
	if c, ok := client.(*Client); ok && s.hurried {
		c.slow, opts.LeaseDuration = wayOfACall, shortLease
	}
}

// causes holds reports to causes: the end of one call is none.
func (c *checker) causes(p *process) {
	for _, f := range p.report.Findings {
		if strings.Contains(f.String(), "context deadline exceeded") {
			c.fail("(ix) %s takes the end of a call for an answer: %s", p.name, f)
		}
	}
	if strings.Contains(p.report.Message, "context deadline exceeded") {
		c.fail("(ix) %s takes the end of a call for an answer: %s", p.name, p.report.Message)
	}
}

// unanswered says whether a run may have asked for what a user did then, and have had no answer: if
// it is as both wanted it, nobody can tell whose it is, and the run takes it for its own.
func (c *checker) unanswered(at time.Time) bool {
	return c.s.hurried && slices.ContainsFunc(c.s.ran, func(p *process) bool { return !at.Before(p.began) && !at.After(p.ended) })
}
