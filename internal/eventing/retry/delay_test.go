package retry

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryDelay(t *testing.T) {
	for _, tc := range []struct {
		reason    string
		delivered uint64
		asked     time.Duration
		random    float64
		want      time.Duration
	}{
		{"the first", 1, 0, .5, time.Second},
		{"twice as long", 2, 0, .5, 2 * time.Second},
		{"the fifth", 5, 0, .5, 16 * time.Second},
		{"at most", 6, 0, .5, 30 * time.Second},
		{"still at most, after years", 1 << 40, 0, .5, 30 * time.Second},
		{"a number that NATS never says", 0, 0, .5, time.Second},
		{"the shortest", 1, 0, 0, 800 * time.Millisecond},
		{"the longest", 6, 0, 1, 36 * time.Second},
		{"the sink asks for more", 1, time.Minute, .5, time.Minute},
		{"the sink asks for less", 6, time.Second, .5, 30 * time.Second},
		{"the sink asks for too much", 1, time.Hour, .5, 5 * time.Minute},
	} {
		if got := delayOf(First, tc.delivered, tc.asked, tc.random); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                              0,
		"7":                             7 * time.Second,
		"-7":                            0,
		"soon":                          0,
		"99999999999999999999":          0,
		"Sun, 22 Nov 2026 10:01:00 GMT": time.Minute,
		"Sun, 22 Nov 2026 09:00:00 GMT": 0,
	} {
		if got := After(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("Retry-After %q: %s, want %s", text, got, want)
		}
	}
}

func TestRepeatDelay(t *testing.T) {
	bad, gone, busy, down := Refusal{Code: "400"}, Refusal{Code: "410"}, Refusal{Code: "503"}, Refusal{Code: "error"}
	for _, tc := range []struct {
		reason  string
		o       Refusal
		n       uint64
		waiting int
		want    time.Duration
	}{
		{"the first of few", bad, 1, 10, time.Second},
		{"the first of a sink that has no time", busy, 1, 10, time.Second},
		{"as long as before", busy, 100, 1000, 30 * time.Second},
		{"refused again and again", gone, afterTries, 1000, 30 * time.Second},
		{"the last stage", gone, afterTries + 1, 1000, slowest},
		{"408 is none of the event's", Refusal{Code: "408"}, 100, 0, 30 * time.Second},
		{"425 neither", Refusal{Code: "425"}, 100, 0, 30 * time.Second},
		{"429 neither", Refusal{Code: "429"}, 100, 0, 30 * time.Second},
		{"no answer neither", down, 100, 0, 30 * time.Second},
		{"a redirect neither", Refusal{Code: "307"}, 100, 0, 30 * time.Second},
		{"many refused: 50 a second", bad, 1, 20_000, 400 * time.Second},
		{"at most", bad, 1, 1_000_000, longestRefused},
		{"many failed: 200 a second", busy, 1, 20_000, 100 * time.Second},
		{"at most", down, 1, 1_000_000, longestFailed},
		{"what the sink asks for", Refusal{Code: "429", Asked: 4 * time.Minute}, 1, 20_000, 4 * time.Minute},
	} {
		if got := tc.o.Delay(First, tc.n, tc.waiting, .5); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}
