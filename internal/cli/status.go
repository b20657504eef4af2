package cli

import (
	"io"
	"sync"
)

// Status is stderr with one line at its end that is always the newest: log lines
// go above it.
type Status struct {
	w io.Writer

	mu   sync.Mutex
	line string
}

// NewStatus returns a stream without a status yet.
func NewStatus(w io.Writer) *Status { return &Status{w: w} }

const clearLine = "\r\x1b[K"

// Write writes whole lines above the status.
func (s *Status) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line == "" {
		return s.w.Write(b)
	}
	if _, err := s.w.Write(append(append([]byte(clearLine), b...), s.line...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Set shows another status; "" takes it away.
func (s *Status) Set(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == s.line {
		return
	}
	s.line = line
	// A terminal that is gone is no reason to stop.
	_, _ = s.w.Write([]byte(clearLine + line))
}
