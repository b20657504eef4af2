package write

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// TestThrottled: the limit of client-go, 5 requests a second for each client, made a job 22 times
// slower than it is without.
func TestThrottled(t *testing.T) {
	for name, tc := range map[string]struct {
		qps   float32
		burst int
		want  float32 // 0: no limit
	}{
		"none is set":          {0, 0, 0},
		"none is wanted":       {-1, 0, 0},
		"one for all requests": {20, 40, 20},
		"without a burst":      {20, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Throttled(&rest.Config{QPS: tc.qps, Burst: tc.burst})
			switch {
			case tc.want == 0:
				if cfg.QPS >= 0 || cfg.RateLimiter != nil {
					t.Errorf("QPS %v, limiter %v", cfg.QPS, cfg.RateLimiter)
				}
			case cfg.RateLimiter == nil || cfg.RateLimiter.QPS() != tc.want || !cfg.RateLimiter.TryAccept():
				t.Errorf("limiter %v, want one of %v a second", cfg.RateLimiter, tc.want)
			}
		})
	}
	mine := flowcontrol.NewFakeAlwaysRateLimiter()
	if cfg := Throttled(&rest.Config{RateLimiter: mine}); cfg.RateLimiter != mine {
		t.Error("the caller's limiter was replaced")
	}
}
