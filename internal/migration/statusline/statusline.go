// Package statusline shows on a terminal how far jobs are, in one line below the log.
package statusline

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

// Line is stderr. On a terminal, its last line shows how far the jobs are, and
// log lines go above it. Its methods may be called from any goroutine.
type Line struct {
	w     io.Writer
	live  bool
	width func() int
	began time.Time

	mu    sync.Mutex
	jobs  []*jobStatus
	ended int
	last  string
	// text is what should be shown, shown is what the terminal got of it.
	text, shown     string
	drawing, closed bool
}

type jobStatus struct {
	name, state          string
	total, done, waiting int
	longest              engine.Wait
}

// New returns a stream that shows nothing yet. Without live it never shows
// more than log lines.
func New(w io.Writer, live bool) *Line {
	return &Line{w: w, live: live, width: func() int { return Width(w) }, began: time.Now()}
}

// unknownWidth is assumed for a terminal that does not say how wide it is.
const unknownWidth = 80

// Width is that of a terminal, in columns; 80 if w is none.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return unknownWidth
}

// refresh is how often the status line is drawn. A job only notes its progress, so that
// thousands of steps do not become thousands of writes.
const refresh = 200 * time.Millisecond

// erase deletes from the start of the line to the end of the screen. The cursor waits at
// the start of the status line: when a terminal gets narrower and wraps the line, all of
// it is still behind the cursor.
const erase = "\r\x1b[J"

// Live says whether anybody can see the status line.
func (s *Line) Live() bool { return s.live }

// Write writes whole lines above the status line.
func (s *Line) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == "" {
		return s.w.Write(b)
	}
	s.shown = cut(s.text, s.width())
	// One call, so that the screen is never seen without the status line.
	if _, err := s.w.Write(slices.Concat([]byte(erase), b, []byte(s.shown+"\r"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Sync is zapcore.WriteSyncer.
func (s *Line) Sync() error { return nil }

// State shows what a job does.
func (s *Line) State(job, state string) {
	s.change(func() { s.job(job).state = state })
}

// Ended counts a job, and shows nothing else of it any more.
func (s *Line) Ended(job string) {
	s.change(func() {
		*s.job(job) = jobStatus{name: job}
		s.ended++
	})
}

// Job returns what shows how far a job is.
func (s *Line) Job(name string) engine.Progress { return &jobProgress{s, name} }

// Close erases the status line. From then on only log lines are shown: abandoned work may
// still report progress.
func (s *Line) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.show("")
}

// jobProgress is the progress of one job.
type jobProgress struct {
	line *Line
	name string
}

// Start is engine.Progress.
func (p *jobProgress) Start(total int) {
	p.line.change(func() {
		j := p.line.job(p.name)
		j.total, j.done, j.waiting = total, 0, 0
		p.line.last = ""
	})
}

// Step is engine.Progress.
func (p *jobProgress) Step(done, waiting int, longest engine.Wait, what string) {
	p.line.change(func() {
		j := p.line.job(p.name)
		j.done, j.waiting, j.longest = done, waiting, longest
		if what != "" {
			p.line.last = what
		}
	})
}

// Stop is engine.Progress.
func (p *jobProgress) Stop() {
	p.line.change(func() {
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

// job returns the status of a job. The caller holds mu.
func (s *Line) job(name string) *jobStatus {
	if i := slices.IndexFunc(s.jobs, func(j *jobStatus) bool { return j.name == name }); i >= 0 {
		return s.jobs[i]
	}
	s.jobs = append(s.jobs, &jobStatus{name: name})
	return s.jobs[len(s.jobs)-1]
}

// change notes progress, and starts the drawing with the first one.
func (s *Line) change(note func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live || s.closed {
		return
	}
	note()
	if !s.drawing {
		s.drawing = true
		go s.draw()
	}
}

func (s *Line) draw() {
	for now := range time.Tick(refresh) {
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.show(s.describe(now))
		}
		s.mu.Unlock()
		if closed {
			return
		}
	}
}

// show draws the text, unless the terminal shows it already. The caller holds mu.
func (s *Line) show(text string) {
	line := cut(text, s.width())
	s.text = text
	if line == s.shown {
		return
	}
	s.shown = line
	if line != "" {
		line += "\r"
	}
	// A terminal that is gone is no reason to stop.
	_, _ = io.WriteString(s.w, erase+line)
}

// whyAfter is after how long a person asks why an object is waited for.
const whyAfter = 5 * time.Second

// describe is the status line before it is cut: the most important comes first. It is
// empty if no job works. The caller holds mu.
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
	return now.Sub(s.began).Truncate(time.Second).String() + " | " + strings.Join(parts, " | ")
}

// cut fits a line into the width. The last column stays free: a terminal wraps after it.
func cut(line string, width int) string {
	if r := []rune(line); len(r) >= width {
		return string(r[:max(0, width-2)]) + "…"
	}
	return line
}
