package servicecatalog

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// process is a running part of Service Catalog.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	log    string
	ready  chan struct{} // closed when it says so
	exited chan struct{} // closed when it is gone
}

// start starts the binary with its log in dir. It ends when its stdin does, and so with this
// process.
func start(binary, dir string, args ...string) (*process, error) {
	p := &process{
		name: "service-catalog-" + args[0], cmd: exec.Command(binary, args...),
		ready: make(chan struct{}), exited: make(chan struct{}),
	}
	p.log = filepath.Join(dir, p.name+".log")
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	defer log.Close()
	p.cmd.Dir, p.cmd.Stderr = dir, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	go func() {
		defer close(p.exited)
		said := false
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if lines.Text() == "ready" && !said {
				said = true
				close(p.ready)
			}
		}
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// kill is kill -9.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = p.stdin.Close()
}

// awaitReady returns when it says that it works.
func (p *process) awaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.exited:
		return p.died()
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w", p.name, ctx.Err())
	}
}

// died explains an end that nobody asked for.
func (p *process) died() error {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return fmt.Errorf("%s ended (%s); the end of its log:\n%s", p.name, p.cmd.ProcessState, strings.Join(lines[max(0, len(lines)-10):], "\n"))
}
