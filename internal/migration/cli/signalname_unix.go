//go:build unix

package cli

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName returns a name such as "SIGTERM", or "" for what is no signal.
func signalName(s syscall.Signal) string { return unix.SignalName(s) }
