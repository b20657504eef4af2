package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime/debug"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// revision is the label of an image that has the commit.
const revision = "org.opencontainers.image.revision"

// refName is the annotation by which a layout names an image.
const refName = "org.opencontainers.image.ref.name"

// ours is the path of this project's module.
const ours = "github.com/kyma-project/eventmesh-migration"

// mostProgram is how large a program may be, in bytes.
const mostProgram = 256 << 20

// platform is the one whose program and size are listed. The programs of other platforms are linked
// from the same modules.
var platform = v1.Platform{OS: "linux", Architecture: "amd64"}

// RemoteImages reads the images of programs from "<repository>/<program>:<tag>".
func RemoteImages(ctx context.Context, repository, tag string, programs []string, options ...remote.Option) ([]Image, error) {
	options = append(options, remote.WithContext(ctx))
	var all []Image
	for _, program := range programs {
		ref, err := name.NewTag(repository+"/"+program+":"+tag, name.StrictValidation)
		if err != nil {
			return nil, fmt.Errorf("cannot use the repository %q: %w", repository, err)
		}
		d, err := remote.Get(ref, options...)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w; push it first", ref, err)
		}
		image, err := d.Image() // of an index, that of linux/amd64
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", ref, err)
		}
		one, err := imageOf(program, repository, tag, d.Digest, image)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// LayoutImages reads the images of programs from an OCI layout, as they would be in a repository.
// An entry of the layout's index names its program by the annotation
// org.opencontainers.image.ref.name: "<program>:<tag>", as make release writes it.
func LayoutImages(dir, repository, tag string, programs []string) ([]Image, error) {
	root, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the layout %s: %w", dir, err)
	}
	index, err := root.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("cannot read the layout %s: %w", dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("cannot read the layout %s: %w", dir, err)
	}
	entries := map[string]v1.Descriptor{}
	for _, d := range manifest.Manifests {
		entries[d.Annotations[refName]] = d
	}
	var all []Image
	for _, program := range programs {
		d, ok := entries[program+":"+tag]
		if !ok {
			return nil, fmt.Errorf("cannot render: the layout %s has no image %s:%s", dir, program, tag)
		}
		image, err := forPlatform(index, d)
		if err != nil {
			return nil, fmt.Errorf("cannot read the image of %s in %s: %w", program, dir, err)
		}
		one, err := imageOf(program, repository, tag, d.Digest, image)
		if err != nil {
			return nil, fmt.Errorf("cannot use the image of %s in %s: %w", program, dir, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func forPlatform(index v1.ImageIndex, d v1.Descriptor) (v1.Image, error) {
	if !d.MediaType.IsIndex() {
		return index.Image(d.Digest)
	}
	inner, err := index.ImageIndex(d.Digest)
	if err != nil {
		return nil, err
	}
	found, err := partial.FindImages(inner, func(d v1.Descriptor) bool { return d.Platform != nil && d.Platform.Satisfies(platform) })
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("there are %d images for %s", len(found), platform)
	}
	return found[0], nil
}

func imageOf(program, repository, tag string, digest v1.Hash, image v1.Image) (Image, error) {
	one := Image{Name: program, Repository: repository, Tag: tag, Digest: digest.String()}
	manifest, err := image.Manifest()
	if err != nil {
		return one, err
	}
	one.Size = manifest.Config.Size
	for _, l := range manifest.Layers {
		one.Size += l.Size
	}
	config, err := image.ConfigFile()
	if err != nil {
		return one, err
	}
	one.Commit, one.Created = config.Config.Labels[revision], config.Created.Time
	if one.Commit == "" {
		return one, fmt.Errorf("the image has no label %s: build it again", revision)
	}
	if len(config.Config.Entrypoint) == 0 {
		return one, errors.New("the image has no entrypoint, and so no program")
	}
	if one.Info, err = programOf(image, strings.TrimPrefix(config.Config.Entrypoint[0], "/")); err != nil {
		return one, err
	}
	if one.Info.Main.Path == ours {
		one.Info.Main.Version = "v" + tag // a build does not know its tag
	}
	return one, nil
}

// programOf reads what a program in an image was linked from.
func programOf(image v1.Image, file string) (*debug.BuildInfo, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		raw, err := fileIn(layer, file)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			continue
		}
		info, err := buildinfo.Read(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("cannot read what /%s is linked from: %w", file, err)
		}
		return info, nil
	}
	return nil, fmt.Errorf("the image has no file /%s", file)
}

// fileIn is the content of a file in a layer, nil if it is not there.
func fileIn(layer v1.Layer, file string) ([]byte, error) {
	r, err := layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if strings.TrimPrefix(path.Clean("/"+h.Name), "/") != file {
			continue
		}
		if h.Size > mostProgram {
			return nil, fmt.Errorf("/%s has %d bytes, more than %d", file, h.Size, mostProgram)
		}
		return io.ReadAll(t)
	}
}
