package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/command/statusline"
	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/internal/version"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// called runs the program in this process, under a name, without a cluster: what
// reaches for one is refused.
func called(t *testing.T, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	none := filepath.Join(t.TempDir(), "none")
	code = execute(name, cli.IO{
		Args: args, Stdout: &out, Stderr: &err,
		Env: func(name string) string { return map[string]string{"KUBECONFIG": none, "HOME": none}[name] },
	}, strings.NewReader("y\n"))
	return code, out.String(), err.String()
}

func TestLint(t *testing.T) {
	for _, tc := range []struct {
		reason, release string
		code            int
		// overdue are some of the jobs that are named, and spared some that are not.
		overdue, spared []string
	}{
		{reason: "The release of this source.", release: registry.Release, spared: []string{"grow-pvc", "httpsource-sync"}},
		{reason: "The last one before the jobs of 1.11 have to go.", release: "1.12.9", spared: []string{"httpsource-sync", "eventbus-purge"}},
		{reason: "The job of 1.12 stays longer.", release: "1.13.0", code: 1, overdue: []string{"httpsource-sync", "trigger-sync"}, spared: []string{"eventbus-purge"}},
		{
			reason: "These serve other purposes than the migration, and stay.", release: "9.9.9", code: 1,
			overdue: []string{"httpsource-sync", "eventbus-purge"}, spared: []string{"grow-pvc", "adopt-by-helm"},
		},
		{reason: "No version.", release: "soon", code: 1, spared: []string{"httpsource-sync"}},
	} {
		code, stdout, stderr := called(t, program, "lint", "--release", tc.release)
		if code != tc.code {
			t.Errorf("%s Release %s: exit code %d, want %d\n%s%s", tc.reason, tc.release, code, tc.code, stdout, stderr)
		}
		for want, jobs := range map[bool][]string{true: tc.overdue, false: tc.spared} {
			for _, job := range jobs {
				if got := strings.Contains(stderr, "job "+job+" must be gone"); got != want {
					t.Errorf("%s Release %s names %s: %t\n%s", tc.reason, tc.release, job, got, stderr)
				}
			}
		}
	}
}

// TestJobsAreThoseOfTheBinaries: a job of a binary is in this program, as the same
// code; a job of this program is its own binary under its own name; and one that a chart
// runs has an image, for which there is a main.go.
func TestJobsAreThoseOfTheBinaries(t *testing.T) {
	registered, images := map[string]string{}, map[string]bool{}
	for _, job := range registry.All() {
		registered[job.Name()] = reflect.TypeOf(job.Job).Elem().PkgPath()
		images[job.Name()] = job.Chart != nil
	}
	mains, err := filepath.Glob("../*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	binaries := 0
	for _, file := range mains {
		name := filepath.Base(filepath.Dir(file))
		if name == program || name == "event-service" || name == "kubectl-eventing" || strings.HasPrefix(name, "eventing-") {
			continue // are no jobs
		}
		binaries++
		delete(images, name)
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		var imports []string
		for _, i := range source.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			imports = append(imports, path)
		}
		if pkg := registered[name]; pkg == "" || !slices.Contains(imports, pkg) {
			t.Errorf("binary %s is the code of %q, and the registered job of %q", name, imports, pkg)
		}
	}
	if binaries < 6 {
		t.Errorf("only %d binaries were found", binaries)
	}
	for name, needed := range images {
		if needed {
			t.Errorf("a chart runs %s, but there is no cmd/%s/main.go", name, name)
		}
	}
	for name := range registered {
		code, own, _ := called(t, name, "--help")
		if code != 0 || !strings.HasPrefix(own, name+": ") {
			t.Errorf("under the name %s: exit code %d\n%s", name, code, own)
		}
		code, asked, _ := called(t, program, "job", name, "--help")
		if diff := cmp.Diff(own, asked); code != 0 || diff != "" {
			t.Errorf("job %s is another program (exit code %d):\n%s", name, code, diff)
		}
	}
}

