//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestTheVolumeHasOneProcess starts a second server on the directory of a first one. It waits, also
// while the first one gets a signal through the program, and starts when the first one is killed.
func TestTheVolumeHasOneProcess(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	store := t.TempDir()
	start := func(extra ...string) (*exec.Cmd, *output) {
		t.Helper()
		cmd, out := exec.Command(binary, append([]string{"-a", "127.0.0.1", "-p", "-1", "-js", "-sd", store}, extra...)...), &output{} //nolint:gosec // built above
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd, out
	}
	says := func(out *output, what string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !strings.Contains(out.String(), what); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%q is not in\n%s", what, out)
			}
		}
	}
	pid := filepath.Join(t.TempDir(), "pid")
	first, firstSays := start("-P", pid)
	says(firstSays, "Server is ready")
	_, secondSays := start()
	says(secondSays, "This one waits until that process has ended")

	// The hook of a pod that ends asks its server to reopen logs here, to hand over there: it does
	// not wait for the lock.
	if out, err := exec.Command(binary, "-sl=reopen="+pid).CombinedOutput(); err != nil {
		t.Errorf("a signal cannot be sent: %v\n%s", err, out)
	}
	says(firstSays, "Trapped")
	if strings.Contains(secondSays.String(), "Starting nats-server") {
		t.Errorf("two processes use one directory:\n%s", secondSays)
	}
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	says(secondSays, "Server is ready")
}

// TestAVolumeThatCannotBeWritten is an error, not a server without a volume.
func TestAVolumeThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lock(file); err == nil {
		t.Error("a file is no directory")
	}
}
