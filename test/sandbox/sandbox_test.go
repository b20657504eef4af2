package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

func TestMain(m *testing.M) { kubernetes.Main(m) }

// step is a command of the README: of a shell, or of the sandbox.
type step struct{ language, line string }

// quickStart returns the commands of the README's section, in their order.
func quickStart(t *testing.T) []step {
	t.Helper()
	raw, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(raw), "\n## Try it\n")
	if !found {
		t.Fatal("README.md has no section \"Try it\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var steps []step
	language := ""
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		switch after, fence := strings.CutPrefix(line, "```"); {
		case fence:
			language = after
		case line != "" && (language == "bash" || language == "sandbox"):
			steps = append(steps, step{language, line})
		}
	}
	return steps
}

// terminal is the one in which the sandbox runs.
type terminal struct {
	t       *testing.T
	stdin   *os.File
	lines   chan string
	process *process.Process
}

// open starts the sandbox as make does.
func open(t *testing.T, kubeconfig string) *terminal {
	t.Helper()
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	t.Cleanup(func() { _ = stdin.Close() })
	out, writer := io.Pipe()
	term := &terminal{t: t, stdin: stdin, lines: make(chan string, 1000)}
	go func() {
		defer close(term.lines)
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			term.lines <- scanner.Text()
		}
	}()
	term.process = process.Start(t, process.Program{
		Binary: process.BuildPlain(t, "./test/sandbox"), Args: []string{"-kubeconfig=" + kubeconfig},
		// It builds what starts the control plane.
		Env: os.Environ(), Stdin: in, Stdout: writer,
	})
	go func() {
		<-term.process.Exited()
		_ = writer.Close()
	}()
	return term
}

// types a line, and waits for a line that begins like that.
func (term *terminal) types(line, answer string) {
	term.t.Helper()
	term.typesEither(line, answer)
}

// typesEither types a line, and returns the next line that begins like one of the answers.
func (term *terminal) typesEither(line string, answers ...string) string {
	term.t.Helper()
	if _, err := fmt.Fprintln(term.stdin, line); err != nil {
		term.t.Fatal(err)
	}
	return term.sees(answers...)
}

func (term *terminal) sees(answers ...string) string {
	term.t.Helper()
	limit := time.After(5 * time.Minute)
	for {
		select {
		case line, more := <-term.lines:
			if slices.ContainsFunc(answers, func(answer string) bool { return strings.HasPrefix(line, answer) }) {
				return line
			}
			if strings.HasPrefix(line, "Failed: ") || !more {
				term.t.Fatalf("the sandbox says %q, not one of %q", line, answers)
			}
		case <-limit:
			term.t.Fatalf("the sandbox says none of %q", answers)
		}
	}
}

// objectsOf are the objects of a YAML file.
func objectsOf(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if u.Object != nil {
			all = append(all, u)
		}
	}
}

func resourceOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	return u.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(u.GetKind()) + "s")
}

// asLaptop turns the kubeconfig into one of an account that has only the permissions that
// docs/migration/prerequisites.md gives it.
func asLaptop(t *testing.T, kubeconfig string) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../../docs/migration/laptop-role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": kyma.StateNamespace}}}
	for _, u := range append([]*unstructured.Unstructured{namespace}, objectsOf(t, strings.ReplaceAll(string(raw), "USER", "laptop"))...) {
		if _, err := client.Resource(resourceOf(u)).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file.AuthInfos[contextName].Impersonate = "laptop"
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		t.Fatal(err)
	}
}

// TestAStrangerMigratesTheSandbox runs the README's commands, from the clone to a migrated cluster.
func TestAStrangerMigratesTheSandbox(t *testing.T) {
	checkout := t.TempDir()
	if err := os.Mkdir(filepath.Join(checkout, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(process.BuildPlain(t, "./cmd/eventmesh-migrate"), filepath.Join(checkout, "bin", "eventmesh-migrate")); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(checkout, "bin", "sandbox.kubeconfig")
	shell := func(script string) int {
		t.Helper()
		return process.Run(t, process.Program{Binary: "/bin/bash", Args: []string{"-c", script}, Dir: checkout, Env: []string{"PATH=" + os.Getenv("PATH")}}).Wait()
	}
	verify := func() int {
		t.Helper()
		return shell("bin/eventmesh-migrate verify --kubeconfig " + kubeconfig)
	}

	steps := quickStart(t)
	if len(steps) > 8 {
		t.Errorf("the README needs %d commands, more than 8: %q", len(steps), steps)
	}
	var term *terminal
	exports := ""
	for _, s := range steps {
		switch {
		case strings.HasPrefix(s.line, "git clone "):
		case s.line == "make sandbox":
			term = open(t, kubeconfig)
			term.sees("In this terminal:")
			asLaptop(t, kubeconfig)
			if verify() == 0 {
				t.Error("nothing is wrong before the migration")
			}
		case s.language == "sandbox":
			term.types(s.line, "Next, in the second terminal:")
		case strings.HasPrefix(s.line, "export "):
			exports += s.line + "\n"
		default:
			if code := shell(exports + s.line); code != 0 {
				t.Fatalf("%s: exit code %d", s.line, code)
			}
		}
	}
	if term == nil {
		t.Fatal("the README does not start the sandbox")
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Resource(standin.KymaSubscriptions).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) > 0 {
		t.Errorf("%d Kyma Subscriptions are left", len(list.Items))
	}

	for _, f := range faults {
		term.types("break "+f.kind, "Broken: ")
		term.types("heal", "Repaired: 1.")
	}
	poll.Until(t, time.Minute, "verify finds nothing after everything is repaired", func(context.Context) error {
		if code := verify(); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	term.types("break link", "Broken: ")
	if verify() == 0 {
		t.Error("verify does not find the deleted Knative Subscription")
	}

	term.process.Signal(syscall.SIGINT)
	if code := term.process.Wait(); code != 0 {
		t.Errorf("Ctrl-C: exit code %d", code)
	}
	if _, err := os.Stat(kubeconfig); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubeconfig is still there: %v", err)
	}
	server, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", server.Host); err == nil {
		_ = conn.Close()
		t.Errorf("%s still listens", server.Host)
	}
}
