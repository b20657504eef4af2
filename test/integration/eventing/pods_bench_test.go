//go:build bench

package eventing_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// limitCPU lets a process have a part of a CPU, as the kubelet does for a container with a limit.
func limitCPU(t *testing.T, p *process.Process, name string, part float64) {
	t.Helper()
	const period = 100_000 // microseconds
	dir, files := filepath.Join("/sys/fs/cgroup/cpu", name), map[string]string{
		"cpu.cfs_period_us": strconv.Itoa(period), "cpu.cfs_quota_us": strconv.Itoa(int(period * part)),
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		dir, files = filepath.Join("/sys/fs/cgroup", name), map[string]string{"cpu.max": fmt.Sprintf("%d %d", int(period*part), period)}
	}
	err := os.MkdirAll(dir, 0o755)
	if os.IsPermission(err) {
		t.Skipf("a limit of CPU needs root: %v", err)
	}
	t.Cleanup(func() {
		p.Kill()
		poll.Until(t, limit, "the group of a process that has ended can be removed", func(context.Context) error { return os.Remove(dir) })
	})
	for file, content := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600)
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.PID())), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestBenchPods: 1, 2 and 3 controllers with a quarter of a CPU each deliver the same events, while
// NATS and the sinks have no limit. What is reported is the median of how much faster the more are.
func TestBenchPods(t *testing.T) {
	rounds, events := measure.Number(t, "EVENTING_BENCH_PAIRS", 5), measure.Number(t, "EVENTING_BENCH_EVENTS", 5_000)
	const subscribers, part = 20, 0.25
	r := newRig(t, true)
	sink := startCounter(t)
	r.subscribeMany(t, subscribers, sink)
	first := r.controller("pod-0", "--lease-duration=1s")
	for i := range subscribers {
		r.await(fmt.Sprintf("s%d", i), "ready", ready)
	}
	first.Kill()
	ratios := map[int][]float64{}
	for round := range rounds {
		var alone float64
		for n := 1; n <= 3; n++ {
			sink.close()
			var all []*process.Process
			for i := range n {
				p := r.controller(fmt.Sprintf("pod-%d", i), longLease, "--log-level=warn")
				limitCPU(t, p, fmt.Sprintf("eventing-bench-%d-%d-%d", round, n, i), part)
				all = append(all, p)
			}
			time.Sleep(15 * time.Second) // all know each other, and have the Subscriptions
			r.fill(t, subscribers, events)
			poll.Until(t, 2*time.Minute, "requests wait", func(context.Context) error {
				if is := sink.waiting.Load(); is < 10*subscribers {
					return fmt.Errorf("%d", is)
				}
				return nil
			})
			began := time.Now()
			close(*sink.gate.Load())
			poll.Until(t, 5*time.Minute, "events are delivered", func(context.Context) error {
				if is := sink.n.Load(); is < int64(events) {
					return fmt.Errorf("%d", is)
				}
				return nil
			})
			rate := float64(events) / time.Since(began).Seconds()
			if n == 1 {
				alone = rate
			}
			ratios[n] = append(ratios[n], rate/alone)
			t.Logf("round %d: %d pods of %.2f CPU: %.0f/s", round+1, n, part, rate)
			r.awaitEmpty(t)
			for _, p := range all {
				p.Kill()
			}
		}
	}
	for n := 2; n <= 3; n++ {
		slices.Sort(ratios[n])
		t.Logf("%d pods / 1 pod: median %.2f (%.2f … %.2f)", n, ratios[n][len(ratios[n])/2], ratios[n][0], ratios[n][len(ratios[n])-1])
	}
}
