// Package frame is what programs for people have in common: flags and their errors, help, the way
// to the API server, the log, signals, tables and the forms of -o, and the exit codes. It knows
// none of the products: internal/command makes the frame of jobs of it,
// cmd/eventmesh-migrate and cmd/kubectl-eventing are programs with commands of their own.
//
// Of the environment it reads what its callers hand over: KUBECONFIG and HOME (where the kubeconfig
// is), KUBERNETES_SERVICE_HOST (whether this is a pod), TERM and NO_COLOR (what the terminal can
// do). The Go runtime and its libraries read theirs: GOMEMLIMIT, HTTPS_PROXY, SSL_CERT_FILE.
package frame

import (
	"io"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/term"
)

// The exit codes of commands that only read, and of those that end by a signal. The migration has
// more of them, and these with the same meaning.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
	ExitLocked = 5
	// ExitFindings and ExitNotChecked: something is wrong or left to do, and what the command asks
	// for could not be read.
	ExitFindings   = 6
	ExitNotChecked = 7
	// ExitSignal is added to the number of the signal.
	ExitSignal = 128
)

// IO is all that a process uses, except the API server.
type IO struct {
	// Args are the command line's, without the name of the program.
	Args []string
	// Env looks up a variable, "" if it is not set.
	Env            func(string) string
	Stdout, Stderr io.Writer
}

// OS returns the IO of this process.
func OS() IO {
	return IO{Args: os.Args[1:], Env: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr}
}

// MemoryLimit is where the garbage collector starts to work harder. A pod of
// 64 MiB has to hold the heap, the pages of the binary in use, and the stacks;
// by its default rule the collector lets the heap double between two cycles,
// and a list of a few thousand objects would peak above that. The limit is raised
// for a larger cluster: see raiseMemoryLimit.
const MemoryLimit = 40 << 20

// belowLimit is how far the heap may grow between two cycles of the collector, in percent of what
// is in use, as long as it is below MemoryLimit: a run of 500 Subscriptions took some 6 % longer
// with Go's own 100.
const belowLimit = 400

// BoundMemory makes the garbage collector work harder than by its default rule when the heap is not
// small any more, until the returned function is called. What GOMEMLIMIT and GOGC say is the user's
// choice, and stays. It is to be called once in a process.
func BoundMemory() (stop func()) {
	// A negative limit only asks; MaxInt64 says that GOMEMLIMIT set none.
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return func() {}
	}
	debug.SetMemoryLimit(MemoryLimit)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(belowLimit)
	}
	return raiseMemoryLimit()
}

// raiseMemoryLimit keeps the memory limit a quarter above what is in use, until the
// returned function is called. Near the limit, or above it, the collector would take
// half of the processor's time.
func raiseMemoryLimit() (stop func()) {
	done := make(chan struct{})
	go func() {
		limit := int64(MemoryLimit)
		// Lists of thousands of objects fill the heap in less than a second.
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			metrics.Read(live)
			used := int64(live[0].Value.Uint64())
			if needed := used + used/4 + otherMemory; needed > limit {
				limit = needed
				debug.SetMemoryLimit(limit)
			}
		}
	}()
	return func() { close(done) }
}

// otherMemory is what the Go runtime takes in addition to the heap: stacks and its own data.
const otherMemory = 8 << 20

// IsTerminal says whether a person sits at the stream.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Smart says whether a terminal can move its cursor and show colours.
func Smart(w io.Writer, env func(string) string, isTerminal func(io.Writer) bool) bool {
	return isTerminal(w) && env("TERM") != "" && env("TERM") != "dumb"
}
