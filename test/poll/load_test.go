package poll

import (
	"testing"
	"time"
)

func TestStretched(t *testing.T) {
	for loadavg, want := range map[string]time.Duration{
		"0.10 2.00 3.00 1/100 7\n": 5 * time.Second,
		"2.00 0.00 0.00 1/100 7\n": 5 * time.Second,
		"5.00 0.00 0.00 1/100 7\n": 12500 * time.Millisecond,
		"900 0 0":                  40 * time.Second,
		"":                         5 * time.Second,
	} {
		if got := stretched(5*time.Second, loadavg, 2); got != want {
			t.Errorf("%q: %s, want %s", loadavg, got, want)
		}
	}
}
