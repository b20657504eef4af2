package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kyma-project/eventmesh-migration/build/digests"
	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// standIn is a small program of this repository, which tests build instead of all others.
const standIn = "overlay"

func init() { elsewhere[standIn] = "./build/overlay" }

// commit is where the versions of tests are from.
var commit = source{Revision: strings.Repeat("0123456789", 4), Date: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)}

// fixture is a version with all programs, each of them the stand-in, and the registry that it is
// for.
type fixture struct {
	dir   string
	about published
	key   *ecdsa.PrivateKey
	blobs string // what the registry stores
}

var made fixture

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "release-test-")
	if err != nil {
		log.Fatal(err)
	}
	stored := filepath.Join(dir, "registry")
	if err := os.Mkdir(stored, 0o755); err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.WithBlobHandler(registry.NewDiskBlobHandler(stored)), registry.Logger(log.New(io.Discard, "", 0))))
	made, err = makeFixture(dir, strings.TrimPrefix(server.URL, "http://")+"/eventing")
	made.blobs = stored
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	server.Close()
	if err := os.RemoveAll(dir); err != nil {
		log.Print(err)
	}
	os.Exit(code)
}

func makeFixture(dir, repository string) (fixture, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fixture{}, err
	}
	f := fixture{dir: filepath.Join(dir, "9.9.9"), key: key}
	raw, err := smallest(dir)
	if err != nil {
		return f, err
	}
	values, err := os.ReadFile("../../charts/eventing-manager/values.yaml")
	if err != nil {
		return f, err
	}
	wanted, err := imagesOf(values)
	if err != nil {
		return f, err
	}
	programs := append(append(sorted(wanted), "event-service", "trigger-sync"), tools...)
	staged := filepath.Join(dir, "staged")
	for _, p := range allPlatforms {
		for _, program := range programs {
			licences := filepath.Join(p.stage(staged), "licenses", program)
			if err := os.MkdirAll(licences, 0o755); err != nil {
				return f, err
			}
			if err := os.WriteFile(filepath.Join(licences, "LICENSE"), []byte("of "+program+"\n"), 0o644); err != nil {
				return f, err
			}
			if err := os.WriteFile(filepath.Join(p.stage(staged), p.file(program)), raw, 0o755); err != nil {
				return f, err
			}
		}
	}
	root, err := sources(dir)
	if err != nil {
		return f, err
	}
	o := options{Root: root, Version: "9.9.9", Repository: repository, Key: key, Charts: []string{"eventing-manager"}, Platforms: allPlatforms, Out: io.Discard}
	if err := assemble(context.Background(), o, commit, programs, staged, f.dir); err != nil {
		return f, err
	}
	if err := os.WriteFile(filepath.Join(f.dir, notesFile), []byte("# 9.9.9\n"), 0o644); err != nil {
		return f, err
	}
	if err := seal(f.dir, key); err != nil {
		return f, err
	}
	f.about, err = readAbout(filepath.Join(f.dir, aboutFile))
	return f, err
}

// sources copies what images, charts and the module are made of, and makes the module one of
// version 9.9.9.
func sources(dir string) (root string, err error) {
	root = filepath.Join(dir, "sources")
	for _, from := range []string{"module", "charts/eventing-manager"} {
		if err := os.CopyFS(filepath.Join(root, from), os.DirFS(filepath.Join("../..", from))); err != nil {
			return "", err
		}
	}
	files := map[string][]byte{"module/VERSION": []byte("9.9.9\n"), "module/channels.yaml": []byte("fast: 9.9.9\n")}
	dockerfiles, err := filepath.Glob("../../Dockerfile*")
	if err != nil {
		return "", err
	}
	for _, file := range dockerfiles {
		if files[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			return "", err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return "", err
		}
	}
	return root, nil
}

// smallest builds a program that does nothing, as if it were one of ours.
func smallest(dir string) ([]byte, error) {
	from := filepath.Join(dir, "program")
	if err := os.Mkdir(from, 0o755); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"go.mod": "module " + ours + "\n\ngo 1.26.0\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("go", "build", "-C", from, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", "job", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the program: %w: %s", err, out)
	}
	return os.ReadFile(filepath.Join(from, "job"))
}

