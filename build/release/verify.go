package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// mostContent is how many bytes of a list, a chart or release.json are read.
const mostContent = 64 << 20

func contentOf(image v1.Image, mediaType string) ([]byte, error) {
	return artifact.Content(image, mediaType, mostContent)
}

// verifier collects what is wrong with a version.
type verifier struct {
	ctx   context.Context
	key   *ecdsa.PublicKey
	again string // what to do about a file that is not the published one
	wrong []error
}

// found notes what is wrong with a file.
func (v *verifier) found(file, problem string, next ...string) {
	v.wrong = append(v.wrong, fmt.Errorf("%s: %s. Next: %s", file, problem, cmp.Or(strings.Join(next, ""), v.again)))
}

// verify checks a folder, or <registry/path>:<version>, and names each file that is not the
// published one.
func verify(ctx context.Context, what string, key *ecdsa.PublicKey, out io.Writer) error {
	v := &verifier{ctx: ctx, key: key}
	var about published
	if info, err := os.Stat(what); err == nil && info.IsDir() {
		v.again = "download it again into " + what
		about = v.folder(what)
	} else {
		ref, err := name.NewTag(what, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("%s is neither a folder nor a repository with a version, such as registry.example/path:0.1.0: %w", what, errUsage)
		}
		v.again = "do not use it, and tell those who run " + ref.RegistryStr()
		if about, err = v.registry(ctx, ref); err != nil {
			return err
		}
	}
	if len(v.wrong) > 0 {
		return fmt.Errorf("%w\nFAILED: %d problems in %s", errors.Join(v.wrong...), len(v.wrong), what)
	}
	fmt.Fprintf(out, "OK: version %s, commit %.10s, %s, %d platforms, %d images, %d charts, %d modules\n",
		about.Version, about.Revision, about.Go, len(about.Platforms), len(about.Images), len(about.Charts), len(about.Modules))
	return nil
}

