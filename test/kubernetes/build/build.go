package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// workModule is the module that components are built in, in a directory of its own for each build.
// Its name gets into what is built, and into the key of the cache. It is not the name of this
// module: a move of this directory then builds nothing again.
const workModule = "github.com/kyma-project/eventmesh-migration/test/cluster"

// placeless replaces what a go.mod of this directory says of its place, for the same reason.
var placeless = strings.NewReplacer(
	"module github.com/kyma-project/eventmesh-migration/test/kubernetes/build\n", "module "+workModule+"\n",
	"../../../docs/", "../../docs/",
)

// inWorkModule returns a go.mod of this directory as that of workModule.
func inWorkModule(goMod []byte) []byte { return []byte(placeless.Replace(string(goMod))) }

// The versions of everything built are those of files that are compiled in, so that the key of the
// cache and the builds need no source tree and cannot disagree with it.
var (
	//go:embed go.mod
	goMod []byte
	//go:embed go.sum
	goSum []byte
	//go:embed kubernetes-1.16.mod
	oldMod []byte
	//go:embed kubernetes-1.16.sum
	oldSum []byte
	//go:embed addons.mod
	addonsMod []byte
	//go:embed addons.sum
	addonsSum []byte
	//go:embed pause/main.go
	pauseMain []byte
	//go:embed openapi/definitions.go
	openAPI []byte
)

// origin is the module that components are built in.
type origin struct {
	// name begins the name of the cache's directory.
	name     string
	mod, sum []byte
	// name and content of the one file of our own that is built, where there is one.
	file   string
	source []byte
}

var (
	kubernetes = &origin{name: "cluster", mod: inWorkModule(goMod), sum: goSum}
	old        = &origin{name: "cluster-1.16", mod: inWorkModule(oldMod), sum: oldSum, file: "openapi/definitions.go", source: openAPI}
	// Other people's tools have versions of their own of what Kubernetes is made of. In one go.mod
	// the newest would win, and Kubernetes would be built from what it was never tested with.
	addons = &origin{name: "addons", mod: inWorkModule(addonsMod), sum: addonsSum}
	own    = &origin{name: "own", mod: []byte("module eventmesh\n\ngo 1.26\n"), file: "main.go", source: pauseMain}
)

// component is a program of the cluster and the package that holds its main.
type component struct {
	name    string
	origin  *origin
	pkg     string
	module  string
	ldflags func(version string) string
	// typical is what a build costs on two cores when Go's own cache is empty.
	typical string
	// complete makes sources in the directory of the build, with a main package in it that is built
	// instead of pkg.
	complete func(ctx context.Context, dir, pkg string) error
}

