package frame

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// LogSettings say what a log looks like.
type LogSettings struct {
	JSON  bool
	Level string
	Color bool
}

// NewLogger returns a logger for people or for machines. Every line is written
// to w by one call.
func NewLogger(w io.Writer, s LogSettings) *zap.Logger {
	cfg := zapcore.EncoderConfig{
		TimeKey:          "time",
		LevelKey:         "level",
		NameKey:          "logger",
		MessageKey:       "message",
		LineEnding:       zapcore.DefaultLineEnding,
		EncodeTime:       zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel:      zapcore.LowercaseLevelEncoder,
		EncodeDuration:   zapcore.StringDurationEncoder,
		ConsoleSeparator: "  ",
	}
	out := zapcore.AddSync(redacting{w})
	if s.JSON {
		return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(cfg), out, zapLevel(s.Level)))
	}
	cfg.EncodeTime = zapcore.TimeEncoderOfLayout(time.TimeOnly)
	cfg.EncodeLevel = zapcore.CapitalLevelEncoder
	if s.Color {
		cfg.EncodeLevel = zapcore.CapitalColorLevelEncoder
	}
	return zap.New(&console{LevelEnabler: zapLevel(s.Level), head: zapcore.NewConsoleEncoder(cfg), out: out})
}

// redacting leaves out of each line what others must not read: whatever a line quotes,
// it goes through here.
type redacting struct{ io.Writer }

// Write is io.Writer. p is a whole line.
func (r redacting) Write(p []byte) (int, error) {
	if _, err := io.WriteString(r.Writer, redact.URLs(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// KlogTo sends what client-go has to say to log, and returns a function that
// ends this.
func KlogTo(log *zap.Logger) func() {
	clientGo := log.Named("client-go").WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return &muted{c}
	}))
	klog.SetLoggerWithOptions(zapr.NewLogger(clientGo), klog.ContextualLogger(true))
	return klog.ClearLogger
}

// muted lowers the level of client-go's lines. What it calls an error is one
// request of one of its loops that it will repeat; whether the run failed by it
// is for the engine to say. The rest is of use for debugging only.
type muted struct{ zapcore.Core }

func (m *muted) level(l zapcore.Level) zapcore.Level {
	if l >= zapcore.WarnLevel {
		return zapcore.WarnLevel
	}
	return zapcore.DebugLevel
}

// mostVerbose is the last of klog's levels that is logged; from 6 on, client-go
// tells every request, and later their bodies, Secrets included.
const mostVerbose = 4

// Enabled is zapcore.LevelEnabler. A line of V(n) has the level -n.
func (m *muted) Enabled(l zapcore.Level) bool {
	return l >= -mostVerbose && m.Core.Enabled(m.level(l))
}

// With is zapcore.Core.
func (m *muted) With(fields []zapcore.Field) zapcore.Core { return &muted{m.Core.With(fields)} }

// Check is zapcore.Core.
func (m *muted) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !m.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, m)
}

func isCanceled(f zapcore.Field) bool {
	err, ok := f.Interface.(error)
	return ok && errors.Is(err, context.Canceled)
}

// Write is zapcore.Core.
func (m *muted) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Level = m.level(e.Level)
	if slices.ContainsFunc(fields, isCanceled) { // a request that this program gave up, on purpose
		if e.Level = zapcore.DebugLevel; !m.Core.Enabled(e.Level) {
			return nil
		}
	}
	return m.Core.Write(e, fields)
}

// zapLevel returns the level that the flag has accepted.
func zapLevel(word string) zapcore.Level {
	level, err := zapcore.ParseLevel(word)
	if err != nil {
		return zapcore.InfoLevel
	}
	return level
}

// Quieter is a logger for commands that only read: lines that say what was done are of no use
// there.
func Quieter(log *zap.Logger) *zap.Logger {
	// With debug, all lines are wanted. Above info it is quiet already, and zap complains on stderr
	// about a lower level.
	if core := log.Core(); core.Enabled(zap.DebugLevel) || !core.Enabled(zap.InfoLevel) {
		return log
	}
	return log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
}