func (v *verifier) registry(ctx context.Context, ref name.Tag) (about published, err error) {
	dir, err := os.MkdirTemp("", "eventmesh-release-")
	if err != nil {
		return published{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	about, err = pull(ctx, ref, dir, func(what string, err error) {
		v.found(ref.Context().Name()+"/"+what, err.Error())
	})
	if err != nil {
		return published{}, err
	}
	if about.Version != ref.TagStr() {
		v.found(aboutFile, fmt.Sprintf("it is of version %s, not %s", about.Version, ref.TagStr()))
	}
	if len(v.wrong) == 0 {
		v.layout(dir, about)
	}
	return about, nil
}

// folder checks a folder: checksums first, then what they cannot show.
func (v *verifier) folder(dir string) published {
	sums := v.sums(dir)
	raw, err := os.ReadFile(filepath.Join(dir, aboutFile))
	if err != nil {
		v.found(aboutFile, "it cannot be read")
		return published{}
	}
	about, err := parseAbout(raw)
	if err != nil {
		v.found(aboutFile, err.Error())
		return about
	}
	v.blobs(dir)
	if len(v.wrong) > 0 {
		return about // what follows would only repeat it
	}
	for _, p := range about.Platforms {
		for _, program := range tools {
			v.tool(dir, about, program, p)
		}
	}
	for _, chart := range sorted(about.Charts) {
		if _, ok := sums[chartFile(chart, about.Version)]; !ok {
			v.found(chartFile(chart, about.Version), "it is missing")
		}
	}
	v.bundle(dir, about)
	v.layout(filepath.Join(dir, ociFolder), about)
	return about
}

// sums checks SHA256SUMS, its signature, and each file. It returns the sums by file.
func (v *verifier) sums(dir string) map[string]string {
	sums := map[string]string{}
	raw, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		v.found(sumsFile, "it cannot be read")
		return sums
	}
	signature, err := os.ReadFile(filepath.Join(dir, signatureFile))
	if err != nil {
		v.found(signatureFile, "it cannot be read")
	} else if artifact.VerifyBlob(raw, signature, v.key) != nil {
		v.found(sumsFile, "its signature in "+signatureFile+" is not by this key", "download both again, and compare the key with that of the project")
	}
	for line := range strings.Lines(string(raw)) {
		digest, file, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || !filepath.IsLocal(file) {
			v.found(sumsFile, fmt.Sprintf("the line %q is no checksum", strings.TrimSpace(line)))
			continue
		}
		sums[file] = "sha256:" + digest
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
		switch {
		case errors.Is(err, os.ErrNotExist):
			v.found(file, "it is missing")
		case err != nil:
			v.found(file, err.Error())
		case sum(content) != sums[file]:
			v.found(file, "its checksum is not that of "+sumsFile)
		}
	}
	names, err := filesIn(os.DirFS(dir))
	if err != nil {
		v.found(dir, err.Error())
	}
	for _, file := range names {
		if _, ok := sums[file]; !ok && summed(file) {
			v.found(file, "it is not in "+sumsFile, "delete it")
		}
	}
	return sums
}

// tool checks that the archive of a command line has a program, and that the list beside it is
// that of this program.
func (v *verifier) tool(dir string, about published, name string, p platform) {
	file := archiveName(name, about.Version, p)
	list, err := os.ReadFile(filepath.Join(dir, file+".spdx.json"))
	if err != nil {
		v.found(file+".spdx.json", "it cannot be read")
		return
	}
	packed, open := archiveFile(name, about.Version, p), untar
	if p.OS == "windows" {
		open = unzip
	}
	raw, err := os.ReadFile(filepath.Join(dir, packed))
	if err != nil {
		v.found(packed, "it cannot be read")
		return
	}
	files, err := open(raw)
	if err != nil {
		v.found(packed, err.Error())
		return
	}
	program := files[p.file(name)]
	if modules, err := modulesOf(program, about.Version, sum(program), about.Created); err != nil {
		v.found(packed, err.Error())
	} else if !bytes.Equal(modules, list) {
		v.found(file+".spdx.json", "it is not the list of the modules in "+packed)
	}
	if len(files["LICENSE"]) == 0 {
		v.found(packed, "it has no LICENSE")
	}
}

// blobs checks that the name of each blob is the digest of its content, and names what it is a part
// of.
func (v *verifier) blobs(dir string) {
	owners := ownersOf(filepath.Join(dir, ociFolder))
	names, err := filesIn(os.DirFS(filepath.Join(dir, filepath.FromSlash(blobsFolder))))
	if err != nil {
		v.found(blobsFolder, err.Error())
		return
	}
	for _, file := range names {
		digest := strings.Replace(file, "/", ":", 1)
		owner, ok := owners[digest]
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(blobsFolder), filepath.FromSlash(file)))
		switch full := path.Join(blobsFolder, file); {
		case err != nil:
			v.found(full, err.Error())
		case !ok:
			v.found(full, "it is a part of nothing", "delete it")
		case sum(content) != digest:
			v.found(full, "its content is not that of "+owner)
		}
		delete(owners, digest)
	}
	for _, digest := range sorted(owners) {
		v.found(path.Join(blobsFolder, strings.Replace(digest, ":", "/", 1)), "it is missing from "+owners[digest])
	}
}

// ownersOf returns what each blob of a layout is a part of, as far as its manifests can be read.
func ownersOf(dir string) map[string]string {
	type descriptor struct {
		MediaType, Digest string
		Annotations       map[string]string
		Platform          *v1.Platform
	}
	owners := map[string]string{}
	own := func(digest, owner string) {
		if owners[digest] == "" { // the first one; others may share it
			owners[digest] = owner
		}
	}
	var walk func(file, owner string)
	walk = func(file, owner string) {
		raw, err := os.ReadFile(file)
		var node struct {
			Manifests, Layers []descriptor
			Config            *descriptor
		}
		if err != nil || json.Unmarshal(raw, &node) != nil {
			return
		}
		for _, m := range node.Manifests {
			label := strings.TrimSpace(owner + " " + m.Annotations[refName])
			if m.Platform != nil {
				label += " " + m.Platform.String()
			}
			own(m.Digest, label)
			walk(filepath.Join(dir, "blobs", filepath.FromSlash(strings.Replace(m.Digest, ":", "/", 1))), label)
		}
		for _, l := range node.Layers {
			own(l.Digest, strings.TrimSpace(owner+" "+l.Annotations["org.opencontainers.image.title"]))
		}
		if node.Config != nil {
			own(node.Config.Digest, owner)
		}
	}
	walk(filepath.Join(dir, "index.json"), "")
	return owners
}