var components = []component{
	{name: "etcd", origin: kubernetes, pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3", ldflags: stripped, typical: "40 seconds"},
	{name: "kube-apiserver", origin: kubernetes, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: "k8s.io/kubernetes", ldflags: stampedKubernetes, typical: "3 minutes"},
	{name: "kube-controller-manager", origin: kubernetes, pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: "k8s.io/kubernetes", ldflags: stampedKubernetes, typical: "a minute"},
	{name: "kube-apiserver-1.16", origin: old, pkg: "k8s.io/kubernetes/cmd/kube-apiserver", module: "k8s.io/kubernetes", ldflags: stampedOld, typical: "3 minutes", complete: completeAPIServer},
	{name: "kube-controller-manager-1.16", origin: old, pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", module: "k8s.io/kubernetes", ldflags: stampedOld, typical: "20 seconds"},
	{name: "kube-scheduler", origin: kubernetes, pkg: "k8s.io/kubernetes/cmd/kube-scheduler", module: "k8s.io/kubernetes", ldflags: stampedKubernetes, typical: "a minute"},
	{name: "kubelet", origin: kubernetes, pkg: "k8s.io/kubernetes/cmd/kubelet", module: "k8s.io/kubernetes", ldflags: stampedKubernetes, typical: "2 minutes"},
	{name: "kube-proxy", origin: kubernetes, pkg: "k8s.io/kubernetes/cmd/kube-proxy", module: "k8s.io/kubernetes", ldflags: stampedKubernetes, typical: "a minute"},
	{name: "coredns", origin: addons, pkg: "github.com/coredns/coredns", module: "github.com/coredns/coredns", ldflags: stripped, typical: "2 minutes"},
	{name: "registry", origin: addons, pkg: "github.com/distribution/distribution/v3/cmd/registry", module: "github.com/distribution/distribution/v3", ldflags: stripped, typical: "2 minutes"},
	{name: "crane", origin: addons, pkg: "github.com/google/go-containerregistry/cmd/crane", module: "github.com/google/go-containerregistry", ldflags: stripped, typical: "10 seconds"},
	{name: "ko", origin: addons, pkg: "github.com/google/ko", module: "github.com/google/ko", ldflags: stripped, typical: "2 minutes"},
	{name: "pause", origin: own, pkg: ".", ldflags: stripped, typical: "a second"},
}

// nodeComponents are what "up --node" runs in addition to the control plane.
var nodeComponents = []string{"kube-scheduler", "kubelet", "kube-proxy", "coredns", "registry", "crane", "pause"}

func stripped(string) string { return "-s -w" }

// stampedKubernetes gives a Kubernetes binary its version: built from a module it has none, would
// call itself v0.0.0, and clients that compare versions would refuse it.
func stampedKubernetes(version string) string {
	return stamped(version, "k8s.io/component-base/version")
}

// stampedOld is for 1.16, where each part of it has a version of its own.
func stampedOld(version string) string {
	return stamped(version, "k8s.io/component-base/version", "k8s.io/client-go/pkg/version", "k8s.io/kubernetes/pkg/version")
}

func stamped(version string, packages ...string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	flags := "-s -w"
	for _, p := range packages {
		flags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", p, version, p, parts[0], p, parts[1])
	}
	return flags
}

// binaries are the paths of built components by their names.
type binaries map[string]string

// asset is the path of a component in the directory KUBEBUILDER_ASSETS, in which people have the
// binaries of envtest: etcd and kube-apiserver. "" if it is not there, and has to be built; envtest
// has no controller manager.
func asset(name string) string {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" || name != "etcd" && name != "kube-apiserver" {
		return ""
	}
	path := filepath.Join(dir, name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return ""
	}
	return path
}

// build makes sure that the named components are in the cache, but for those of envtest.
func build(ctx context.Context, names []string, stderr io.Writer) (binaries, error) {
	wanted := map[*origin][]component{}
	bin := binaries{}
	for _, name := range names {
		if path := asset(name); path != "" {
			bin[name] = path
			continue
		}
		i := slices.IndexFunc(components, func(c component) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown component %q", name)
		}
		wanted[components[i].origin] = append(wanted[components[i].origin], components[i])
	}
	root, err := cacheRoot()
	if err != nil {
		return nil, err
	}
	goVersion, err := output(ctx, "", "go", "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return nil, err
	}
	for _, o := range []*origin{kubernetes, old, addons, own} {
		dir := filepath.Join(root, o.name+"-"+cacheKey(o.mod, slices.Concat(o.sum, o.source), goVersion))
		if err := buildIn(ctx, dir, wanted[o], stderr); err != nil {
			return nil, err
		}
		for _, c := range wanted[o] {
			bin[c.name] = filepath.Join(dir, c.name)
		}
	}
	return bin, nil
}

func buildIn(ctx context.Context, dir string, wanted []component, stderr io.Writer) error {
	missing, err := absent(dir, wanted)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot create cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, "build.lock"), stderr)
	if err != nil {
		return err
	}
	defer unlock()
	// The process that held the lock may have built them meanwhile.
	if missing, err = absent(dir, wanted); err != nil {
		return err
	}
	for _, c := range missing {
		if err := c.build(ctx, dir, stderr); err != nil {
			return err
		}
	}
	return nil
}

func cacheRoot() (string, error) {
	if dir := os.Getenv("EVENTMESH_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a cache directory, set EVENTMESH_CACHE: %w", err)
	}
	return filepath.Join(dir, "eventmesh-migration"), nil
}

// cacheKey names everything the binaries depend on.
func cacheKey(goMod, goSum []byte, toolchain string) string {
	h := sha256.New()
	for _, part := range [][]byte{goMod, goSum, []byte(toolchain)} {
		fmt.Fprintf(h, "%d\n", len(part))
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func absent(dir string, wanted []component) ([]component, error) {
	var missing []component
	for _, c := range wanted {
		switch _, err := os.Stat(filepath.Join(dir, c.name)); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, c)
		case err != nil:
			return nil, fmt.Errorf("cannot look into the cache: %w", err)
		}
	}
	return missing, nil
}

