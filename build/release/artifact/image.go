package artifact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// ImageOptions describes an image without a base.
type ImageOptions struct {
	// Platform has at least the operating system and the architecture, such as linux and arm64.
	Platform v1.Platform
	// Layers are the files of the image, the lowest layer first.
	Layers []v1.Layer
	// Entrypoint is the command, its path first.
	Entrypoint []string
	// User is the number of the user and of the group: "65532:65532".
	User string
	// Labels are those of the image; the manifest has the same as annotations.
	Labels map[string]string
	// Created is the time that the image shows. For equal bytes, use the date of the commit.
	Created time.Time
}

// Image returns an OCI image for one platform.
func Image(o ImageOptions) (v1.Image, error) {
	if o.Platform.OS == "" || o.Platform.Architecture == "" {
		return nil, fmt.Errorf("cannot make an image for the platform %q: it needs os/architecture", o.Platform.String())
	}
	created := v1.Time{Time: o.Created.UTC().Truncate(time.Second)}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: o.Platform.OS, Architecture: o.Platform.Architecture, Variant: o.Platform.Variant, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: o.Entrypoint, User: o.User, Labels: o.Labels},
	})
	if err != nil {
		return nil, err
	}
	for _, layer := range o.Layers {
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created}})
		if err != nil {
			return nil, err
		}
	}
	annotated, ok := mutate.Annotations(image, o.Labels).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("cannot annotate the image for %s", o.Platform.String())
	}
	return annotated, nil
}

// Index returns an OCI index of images for several platforms. The images are sorted by their
// platform.
func Index(images []v1.Image, annotations map[string]string) (v1.ImageIndex, error) {
	var entries []mutate.IndexAddendum
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		entries = append(entries, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	slices.SortFunc(entries, func(a, b mutate.IndexAddendum) int { return cmp.Compare(a.Platform.String(), b.Platform.String()) })
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), entries...)
	if len(annotations) == 0 {
		return index, nil
	}
	annotated, ok := mutate.Annotations(index, annotations).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("cannot annotate the index")
	}
	return annotated, nil
}

// Blob is one part of an artifact that is no image: its content as it is stored, compressed or not.
type Blob struct {
	MediaType   string
	Content     []byte
	Annotations map[string]string
}

// EmptyConfig is the configuration of an artifact that needs none (OCI 1.1).
var EmptyConfig = Blob{MediaType: "application/vnd.oci.empty.v1+json", Content: []byte("{}")}

// ArtifactOptions describes an artifact that is no image: a chart, an SBOM, a component
// descriptor.
type ArtifactOptions struct {
	// Type is the artifactType of the manifest. It may be empty if Config says what it is.
	Type        string
	Config      Blob
	Layers      []Blob
	Annotations map[string]string
	// Subject is what the artifact is about: registries then name the artifact among its referrers.
	Subject *v1.Descriptor
}

// Artifact returns an OCI artifact. It can be pushed like an image, by remote.Write.
func Artifact(o ArtifactOptions) (v1.Image, error) {
	a := &artifact{blobs: map[v1.Hash]v1.Layer{}, config: o.Config.Content}
	config, err := a.add(o.Config)
	if err != nil {
		return nil, err
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{},
		Annotations: o.Annotations, Subject: o.Subject, ArtifactType: o.Type}
	for _, blob := range o.Layers {
		layer, err := a.add(blob)
		if err != nil {
			return nil, err
		}
		manifest.Layers = append(manifest.Layers, layer)
	}
	if a.manifest, err = json.Marshal(manifest); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(a)
}

// artifact is what partial completes to an image.
type artifact struct {
	manifest, config []byte
	blobs            map[v1.Hash]v1.Layer
}

func (a *artifact) add(blob Blob) (v1.Descriptor, error) {
	hash, size, err := v1.SHA256(bytes.NewReader(blob.Content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	a.blobs[hash] = static.NewLayer(blob.Content, types.MediaType(blob.MediaType))
	return v1.Descriptor{MediaType: types.MediaType(blob.MediaType), Size: size, Digest: hash, Annotations: blob.Annotations}, nil
}

func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a *artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a *artifact) RawConfigFile() ([]byte, error)      { return a.config, nil }
func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	layer, ok := a.blobs[digest]
	if !ok {
		return nil, fmt.Errorf("cannot find the blob %s: not a part of this artifact", digest)
	}
	return layer, nil
}

// Content returns the content of the first layer of a media type, uncompressed only if it was
// stored so. It fails on more than most bytes.
func Content(image v1.Image, mediaType string, most int64) ([]byte, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	for _, layer := range manifest.Layers {
		if string(layer.MediaType) == mediaType {
			return contentOf(image, layer, most)
		}
	}
	return nil, fmt.Errorf("cannot find a layer of type %s", mediaType)
}

func contentOf(image v1.Image, descriptor v1.Descriptor, most int64) ([]byte, error) {
	if descriptor.Size > most {
		return nil, fmt.Errorf("cannot read %s: %d bytes, more than %d", descriptor.Digest, descriptor.Size, most)
	}
	layer, err := image.LayerByDigest(descriptor.Digest)
	if err != nil {
		return nil, err
	}
	r, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(r, descriptor.Size+1))
	if err := cmp.Or(err, r.Close()); err != nil {
		return nil, err
	}
	// A registry is checked while it is read, a folder is not.
	if hash, _, err := v1.SHA256(bytes.NewReader(content)); err != nil || hash != descriptor.Digest {
		return nil, fmt.Errorf("cannot use the blob %s: its content has another digest", descriptor.Digest)
	}
	return content, nil
}