// entries is a layout that is checked.
type entries struct {
	index v1.ImageIndex
	all   map[string]v1.Descriptor
	seen  map[string]bool
}

// layout checks what is published in registries: digests, signatures, SBOMs, and the
// images in charts.
func (v *verifier) layout(dir string, about published) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		v.found(dir, err.Error())
		return
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		v.found(dir, err.Error())
		return
	}
	e := &entries{index: index, all: map[string]v1.Descriptor{}, seen: map[string]bool{}}
	for _, entry := range manifest.Manifests {
		reference := entry.Annotations[refName]
		if _, ok := e.all[reference]; ok {
			v.found(reference, "it is there twice")
		}
		e.all[reference] = entry
	}
	// All else is compared with it.
	if !v.about(e, about) {
		return
	}
	for _, program := range sorted(about.Images) {
		v.image(e, about, program)
	}
	for _, chart := range sorted(about.Charts) {
		v.chart(e, about, chart)
	}
	for _, component := range sorted(about.Modules) {
		v.component(e, about, component)
	}
	for _, entry := range manifest.Manifests {
		if reference := entry.Annotations[refName]; !e.seen[reference] {
			v.found(reference, "it is no part of this version")
		}
	}
}

// entry finds what has a reference, and checks its digest and its signature.
func (v *verifier) entry(e *entries, what, tag, digest string) (v1.Descriptor, bool) {
	reference := what + ":" + tag
	e.seen[reference] = true
	entry, ok := e.all[reference]
	if !ok {
		v.found(reference, "it is missing")
		return entry, false
	}
	if entry.Digest.String() != digest {
		v.found(reference, fmt.Sprintf("it is %s, not %s as in %s", entry.Digest, digest, aboutFile))
		return entry, false
	}
	return entry, v.signed(e, what, reference, digest)
}

// signed checks the signature of a digest.
func (v *verifier) signed(e *entries, what, file, digest string) bool {
	reference := what + ":" + signatureTag(digest)
	e.seen[reference] = true
	err := artifact.ErrUnsigned
	if entry, ok := e.all[reference]; ok {
		var signatures v1.Image
		if signatures, err = e.index.Image(entry.Digest); err == nil {
			err = artifact.VerifySignature(signatures, digest, v.key)
		}
	}
	if err != nil {
		v.found(file, err.Error())
	}
	return err == nil
}

// image checks the image of a program: each platform, its user, and its SBOM.
func (v *verifier) image(e *entries, about published, program string) {
	reference := program + ":" + about.Version
	entry, ok := v.entry(e, program, about.Version, about.Images[program])
	if !ok {
		return
	}
	index, err := e.index.ImageIndex(entry.Digest)
	if err != nil {
		v.found(reference, err.Error())
		return
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		v.found(reference, err.Error())
		return
	}
	if want := len(withLinux(about.Platforms)); len(manifest.Manifests) != want {
		v.found(reference, fmt.Sprintf("it has %d images, not one for each of %d platforms", len(manifest.Manifests), want))
	}
	for _, child := range manifest.Manifests {
		if child.Platform == nil {
			v.found(reference, "it has an image without a platform")
			continue
		}
		label := reference + " " + child.Platform.String()
		if !v.signed(e, program, label, child.Digest.String()) {
			continue
		}
		image, err := index.Image(child.Digest)
		if err != nil {
			v.found(label, err.Error())
			continue
		}
		binary, err := v.contents(image, about)
		if err != nil {
			v.found(label, err.Error())
			continue
		}
		v.list(e, about, program, label, child.Digest.String(), binary)
	}
}

