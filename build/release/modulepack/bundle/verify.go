package bundle

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
)

// Finding is one thing that is wrong with a bundle.
type Finding struct {
	// File is the path in the bundle, or a file of the source: "module/channels.yaml".
	File string
	// Path is where in the file, Value what is there. Both may be empty.
	Path, Value string
	// Do says what is wrong and what to do.
	Do string
}

func (f Finding) String() string {
	text := f.File
	if f.Path != "" {
		text += " at " + f.Path
	}
	if f.Value != "" {
		text += fmt.Sprintf(" is %q", f.Value)
	}
	return text + ": " + f.Do
}

// Against is what a bundle is compared with. Its zero value compares with nothing.
type Against struct {
	// Channels are those of the source, nil if the source is not there.
	Channels []Channel
	// Before are the channels before the change that is submitted, nil if there were none.
	Before []Channel
	// Released are the versions that were pushed.
	Released map[string]Release
	// Programs are what the programs are linked from, by their names. Those that are missing are
	// not compared.
	Programs map[string]*debug.BuildInfo
}

// verifier collects what is wrong. What cannot be read is reported once, and skipped by the checks
// that need it.
type verifier struct {
	files    Files
	against  Against
	findings []Finding

	config      *Config
	template    *moduleTemplate
	meta        *releaseMeta
	descriptor  *descriptor
	constructor *constructor
	images      *imageList
	objects     []*unstructured.Unstructured
	definitions definitions
	references  []reference
}

// Verify returns all that is wrong with a bundle, in the order of the files. It asks nobody but the
// files.
func Verify(ctx context.Context, files Files, against Against) []Finding {
	v := &verifier{files: files, against: against}
	v.read()
	v.checkConfig()
	v.checkManifest()
	v.checkImages()
	v.checkCRs(ctx)
	v.checkTemplate()
	v.checkReleaseMeta()
	v.checkDescriptor()
	v.checkConstructor()
	v.checkLocks()
	v.checkSBOMs()
	v.checkNames()
	slices.SortStableFunc(v.findings, func(a, b Finding) int { return strings.Compare(a.File, b.File) })
	return v.findings
}

func (v *verifier) report(file, path, value, do string, args ...any) {
	v.findings = append(v.findings, Finding{file, path, value, fmt.Sprintf(do, args...)})
}

const again = "render the bundle again"

// parse reads a file into a shape, nil if it cannot be read. Fields that the shape does not have
// are refused.
func parse[T any](v *verifier, file string) *T {
	raw, ok := v.files[file]
	if !ok {
		v.report(file, "", "", "the file is missing; "+again)
		return nil
	}
	into := new(T)
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		v.report(file, "", "", "%s; %s", strings.Join(strings.Fields(err.Error()), " "), again)
		return nil
	}
	return into
}

func (v *verifier) read() {
	v.config = parse[Config](v, configFile)
	v.meta = parse[releaseMeta](v, releaseMetaFile)
	v.descriptor = parse[descriptor](v, descriptorFile)
	v.constructor = parse[constructor](v, constructorFile)
	v.images = parse[imageList](v, imagesFile)
	if v.config == nil {
		return
	}
	v.template = parse[moduleTemplate](v, templateFile(v.config.Module(), v.config.Version))
	v.objects = v.parseObjects(v.config.Manifest)
	v.definitions = v.parseDefinitions()
	v.references = v.readReferences()
}

// same reports a value that should be another one.
func (v *verifier) same(file, path, is, want, why string) {
	if is != want {
		v.report(file, path, is, "it has to be %q, %s; %s", want, why, again)
	}
}

// web reports what is no https address.
func (v *verifier) web(file, path, is string) {
	if u, err := url.Parse(is); err != nil || u.Scheme != "https" || u.Host == "" {
		v.report(file, path, is, "use an address that begins with https://")
	}
}

