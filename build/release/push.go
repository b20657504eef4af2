package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
)

// remoteOptions has the credentials of docker login.
func remoteOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// pushAll pushes all that the layout of a folder has, in its order: release.json is the last, so
// that a version that can be found is complete. It can be repeated. A tag that has another content
// already is an error: what was published does not change.
func pushAll(ctx context.Context, dir string, out io.Writer) error {
	about, err := readAbout(filepath.Join(dir, aboutFile))
	if err != nil {
		return err
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, ociFolder))
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", filepath.Join(dir, ociFolder), err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, entry := range manifest.Manifests {
		ref, err := name.ParseReference(about.Repository + "/" + entry.Annotations[refName])
		if err != nil {
			return fmt.Errorf("cannot push %s: %w", entry.Digest, err)
		}
		there, err := has(ctx, ref, index, entry)
		if err != nil {
			return err
		}
		if !there {
			if err := pushOne(ctx, index, entry, ref); err != nil {
				return fmt.Errorf("cannot push %s: %w", ref, err)
			}
		}
		if !strings.HasSuffix(ref.Identifier(), ".sig") {
			fmt.Fprintln(out, ref)
		}
	}
	return nil
}

// has says whether a registry has an entry already.
func has(ctx context.Context, ref name.Reference, index v1.ImageIndex, entry v1.Descriptor) (bool, error) {
	got, err := remote.Get(ref, remoteOptions(ctx)...)
	var status *transport.Error
	if errors.As(err, &status) && status.StatusCode == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read %s: %w", ref, err)
	}
	if got.Digest == entry.Digest || strings.HasSuffix(ref.Identifier(), ".sig") && signedToo(got, index, entry) {
		return true, nil
	}
	return false, fmt.Errorf("cannot push %s: the registry has other content, %s. Next: publish another version", ref, got.Digest)
}

// signedToo says whether signatures in a registry have ours among them: others may sign what we
// have published.
func signedToo(got *remote.Descriptor, index v1.ImageIndex, entry v1.Descriptor) bool {
	theirs, err := v1.ParseManifest(bytes.NewReader(got.Manifest))
	if err != nil {
		return false
	}
	image, err := index.Image(entry.Digest)
	if err != nil {
		return false
	}
	manifest, err := image.Manifest()
	if err != nil {
		return false
	}
	for _, signature := range manifest.Layers {
		if !slices.ContainsFunc(theirs.Layers, func(l v1.Descriptor) bool {
			return l.Digest == signature.Digest && maps.Equal(l.Annotations, signature.Annotations)
		}) {
			return false
		}
	}
	return true
}

func pushOne(ctx context.Context, index v1.ImageIndex, entry v1.Descriptor, ref name.Reference) error {
	if entry.MediaType.IsIndex() {
		of, err := index.ImageIndex(entry.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, of, remoteOptions(ctx)...)
	}
	of, err := index.Image(entry.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, of, remoteOptions(ctx)...)
}

func readAbout(file string) (published, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return published{}, fmt.Errorf("cannot read %s: %w", file, err)
	}
	return parseAbout(raw)
}

func parseAbout(raw []byte) (published, error) {
	var about published
	if err := json.Unmarshal(raw, &about); err != nil {
		return published{}, fmt.Errorf("cannot read %s: %w", aboutFile, err)
	}
	if about.Version == "" || about.Repository == "" || len(about.Platforms) == 0 || len(about.Images) == 0 || len(about.Modules) == 0 {
		return published{}, fmt.Errorf("cannot use %s: no version, no repository, no platforms, no images or no module", aboutFile)
	}
	return about, nil
}

