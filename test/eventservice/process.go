// Package eventservice starts the real event-service as a process of its own, and
// an adapter for it to post to. Its tests hold the contract of the legacy event API
// (docs/migration/domain.md §3) over HTTP; test/bench/eventservice measures it.
package eventservice

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startLimit is how long a process may take until it serves, on a machine that has
// other things to do.
const startLimit = 2 * time.Minute

// Process is a running event-service.
type Process struct {
	// URL is that of the API, MetricsURL that of /metrics, HealthURL that of probes.
	URL, MetricsURL, HealthURL string

	name   string
	cmd    *exec.Cmd
	exited chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Start runs binary on free ports, and returns when it serves. env is all that it
// gets of an environment.
func Start(ctx context.Context, binary string, env []string, args ...string) (*Process, error) {
	return StartServer(ctx, binary, env, append([]string{"--externalAPIPort=0", "--metricsPort=0"}, args...)...)
}

// StartServer is Start for another program with the same server. Its arguments say on
// which ports it listens.
func StartServer(ctx context.Context, binary string, env []string, args ...string) (*Process, error) {
	p := &Process{name: filepath.Base(binary), exited: make(chan struct{})}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Env = append([]string{"HOME=/nonexistent", "GORACE=atexit_sleep_ms=0"}, env...)
	// If the test process is killed, this one must not stay.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	serving := make(chan struct{})
	go p.read(stderr, serving)
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-serving:
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("%s ended (%s):\n%s", p.name, p.cmd.ProcessState, p.Log())
	case <-ctx.Done():
	case <-limit.C:
	}
	p.Kill()
	return nil, fmt.Errorf("%s does not serve:\n%s", p.name, p.Log())
}

// read keeps the log, and learns from it where the process listens.
func (p *Process) read(stderr io.Reader, serving chan<- struct{}) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadBytes('\n')
		p.mu.Lock()
		p.log.Write(line)
		p.mu.Unlock()
		var entry struct{ Message, Address string }
		if json.Unmarshal(line, &entry) == nil && entry.Address != "" {
			address := "http://127.0.0.1" + entry.Address[strings.LastIndex(entry.Address, ":"):]
			switch entry.Message {
			case "serving metrics":
				p.MetricsURL, p.HealthURL = address+"/metrics", address+"/v1/health"
			case "serving":
				p.URL = address
				close(serving)
			}
		}
		if err != nil {
			break
		}
	}
	_ = p.cmd.Wait()
	close(p.exited)
}

// Log returns what the process has logged.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// PID is that of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitCode is that of a process that has ended, -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Terminate sends SIGTERM.
func (p *Process) Terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends the process, and returns when it has.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Wait returns nil if the process ends by itself, with exit code 0.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return fmt.Errorf("%s does not end", p.name)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with %s", p.name, p.cmd.ProcessState)
	}
	return nil
}
