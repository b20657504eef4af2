package suite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

var built struct {
	sync.Mutex
	binaries map[string]string
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
	built.Lock()
	defer built.Unlock()
	return once(ctx, pkg, pkg, raced())
}

// BuildUnraced is BuildPlain for what is no test: it returns an error.
func BuildUnraced(ctx context.Context, pkg string) (string, error) {
	built.Lock()
	defer built.Unlock()
	return once(ctx, pkg, pkg+" without the race detector", false)
}

// BuildPlain is Build without the race detector: for a program that the tests of another package, or other tests of this one, run with it.
func BuildPlain(t testing.TB, pkg string) string {
	t.Helper()
	return must(t, BuildUnraced, pkg)
}

// BuildWithout builds a command like Build, with Overlay.
func BuildWithout(t testing.TB, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	path, err := once(t.Context(), pkg, pkg+" without safeguards", raced(), "-overlay", overlay(t))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Overlay is what go build takes as -overlay, so that a program has all edits of test/mutation/safeguards.yaml in it: the product has no
// switch for its safeguards. All of them are on, unless the environment of the program has what Without says.
func Overlay(t testing.TB) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	return overlay(t)
}

// overlay is Overlay for a caller that has the lock.
func overlay(t testing.TB) string {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", root, "./test/mutation", "-overlay", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	names, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot build programs without safeguards: %v\n%s", err, &stderr)
	}
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

// once builds a command for a caller that has the lock, if nothing was built with this key yet.
func once(ctx context.Context, pkg, key string, race bool, flags ...string) (string, error) {
	if path := built.binaries[key]; path != "" {
		return path, nil
	}
	path, err := build(ctx, pkg, race, flags...)
	if err != nil {
		return "", err
	}
	if built.binaries == nil {
		built.binaries = map[string]string{}
	}
	built.binaries[key] = path
	return path, nil
}

// build leaves the binary in the user's cache, where the next build finds it up
// to date and does not link it again.
func build(ctx context.Context, pkg string, race bool, flags ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module: %w", err)
	}
	root := string(bytes.TrimSpace(out))
	cache, err := kubernetes.CacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot build %s: %w", pkg, err)
	}
	// Two checkouts, or the kinds of build, must not overwrite each other.
	variant := sha256.Sum256(fmt.Appendf(nil, "%s race=%v changed=%v", root, race, len(flags) > 0))
	dir := filepath.Join(cache, fmt.Sprintf("bin-%x", variant[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", pkg, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("cannot build %s: %w", pkg, err)
	}
	defer lock.Close()
	// Other test processes build the same at the same time.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", pkg, err)
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	args := append([]string{"build", "-C", root, fmt.Sprintf("-race=%v", race), "-o", path}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// raced says whether programs get the race detector.
func raced() bool { return raceDetector || os.Getenv("EVENTMESH_TEST_RACE") == "programs" }