func (c component) build(ctx context.Context, dir string, stderr io.Writer) error {
	version, err := c.version()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, "build-"+c.name+"-")
	if err != nil {
		return fmt.Errorf("cannot build %s: %w", c.name, err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, content := range map[string][]byte{"go.mod": c.origin.mod, "go.sum": c.origin.sum, c.origin.file: c.origin.source} {
		if content == nil {
			continue
		}
		if err := write(filepath.Join(work, name), content); err != nil {
			return fmt.Errorf("cannot build %s: %w", c.name, err)
		}
	}

	start := time.Now()
	fmt.Fprintf(stderr, "cluster: building %s %s from source (once, about %s)…\n", c.name, version, c.typical)
	stopTicker := every(15*time.Second, func() {
		fmt.Fprintf(stderr, "cluster: still building %s (%s)…\n", c.name, time.Since(start).Round(time.Second))
	})
	defer stopTicker()

	binary, pkg := filepath.Join(work, c.name), c.pkg
	if c.complete != nil {
		if err := c.complete(ctx, work, c.pkg); err != nil {
			return fmt.Errorf("cannot build %s: %w", c.name, err)
		}
		pkg = "."
	}
	if _, err := output(ctx, work, "go", "build", "-trimpath", "-ldflags", c.ldflags(version), "-o", binary, pkg); err != nil {
		return fmt.Errorf("cannot build %s %s: %w", c.name, version, err)
	}
	// The rename is what makes a half-written binary impossible to find.
	if err := os.Rename(binary, filepath.Join(dir, c.name)); err != nil {
		return fmt.Errorf("cannot build %s: %w", c.name, err)
	}
	fmt.Fprintf(stderr, "cluster: built %s %s in %s\n", c.name, version, time.Since(start).Round(100*time.Millisecond))
	return nil
}

// completeAPIServer copies the sources of the old API server's own two packages, which import a
// third one that is in no module: see openapi.
func completeAPIServer(ctx context.Context, dir, pkg string) error {
	const missing = "k8s.io/kubernetes/pkg/generated/openapi"
	found, err := output(ctx, dir, "go", "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return err
	}
	from := strings.TrimSpace(found)
	for _, name := range []string{"apiserver.go", "app/aggregator.go", "app/apiextensions.go", "app/server.go"} {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		for _, replaced := range [][2]string{{pkg + "/app\"", workModule + "/app\""}, {missing, workModule + "/openapi"}} {
			content = bytes.ReplaceAll(content, []byte(replaced[0]), []byte(replaced[1]))
		}
		if err := write(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return write(filepath.Join(dir, "openapi", "definitions.go"), bytes.TrimPrefix(openAPI, []byte("//go:build ignore\n")))
}

// write makes the directories, too.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// version is what the component's origin says it is; our own programs have none.
func (c component) version() (string, error) {
	if c.module == "" {
		return "devel", nil
	}
	return required(c.origin.mod, c.module)
}

// required reads the version of a module out of a go.mod.
func required(goMod []byte, module string) (string, error) {
	match := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(module) + `\s+(v\d+\.\d+\S*)`).FindSubmatch(goMod)
	if match == nil {
		return "", fmt.Errorf("go.mod does not require %s", module)
	}
	return string(match[1]), nil
}

// lock serialises builds across processes: two at once would compile the same packages twice. The
// kernel drops the lock with the process, so that a killed build blocks nobody.
func lock(ctx context.Context, path string, stderr io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the cache: %w", err)
	}
	for said := false; ; said = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("cannot lock the cache: %w", err)
		}
		if !said {
			fmt.Fprintln(stderr, "cluster: waiting for another process that is building the same components…")
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("cannot lock the cache: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// output runs a command without the caller's Go settings, which may not fit this module (a vendor
// mode, a workspace).
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	return outputEnv(ctx, dir, nil, name, args...)
}

// outputEnv is output with additions to the environment.
func outputEnv(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(slices.Concat(os.Environ(), env), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// every calls do again and again until stopped.
func every(interval time.Duration, do func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				do()
			}
		}
	}()
	return func() { close(done) }
}