func (v *verifier) checkConfig() {
	c := v.config
	if c == nil {
		return
	}
	if !componentPattern.MatchString(c.Name) || len(c.Name) > mostComponent {
		v.report(configFile, "name", c.Name, "use a domain and a path, such as kyma-project.io/module/eventing, of at most %d characters", mostComponent)
	} else if module := c.Module(); !moduleNamePattern.MatchString(module) {
		v.report(configFile, "name", c.Name, "the last part names the module: at least three lower-case letters, words joined by -")
	}
	v.version(configFile, "version", c.Version)
	v.web(configFile, "repository", c.Repository)
	v.web(configFile, "documentation", c.Documentation)
	for i, icon := range c.Icons {
		v.web(configFile, fmt.Sprintf("icons[%d].link", i), icon.Link)
	}
	for _, of := range []struct{ path, value string }{
		{"team", c.Team}, {"manifest", c.Manifest}, {"defaultCR", c.DefaultCR}, {"manager.kind", c.Manager.Kind.Kind}, {"manager.version", c.Manager.Version},
		{"manager.name", c.Manager.Name}, {"manager.namespace", c.Manager.Namespace},
	} {
		if of.value == "" {
			v.report(configFile, of.path, "", "it is empty; set it in %s/%s and %s", sourceDir, configFile, again)
		}
	}
}

func (v *verifier) version(file, path, version string) {
	if !versionPattern.MatchString(version) || len(version) > mostVersion {
		v.report(file, path, version, "use a version such as 1.0.0 or 1.0.0-rc1, without v, of at most %d characters", mostVersion)
	}
}

// byDigest says how an image is named.
const byDigest = "name the image by digest, and with the version as its tag: <repository>/<program>:<version>@sha256:<64 digits>"

// splitReference splits a reference that has a tag and a digest. All parts of others are "".
func splitReference(reference string) (repository, tag, digest string) {
	if parts := referencePattern.FindStringSubmatch(reference); parts != nil {
		return parts[1], parts[2], parts[3]
	}
	return "", "", ""
}

// checkImages compares images.json with the manifest: each has what the other has.
func (v *verifier) checkImages() {
	if v.images == nil {
		return
	}
	listed := map[string]bool{}
	for i, image := range v.images.Images {
		at := fmt.Sprintf("images[%d].", i)
		if listed[image.Reference] {
			v.report(imagesFile, at+"reference", image.Reference, "it is there twice; %s", again)
		}
		listed[image.Reference] = true
		repository, tag, digest := splitReference(image.Reference)
		switch {
		case digest == "":
			v.report(imagesFile, at+"reference", image.Reference, byDigest)
		case tag != image.Tag:
			v.report(imagesFile, at+"tag", image.Tag, "the reference has %s; %s", tag, again)
		case digest != image.Digest:
			v.report(imagesFile, at+"digest", image.Digest, "the reference has %s; %s", digest, again)
		default:
			v.same(imagesFile, at+"signature", image.Signature, repository+":"+strings.Replace(digest, ":", "-", 1)+".sig", "where cosign looks for it")
		}
		if !strings.HasSuffix(repository, "/"+image.Name) {
			v.report(imagesFile, at+"reference", image.Reference, "the repository has to end with /%s, the name of the image", image.Name)
		}
		switch {
		case image.Tag == "latest" || image.Tag == "":
			v.report(imagesFile, at+"tag", image.Tag, "a tag like this names another image tomorrow; use the version of the module")
		case v.config != nil:
			v.same(imagesFile, at+"tag", image.Tag, v.config.Version, "the version of the module")
		}
		if image.Size <= 0 {
			v.report(imagesFile, at+"size", fmt.Sprint(image.Size), "it has to be the number of bytes; %s", again)
		}
		v.same(imagesFile, at+"sbom", image.SBOM, sbomFile(image.Name), "the list of its modules")
	}
	if v.config == nil || v.objects == nil {
		return
	}
	used := map[string]bool{}
	for _, of := range v.references {
		used[of.value] = true
		if !listed[of.value] && strings.Contains(of.value, "@") {
			v.report(v.config.Manifest, of.path, of.value, "%s does not have this image; %s", imagesFile, again)
		}
	}
	for i, image := range v.images.Images {
		if !used[image.Reference] {
			v.report(imagesFile, fmt.Sprintf("images[%d].reference", i), image.Reference, "%s does not use this image; remove it from the chart's image.digests", v.config.Manifest)
		}
	}
}

