// Package helm runs Helm, in the versions that test/helm/v3/go.mod and test/helm/v2/go.mod pin. It
// hides the differences between the major versions from the tests of charts.
package helm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// Versions are the major versions of Helm that the charts are for. Kyma's own is 2,
// which upgrades through Tiller: see StartTiller.
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

// New builds Helm, which takes some minutes once and then a moment. The results of tests depend on
// our charts from then on, which it reads.
func New(ctx context.Context, root string, major int) (*Helm, error) {
	h := &Helm{Major: major, Root: root}
	var err error
	if major == 2 {
		h.binary, err = build(ctx, root, "test/helm/v2", "k8s.io/helm/cmd/helm")
	} else {
		h.binary, err = build(ctx, root, "test/helm/v3", fmt.Sprintf("helm.sh/helm/v%d/cmd/helm", major))
	}
	if err != nil {
		return nil, err
	}
	return h, kubernetes.DependOnTrees(filepath.Join(root, "charts"))
}

// Binary is the path of the program.
func (h *Helm) Binary() string { return h.binary }

// build builds a program of a module in the repository, and returns where it is.
func build(ctx context.Context, root, module, program string) (string, error) {
	return kubernetes.Program{
		Dir: filepath.Join(root, module), Package: program,
		Flags: []string{"-trimpath", "-ldflags=-s -w -X k8s.io/helm/pkg/version.Version=v2.16.3 -X k8s.io/helm/pkg/version.BuildMetadata="},
		Env:   []string{"GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0"},
	}.Build(ctx)
}

// Run runs a command of Helm. The output is that of both streams; an error holds
// it, too.
func (h *Helm) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.binary, args...)
	cmd.Dir = h.Root
	// Nothing of this environment may lead it to another cluster.
	cmd.Env = append([]string{"HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + os.DevNull}, h.Env...)
	// It ends before garbage is worth collecting: that is a sixth of what a rendering costs.
	cmd.Env = append(cmd.Env, "GOGC=off", "GOMEMLIMIT=256MiB")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), fmt.Errorf("helm%d %s: %w\n%s%s", h.Major, strings.Join(args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

// WriteChart makes a chart of files, by their names in it.
func WriteChart(dir string, files map[string]string) error {
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Template renders a chart.
func (h *Helm) Template(ctx context.Context, release, chart string, args ...string) (string, error) {
	if h.Major == 2 {
		return h.Run(ctx, append([]string{"template", chart, "--name", release}, args...)...)
	}
	return h.Run(ctx, append([]string{"template", release, chart}, args...)...)
}

// Upgrade installs or upgrades a release, and waits for it, as Kyma's installer does.
func (h *Helm) Upgrade(ctx context.Context, release, chart, namespace string, timeout time.Duration, args ...string) (string, error) {
	args = append([]string{"upgrade", "--install", release, chart, "--namespace", namespace, "--wait", h.timeout(timeout)}, args...)
	return h.Run(ctx, args...)
}

// Rollback goes back to the last revision before the one that is deployed.
func (h *Helm) Rollback(ctx context.Context, release, namespace string, timeout time.Duration) (string, error) {
	revisions, err := h.history(ctx, release, namespace)
	if err != nil {
		return "", err
	}
	revisions = slices.DeleteFunc(revisions, func(r revision) bool { return r.Status != "superseded" })
	if len(revisions) == 0 {
		return "", fmt.Errorf("release %s has no revision to go back to", release)
	}
	args := []string{"rollback", release, strconv.Itoa(revisions[len(revisions)-1].Revision), "--wait", h.timeout(timeout)}
	return h.Run(ctx, append(args, h.of(namespace)...)...)
}

// Status is that of the newest revision of a release: deployed, failed …
func (h *Helm) Status(ctx context.Context, release, namespace string) (string, error) {
	revisions, err := h.history(ctx, release, namespace)
	if err != nil || len(revisions) == 0 {
		return "", err
	}
	return revisions[len(revisions)-1].Status, nil
}

type revision struct {
	Revision int    `json:"revision"`
	Status   string `json:"status"`
}

// history returns the revisions of a release, oldest first.
func (h *Helm) history(ctx context.Context, release, namespace string) ([]revision, error) {
	out, err := h.Run(ctx, append([]string{"history", release, "--output", "json"}, h.of(namespace)...)...)
	if err != nil {
		return nil, err
	}
	var revisions []revision
	if err := json.Unmarshal([]byte(out), &revisions); err != nil {
		return nil, fmt.Errorf("cannot read the history of release %s: %w\n%s", release, err, out)
	}
	for i := range revisions {
		revisions[i].Status = strings.ToLower(revisions[i].Status) // Helm 2 shouts
	}
	slices.SortFunc(revisions, func(a, b revision) int { return cmp.Compare(a.Revision, b.Revision) })
	return revisions, nil
}

// of says where a release is. The releases of Helm 2 are in no namespace.
func (h *Helm) of(namespace string) []string {
	if h.Major == 2 {
		return nil
	}
	return []string{"--namespace", namespace}
}

// timeout is a number of seconds in Helm 2.
func (h *Helm) timeout(d time.Duration) string {
	if h.Major == 2 {
		return fmt.Sprintf("--timeout=%.0f", d.Seconds())
	}
	return "--timeout=" + d.String()
}
