//go:build linux && slow

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// The size of the terminal of suite.OnTerminal. Its last line is the prompt of the shell.
const (
	columns = 80
	rows    = 24 - 1
)

var (
	colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	// erased is what the status line has drawn and erased again.
	erased = regexp.MustCompile(`[^\n]*\r\x1b\[J|[^\n\x1b]*\r|\x1b\[J`)
	// logLine is a line of the log. Each is whole, as internal/cli promises.
	logLine = regexp.MustCompile(`^(.*\[y/N\] y)?\d\d:\d\d:\d\d  [A-Z]+  `)
)

// screen is what a command leaves on a terminal: its lines, without colours and without the status line.
func screen(sent string) []string {
	return strings.Split(strings.TrimSuffix(erased.ReplaceAllString(colours.ReplaceAllString(sent, ""), ""), "\n"), "\n")
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

// pasteable returns the command in a line that is one. A next step has less of an indent than the advice of a finding.
func pasteable(line string) (command string, next bool) {
	command = strings.TrimPrefix(strings.TrimLeft(line, " "), "$ ")
	if !strings.HasPrefix(line, "  ") || !strings.HasPrefix(command, "eventmesh-migrate ") && !strings.HasPrefix(command, "kubectl ") {
		return "", false
	}
	return command, !strings.HasPrefix(line, "   ")
}

// operator is a person at a terminal of that size, who knows nothing but what the screen says.
type operator struct {
	t   *testing.T
	env []string
	// pasted counts the commands that were run, skipped those of kubectl that were not. printed is what those of
	// eventmesh-migrate printed the last time, without the log, by command and exit code.
	pasted, skipped int
	printed         map[string]string
	// What the last screen says: what to do next, the commands for it, and those of findings.
	note         string
	next, advice []string
}

// paste runs a command in a shell, and reads the screen.
func (o *operator) paste(command string) (code int, lines []string) {
	o.t.Helper()
	o.pasted++
	sent, code := suite.OnTerminal(o.t, "y", suite.Program{Binary: "/bin/bash", Args: []string{"-c", command}, Env: o.env})
	lines = screen(sent)
	o.t.Logf("$ %s\n%s\n[%d]", command, strings.Join(lines, "\n"), code)
	shown := strings.ReplaceAll(command, readyTimeout, "")
	if code != 0 {
		shown += fmt.Sprintf("   # exit code %d", code)
	}
	report := slices.DeleteFunc(slices.Clone(lines), logLine.MatchString)
	o.printed[shown] = address.ReplaceAllString(strings.ReplaceAll(strings.Join(report, "\n"), readyTimeout, ""), "https://api.example.com") + "\n"
	return code, lines
}

// follow runs a command of eventmesh-migrate, and finds what to do next.
func (o *operator) follow(command string) (code int, lines []string) {
	o.t.Helper()
	code, lines = o.paste(command)
	o.note, o.next, o.advice = "", nil, nil
	for _, line := range lines {
		found, _ := pasteable(line)
		if n := utf8.RuneCountInString(line); n > columns && found == "" && !logLine.MatchString(line) {
			o.t.Errorf("%s: a line of %d columns: %s", command, n, line)
		}
	}
	for _, line := range visible(lines) {
		found, next := pasteable(line)
		switch {
		case strings.HasPrefix(line, "Next: "), line == finished:
			o.note = line
		case found != "" && next && o.note != "":
			o.next = append(o.next, found)
		case found != "":
			o.advice = append(o.advice, found)
		}
	}
	if o.note == "" || len(o.next) == 0 && o.note != finished {
		o.t.Fatalf("%s: the last %d lines have no next command", command, rows)
	}
	return code, lines
}

// readyTimeout is short: the test waits for it once.
const readyTimeout = " --httpsource-sync.ready-timeout=15s"

const finished = "The migration is finished."

// failure is something that is broken before a run, and repaired after it.
type failure struct {
	what           string
	broken, repair func()
	// code is the exit code of the run, says what the screen tells.
	code int
	says string
}

// TestTranscript migrates the sandbox from a terminal of 80 columns and 24 lines, with three failures in between. After each
// command, the next one is read from the screen, and is the right one. The guides show what these commands print.
func TestTranscript(t *testing.T) {
	bin := t.TempDir()
	if err := os.Symlink(suite.Build(t, "./cmd/eventmesh-migrate"), filepath.Join(bin, "eventmesh-migrate")); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(bin, "kubeconfig")
	term := open(t, kubeconfig)
	term.sees("In this terminal:")
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	subscriptions := client.Resource(standin.KymaSubscriptions).Namespace("shop")
	types := func(line, answer string) func() { return func() { term.types(line, answer) } }
	heal := types("heal", "Repaired: ")
	failures := map[int]failure{
		1: {"the account may not create HTTPSources", types("break rights", "Broken: "), heal, 1, "forbidden"},
		2: {"an adapter never becomes ready", types("break adapter", "Broken: "), heal, 1, "Or leave Application feedback out"},
		4: {"a Subscription has an unknown source", func() {
			stray := standin.KymaSubscription("shop", "stray", "nobody", "object.changed")
			stray.SetFinalizers(nil)
			if _, err := subscriptions.Create(t.Context(), stray, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, func() {
			if err := subscriptions.Delete(t.Context(), "stray", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			poll.Until(t, time.Minute, "the Subscription is gone", func(ctx context.Context) error {
				if _, err := subscriptions.Get(ctx, "stray", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return errors.Join(errors.New("it is there"), err)
				}
				return nil
			})
		}, 0, "subscription-not-convertible"},
	}

	o := &operator{t: t, printed: map[string]string{}, env: []string{"TERM=xterm", "KUBECONFIG=" + kubeconfig, "PATH=" + bin + ":" + os.Getenv("PATH")}}
	for _, command := range o.commandsOf("verify", "plan") {
		o.try(command)
	}
	poll.Until(t, time.Minute, "the adapter that starts is ready", func(context.Context) error {
		if waits := o.run("plan", "-o", "json"); strings.Contains(waits, "adapter-not-ready") {
			return errors.New("plan waits for it")
		}
		return nil
	})
	runs := 0
	command := "eventmesh-migrate plan" + readyTimeout
	for step := 0; o.note != finished; step++ {
		if step == 20 {
			t.Fatalf("the migration is not finished after %d commands", step)
		}
		if strings.Contains(o.note, "upgrade application-connector") {
			term.types("switch", "Next, in the second terminal:")
		}
		var now failure
		if strings.HasPrefix(command, "eventmesh-migrate run ") {
			runs++
			now = failures[runs]
		}
		if now.what != "" {
			now.broken()
		}
		code, lines := o.follow(command)
		if told := strings.Join(lines, "\n"); code != now.code || !strings.Contains(told, now.says) {
			t.Errorf("%s (%s): exit code %d, want %d, and %q in\n%s", command, now.what, code, now.code, now.says, told)
		}
		for _, advice := range o.advice {
			o.try(advice)
		}
		for _, other := range o.next[min(1, len(o.next)):] {
			o.try(harmless(other))
		}
		if now.what != "" {
			now.repair()
		}
		if len(o.next) > 0 {
			command = o.next[0]
		}
	}
	if runs < len(failures)+2 {
		t.Errorf("there were only %d runs", runs)
	}
	// More findings have more commands.
	for _, what := range []string{"broker", "trigger", "link", "event-service", "adapter", "channel"} {
		term.types("break "+what, "Broken: ")
	}
	poll.Until(t, time.Minute, "verify finds what is broken", func(context.Context) error {
		if found := o.commandsOf("verify"); o.pasted+o.skipped+len(found) < enough {
			return fmt.Errorf("its findings have only the commands %q, and %d were pasted before", found, o.pasted)
		}
		return nil
	})
	for _, command := range o.commandsOf("verify") {
		o.try(command)
	}
	t.Logf("%d commands were pasted; %d were not, since there is no kubectl", o.pasted, o.skipped)
	for _, doc := range []string{"../../docs/eventmesh-migrate.md", "../../docs/migration-guide-1.11.md"} {
		o.compare(doc)
	}
}

// enough commands are pasted to know that a person can.
const enough = 30

var (
	reads  = regexp.MustCompile(`^kubectl (-n \S+ )?(get|describe|logs) |^eventmesh-migrate (plan|verify|status|jobs|map|explain|check)\b`)
	writes = regexp.MustCompile(`^kubectl (-n \S+ )?(label|annotate|delete|scale|patch|create) |^eventmesh-migrate run\b`)
)

// harmless is a command that does all but writing; "" if there is none.
func harmless(command string) string {
	switch {
	case reads.MatchString(command):
		return command
	case writes.MatchString(command):
		if rest, ours := strings.CutPrefix(command, "eventmesh-migrate run"); ours {
			return "eventmesh-migrate plan" + rest
		}
		return command + " --dry-run=server"
	}
	return ""
}

// commandsOf are the commands in the findings of commands of eventmesh-migrate, each once.
func (o *operator) commandsOf(commands ...string) []string {
	o.t.Helper()
	var all []string
	for _, command := range commands {
		for _, found := range regexp.MustCompile(`"command": ("(?:[^"\\]|\\.)* (?:[^"\\]|\\.)*")`).FindAllStringSubmatch(o.run(command, "-o", "json"), -1) {
			text, err := strconv.Unquote(found[1])
			if err != nil {
				o.t.Fatal(err)
			}
			if text = harmless(text); text != "" && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// run returns what eventmesh-migrate writes where nobody looks.
func (o *operator) run(args ...string) string {
	o.t.Helper()
	return suite.Run(o.t, suite.Program{Binary: suite.Build(o.t, "./cmd/eventmesh-migrate"), Args: args, Env: o.env}).Stdout()
}

// try runs a command of a finding.
func (o *operator) try(command string) {
	o.t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil && strings.HasPrefix(command, "kubectl ") {
		o.skipped++
		return
	}
	code, lines := o.paste(command)
	// What is rolled back, or missing, is not found. verify and plan end with 6 if there is something to do.
	if told := strings.Join(lines, "\n"); code != 0 && code != migration.ExitFindings && !strings.Contains(strings.ToLower(told), "not found") {
		o.t.Errorf("the advice %q ends with exit code %d:\n%s", command, code, told)
	}
}

var (
	update  = flag.Bool("update", false, "write into the guides what the commands have printed")
	address = regexp.MustCompile(`https://127\.0\.0\.1:\d+`)
	seconds = regexp.MustCompile(`\d+(\.\d+)?s\b`)
	block   = regexp.MustCompile("(?s)```text\n\\$ ([^\n]+)\n(.*?)```")
)

// plain is text without what differs from run to run: times, and where lines are divided because of them.
func plain(text string) string {
	return strings.Join(strings.Fields(seconds.ReplaceAllString(text, "…")), " ")
}

// compare fails if a block of a guide shows a command with another output than here.
func (o *operator) compare(guide string) {
	raw, err := os.ReadFile(guide)
	if err != nil {
		o.t.Fatal(err)
	}
	blocks := 0
	text := block.ReplaceAllStringFunc(string(raw), func(found string) string {
		blocks++
		b := block.FindStringSubmatch(found)
		printed, known := o.printed[b[1]]
		if diff := cmp.Diff(plain(b[2]), plain(printed)); !known || diff != "" && !*update {
			o.t.Errorf("%s: %q (known: %t; -update writes it): -shown +printed\n%s\n%s", guide, b[1], known, diff, printed)
		}
		return "```text\n$ " + b[1] + "\n" + printed + "```"
	})
	if blocks == 0 {
		o.t.Errorf("%s shows no command with its output", guide)
	}
	if *update && !o.t.Failed() {
		if err := os.WriteFile(guide, []byte(text), 0o644); err != nil {
			o.t.Fatal(err)
		}
	}
}
