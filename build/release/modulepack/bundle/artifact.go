package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// The media types of a component version in an OCI registry.
const (
	mediaTypeConfig     = "application/vnd.ocm.software.component.config.v1+json"
	mediaTypeDescriptor = "application/vnd.ocm.software.component-descriptor.v2+yaml+tar"
	mediaTypeTar        = "application/x-tar"
	mediaTypeText       = "text/plain"
	annotationArtifact  = "software.ocm.artifact"
	annotationVersion   = "software.ocm.componentversion"
)

// descriptorResource is what the layer with the descriptor is called here; its annotation does not
// name it.
const descriptorResource = "component-descriptor"

// localBlob is a resource that is in the artifact itself.
type localBlob struct{ name, typ, mediaType, file string }

func localBlobs(module, version string) []localBlob {
	return []localBlob{
		{manifestResource, "directoryTree", mediaTypeTar, manifestTar},
		{defaultCRResource, "directoryTree", mediaTypeTar, defaultCRTar},
		{templateResource, "PlainText", mediaTypeText, templateFile(module, version)},
	}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// identity reads the name and the version of the component.
func (f Files) identity() (*descriptor, error) {
	d := &descriptor{}
	if err := yaml.UnmarshalStrict(f[descriptorFile], d); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", descriptorFile, err)
	}
	if !componentPattern.MatchString(d.Component.Name) || !versionPattern.MatchString(d.Component.Version) {
		return nil, fmt.Errorf("cannot use %s: it has no name or no version of a component", descriptorFile)
	}
	return d, nil
}

// Artifact is the component version as a registry stores it: the descriptor, the manifest, the
// default object and the ModuleTemplate. The descriptor says which registry that is,
// "registry.example/path", so an artifact has another digest in another registry.
func (f Files) Artifact(registry string) (v1.Image, error) {
	d, err := f.identity()
	if err != nil {
		return nil, err
	}
	raw := f[descriptorFile]
	if at := contexts(strings.TrimSuffix(registry, "/")); !slices.Equal(d.Component.RepositoryContexts, at) {
		d.Component.RepositoryContexts = at
		raw = toYAML(d)
	}
	tar, err := tarOf(descriptorFile, raw)
	if err != nil {
		return nil, err
	}
	config := map[string]any{"componentDescriptorLayer": map[string]any{"mediaType": mediaTypeDescriptor, "digest": digestOf(tar), "size": len(tar)}}
	layers := []artifact.Blob{{MediaType: mediaTypeDescriptor, Content: tar}}
	for _, b := range localBlobs(moduleOf(d.Component.Name), d.Component.Version) {
		identity := fmt.Sprintf(`[{"kind":"resource","identity":{"name":%q}}]`, b.name)
		layers = append(layers, artifact.Blob{MediaType: b.mediaType, Content: f[b.file], Annotations: map[string]string{annotationArtifact: identity}})
	}
	return artifact.Artifact(artifact.ArtifactOptions{
		Config: artifact.Blob{MediaType: mediaTypeConfig, Content: toJSON(config)}, Layers: layers,
		Annotations: map[string]string{annotationVersion: d.Component.Name + ":" + d.Component.Version},
	})
}

func moduleOf(component string) string { return component[strings.LastIndex(component, "/")+1:] }

// Repository is where the artifacts of a component are, below a registry.
func Repository(component string) string { return "component-descriptors/" + component }

// Reference is where the artifact is in a registry:
// "<registry>/component-descriptors/<component>:<version>".
func Reference(registry, component, version string) (name.Tag, error) {
	return name.NewTag(strings.TrimSuffix(registry, "/")+"/"+Repository(component)+":"+version, name.StrictValidation)
}

// reference is that of a bundle, with the digest that its artifact has.
func (f Files) reference(registry string) (name.Tag, name.Digest, error) {
	d, err := f.identity()
	if err != nil {
		return name.Tag{}, name.Digest{}, err
	}
	tag, err := Reference(registry, d.Component.Name, d.Component.Version)
	if err != nil {
		return name.Tag{}, name.Digest{}, fmt.Errorf("cannot use the registry %q: %w", registry, err)
	}
	image, err := f.Artifact(registry)
	if err != nil {
		return name.Tag{}, name.Digest{}, err
	}
	digest, err := image.Digest()
	return tag, tag.Digest(digest.String()), err
}

// ErrPushed is part of the error for a version that was pushed with another content.
var ErrPushed = errors.New("this version was pushed with another content")

// Push pushes the artifact of a bundle to a registry, and returns its reference by digest. A
// version that was pushed with another content is refused: raise the version. Pushing the same
// content twice changes nothing.
func (f Files) Push(ctx context.Context, registry string, options ...remote.Option) (name.Digest, error) {
	options = append(options, remote.WithContext(ctx))
	tag, digest, err := f.reference(registry)
	if err != nil {
		return digest, err
	}
	switch there, err := remote.Head(tag, options...); {
	case absent(err):
	case err != nil:
		return digest, fmt.Errorf("cannot read %s: %w", tag, err)
	case there.Digest.String() != digest.DigestStr():
		return digest, fmt.Errorf("cannot push %s: %w, %s; raise %s/VERSION", tag, ErrPushed, there.Digest, sourceDir)
	default:
		return digest, nil
	}
	image, err := f.Artifact(registry)
	if err != nil {
		return digest, err
	}
	if err := remote.Write(tag, image, options...); err != nil {
		return digest, fmt.Errorf("cannot push %s: %w", tag, err)
	}
	return digest, nil
}

