package module_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// This file reads a component as lifecycle-manager does, by the rules of its source at c5b83f1 (and
// back to 1.3), none of which is known from how the bundle is made:
//
//   - internal/service/componentdescriptor: the configuration of the image names the layer of the
//     descriptor, an archive with component-descriptor.yaml;
//   - internal/manifest/img/parse.go: a descriptor without an effective repository context has no
//     layers; the context has to be an OCI registry that maps names to paths or to digests; an
//     access of another type is an error;
//   - internal/service/manifest/parser: the layer raw-manifest is what is installed, the default
//     object is that of the ModuleTemplate, images are those of the type ociArtifact;
//   - internal/manifest/img/pathextractor.go: the archive's first file is the manifest;
//   - internal/imagerewrite: images and variables of containers are compared with the images by
//     name and tag, and replaced.

// errInstall is how the API server of the control plane refuses a Manifest without a source.
var errInstall = errors.New(`spec.install.source: Invalid value: "null"`)

// component is what lifecycle-manager takes of one.
type component struct {
	// manifest is what is installed.
	manifest []byte
	// images are those that the component has.
	images []string
}

// readComponent reads the version of a component.
func readComponent(ctx context.Context, registry, of, version string) (*component, error) {
	at, err := name.NewTag(registry+"/component-descriptors/"+of+":"+version, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(at, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	raw, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	var config struct {
		Layer *struct {
			Digest string `json:"digest"`
		} `json:"componentDescriptorLayer"`
	}
	if err := json.Unmarshal(raw, &config); err != nil || config.Layer == nil {
		return nil, fmt.Errorf("the configuration has no componentDescriptorLayer, %w", err)
	}
	archive, err := pullLayer(ctx, registry, of, config.Layer.Digest)
	if err != nil {
		return nil, err
	}
	if raw, err = fileOf(archive, func(file string) bool { return file == "component-descriptor.yaml" }); err != nil {
		return nil, err
	}
	return parseComponent(ctx, raw, registry)
}

func parseComponent(ctx context.Context, raw []byte, registry string) (*component, error) {
	var descriptor struct {
		Meta struct {
			SchemaVersion string `json:"schemaVersion"`
		} `json:"meta"`
		Component struct {
			Name, Version, Provider string
			RepositoryContexts      []struct{ Type, BaseURL, SubPath, ComponentNameMapping string }
			Resources               []struct {
				Name   string
				Access struct{ Type, ImageReference, LocalReference, MediaType string }
			}
		} `json:"component"`
	}
	if err := yaml.Unmarshal(raw, &descriptor); err != nil {
		return nil, fmt.Errorf("failed to decode component descriptor: %w", err)
	}
	if v := descriptor.Meta.SchemaVersion; v != "v2" {
		return nil, fmt.Errorf("failed to decode component descriptor: version %q", v)
	}
	c := descriptor.Component
	read := &component{}
	if len(c.RepositoryContexts) == 0 {
		return nil, errInstall
	}
	at := c.RepositoryContexts[len(c.RepositoryContexts)-1]
	if at.Type != "OCIRegistry" && at.Type != "ociRegistry" && at.Type != "OCIRegistry/v1" {
		return nil, fmt.Errorf("error while decoding the repository context into an OCI registry: %q", at.Type)
	}
	if at.ComponentNameMapping != "urlPath" {
		return nil, fmt.Errorf("error while parsing componentNameMapping %s", at.ComponentNameMapping)
	}
	base := at.BaseURL
	if at.SubPath != "" {
		base += "/" + at.SubPath
	}
	for _, r := range c.Resources {
		switch r.Access.Type {
		case "localBlob", "localBlob/v1", "localOciBlob", "localOciBlob/v1":
		case "ociArtifact":
			read.images = append(read.images, r.Access.ImageReference)
			continue
		case "ociArtifact/v1", "ociRegistry", "ociRegistry/v1":
			continue // installed, and not moved
		default:
			return nil, fmt.Errorf("error while parsing access type %s: access type not supported", r.Access.Type)
		}
		if r.Name != "raw-manifest" {
			continue
		}
		// The newest versions read it from the registry that they are configured with, older ones
		// from the one of the descriptor.
		for _, from := range []string{registry, base} {
			layer, err := pullLayer(ctx, from, c.Name, r.Access.LocalReference)
			if err != nil {
				return nil, fmt.Errorf("failed to pull layer: %w", err)
			}
			if read.manifest = layer; r.Access.MediaType == "application/x-tar" {
				if read.manifest, err = fileOf(layer, func(file string) bool { return !strings.HasPrefix(file, "._") }); err != nil {
					return nil, fmt.Errorf("tar archive has invalid structure, expected a single file: %w", err)
				}
			}
		}
	}
	if read.manifest == nil {
		return nil, errInstall
	}
	return read, nil
}

func pullLayer(ctx context.Context, registry, component, digest string) ([]byte, error) {
	at, err := name.NewDigest(registry+"/component-descriptors/"+component+"@"+digest, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	layer, err := remote.Layer(at, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return uncompressed(layer)
}

func uncompressed(layer v1.Layer) ([]byte, error) {
	r, err := layer.Uncompressed()
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(r)
	return raw, errors.Join(err, r.Close())
}

// fileOf is the first file of an archive that is wanted.
func fileOf(archive []byte, wanted func(file string) bool) ([]byte, error) {
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg && wanted(h.Name) {
			return io.ReadAll(r)
		}
	}
}

// imageReference is an image: "<host and path>/<name>:<tag>@<digest>". Tag and digest may be
// missing.
var imageReference = regexp.MustCompile(`^(?:(.*)/)?([^/:@]+(?::[^/:@]+)?)(@sha256:[0-9a-f]{64})?$`)

// rewrite replaces the images of Deployments and StatefulSets by those of the component that have
// the same name and tag.
func (c *component) rewrite(u *unstructured.Unstructured) {
	if u.GetKind() != "Deployment" && u.GetKind() != "StatefulSet" {
		return
	}
	replaced := func(value string) string {
		is := imageReference.FindStringSubmatch(value)
		for _, image := range c.images {
			if of := imageReference.FindStringSubmatch(image); is != nil && of != nil && is[2] == of[2] {
				return image
			}
		}
		return value
	}
	for _, field := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", field)
		for _, container := range containers {
			container, _ := container.(map[string]any)
			if image, ok := container["image"].(string); ok {
				container["image"] = replaced(image)
			}
			variables, _ := container["env"].([]any)
			for _, variable := range variables {
				variable, _ := variable.(map[string]any)
				if value, ok := variable["value"].(string); ok {
					variable["value"] = replaced(value)
				}
			}
		}
		if len(containers) > 0 {
			_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", field)
		}
	}
}

// TestAMovedComponent: a component that was moved to another registry, with its images, is
// installed from there, and nothing in what is installed names the old registry.
func TestAMovedComponent(t *testing.T) {
	s := source(t)
	moved := component{}
	for _, i := range images(t, s, "moved.example/kyma") {
		moved.images = append(moved.images, i.Repository+"/"+i.Name+":"+s.Version+"@"+i.Digest)
	}
	for _, u := range objects(t, render(t, s, "first.example/eventing")[manifest]) {
		moved.rewrite(u)
		raw, err := yaml.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		if u.GetKind() == "Deployment" && strings.Count(string(raw), "moved.example/kyma/") != len(moved.images) {
			t.Errorf("of the images %q, the Deployment has:\n%s", moved.images, raw)
		}
		if strings.Contains(string(raw), "first.example") {
			t.Errorf("%s %s names the old registry:\n%s", u.GetKind(), u.GetName(), raw)
		}
	}
}

// TestComponentsThatAreRefused: the stand-in refuses what lifecycle-manager does.
func TestComponentsThatAreRefused(t *testing.T) {
	const good = `{meta: {schemaVersion: v2}, component: {name: example.org/module/a, version: 1.0.0, provider: a, repositoryContexts: [{type: OCIRegistry, baseUrl: registry.invalid, componentNameMapping: urlPath}], resources: [{name: image, access: {type: ociArtifact, imageReference: a/b:c}}]}}`
	for _, tc := range []struct{ old, new, want string }{
		{"[{type: OCIRegistry, baseUrl: registry.invalid, componentNameMapping: urlPath}]", "[]", "spec.install.source"},
		{"type: OCIRegistry", "type: directory", "repository context"},
		{"urlPath", "none", "componentNameMapping"},
		{"type: ociArtifact", "type: helm", "access type"},
		{"v2", "v9", "decode"},
		{"name: image", "name: image", "spec.install.source"}, // nothing to install
	} {
		_, err := parseComponent(t.Context(), []byte(strings.Replace(good, tc.old, tc.new, 1)), "registry.invalid")
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.new, err, tc.want)
		}
	}
}
