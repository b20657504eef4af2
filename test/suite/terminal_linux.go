package suite

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Prompt is the end of a question to which the answer is yes or no.
const Prompt = "[y/N] "

// OnTerminal runs a program at a terminal of 80 columns and 24 lines, at which a person answers
// its question. It returns what the terminal was sent, and the exit code.
func OnTerminal(t testing.TB, answer string, program Program) (sent string, code int) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no pseudo terminals: %v", err)
	}
	defer ours.Close()
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	program.Terminal = theirs
	p := Start(t, program)
	_ = theirs.Close() // the program has it
	var out bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		part := make([]byte, 4096)
		for {
			n, err := ours.Read(part)
			out.Write(part[:n])
			if bytes.HasSuffix(part[:n], []byte(Prompt)) {
				_, err = io.WriteString(ours, answer+"\n")
			}
			if err != nil {
				return // EIO, when the last holder is gone
			}
		}
	}()
	code = p.Wait()
	<-read
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), code
}
