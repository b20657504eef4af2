package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
)

// Image is one image of the module, as it was built.
type Image struct {
	// Name is that of the program, Tag the version of the module:
	// "<Repository>/<Name>:<Tag>@<Digest>". The digest decides. lifecycle-manager finds an image
	// that it moves to another registry by name and tag.
	Name, Repository, Tag, Digest string
	// Size is what a node of linux/amd64 pulls, in bytes.
	Size int64
	// Commit and Created are those of the source: the labels of the image say them.
	Commit  string
	Created time.Time
	// Info is what the program was linked from.
	Info *debug.BuildInfo
}

// tagged is the image by its tag alone.
func (i Image) tagged() string { return i.Repository + "/" + i.Name + ":" + i.Tag }

func (i Image) reference() string { return i.tagged() + "@" + i.Digest }

// resource is what modulectl calls an image in a component: "<name>-<digest>", and the version
// "<tag>+sha256.<digest>".
func (i Image) resource() (name, version string) {
	digest := strings.TrimPrefix(i.Digest, "sha256:")
	return i.Name + "-" + digest[:min(8, len(digest))], i.Tag + "+sha256." + digest[:min(12, len(digest))]
}

// Render makes the bundle of a source. Images has one image for each of the source's programs; all
// are in one repository.
func Render(s *Source, images []Image) (Files, error) {
	programs, err := s.Programs()
	if err != nil {
		return nil, err
	}
	images = slices.SortedFunc(slices.Values(images), func(a, b Image) int { return cmp.Compare(a.Name, b.Name) })
	var names []string
	for _, i := range images {
		names = append(names, i.Name)
		if i.Repository != images[0].Repository {
			return nil, fmt.Errorf("cannot render: the images %s and %s are in different repositories", images[0].reference(), i.reference())
		}
		if i.Tag != s.Version {
			return nil, fmt.Errorf("cannot render: image %s has the tag %s, and the module is %s", i.reference(), i.Tag, s.Version)
		}
		if i.Commit != images[0].Commit {
			return nil, fmt.Errorf("cannot render: image %s is built from commit %q, and %s from %q; build all of them again", i.Name, i.Commit, images[0].Name, images[0].Commit)
		}
	}
	if !slices.Equal(names, programs) {
		return nil, fmt.Errorf("cannot render: the chart has the programs %q, and there are images of %q", programs, names)
	}
	objects, definitions, err := s.objects(images)
	if err != nil {
		return nil, err
	}
	files := Files{s.Config.Manifest: manifestOf(s, objects)}
	for name, raw := range s.CRs {
		files[name] = raw
	}
	if files[s.Config.DefaultCR] == nil {
		return nil, fmt.Errorf("cannot render: %s/cr/%s is missing, the defaultCR of module-config.yaml", sourceDir, s.Config.DefaultCR)
	}
	config := s.Config
	config.Version, config.Security = s.Version, scannersFile
	files[configFile] = toYAML(config)
	template, err := s.template()
	if err != nil {
		return nil, err
	}
	files[templateFile(s.Config.Module(), s.Version)] = toYAML(template)
	files[releaseMetaFile] = toYAML(s.releaseMeta())
	for _, d := range definitions {
		for _, lock := range crd.Locks(d) {
			if files[lockDir+lock.Name()], err = lock.JSON(); err != nil {
				return nil, err
			}
		}
	}
	list := imageList{}
	scan := scanners{ModuleName: s.Config.Module(), Mend: sources{"golang-mod", []string{"**/test/**", "**/*_test.go"}}}
	for _, i := range images {
		scan.BDBA = append(scan.BDBA, i.tagged())
		list.Images = append(list.Images, imageEntry{
			Name: i.Name, Reference: i.reference(), Tag: i.Tag, Digest: i.Digest, Size: i.Size, SBOM: sbomFile(i.Name),
			Signature: i.Repository + "/" + i.Name + ":" + strings.Replace(i.Digest, ":", "-", 1) + ".sig",
		})
		if files[sbomFile(i.Name)], err = artifact.SPDX(i.Info, i.Digest, i.Created); err != nil {
			return nil, err
		}
	}
	files[imagesFile], files[scannersFile] = toJSON(list), toYAML(scan)
	if files[manifestTar], err = tarOf("manifest.yaml", files[s.Config.Manifest]); err != nil {
		return nil, err
	}
	if files[defaultCRTar], err = tarOf("default-cr.yaml", files[s.Config.DefaultCR]); err != nil {
		return nil, err
	}
	d := s.descriptor(images, files)
	files[descriptorFile] = toYAML(d)
	files[constructorFile] = toYAML(s.constructor(d))
	return files, nil
}

