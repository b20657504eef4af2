package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/migration/check"
	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// tree is the program's commands, as execute makes them.
func tree() *cobra.Command {
	a := &app{jobs: registry.Jobs(registry.All()), name: program}
	jobs := make([]migration.Job, len(a.jobs))
	for i, job := range a.jobs {
		jobs[i] = job.Job
	}
	a.Tool = cli.NewTool(cli.IO{Stdout: os.Stdout, Stderr: os.Stderr, Env: func(string) string { return "" }}, jobs...)
	return a.root()
}

// quoted is what a shell does not look into.
var quoted = regexp.MustCompile(`'[^']*'`)

// problem says why a person could not paste the command; "" if they can.
func problem(command string) string {
	if strings.ContainsAny(quoted.ReplaceAllString(command, ""), "<>{};&|\n…") {
		return "it is not one complete command"
	}
	if out, err := exec.Command("bash", "-n", "-c", command).CombinedOutput(); err != nil {
		return "bash does not parse it: " + string(out)
	}
	out, err := exec.Command("bash", "-c", `printf '%s\n' `+command).Output() // only quotes and words, see above
	if err != nil {
		return err.Error()
	}
	words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	switch words[0] {
	case "kubectl", "helm":
		return ""
	case program:
	default:
		return "it is no command of ours, of kubectl or of Helm"
	}
	root := tree()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(words[1:]...)
	cmd, rest, err := root.Find(words[1:])
	if err != nil || cmd.Name() == program {
		return "there is no such command"
	}
	for i, word := range rest {
		name, value, given := strings.Cut(word, "=")
		long, isFlag := strings.CutPrefix(name, "--")
		if !isFlag {
			continue
		}
		f := cmd.Flags().Lookup(long)
		if f == nil {
			return cmd.Name() + " has no flag " + name
		}
		if !given && f.NoOptDefVal == "" && i+1 < len(rest) {
			value = rest[i+1]
		}
		if value != "" && value == strings.ToUpper(value) && !strings.ContainsAny(value, "0123456789") {
			continue // a name in capitals is one to replace, which only documents have
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err = list.Replace(strings.Split(value, ","))
		} else if value != "" {
			err = f.Value.Set(value)
		}
		if err != nil {
			return err.Error()
		}
		if long == "job" && !strings.Contains(" "+strings.Join(jobNames(registry.Jobs(registry.All())), " ")+" ", " "+value+" ") {
			return "there is no job " + value
		}
	}
	return ""
}

// written is what an expression is, with x for what is known only when the program runs.
func written(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		return written(e.X) + written(e.Y)
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
			return strings.NewReplacer("%s", "x", "%d", "1", "%q", "x", "%v", "x").Replace(written(e.Args[0]))
		}
	}
	return "x"
}

// inNote is a command within a text: it cannot be pasted.
var inNote = regexp.MustCompile(`(^|[^-\w])(kubectl [a-z-]|helm [a-z]+ [a-z-]+ |eventmesh-migrate (run|plan|undo|verify|status)\b|(` +
	strings.Join(jobNames(registry.Jobs(registry.All())), "|") + `) (run|plan|undo|--[a-z]))`)

// commandsIn returns the commands that Go code can print, and the texts with a command in them.
func commandsIn(source string) (commands, mixed []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "Kubectl" && f.Sel.Name != "CommandLine" || n.Ellipsis.IsValid() {
				return true
			}
			var words []string
			for _, arg := range n.Args {
				words = append(words, written(arg))
			}
			if f.Sel.Name == "Kubectl" {
				commands = append(commands, migration.Kubectl(words[0], words[1:]...))
			} else {
				commands = append(commands, migration.CommandLine(words...))
			}
			return false
		case *ast.BinaryExpr, *ast.BasicLit:
			switch s := written(n.(ast.Expr)); {
			case strings.Contains(s, "{name") || strings.Count(s, "\n") > 1: // a template of the catalog, a manual
			case strings.HasPrefix(s, "kubectl ") || strings.HasPrefix(s, program+" "):
				commands = append(commands, s)
			case inNote.MatchString(s):
				mixed = append(mixed, s)
			}
			return false
		}
		return true
	})
	return commands, mixed, nil
}

