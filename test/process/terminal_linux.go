package process

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/pty"
)

// Prompt is the end of a question to which the answer is yes or no.
const Prompt = "[y/N] "

// OnTerminal runs a program at a terminal of 80 columns and 24 lines, at which a person answers
// its question. It returns what the terminal was sent, and the exit code.
func OnTerminal(t testing.TB, answer string, program Program) (sent string, code int) {
	t.Helper()
	return Asked(t, func() string { return answer }, program)
}

// Asked is OnTerminal with a person who does something else before the answer.
func Asked(t testing.TB, answer func() string, program Program) (sent string, code int) {
	t.Helper()
	ours, theirs := pty.Open(t, 80)
	program.Terminal = theirs
	p := Start(t, program)
	_ = theirs.Close() // the program has it
	var out bytes.Buffer
	asks := make(chan struct{})
	go func() {
		defer close(asks)
		part := make([]byte, 4096)
		for {
			n, err := ours.Read(part)
			out.Write(part[:n])
			if bytes.HasSuffix(part[:n], []byte(Prompt)) {
				asks <- struct{}{}
			}
			if err != nil {
				return // EIO, when the last holder is gone
			}
		}
	}()
	for range asks {
		if _, err := io.WriteString(ours, answer()+"\n"); err != nil {
			t.Fatalf("%s does not take an answer: %v", p, err)
		}
	}
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), p.Wait()
}
