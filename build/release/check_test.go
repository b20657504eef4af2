//go:build release

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/upgrade"
)

// TestReleaseIsReproducible makes a version of HEAD from two clones in two folders, each with a
// cold cache, and compares all files. Then it runs the command line of this machine's archive.
func TestReleaseIsReproducible(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "release.key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second", "below", "other", "folders")
	upgrade.Tagged(t, first, "9.9.9")
	command(t, "", nil, "git", "clone", "-q", first, second)
	for i, clone := range []string{first, second} {
		// Neither the cache nor the settings of who builds may matter.
		env := []string{"GOCACHE=" + t.TempDir(), "TZ=" + []string{"UTC", "Asia/Tokyo"}[i], "GOFLAGS=" + []string{"", "-buildvcs=true"}[i]}
		t.Log(command(t, clone, env, "make", "release", "VERSION=9.9.9", "KEY="+file))
	}
	const into = "bin/release/9.9.9"
	compared := compare(t, filepath.Join(first, into), filepath.Join(second, into))
	if err := verify(t.Context(), filepath.Join(first, into), &key.PublicKey, t.Output()); err != nil {
		t.Error(err)
	}
	archive, err := os.ReadFile(filepath.Join(first, into, archiveName(tool, "9.9.9", platform{runtime.GOOS, runtime.GOARCH})+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := untar(archive)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), tool)
	if err := os.WriteFile(program, files[tool], 0o755); err != nil {
		t.Fatal(err)
	}
	if out := command(t, "", nil, program, "version"); !strings.Contains(out, "9.9.9") {
		t.Errorf("the command line says %q", out)
	}
	t.Logf("%d files are equal", compared)
}

func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// compare compares two folders, and returns how many files they have.
func compare(t *testing.T, first, second string) int {
	t.Helper()
	names, err := filesIn(os.DirFS(first))
	if err != nil {
		t.Fatal(err)
	}
	others, err := filesIn(os.DirFS(second))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(names, others); diff != "" {
		t.Errorf("files (-first +second):\n%s", diff)
	}
	for _, name := range names {
		one, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(one, other) {
			t.Errorf("%s differs", name)
		}
	}
	return len(names)
}

// TestReleaseCompiles builds the jobs for each platform, although only their images and the command
// line are published. The servers are for Linux: they ask the kernel about connections.
func TestReleaseCompiles(t *testing.T) {
	programs, err := programsOf("../..")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-trimpath", "-o", os.DevNull}
	for _, program := range programs {
		if elsewhere[program] == "" && program != "event-service" && !strings.HasPrefix(program, "eventing-") {
			args = append(args, "./cmd/"+program)
		}
	}
	for _, p := range allPlatforms {
		command(t, "../..", []string{"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Architecture}, "go", args...)
	}
}
