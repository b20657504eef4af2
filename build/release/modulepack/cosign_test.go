//go:build slow

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCosignVerifiesTheModule asks the real cosign about the artifact and its images, by the
// command of docs/eventing/module.md.
func TestCosignVerifiesTheModule(t *testing.T) {
	cosign := filepath.Join(t.TempDir(), "cosign")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../test/cosign", "-trimpath", "-ldflags=-s -w", "-o", cosign, "github.com/sigstore/cosign/v2/cmd/cosign")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build cosign: %v\n%s", err, out)
	}
	s := newSite(t)
	s.build()
	s.run(0, "render", "-images", s.layout, "-repository", s.registry)
	s.pushImages()
	artifact := strings.TrimSpace(s.run(0, "push", "-registry", s.registry))
	private, public := s.key("release")
	_, other := s.key("other")
	verify := func(key, ref string) (string, error) {
		cmd := exec.CommandContext(t.Context(), cosign, "verify", "--key", key, "--insecure-ignore-tlog", ref)
		cmd.Env = append(os.Environ(), "HOME="+s.root)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := verify(public, artifact); err == nil {
		t.Errorf("what is not signed is taken: %s", out)
	}
	var refs []string
	for line := range strings.Lines(s.run(0, "sign", "-registry", s.registry, "-key", private)) {
		refs = append(refs, strings.TrimPrefix(strings.TrimSpace(line), "signed "))
	}
	if len(refs) != len(s.programs)+1 || refs[0] != artifact {
		t.Errorf("signed %q", refs)
	}
	for _, ref := range refs {
		if out, err := verify(public, ref); err != nil {
			t.Errorf("%s: %v: %s", ref, err, out)
		}
		if out, err := verify(other, ref); err == nil {
			t.Errorf("another key is taken for %s: %s", ref, out)
		}
	}
	raw, err := os.ReadFile("../../../docs/eventing/module.md")
	s.check(err)
	documented := 0
	for line := range strings.Lines(string(raw)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "cosign ")
		if !ok {
			continue
		}
		documented++
		version := strings.TrimSpace(s.read("module/VERSION"))
		args := strings.Fields(strings.NewReplacer("registry.example/modules", s.registry, "public.pem", public, ":0.1.0", ":"+version).Replace(command))
		if out, err := exec.CommandContext(t.Context(), cosign, args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if documented == 0 {
		t.Error("docs/eventing/module.md has no command of cosign")
	}
}
