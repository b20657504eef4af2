// Package helm runs Helm, in the versions that test/charts/go.mod pins.
package helm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Versions are the major versions of Helm that the charts are for. Of 2.16, which
// is Kyma's own and needs Tiller, there are "template" and "lint": test/charts/helm2.
var Versions = []int{2, 3, 4}

// Helm is one version of Helm.
type Helm struct {
	Major int
	// Root of the repository.
	Root string
	// Env is added to the environment of each command.
	Env []string

	binary string
}

// New builds Helm, which takes some minutes once and then a moment.
func New(ctx context.Context, root string, major int) (*Helm, error) {
	cache := os.Getenv("EVENTMESH_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("cannot find a cache for Helm: %w", err)
		}
		cache = filepath.Join(user, "eventmesh-migration")
	}
	h := &Helm{Major: major, Root: root, binary: filepath.Join(cache, "bin", fmt.Sprintf("helm%d", major))}
	if err := os.MkdirAll(filepath.Dir(h.binary), 0o755); err != nil {
		return nil, fmt.Errorf("cannot build Helm %d: %w", major, err)
	}
	lock, err := os.OpenFile(h.binary+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot build Helm %d: %w", major, err)
	}
	defer lock.Close()
	// Other test processes build the same at the same time.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("cannot build Helm %d: %w", major, err)
	}
	program := fmt.Sprintf("helm.sh/helm/v%d/cmd/helm", major)
	if major == 2 {
		program = "./helm2"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(root, "test", "charts"), "-trimpath", "-ldflags=-s -w", "-o", h.binary, program)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build Helm %d: %w\n%s", major, err, out)
	}
	return h, nil
}

// Run runs a command of Helm. The output is that of both streams; an error holds
// it, too.
func (h *Helm) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.binary, args...)
	cmd.Dir = h.Root
	// Nothing of this environment may lead it to another cluster.
	cmd.Env = append([]string{"HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + os.DevNull}, h.Env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), fmt.Errorf("helm%d %s: %w\n%s%s", h.Major, strings.Join(args, " "), err, &out, &errs)
	}
	return out.String(), nil
}
