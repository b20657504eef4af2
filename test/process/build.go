package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

var built struct {
	sync.Mutex
	// safeguards are those of Overlay, in the order of their numbers.
	safeguards []string
}

// Build builds a command of this module once in the life of the test process,
// and returns the path of the binary. If the test runs under the race detector,
// so does the binary, and also with EVENTMESH_TEST_RACE=programs.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	return must(t, BuildFor, pkg)
}

// must builds a command for a test.
func must(t testing.TB, build func(context.Context, string) (string, error), pkg string) string {
	t.Helper()
	path, err := build(t.Context(), pkg)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// BuildFor is Build for what is no test: it returns an error.
func BuildFor(ctx context.Context, pkg string) (string, error) {
	return build(ctx, pkg, raced())
}

// BuildUnraced is BuildPlain for what is no test: it returns an error.
func BuildUnraced(ctx context.Context, pkg string) (string, error) {
	return build(ctx, pkg, false)
}

// BuildPlain is Build without the race detector: for a program that the tests of another package,
// or other tests of this one, run with it.
func BuildPlain(t testing.TB, pkg string) string {
	t.Helper()
	return must(t, BuildUnraced, pkg)
}

// OnPath builds a command like BuildPlain, and returns a PATH on which it comes first: as kubectl
// finds a plugin.
func OnPath(t testing.TB, pkg string) string {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(BuildPlain(t, pkg), filepath.Join(bin, filepath.Base(pkg))); err != nil {
		t.Fatal(err)
	}
	return bin + string(filepath.ListSeparator) + os.Getenv("PATH")
}

// BuildWithout builds a command like Build, with Overlay.
func BuildWithout(t testing.TB, pkg string) string {
	t.Helper()
	path, err := build(t.Context(), pkg, raced(), "-overlay", Overlay(t))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Overlay is what go build takes as -overlay, so that a program has all edits of
// test/mutation/safeguards.yaml in it: the product has no switch for its safeguards. All of them
// are on, unless the environment of the program has what Without says.
func Overlay(t testing.TB) string {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := kubernetes.DependOn(filepath.Join(root, "test", "mutation")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", root, "./test/mutation", "-overlay", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	names, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot build programs without safeguards: %v\n%s", err, &stderr)
	}
	built.Lock()
	defer built.Unlock()
	built.safeguards = strings.Fields(string(names))
	return filepath.Join(dir, "overlay.json")
}

// Without is the environment in which a program with Overlay has one safeguard switched off.
func Without(t testing.TB, safeguard string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	n := slices.Index(built.safeguards, safeguard)
	if n < 0 {
		t.Fatalf("test/mutation/safeguards.yaml has no %q but %q, or nothing was built with Overlay", safeguard, built.safeguards)
	}
	return fmt.Sprintf("MUTANT=%d", n)
}

// root is the directory of the product's module, also for the tests of another one.
var root = sync.OnceValues(kubernetes.ModuleRoot)

// build leaves debug information out, as go test does for its binaries: to link it takes a sixth of
// the time. Stacks and reports of races have functions and lines without it.
func build(ctx context.Context, pkg string, race bool, flags ...string) (string, error) {
	dir, err := root()
	if err != nil {
		return "", err
	}
	return kubernetes.Program{Dir: dir, Package: pkg, Flags: append([]string{fmt.Sprintf("-race=%v", race), "-ldflags=-s -w"}, flags...)}.Build(ctx)
}

// raced says whether programs get the race detector.
func raced() bool { return raceDetector || os.Getenv("EVENTMESH_TEST_RACE") == "programs" }
