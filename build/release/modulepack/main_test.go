package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// site is a copy of what modulepack reads, with a registry.
type site struct {
	t                      *testing.T
	root, layout, registry string
	programs               []string
	// spoil is the digest of a blob that the registry answers with another byte.
	spoil atomic.Pointer[string]
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, root: t.TempDir()}
	for _, dir := range []string{"module", "charts/eventing-manager"} {
		s.check(os.CopyFS(filepath.Join(s.root, dir), os.DirFS(filepath.Join("../../..", dir))))
	}
	of, err := bundle.ReadSource(os.DirFS(s.root))
	s.check(err)
	s.programs, err = of.Programs()
	s.check(err)
	s.layout = filepath.Join(s.root, "layout")
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if spoil := s.spoil.Load(); spoil != nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, *spoil) {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, r)
			body := recorder.Body.Bytes()
			body[len(body)/2] ^= 1
			_, _ = w.Write(body)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.registry = strings.TrimPrefix(server.URL, "http://") + "/eventing"
	return s
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// run runs a command with -source, and compares the exit code.
func (s *site) run(want int, verb string, args ...string) string {
	s.t.Helper()
	var out, errs bytes.Buffer
	if got := run(s.t.Context(), append([]string{verb, "-source", s.root}, args...), &out, &errs); got != want {
		s.t.Fatalf("%s %q: exit code %d, want %d\n%s%s", verb, args, got, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

func (s *site) file(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

func (s *site) read(name string) string {
	s.t.Helper()
	raw, err := os.ReadFile(s.file(name))
	s.check(err)
	return string(raw)
}

func (s *site) replace(name, old, by string) {
	s.t.Helper()
	text := s.read(name)
	if !strings.Contains(text, old) {
		s.t.Fatalf("%s does not have %q:\n%s", name, old, text)
	}
	s.check(os.WriteFile(s.file(name), []byte(strings.Replace(text, old, by, 1)), 0o644))
}

// build builds a small program, once for each image.
func (s *site) build() {
	s.t.Helper()
	dir := s.t.TempDir()
	s.check(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/small\n"), 0o644))
	s.check(os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644))
	into := filepath.Join(s.root, "programs")
	for i, program := range s.programs {
		at := filepath.Join(into, program)
		if i > 0 {
			s.check(os.Link(filepath.Join(into, s.programs[0]), at))
			continue
		}
		cmd := exec.CommandContext(s.t.Context(), "go", "build", "-trimpath", "-o", at, ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("%v\n%s", err, out)
		}
	}
	s.images()
}

// images packs the programs, one of them as a release does: for two platforms, with entries for
// signatures and SBOMs beside it.
func (s *site) images() {
	s.t.Helper()
	s.run(0, "images", "-programs", s.file("programs"), "-images", s.layout, "-commit", commit)
	into, err := layout.FromPath(s.layout)
	s.check(err)
	index, err := into.ImageIndex()
	s.check(err)
	tag := "nats-server:" + strings.TrimSpace(s.read("module/VERSION"))
	named := match.Name(tag)
	found, err := partial.FindImages(index, named)
	s.check(err)
	layers, err := found[0].Layers()
	s.check(err)
	arm, err := artifact.Image(artifact.ImageOptions{Platform: v1.Platform{OS: "linux", Architecture: "arm64"}, Layers: layers, Labels: map[string]string{"for": "arm64"}})
	s.check(err)
	both, err := artifact.Index([]v1.Image{arm, found[0]}, nil)
	s.check(err)
	s.check(into.ReplaceIndex(both, named, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})))
	for _, beside := range []string{"nats-server:sha256-0.sig", "nats-server@sha256:0"} {
		s.check(into.AppendImage(arm, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": beside})))
	}
}

// pushImages pushes the images of the layout.
func (s *site) pushImages() {
	s.t.Helper()
	index, err := layout.ImageIndexFromPath(s.layout)
	s.check(err)
	manifest, err := index.IndexManifest()
	s.check(err)
	for _, d := range manifest.Manifests {
		ref, err := name.ParseReference(s.registry + "/" + d.Annotations["org.opencontainers.image.ref.name"])
		if err != nil {
			continue // an entry beside the images
		}
		if d.MediaType.IsIndex() {
			both, err := index.ImageIndex(d.Digest)
			s.check(err)
			s.check(remote.WriteIndex(ref, both))
			continue
		}
		image, err := index.Image(d.Digest)
		s.check(err)
		s.check(remote.Write(ref, image))
	}
}

// key writes a key pair, and returns the files.
func (s *site) key(name string) (private, public string) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.check(err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	s.check(err)
	of, err := artifact.PublicKeyPEM(&key.PublicKey)
	s.check(err)
	private, public = s.file(name+".key"), s.file(name+".pub")
	s.check(os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	s.check(os.WriteFile(public, of, 0o644))
	return private, public
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// TestPublish: a module is packed, verified, pushed, signed, pulled and promoted, with a real
// registry's protocol.
func TestPublish(t *testing.T) {
	s := newSite(t)
	s.build()
	version := strings.TrimSpace(s.read("module/VERSION"))
	render := func() bundle.Files {
		s.run(0, "render", "-images", s.layout, "-repository", s.registry)
		files, err := bundle.ReadFiles(s.file("dist/" + strings.TrimSpace(s.read("module/VERSION"))))
		s.check(err)
		return files
	}
	files := render()
	if diff := cmp.Diff(files, render()); diff != "" {
		t.Errorf("a second rendering is another one (-first +second):\n%s", diff)
	}
	contains(t, s.run(0, "verify", "-images", s.layout, "-before", s.file("module/channels.yaml")), "nothing is wrong")

	// Before anything is pushed, all of it is missing.
	contains(t, s.run(1, "verify", "-registry", s.registry), "component-descriptor.yaml at component.version", "make module-push", "images.json at images[eventing/eventing-manager]", "images.json at images[eventing/nats-server]")
	s.pushImages()
	ref := strings.TrimSpace(s.run(0, "push", "-registry", s.registry, "-record"))
	if again := strings.TrimSpace(s.run(0, "push", "-registry", s.registry)); again != ref {
		t.Errorf("pushed as %s, then as %s", ref, again)
	}
	contains(t, s.run(0, "verify", "-registry", s.registry, "-images", "-", "-repository", s.registry), "nothing is wrong")
	_, pushed, _ := strings.Cut(ref, "@")
	contains(t, s.read("module/releases/"+version+"/release.yaml"), "artifact: "+pushed)
	if got := s.read("module/releases/" + version + "/eventings.v1alpha1.json"); got != string(files["crd-lock/eventings.v1alpha1.json"]) {
		t.Error("the recorded lock is another one")
	}

	// What is pulled by digest is what was packed.
	digest, err := name.NewDigest(ref)
	s.check(err)
	pulled, err := bundle.Pull(t.Context(), digest)
	s.check(err)
	want := map[string][]byte{
		"raw-manifest": files["raw-manifest.tar"], "default-cr": files["default-cr.tar"], "moduletemplate": files["moduletemplate-eventing-"+version+".yaml"],
		"component-descriptor": pulled["component-descriptor"],
	}
	if diff := cmp.Diff(want, pulled); diff != "" {
		t.Errorf("pulled (-packed +pulled):\n%s", diff)
	}
	if !bytes.Contains(pulled["component-descriptor"], files["component-descriptor.yaml"]) {
		t.Error("the descriptor of the artifact is another one")
	}
	s.layers(digest)

	private, public := s.key("release")
	_, other := s.key("other")
	unsigned := s.run(1, "verify", "-registry", s.registry, "-key", public)
	contains(t, unsigned, "no signature; sign it", "component-descriptor.yaml at component is", "images.json at images[eventing/nats-server]")
	contains(t, s.run(0, "sign", "-registry", s.registry, "-key", private), "signed "+ref)
	contains(t, s.run(0, "verify", "-registry", s.registry, "-key", public), "nothing is wrong")
	contains(t, s.run(1, "verify", "-registry", s.registry, "-key", other), "no signature by this key", "nats-server", "component-descriptors")

	s.documented(public, files)

	// One other byte in the registry.
	for _, resource := range []string{"raw-manifest.tar", "default-cr.tar"} {
		spoil := digestOf(files[resource])
		s.spoil.Store(&spoil)
		contains(t, s.run(1, "verify", "-registry", s.registry), "component-descriptor.yaml at component", "another content")
	}
	s.spoil.Store(nil)

	// A version is pushed once.
	s.replace("module/cr/eventing-default-cr.yaml", "type: NATS", "type: EventMesh")
	render()
	contains(t, s.run(1, "push", "-registry", s.registry), "pushed with another content", "raise module/VERSION")
	contains(t, s.run(1, "verify", "-registry", s.registry), "component-descriptor.yaml at component.version", "raise module/VERSION")

	// The next version goes to one channel, and then to another.
	s.check(os.WriteFile(s.file("module/VERSION"), []byte("9.0.0\n"), 0o644))
	s.replace("module/channels.yaml", "fast: "+version, "fast: 9.0.0")
	before := s.read("module/channels.yaml")
	s.check(os.WriteFile(s.file("before.yaml"), []byte(before), 0o644))
	s.images()
	s.pushImages()
	contains(t, string(render()["module-release-meta.yaml"]), "channel: fast\n    version: 9.0.0", "channel: regular\n    version: "+version)
	s.run(0, "push", "-registry", s.registry, "-record")
	s.run(0, "verify", "-registry", s.registry, "-before", s.file("before.yaml"))
	s.run(0, "promote", "fast", "regular")
	if diff := cmp.Diff(strings.Replace(before, "regular: "+version, "regular: 9.0.0", 1), s.read("module/channels.yaml")); diff != "" {
		t.Errorf("channels (-want +got):\n%s", diff)
	}
	contains(t, s.read("dist/9.0.0/module-release-meta.yaml"), "channel: regular\n    version: 9.0.0")
	contains(t, s.run(0, "verify", "-before", s.file("before.yaml")), "nothing is wrong")

	// A release that somebody replaced in the registry.
	s.replace("module/releases/"+version+"/release.yaml", "sha256:", "sha256:0")
	contains(t, s.run(1, "verify", "-registry", s.registry), "module-release-meta.yaml at spec.channels", "do not use this registry")
	s.replace("module/channels.yaml", "fast: 9.0.0", "fast: 8.0.0")
	contains(t, s.run(1, "verify"), "module/channels.yaml has [fast 8.0.0 regular 9.0.0")
	render()
	contains(t, s.run(1, "verify", "-registry", s.registry), `"8.0.0"`, "not released", "cannot be read from")
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// documented runs the commands of docs/eventing/module.md, and looks up the files that it names.
func (s *site) documented(public string, files bundle.Files) {
	s.t.Helper()
	raw, err := os.ReadFile("../../../docs/eventing/module.md")
	s.check(err)
	commands, applied := 0, 0
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if _, file, ok := strings.Cut(line, " -f "); ok && strings.HasPrefix(line, "kubectl ") {
			applied++
			if files[file] == nil {
				s.t.Errorf("docs/eventing/module.md applies %s, which no bundle has", file)
			}
		}
		command, ok := strings.CutPrefix(line, "go -C build/release run ./modulepack ")
		if !ok {
			continue
		}
		commands++
		args := strings.Fields(strings.NewReplacer("registry.example/modules", s.registry, "public.pem", public).Replace(command))
		s.run(0, args[0], args[1:]...)
	}
	if commands < 2 || applied < 3 {
		s.t.Errorf("docs/eventing/module.md has %d commands and %d files", commands, applied)
	}
}

// layers compares the shape of the artifact with what lifecycle-manager and OCM's tools read.
func (s *site) layers(ref name.Digest) {
	s.t.Helper()
	image, err := remote.Image(ref)
	s.check(err)
	manifest, err := image.Manifest()
	s.check(err)
	got := []string{string(manifest.Config.MediaType)}
	for _, l := range manifest.Layers {
		got = append(got, string(l.MediaType)+" "+l.Annotations["software.ocm.artifact"])
	}
	want := []string{
		"application/vnd.ocm.software.component.config.v1+json",
		"application/vnd.ocm.software.component-descriptor.v2+yaml+tar ",
		`application/x-tar [{"kind":"resource","identity":{"name":"raw-manifest"}}]`,
		`application/x-tar [{"kind":"resource","identity":{"name":"default-cr"}}]`,
		`text/plain [{"kind":"resource","identity":{"name":"moduletemplate"}}]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("layers (-want +got):\n%s", diff)
	}
	if got := manifest.Annotations["software.ocm.componentversion"]; !strings.HasPrefix(got, "kyma-project.io/module/eventing:") {
		s.t.Errorf("component %q", got)
	}
	config, err := image.RawConfigFile()
	s.check(err)
	contains(s.t, string(config), `"componentDescriptorLayer"`, manifest.Layers[0].Digest.String())
}

// TestCommandLine: what is typed wrongly is told with the exit code 2, what fails with 1.
func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		code   int
		want   string
	}{
		{reason: "nothing", code: 2, want: "usage: go -C build/release run ./modulepack"},
		{reason: "help", args: []string{"render", "-h"}, want: "-images"},
		{reason: "an unknown command", args: []string{"pack"}, code: 2, want: "usage: go -C build/release run ./modulepack"},
		{reason: "an unknown flag", args: []string{"render", "-x"}, code: 2, want: "-x"},
		{reason: "an argument too many", args: []string{"render", "x"}, code: 2, want: `"x" is no flag`},
		{reason: "no images", args: []string{"render"}, code: 2, want: "-images"},
		{reason: "no registry", args: []string{"push"}, code: 2, want: "-registry"},
		{reason: "no key", args: []string{"sign", "-registry", "x"}, code: 2, want: "-key"},
		{reason: "a key without a registry", args: []string{"verify", "-key", "x"}, code: 2, want: "-registry"},
		{reason: "one channel", args: []string{"promote", "fast"}, code: 2, want: "two channels"},
		{reason: "no commit", args: []string{"images", "-programs", "x", "-images", "y", "-commit", "unknown"}, code: 2, want: "-commit"},
		{reason: "no repository", args: []string{"verify", "-source", "/does-not-exist"}, code: 1, want: "VERSION"},
		{reason: "no bundle", args: []string{"verify", "-source", "../../..", "-bundle", "/does-not-exist"}, code: 1, want: "/does-not-exist"},
		{reason: "no layout", args: []string{"render", "-source", "../../..", "-images", "/does-not-exist"}, code: 1, want: "/does-not-exist"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var out bytes.Buffer
			if code := run(context.WithoutCancel(t.Context()), tc.args, &out, &out); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			contains(t, out.String(), tc.want)
		})
	}
}
