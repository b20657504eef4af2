package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a child whose output goes to a log file of its own.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// exited is closed when the child is gone; state is set by then.
	exited chan struct{}
	state  error
	// born is where this child's output begins in a log that earlier ones have written to.
	born int64
}

// start runs a child that cannot outlive this process, and that a Ctrl-C in the terminal does not
// reach: the order in which the cluster ends is decided in one place.
func start(dir, binary string, args ...string) (*process, error) {
	name := filepath.Base(binary)
	path := filepath.Join(dir, name+".log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	defer f.Close()
	born, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	p := &process{name: name, log: path, cmd: cmd, exited: make(chan struct{}), born: born}
	go func() {
		p.state = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// stop asks the child to end and, after the grace period, makes it.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// firstDeath tells which of the processes ends first.
func firstDeath(processes []*process) <-chan *process {
	died := make(chan *process, len(processes))
	for _, p := range processes {
		go func() {
			<-p.exited
			died <- p
		}()
	}
	return died
}

// died explains an end nobody asked for.
func (p *process) died() error {
	state := "exit status 0"
	if p.state != nil {
		state = p.state.Error()
	}
	err := fmt.Errorf("%s ended unexpectedly (%s); the end of %s:\n%s", p.name, state, p.log, p.tail(15))
	if strings.Contains(p.tail(50), "address already in use") {
		return errors.Join(errPortTaken, err)
	}
	return err
}

// errPortTaken marks an end that another attempt, with other ports, may avoid.
var errPortTaken = errors.New("port taken")

// tail returns the last lines this child has written.
func (p *process) tail(lines int) string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(content[min(p.born, int64(len(content))):], lines)
}

func lastLines(content []byte, n int) string {
	lines := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// freePort returns a loopback port that nobody listens on now. Somebody may before it is used: see
// errPortTaken.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("cannot find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
