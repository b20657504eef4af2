package cli

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// screen is stderr: log lines, and below them, while there is work, a progress
// bar. It is a migration.Progress. All of its methods may be called from any
// goroutine.
type screen struct {
	w io.Writer

	mu   sync.Mutex
	bars *mpb.Progress // nil: there is no bar
	bar  *mpb.Bar
	// note is what is shown behind the bar. The bar is drawn by a goroutine of
	// its own, which must not need mu: Stop holds it until the last drawing.
	note atomic.Pointer[string]
}

// Write writes whole lines, above the bar if there is one.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bars != nil {
		if n, err := s.bars.Write(b); err == nil {
			return n, nil
		}
		// The terminal cannot be drawn on any more. A line may still get
		// through.
	}
	return s.w.Write(b)
}

// Sync is zapcore.WriteSyncer.
func (s *screen) Sync() error { return nil }

// Start shows a bar for total steps, in the place of one that is there.
func (s *screen) Start(total int) {
	s.Stop()
	if total <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note.Store(new(string))
	s.bars = mpb.New(mpb.WithOutput(s.w), mpb.WithAutoRefresh())
	s.bar = s.bars.New(int64(total),
		mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.BarWidth(30),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d")),
		mpb.AppendDecorators(
			decor.Elapsed(decor.ET_STYLE_GO),
			decor.Any(func(decor.Statistics) string { return *s.note.Load() }),
		),
	)
}

// Step shows that done steps are done, that waiting ones wait for the cluster,
// and what is being done.
func (s *screen) Step(done, waiting int, what string) {
	note := ""
	if waiting > 0 {
		note = fmt.Sprintf(", %d waiting", waiting)
	}
	if what != "" {
		note += ", " + what
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		s.note.Store(&note)
		s.bar.SetCurrent(int64(done))
	}
}

// Stop removes the bar.
func (s *screen) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bars == nil {
		return
	}
	s.bar.Abort(true)
	s.bars.Wait()
	s.bars, s.bar = nil, nil
}