// adviceInCode returns the commands of findings in each file of the jobs, the engine and what they
// are made of. A note with a command in it is an error.
func adviceInCode(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, root := range []string{"internal/migration/jobs", "internal/migration/kyma", "internal/migration/verify", "pkg/engine", "pkg/jobmanager"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "enginetest") {
				return err
			}
			source, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			commands, mixed, err := commandsIn(string(source))
			for _, s := range mixed {
				t.Errorf("%s: a text with a command in it, which belongs into Command: %s", file, s)
			}
			all[file] = commands
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestCommandsInCatch(t *testing.T) {
	commands, mixed, err := commandsIn(`package a

var a = migration.Kubectl(ns, "get", "pods", "-l", "a="+b)
var b = f.Finding{Command: "eventmesh-migrate run --job=trigger-sync", Note: "Wait. Then: kubectl get pods"}
var c = fmt.Sprintf("kubectl -n %s get pods", d)
var d = fmt.Sprintf("fix it, then: trigger-sync undo")
`)
	if diff := cmp.Diff([]string{"kubectl -n x get pods -l a=x", "eventmesh-migrate run --job=trigger-sync", "kubectl -n %s get pods"}, commands); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if diff := cmp.Diff([]string{"Wait. Then: kubectl get pods", "fix it, then: trigger-sync undo"}, mixed); diff != "" {
		t.Error(diff)
	}
}

// ofJobBinary is a command of a job's binary in a document: people use eventmesh-migrate.
var ofJobBinary = regexp.MustCompile("(?m)(^ {4}|`)(" + strings.Join(jobNames(registry.Jobs(registry.All())), "|") + ") (run|plan|undo|--)[^`\n]*")

// TestDocsUseOneProgram: the documents that people read at work name commands of eventmesh-migrate.
func TestDocsUseOneProgram(t *testing.T) {
	for _, file := range []string{"README.md", "docs/migration/README.md", "docs/migration/runbook.md", "docs/migration/eventmesh-migrate.md", "docs/migration/migration-guide-1.11.md", "docs/migration/migration-guide-1.12.md", "docs/migration/checklist.md", "docs/migration/troubleshooting.md", "docs/migration/uninstall.md", "docs/migration/faq.md", "docs/migration/prerequisites.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range ofJobBinary.FindAllString(string(text), -1) {
			t.Errorf("%s: %s", file, strings.TrimLeft(found, " `"))
		}
	}
	if !ofJobBinary.MatchString("Run `trigger-sync undo` first") || ofJobBinary.MatchString("Run `eventmesh-migrate undo trigger-sync`") {
		t.Error("the test finds nothing, or everything")
	}
}

// TestPrintedCommandsCanBePasted: the commands of the reports that internal/migration/nextstep has
// as examples, and of every finding of verify, of the jobs and of the engine.
func TestPrintedCommandsCanBePasted(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	commands := map[string]string{}
	files, err := filepath.Glob("../../internal/migration/nextstep/testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if command := strings.TrimSpace(line); strings.HasPrefix(line, "  ") && (strings.HasPrefix(command, program+" ") || strings.HasPrefix(command, "kubectl ")) {
				commands[command] = filepath.Base(file)
			}
		}
	}
	for _, e := range verify.Catalog() {
		for _, object := range []string{"", "Thing shop/or'ders", "Thing crm"} {
			if command := e.Advice(object).Command; command != "" {
				commands[command] = "verify " + e.ID
			}
		}
	}
	for file, advice := range adviceInCode(t) {
		for _, command := range advice {
			commands[command] = file
		}
	}
	if len(commands) < 90 {
		t.Errorf("only %d commands were found", len(commands))
	}
	for command, from := range commands {
		if why := problem(command); why != "" {
			t.Errorf("%s: %s\n  %s", from, why, command)
		}
	}
	for _, bad := range []string{"eventmesh-migrate rnu", "eventmesh-migrate verify --phase=pre", "eventmesh-migrate run --job=nobody", "kubectl label namespace <namespace> a=b", "kubectl get 'pods", "svcat get"} {
		if problem(bad) == "" {
			t.Errorf("%s can be pasted", bad)
		}
	}
}

// TestObjectsOfACheck: what check -o name prints are arguments of kubectl; what is no object is
// left out.
func TestObjectsOfACheck(t *testing.T) {
	r := &check.Result{Kinds: []check.Kind{
		{Kind: "Subscription", Group: "eventing.kyma-project.io"}, {Kind: "Subscription", Group: "messaging.knative.dev"}, {Kind: "Service", Group: "serving.knative.dev"},
	}}
	for _, object := range []string{"", "webhooks", "number of Applications", "job trigger-sync", "Subscription shop/orders", "Service shop/web", "Lease state/lock", "Namespace state"} {
		r.Findings = append(r.Findings, migration.Finding{Object: object})
	}
	want := []string{"subscription.eventing.kyma-project.io/orders --namespace=shop", "service/web --namespace=shop", "lease/lock --namespace=state", "namespace/state"}
	if diff := cmp.Diff(want, objects(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
