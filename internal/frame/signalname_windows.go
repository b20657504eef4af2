package frame

import "syscall"

// SignalName returns a name such as "SIGTERM", or "" for what is no signal. Windows has only those
// that Go makes of Ctrl-C and of the end of a session; the others are for exit codes of jobs in
// clusters.
func SignalName(s syscall.Signal) string {
	return map[syscall.Signal]string{
		syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGABRT: "SIGABRT",
		syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE", syscall.SIGTERM: "SIGTERM",
	}[s]
}
