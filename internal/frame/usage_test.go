package frame

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 30 * time.Second: "30s", 15 * time.Minute: "15m", 90 * time.Second: "1m30s", time.Hour: "1h",
		10 * time.Hour: "10h", time.Hour + 10*time.Minute: "1h10m", time.Hour + time.Second: "1h0m1s", 1500 * time.Millisecond: "1.5s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%d) is %q, want %q", d, got, want)
		}
	}
}
