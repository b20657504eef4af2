package poll

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// most is how many times longer Within is at most.
const most = 8

// Within is how long something may take here that takes d at most on an idle machine: as many times
// longer as more processes wanted to run in the last minute than there are processors, and eight
// times at most. It is d where /proc/loadavg does not tell.
func Within(d time.Duration) time.Duration {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return d
	}
	return stretched(d, string(text), runtime.NumCPU())
}

func stretched(d time.Duration, loadavg string, processors int) time.Duration {
	first, _, _ := strings.Cut(loadavg, " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return d
	}
	return time.Duration(float64(d) * min(max(1, load/float64(processors)), most))
}
