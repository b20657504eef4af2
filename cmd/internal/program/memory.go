package program

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Memory is for a process whose memory is mostly of events, each garbage a moment later. Less work
// on that is worth the memory, below four fifths of the limit of the container. What GOGC and
// GOMEMLIMIT say is the user's decision. It returns the limit in bytes, 0 if there is none.
func Memory() int64 {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	// Without a container there is no limit.
	_, _ = memlimit.Set(memlimit.WithRatio(0.8), memlimit.WithProvider(memlimit.FromCgroup))
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return 0
}
