package write

import (
	"cmp"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Throttled gives a configuration its limit of requests; it may change it.
func Throttled(cfg *rest.Config) *rest.Config {
	switch {
	case cfg.RateLimiter != nil || cfg.QPS < 0:
	case cfg.QPS == 0:
		cfg.QPS = -1
	default:
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cmp.Or(cfg.Burst, rest.DefaultBurst))
	}
	return cfg
}
