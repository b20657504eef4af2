// Package guide follows docs/library/write-a-migration.md as its reader does: in an empty folder.
package guide

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// cluster is the one control plane of this package's tests.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Shared(&cluster), kubernetes.Before(func(context.Context) error {
		return kubernetes.DependOnTrees("../../pkg", "../../internal", "../../examples") // programs of these are built
	}))
}

const (
	document = "../../docs/library/write-a-migration.md"
	example  = "../../examples/registry"
)

// block is one of the guide: commands, or a file.
type block struct{ language, file, text string }

var (
	fenced   = regexp.MustCompile("(?s)(?:<!-- file: ([\\w.]+),[^>]*-->\n)?```(\\w+)\n(.*?)```\n")
	exported = regexp.MustCompile(`^export (\w+)=\S+$`)
)

func blocks(text string) []block {
	var all []block
	for _, match := range fenced.FindAllStringSubmatch(text, -1) {
		all = append(all, block{file: match[1], language: match[2], text: match[3]})
	}
	return all
}

// reader follows the guide.
type reader struct {
	t   *testing.T
	dir string
	env []string
}

// follow does what one block says.
func (r *reader) follow(b block, settings map[string]string) {
	r.t.Helper()
	switch {
	case b.file != "":
		if err := os.WriteFile(filepath.Join(r.dir, b.file), []byte(b.text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	case b.language == "settings":
		var names []string
		for line := range strings.Lines(b.text) {
			match := exported.FindStringSubmatch(strings.TrimSpace(line))
			if match == nil {
				r.t.Fatalf("%q is no setting", line)
			}
			names = append(names, match[1])
			r.env = append(r.env, match[1]+"="+settings[match[1]])
		}
		if len(names) != len(settings) {
			r.t.Fatalf("the guide has the settings %v, this test %v", names, settings)
		}
	case b.language == "bash":
		// Directory and variables go on from block to block, as in a terminal.
		out := r.run("bash", "-euo", "pipefail", "-c", b.text+"\npwd >\"$AFTER/dir\"; env -0 >\"$AFTER/env\"")
		r.t.Logf("%s\n%s", b.text, out)
		r.dir = strings.TrimSpace(r.read("dir"))
		r.env = strings.Split(strings.TrimSuffix(r.read("env"), "\x00"), "\x00")
	default:
		r.t.Fatalf("a block of %s is neither a file nor run", b.language)
	}
}

// read returns a file in which a shell has left what the next one needs.
func (r *reader) read(file string) string {
	r.t.Helper()
	dir := ""
	for _, variable := range r.env {
		if value, ok := strings.CutPrefix(variable, "AFTER="); ok {
			dir = value
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(raw)
}

func (r *reader) run(program string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), program, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var (
	craneModule = regexp.MustCompile(`github\.com/google/go-containerregistry/cmd/crane@\S+`)
	unreachable = regexp.MustCompile(`dial tcp|no such host|i/o timeout|TLS handshake timeout|connection refused|GOPROXY list is not`)
)

// TestGuide follows the guide in an empty folder, with a cluster and a registry of its own. Then it
// runs the program with no other permissions than those of its manifest.
func TestGuide(t *testing.T) {
	library, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The modules are those of this repository, which their sums are known for.
	bin := t.TempDir()
	r := &reader{t: t, dir: t.TempDir(), env: append(os.Environ(), "AFTER="+t.TempDir(), "GOFLAGS=", "GOWORK=off", "GOSUMDB=off", "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"))}
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	// The first command that needs the network, if the machine has not run it before.
	crane := exec.CommandContext(t.Context(), "go", "install", craneModule.FindString(string(raw)))
	crane.Dir, crane.Env = r.dir, r.env
	if out, err := crane.CombinedOutput(); err != nil && unreachable.Match(out) {
		t.Skipf("crane cannot be downloaded, and the guide is not followed: %s", out)
	} else if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	settings := map[string]string{"LIBRARY": library, "REGISTRY_TEST_KUBECONFIG": cluster.Kubeconfig, "IMAGE": serveRegistry(t, filepath.Join(bin, "crane")) + "/tools/registry-move:1.0.0"}
	_, kubectl := exec.LookPath("kubectl")
	for _, b := range blocks(string(raw)) {
		if kubectl == nil || !strings.Contains(b.text, "kubectl ") || b.language != "bash" {
			r.follow(b, settings)
		}
	}
	r.isTheExample()
	r.isPublished(filepath.Join(bin, "crane"), settings["IMAGE"])
	if kubectl != nil {
		t.Skip("no kubectl is installed: its part is left out")
	}
	r.needsNoOtherRoles(cluster.Kubeconfig)
}

// serveRegistry starts crane's own registry, and returns its address.
func serveRegistry(t *testing.T, crane string) string {
	t.Helper()
	log, into := io.Pipe()
	t.Cleanup(func() { _ = into.Close() })
	p := process.Start(t, process.Program{Binary: crane, Args: []string{"registry", "serve", "--address=127.0.0.1:0"}, Stderr: into})
	serving := make(chan struct{})
	var port string
	go func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if _, number, ok := strings.Cut(lines.Text(), "serving on port "); ok {
				port = number
				close(serving)
			}
		}
	}()
	p.Await(serving, "the registry serves")
	return "127.0.0.1:" + port
}

// TestComparison holds the table of docs/library/why-not-100-lines.md, by the test of the example.
func TestComparison(t *testing.T) {
	r := &reader{t: t, dir: example, env: append(os.Environ(), "GOFLAGS=", "GOWORK=off", "REGISTRY_TEST_KUBECONFIG="+cluster.Kubeconfig)}
	out := r.run("go", "test", "-count=1", "-timeout=5m", "-v", "-run=^TestNaive$", ".")
	if !strings.Contains(out, "--- PASS: TestNaive") {
		t.Error("the test was not run")
	}
	t.Log(out)
}

// TestLinesOfCode holds how many lines of code the guide promises, without comments, imports and
// blank lines.
func TestLinesOfCode(t *testing.T) {
	for file, most := range map[string]int{"job.go": 60, "main.go": 20} {
		if lines := codeLines(t, contents(t, example, file)); lines > most {
			t.Errorf("%s has %d lines of code, the guide says %d", file, lines, most)
		}
	}
	const source = "// Package a.\npackage a\n\nimport (\n\t\"fmt\"\n)\n\n// A is a.\nvar A = `\n// no comment\n` // a comment\n"
	if lines := codeLines(t, source); lines != 4 {
		t.Errorf("%d lines of code, want 4", lines)
	}
}

// codeLines counts the lines that hold a token, those of imports left out.
func codeLines(t *testing.T, source string) int {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "", source, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	code := map[int]bool{}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, []byte(source), nil, 0)
	for {
		at, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // it is none in the source
		}
		for i := range strings.Count(text, "\n") + 1 {
			code[file.Line(at)+i] = true
		}
	}
	for _, decl := range parsed.Decls {
		for line := files.Position(decl.Pos()).Line; line <= files.Position(decl.End()).Line; line++ {
			delete(code, line)
		}
	}
	return len(code)
}