func (v *verifier) checkTemplate() {
	t, c := v.template, v.config
	if t == nil || c == nil {
		return
	}
	file, module := templateFile(c.Module(), c.Version), c.Module()
	v.same(file, "apiVersion", t.APIVersion, lifecycleGroup, "which lifecycle-manager reads")
	v.same(file, "kind", t.Kind, "ModuleTemplate", "which lifecycle-manager reads")
	v.same(file, "metadata.name", t.Metadata.Name, module+"-"+c.Version, "module and version")
	v.same(file, "metadata.namespace", t.Metadata.Namespace, lifecycleNamespace, "that of the control plane")
	v.same(file, "metadata.labels["+moduleNameLabel+"]", t.Metadata.Labels[moduleNameLabel], module, "the name of the module")
	v.same(file, "metadata.annotations["+clusterScoped+"]", t.Metadata.Annotations[clusterScoped], "false", "because the default object has a namespace")
	v.same(file, "spec.moduleName", t.Spec.ModuleName, module, "the name of the module")
	v.same(file, "spec.version", t.Spec.Version, c.Version, "that of "+configFile)
	v.same(file, "spec.info.repository", t.Spec.Info.Repository, c.Repository, "that of "+configFile)
	v.same(file, "spec.info.documentation", t.Spec.Info.Documentation, c.Documentation, "that of "+configFile)
	if !bytes.Equal(toYAML(t.Spec.Manager), toYAML(c.Manager)) {
		v.report(file, "spec.manager", strings.Join([]string{t.Spec.Manager.Kind.Kind, t.Spec.Manager.Namespace, t.Spec.Manager.Name}, " "), "it has to be the manager of %s; %s", configFile, again)
	}
	for i, kind := range t.Spec.AssociatedResources {
		if v.definitions != nil && v.definitions.of(kind.Group, kind.Version, kind.Kind) == nil {
			v.report(file, fmt.Sprintf("spec.associatedResources[%d]", i), kind.Group+"/"+kind.Version+" "+kind.Kind, "%s has no such kind; correct %s/%s", c.Manifest, sourceDir, configFile)
		}
	}
	at := slices.IndexFunc(t.Spec.Resources, func(l Link) bool { return l.Name == rawManifest })
	if at < 0 {
		v.report(file, "spec.resources", "", "%s is missing, the link to the manifest; %s", rawManifest, again)
	} else {
		path, link := fmt.Sprintf("spec.resources[%d].link", at), t.Spec.Resources[at].Link
		v.web(file, path, link)
		if !strings.HasSuffix(link, "/v"+c.Version+"/"+c.Manifest) {
			v.report(file, path, link, "it has to end with /v%s/%s, the manifest of this version; %s", c.Version, c.Manifest, again)
		}
	}
	if raw, ok := v.files[c.DefaultCR]; ok {
		if want, err := parseObject(raw); err == nil && !bytes.Equal(toYAML(want.Object), toYAML(t.Spec.Data)) {
			v.report(file, "spec.data", "", "it is not the object of %s; %s", c.DefaultCR, again)
		}
	}
}

func (v *verifier) checkReleaseMeta() {
	m, c := v.meta, v.config
	if m == nil || c == nil {
		return
	}
	v.same(releaseMetaFile, "apiVersion", m.APIVersion, lifecycleGroup, "which lifecycle-manager reads")
	v.same(releaseMetaFile, "kind", m.Kind, "ModuleReleaseMeta", "which lifecycle-manager reads")
	v.same(releaseMetaFile, "metadata.name", m.Metadata.Name, c.Module(), "the name of the module")
	v.same(releaseMetaFile, "spec.moduleName", m.Spec.ModuleName, c.Module(), "the name of the module")
	v.same(releaseMetaFile, "spec.ocmComponentName", m.Spec.OCMComponentName, c.Name, "that of "+configFile)
	if len(m.Spec.Channels) == 0 {
		v.report(releaseMetaFile, "spec.channels", "", "there is no channel; name one in %s/channels.yaml", sourceDir)
	}
	seen := map[string]bool{}
	for i, ch := range m.Spec.Channels {
		at := fmt.Sprintf("spec.channels[%d].", i)
		if !channelPattern.MatchString(ch.Channel) {
			v.report(releaseMetaFile, at+"channel", ch.Channel, "use 3 to 32 lower-case letters")
		}
		if seen[ch.Channel] {
			v.report(releaseMetaFile, at+"channel", ch.Channel, "the channel is there twice; remove one")
		}
		seen[ch.Channel] = true
		v.version(releaseMetaFile, at+"version", ch.Version)
		if _, ok := v.against.Released[ch.Version]; !ok && ch.Version != c.Version && v.against.Channels != nil {
			v.report(releaseMetaFile, at+"version", ch.Version, "channel %s has a version that was not released: %s/releases does not have it", ch.Channel, sourceDir)
		}
		for _, before := range v.against.Before {
			if before.Channel != ch.Channel {
				continue
			}
			if down, err := lower(ch.Version, before.Version); err == nil && down {
				v.report(releaseMetaFile, at+"version", ch.Version, "channel %s had %s; a channel never goes down, release a newer version", ch.Channel, before.Version)
			}
		}
	}
	if v.against.Channels != nil && !slices.Equal(v.against.Channels, m.Spec.Channels) {
		v.report(releaseMetaFile, "spec.channels", fmt.Sprint(m.Spec.Channels), "%s/channels.yaml has %v; %s", sourceDir, v.against.Channels, again)
	}
}