// pull copies what a registry has of a version into a layout, and returns its release.json. What is
// missing is left out; the checks of the layout find it. What cannot be read is passed to failed.
func pull(ctx context.Context, ref name.Tag, dir string, failed func(what string, err error)) (published, error) {
	l, err := newLayout(dir, ref.Context().Name(), nil)
	if err != nil {
		return published{}, err
	}
	p := &puller{ctx: ctx, path: l.path, failed: failed}
	tag := ref.TagStr()
	image, err := remote.Image(ref.Context().Registry.Repo(ref.Context().RepositoryStr(), aboutName).Tag(tag), remoteOptions(ctx)...)
	if err != nil {
		return published{}, fmt.Errorf("cannot find version %s in %s: %w", tag, ref.Context(), err)
	}
	raw, err := contentOf(image, aboutType)
	if err != nil {
		return published{}, err
	}
	about, err := parseAbout(raw)
	if err != nil {
		return published{}, err
	}
	digest, err := image.Digest()
	if err != nil {
		return published{}, err
	}
	repository := func(what string) name.Repository {
		return ref.Context().Registry.Repo(ref.Context().RepositoryStr(), what)
	}
	p.copy(repository(aboutName), aboutName, tag, digest.String())
	for _, program := range sorted(about.Images) {
		for _, platform := range p.copy(repository(program), program, tag, about.Images[program]) {
			p.signature(repository(program), program, platform)
			p.lists(repository(program), program, platform)
		}
	}
	for _, chart := range sorted(about.Charts) {
		p.copy(repository(chartRepository(chart)), chartRepository(chart), tag, about.Charts[chart])
	}
	for _, component := range sorted(about.Modules) {
		p.copy(repository(bundle.Repository(component)), bundle.Repository(component), tag, about.Modules[component])
	}
	return about, nil
}

type puller struct {
	ctx    context.Context
	path   layout.Path
	failed func(what string, err error)
}

// copy copies what a tag stands for, if it is the digest, with its signature. It returns the
// digests of the images of an index.
func (p *puller) copy(from name.Repository, what, tag, digest string) (platforms []string) {
	got, err := remote.Get(from.Tag(tag), remoteOptions(p.ctx)...)
	if err == nil && got.Digest.String() != digest {
		err = fmt.Errorf("the tag %s is %s, not %s", tag, got.Digest, digest)
	}
	if err != nil {
		p.failed(what, err)
		return nil
	}
	p.append(got, what, ":"+tag)
	p.signature(from, what, digest)
	if !got.MediaType.IsIndex() {
		return nil
	}
	index, err := got.ImageIndex()
	if err != nil {
		p.failed(what, err)
		return nil
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		p.failed(what, err)
		return nil
	}
	for _, image := range manifest.Manifests {
		platforms = append(platforms, image.Digest.String())
	}
	return platforms
}

func (p *puller) append(got *remote.Descriptor, what, reference string) {
	named := layout.WithAnnotations(map[string]string{refName: what + reference})
	var err error
	if got.MediaType.IsIndex() {
		var index v1.ImageIndex
		if index, err = got.ImageIndex(); err == nil {
			err = p.path.AppendIndex(index, named)
		}
	} else {
		var image v1.Image
		if image, err = got.Image(); err == nil {
			err = p.path.AppendImage(image, named)
		}
	}
	if err != nil {
		p.failed(what, err)
	}
}

// signature copies the signatures of a digest, if there are some.
func (p *puller) signature(from name.Repository, what, digest string) {
	tag := signatureTag(digest)
	got, err := remote.Get(from.Tag(tag), remoteOptions(p.ctx)...)
	if err == nil {
		p.append(got, what, ":"+tag)
	}
}

// lists copies the SBOMs of an image.
func (p *puller) lists(from name.Repository, what, digest string) {
	index, err := remote.Referrers(from.Digest(digest), remoteOptions(p.ctx)...)
	if err != nil {
		p.failed(what, err)
		return
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		p.failed(what, err)
		return
	}
	for _, referrer := range manifest.Manifests {
		got, err := remote.Get(from.Digest(referrer.Digest.String()), remoteOptions(p.ctx)...)
		if err != nil {
			p.failed(what, err)
			continue
		}
		p.append(got, what, "@"+referrer.Digest.String())
		p.signature(from, what, referrer.Digest.String())
	}
}

func signatureTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

func sorted(of map[string]string) []string {
	return slices.Sorted(maps.Keys(of))
}