// Record is what a repository stores of a bundle that was pushed, for module/releases/<version>.
func (f Files) Record(registry, digest string) Files {
	record := Files{"release.yaml": toYAML(Release{Registry: strings.TrimSuffix(registry, "/"), Artifact: digest})}
	for name, content := range f {
		if lock, ok := strings.CutPrefix(name, lockDir); ok {
			record[lock] = content
		}
	}
	return record
}

// Sign signs the artifact and the images of a bundle, which have to be in the registry, in cosign's
// format. It returns what was signed.
func (f Files) Sign(ctx context.Context, registry string, sign func(context.Context, name.Digest) error) ([]name.Digest, error) {
	all, err := f.published(registry)
	if err != nil {
		return nil, err
	}
	for i, ref := range all {
		if err := sign(ctx, ref); err != nil {
			return all[:i], err
		}
	}
	return all, nil
}

// published are the references of the artifact and of the images.
func (f Files) published(registry string) ([]name.Digest, error) {
	_, digest, err := f.reference(registry)
	if err != nil {
		return nil, err
	}
	all := []name.Digest{digest}
	list := imageList{}
	if err := yaml.UnmarshalStrict(f[imagesFile], &list); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", imagesFile, err)
	}
	for _, i := range list.Images {
		ref, err := name.NewDigest(i.Reference, name.StrictValidation)
		if err != nil {
			return nil, fmt.Errorf("cannot use the reference of image %s: %w", i.Name, err)
		}
		all = append(all, ref)
	}
	return all, nil
}

// Pull reads the resources of a component version from a registry, by the names that the descriptor
// has: "raw-manifest" is the archive with manifest.yaml. It checks each digest.
func Pull(ctx context.Context, ref name.Reference, options ...remote.Option) (map[string][]byte, error) {
	image, err := remote.Image(ref, append(options, remote.WithContext(ctx))...)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", ref, err)
	}
	all, err := resources(image)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", ref, err)
	}
	return all, nil
}

// resources are the layers of an artifact, by the names that the descriptor has. The descriptor is
// "component-descriptor".
func resources(image v1.Image) (map[string][]byte, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, l := range manifest.Layers {
		var as []struct {
			Identity struct{ Name string } `json:"identity"`
		}
		key := descriptorResource
		if text := l.Annotations[annotationArtifact]; text != "" {
			if err := yaml.Unmarshal([]byte(text), &as); err != nil || len(as) != 1 {
				return nil, fmt.Errorf("layer %s has the annotation %q", l.Digest, text)
			}
			key = as[0].Identity.Name
		}
		layer, err := image.LayerByDigest(l.Digest)
		if err != nil {
			return nil, err
		}
		if all[key], err = readAll(layer); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return all, nil
}

// readAll reads a layer as it is stored. A registry's client checks the digest while it reads.
func readAll(layer v1.Layer) ([]byte, error) {
	r, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(r, mostFile))
	return content, errors.Join(err, r.Close())
}

func absent(err error) bool {
	var status *transport.Error
	return errors.As(err, &status) && status.StatusCode == http.StatusNotFound
}

// imagePattern is an image as manifests name it: "<repository>/<program>:<tag>@<digest>".
var imagePattern = regexp.MustCompile(`[a-z0-9][a-z0-9.:/_-]*/[a-z0-9-]+:[\w.-]+@sha256:[\da-f]{64}`)

// ArtifactImages are the references of the images that an artifact names, in its descriptor and in
// its manifest, sorted. The error says that the artifact is not complete, or that a layer is not
// the one of the descriptor.
func ArtifactImages(image v1.Image) ([]string, error) {
	all, err := resources(image)
	if err != nil {
		return nil, err
	}
	read := func(resource, file string) ([]byte, error) {
		raw, err := untar(all[resource], file)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s in %s: %w", file, resource, err)
		}
		return raw, nil
	}
	raw, err := read(descriptorResource, descriptorFile)
	if err != nil {
		return nil, err
	}
	d, err := Files{descriptorFile: raw}.identity()
	if err != nil {
		return nil, err
	}
	manifest, err := read(manifestResource, "manifest.yaml")
	if err != nil {
		return nil, err
	}
	found := imagePattern.FindAllString(string(manifest), -1)
	if len(d.Component.RepositoryContexts) == 0 {
		return nil, fmt.Errorf("%s has no repositoryContexts: lifecycle-manager takes no layer of it", descriptorFile)
	}
	local := map[string]bool{}
	for _, r := range d.Component.Resources {
		switch {
		case r.Access == nil:
			return nil, fmt.Errorf("%s: %s has no access", descriptorFile, r.Name)
		case r.Access.ImageReference != "":
			found = append(found, r.Access.ImageReference)
		case r.Access.LocalReference != digestOf(all[r.Name]):
			return nil, fmt.Errorf("%s has another digest than in %s, %s", r.Name, descriptorFile, r.Access.LocalReference)
		}
		local[r.Name] = r.Access.LocalReference != ""
	}
	for _, b := range localBlobs(moduleOf(d.Component.Name), d.Component.Version) {
		if !local[b.name] {
			return nil, fmt.Errorf("%s has no %s", descriptorFile, b.name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// untar returns one file of an archive.
func untar(raw []byte, file string) ([]byte, error) {
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if err != nil {
			return nil, err
		}
		if h.Name == file {
			return io.ReadAll(r)
		}
	}
}

// Images are the references of a bundle's images, by program.
func (f Files) Images() (map[string]string, error) {
	list := imageList{}
	if err := yaml.UnmarshalStrict(f[imagesFile], &list); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", imagesFile, err)
	}
	all := map[string]string{}
	for _, i := range list.Images {
		all[i.Name] = i.Reference
	}
	return all, nil
}
