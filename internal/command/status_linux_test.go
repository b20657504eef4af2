package command

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/pty"
)

// TestStatusLineOfAProcess shows the status line on a real terminal, makes that narrower,
// and then ends the process.
func TestStatusLineOfAProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		behaviour string
		// until is in the log when the process may be sent the second signal.
		until string
		exit  int
		last  string
	}{
		"Signal":       {reason: "the work ends in order", behaviour: "status", last: "the end of the log"},
		"SecondSignal": {reason: "the work is left as it is, and still reports progress", behaviour: "status-hang", until: "A second SIGTERM", exit: 143},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pty.Open(t, 100)
			cmd := command(t, tc.behaviour, "", "--output=json")
			cmd.Stderr = theirs
			launch(t, cmd)
			if err := theirs.Close(); err != nil {
				t.Fatal(err)
			}
			wide := regexp.MustCompile(`^\d+s \| test-job 3/10, waits \d+s for Broker shop/default and 1 more \| created Hat wardrobe/new$`)
			narrow := regexp.MustCompile(`^\d+s \| test-job 3/10, wai[ts0-9 ]*…$`)
			screen := pty.NewScreen(100)
			screen.Rewraps = true
			all := ""
			signal := func() {
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			seen := 0
			buf := make([]byte, 4096)
			for {
				n, err := ours.Read(buf)
				_, _ = screen.Write(buf[:n])
				all += string(buf[:n])
				if err != nil {
					break // the terminal ends with an error once nobody has it open
				}
				lines := screen.Shown()
				last := lines[len(lines)-1]
				switch {
				case !strings.HasSuffix(all, "\r"): // the status line is not complete
				case seen == 0 && wide.MatchString(last) && strings.Contains(all, "line 19 of the log"):
					seen = 1
					screen.Resize(30)
					pty.Resize(t, ours, 30)
				case seen == 1 && narrow.MatchString(last):
					seen = 2
					signal()
				case seen == 2 && tc.until != "" && strings.Contains(all, tc.until):
					seen = 3
					signal()
				}
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != tc.exit || seen < 2 {
				t.Fatalf("%s: exit code %d, want %d; the status line was seen at %d widths:\n%q", tc.reason, code, tc.exit, seen, all)
			}

			var got []string
			for _, line := range screen.Shown() {
				if strings.Contains(line, "3/10") {
					t.Errorf("%s: a piece of the status line is left: %q", tc.reason, line)
				}
				// Time, level in colour, message.
				if _, message, ok := strings.Cut(line, "INFO  "); ok && strings.Contains(message, " of the log") {
					got = append(got, message)
				}
			}
			var want []string
			for i := range 20 {
				want = append(want, fmt.Sprintf("line %d of the log", i))
			}
			if tc.last != "" {
				want = append(want, tc.last)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: every line of the log is whole and stays (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
