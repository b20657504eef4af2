package frame

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// StatusLine is stderr. On a terminal, its last line shows how far the work is, and
// log lines go above it. Its methods may be called from any goroutine.
type StatusLine struct {
	// Width of the terminal.
	Width func() int

	w        io.Writer
	live     bool
	began    time.Time
	describe func(now time.Time) string

	mu sync.Mutex
	// text is what should be shown, shown is what the terminal got of it.
	text, shown     string
	drawing, closed bool
}

// NewStatusLine returns a stream that shows nothing yet. Without live it never shows
// more than log lines. describe is what to show, the most important first, "" for nothing; the time
// that has passed is put before it. It is called by one goroutine at a time, and not during Note.
func NewStatusLine(w io.Writer, live bool, describe func(now time.Time) string) *StatusLine {
	return &StatusLine{w: w, live: live, Width: func() int { return Width(w) }, began: time.Now(), describe: describe}
}

// DefaultWidth is that of an output that is no terminal, and of a terminal that does not say how
// wide it is.
const DefaultWidth = 80

// Width is that of a terminal, in columns; DefaultWidth if w is none.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return DefaultWidth
}

// StatusRefresh is how often the status line is drawn. Work only notes its progress, so that
// thousands of steps do not become thousands of writes.
const StatusRefresh = 200 * time.Millisecond

// erase deletes from the start of the line to the end of the screen. The cursor waits at
// the start of the status line: when a terminal gets narrower and wraps the line, all of
// it is still behind the cursor.
const erase = "\r\x1b[J"

// Live says whether anybody can see the status line.
func (s *StatusLine) Live() bool { return s.live }

// Write writes whole lines above the status line.
func (s *StatusLine) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		return s.w.Write(b)
	}
	width := s.Width()
	text := AtWords(string(b), width)
	if s.shown != "" {
		s.shown = cut(s.text, width)
		text = erase + text + s.shown + "\r"
	}
	// One call, so that the screen is never seen without the status line.
	if _, err := io.WriteString(s.w, text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Sync is zapcore.WriteSyncer.
func (s *StatusLine) Sync() error { return nil }

// Close erases the status line. From then on only log lines are shown: abandoned work may
// still report progress.
func (s *StatusLine) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.show("")
}

// Note lets note change what describe looks at, and starts the drawing with the first change. It
// does nothing if nobody can see the line, or after Close.
func (s *StatusLine) Note(note func()) {
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

func (s *StatusLine) draw() {
	for now := range time.Tick(StatusRefresh) {
		s.mu.Lock()
		closed := s.closed
		if !closed {
			text := s.describe(now)
			if text != "" {
				text = now.Sub(s.began).Truncate(time.Second).String() + " | " + text
			}
			s.show(text)
		}
		s.mu.Unlock()
		if closed {
			return
		}
	}
}

// show draws the text, unless the terminal shows it already. The caller holds mu.
func (s *StatusLine) show(text string) {
	line := cut(text, s.Width())
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

// cut fits a line into the width. The last column stays free: a terminal wraps after it.
func cut(line string, width int) string {
	if r := []rune(line); len(r) >= width {
		return string(r[:max(0, width-2)]) + "…" // also in a word: a part of a name says more than none
	}
	return line
}
