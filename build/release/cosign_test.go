//go:build slow

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

var cosignBlock = regexp.MustCompile("(?s)```cosign\n(.*?)```")

// TestCosignVerifies asks the real cosign about what this program has signed: the commands of
// docs/releases.md, each image, list and chart, and the checksums. What is signed by another key,
// or changed, it refuses.
func TestCosignVerifies(t *testing.T) {
	cosign := filepath.Join(t.TempDir(), "cosign")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../test/cosign", "-trimpath", "-ldflags=-s -w", "-o", cosign, "github.com/sigstore/cosign/v2/cmd/cosign")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build cosign: %v\n%s", err, out)
	}
	if err := pushAll(t.Context(), made.dir, t.Output()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	publicKey(t, dir)
	run := func(args string) (string, error) {
		return shell(t, dir, cosign+" "+args, "HOME="+dir, "COSIGN_YES=true")
	}
	raw, err := os.ReadFile("../../docs/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	verified := 0
	for _, block := range cosignBlock.FindAllStringSubmatch(string(raw), -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.NewReplacer("0.1.0", "9.9.9", repository, made.about.Repository).Replace(strings.TrimSpace(line))
			if out, err := run(strings.TrimPrefix(line, "cosign ")); err != nil {
				t.Errorf("%s: %v: %s", line, err, out)
			}
			verified++
		}
	}
	if verified < 2 {
		t.Errorf("docs/releases.md has only %d commands of cosign", verified)
	}
	const flags = "verify --key release.pub --insecure-ignore-tlog "
	for _, program := range sorted(made.about.Images) {
		if out, err := run(flags + made.about.Repository + "/" + program + "@" + made.about.Images[program]); err != nil {
			t.Errorf("%s: %v: %s", program, err, out)
		}
	}
	for _, file := range []string{sumsFile, signatureFile} {
		content, err := os.ReadFile(filepath.Join(made.dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const blob = "verify-blob --key release.pub --insecure-ignore-tlog --signature SHA256SUMS.sig SHA256SUMS"
	if out, err := run(blob); err != nil {
		t.Errorf("the checksums: %v: %s", err, out)
	}
	edit(t, filepath.Join(dir, sumsFile), flip)
	if out, err := run(blob); err == nil {
		t.Errorf("changed checksums are taken: %s", out)
	}

	// A key pair of cosign's own, whose private key is encrypted.
	if out, err := shell(t, dir, cosign+" generate-key-pair --output-key-prefix own", "HOME="+dir, "COSIGN_PASSWORD=secret"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "own.key"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := artifact.PrivateKey(text, "secret")
	if err != nil {
		t.Fatal(err)
	}
	signature, err := artifact.SignBlob([]byte("sums"), own)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"own.sums": []byte("sums"), "own.sig": signature} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run("verify-blob --key own.pub --insecure-ignore-tlog --signature own.sig own.sums"); err != nil {
		t.Errorf("what cosign's key has signed: %v: %s", err, out)
	}

	// An image that is not signed, then signed by another key, then with the signature of another
	// image.
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := artifact.Layer(map[string]artifact.File{"job": {Content: []byte("another"), Executable: true}})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := foreign.Digest()
	if err != nil {
		t.Fatal(err)
	}
	to := ref(t, made.about.Repository+"/foreign@"+hash.String())
	if err := remote.Write(to, foreign); err != nil {
		t.Fatal(err)
	}
	if out, err := run(flags + to.String()); err == nil {
		t.Errorf("what is not signed is taken: %s", out)
	}
	if err := artifact.Sign(t.Context(), to, other); err != nil {
		t.Fatal(err)
	}
	if out, err := run(flags + to.String()); err == nil {
		t.Errorf("what another one has signed is taken: %s", out)
	}
	first := ref(t, made.about.Repository+"/trigger-sync@"+made.about.Images["trigger-sync"])
	signatures, err := remote.Image(artifact.SignatureTag(first))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(artifact.SignatureTag(to), signatures); err != nil {
		t.Fatal(err)
	}
	if out, err := run(flags + to.String()); err == nil {
		t.Errorf("the signature of another image is taken: %s", out)
	}
}

func ref(t *testing.T, text string) name.Digest {
	t.Helper()
	ref, err := name.NewDigest(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