// TestHelp: every command says what it does, under the name it was called by, and
// shows examples, which the integration tests run.
func TestHelp(t *testing.T) {
	_, all, _ := called(t, program, "--help")
	for _, command := range []string{"check", "jobs", "plan", "run", "status", "undo", "verify", "map", "diagnose", "explain", "lint", "job", "version", "completion"} {
		if hidden := command == "lint" || command == "job"; strings.Contains(all, "\n  "+command+" ") == hidden {
			t.Errorf("%s: hidden %t in\n%s", command, hidden, all)
		}
		code, own, _ := called(t, program, command, "--help")
		if code != 0 || !strings.Contains(own, "Usage:\n  "+program+" "+command) {
			t.Errorf("%s --help: exit code %d\n%s", command, code, own)
		}
		if command == "completion" {
			continue // cobra's own
		}
		if !strings.Contains(own, "Examples:\n  "+program+" "+command) {
			t.Errorf("%s has no example:\n%s", command, own)
		}
		_, plugged, _ := called(t, plugin, command, "--help")
		if want := strings.ReplaceAll(own, "  "+program, "  kubectl "+program); plugged != want && !strings.Contains(plugged, "  kubectl "+program+" "+command) {
			t.Errorf("as a plugin of kubectl:\n%s", plugged)
		}
		for i, line := range strings.Split(own, "\n") {
			if len([]rune(line)) > 112 {
				t.Errorf("%s --help: line %d has %d characters: %s", command, i+1, len([]rune(line)), line)
			}
		}
	}
	if _, plugged, _ := called(t, plugin, "--help"); !strings.Contains(plugged, "\n  kubectl eventmesh-migrate plan\n") || strings.Contains(plugged, "{name}") {
		t.Errorf("as a plugin of kubectl:\n%s", plugged)
	}
	for _, c := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "124", "128+n"} {
		if !strings.Contains(all, "\n  "+c+" ") {
			t.Errorf("exit code %s is not in the help", c)
		}
	}
}

// TestFlagsOfJobs: they are in a topic of the help, and not in that of the commands that
// take them.
func TestFlagsOfJobs(t *testing.T) {
	topic := program + " help flags"
	code, all, _ := called(t, program, "help", "flags")
	if code != 0 {
		t.Errorf("%s: exit code %d", topic, code)
	}
	if _, plugged, _ := called(t, plugin, "run", "--help"); !strings.Contains(plugged, `"kubectl `+topic+`"`) {
		t.Errorf("as a plugin of kubectl, the topic is not named:\n%s", plugged)
	}
	for _, cmd := range tree().Commands() {
		_, own, _ := called(t, program, cmd.Name(), "--help")
		takes := false
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(f.Name, ".") {
				return
			}
			takes = true
			if !strings.Contains(all, "--"+f.Name+" ") || strings.Contains(own, "--"+f.Name+" ") && !strings.Contains(cmd.Example, f.Name) {
				t.Errorf("--%s must be in the topic, and not in the help of %s", f.Name, cmd.Name())
			}
		})
		if takes != strings.Contains(own, `see "`+topic+`"`) {
			t.Errorf("%s takes flags of jobs: %t\n%s", cmd.Name(), takes, own)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, script, _ := called(t, program, "completion", shell); code != 0 || !strings.Contains(script, program) {
			t.Errorf("%s: exit code %d", shell, code)
		}
	}
	for _, tc := range []struct {
		line string
		want []string
	}{
		{"undo ", []string{"httpsource-sync", "grow-pvc"}},
		{"job ", []string{"trigger-sync"}},
		{"run --job ", []string{"eventbus-purge"}},
		{"run --component ", []string{"core", "application-connector", "global"}},
		{"plan --phase ", []string{"pre", "post"}},
		{"jobs -o ", []string{"wide", "json", "yaml", "name"}},
		{"map -o ", []string{"mermaid", "html"}},
		{"run --defer ", []string{"allow", "fail"}},
		{"v", []string{"verify", "version"}},
		{"run --httpsource-sync.on-helm2-conflict ", []string{"leave", "create"}},
		{"plan --serviceinstance-recreate.strategy ", []string{"auto", "always"}},
		{"job trigger-sync ", []string{"run", "plan", "undo", "version"}},
		{"job trigger-sync plan --resume ", []string{"forward", "back"}},
		{"job trigger-sync plan --legacy-traffic ", []string{"respect", "ignore"}},
		{"lint --release ", []string{registry.Release}},
		{"run --", []string{"--job", "requests that may exceed --qps for a moment. Negative: twice the --qps."}},
	} {
		_, out, _ := called(t, program, append([]string{"__complete"}, strings.Split(tc.line, " ")...)...)
		words := strings.FieldsFunc(out, func(r rune) bool { return r == '\n' || r == '\t' })
		for _, w := range tc.want {
			if !slices.Contains(words, w) {
				t.Errorf("%q is not completed by %s: %q", tc.line, w, words)
			}
		}
		if strings.Contains(out, "`") {
			t.Errorf("%q: descriptions have back-quotes:\n%s", tc.line, out)
		}
	}
}

