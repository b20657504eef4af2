package cli

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a new terminal of 24 lines.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
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
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

var escape = regexp.MustCompile(`^\x1b\[(\d*)([A-Za-z])`)

// shown is what a terminal shows after output: it knows new lines, moving the
// cursor up, and erasing what is below it.
func shown(output string) []string {
	lines, row := []string{""}, 0
	for len(output) > 0 {
		if m := escape.FindStringSubmatch(output); m != nil {
			output = output[len(m[0]):]
			switch n, _ := strconv.Atoi(m[1]); m[2] {
			case "A":
				row -= n
			case "J":
				lines = append(lines[:row], "")
			}
			continue
		}
		c := output[0]
		output = output[1:]
		switch c {
		case '\r':
		case '\n':
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
		default:
			lines[row] += string(c)
		}
	}
	return lines
}

func TestProgressBar(t *testing.T) {
	ours, theirs := openTerminal(t)
	cmd := command(t, "bar", "", "--output=json")
	cmd.Stderr = theirs
	launch(t, cmd)
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}

	// The terminal ends with an error once nobody has it open.
	var all bytes.Buffer
	buf := make([]byte, 4096)
	stopped := false
	var during []string
	for {
		n, err := ours.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			break
		}
		if now := shown(all.String()); !stopped && len(now) > 1 &&
			strings.Contains(all.String(), "line 19 of the log") && strings.Contains(strings.Join(now, "\n"), "2 waiting, created Hat wardrobe/new") {
			during, stopped = now, true
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v:\n%s", err, &all)
	}
	if !stopped {
		t.Fatalf("the bar was never seen:\n%q", all.String())
	}

	bar := regexp.MustCompile(`^3/10 \[=+> +\] \d+s, 2 waiting, created Hat wardrobe/new$`)
	if !bar.MatchString(during[len(during)-2]) {
		t.Errorf("the last line should be the bar, is %q", during[len(during)-2])
	}

	var got []string
	for _, line := range shown(all.String()) {
		if strings.Contains(line, "waiting") || strings.Contains(line, "3/10") {
			t.Errorf("a piece of the bar is left: %q", line)
		}
		// Time, level in colour, message.
		if _, message, ok := strings.Cut(line, "INFO  "); ok && strings.Contains(message, "the ") && !strings.Contains(message, "run:") {
			got = append(got, message)
		}
	}
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("line %d of the log", i))
	}
	want = append(want, "after the bar")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("every line of the log is whole and stays (-want +got):\n%s", diff)
	}
}

func TestScreenWithoutWork(t *testing.T) {
	var b bytes.Buffer
	s := &screen{w: &b}
	s.Step(1, 1, "nothing was started")
	s.Start(0)
	s.Stop()
	s.Stop()
	if _, err := s.Write([]byte("a line\n")); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != "a line\n" {
		t.Errorf("there is nothing to show progress of, but this is shown: %q", got)
	}
}
