package main

import (
	"bytes"
	"crypto/ecdsa"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// refName is the annotation that names what an entry of a layout is: "<name>:<tag>" or
// "<name>@<digest>", below the repository.
const refName = "org.opencontainers.image.ref.name"

// aboutType is the type of release.json in a registry, and aboutName where it is below the
// repository.
const (
	aboutType = "application/vnd.kyma-project.eventmesh-migration.release.v1+json"
	aboutName = "release"
)

// ociLayout is a folder in the OCI image layout. Everything that is added is signed.
type ociLayout struct {
	path       layout.Path
	repository string
	key        *ecdsa.PrivateKey
	// layers are those of the images so far, by the digest of their archive: most of the time goes
	// into compressing them.
	layers layers
}

type layers map[string]v1.Layer

// of returns the layer of files, compressed once.
func (l layers) of(files map[string]artifact.File) (v1.Layer, error) {
	raw, err := artifact.Tar(files)
	if err != nil {
		return nil, err
	}
	digest := sum(raw)
	if l[digest] == nil {
		l[digest], err = artifact.Layer(files)
	}
	return l[digest], err
}

func newLayout(dir, repository string, key *ecdsa.PrivateKey) (*ociLayout, error) {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	return &ociLayout{path: path, repository: repository, key: key, layers: layers{}}, nil
}

// add adds an image or an index, and its signature. The reference is ":<tag>", or "" for its
// digest.
func (l *ociLayout) add(what, reference string, of partial.Describable) (digest string, err error) {
	hash, err := of.Digest()
	if err != nil {
		return "", err
	}
	if reference == "" {
		reference = "@" + hash.String()
	}
	named := layout.WithAnnotations(map[string]string{refName: what + reference})
	switch of := of.(type) {
	case v1.ImageIndex:
		err = l.path.AppendIndex(of, named)
	case v1.Image:
		err = l.path.AppendImage(of, named)
	default:
		err = fmt.Errorf("neither an image nor an index: %T", of)
	}
	if err != nil {
		return "", err
	}
	return hash.String(), l.sign(what, hash)
}

func (l *ociLayout) sign(what string, hash v1.Hash) error {
	ref, err := name.NewDigest(l.repository + "/" + what + "@" + hash.String())
	if err != nil {
		return err
	}
	signature, err := artifact.AddSignature(nil, ref, l.key)
	if err != nil {
		return err
	}
	return l.path.AppendImage(signature, layout.WithAnnotations(map[string]string{refName: what + ":" + artifact.SignatureTag(ref).TagStr()}))
}

// addImage adds the image of a program for all platforms, and for each platform the list of
// modules. It returns the digest of the index.
func addImage(l *ociLayout, o options, from source, program, staged string) (string, error) {
	recipe, err := recipeOf(o.Root, program, map[string]string{"CMD": program, "VERSION": o.Version, "REVISION": from.Revision})
	if err != nil {
		return "", err
	}
	recipe.Labels["org.opencontainers.image.created"] = from.Date.Format(time.RFC3339)
	roots, err := certificates()
	if err != nil {
		return "", err
	}
	var all []v1.Image
	for _, p := range withLinux(o.Platforms) {
		image, err := imageOf(l.layers, recipe, from, p, program, p.stage(staged), roots)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		all = append(all, image)
	}
	index, err := artifact.Index(all, recipe.Labels)
	if err != nil {
		return "", err
	}
	digest, err := l.add(program, ":"+o.Version, index)
	if err != nil {
		return "", err
	}
	for i, p := range withLinux(o.Platforms) {
		if err := addModules(l, o, from, program, filepath.Join(p.stage(staged), program), all[i]); err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
	}
	return digest, nil
}

func imageOf(known layers, recipe recipe, from source, p platform, program, staged string, roots []byte) (v1.Image, error) {
	var all []v1.Layer
	for _, c := range recipe.Copies {
		files, err := c.files(staged, program, roots)
		if err != nil {
			return nil, err
		}
		layer, err := known.of(files)
		if err != nil {
			return nil, err
		}
		all = append(all, layer)
	}
	return artifact.Image(artifact.ImageOptions{Platform: p.v1(), Layers: all, Entrypoint: recipe.Entrypoint, User: recipe.User, Labels: recipe.Labels, Created: from.Date})
}

// addModules signs the image of one platform, and adds the SBOM that names it as its
// subject.
func addModules(l *ociLayout, o options, from source, name, program string, image v1.Image) error {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return err
	}
	if err := l.sign(name, subject.Digest); err != nil {
		return err
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	modules, err := modulesOf(raw, o.Version, subject.Digest.String(), from.Date)
	if err != nil {
		return err
	}
	list, err := artifact.Artifact(artifact.ArtifactOptions{Type: artifact.MediaTypeSPDX, Config: artifact.EmptyConfig,
		Layers:      []artifact.Blob{{MediaType: artifact.MediaTypeSPDX, Content: modules, Annotations: map[string]string{"org.opencontainers.image.title": name + ".spdx.json"}}},
		Annotations: map[string]string{"org.opencontainers.image.created": from.Date.Format(time.RFC3339)},
		Subject:     &v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest}})
	if err != nil {
		return err
	}
	_, err = l.add(name, "", list)
	return err
}

// ours is the path of this project's module.
const ours = "github.com/kyma-project/eventmesh-migration"

// modulesOf lists the modules of a program. A program of ours has no version in its build info: a
// clone with other tags would otherwise have other bytes.
func modulesOf(program []byte, version, digest string, created time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("cannot read the modules of the program: %w", err)
	}
	if info.Main.Path == ours {
		info.Main.Version = "v" + version
	}
	return artifact.SPDX(info, digest, created)
}

// addChart adds a chart as Helm stores it in registries.
func addChart(l *ociLayout, from source, c chart) (string, error) {
	config, err := json.Marshal(c.about)
	if err != nil {
		return "", err
	}
	made, err := artifact.Artifact(artifact.ArtifactOptions{
		Config: artifact.Blob{MediaType: "application/vnd.cncf.helm.config.v1+json", Content: config},
		Layers: []artifact.Blob{{MediaType: chartLayer, Content: c.archive}},
		Annotations: map[string]string{
			"org.opencontainers.image.title": c.name, "org.opencontainers.image.version": c.version,
			"org.opencontainers.image.created": from.Date.Format(time.RFC3339), "org.opencontainers.image.revision": from.Revision,
			"org.opencontainers.image.source": "https://" + ours, "org.opencontainers.image.licenses": "Apache-2.0",
		}})
	if err != nil {
		return "", err
	}
	return l.add(chartRepository(c.name), ":"+c.version, made)
}

// addAbout adds release.json, by which one who knows only the repository and the version finds the
// rest.
func addAbout(l *ociLayout, from source, version string, about []byte) error {
	made, err := artifact.Artifact(artifact.ArtifactOptions{Type: aboutType, Config: artifact.EmptyConfig,
		Layers:      []artifact.Blob{{MediaType: aboutType, Content: about, Annotations: map[string]string{"org.opencontainers.image.title": aboutFile}}},
		Annotations: map[string]string{"org.opencontainers.image.created": from.Date.Format(time.RFC3339)}})
	if err != nil {
		return err
	}
	_, err = l.add(aboutName, ":"+version, made)
	return err
}