// isTheExample holds that the reader's folder is what the repository has as the example, with the
// same versions of the same modules.
func (r *reader) isTheExample() {
	r.t.Helper()
	for _, file := range []string{"job.go", "main.go", "job_test.go", "job.yaml"} {
		if diff := cmp.Diff(contents(r.t, example, file), contents(r.t, r.dir, file)); diff != "" {
			r.t.Errorf("%s (-example +guide):\n%s", file, diff)
		}
	}
	if diff := cmp.Diff(required(contents(r.t, example, "go.mod")), required(contents(r.t, r.dir, "go.mod"))); diff != "" {
		r.t.Errorf("go.mod (-example +guide):\n%s", diff)
	}
}

func contents(t *testing.T, dir, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// compared are modules that only the test of the naive program needs, which no reader has.
var compared = []string{"github.com/google/go-cmp ", "k8s.io/api "}

// required are the lines of a go.mod that require a module of others.
func required(file string) []string {
	var all []string
	for line := range strings.Lines(file) {
		line = strings.TrimSuffix(strings.TrimSpace(line), " // indirect")
		only := slices.ContainsFunc(compared, func(module string) bool { return strings.HasPrefix(line, module) })
		if path, _, ok := strings.Cut(line, " v"); ok && strings.Contains(path, "/") && !strings.Contains(path, "eventmesh-migration") && !only {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return all
}

// isPublished holds that the registry has an image that starts the program, for one platform.
func (r *reader) isPublished(crane, image string) {
	r.t.Helper()
	var file struct {
		OS, Architecture string
		Config           struct {
			User       string
			Entrypoint []string
		}
	}
	var manifest struct{ Layers []struct{ Digest string } }
	for command, into := range map[string]any{"config": &file, "manifest": &manifest} {
		if err := json.Unmarshal([]byte(r.run(crane, command, image)), into); err != nil {
			r.t.Fatalf("crane %s: %v", command, err)
		}
	}
	got := fmt.Sprintf("%s/%s, %v as %s, %d layer", file.OS, file.Architecture, file.Config.Entrypoint, file.Config.User, len(manifest.Layers))
	if want := "linux/amd64, [/registry-move] as 65532, 1 layer"; got != want {
		r.t.Errorf("the image is %s, want %s", got, want)
	}
}

// needsNoOtherRoles runs the built program as the ServiceAccount of job.yaml.
func (r *reader) needsNoOtherRoles(kubeconfig string) {
	r.t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:registry-move:registry-move"
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:registry-move", "system:authenticated"}
	}
	limited := filepath.Join(r.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, limited); err != nil {
		r.t.Fatal(err)
	}
	r.env = append(r.env, clientcmd.RecommendedConfigPathEnvVar+"="+limited)
	for _, command := range []string{"plan", "run", "undo"} {
		r.t.Log(r.run("./registry-move", command, "--from=registry.old.example/", "--to=registry.new.example/"))
	}
}

// TestBlocks: a block that is missed is a command that nobody runs.
func TestBlocks(t *testing.T) {
	want := []block{{language: "bash", text: "go vet\n"}, {language: "go", file: "job.go", text: "package main\n"}, {language: "text", text: "a\n"}}
	got := blocks("# A\n\n```bash\ngo vet\n```\n\n<!-- file: job.go, copied -->\n```go\npackage main\n```\n\nB `c`.\n\n```text\na\n```\n")
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(block{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
