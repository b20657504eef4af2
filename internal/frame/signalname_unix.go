//go:build unix

package frame

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalName returns a name such as "SIGTERM", or "" for what is no signal.
func SignalName(s syscall.Signal) string { return unix.SignalName(s) }