// contents checks what is in an image, and returns its program.
func (v *verifier) contents(image v1.Image, about published) (program []byte, err error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	c := config.Config
	switch {
	case c.User != "65532:65532":
		return nil, fmt.Errorf("its user is %q, not 65532:65532", c.User)
	case len(c.Entrypoint) != 1:
		return nil, fmt.Errorf("its entrypoint is %q, not one program", c.Entrypoint)
	case c.Labels["org.opencontainers.image.revision"] != about.Revision:
		return nil, fmt.Errorf("its label says commit %q, not %s", c.Labels["org.opencontainers.image.revision"], about.Revision)
	}
	r := mutate.Extract(image)
	defer r.Close()
	licences := 0
	for files := tar.NewReader(r); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if "/"+header.Name == c.Entrypoint[0] {
			if program, err = io.ReadAll(files); err != nil {
				return nil, err
			}
		}
		if strings.HasPrefix(header.Name, "licenses/") && header.Typeflag == tar.TypeReg {
			licences++
		}
	}
	switch {
	case program == nil:
		return nil, fmt.Errorf("it has no %s", c.Entrypoint[0])
	case licences == 0:
		return nil, errors.New("it has no licences")
	}
	return program, nil
}

// list finds the SBOM of an image, and compares it with its program.
func (v *verifier) list(e *entries, about published, program, label, digest string, binary []byte) {
	want, err := modulesOf(binary, about.Version, digest, about.Created)
	if err != nil {
		v.found(label, err.Error())
		return
	}
	lists := 0
	for reference, entry := range e.all {
		if !strings.HasPrefix(reference, program+"@") {
			continue
		}
		image, err := e.index.Image(entry.Digest)
		if err != nil {
			v.found(reference, err.Error())
			continue
		}
		manifest, err := image.Manifest()
		if err != nil || manifest.ArtifactType != artifact.MediaTypeSPDX || manifest.Subject == nil || manifest.Subject.Digest.String() != digest {
			continue
		}
		lists++
		e.seen[reference] = true
		if !v.signed(e, program, program+".spdx.json of "+label, entry.Digest.String()) {
			continue
		}
		if got, err := contentOf(image, artifact.MediaTypeSPDX); err != nil {
			v.found(program+".spdx.json of "+label, err.Error())
		} else if !bytes.Equal(got, want) {
			v.found(program+".spdx.json of "+label, "it is not the list of the modules in the program")
		}
	}
	if lists != 1 {
		v.found(program+".spdx.json of "+label, fmt.Sprintf("there are %d lists of modules, not one", lists))
	}
}

// chart checks a chart in a registry: each image that it names is one of the version.
func (v *verifier) chart(e *entries, about published, chart string) {
	entry, ok := v.entry(e, chartRepository(chart), about.Version, about.Charts[chart])
	if !ok {
		return
	}
	file := chartRepository(chart) + ":" + about.Version
	image, err := e.index.Image(entry.Digest)
	if err != nil {
		v.found(file, err.Error())
		return
	}
	archive, err := contentOf(image, chartLayer)
	if err != nil {
		v.found(file, err.Error())
		return
	}
	named, err := chartImages(archive, chart)
	if err != nil {
		v.found(file, err.Error())
		return
	}
	for _, program := range sorted(named) {
		if named[program] != about.Images[program] {
			v.found(file, fmt.Sprintf("image.digests.%s is %q, not %s", program, named[program], about.Images[program]))
		}
	}
}

// about checks that release.json in a registry is signed, and is the one that the rest is compared
// with.
func (v *verifier) about(e *entries, about published) bool {
	reference := aboutName + ":" + about.Version
	if _, ok := v.entry(e, aboutName, about.Version, e.all[reference].Digest.String()); !ok {
		return false
	}
	got, err := e.published(reference)
	if err != nil {
		v.found(reference, err.Error())
		return false
	}
	is, err := json.Marshal(got)
	want, wantErr := json.Marshal(about)
	if err := errors.Join(err, wantErr); err != nil || !bytes.Equal(is, want) {
		v.found(reference, "it is not "+aboutFile)
		return false
	}
	return true
}

// published reads release.json from a layout.
func (e *entries) published(reference string) (published, error) {
	image, err := e.index.Image(e.all[reference].Digest)
	if err != nil {
		return published{}, err
	}
	raw, err := contentOf(image, aboutType)
	if err != nil {
		return published{}, err
	}
	return parseAbout(raw)
}

// untar returns the files of a compressed archive.
func untar(raw []byte) (map[string][]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// unzip returns the files of a zip file.
func unzip(raw []byte) (map[string][]byte, error) {
	r, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, f := range r.File {
		opened, err := f.Open()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(opened)
		if err := cmp.Or(err, opened.Close()); err != nil {
			return nil, err
		}
		files[f.Name] = content
	}
	return files, nil
}
