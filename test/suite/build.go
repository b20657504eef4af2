package suite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

var built struct {
	sync.Mutex
	binaries map[string]string
}

// Build builds a command of this module once in the life of the test process,
// and returns the path of the binary. If the test runs under the race detector,
// so does the binary, and also with EVENTMESH_TEST_RACE=programs.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	path, err := BuildFor(t.Context(), pkg)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// BuildFor is Build for what is no test: it returns an error.
func BuildFor(ctx context.Context, pkg string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if path := built.binaries[pkg]; path != "" {
		return path, nil
	}
	path, err := build(ctx, pkg)
	if err != nil {
		return "", err
	}
	if built.binaries == nil {
		built.binaries = map[string]string{}
	}
	built.binaries[pkg] = path
	return path, nil
}

// build leaves the binary in the user's cache, where the next build finds it up
// to date and does not link it again.
func build(ctx context.Context, pkg string) (string, error) {
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
	variant := sha256.Sum256(fmt.Appendf(nil, "%s race=%v", root, raced()))
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
	cmd := exec.CommandContext(ctx, "go", "build", "-C", root, fmt.Sprintf("-race=%v", raced()), "-o", path, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// raced says whether programs get the race detector.
func raced() bool { return raceDetector || os.Getenv("EVENTMESH_TEST_RACE") == "programs" }
