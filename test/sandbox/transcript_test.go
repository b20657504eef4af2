//go:build linux && slow

package main

import (
	"context"
	"encoding/json"
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
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/internal/migration/eventmap"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// The size of the terminal of process.OnTerminal. Its last line is the prompt of the shell.
const (
	columns = 80
	rows    = 24 - 1
)

var (
	colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	// erased is what the status line has drawn and erased again.
	erased = regexp.MustCompile(`[^\n]*\r\x1b\[J|[^\n\x1b]*\r|\x1b\[J`)
	// logLine is a line of the log. Each is whole, as internal/command promises.
	logLine = regexp.MustCompile(`^(.*\[y/N\] y)?\d\d:\d\d:\d\d  [A-Z]+  `)
)

// screen is what a command leaves on a terminal: its lines, without colours and without the status
// line.
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

// pasteable returns the command in a line that is one. A next step has less of an indent than the
// advice of a finding.
func pasteable(line string) (command string, next bool) {
	command = strings.TrimPrefix(strings.TrimLeft(line, " "), "$ ")
	if !strings.HasPrefix(line, "  ") || !strings.HasPrefix(command, "eventmesh-migrate ") && !strings.HasPrefix(command, "kubectl ") {
		return "", false
	}
	return command, !strings.HasPrefix(line, "   ")
}

// shown is a command, with its exit code if that is not 0, and what it printed, without the log.
type shown struct{ command, printed string }

// operator is a person at a terminal of that size, who knows nothing but what the screen says.
type operator struct {
	t   *testing.T
	env []string
	// administrator is the kubeconfig for kubectl: what a finding says to look at, an account for
	// the migration alone may not read.
	administrator string
	// pasted counts the commands that were run, skipped those of kubectl that were not. path are
	// the commands of the migration itself, in their order.
	pasted, skipped int
	path            []shown
	// What the last screen says: what to do next, the commands for it, and those of findings.
	note         string
	next, advice []string
}

// paste runs a command in a shell, and reads the screen.
func (o *operator) paste(command string) (code int, lines []string) {
	o.t.Helper()
	o.pasted++
	sent, code := process.OnTerminal(o.t, "y", process.Program{Binary: "/bin/bash", Args: []string{"-c", command}, Env: o.env})
	lines = screen(sent)
	o.t.Logf("$ %s\n%s\n[%d]", command, strings.Join(lines, "\n"), code)
	return code, lines
}

// follow runs a command of eventmesh-migrate, and finds what to do next.
func (o *operator) follow(command string) (code int, lines []string) {
	o.t.Helper()
	code, lines = o.paste(command)
	now := shown{command: strings.ReplaceAll(command, readyTimeout, "")}
	if code != 0 {
		now.command += fmt.Sprintf("   # exit code %d", code)
	}
	report := strings.Join(slices.DeleteFunc(slices.Clone(lines), logLine.MatchString), "\n")
	now.printed = address.ReplaceAllString(strings.ReplaceAll(report, readyTimeout, ""), "https://api.example.com") + "\n"
	o.path = append(o.path, now)
	for _, line := range lines {
		found, _ := pasteable(line)
		if n := utf8.RuneCountInString(line); n > columns && found == "" && !logLine.MatchString(line) {
			o.t.Errorf("%s: a line of %d columns: %s", command, n, line)
		}
	}
	o.read(lines)
	if o.note == "" || len(o.next) == 0 && o.note != finished {
		o.t.Fatalf("%s: the last %d lines have no next command", command, rows)
	}
	return code, lines
}

// read finds what the screen says to do next.
func (o *operator) read(lines []string) {
	o.note, o.next, o.advice = "", nil, nil
	for _, line := range visible(lines) {
		found, next := pasteable(line)
		switch {
		case strings.HasPrefix(line, "Next: "), line == finished:
			o.note = line
		case found != "" && next && o.note != "":
			o.next = append(o.next, found)
		case found != "":
			o.advice = append(o.advice, found)
		case o.note != "" && line != "" && len(o.next) == 0:
			o.note += " " + line // a long note has several lines
		}
	}
}

// roleCommand prints what an administrator applies, see grant.
const roleCommand = "eventmesh-migrate check --role"

// own is the first of the next commands with which the migration goes on, once what comes before
// it is repaired.
func (o *operator) own() string {
	for _, command := range o.next {
		if strings.HasPrefix(command, "eventmesh-migrate ") && !strings.HasPrefix(command, roleCommand) {
			return command
		}
	}
	return ""
}

// readyTimeout is short: the test waits for it once.
const readyTimeout = " --httpsource-sync.ready-timeout=15s"

const finished = "The migration is finished."

// failure is something that is broken before a command, and repaired after it.
type failure struct {
	what           string
	broken, repair func()
	// code is the exit code of the command, says what the screen tells.
	code int
	says string
}

// seated is a person at a terminal, before the sandbox, which runs in another one.
func seated(t *testing.T) (term *terminal, o *operator, client dynamic.Interface) {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(process.BuildPlain(t, "./cmd/eventmesh-migrate"), filepath.Join(bin, "eventmesh-migrate")); err != nil {
		t.Fatal(err)
	}
	kubeconfig, administrator := filepath.Join(bin, "kubeconfig"), filepath.Join(bin, "administrator")
	term = open(t, kubeconfig)
	term.sees("In this terminal:")
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.WarningHandler = rest.NoWarnings{}
	client, err = dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(administrator, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	asLaptop(t, kubeconfig)

	o = &operator{t: t, administrator: administrator, env: []string{"TERM=xterm", "KUBECONFIG=" + kubeconfig, "PATH=" + bin + ":" + os.Getenv("PATH")}}
	return term, o, client
}

// TestTranscript migrates the sandbox from a terminal of 80 columns and 24 lines, from check to the
// end, with three failures in between. After each command, the next one is read from the screen,
// and is the right one. The guides show what these commands print.
func TestTranscript(t *testing.T) {
	term, o, client := seated(t)
	subscriptions := client.Resource(standin.KymaSubscriptions).Namespace("shop")
	failures := map[string]failure{
		"check 1": {
			"the account may not create HTTPSources", func() { o.forbid(client) }, func() { o.grant(client) },
			migration.ExitFindings, "permission-missing",
		},
		"run 1": {
			"an adapter never becomes ready", func() { term.types("break adapter", "Broken: ") }, func() { term.types("heal", "Repaired: ") },
			1, "Or leave Application feedback out",
		},
		"run 3": {"a Subscription has an unknown source", func() {
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

	o.administer("../../docs/migration/prerequisites.md", "Backup")
	for _, command := range o.commandsOf("verify", "plan") {
		o.try(command)
	}
	poll.Until(t, time.Minute, "the adapter that starts is ready", func(context.Context) error {
		if waits := o.run("plan", "-o", "json"); strings.Contains(waits, "adapter-not-ready") {
			return errors.New("plan waits for it")
		}
		return nil
	})
	before := o.run("map", "-o", "json")
	times := map[string]int{}
	command := "eventmesh-migrate check" + readyTimeout
	for step := 0; o.note != finished; step++ {
		if step == 20 {
			t.Fatalf("the migration is not finished after %d commands", step)
		}
		if strings.Contains(o.note, "upgrade application-connector") {
			term.types("switch", "Next, in the second terminal:")
		}
		verb := strings.Fields(command)[1]
		times[verb]++
		key := fmt.Sprint(verb, " ", times[verb])
		now := failures[key]
		delete(failures, key)
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
		mine := o.own()
		for _, other := range o.next {
			if other != mine {
				o.try(harmless(other))
			}
		}
		if now.what != "" {
			now.repair()
		}
		if mine != "" {
			command = mine
		}
	}
	for key := range failures {
		t.Errorf("%s was never run", key)
	}
	o.pictured(before, "before.json")
	o.pictured(o.run("map", "-o", "json"), "after.json")
	o.administer("../../docs/migration/migration-guide-1.11.md", "Check")
	o.administer("../../docs/migration/uninstall.md", "Uninstall")
	if told := o.run("verify"); !strings.Contains(told, finished) {
		t.Errorf("after the clean-up of uninstall.md:\n%s", told)
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
	o.compare("../../docs/migration/eventmesh-migrate.md", o.path)
	o.compare("../../docs/migration/migration-guide-1.11.md", o.path[len(o.path)-1:])
}

// forbid lets the account no longer create HTTPSources.
func (o *operator) forbid(client dynamic.Interface) {
	o.t.Helper()
	roles := client.Resource(rbacv1.SchemeGroupVersion.WithResource("roles")).Namespace(standin.IntegrationNamespace)
	u, err := roles.Get(o.t.Context(), "eventmesh-migrate", metav1.GetOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	var role rbacv1.Role
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
		o.t.Fatal(err)
	}
	for i, rule := range role.Rules {
		if slices.Contains(rule.Resources, standin.HTTPSources.Resource) {
			role.Rules[i].Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "create" })
		}
	}
	raw, err := json.Marshal(map[string]any{"rules": role.Rules})
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := roles.Patch(o.t.Context(), u.GetName(), types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
		o.t.Fatal(err)
	}
	o.awaitMissing(true)
}

// grant is the administrator, who applies what the next command prints.
func (o *operator) grant(client dynamic.Interface) {
	o.t.Helper()
	if len(o.next) == 0 || !strings.HasPrefix(o.next[0], roleCommand) {
		o.t.Fatalf("the next commands are %q", o.next)
	}
	for _, u := range objectsOf(o.t, o.run(strings.Fields(o.next[0])[1:]...)) {
		if _, err := client.Resource(resourceOf(u)).Namespace(u.GetNamespace()).Apply(o.t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "administrator", Force: true}); err != nil {
			o.t.Fatal(err)
		}
	}
	o.awaitMissing(false)
}

// awaitMissing waits until the API server decides by the new Role.
func (o *operator) awaitMissing(want bool) {
	o.t.Helper()
	poll.Until(o.t, time.Minute, "check knows the new Role", func(context.Context) error {
		if missing := strings.Contains(o.run("check", "-o", "json"), "permission-missing"); missing != want {
			return fmt.Errorf("permissions are missing: %t", missing)
		}
		return nil
	})
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

// administer runs the commands of a section, as an administrator, in a directory of their own.
func (o *operator) administer(guide, section string) {
	o.t.Helper()
	raw, err := os.ReadFile(guide)
	if err != nil {
		o.t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "# "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	commands := ""
	for _, block := range strings.Split(text, "```bash\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		commands += block
	}
	if commands == "" {
		o.t.Fatalf("%s: no commands in section %q", guide, section)
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		o.skipped++
		return
	}
	p := process.Run(o.t, process.Program{Binary: "/bin/bash", Args: []string{"-e", "-c", commands}, Dir: o.t.TempDir(), Env: append(slices.Clone(o.env), "KUBECONFIG="+o.administrator)})
	if code := p.Wait(); code != 0 {
		o.t.Errorf("%s: exit code %d:\n%s", guide, code, commands)
	}
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
	return process.Run(o.t, process.Program{Binary: process.BuildPlain(o.t, "./cmd/eventmesh-migrate"), Args: args, Env: o.env}).Stdout()
}

// try runs a command of a finding.
func (o *operator) try(command string) {
	o.t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil && strings.HasPrefix(command, "kubectl ") {
		o.skipped++
		return
	}
	env := o.env
	if strings.HasPrefix(command, "kubectl ") {
		o.env = append(slices.Clone(env), "KUBECONFIG="+o.administrator)
	}
	code, lines := o.paste(command)
	o.env = env
	// What is rolled back, or missing, is not found. verify and plan end with 6 if there is
	// something to do.
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

// plain is text without what differs from run to run: times, and where lines are divided because of
// them.
func plain(text string) string {
	return strings.Join(strings.Fields(seconds.ReplaceAllString(text, "…")), " ")
}

// compare fails if a guide does not show these commands, in this order, with what they print.
func (o *operator) compare(guide string, path []shown) {
	o.t.Helper()
	raw, err := os.ReadFile(guide)
	if err != nil {
		o.t.Fatal(err)
	}
	n := -1
	text := block.ReplaceAllStringFunc(string(raw), func(found string) string {
		b := block.FindStringSubmatch(found)
		if n++; n >= len(path) || path[n].command != b[1] {
			o.t.Errorf("%s shows %q as its command %d; the migration has %q", guide, b[1], n+1, typed(path))
			return found
		}
		if diff := cmp.Diff(plain(b[2]), plain(path[n].printed)); diff != "" && !*update {
			o.t.Errorf("%s: %q (-update writes it): -shown +printed\n%s\n%s", guide, b[1], diff, path[n].printed)
		}
		return "```text\n$ " + b[1] + "\n" + path[n].printed + "```"
	})
	if n+1 != len(path) {
		o.t.Errorf("%s shows %d commands; the migration has %q", guide, n+1, typed(path))
	}
	o.updated(guide, text)
}

func typed(path []shown) []string {
	var all []string
	for _, s := range path {
		all = append(all, s.command)
	}
	return all
}

// updated writes a file that the documents need, if the caller of the test wants it.
func (o *operator) updated(file, text string) {
	o.t.Helper()
	if !*update || o.t.Failed() {
		return
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		o.t.Fatal(err)
	}
}

// pictured fails if a map is not the one of which the documents have pictures.
func (o *operator) pictured(printed, name string) {
	o.t.Helper()
	var m eventmap.Map
	if err := json.Unmarshal([]byte(printed), &m); err != nil {
		o.t.Fatalf("the map: %v\n%s", err, printed)
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		o.t.Fatal(err)
	}
	file := filepath.Join("../../internal/migration/eventmap/testdata", name)
	shown, err := os.ReadFile(file)
	if err != nil && !*update {
		o.t.Fatal(err)
	}
	text := string(raw) + "\n"
	if diff := cmp.Diff(string(shown), text); diff != "" && !*update {
		o.t.Errorf("%s (-update writes it; then see TestPicturesOfADocument): -shown +printed\n%s", file, diff)
	}
	o.updated(file, text)
}