// TestCompletionOfNames: contexts come from the kubeconfig, and a cluster that does not answer has
// no namespaces.
func TestCompletionOfNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "prod", "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
  "contexts": [{"name": "prod", "context": {"cluster": "c"}}, {"name": "test", "context": {"cluster": "c"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"run --kubeconfig=" + file + " --context ": "prod\ntest\n:4\n",
		"verify --kubeconfig=" + file + " -n ":     ":4\n",
		"plan --context ":                          ":4\n",
		"plan -n ":                                 ":4\n",
		"undo trigger-sync ":                       ":4\n",
		"run --exclude-namespaces ":                ":4\n",
		"status --state-namespace ":                ":4\n",
	} {
		if code, out, stderr := called(t, program, append([]string{"__complete"}, strings.Split(line, " ")...)...); code != 0 || out != want {
			t.Errorf("%q: exit code %d, %q, want %q\n%s", line, code, out, want, stderr)
		}
	}
}

// TestCompletionOfThePlugin: the script in the documentation is what kubectl looks for on the PATH.
func TestCompletionOfThePlugin(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	doc, err := os.ReadFile("../../docs/migration/eventmesh-migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(doc), "cat > kubectl_complete-eventmesh_migrate <<'EOF'\n")
	script, _, ended := strings.Cut(block, "EOF\n")
	if !found || !ended {
		t.Fatal("the documentation has no script")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"kubectl_complete-eventmesh_migrate": script, plugin: "#!" + sh + "\nprintf '<%s>' \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "kubectl_complete-eventmesh_migrate"), "undo", "")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "<__complete><undo><>" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestUsage: what is written wrong is exit code 2, and the message says what would
// be right.
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, "unknown command"},
		{[]string{"run", "--dry-run=server"}, "did you mean plan?"},
		{[]string{"verify", "-o", "xml"}, `--output "xml": must be one of table, wide, json, yaml, name`},
		{[]string{"map", "-o", "dot"}, "must be one of table, wide, mermaid, html, json, yaml, name"},
		{[]string{"verify", "-n", "a", "-A"}, "none of the others can be"},
		{[]string{"jobs", "x"}, `"x": unexpected argument`},
		{[]string{"jobs", "--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"run", "--jbo=a", "-X", "--yes", "--timeout=soon", "--nonsense", "--namspace", "shop"}, "5 problems:\n" +
			"  unknown flag: --jbo; did you mean --job?\n  unknown shorthand flag: 'X' in -X\n" +
			"  invalid argument \"soon\" for \"--timeout\" flag: time: invalid duration \"soon\"\n" +
			"  unknown flag: --nonsense\n  unknown flag: --namspace; did you mean --namespace?"},
		{[]string{"run", "--jbo=a"}, "did you mean --job?"},
		{[]string{"run", "--httpsource-sync.on-helm-conflict"}, "did you mean --httpsource-sync.on-helm2-conflict?"},
		{[]string{"run", "--on-helm2-conflict=create"}, "did you mean --httpsource-sync.on-helm2-conflict?"},
		{[]string{"run", "--phase=mid"}, `--phase "mid": must be one of pre, post`},
		{[]string{"run", "--component=cora"}, `--component "cora": must be one of core, `},
		{[]string{"run", "--max-unready=0", "-o", "xml", "--job=a,httpsource-sync,b", "--trigger-sync.ready-timeout=-1s"}, "5 problems:\n"},
		{[]string{"undo"}, "name a job (valid: " + registry.All()[0].Name()},
		{[]string{"undo", "a", "b"}, "use --job=a,b"},
		{[]string{"run", "-n", "shop"}, `--namespace "shop": cannot limit `}, {[]string{"run", "-n", "shop"}, `httpsource-sync, eventservice-verify, eventbus-scaledown, eventbus-purge to a namespace`},
		{[]string{"plan", "-n", "shop", "--job=trigger-sync,eventbus-scaledown"}, "cannot limit eventbus-scaledown to a namespace. Use --job=serviceinstance-recreate,trigger-sync"},
		{[]string{"run", "-n", "shop", "--job=trigger-sync"}, "kubeconfig"},
		{[]string{"undo", "trigger-sync", "-n", "shop"}, "unknown shorthand flag"},
		{[]string{"undo", "--job=nobody"}, `--job "nobody": must be one of`},
		{[]string{"undo", "trigger-sync", "--phase=pre"}, "not both"},
		{[]string{"undo", "nobody"}, `unknown job "nobody" (valid: `},
		{[]string{"undo", "trigger-syn"}, `unknown job "trigger-syn"; did you mean trigger-sync? (valid: `},
		{[]string{"undo", "trigger-sync", "--plan", "--yes"}, "not both"},
		{[]string{"job"}, "name a job (valid: " + registry.All()[0].Name()},
		{[]string{"job", "nobody"}, `unknown job "nobody"`},
		{[]string{"run", "--trigger-sync.ready-timeout=-1s"}, "--trigger-sync.ready-timeout must be positive"},
		{[]string{"run", "--grow-pvc.size=x"}, "--grow-pvc.statefulset"},
		{[]string{"jobs"}, "kubeconfig"},
		{[]string{"jobs", "-v", "-q"}, "-v and -q: give one of them"},
		{[]string{"run", "-q", "--no-color", "-y"}, "kubeconfig"},
	} {
		code, stdout, stderr := called(t, program, tc.args...)
		if code != migration.ExitUsage || !strings.Contains(stderr, tc.want) || stdout != "" {
			t.Errorf("%q: exit code %d, want %q\n%s%s", tc.args, code, tc.want, stdout, stderr)
		}
	}
}

// TestUsageOfThePlugin: what kubectl calls is told under the name of kubectl.
func TestUsageOfThePlugin(t *testing.T) {
	for _, args := range [][]string{{"nonsense"}, {"jobs", "x"}, {"jobs", "--nonsense"}, {"jobs", "-o", "xml"}, {"run", "--job=eventbus-purge"}, {"undo"}, {"job"}, {"jobs"}} {
		code, _, stderr := called(t, plugin, args...)
		if code == 0 || strings.Contains(strings.ReplaceAll(stderr, "kubectl "+program, ""), program) || !strings.HasPrefix(stderr, "kubectl "+program+": ") {
			t.Errorf("%q: exit code %d\n%s", args, code, stderr)
		}
	}
}

// TestUnconfirmed: a job that was named, and does nothing without another flag, is refused.
func TestUnconfirmed(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		code   int
		want   string
	}{
		{"It deletes.", []string{"run", "--job", "eventbus-purge", "--context", "my prod"}, migration.ExitRefused, "\n  eventmesh-migrate run --job eventbus-purge --context 'my prod' --eventbus-purge.yes\n"},
		{"It has nothing to work on.", []string{"run", "--job=grow-pvc"}, migration.ExitRefused, "does nothing without --grow-pvc.statefulset"},
		{"It is confirmed, and the cluster is missing.", []string{"run", "--job=eventbus-purge", "--eventbus-purge.yes"}, migration.ExitUsage, "kubeconfig"},
		{"Nobody named it.", []string{"run"}, migration.ExitUsage, "kubeconfig"},
	} {
		code, stdout, stderr := called(t, program, tc.args...)
		if code != tc.code || !strings.Contains(stderr, tc.want) || stdout != "" {
			t.Errorf("%s %q: exit code %d, want %d and %q\n%s", tc.reason, tc.args, code, tc.code, tc.want, stderr)
		}
	}
}

// TestPending: plan --exit-code tells changes from a cluster that could not be read.
func TestPending(t *testing.T) {
	changes := &migration.Report{Result: migration.Planned, Changes: []migration.ChangeReport{{Kind: "Trigger"}}}
	for reason, tc := range map[string]struct {
		report jobmanager.Report
		want   int
	}{
		"nothing is left":                 {jobmanager.Report{Jobs: []jobmanager.JobReport{{Job: "a"}}}, 0},
		"deferred work alone":             {jobmanager.Report{Jobs: []jobmanager.JobReport{{Job: "a", Report: &migration.Report{Result: migration.DeferredResult}}}}, 0},
		"a change is left":                {jobmanager.Report{Jobs: []jobmanager.JobReport{{Job: "a"}, {Job: "b", Report: changes}}}, 6},
		"the cluster did not answer":      {jobmanager.Report{ExitCode: 1, Jobs: []jobmanager.JobReport{{Job: "a", Report: changes}}}, 7},
		"no time was left":                {jobmanager.Report{ExitCode: 124}, 7},
		"the state could not be read":     {jobmanager.Report{ExitCode: 4, Jobs: []jobmanager.JobReport{{Job: "a"}}}, 7},
		"a run would refuse":              {jobmanager.Report{ExitCode: 4, Jobs: []jobmanager.JobReport{{Job: "a", Verdict: jobmanager.Blocked}}}, 4},
		"a refused plan":                  {jobmanager.Report{ExitCode: 4, Jobs: []jobmanager.JobReport{{Job: "a", Report: &migration.Report{Result: migration.Refused}}}}, 4},
		"a signal has its own exit codes": {jobmanager.Report{ExitCode: 143}, 143},
	} {
		if got := pending(&tc.report); got != tc.want {
			t.Errorf("%s: exit code %d, want %d", reason, got, tc.want)
		}
	}
}

func TestVersion(t *testing.T) {
	if code, out, stderr := called(t, program, "--version"); code != 0 || !strings.Contains(out, "for Kyma 1.11.0") || stderr != "" {
		t.Errorf("--version: exit code %d\n%s%s", code, out, stderr)
	}
	for form, want := range map[string]string{"text": "for Kyma 1.11.0", "json": `"kyma": "1.11.0"`, "yaml": "kyma: 1.11.0"} {
		if code, out, stderr := called(t, program, "version", "-o", form); code != 0 || !strings.Contains(out, want) || stderr != "" {
			t.Errorf("%s: exit code %d\n%s%s", form, code, out, stderr)
		}
	}
}

// TestProgress: the words of the job manager become those of the status line.
func TestProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		states []string
		want   string
	}{
		"Waiting":  {"a job that waits for another is not shown", []string{"waiting"}, ""},
		"Checking": {"whether the job is needed", []string{"waiting", "checking"}, "0s | a checking"},
		"Running":  {"the job works", []string{"waiting", "checking", "running"}, "0s | a running"},
		"Ended":    {"every other word is a result", []string{"waiting", "checking", "running", "succeeded"}, "0s | 1 ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				line := statusline.New(&out, true)
				p := progressOf(&command.Connection{Status: line})
				for _, state := range tc.states {
					p.Job(jobmanager.Before("core"), "a", state)
				}
				time.Sleep(time.Second - time.Nanosecond)
				synctest.Wait()
				_, shown, _ := strings.Cut(strings.TrimSuffix(out.String(), "\r"), "\x1b[J")
				if diff := cmp.Diff(tc.want, shown); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				line.Close()
				time.Sleep(time.Second)
			})
		})
	}
	if progressOf(&command.Connection{Status: statusline.New(io.Discard, false)}) != nil {
		t.Error("there is progress although nobody can see it")
	}
}

