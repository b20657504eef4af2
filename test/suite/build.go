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
	// safeguards are those of BuildWithout, in the order of their numbers.
	safeguards []string
}

// Build builds a command of this module once in the life of the test process,
// and returns the path of the binary. If the test runs under the race detector,
// so does the binary, and also with EVENTMESH_TEST_RACE=programs.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	return once(t, pkg, false)
}

// BuildWithout builds a command like Build, with all edits of test/mutation/safeguards.yaml in it: the product has no switch for its
// safeguards. All of them are on, unless the environment of the program has what Without says. The binary runs in an image, too.
func BuildWithout(t testing.TB, pkg string) string {
	t.Helper()
	return once(t, pkg, true)
}

// Without is the environment in which a program of BuildWithout has one safeguard switched off.
func Without(t testing.TB, safeguard string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	n := slices.Index(built.safeguards, safeguard)
	if n < 0 {
		t.Fatalf("test/mutation/safeguards.yaml has no %q but %q, or nothing was built without it", safeguard, built.safeguards)
	}
	return fmt.Sprintf("MUTANT=%d", n)
}

func once(t testing.TB, pkg string, without bool) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	key := fmt.Sprintf("%s %v", pkg, without)
	if path := built.binaries[key]; path != "" {
		return path
	}
	path, err := build(t.Context(), pkg, without)
	if err != nil {
		t.Fatal(err)
	}
	if built.binaries == nil {
		built.binaries = map[string]string{}
	}
	built.binaries[key] = path
	return path
}

// build leaves the binary in the user's cache, where the next build finds it up
// to date and does not link it again.
func build(ctx context.Context, pkg string, without bool) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module: %w", err)
	}
	root := string(bytes.TrimSpace(out))
	cache, err := kubernetes.CacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot build %s: %w", pkg, err)
	}
	// Two checkouts, or the two kinds of build, must not overwrite each other.
	variant := sha256.Sum256(fmt.Appendf(nil, "%s race=%v without=%v", root, raced(), without))
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
	args := []string{"build", "-C", root, fmt.Sprintf("-race=%v", raced()), "-o", path}
	if without {
		overlay := exec.CommandContext(ctx, "go", "run", "-C", root, "./test/mutation", "-overlay", filepath.Join(dir, "overlay"))
		var stderr bytes.Buffer
		overlay.Stderr = &stderr
		names, err := overlay.Output()
		if err != nil {
			return "", fmt.Errorf("cannot build %s without safeguards: %w\n%s", pkg, err, &stderr)
		}
		built.safeguards = strings.Split(strings.TrimSpace(string(names)), "\n")
		args = append(args, "-overlay", filepath.Join(dir, "overlay", "overlay.json"))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	if without && !raced() {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // an image has nothing but the program
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// raced says whether programs get the race detector.
func raced() bool { return raceDetector || os.Getenv("EVENTMESH_TEST_RACE") == "programs" }
