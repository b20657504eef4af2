// Command servicecatalog builds Service Catalog (see server) for tests, once: from its module, into
// the cache that test/kubernetes/build uses too.
//
//	go -C test/servicecatalog/build run . build   prints the path of the binary, on stdout
//
// This directory is a module of its own, so that the Kubernetes of 2020 that Service Catalog is
// made of stays out of the product's. The cache is $EVENTMESH_CACHE, else eventmesh-migration in
// the user's cache directory.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "build" {
		fmt.Fprintln(os.Stderr, "usage: go -C test/servicecatalog/build run . build")
		os.Exit(2)
	}
	binary, err := build(os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "servicecatalog:", err)
		os.Exit(1)
	}
	fmt.Println(binary)
}

// build makes sure that the cache has the binary and returns its path. The working directory is
// this module's.
func build(stderr io.Writer) (string, error) {
	root, err := cacheRoot()
	if err != nil {
		return "", err
	}
	key, err := cacheKey()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "servicecatalog-"+key)
	binary := filepath.Join(dir, "service-catalog")
	if exists, err := regular(binary); exists || err != nil {
		return binary, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot create cache: %w", err)
	}
	// Two builds at once would compile the same packages twice. The kernel drops the lock with the
	// process.
	lock, err := os.OpenFile(filepath.Join(dir, "build.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("cannot lock the cache: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("cannot lock the cache: %w", err)
	}
	// The process that held the lock may have built it meanwhile.
	if exists, err := regular(binary); exists || err != nil {
		return binary, err
	}

	fmt.Fprintln(stderr, "servicecatalog: building Service Catalog from source (once, about a minute and a half)…")
	began := time.Now()
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", fmt.Errorf("cannot build Service Catalog: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	half := filepath.Join(work, "service-catalog")
	if _, err := run("build", "-trimpath", "-ldflags", "-s -w", "-o", half, "./server"); err != nil {
		return "", fmt.Errorf("cannot build Service Catalog: %w", err)
	}
	// The rename is what makes a half-written binary impossible to find.
	if err := os.Rename(half, binary); err != nil {
		return "", fmt.Errorf("cannot build Service Catalog: %w", err)
	}
	fmt.Fprintf(stderr, "servicecatalog: built in %s\n", time.Since(began).Round(100*time.Millisecond))
	return binary, nil
}

func regular(path string) (bool, error) {
	switch _, err := os.Stat(path); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, fmt.Errorf("cannot look into the cache: %w", err)
	}
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

// placeless replaces the name of this module by its first one: the key does not change when this
// directory moves, and nothing is built again.
var placeless = strings.NewReplacer("module github.com/kyma-project/eventmesh-migration/test/servicecatalog/build\n",
	"module github.com/kyma-project/eventmesh-migration/test/servicecatalog\n")

// cacheKey names everything the binary depends on.
func cacheKey() (string, error) {
	sources, err := filepath.Glob("server/*.go")
	if err != nil {
		return "", err
	}
	toolchain, err := run("env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write([]byte(toolchain))
	for _, path := range append([]string{"go.mod", "go.sum"}, sources...) {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		content = []byte(placeless.Replace(string(content)))
		fmt.Fprintf(h, "%s %d\n", path, len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// run runs go without the caller's settings, which may not fit this module (a vendor mode, a
// workspace).
func run(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