func (v *verifier) checkDescriptor() {
	d, c := v.descriptor, v.config
	if d == nil || c == nil {
		return
	}
	v.same(descriptorFile, "meta.schemaVersion", d.Meta.SchemaVersion, "v2", "the version of the format")
	v.same(descriptorFile, "component.name", d.Component.Name, c.Name, "that of "+configFile)
	v.same(descriptorFile, "component.version", d.Component.Version, c.Version, "that of "+configFile)
	if d.Component.Provider == "" {
		v.report(descriptorFile, "component.provider", "", "it is empty; %s", again)
	}
	for i, s := range d.Component.Sources {
		at := fmt.Sprintf("component.sources[%d].", i)
		if len(s.Access.Commit) != 40 || strings.Trim(s.Access.Commit, "0123456789abcdef") != "" {
			v.report(descriptorFile, at+"access.commit", s.Access.Commit, "it has to be the commit of the images, 40 digits; build them in a clone of the repository")
		}
		v.web(descriptorFile, at+"access.repoUrl", s.Access.RepoURL)
	}
	if len(d.Component.Sources) == 0 {
		v.report(descriptorFile, "component.sources", "", "there is no source; %s", again)
	}
	v.checkContexts()
	for i, want := range (&Source{Version: c.Version, Config: *c}).labels() {
		if l := d.Component.Labels; i >= len(l) || !bytes.Equal(toJSON(l[i]), toJSON(want)) {
			v.report(descriptorFile, fmt.Sprintf("component.labels[%d]", i), "", "it has to be %s, which follows from %s; %s", want.Name, configFile, again)
		}
	}
	blobs := localBlobs(c.Module(), c.Version)
	found := map[string]bool{}
	for i, r := range d.Component.Resources {
		at := fmt.Sprintf("component.resources[%d].", i)
		found[r.Name] = true
		if r.Access == nil || r.Digest == nil {
			v.report(descriptorFile, at+"access", r.Name, "access or digest is missing; %s", again)
			continue
		}
		v.same(descriptorFile, at+"digest.hashAlgorithm", r.Digest.HashAlgorithm, "SHA-256", "the only one that is used here")
		if b := slices.IndexFunc(blobs, func(b localBlob) bool { return b.name == r.Name }); b >= 0 {
			v.same(descriptorFile, at+"version", r.Version, c.Version, "that of "+configFile)
			digest := digestOf(v.files[blobs[b].file])
			v.same(descriptorFile, at+"access.localReference", r.Access.LocalReference, digest, "the digest of "+blobs[b].file)
			v.same(descriptorFile, at+"digest.value", "sha256:"+r.Digest.Value, digest, "the digest of "+blobs[b].file)
			v.same(descriptorFile, at+"access.mediaType", r.Access.MediaType, blobs[b].mediaType, "the type of the layer")
			continue
		}
		v.checkImageResource(at, r)
	}
	for _, b := range blobs {
		if !found[b.name] {
			v.report(descriptorFile, "component.resources", "", "%s is missing, the file %s; %s", b.name, b.file, again)
		}
	}
	if v.images == nil {
		return
	}
	for _, image := range v.images.Images {
		if name, _ := image.resource(); !found[name] {
			v.report(descriptorFile, "component.resources", "", "image %s is missing, which %s has; %s", image.Name, imagesFile, again)
		}
	}
}

// checkContexts looks for where the artifact is: that of the images, until it is pushed elsewhere.
func (v *verifier) checkContexts() {
	const at = "component.repositoryContexts"
	all := v.descriptor.Component.RepositoryContexts
	if len(all) == 0 {
		v.report(descriptorFile, at, "", "it is empty, and lifecycle-manager takes no layer from such a component; %s", again)
		return
	}
	last := all[len(all)-1]
	v.same(descriptorFile, at+".type", last.Type, "OCIRegistry", "where components of modules are")
	v.same(descriptorFile, at+".componentNameMapping", last.ComponentNameMapping, "urlPath", "how the artifact is named")
	if _, err := name.NewRepository(last.BaseURL, name.StrictValidation); err != nil || strings.Contains(last.BaseURL, "://") {
		v.report(descriptorFile, at+".baseUrl", last.BaseURL, "it has to be a registry with a path, without https://; %s", again)
	}
}

