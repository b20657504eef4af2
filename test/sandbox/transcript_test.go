//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// The size of the terminal. Its last line is the prompt of the shell.
const (
	columns = 80
	rows    = 24 - 1
)

var (
	colour = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	// erased is what the status line has drawn and erased again.
	erased = regexp.MustCompile(`[^\n]*\r\x1b\[J|[^\n\x1b]*\r`)
)

// screen is what a command leaves on a terminal: its lines, without colours and without the status line.
func screen(sent string) []string {
	text := strings.ReplaceAll(erased.ReplaceAllString(colour.ReplaceAllString(sent, ""), ""), "\x1b[J", "")
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// visible are those of the last lines that fit on the terminal, which wraps what is too wide.
func visible(lines []string) []string {
	free := rows
	for i := len(lines) - 1; i >= 0; i-- {
		if free -= max(1, (utf8.RuneCountInString(lines[i])+columns-1)/columns); free < 0 {
			return lines[i+1:]
		}
	}
	return lines
}

// pasteable returns the command in a line that has one, and whether it is a next step: these have less of an indent than
// the advice of a finding.
func pasteable(line string) (text string, next bool) {
	text = strings.TrimLeft(line, " ")
	if text == line || !strings.HasPrefix(text, "eventmesh-migrate ") && !strings.HasPrefix(text, "kubectl ") {
		return "", false
	}
	return text, strings.HasPrefix(line, "  "+text)
}

// operator is a person at a terminal of that size, who knows nothing but what the screen says.
type operator struct {
	t          *testing.T
	env        []string
	pasted     int
	note, next string
	advice     []string
}

// paste runs a command in a shell, and reads the screen.
func (o *operator) paste(line string) (code int) {
	o.t.Helper()
	o.pasted++
	sent, code := suite.OnTerminal(o.t, "y\n", suite.Program{Binary: "/bin/bash", Args: []string{"-c", line}, Env: o.env})
	o.t.Logf("$ %s   (%d)\n%s", line, code, strings.Join(screen(sent), "\n"))
	o.note, o.next, o.advice = "", "", nil
	for _, l := range visible(screen(sent)) {
		text, next := pasteable(l)
		switch {
		case strings.HasPrefix(l, "Next: "), l == "The migration is finished.":
			o.note, o.next = l, ""
		case next && o.note != "" && o.next == "":
			o.next = text
		case text != "" && !next:
			o.advice = append(o.advice, text)
		case o.next == "" && o.note != "":
			o.note += " " + l
		}
	}
	return code
}

func TestTranscript(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(suite.Build(t, "./cmd/eventmesh-migrate"), filepath.Join(dir, "eventmesh-migrate")); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	term := open(t, kubeconfig)
	term.sees("In this terminal:")
	o := &operator{t: t, env: []string{"TERM=xterm", "KUBECONFIG=" + kubeconfig, "PATH=" + dir + ":" + os.Getenv("PATH")}}

	o.next = "eventmesh-migrate plan --httpsource-sync.ready-timeout=15s"
	run := 0
	for range 25 {
		if strings.Contains(o.note, "upgrade application-connector") {
			term.types("switch", "Next, in the second terminal:")
		}
		line := o.next
		if strings.Contains(line, " run ") {
			run++
			switch run {
			case 1:
				term.types("break adapter", "Broken: ")
			case 4:
				term.types("break webhook", "Broken: ")
			}
		}
		code := o.paste(line)
		t.Logf("code %d, note %q, next %q, advice %q", code, o.note, o.next, o.advice)
		if run == 1 || run == 4 {
			term.types("heal", "Repaired: ")
		}
		if o.note == "The migration is finished." || o.next == "" {
			return
		}
	}
}
