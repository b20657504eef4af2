package bundle

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// VerifyPushed returns what is wrong with a registry: the artifact of the bundle and its images
// have to be there, signed if verify is not nil, and so has each version that a channel has. The
// error says that the bundle itself cannot be read.
func VerifyPushed(ctx context.Context, files Files, against Against, registry string, verify func(context.Context, name.Digest) error, options ...remote.Option) ([]Finding, error) {
	options = append(options, remote.WithContext(ctx))
	v := &verifier{files: files, against: against}
	tag, want, err := files.reference(registry)
	if err != nil {
		return nil, err
	}
	switch there, err := remote.Head(tag, options...); {
	case absent(err):
		v.report(descriptorFile, "component.version", tag.TagStr(), "%s is not in the registry; push it with make module-push", tag)
	case err != nil:
		v.report(descriptorFile, "component.version", tag.TagStr(), "cannot read %s: %v; retry", tag, err)
	case there.Digest.String() != want.DigestStr():
		v.report(descriptorFile, "component.version", tag.TagStr(), "the registry has %s and the bundle is %s; raise %s/VERSION", there.Digest, want.DigestStr(), sourceDir)
	default:
		v.layers(ctx, want, options)
	}
	v.channels(registry, options)
	all, err := files.published(registry)
	if err != nil {
		return v.findings, err
	}
	for i, ref := range all {
		file, path := imagesFile, "images["+ref.Context().RepositoryStr()+"]"
		if i == 0 {
			file, path = descriptorFile, "component"
		}
		if _, err := remote.Head(ref, options...); err != nil {
			if i > 0 { // the artifact was reported above
				v.report(file, path, ref.String(), "the registry does not have it; push the images first")
			}
			continue
		}
		if verify == nil {
			continue
		}
		switch err := verify(ctx, ref); {
		case errors.Is(err, artifact.ErrUnsigned):
			v.report(file, path, ref.String(), "it has no signature; sign it with modulepack sign")
		case errors.Is(err, artifact.ErrSignature):
			v.report(file, path, ref.String(), "it has no signature by this key; somebody else pushed it, or the key is another one")
		case err != nil:
			v.report(file, path, ref.String(), "%v", err)
		}
	}
	return v.findings, nil
}

// layers reads what was pushed, which compares the digest of each layer.
func (v *verifier) layers(ctx context.Context, ref name.Digest, options []remote.Option) {
	if _, err := Pull(ctx, ref, options...); err != nil {
		v.report(descriptorFile, "component", ref.String(), "the registry has another content: %v; push it to another registry", err)
	}
}

// channels checks that what a channel has can be pulled, with the digest that was recorded.
func (v *verifier) channels(registry string, options []remote.Option) {
	v.config = parse[Config](v, configFile)
	v.meta = parse[releaseMeta](v, releaseMetaFile)
	if v.config == nil || v.meta == nil {
		return
	}
	var done []string
	for _, ch := range v.meta.Spec.Channels {
		if ch.Version == v.config.Version || slices.Contains(done, ch.Version) {
			continue
		}
		done = append(done, ch.Version)
		tag, err := Reference(registry, v.config.Name, ch.Version)
		if err != nil {
			continue // reported by Verify, as a name or a version that cannot be
		}
		there, err := remote.Head(tag, options...)
		if err != nil {
			v.report(releaseMetaFile, "spec.channels", ch.Version, "channel %s has a version whose artifact cannot be read from %s; push that version", ch.Channel, tag)
			continue
		}
		if r, ok := v.against.Released[ch.Version]; ok && r.Registry == strings.TrimSuffix(registry, "/") && r.Artifact != there.Digest.String() {
			v.report(releaseMetaFile, "spec.channels", ch.Version, "%s is %s, and %s was released; do not use this registry", tag, there.Digest, r.Artifact)
		}
	}
}