// TestFilesAppearWhenTheyAreComplete: a file of this name is a whole one.
func TestFilesAppearWhenTheyAreComplete(t *testing.T) {
	var out, stderr bytes.Buffer
	a := &app{Tool: cli.NewTool(cli.IO{Stdout: &out, Stderr: &stderr, Env: func(string) string { return "" }})}
	name := filepath.Join(t.TempDir(), "map.html")
	if err := a.toFile(name, func(io.Writer) error { return os.ErrDeadlineExceeded }); err == nil {
		t.Error("no error")
	}
	if left, _ := filepath.Glob(name + "*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestFormsAndFlagsEverywhere: each command takes the forms of -o, the flags of the log, and
// --version; a form that a command does not have is refused with those that it has.
func TestFormsAndFlagsEverywhere(t *testing.T) {
	exceptions := map[string]string{
		"job":        "passes its flags on to the binary of a job",
		"completion": "prints a script, and is cobra's own",
		"help":       "prints the help, and is cobra's own",
		"flags":      "is a topic of the help",
	}
	without := map[string][]string{"lint": {formWide, formJSON, formYAML, formName}} // only the exit code matters
	for _, cmd := range tree().Commands() {
		name := cmd.Name()
		if exceptions[name] != "" {
			continue
		}
		for _, flag := range []string{"no-color", "verbose", "quiet", "version"} {
			if cmd.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", name, flag)
			}
		}
		if v := cmd.Flags().ShorthandLookup("v"); v == nil || v.Name != "verbose" {
			t.Errorf("%s: -v is %v", name, v)
		}
		if code, out, _ := called(t, program, name, "--version"); code != 0 || !strings.HasPrefix(out, program+" ") {
			t.Errorf("%s --version: exit code %d, %q", name, code, out)
		}
		for _, form := range []string{formWide, formJSON, formYAML, formName} {
			args := []string{name, "-o", form, "-v", "--no-color"}
			if name == "undo" {
				args = append(args, "trigger-sync")
			}
			// Without a cluster, the others end at the kubeconfig.
			_, _, stderr := called(t, program, args...)
			if refused := strings.Contains(stderr, "--output"); refused != slices.Contains(without[name], form) {
				t.Errorf("%q is refused: %t\n%s", args, refused, stderr)
			}
		}
		if _, _, stderr := called(t, program, name, "-o", "xml"); name != "undo" && !strings.Contains(stderr, `--output "xml": must be one of `) {
			t.Errorf("%s -o xml:\n%s", name, stderr)
		}
	}
	for _, form := range []string{formText, formWide, formJSON, formYAML, formName} {
		if code, out, stderr := called(t, program, "explain", "exit-3", "-o", form); code != 0 || !strings.Contains(out, "exit-3") {
			t.Errorf("explain -o %s: exit code %d\n%s%s", form, code, out, stderr)
		}
		if code, out, _ := called(t, program, "version", "-o", form); code != 0 || !strings.Contains(out, version.String()) {
			t.Errorf("version -o %s: exit code %d\n%s", form, code, out)
		}
	}
	if code, _, stderr := called(t, program, "diagnose", "--file=-", "-o", "json"); code != migration.ExitUsage || !strings.Contains(stderr, "Name a file") {
		t.Errorf("diagnose of two things to stdout: exit code %d\n%s", code, stderr)
	}
}
