package frame

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// TestConsoleLinesAreForPeople: a person reads words, not JSON.
func TestConsoleLinesAreForPeople(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, LogSettings{Level: "info"}).With(zap.String("job", "trigger-sync"))
	log.Info("job ended", zap.String("result", "succeeded"), zap.String("reason", ""), zap.Int("exitCode", 4), zap.Float64("seconds", 1.5))
	log.Warn("retrying", zap.Error(errors.New("connection refused")))
	log.Debug("not shown")
	for _, want := range []string{
		"INFO  job ended (job trigger-sync, result succeeded, exit code 4, seconds 1.5)\n",
		"WARN  retrying (job trigger-sync): connection refused\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	if strings.ContainsAny(out.String(), `{}"`) || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("JSON, or another number of lines:\n%s", out.String())
	}
}
