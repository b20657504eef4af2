// Package statusline shows on a terminal how far jobs are, in one line below the log.
package statusline

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

// Line is stderr. On a terminal, its last line shows how far the jobs are, and
// log lines go above it. Its methods may be called from any goroutine.
type Line struct {
	*frame.StatusLine

	// What is below is changed by Note only.
	jobs  []*jobStatus
	ended int
	last  string
}

type jobStatus struct {
	name, state          string
	total, done, waiting int
	longest              engine.Wait
}

// New returns a stream that shows nothing yet. Without live it never shows
// more than log lines.
func New(w io.Writer, live bool) *Line {
	s := &Line{}
	s.StatusLine = frame.NewStatusLine(w, live, s.describe)
	return s
}

// State shows what a job does.
func (s *Line) State(job, state string) {
	s.Note(func() { s.job(job).state = state })
}

// Ended counts a job, and shows nothing else of it any more.
func (s *Line) Ended(job string) {
	s.Note(func() {
		*s.job(job) = jobStatus{name: job}
		s.ended++
	})
}

// Job returns what shows how far a job is.
func (s *Line) Job(name string) engine.Progress { return &jobProgress{s, name} }

// jobProgress is the progress of one job.
type jobProgress struct {
	line *Line
	name string
}

// Start is engine.Progress.
func (p *jobProgress) Start(total int) {
	p.line.Note(func() {
		j := p.line.job(p.name)
		j.total, j.done, j.waiting = total, 0, 0
		p.line.last = ""
	})
}

// Step is engine.Progress.
func (p *jobProgress) Step(done, waiting int, longest engine.Wait, what string) {
	p.line.Note(func() {
		j := p.line.job(p.name)
		j.done, j.waiting, j.longest = done, waiting, longest
		if what != "" {
			p.line.last = what
		}
	})
}

// Stop is engine.Progress.
func (p *jobProgress) Stop() {
	p.line.Note(func() {
		p.line.job(p.name).total = 0
		p.line.last = ""
	})
}

// WaitsForLock is engine.LockProgress.
func (p *jobProgress) WaitsForLock(holder string) {
	state := "running"
	if holder != "" {
		state = "waits for the lock of " + holder
	}
	p.line.State(p.name, state)
}

// job returns the status of a job, within Note.
func (s *Line) job(name string) *jobStatus {
	if i := slices.IndexFunc(s.jobs, func(j *jobStatus) bool { return j.name == name }); i >= 0 {
		return s.jobs[i]
	}
	s.jobs = append(s.jobs, &jobStatus{name: name})
	return s.jobs[len(s.jobs)-1]
}

// whyAfter is after how long a person asks why an object is waited for.
const whyAfter = 5 * time.Second

// describe is the status line before it is cut: the most important comes first. It is
// empty if no job works.
func (s *Line) describe(now time.Time) string {
	var parts []string
	for _, j := range s.jobs {
		switch {
		case j.total > 0:
			part := fmt.Sprintf("%s %d/%d", j.name, j.done, j.total)
			if j.waiting > 0 {
				waits := now.Sub(j.longest.Since).Truncate(time.Second)
				part += fmt.Sprintf(", waits %s for %s", waits, j.longest.Object)
				if j.waiting > 1 {
					part += fmt.Sprintf(" and %d more", j.waiting-1)
				}
				if waits >= whyAfter && j.longest.Reason != "" {
					part += ": " + redact.URLs(j.longest.Reason)
				}
			}
			parts = append(parts, part)
		case j.state != "":
			parts = append(parts, j.name+" "+j.state)
		}
	}
	if s.ended > 0 {
		parts = slices.Insert(parts, 0, fmt.Sprintf("%d ended", s.ended))
	}
	if len(parts) == 0 {
		return ""
	}
	if s.last != "" {
		parts = append(parts, s.last)
	}
	return strings.Join(parts, " | ")
}
