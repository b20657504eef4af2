package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

var committed = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

func TestTar(t *testing.T) {
	raw, err := Tar(map[string]File{"job": {Content: []byte("program"), Executable: true}, "licenses/go@1/LICENSE": {Content: []byte("text")}, "licenses/LICENSE": {}})
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Name string
		Mode int64
		Text string
	}
	var got []entry
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, entry{h.Name, h.Mode, string(text)})
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s has owner %d:%d %q and time %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
	}
	want := []entry{{"job", 0o755, "program"}, {"licenses/", 0o755, ""}, {"licenses/LICENSE", 0o644, ""}, {"licenses/go@1/", 0o755, ""}, {"licenses/go@1/LICENSE", 0o644, "text"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"/job", "../job", "a//b", ""} {
		if _, err := Tar(map[string]File{bad: {}}); err == nil {
			t.Errorf("the path %q is taken", bad)
		}
	}
}

// platformImage is an image as a program's is.
func platformImage(t *testing.T, architecture, program string) v1.Image {
	t.Helper()
	layer, err := Layer(map[string]File{"job": {Content: []byte(program), Executable: true}, "etc/ssl/certs/ca-certificates.crt": {Content: []byte("certificates")}})
	if err != nil {
		t.Fatal(err)
	}
	image, err := Image(ImageOptions{Platform: v1.Platform{OS: "linux", Architecture: architecture}, Layers: []v1.Layer{layer}, Entrypoint: []string{"/job"}, User: "65532:65532",
		Labels: map[string]string{"org.opencontainers.image.title": "job"}, Created: committed})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func index(t *testing.T, images ...v1.Image) v1.ImageIndex {
	t.Helper()
	index, err := Index(images, map[string]string{"org.opencontainers.image.title": "job"})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func digestOf(t *testing.T, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	digest, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func TestImagesAreReproducible(t *testing.T) {
	first := index(t, platformImage(t, "amd64", "a"), platformImage(t, "arm64", "b"))
	second := index(t, platformImage(t, "arm64", "b"), platformImage(t, "amd64", "a"))
	ref, err := name.NewDigest(host(t) + "/job@" + digestOf(t, first))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, first); err != nil {
		t.Fatal(err)
	}
	read, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(read); err != nil {
		t.Error(err)
	}
	if digestOf(t, first) != digestOf(t, second) {
		t.Error("two indexes of the same images, in another order, have different digests")
	}
	if other := index(t, platformImage(t, "amd64", "c"), platformImage(t, "arm64", "b")); digestOf(t, first) == digestOf(t, other) {
		t.Error("another program has the same digest")
	}
	config, err := platformImage(t, "arm64", "b").ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || config.Architecture != "arm64" || !config.Created.Equal(committed) || cmp.Diff([]string{"/job"}, config.Config.Entrypoint) != "" {
		t.Errorf("the configuration is %+v", config)
	}
	if _, err := Image(ImageOptions{}); err == nil {
		t.Error("an image without a platform is made")
	}
}

// host is a registry in this process.
func host(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func pushed(t *testing.T, repository string, image v1.Image) name.Digest {
	t.Helper()
	ref, err := name.NewDigest(repository + "@" + digestOf(t, image))
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	return ref
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSign(t *testing.T) {
	repository := host(t) + "/eventing/job"
	ref := pushed(t, repository, platformImage(t, "amd64", "a"))
	key, other := newKey(t), newKey(t)
	if err := Verify(t.Context(), ref, &key.PublicKey); !errors.Is(err, ErrUnsigned) {
		t.Errorf("what is not signed: %v", err)
	}
	for range 2 {
		if err := Sign(t.Context(), ref, key); err != nil {
			t.Fatal(err)
		}
	}
	if err := Verify(t.Context(), ref, &key.PublicKey); err != nil {
		t.Error(err)
	}
	if err := Verify(t.Context(), ref, &other.PublicKey); !errors.Is(err, ErrSignature) {
		t.Errorf("by another key: %v", err)
	}
	signatures, err := remote.Image(SignatureTag(ref))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := signatures.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 {
		t.Fatalf("signing twice with one key leaves %d signatures", len(manifest.Layers))
	}
	payload, err := Content(signatures, mediaTypeSignature, mostSignature)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"critical":{"identity":{"docker-reference":"` + repository + `"},"image":{"docker-manifest-digest":"` + ref.DigestStr() + `"},"type":"cosign container image signature"},"optional":null}`
	if string(payload) != want {
		t.Errorf("the claim is %s, not %s", payload, want)
	}
	if err := Sign(t.Context(), ref, other); err != nil {
		t.Fatal(err)
	}
	for _, key := range []*ecdsa.PrivateKey{key, other} {
		if err := Verify(t.Context(), ref, &key.PublicKey); err != nil {
			t.Errorf("with two signatures: %v", err)
		}
	}
	// The signature of one image says nothing about another.
	second := pushed(t, repository, platformImage(t, "amd64", "b"))
	if err := remote.Write(SignatureTag(second), signatures); err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), second, &key.PublicKey); !errors.Is(err, ErrSignature) {
		t.Errorf("with the signature of another image: %v", err)
	}
	gone, err := name.NewDigest(repository + "@sha256:" + strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	if err := Sign(t.Context(), gone, key); err == nil {
		t.Error("what is not there is signed")
	}
}

// TestOneFlippedByteIsRefused changes one byte of the claim, and of its signature.
func TestOneFlippedByteIsRefused(t *testing.T) {
	repository := host(t) + "/job"
	ref := pushed(t, repository, platformImage(t, "amd64", "a"))
	key := newKey(t)
	signed, err := AddSignature(nil, ref, key)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := signed.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	payload, err := Content(signed, mediaTypeSignature, mostSignature)
	if err != nil {
		t.Fatal(err)
	}
	signature := manifest.Layers[0].Annotations[annotationSignature]
	for _, tc := range []struct {
		reason             string
		payload, signature string
		valid              bool
	}{
		{"as it is", string(payload), signature, true},
		{"the digest in the claim", strings.Replace(string(payload), "sha256:", "sha257:", 1), signature, false},
		{"a space in the claim", string(payload) + " ", signature, false},
		{"the signature", string(payload), flipped(signature), false},
		{"no signature", string(payload), "", false},
	} {
		signatures, err := Artifact(ArtifactOptions{Config: EmptyConfig,
			Layers: []Blob{{MediaType: mediaTypeSignature, Content: []byte(tc.payload), Annotations: map[string]string{annotationSignature: tc.signature}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(SignatureTag(ref), signatures); err != nil {
			t.Fatal(err)
		}
		if err := Verify(t.Context(), ref, &key.PublicKey); (err == nil) != tc.valid {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

func flipped(base64 string) string {
	b := []byte(base64)
	b[20] ^= 1
	return string(b)
}

func TestBlobs(t *testing.T) {
	key := newKey(t)
	sums := []byte("0123  eventmesh-migrate\n")
	signature, err := SignBlob(sums, key)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := SignBlob(sums, key); err != nil || !bytes.Equal(signature, again) {
		t.Errorf("signing twice gives %s and %s, %v", signature, again, err)
	}
	if err := VerifyBlob(sums, append(signature, '\n'), &key.PublicKey); err != nil {
		t.Error(err)
	}
	if err := VerifyBlob([]byte("0124  eventmesh-migrate\n"), signature, &key.PublicKey); !errors.Is(err, ErrSignature) {
		t.Errorf("another content: %v", err)
	}
	if err := VerifyBlob(sums, []byte("?"), &key.PublicKey); !errors.Is(err, ErrSignature) {
		t.Errorf("no base64: %v", err)
	}
	// OpenSSL reads it, too.
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	public, err := PublicKeyPEM(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"key.pub": public, "SHA256SUMS": sums, "SHA256SUMS.sig": signature} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-c", openssl+" dgst -sha256 -verify key.pub -signature <("+openssl+" base64 -d -A -in SHA256SUMS.sig) SHA256SUMS")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("openssl: %v: %s", err, out)
	}
}

func TestKeys(t *testing.T) {
	key := newKey(t)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large, err := x509.MarshalPKCS8PrivateKey(p384)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := encrypted.Encrypt(pkcs8, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	otherwise, err := encrypted.Encrypt(pkcs8, []byte("another"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, raw []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
	}
	for _, tc := range []struct {
		reason, text, err string
	}{
		{"PKCS 8", block("PRIVATE KEY", pkcs8), ""},
		{"SEC 1", block("EC PRIVATE KEY", sec1), ""},
		{"as openssl ecparam writes it", block("EC PARAMETERS", []byte{6, 8}) + block("EC PRIVATE KEY", sec1), ""},
		{"encrypted by cosign", block("ENCRYPTED SIGSTORE PRIVATE KEY", sealed), ""},
		{"encrypted by an earlier cosign", block("ENCRYPTED COSIGN PRIVATE KEY", sealed), ""},
		{"encrypted by cosign with another password", block("ENCRYPTED SIGSTORE PRIVATE KEY", otherwise), "COSIGN_PASSWORD is not its password"},
		{"encrypted by openssl", block("ENCRYPTED PRIVATE KEY", pkcs8), "openssl pkey -in"},
		{"encrypted by openssl ec", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1, Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}})), "openssl pkey -in"},
		{"another curve", block("PRIVATE KEY", large), "not ECDSA P-256"},
		{"RSA", block("PRIVATE KEY", foreign), "not ECDSA P-256"},
		{"a public key", block("PUBLIC KEY", pkcs8), "PUBLIC KEY"},
		{"no PEM", "key", "no PEM block"},
		{"broken", block("PRIVATE KEY", pkcs8[1:]), "asn1"},
	} {
		got, err := PrivateKey([]byte(tc.text), "secret")
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if err == nil && !got.Equal(key) {
			t.Errorf("%s: another key", tc.reason)
		}
	}
	text, err := PublicKeyPEM(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public, err := PublicKey(text)
	if err != nil || !public.Equal(&key.PublicKey) {
		t.Errorf("the public key is %v, %v", public, err)
	}
	for _, bad := range []string{"", block("PRIVATE KEY", pkcs8), block("PUBLIC KEY", pkcs8)} {
		if _, err := PublicKey([]byte(bad)); err == nil {
			t.Errorf("the public key %q is taken", bad)
		}
	}
}

func TestSPDX(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Path: "example.com/p/cmd/job", Main: debug.Module{Path: "example.com/p", Version: "v1.2.3"}, Deps: []*debug.Module{
		{Path: "example.com/b_c", Version: "v1.0.0", Sum: "h1:b="},
		{Path: "example.com/b-c", Version: "v1.0.0", Sum: "h1:c="},
		{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1", Sum: "h1:f="}},
	}}
	digest := "sha256:" + strings.Repeat("ab", 32)
	raw, err := SPDX(info, digest, committed)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := SPDX(info, digest, committed.In(time.FixedZone("", 3600))); err != nil || !bytes.Equal(raw, again) {
		t.Errorf("twice, in two time zones, it is not the same: %v", err)
	}
	var doc struct {
		SPDXVersion, DocumentNamespace string
		CreationInfo                   struct{ Created string }
		Packages                       []struct{ SPDXID, Name, VersionInfo, SourceInfo string }
		Relationships                  []struct{ SPDXElementID, RelatedSPDXElement, RelationshipType string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	ids := map[string]bool{}
	for _, p := range doc.Packages {
		got = append(got, p.Name+" "+p.VersionInfo+" "+p.SourceInfo)
		ids[p.SPDXID] = true
	}
	want := []string{"example.com/p v1.2.3 ", "example.com/b-c v1.0.0 go.sum h1:c=", "example.com/b_c v1.0.0 go.sum h1:b=", "example.com/fork v1.0.1 go.sum h1:f=", "stdlib 1.26.8 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if len(ids) != len(want) || len(doc.Relationships) != len(want) {
		t.Errorf("%d packages have %d identifiers and %d relationships", len(want), len(ids), len(doc.Relationships))
	}
	for _, r := range doc.Relationships {
		if !ids[r.RelatedSPDXElement] {
			t.Errorf("%+v names no package", r)
		}
	}
	if doc.SPDXVersion != "SPDX-2.3" || !strings.HasSuffix(doc.DocumentNamespace, "/job-"+strings.Repeat("ab", 32)) || doc.CreationInfo.Created != "2026-11-23T09:00:00Z" {
		t.Errorf("the document is %s", raw)
	}
	for _, bad := range []string{"", "sha256:ab", "sha512:" + strings.Repeat("ab", 32)} {
		if _, err := SPDX(info, bad, committed); err == nil {
			t.Errorf("the digest %q is taken", bad)
		}
	}
	if _, err := SPDX(&debug.BuildInfo{}, digest, committed); err == nil {
		t.Error("a program without modules is taken")
	}
}

// TestArtifact pushes one, and finds it among the referrers of its subject.
func TestArtifact(t *testing.T) {
	repository := host(t) + "/job"
	image := platformImage(t, "amd64", "a")
	ref := pushed(t, repository, image)
	subject, err := remote.Head(ref)
	if err != nil {
		t.Fatal(err)
	}
	made, err := Artifact(ArtifactOptions{Type: MediaTypeSPDX, Config: EmptyConfig, Layers: []Blob{{MediaType: MediaTypeSPDX, Content: []byte("{}\n")}},
		Subject: &v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest}})
	if err != nil {
		t.Fatal(err)
	}
	of := pushed(t, repository, made)
	referrers, err := remote.Referrers(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest.String() != of.DigestStr() {
		t.Errorf("the referrers are %+v", manifest.Manifests)
	}
	read, err := remote.Image(of)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err := read.Manifest(); err != nil || manifest.ArtifactType != MediaTypeSPDX {
		t.Errorf("its manifest is %+v, %v", manifest, err)
	}
	if content, err := Content(read, MediaTypeSPDX, 10); err != nil || string(content) != "{}\n" {
		t.Errorf("its content is %q, %v", content, err)
	}
	if _, err := Content(read, MediaTypeSPDX, 2); err == nil {
		t.Error("more than the limit is read")
	}
	if _, err := Content(read, "text/plain", 10); err == nil {
		t.Error("a layer that is not there is read")
	}
}

// TestGzip: two machines have other clocks.
func TestGzip(t *testing.T) {
	raw, err := Gzip([]byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "text" || !r.ModTime.IsZero() || r.Name != "" {
		t.Errorf("it holds %q of %s %q, %v", text, r.ModTime, r.Name, err)
	}
}

// TestAnImageWithOtherLayersIsAnother: mutate must not leave a digest of before.
func TestAnImageWithOtherLayersIsAnother(t *testing.T) {
	image := platformImage(t, "amd64", "a")
	layer, err := Layer(map[string]File{"more": {}})
	if err != nil {
		t.Fatal(err)
	}
	more, err := mutate.AppendLayers(image, layer)
	if err != nil {
		t.Fatal(err)
	}
	if digestOf(t, image) == digestOf(t, more) {
		t.Error("the digest does not depend on the layers")
	}
}
