package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/cli"
	"github.com/kyma-project/eventmesh-migration/internal/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

// progress is the line that shows, on a terminal, what the jobs do: which run, how
// many objects are done, how many are waited for, and the time left.
type progress struct {
	status *cli.Status
	until  time.Time
	width  int

	mu    sync.Mutex
	jobs  []*jobLine
	ended int
	stop  chan struct{}
	done  sync.WaitGroup
}

type jobLine struct {
	name, state    string
	total, of, now int
}

// newProgress draws until stopped; nil if there is nobody to see it.
func newProgress(c *cli.Connection) *progress {
	if !c.Live {
		return nil
	}
	p := &progress{status: c.Status, until: time.Now().Add(c.Options.Timeout), width: 120, stop: make(chan struct{})}
	p.done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				p.status.Set("")
				return
			case <-tick.C:
				p.draw()
			}
		}
	})
	return p
}

func (p *progress) close() {
	if p != nil {
		close(p.stop)
		p.done.Wait()
	}
}

// forManager avoids an interface that holds a nil pointer.
func (p *progress) forManager() jobmanager.Progress {
	if p == nil {
		return nil
	}
	return p
}

func (p *progress) line(job string) *jobLine {
	for _, l := range p.jobs {
		if l.name == job {
			return l
		}
	}
	l := &jobLine{name: job}
	p.jobs = append(p.jobs, l)
	return l
}

// Job implements jobmanager.Progress.
func (p *progress) Job(_ jobmanager.Hook, job, state string) {
	p.mu.Lock()
	l := p.line(job)
	l.state = state
	switch state {
	case "waiting", "looking", "running":
	default:
		p.ended++
	}
	p.mu.Unlock()
	p.draw()
}

// For implements jobmanager.Progress.
func (p *progress) For(job string) engine.Progress { return &engineProgress{p, job} }

// text is the line; it is cut at the width of a terminal.
func (p *progress) text(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var parts []string
	for _, l := range p.jobs {
		switch l.state {
		case "looking":
			parts = append(parts, l.name+" looking")
		case "running":
			s := l.name
			if l.total > 0 {
				s += fmt.Sprintf(" %d/%d", l.of, l.total)
			}
			if l.now > 0 {
				s += fmt.Sprintf(" (%d waiting)", l.now)
			}
			parts = append(parts, s)
		}
	}
	left := max(0, p.until.Sub(now).Round(time.Second))
	s := fmt.Sprintf("%d ended", p.ended)
	if len(parts) > 0 {
		s += " | " + strings.Join(parts, ", ")
	}
	s += fmt.Sprintf(" | %s left", left)
	if r := []rune(s); len(r) > p.width {
		s = string(r[:p.width-1]) + "…"
	}
	return s
}

func (p *progress) draw() { p.status.Set(p.text(time.Now())) }

// engineProgress is what the engine of one job tells.
type engineProgress struct {
	p   *progress
	job string
}

// Start implements migration.Progress.
func (e *engineProgress) Start(total int) {
	e.p.mu.Lock()
	l := e.p.line(e.job)
	l.total, l.of, l.now = total, 0, 0
	e.p.mu.Unlock()
	e.p.draw()
}

// Step implements migration.Progress.
func (e *engineProgress) Step(done, waiting int, _ string) {
	e.p.mu.Lock()
	l := e.p.line(e.job)
	l.of, l.now = done, waiting
	e.p.mu.Unlock()
	e.p.draw()
}

// Stop implements migration.Progress.
func (e *engineProgress) Stop() {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.p.line(e.job).total = 0
}
