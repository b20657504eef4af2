package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCacheKey(t *testing.T) {
	base := cacheKey([]byte("mod"), []byte("sum"), "go1.26.8")
	if again := cacheKey([]byte("mod"), []byte("sum"), "go1.26.8"); again != base {
		t.Errorf("the same inputs must find the same binaries: %s, then %s", base, again)
	}
	for reason, other := range map[string]string{
		"another version in go.mod needs other binaries": cacheKey([]byte("mod2"), []byte("sum"), "go1.26.8"),
		"another sum needs other binaries":               cacheKey([]byte("mod"), []byte("sum2"), "go1.26.8"),
		"another Go needs other binaries":                cacheKey([]byte("mod"), []byte("sum"), "go1.26.9"),
		"what moves from one input to the next counts":   cacheKey([]byte("mods"), []byte("um"), "go1.26.8"),
	} {
		if other == base {
			t.Errorf("%s: got the same key", reason)
		}
	}
}

// TestCacheKeyKnowsNoPlace: a move of this directory changes no key, and nothing is built again.
func TestCacheKeyKnowsNoPlace(t *testing.T) {
	for _, o := range []*origin{kubernetes, old, addons} {
		if !strings.Contains(string(o.mod), "module "+workModule+"\n") {
			t.Errorf("%s: components are not built in %s", o.name, workModule)
		}
		if strings.Contains(string(o.mod), "test/kubernetes") || strings.Contains(string(o.mod), "../../../") {
			t.Errorf("%s: its go.mod, which the key is made of, says where it is", o.name)
		}
	}
}

func TestRequired(t *testing.T) {
	mod := []byte("module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n\tk8s.io/kubernetes-tool v9.9.9 // indirect\n)\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.36.3\n)\n")
	if got, err := required(mod, "k8s.io/kubernetes"); err != nil || got != "v1.36.3" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := required(mod, "k8s.io/api"); err == nil {
		t.Error("a replacement is no requirement")
	}
}

// The versions of the components come from the go.mod files that are compiled in, so these have to
// name each of them.
func TestEveryComponentHasAVersion(t *testing.T) {
	for _, c := range components {
		version, err := c.version()
		if err != nil {
			t.Error(err)
			continue
		}
		if c.module != "" && !strings.Contains(string(c.origin.mod), "\t"+c.pkg+"\n") {
			t.Errorf("%s is not among the tools of its go.mod: go mod tidy would drop what it needs", c.pkg)
		}
		if flags := c.ldflags(version); c.module == "k8s.io/kubernetes" && !strings.Contains(flags, "gitVersion="+version+" ") {
			t.Errorf("%s would not know its version: %s", c.name, flags)
		}
	}
}

func TestBuildRefusesWhatItDoesNotKnow(t *testing.T) {
	if _, err := build(t.Context(), []string{"etcd", "kube-apiservr"}, io.Discard); err == nil || !strings.Contains(err.Error(), `"kube-apiservr"`) {
		t.Errorf("got error %v, want one that names the component", err)
	}
}

func TestLockIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var said strings.Builder
	if _, err := lock(short, path, &said); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second holder: got error %v, want to wait", err)
	}
	if !strings.Contains(said.String(), "waiting") {
		t.Errorf("said %q, want that it waits", said.String())
	}
	unlock()
	unlock, err = lock(t.Context(), path, io.Discard)
	if err != nil {
		t.Fatalf("after the first holder is gone: %v", err)
	}
	unlock()
}

func TestFreePort(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// fake writes a script that stands for a component.
func fake(t *testing.T, dir, script string) string {
	t.Helper()
	path := filepath.Join(dir, "component")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestADeathIsExplained(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "component.log"), []byte("bind: address already in use, the last time\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, script string
		portTaken      bool
		want           string
	}{
		{reason: "what it said last is shown, what an earlier one said is not", script: "echo cannot open data; exit 3", want: "component ended unexpectedly (exit status 3)"},
		{reason: "a port somebody else took is worth another attempt", script: "echo listen tcp: bind: address already in use; exit 1", portTaken: true, want: "bind: address already in use"},
	} {
		p, err := start(dir, fake(t, dir, tc.script))
		if err != nil {
			t.Fatal(err)
		}
		err = poll(t.Context(), p, func() (bool, error) { return false, errors.New("not ready") })
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "last time") {
			t.Errorf("%s: got error %v", tc.reason, err)
		}
		if got := errors.Is(err, errPortTaken); got != tc.portTaken {
			t.Errorf("%s: port taken = %t", tc.reason, got)
		}
	}
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	dir := t.TempDir()
	p, err := start(dir, fake(t, dir, "trap '' TERM; while :; do sleep 0.01; done"))
	if err != nil {
		t.Fatal(err)
	}
	p.stop(100 * time.Millisecond)
	select {
	case <-p.exited:
	default:
		t.Error("a component that ignores SIGTERM still runs")
	}
}

func TestEveryStops(*testing.T) {
	var calls atomic.Int32
	stop := every(time.Millisecond, func() { calls.Add(1) })
	for calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
}

func TestReleases(t *testing.T) {
	old, err := releaseOf("1.16", false)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range releases {
		for _, c := range []string{r.apiserver, r.controllerManager} {
			if !slices.ContainsFunc(components, func(known component) bool { return known.name == c }) {
				t.Errorf("release %q: nobody knows how to build %s", name, c)
			}
		}
	}
	for _, tc := range []struct{ reason, controllers, want string }{
		{"others keep their names", "job-controller,tokencleaner", "job,tokencleaner"},
		{"a ServiceAccount needs its Secret", "namespace-controller,serviceaccount-controller", "namespace,serviceaccount,serviceaccount-token"},
	} {
		if got := old.named(tc.controllers); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
	for _, name := range strings.Split(defaultControllers+","+workloadControllers+",endpoints-controller", ",") {
		if got := old.named(name); got == name {
			t.Errorf("%s has the name that it has today", name)
		}
	}
	if got := releases[newest].named(defaultControllers); got != defaultControllers {
		t.Errorf("today's names are translated: %s", got)
	}
	for reason, err := range map[string]error{
		"a release that is not known": second(releaseOf("1.15", false)),
		"a node of the old one":       second(releaseOf("1.16", true)),
	} {
		if err == nil || !strings.Contains(err.Error(), kubernetesEnv) {
			t.Errorf("%s: got error %v, want one that names where it comes from", reason, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"down"}, {"up"}, {"up", "--dir", "x", "y"}, {"build", "--all"}} {
		if err := run(t.Context(), args, strings.NewReader(""), io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("cluster %s: got error %v, want usage", strings.Join(args, " "), err)
		}
	}
}

// TestAssets: what is in KUBEBUILDER_ASSETS is not built.
func TestAssets(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	for name, mode := range map[string]os.FileMode{"etcd": 0o755, "kube-apiserver": 0o755, "kubectl": 0o755, "kubelet": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	bin, err := build(t.Context(), []string{"etcd", "kube-apiserver"}, io.Discard)
	if err != nil || bin["etcd"] != filepath.Join(dir, "etcd") || bin["kube-apiserver"] != filepath.Join(dir, "kube-apiserver") {
		t.Errorf("%v, %v", bin, err)
	}
	if err := os.Chmod(filepath.Join(dir, "etcd"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver-1.16", "kube-controller-manager", "kubelet"} {
		if path := asset(name); path != "" {
			t.Errorf("%s: %s", name, path)
		}
	}
}
