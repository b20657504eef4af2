package natsserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// mount makes the directory of the events a volume of a size; 0 leaves it as it is.
func (s *Server) mount(size int64) {
	s.t.Helper()
	if size == 0 {
		return
	}
	Mount(s.t, filepath.Join(s.dir, "data"), size)
}

// Mount makes a directory a file system of its own that has so many bytes and no more, until the
// test ends. Without root the test is skipped.
func Mount(t testing.TB, dir string, size int64) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("a volume of its own cannot be mounted: %v. Run the test as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Remount changes the volume of a server that StartOn has started: what tmpfs takes as options,
// such as size=<bytes> and nr_inodes=<number>.
func (s *Server) Remount(options string) {
	s.t.Helper()
	if err := syscall.Mount("tmpfs", filepath.Join(s.dir, "data"), "tmpfs", syscall.MS_REMOUNT, options); err != nil {
		s.t.Fatal(err)
	}
}

// format makes the directory of the events a file system in a file, which becomes read-only at an
// error, as volumes do that a node mounts.
func (s *Server) format(size int64) {
	s.t.Helper()
	if err := os.WriteFile(s.image(), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Truncate(s.image(), size); err != nil {
		s.t.Fatal(err)
	}
	output, err := exec.Command("mkfs.ext4", "-q", s.image()).CombinedOutput() //nolint:gosec // a test's own
	if err == nil {
		output, err = s.attach()
	}
	if err != nil {
		s.t.Skipf("a disk of its own cannot be mounted: %v: %s. Run the test as root, with mkfs.ext4 and loop devices", err, output)
	}
	s.t.Cleanup(func() {
		if err := syscall.Unmount(s.Data(), syscall.MNT_DETACH); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *Server) image() string { return filepath.Join(s.dir, "disk") }

func (s *Server) attach() (output []byte, err error) {
	return exec.Command("mount", "-o", "loop,errors=remount-ro", s.image(), s.Data()).CombinedOutput() //nolint:gosec // a test's own
}

// FailDisk plays an error of the volume of a server that StartOnDisk has started: its file system
// is read-only from now on.
func (s *Server) FailDisk() {
	s.t.Helper()
	device, err := exec.Command("findmnt", "--noheadings", "--output", "SOURCE", s.Data()).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	name := filepath.Base(strings.TrimSpace(string(device)))
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", name, "trigger_fs_error"), []byte("by a test"), 0o600); err != nil {
		s.t.Skipf("an error of a disk cannot be played: %v. Run the test as root, outside of a container", err)
	}
}

// HangDisk has each write to the volume of a server wait that is on a disk, until goOn is called:
// none fails, as with a volume of a provider that answers nothing.
func (s *Server) HangDisk() (goOn func()) {
	s.t.Helper()
	if output, err := exec.Command("fsfreeze", "--freeze", s.Data()).CombinedOutput(); err != nil { //nolint:gosec // a test's own
		s.t.Fatalf("fsfreeze: %v: %s", err, output)
	}
	goOn = sync.OnceFunc(func() {
		if output, err := exec.Command("fsfreeze", "--unfreeze", s.Data()).CombinedOutput(); err != nil { //nolint:gosec // a test's own
			s.t.Errorf("fsfreeze: %v: %s", err, output)
		}
	})
	s.t.Cleanup(goOn)
	return goOn
}

// RepairDisk checks the file system and mounts it again. The process must have ended.
func (s *Server) RepairDisk() {
	s.t.Helper()
	if err := syscall.Unmount(s.Data(), 0); err != nil {
		s.t.Fatal(err)
	}
	// Exit code 1: errors were corrected.
	output, err := exec.Command("e2fsck", "-fy", s.image()).CombinedOutput() //nolint:gosec // a test's own
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() > 1) {
		s.t.Fatalf("e2fsck: %v: %s", err, output)
	}
	if output, err := s.attach(); err != nil {
		s.t.Fatalf("mount: %v: %s", err, output)
	}
}
