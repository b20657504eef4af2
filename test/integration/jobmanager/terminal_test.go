//go:build linux

package jobmanager

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
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
	// A terminal gets spaces before a word that does not fit.
	question := regexp.MustCompile(`httpsource-sync: run \S+, begun \d+\w+ ago\. +Undoing +it +would +delete +\d+ +of +kind +HTTPSource\.\s+Undo on https://`)
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
		// The report stays on the screen, not the progress.
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

// runOf is the run in a question of undo.
var runOf = regexp.MustCompile(`eventbus-scaledown: run (\S+), begun`)

// TestUndoAsksAboutOneRun: while the question of undo is open, another person undoes that run and
// makes a new one. The answer is about the run in the question, so the new one stays. The time that
// a person takes for an answer does not count.
func TestUndoAsksAboutOneRun(t *testing.T) {
	const limit = 6 * time.Second
	upgraded(t, 3)
	run := []string{"run", "--job=eventbus-scaledown", "--lease-duration=1s"}
	undo := []string{"undo", "eventbus-scaledown", "--lease-duration=1s"}
	up := func() (running int) {
		list, err := resource("Deployment", standin.SystemNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list.Items {
			if replicas, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas"); replicas > 0 {
				running++
			}
		}
		return running
	}
	tool(t, "run", "--lease-duration=1s").want(t, 0)
	migrated := up()
	asks := func(meanwhile func(), more ...string) (screen string, code int) {
		return process.Asked(t, func() string { meanwhile(); return "y" }, process.Program{
			Binary: process.Build(t, binary), Args: append(slices.Clone(undo), more...), Env: []string{"TERM=xterm", "KUBECONFIG=" + cluster.Kubeconfig},
		})
	}

	screen, code := asks(func() {
		tool(t, append(slices.Clone(undo), "--yes")...).want(t, 0)
		if left := up(); left == migrated {
			t.Errorf("the other person undid nothing: %d Deployments run", left)
		}
		tool(t, run...).want(t, 0)
	})
	asked := runOf.FindStringSubmatch(screen)
	if asked == nil {
		t.Fatalf("the question names no run:\n%s", screen)
	}
	if code != migration.ExitRefused {
		t.Errorf("answered for another run: exit code %d\n%s", code, screen)
	}
	if left := up(); left != migrated {
		t.Errorf("%d Deployments run, before %d: the run that nobody was asked about is undone\n%s", left, migrated, screen)
	}

	screen, code = asks(func() { time.Sleep(limit + time.Second) }, "--timeout="+limit.String())
	again := runOf.FindStringSubmatch(screen)
	if code != 0 || again == nil || again[1] == asked[1] {
		t.Errorf("asked once more, with a slow answer: exit code %d, run %q, before %q\n%s", code, again, asked, screen)
	}
	if left := up(); left == migrated {
		t.Errorf("the run that the person was asked about is not undone: %d Deployments run\n%s", left, screen)
	}
}
