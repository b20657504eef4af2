// Package pty opens pseudo terminals for the programs of tests.
package pty

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Lines is the height of a terminal.
const Lines = 24

// Open returns both ends of a new terminal. The test has ours, which is closed at its end; a
// program gets theirs, which the test closes once the program has it. A system without pseudo
// terminals skips the test.
func Open(t testing.TB, columns uint16) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	Resize(t, ours, columns)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// Resize makes a terminal wider or narrower.
func Resize(t testing.TB, ours *os.File, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: Lines, Col: columns}); err != nil {
		t.Fatal(err)
	}
}
