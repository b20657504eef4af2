//go:build linux

package jobmanager

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/process"
)

// onTerminal runs the program at a terminal, at which a person answers its question.
func onTerminal(t *testing.T, env []string, answer string, args ...string) (screen string, code int) {
	t.Helper()
	return process.OnTerminal(t, answer, process.Program{Binary: process.Build(t, binary), Args: args, Env: append([]string{"KUBECONFIG=" + cluster.Kubeconfig}, env...)})
}

var (
	colour = regexp.MustCompile(`\x1b\[[0-9;]+m`)
	live   = regexp.MustCompile(`\r\x1b\[J[0-9ms]+ \| (\d+ ended \| )?[a-z-]+ (checking|running|\d+/\d+)`)
)

// TestTerminal: colours and live progress are for people at a terminal, and only
// for them; undo asks them.
func TestTerminal(t *testing.T) {
	xterm := []string{"TERM=xterm"}
	question := regexp.MustCompile(`httpsource-sync: run \S+, begun \d+\w+ ago\. Undoing it would delete \d+ of kind HTTPSource\.\s+Undo on https://`)
	for _, tc := range []struct {
		reason          string
		env             []string
		colours, moving bool
	}{
		{"somebody looks", xterm, true, true},
		{"somebody wants no colours", append(xterm, "NO_COLOR=1"), false, true},
		{"a terminal that can do nothing", []string{"TERM=dumb"}, false, false},
	} {
		upgraded(t, 3) // a run with nothing to do may end before the line is drawn
		screen, code := onTerminal(t, tc.env, "", "run", "--yes", "--lease-duration=1s")
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s", tc.reason, code, screen)
		}
		if got := colour.MatchString(screen); got != tc.colours {
			t.Errorf("%s: colours %t\n%q", tc.reason, got, screen)
		}
		if got := live.MatchString(screen); got != tc.moving {
			t.Errorf("%s: live progress %t\n%q", tc.reason, got, screen)
		}
		if !tc.colours && !tc.moving && strings.Contains(screen, "\x1b") {
			t.Errorf("%s: control characters\n%q", tc.reason, screen)
		}
		// What stays on the screen is the report, not the progress.
		if last := screen[strings.LastIndex(screen, "\r")+1:]; strings.Contains(last, " ended |") || !strings.Contains(last, "Next: ") {
			t.Errorf("%s: at the end there is\n%q", tc.reason, last)
		}
	}

	screen, code := onTerminal(t, xterm, "", "undo", "httpsource-sync", "--plan")
	if code != 0 || !strings.Contains(screen, "delete   HTTPSource kyma-integration/") || !strings.Contains(screen, "To undo: eventmesh-migrate undo httpsource-sync") {
		t.Errorf("--plan: exit code %d\n%s", code, screen)
	}
	screen, code = onTerminal(t, xterm, "n", "undo", "httpsource-sync")
	if code != 0 || !question.MatchString(screen) || !strings.Contains(screen, "Nothing was changed.") {
		t.Errorf("answered no: exit code %d\n%s", code, screen)
	}
	screen, code = onTerminal(t, xterm, "y", "undo", "eventbus-scaledown", "--lease-duration=1s")
	if code != 0 || !strings.Contains(screen, "[y/N]") || !strings.Contains(screen, "succeeded") {
		t.Errorf("answered yes: exit code %d\n%s", code, screen)
	}
}