func tarOf(name string, content []byte) ([]byte, error) {
	return artifact.Tar(map[string]artifact.File{name: {Content: content}})
}

// order is how a manifest is applied: what others need comes first. Kinds that are not here come
// last but for workloads.
var order = []string{
	"CustomResourceDefinition", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service",
}

func place(u *unstructured.Unstructured) int {
	if workload(u) {
		return len(order) + 1
	}
	if i := slices.Index(order, u.GetKind()); i >= 0 {
		return i
	}
	return len(order)
}

func workload(u *unstructured.Unstructured) bool {
	return u.GroupVersionKind().Group == "apps" && (u.GetKind() == "Deployment" || u.GetKind() == "StatefulSet")
}

// objects renders the operator's chart, and its kinds.
func (s *Source) objects(images []Image) ([]*unstructured.Unstructured, []*apiextensionsv1.CustomResourceDefinition, error) {
	c, err := chart.Load(s.root, chartDir)
	if err != nil {
		return nil, nil, err
	}
	digests := map[string]any{}
	for _, i := range images {
		digests[i.Name] = i.Digest
	}
	m := s.Config.Manager
	objects, err := c.Render(chart.Release{Name: m.Name, Namespace: m.Namespace}, map[string]any{
		"fullnameOverride": m.Name,
		"image":            map[string]any{"repository": images[0].Repository, "tag": s.Version, "digests": digests},
	})
	if err != nil {
		return nil, nil, err
	}
	crds, err := fs.Glob(s.root, chartDir+"/crds/*.yaml")
	if err != nil {
		return nil, nil, err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, name := range crds {
		raw, err := fs.ReadFile(s.root, name)
		if err != nil {
			return nil, nil, err
		}
		d, err := crd.Parse(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		definitions = append(definitions, d)
		u, err := parseObject(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, u)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, definitions, nil
}

func manifestOf(s *Source, objects []*unstructured.Unstructured) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s %s. The namespace %s has to exist: kubectl apply --server-side -f %s\n", s.Config.Module(), s.Version, s.Config.Manager.Namespace, s.Config.Manifest)
	for _, u := range objects {
		b.WriteString("---\n")
		b.Write(toYAML(u.Object))
	}
	return b.Bytes()
}

func (s *Source) template() (*moduleTemplate, error) {
	module := s.Config.Module()
	t := &moduleTemplate{
		APIVersion: lifecycleGroup, Kind: "ModuleTemplate",
		Metadata: metadata{
			Name: module + "-" + s.Version, Namespace: lifecycleNamespace,
			Labels: map[string]string{moduleNameLabel: module}, Annotations: map[string]string{clusterScoped: "false"},
		},
		Spec: templateSpec{
			ModuleName: module, Version: s.Version, RequiresDowntime: s.Config.RequiresDowntime,
			Info:                templateInfo{s.Config.Repository, s.Config.Documentation, s.Config.Icons},
			AssociatedResources: s.Config.AssociatedResources, Manager: s.Config.Manager,
			Resources:  []Link{{rawManifest, s.Config.Repository + "/releases/download/v" + s.Version + "/" + s.Config.Manifest}},
			Descriptor: map[string]any{},
		},
	}
	u, err := parseObject(s.CRs[s.Config.DefaultCR])
	if err != nil {
		return nil, fmt.Errorf("cannot read %s/cr/%s: %w", sourceDir, s.Config.DefaultCR, err)
	}
	t.Spec.Data = u.Object
	return t, nil
}

func (s *Source) releaseMeta() *releaseMeta {
	module := s.Config.Module()
	return &releaseMeta{
		APIVersion: lifecycleGroup, Kind: "ModuleReleaseMeta",
		Metadata: metadata{Name: module, Namespace: lifecycleNamespace},
		Spec:     releaseMetaSpec{ModuleName: module, OCMComponentName: s.Config.Name, Channels: s.Channels},
	}
}

// ReleaseMeta is the file of a bundle that says which version each channel has, for a source whose
// channels have changed.
func (s *Source) ReleaseMeta() (name string, content []byte) {
	return releaseMetaFile, toYAML(s.releaseMeta())
}

// contexts say that a component is below a registry: "registry.example/path".
func contexts(registry string) []repositoryContext {
	return []repositoryContext{{"OCIRegistry", registry, "urlPath"}}
}

func (s *Source) provider() provider {
	name, _, _ := strings.Cut(s.Config.Name, "/")
	return provider{name, []label{{name + "/built-by", "modulepack", "v1"}}}
}

func asText(p provider) string {
	raw, err := json.Marshal(p)
	if err != nil {
		panic(err) // our own shapes of text
	}
	return string(raw)
}

// labels are those that modulectl gives a component, in its order.
func (s *Source) labels() []label {
	team := []map[string]any{{"github_hostname": "github.tools.sap", "teamname": s.Config.Team, "type": "githubTeam"}}
	return []label{
		{"operator.kyma-project.io/beta", strconv.FormatBool(s.Config.Beta), "v1"},
		{"operator.kyma-project.io/internal", strconv.FormatBool(s.Config.Internal), "v1"},
		{"operator.kyma-project.io/requiresDowntime", strconv.FormatBool(s.Config.RequiresDowntime), "v1"},
		{clusterScoped, "false", "v1"},
		{"security.kyma-project.io/scan", "enabled", "v1"},
		{"cloud.gardener.cnudie/responsibles", team, "v1"},
	}
}

func (s *Source) descriptor(images []Image, files Files) *descriptor {
	d := &descriptor{}
	d.Meta.SchemaVersion = "v2"
	d.Component = component{
		Name: s.Config.Name, Version: s.Version, Provider: asText(s.provider()), Labels: s.labels(), RepositoryContexts: contexts(images[0].Repository), ComponentReferences: []json.RawMessage{},
		Sources: []componentSource{{Name: "module-sources", Type: "Github", Version: s.Version, Access: sourceAccess{"gitHub", s.Config.Repository, images[0].Commit}}},
	}
	for _, i := range images {
		name, version := i.resource()
		d.Component.Resources = append(d.Component.Resources, componentResource{
			Name: name, Type: "ociArtifact", Relation: "external", Version: version, Labels: []label{{"scan.security.kyma-project.io/type", "third-party-image", "v1"}},
			Access: &resourceAccess{Type: "ociArtifact", ImageReference: i.reference()},
			Digest: &componentDigest{"SHA-256", "ociArtifactDigest/v1", strings.TrimPrefix(i.Digest, "sha256:")},
		})
	}
	for _, b := range localBlobs(s.Config.Module(), s.Version) {
		digest := digestOf(files[b.file])
		d.Component.Resources = append(d.Component.Resources, componentResource{
			Name: b.name, Type: b.typ, Relation: "local", Version: s.Version,
			Access: &resourceAccess{Type: "localBlob", LocalReference: digest, MediaType: b.mediaType},
			Digest: &componentDigest{"SHA-256", "genericBlobDigest/v1", strings.TrimPrefix(digest, "sha256:")},
		})
	}
	return d
}

// constructor describes the same component for OCM's own tools, which read the files instead of the
// artifact.
func (s *Source) constructor(d *descriptor) *constructor {
	c := constructorComponent{Name: d.Component.Name, Version: d.Component.Version, Provider: s.provider(), Labels: d.Component.Labels, Sources: d.Component.Sources}
	blobs := localBlobs(s.Config.Module(), s.Version)
	for _, r := range d.Component.Resources {
		r.Digest = nil
		if i := slices.IndexFunc(blobs, func(b localBlob) bool { return b.name == r.Name }); i >= 0 {
			r.Access, r.Input = nil, &resourceInput{Type: "file", Path: blobs[i].file, MediaType: blobs[i].mediaType}
		}
		c.Resources = append(c.Resources, r)
	}
	return &constructor{Components: []constructorComponent{c}}
}
