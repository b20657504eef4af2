// Package process builds the programs of this module and runs them for tests: in an isolated
// environment, killed at the end of the test, and with a data race as a failure.
package process

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/measure"
)

// runLimit is how long a process may take before it counts as hanging.
const runLimit = 3 * time.Minute

// Program says how a program under test is started.
type Program struct {
	// Binary is the path of the executable: see Build.
	Binary string
	Args   []string
	// Env is added to an environment that has nothing of this process: no variable
	// of it may lead the program to another cluster.
	Env []string
	// Dir is the working directory, by default that of the test.
	Dir string
	// Stdin, if set, is what it reads, and Stdout gets what it writes there, while it
	// runs. The one who writes to Stdin closes it at the end of the test at the latest.
	Stdin  *os.File
	Stdout io.Writer
	// Stderr, if set, gets what it writes there, while it runs.
	Stderr io.Writer
	// Terminal, if set, is stdin, stdout and stderr.
	Terminal *os.File
	// Limit is how long Wait waits before the program counts as hanging; 0: 3
	// minutes.
	Limit time.Duration
	// Measured programs are asked for their memory all the while: see Usage.
	Measured bool
}

// Process is a program that runs, or has run.
type Process struct {
	t              testing.TB
	program        Program
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	exited         chan struct{}
	usage          measure.Usage
}

// Run runs a program to its end.
func Run(t testing.TB, program Program) *Process {
	t.Helper()
	p := Start(t, program)
	p.Wait()
	return p
}

// Start starts a program. It is killed at the end of the test at the latest, and
// a test that fails logs what it wrote.
func Start(t testing.TB, program Program) *Process {
	t.Helper()
	p := &Process{t: t, program: program, cmd: exec.Command(program.Binary, program.Args...), exited: make(chan struct{})}
	p.cmd.Dir = program.Dir
	p.cmd.Env = append([]string{"HOME=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}, program.Env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if program.Stdin != nil {
		p.cmd.Stdin = program.Stdin
	}
	if program.Stdout != nil {
		p.cmd.Stdout = io.MultiWriter(&p.stdout, program.Stdout)
	}
	if program.Stderr != nil {
		p.cmd.Stderr = io.MultiWriter(&p.stderr, program.Stderr)
	}
	if program.Terminal != nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = program.Terminal, program.Terminal, program.Terminal
	}
	if err := p.start(); err != nil {
		t.Fatalf("cannot start %s: %v", p, err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s: %s. Its log:\n%s\nIts report:\n%s", p, p.cmd.ProcessState, &p.stderr, &p.stdout)
		}
	})
	return p
}

func (p *Process) start() error {
	wait := func() { _ = p.cmd.Wait() }
	if p.program.Measured {
		measured, err := measure.Start(p.cmd)
		if err != nil {
			return err
		}
		wait = func() { p.usage, _ = measured() }
	} else if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.exited)
		wait()
	}()
	return nil
}

// String is the command line, for messages.
func (p *Process) String() string {
	return strings.Join(append([]string{filepath.Base(p.program.Binary)}, p.program.Args...), " ")
}

// Kill ends the process with SIGKILL, and returns when it is dead and waited for.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("cannot send %s: %v", s, err)
	}
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Await waits for something to happen while the process runs, and fails the test
// if the process ends before.
func (p *Process) Await(happened <-chan struct{}, what string) {
	p.t.Helper()
	select {
	case <-happened:
	case <-p.exited:
		p.t.Fatalf("the process ended (%s) before %s", p.cmd.ProcessState, what)
	case <-time.After(runLimit):
		p.t.Fatalf("%s did not happen within %s", what, runLimit)
	}
}

// Wait waits for the process to end by itself, and returns its exit code: -1 if a
// signal ended it. A data race or a panic fails the test.
func (p *Process) Wait() int {
	p.t.Helper()
	limit := cmp.Or(p.program.Limit, runLimit)
	select {
	case <-p.exited:
	case <-time.After(limit):
		// The Go runtime answers with the stacks of all goroutines, on stderr.
		p.Signal(syscall.SIGQUIT)
		select {
		case <-p.exited:
		case <-time.After(10 * time.Second):
		}
		p.Kill()
		p.t.Fatalf("the process did not end within %s", limit)
	}
	if log := p.stderr.String(); strings.Contains(log, "WARNING: DATA RACE") || strings.Contains(log, "\npanic: ") {
		p.t.Errorf("%s: a data race or a panic:\n%s", p, log)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stdout is what the process wrote there. It must have ended.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr is what the process wrote there. It must have ended.
func (p *Process) Stderr() string { return p.stderr.String() }

// PID is that of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Usage is what a measured process took. It must have ended.
func (p *Process) Usage() measure.Usage { return p.usage }