// edit changes a file.
func edit(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, change(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// flip changes one byte.
func flip(content []byte) []byte {
	content = slices.Clone(content)
	content[len(content)/2] ^= 1
	return content
}

// blobOf returns the path of a blob below the folder of a version: the layer of a type, of what an
// entry of the layout names.
func blobOf(t *testing.T, dir, reference, mediaType string) string {
	t.Helper()
	index, all := layoutOf(t, dir)
	for _, entry := range all {
		if !strings.HasPrefix(entry.Annotations[refName], reference) {
			continue
		}
		digest := entry.Digest
		if entry.MediaType.IsIndex() {
			of, err := index.ImageIndex(digest)
			if err != nil {
				t.Fatal(err)
			}
			children, err := of.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			digest, index = children.Manifests[0].Digest, of
		}
		image, err := index.Image(digest)
		if err != nil {
			t.Fatal(err)
		}
		of, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		// The last one: of an image, it is the licences, which no other image has.
		for _, layer := range slices.Backward(of.Layers) {
			if mediaType == "" || string(layer.MediaType) == mediaType {
				return blobPath(layer.Digest)
			}
		}
	}
	t.Fatalf("the layout has no %s with a layer %s", reference, mediaType)
	return ""
}

func blobPath(digest v1.Hash) string { return blobsFolder + "/" + digest.Algorithm + "/" + digest.Hex }

// moduleReference is the artifact of the fixture's module.
const moduleReference = "component-descriptors/kyma-project.io/module/eventing:9.9.9"

// TestVerifyNamesWhatWasChanged changes one file of a version each.
func TestVerifyNamesWhatWasChanged(t *testing.T) {
	layer, chart := blobOf(t, made.dir, "trigger-sync:9.9.9", ""), blobOf(t, made.dir, "charts/eventing-manager:9.9.9", chartLayer)
	list := blobOf(t, made.dir, "trigger-sync@", artifact.MediaTypeSPDX)
	descriptor := blobOf(t, made.dir, moduleReference, "application/vnd.ocm.software.component-descriptor.v2+yaml+tar")
	for _, tc := range []struct {
		reason, file string
		change       func([]byte) []byte // nil: deletes it
		want         string
	}{
		{"an image", layer, flip, layer + ": its content is not that of trigger-sync:9.9.9 linux/amd64"},
		{"a list of modules", list, flip, list + ": its content is not that of trigger-sync@sha256:"},
		{"a chart in a registry", chart, flip, chart + ": its content is not that of charts/eventing-manager:9.9.9"},
		{"a part of an image is missing", layer, nil, layer + ": it is missing from trigger-sync:9.9.9 linux/amd64"},
		{"a chart", "eventing-manager-9.9.9.tgz", flip, "eventing-manager-9.9.9.tgz: its checksum is not that of SHA256SUMS"},
		{"a program", "eventmesh-migrate_9.9.9_linux_amd64.tar.gz", flip, "eventmesh-migrate_9.9.9_linux_amd64.tar.gz: its checksum"},
		{"a program for Windows", "eventmesh-migrate_9.9.9_windows_arm64.zip", flip, "eventmesh-migrate_9.9.9_windows_arm64.zip: its checksum"},
		{"a program's list of modules", "eventmesh-migrate_9.9.9_darwin_arm64.spdx.json", flip, "eventmesh-migrate_9.9.9_darwin_arm64.spdx.json: its checksum"},
		{"a program is missing", "eventmesh-migrate_9.9.9_linux_amd64.tar.gz", nil, "eventmesh-migrate_9.9.9_linux_amd64.tar.gz: it is missing"},
		{"the notes", "release-notes.txt", flip, "release-notes.txt: its checksum"},
		{"the references of images", "images.txt", flip, "images.txt: its checksum"},
		{"what the version consists of", "release.json", flip, "release.json: its checksum"},
		{"the manifest of the module", "eventing-manager.yaml", flip, "eventing-manager.yaml: its checksum"},
		{"the manifest in the module's folder", "dist/eventing-manager.yaml", flip, "dist/eventing-manager.yaml: its checksum"},
		{"the descriptor of the module", "dist/component-descriptor.yaml", flip, "dist/component-descriptor.yaml: its checksum"},
		{"a list of the module", "dist/sbom/nats-server.spdx.json", flip, "dist/sbom/nats-server.spdx.json: its checksum"},
		{"the ModuleTemplate is missing", "dist/moduletemplate-eventing-9.9.9.yaml", nil, "dist/moduletemplate-eventing-9.9.9.yaml: it is missing"},
		{"the descriptor in a registry", descriptor, flip, descriptor + ": its content is not that of component-descriptors/kyma-project.io/module/eventing:9.9.9"},
		{"the index of the layout", "oci/index.json", flip, "oci/index.json: its checksum"},
		{"the checksums", "SHA256SUMS", flip, "SHA256SUMS: its signature in SHA256SUMS.sig is not by this key"},
		{"the signature", "SHA256SUMS.sig", flip, "SHA256SUMS: its signature"},
		{"the signature is missing", "SHA256SUMS.sig", nil, "SHA256SUMS.sig: it cannot be read"},
		{"the checksums are missing", "SHA256SUMS", nil, "SHA256SUMS: it cannot be read"},
		{"a line less in the checksums", "SHA256SUMS", func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] }, "SHA256SUMS: its signature"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(made.dir)); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, filepath.FromSlash(tc.file))
			if tc.change == nil {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			} else {
				edit(t, file, tc.change)
			}
			err := verify(t.Context(), dir, &made.key.PublicKey, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Next: ") {
				t.Errorf("not named %q: %v", tc.want, err)
			}
		})
	}
	for _, file := range []string{"more.txt", blobsFolder + "/sha256/" + strings.Repeat("0", 64)} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(made.dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := verify(t.Context(), dir, &made.key.PublicKey, io.Discard); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("with a file more, %s: %v", file, err)
		}
	}
}

