//go:build slow || e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// The smallest terminal has 80 columns and 24 lines. Two of them frame the commands, and the last
// one has the prompt.
const columns, rows = 80, 24 - 3

// rowsOf counts the lines of a terminal that a text takes, which wraps what is too wide.
func rowsOf(text string) int {
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n += max(1, (utf8.RuneCountInString(line)+columns-1)/columns)
	}
	return n
}

// screen is a terminal in which the cluster runs.
type screen struct {
	t       *testing.T
	process *process.Process
	file    string
	o       options
	args    []string
}

// up starts the program as make eventing-up does.
func up(t *testing.T, o options) *screen {
	t.Helper()
	needsKubectl(t)
	s := &screen{t: t, o: o, file: filepath.Join(t.TempDir(), "screen"), args: []string{"-dir=" + o.dir, fmt.Sprintf("-processes=%t", o.processes)}}
	file, err := os.Create(s.file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	s.process = process.Start(t, process.Program{Binary: process.Build(t, "./test/eventing"), Args: append([]string{"-up"}, s.args...), Env: os.Environ(), Stdout: file, Limit: 5 * time.Minute})
	t.Cleanup(func() {
		if t.Failed() { // whatever the state is
			s.stop()
		}
	})
	return s
}

// stop does what make stop does, and returns what it says.
func (s *screen) stop() string {
	p := process.Run(s.t, process.Program{Binary: process.Build(s.t, "./test/eventing"), Args: append([]string{"-stop"}, s.args...), Env: os.Environ()})
	if code := p.Wait(); code != 0 {
		s.t.Errorf("-stop: exit code %d\n%s", code, p.Stderr())
	}
	return p.Stdout()
}

func (s *screen) text() string {
	raw, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw)
}

// sees waits until there is more of a text than there was.
func (s *screen) sees(text string, times int) {
	s.t.Helper()
	poll.Until(s.t, 20*time.Minute, fmt.Sprintf("the screen has %q", text), func(context.Context) error {
		select {
		case <-s.process.Exited():
			return poll.Stop(fmt.Errorf("the program has ended\n%s\n%s", s.text(), s.process.Stderr()))
		default:
		}
		if n := strings.Count(s.text(), text); n < times {
			return fmt.Errorf("it is there %d times", n)
		}
		return nil
	})
}

// paste runs the commands that the screen shows, in a shell of their own: all of them, or the one
// that a number names. What is exported counts for all.
func (s *screen) paste(number int) string {
	s.t.Helper()
	_, block, found := strings.Cut(s.text(), "Paste these lines into another terminal:\n")
	block, _, complete := strings.Cut(block, "\nCtrl-C ends the cluster.")
	parts := strings.Split(block, "\n# ")
	if !found || !complete || len(parts) != 4 {
		s.t.Fatalf("the screen does not show three commands:\n%s", s.text())
	}
	if n := rowsOf(block); n > rows {
		s.t.Errorf("the commands have %d lines of a terminal, more than %d", n, rows)
	}
	p := process.Run(s.t, process.Program{
		Binary: "/bin/bash", Args: []string{"-e", "-c", parts[0] + "\n# " + parts[number]}, Dir: s.t.TempDir(),
		Env: []string{"PATH=" + os.Getenv("PATH")}, Limit: 11 * time.Minute,
	})
	if code := p.Wait(); code != 0 {
		s.t.Fatalf("%s: exit code %d\n%s%s", parts[number], code, p.Stdout(), p.Stderr())
	}
	return p.Stdout()
}

// order publishes an order, and sees it at its sink.
func (s *screen) order(n int) {
	s.t.Helper()
	if answer := s.paste(2); !strings.Contains(answer, " 204 ") {
		s.t.Errorf("the publisher answers %s", answer)
	}
	s.sees("The sink orders got event", n)
}

// gone checks that nothing is left of a cluster.
func (s *screen) gone(r *running) {
	s.t.Helper()
	poll.Until(s.t, 30*time.Second, "all processes have ended", func(context.Context) error {
		if left := r.left(); len(left) > 0 {
			return fmt.Errorf("%v run", left)
		}
		return nil
	})
	if _, err := os.Stat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
		s.t.Errorf("the files of the cluster are still there: %v", err)
	}
	if left, err := os.ReadDir(s.o.dir); err != nil || len(left) > 0 {
		s.t.Errorf("left are %v, %v", left, err)
	}
}

func (s *screen) running() *running {
	s.t.Helper()
	r, err := s.o.read()
	if err != nil || r == nil {
		s.t.Fatalf("nothing says what runs: %v", err)
	}
	return r
}

// tried pastes each command, ends the cluster as make stop does, starts another one, lets it crash,
// and removes what that left.
func tried(t *testing.T, o options, third func(*screen)) {
	s := up(t, o)
	s.sees("Ctrl-C ends the cluster.", 1)
	r := s.running()
	if err := o.note(); err == nil || !strings.Contains(err.Error(), "make stop") {
		t.Errorf("a second cluster of the same directory: %v", err)
	}
	s.paste(1)
	s.order(1)
	s.order(2) // the same command is another event
	third(s)
	if said := s.stop(); !strings.Contains(said, "The cluster is stopped") {
		t.Errorf("-stop says %q", said)
	}
	if code := s.process.Wait(); code != 0 {
		t.Errorf("after -stop: exit code %d", code)
	}
	s.gone(r)

	s = up(t, o)
	s.sees("\n2. ", 1)
	r = s.running()
	s.process.Kill()
	if said := s.stop(); !strings.Contains(said, "The cluster is stopped") {
		t.Errorf("-stop says %q", said)
	}
	s.gone(r)

	s = up(t, o)
	s.sees("\n1. ", 1)
	r = s.running()
	s.process.Signal(syscall.SIGINT)
	if code := s.process.Wait(); code != 0 {
		t.Errorf("Ctrl-C: exit code %d\n%s", code, s.process.Stderr())
	}
	s.gone(r)
}