func (v *verifier) checkImageResource(at string, r componentResource) {
	_, _, digest := splitReference(r.Access.ImageReference)
	if digest == "" {
		v.report(descriptorFile, at+"access.imageReference", r.Access.ImageReference, byDigest)
	} else {
		v.same(descriptorFile, at+"digest.value", "sha256:"+r.Digest.Value, digest, "the digest of the reference")
	}
	if v.images == nil {
		return
	}
	i := slices.IndexFunc(v.images.Images, func(i imageEntry) bool { name, _ := i.resource(); return name == r.Name })
	if i < 0 {
		v.report(descriptorFile, at+"name", r.Name, "%s has no such image; %s", imagesFile, again)
		return
	}
	_, version := v.images.Images[i].resource()
	v.same(descriptorFile, at+"version", r.Version, version, "the tag and the digest of the image")
	v.same(descriptorFile, at+"access.imageReference", r.Access.ImageReference, v.images.Images[i].Reference, "the image of "+imagesFile)
}

// checkConstructor compares what OCM's tools would make with what the descriptor says.
func (v *verifier) checkConstructor() {
	if v.constructor == nil || v.descriptor == nil || v.config == nil {
		return
	}
	if len(v.constructor.Components) != 1 {
		v.report(constructorFile, "components", fmt.Sprint(len(v.constructor.Components)), "there has to be one component; %s", again)
		return
	}
	source := &Source{Version: v.config.Version, Config: *v.config}
	if want := source.constructor(v.descriptor); !bytes.Equal(toYAML(want), toYAML(v.constructor)) {
		v.report(constructorFile, "components[0]", v.constructor.Components[0].Name, "it describes another component than %s; %s", descriptorFile, again)
	}
}

func (v *verifier) checkLocks() {
	if v.definitions == nil {
		return
	}
	current := map[string]*crd.Lock{}
	for _, d := range v.definitions {
		for _, lock := range crd.Locks(d) {
			current[lock.Name()] = lock
			raw, ok := v.files[lockDir+lock.Name()]
			if !ok {
				v.report(lockDir+lock.Name(), "", "", "the file is missing; "+again)
			} else if want, err := lock.JSON(); err != nil || !bytes.Equal(raw, want) {
				v.report(lockDir+lock.Name(), "", "", "it is not the schema of %s in %s; %s", d.Name, v.config.Manifest, again)
			}
		}
	}
	for _, version := range slices.Sorted(maps.Keys(v.against.Released)) {
		locks := v.against.Released[version].Locks
		for _, name := range slices.Sorted(maps.Keys(locks)) {
			for _, b := range crd.Breaks(locks[name], current[name]) {
				v.report(lockDir+name, b.Path, "", "it %s; version %s accepted it, so objects of users would be refused", b.What, version)
			}
		}
	}
}

// checkNames finds files that do not belong to a bundle.
func (v *verifier) checkNames() {
	if v.config == nil {
		return
	}
	known := []string{
		configFile, scannersFile, releaseMetaFile, descriptorFile, constructorFile, imagesFile, manifestTar, defaultCRTar, v.config.Manifest, templateFile(v.config.Module(), v.config.Version),
	}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		if !slices.Contains(known, name) && !strings.HasPrefix(name, lockDir) && !strings.HasPrefix(name, sbomDir) && !isCR(name) {
			v.report(name, "", "", "it is no file of a bundle; remove it, or "+again)
		}
	}
	for _, of := range []struct{ file, entry, from string }{{manifestTar, "manifest.yaml", v.config.Manifest}, {defaultCRTar, "default-cr.yaml", v.config.DefaultCR}} {
		raw, ok := v.files[of.file]
		if !ok {
			v.report(of.file, "", "", "the file is missing; "+again)
		} else if want, err := tarOf(of.entry, v.files[of.from]); err != nil || !bytes.Equal(raw, want) {
			v.report(of.file, of.entry, "", "it is not %s; %s", of.from, again)
		}
	}
}
