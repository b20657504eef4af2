// Package measure runs a program and says what it took.
package measure

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Usage is what one run of a program took.
type Usage struct {
	// PeakMiB is the highest resident memory, in MiB.
	PeakMiB float64
	// Seconds of wall clock and of CPU, user and system.
	Seconds, CPUSeconds float64
}

// sampling is how often the high-water mark is read. It only grows, so that what
// is missed is what was added in the last moments before the exit.
const sampling = 5 * time.Millisecond

// Run runs cmd, which must not have been started. The error is that of cmd.Run:
// an *exec.ExitError if the program ended with another code than 0, and then
// Usage is valid nevertheless.
//
// The kernel's own figure for a finished child (ru_maxrss) includes what its
// parent had when it forked, so that the high-water mark (VmHWM) is read while
// the child lives.
func Run(cmd *exec.Cmd) (Usage, error) {
	wait, err := Start(cmd)
	if err != nil {
		return Usage{}, err
	}
	return wait()
}

// Start starts cmd. Its end is waited for with the function that is returned, once,
// and not with cmd.Wait.
func Start(cmd *exec.Cmd) (wait func() (Usage, error), err error) {
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited, peak := make(chan struct{}), make(chan float64)
	go func() {
		ticker := time.NewTicker(sampling)
		defer ticker.Stop()
		kib := 0.0
		for {
			select {
			case <-exited:
				peak <- kib / 1024
				return
			case <-ticker.C:
				kib = max(kib, highWater(cmd.Process.Pid))
			}
		}
	}()
	return func() (Usage, error) {
		err := cmd.Wait()
		close(exited)
		usage := Usage{PeakMiB: <-peak, Seconds: time.Since(began).Seconds()}
		if state := cmd.ProcessState; state != nil {
			usage.CPUSeconds = (state.UserTime() + state.SystemTime()).Seconds()
		}
		return usage, err
	}, nil
}

// Peak is the highest resident memory of a process that runs, in MiB; 0 if it cannot be read.
func Peak(pid int) float64 { return highWater(pid) / 1024 }

// highWater is the process's VmHWM in KiB, 0 if it cannot be read.
func highWater(pid int) (kib float64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
		if _, err := fmt.Sscanf(after, "%f", &kib); err != nil {
			return 0
		}
	}
	return kib
}

// CPU is the time that a process that runs has been given until now, user and system, in ticks of
// the kernel; 0 if it cannot be read.
func CPU(pid int) (ticks float64) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is a name in parentheses; utime and stime are the 14th and 15th.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	for _, field := range fields[11:13] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return ticks
}