func TestVerify(t *testing.T) {
	var out bytes.Buffer
	if err := verify(t.Context(), made.dir, &made.key.PublicKey, &out); err != nil {
		t.Fatal(err)
	}
	if want := "OK: version 9.9.9, commit 0123456789, "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("it says %q", out.String())
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(t.Context(), made.dir, &other.PublicKey, io.Discard); err == nil || !strings.Contains(err.Error(), "compare the key") {
		t.Errorf("another key: %v", err)
	}
}

// TestVerifyOfAnotherSigner replaces what one who has no key can replace completely: the checksums
// of the folder are right, what is wrong is the signature or what is signed.
func TestVerifyOfAnotherSigner(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	entriesOf := func(t *testing.T, dir string) []v1.Descriptor {
		t.Helper()
		_, all := layoutOf(t, dir)
		return all
	}
	program := made.about.Images["trigger-sync"]
	signature := "trigger-sync:" + signatureTag(program)
	for _, tc := range []struct {
		reason string
		change func(t *testing.T, l *ociLayout)
		want   string
	}{
		{"an image is signed by another", func(t *testing.T, l *ociLayout) {
			remove(t, l, signature)
			hash, err := v1.NewHash(program)
			if err != nil {
				t.Fatal(err)
			}
			l.key = other
			if err := l.sign("trigger-sync", hash); err != nil {
				t.Fatal(err)
			}
		}, "trigger-sync:9.9.9: no signature by this key"},
		{"an image is not signed", func(t *testing.T, l *ociLayout) { remove(t, l, signature) }, "trigger-sync:9.9.9: no signature"},
		{"an image is another one of this version", func(t *testing.T, l *ociLayout) {
			for _, entry := range entriesOf(t, filepath.Dir(string(l.path))) {
				if entry.Annotations[refName] == "event-service:9.9.9" {
					remove(t, l, "trigger-sync:9.9.9")
					entry.Annotations[refName] = "trigger-sync:9.9.9"
					if err := l.path.AppendDescriptor(entry); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, "trigger-sync:9.9.9: it is " + made.about.Images["event-service"]},
		{"an image has no list of modules", func(t *testing.T, l *ociLayout) { remove(t, l, "trigger-sync@") }, "trigger-sync.spdx.json of trigger-sync:9.9.9 linux/amd64: there are 0 lists"},
		{"a list is that of another program", func(t *testing.T, l *ociLayout) {
			lists := slices.DeleteFunc(entriesOf(t, filepath.Dir(string(l.path))), func(d v1.Descriptor) bool { return !strings.HasPrefix(d.Annotations[refName], "trigger-sync@") })
			index, err := l.path.ImageIndex()
			if err != nil {
				t.Fatal(err)
			}
			list, err := index.Image(lists[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := list.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			remove(t, l, lists[0].Annotations[refName])
			other, err := artifact.Artifact(artifact.ArtifactOptions{Type: artifact.MediaTypeSPDX, Config: artifact.EmptyConfig, Subject: manifest.Subject,
				Layers: []artifact.Blob{{MediaType: artifact.MediaTypeSPDX, Content: []byte("{}\n")}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.add("trigger-sync", "", other); err != nil {
				t.Fatal(err)
			}
		}, "trigger-sync.spdx.json of trigger-sync:9.9.9 linux/amd64: it is not the list of the modules in the program"},
		{"what the version consists of is signed by another", func(t *testing.T, l *ociLayout) {
			for _, entry := range entriesOf(t, filepath.Dir(string(l.path))) {
				if entry.Annotations[refName] == "release:9.9.9" {
					remove(t, l, "release:"+signatureTag(entry.Digest.String()))
					l.key = other
					if err := l.sign(aboutName, entry.Digest); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, "release:9.9.9: no signature by this key"},
		{"a chart is missing", func(t *testing.T, l *ociLayout) { remove(t, l, "charts/eventing-manager:") }, "charts/eventing-manager:9.9.9: it is missing"},
		{"the module is not signed", func(t *testing.T, l *ociLayout) {
			remove(t, l, "component-descriptors/kyma-project.io/module/eventing:"+signatureTag(made.about.Modules["kyma-project.io/module/eventing"]))
		}, moduleReference + ": no signature"},
		{"the module is missing", func(t *testing.T, l *ociLayout) { remove(t, l, moduleReference) }, moduleReference + ": it is missing"},
		{"something more", func(t *testing.T, l *ociLayout) {
			made, err := artifact.Artifact(artifact.ArtifactOptions{Type: "text/plain", Config: artifact.EmptyConfig})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.add("more", ":9.9.9", made); err != nil {
				t.Fatal(err)
			}
		}, "more:9.9.9: it is no part of this version"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(made.dir)); err != nil {
				t.Fatal(err)
			}
			path, err := layout.FromPath(filepath.Join(dir, ociFolder))
			if err != nil {
				t.Fatal(err)
			}
			tc.change(t, &ociLayout{path: path, repository: made.about.Repository, key: made.key})
			v := &verifier{key: &made.key.PublicKey, again: "download it again"}
			v.layout(filepath.Join(dir, ociFolder), made.about)
			var all []string
			for _, err := range v.wrong {
				all = append(all, err.Error())
			}
			if !strings.Contains(strings.Join(all, "\n"), tc.want) {
				t.Errorf("not named %q: %q", tc.want, all)
			}
		})
	}
}

// TestVerifyOfImages: what is signed can still be wrong.
func TestVerifyOfImages(t *testing.T) {
	layer := func(names ...string) v1.Layer {
		files := map[string]artifact.File{}
		for _, name := range names {
			files[name] = artifact.File{Content: []byte(name), Executable: true}
		}
		layer, err := artifact.Layer(files)
		if err != nil {
			t.Fatal(err)
		}
		return layer
	}
	revision := map[string]string{"org.opencontainers.image.revision": commit.Revision}
	for _, tc := range []struct {
		reason  string
		options artifact.ImageOptions
		err     string
	}{
		{"as it should be", artifact.ImageOptions{User: "65532:65532", Entrypoint: []string{"/job"}, Labels: revision, Layers: []v1.Layer{layer("job", "licenses/LICENSE")}}, ""},
		{"root", artifact.ImageOptions{User: "0:0", Entrypoint: []string{"/job"}, Labels: revision, Layers: []v1.Layer{layer("job", "licenses/LICENSE")}}, `its user is "0:0"`},
		{"no entrypoint", artifact.ImageOptions{User: "65532:65532", Labels: revision, Layers: []v1.Layer{layer("job", "licenses/LICENSE")}}, "its entrypoint"},
		{"of another commit", artifact.ImageOptions{User: "65532:65532", Entrypoint: []string{"/job"}, Layers: []v1.Layer{layer("job", "licenses/LICENSE")}}, "its label says commit"},
		{"without its program", artifact.ImageOptions{User: "65532:65532", Entrypoint: []string{"/job"}, Labels: revision, Layers: []v1.Layer{layer("licenses/LICENSE")}}, "it has no /job"},
		{"without licences", artifact.ImageOptions{User: "65532:65532", Entrypoint: []string{"/job"}, Labels: revision, Layers: []v1.Layer{layer("job")}}, "it has no licences"},
	} {
		tc.options.Platform = allPlatforms[0].v1()
		image, err := artifact.Image(tc.options)
		if err != nil {
			t.Fatal(err)
		}
		program, err := (&verifier{}).contents(image, made.about)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || err == nil && string(program) != "job" {
			t.Errorf("%s: %q, %v", tc.reason, program, err)
		}
	}
}

// layoutOf reads an OCI layout of a version.
func layoutOf(t *testing.T, dir string) (v1.ImageIndex, []v1.Descriptor) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, ociFolder))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return index, manifest.Manifests
}

// entriesOfVersion are those of the version that the tests have made.
func entriesOfVersion(t *testing.T) *entries {
	t.Helper()
	index, all := layoutOf(t, made.dir)
	e := &entries{index: index, all: map[string]v1.Descriptor{}, seen: map[string]bool{}}
	for _, entry := range all {
		e.all[entry.Annotations[refName]] = entry
	}
	return e
}

// TestVerifyOfCharts: a chart that names another image than that of the version.
func TestVerifyOfCharts(t *testing.T) {
	e := entriesOfVersion(t)
	about := made.about
	about.Images = map[string]string{"nats-server": "sha256:" + strings.Repeat("0", 64)}
	v := &verifier{key: &made.key.PublicKey}
	v.chart(e, about, "eventing-manager")
	if err := errors.Join(v.wrong...); err == nil || !strings.Contains(err.Error(), "charts/eventing-manager:9.9.9: image.digests.nats-server is ") {
		t.Errorf("a chart with another image: %v", err)
	}
}

// TestVerifyOfTheModule: what is signed and complete can still be of another version.
func TestVerifyOfTheModule(t *testing.T) {
	v := &verifier{ctx: t.Context(), key: &made.key.PublicKey}
	v.bundle(made.dir, made.about)
	if len(v.wrong) > 0 {
		t.Fatal(errors.Join(v.wrong...))
	}
	other := made.about
	other.Images = maps.Clone(made.about.Images)
	other.Images["nats-server"] = "sha256:" + strings.Repeat("0", 64)
	wrong := func(reason, file string, change func(t *testing.T, dir string), about published, want string) {
		t.Run(reason, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(made.dir)); err != nil {
				t.Fatal(err)
			}
			if change != nil {
				change(t, dir)
			}
			v := &verifier{ctx: t.Context(), key: &made.key.PublicKey}
			v.bundle(dir, about)
			if err := errors.Join(v.wrong...); err == nil || !strings.Contains(err.Error(), file+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("not named %s, %q: %v", file, want, err)
			}
		})
	}
	replace := func(file, old, now string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, file), func(raw []byte) []byte {
				if !bytes.Contains(raw, []byte(old)) {
					t.Fatalf("%s has no %s", file, old)
				}
				return bytes.ReplaceAll(raw, []byte(old), []byte(now))
			})
		}
	}
	digest := made.about.Images["nats-server"]
	wrong("an image of another version", "dist/images.json", nil, other, "image nats-server is ")
	wrong("a manifest with another image", "dist/eventing-manager.yaml", replace("dist/eventing-manager.yaml", digest, other.Images["nats-server"]), made.about, "nats-server")
	wrong("a descriptor with another image", "dist/component-descriptor.yaml", replace("dist/component-descriptor.yaml", digest, other.Images["nats-server"]), made.about, "nats-server")
	wrong("a list without a module", "dist/sbom/eventing-manager.spdx.json", replace("dist/sbom/eventing-manager.spdx.json", ours, "example.com/other"), made.about, "")
	wrong("another manifest beside the folder", "eventing-manager.yaml", replace("eventing-manager.yaml", digest, other.Images["nats-server"]), made.about, "it is not dist/eventing-manager.yaml")
	about := made.about
	about.Modules = map[string]string{"kyma-project.io/module/eventing": digest}
	wrong("another artifact", "dist", nil, about, "its artifact would be "+made.about.Modules["kyma-project.io/module/eventing"])

	e := entriesOfVersion(t)
	v = &verifier{ctx: t.Context(), key: &made.key.PublicKey}
	v.component(e, other, "kyma-project.io/module/eventing")
	if err := errors.Join(v.wrong...); err == nil || !strings.Contains(err.Error(), moduleReference+": image nats-server is ") {
		t.Errorf("an artifact with another image: %v", err)
	}
}

// remove removes the entries of a layout whose reference begins so.
func remove(t *testing.T, l *ociLayout, reference string) {
	t.Helper()
	removed := 0
	if err := l.path.RemoveDescriptors(func(d v1.Descriptor) bool {
		found := strings.HasPrefix(d.Annotations[refName], reference)
		if found {
			removed++
		}
		return found
	}); err != nil || removed == 0 {
		t.Fatalf("%d entries removed: %v", removed, err)
	}
}

// TestPush pushes a version, twice, and verifies it from the registry alone; then the registry
// changes it.
func TestPush(t *testing.T) {
	for range 2 {
		if err := pushAll(t.Context(), made.dir, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	where := made.about.Repository + ":9.9.9"
	if err := verify(t.Context(), where, &made.key.PublicKey, io.Discard); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(made.about.Repository + "/trigger-sync@" + made.about.Images["trigger-sync"])
	if err != nil {
		t.Fatal(err)
	}
	// Others may sign it, too; then it can still be pushed again, and their signature stays.
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := artifact.Sign(t.Context(), ref, other); err != nil {
		t.Fatal(err)
	}
	if err := pushAll(t.Context(), made.dir, io.Discard); err != nil {
		t.Error(err)
	}
	for _, key := range []*ecdsa.PrivateKey{made.key, other} {
		if err := artifact.Verify(t.Context(), ref, &key.PublicKey); err != nil {
			t.Error(err)
		}
	}
	if err := verify(t.Context(), made.about.Repository+":9.9.8", &made.key.PublicKey, io.Discard); err == nil || !strings.Contains(err.Error(), "cannot find version 9.9.8") {
		t.Errorf("a version that was not pushed: %v", err)
	}

	layer := blobOf(t, made.dir, "trigger-sync:9.9.9", "")
	stored := filepath.Join(made.blobs, filepath.FromSlash(strings.TrimPrefix(layer, blobsFolder+"/")))
	edit(t, stored, flip)
	if err := verify(t.Context(), where, &made.key.PublicKey, io.Discard); err == nil || !strings.Contains(err.Error(), "/trigger-sync: ") {
		t.Errorf("a changed layer: %v", err)
	}
	edit(t, stored, flip)
	// A tag of another image.
	tag := ref.Tag("9.9.9")
	wrong, err := remote.Index(ref.Context().Registry.Repo("eventing", "event-service").Tag("9.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	right, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, wrong); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remote.WriteIndex(tag, right); err != nil {
			t.Error(err)
		}
	}()
	if err := verify(t.Context(), where, &made.key.PublicKey, io.Discard); err == nil || !strings.Contains(err.Error(), "/trigger-sync: the tag 9.9.9 is "+made.about.Images["event-service"]) {
		t.Errorf("a tag of another image: %v", err)
	}
	if err := pushAll(t.Context(), made.dir, io.Discard); err == nil || !strings.Contains(err.Error(), "Next: publish another version") {
		t.Errorf("what is published is replaced: %v", err)
	}
}

// TestTwoCopiesGiveTheSameImage builds one image from two copies of the sources, in two folders.
func TestTwoCopiesGiveTheSameImage(t *testing.T) {
	var digests []string
	for range 2 {
		root := copyOfSources(t)
		o := options{Root: root, Version: "9.9.9", Out: io.Discard}
		staged := t.TempDir()
		p := allPlatforms[0]
		if err := compile(t.Context(), o, p, []string{standIn}, staged); err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digestOfImage(t, root, p, standIn, staged, "9.9.9"))
		if len(digests) == 2 {
			digests = append(digests, digestOfImage(t, root, p, standIn, staged, "9.9.8"))
		}
	}
	if digests[0] != digests[1] || digests[1] == digests[2] {
		t.Errorf("two copies have the digests %s and %s; another version has %s", digests[0], digests[1], digests[2])
	}
}

func digestOfImage(t *testing.T, root string, p platform, program, staged, version string) string {
	t.Helper()
	recipe, err := recipeOf(root, program, map[string]string{"CMD": program, "VERSION": version, "REVISION": commit.Revision})
	if err != nil {
		t.Fatal(err)
	}
	roots, err := certificates()
	if err != nil {
		t.Fatal(err)
	}
	image, err := imageOf(layers{}, recipe, commit, p, program, p.stage(staged), roots)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// copyOfSources copies what is needed to build the stand-in.
func copyOfSources(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"build", "charts"} {
		if err := filepath.WalkDir(filepath.Join("../..", dir), func(file string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(file) != ".go" {
				return err
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			to := filepath.Join(root, strings.TrimPrefix(file, "../.."))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			return os.WriteFile(to, raw, 0o644)
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum", "LICENSE", "Dockerfile"} {
		raw, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDockerfiles(t *testing.T) {
	arguments := map[string]string{"CMD": "job", "VERSION": "9.9.9", "REVISION": "abc"}
	got, err := recipeOf("../..", "trigger-sync", arguments)
	if err != nil {
		t.Fatal(err)
	}
	want := []copied{{"ca-certificates.crt", "etc/ssl/certs/ca-certificates.crt"}, {"job", "job"}, {"licenses/job", "licenses"}}
	if diff := cmp.Diff(want, got.Copies); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got.User != "65532:65532" || got.Labels["org.opencontainers.image.title"] != "job" || got.Labels["org.opencontainers.image.version"] != "9.9.9" || got.Entrypoint[0] != "/job" {
		t.Errorf("the recipe is %+v", got)
	}
	if strings.Contains(got.Labels["org.opencontainers.image.description"], `"`) || !strings.Contains(got.Labels["org.opencontainers.image.description"], " ") {
		t.Errorf("the labels are %q", got.Labels)
	}
	if nats, err := recipeOf("../..", "nats-server", arguments); err != nil || nats.Entrypoint[0] != "/nats-server" {
		t.Errorf("nats-server: %+v, %v", nats, err)
	}
	const rest = "COPY bin/image/job /job\nUSER 1:1\nENTRYPOINT [\"/job\"]\n"
	for _, tc := range []struct{ reason, text, err string }{
		{"all that is needed", "FROM scratch\n" + rest, ""},
		{"a base image", "FROM debian\n" + rest, "only FROM scratch"},
		{"a command while it is built", "FROM scratch\nRUN true\n" + rest, "an unknown instruction"},
		{"a file from elsewhere", "FROM scratch\nCOPY /etc/passwd /etc/passwd\n" + rest, "only COPY bin/image"},
		{"an argument without a value", "FROM scratch\nLABEL a=\"${B}\"\n" + rest, "argument B"},
		{"root", "FROM scratch\nCOPY bin/image/job /job\nENTRYPOINT [\"/job\"]\n", "USER"},
	} {
		_, err := parse(tc.text, nil)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

func TestPlatforms(t *testing.T) {
	for _, tc := range []struct{ reason, list, want, err string }{
		{"all", "", fmt.Sprint(allPlatforms), ""},
		{"one", "linux/amd64", "[linux/amd64]", ""},
		{"two", "darwin/arm64,linux/amd64", "[darwin/arm64 linux/amd64]", ""},
		{"no images for the module", "darwin/arm64", "", "cannot build without linux/amd64"},
		{"an unknown one", "linux/amd64,plan9/amd64", "", `platform "plan9/amd64"`},
	} {
		got, err := platformsOf(tc.list)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || err == nil && fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %v, %v", tc.reason, got, err)
		}
	}
}

func TestCertificates(t *testing.T) {
	raw, err := certificates()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	if n < 100 {
		t.Errorf("there are only %d certificates", n)
	}
	if again, err := certificates(); err != nil || !bytes.Equal(raw, again) {
		t.Errorf("the second time, they are others: %v", err)
	}
}

func TestCheckVersion(t *testing.T) {
	for _, tc := range []struct {
		reason, version string
		valid           bool
	}{
		{"a version", "0.1.0", true},
		{"before a version", "1.0.0-rc1", true},
		{"with the v of the tag", "v0.1.0", false},
		{"two numbers", "0.1", false},
		{"a zero before", "0.01.0", false},
		{"what git describe says", "f6efd33", false},
		{"nothing", "", false},
		{"build metadata", "0.1.0+abc", false},
		{"a way out of the folder", "../0.1.0", false},
	} {
		if err := checkVersion(tc.version); (err == nil) != tc.valid {
			t.Errorf("%s: %q: %v", tc.reason, tc.version, err)
		}
	}
}

// TestCheck and the notes of a small repository.
func TestCheck(t *testing.T) {
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false"}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_COMMITTER_DATE=2026-11-23T10:00:00Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(reason string, want ...string) {
		t.Helper()
		_, err := check(t.Context(), root, "0.2.0")
		for _, w := range append(want, "Next: ") {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v", reason, err)
			}
		}
	}
	run("init", "-q", "-b", "main")
	if err := os.Mkdir(filepath.Join(root, "module"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("module/VERSION", "0.1.0\n")
	write("CHANGELOG.md", "# Changelog\n\n## [0.1.0] - 2026-01-01\n\nThe first.\n")
	run("add", ".")
	run("commit", "-q", "-m", "all: begin")
	run("tag", "v0.1.0")
	write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-23\n\n### Added\n\n- Much.\n\n## [0.1.0] - 2026-01-01\n\nThe first.\n")
	write("new", "")
	refused("nothing is ready", "tag v0.2.0 does not exist", "2 changed files, the first is CHANGELOG.md")
	refused("the module is still the former one", `module/VERSION is "0.1.0", not 0.2.0`)
	write("module/VERSION", "0.2.0\n")
	run("add", "CHANGELOG.md", "module")
	run("commit", "-q", "-m", "pkg/engine: finish a rollback")
	run("tag", "-a", "v0.2.0", "-m", "v0.2.0")
	refused("a file that git does not know", "1 changed files, the first is new")
	run("add", ".")
	run("commit", "-q", "-m", "docs, charts: say it: twice")
	refused("the tag is of another commit", "tag v0.2.0 is commit")
	run("tag", "-f", "-a", "v0.2.0", "-m", "v0.2.0")
	got, err := check(t.Context(), root, "0.2.0")
	if err != nil || len(got.Revision) != 40 || got.Date.Format(time.RFC3339) != "2026-11-23T10:00:00Z" {
		t.Errorf("what is ready: %+v, %v", got, err)
	}
	text, err := notes(t.Context(), root, "0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# 0.2.0\n\n### Added\n\n- Much.\n\n## Commits since v0.1.0\n", "### docs\n\n- say it: twice (", "### pkg/engine\n\n- finish a rollback ("} {
		if !strings.Contains(text, want) {
			t.Errorf("the notes lack %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "begin") {
		t.Errorf("the notes have commits of the version before:\n%s", text)
	}
	write("CHANGELOG.md", "# Changelog\n\n## [0.2.0] - 2026-11-23\n\n## [0.1.0] - 2026-01-01\n\nThe first.\n")
	refused("nothing in the changelog", "CHANGELOG.md has no text below")
}

func TestGrouped(t *testing.T) {
	log := "aaaaaaaaaaaa pkg/engine: do it\nbbbbbbbbbbbb without a folder\ncccccccccccc docs, charts: two\ndddddddddddd pkg/engine: more: of it\n"
	want := "### docs\n\n- two (cccccccccc)\n\n### other\n\n- without a folder (bbbbbbbbbb)\n\n### pkg/engine\n\n- do it (aaaaaaaaaa)\n- more: of it (dddddddddd)\n\n"
	if diff := cmp.Diff(want, grouped(log)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// TestImagesFileIsForOverlays: make overlay DIGESTS=images.txt reads it.
func TestImagesFileIsForOverlays(t *testing.T) {
	got, err := digests.Read(filepath.Join(made.dir, "images.txt"), made.about.Repository)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made.about.Images, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

// TestCharts: each image has its digest, and the rest of the values stays as it is.
func TestCharts(t *testing.T) {
	programs, err := programsOf("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, program := range programs {
		all[program] = sum([]byte(program))
	}
	for _, chart := range chartNames {
		packaged, err := packageChart(options{Root: "../..", Version: "9.9.9", Repository: "example.com"}, chart, all)
		if err != nil {
			t.Fatal(err)
		}
		files, err := untar(packaged.archive)
		if err != nil {
			t.Fatal(err)
		}
		if about := string(files[chart+"/Chart.yaml"]); !strings.Contains(about, "\nversion: \"9.9.9\"\nappVersion: \"9.9.9\"\n") {
			t.Errorf("%s is %s", chart, about)
		}
		before, err := os.ReadFile(filepath.Join("../..", "charts", chart, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		was, is := strings.Split(string(before), "\n"), strings.Split(string(files[chart+"/values.yaml"]), "\n")
		wanted, err := imagesOf(before)
		if err != nil || len(was) != len(is) {
			t.Fatalf("%s: %d lines became %d, %v", chart, len(was), len(is), err)
		}
		changed := 0
		for i := range was {
			if was[i] != is[i] {
				changed++
			}
		}
		if changed != len(wanted)+1 {
			t.Errorf("%s: %d lines of the values changed, not one for each of %d images and one for the repository", chart, changed, len(wanted))
		}
		for name := range files {
			if strings.HasSuffix(name, ".go") {
				t.Errorf("%s has %s", chart, name)
			}
		}
	}
	for _, tc := range []struct{ reason, values, err string }{
		{"an image that is not built", "image:\n  repository: a\n  digests:\n    other: \"\"\n", "no such image"},
		{"no images", "image:\n  repository: a\n", "is empty"},
		{"no repository", "image:\n  digests:\n    job: \"\"\n", "image.repository"},
		{"a line of another form", "image:\n  repository: a\n  digests: {job: \"\"}\n", "not in one line"},
		{"as it should be", "image:\n  repository: a\n  digests:\n    job: \"\"\n", ""},
	} {
		_, err := pinned([]byte(tc.values), "example.com", map[string]string{"job": "sha256:" + strings.Repeat("0", 64)})
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	public, err := artifact.PublicKeyPEM(&made.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "release.pub")
	if err := os.WriteFile(key, public, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"no command", nil, "name a command"},
		{"an unknown one", []string{"publish"}, `"publish" is no command`},
		{"an unknown flag", []string{"build", "-x"}, "-x"},
		{"no key", []string{"build", "-version", "0.1.0"}, "openssl genpkey"},
		{"no folder", []string{"verify", "-key", key}, "verify needs 1 argument"},
		{"no public key", []string{"verify", made.dir}, "name it with -key"},
		{"a folder that is not there", []string{"verify", "-key", key, "./none/"}, "neither a folder nor a repository"},
		{"what is valid", []string{"verify", "-key", key, made.dir}, ""},
		{"the certificates", []string{"certificates"}, ""},
	} {
		err := run(t.Context(), tc.args, io.Discard)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}
