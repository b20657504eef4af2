package bundle

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// source is that of the repository.
func source(t *testing.T) *Source {
	t.Helper()
	s, err := ReadSource(os.DirFS("../../../.."))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// images are some for the programs of the repository's chart, with two modules each.
func images(t *testing.T, s *Source) []Image {
	t.Helper()
	programs, err := s.Programs()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(programs, "eventing-manager") || !slices.Contains(programs, "nats-server") {
		t.Fatalf("programs %q", programs)
	}
	var all []Image
	for _, program := range programs {
		all = append(all, Image{Tag: s.Version,
			Name: program, Repository: "registry.example/eventing", Digest: digestOf([]byte(program)), Size: 12345, Commit: commit, Created: time.Unix(1700000000, 0),
			Info: &debug.BuildInfo{GoVersion: "go1.26.8", Path: "example.org/" + program, Main: debug.Module{Path: "example.org/" + program, Version: "v1.2.3"}, Deps: []*debug.Module{{Path: "example.org/library", Version: "v0.1.0", Sum: "h1:x"}}},
		})
	}
	return all
}

func rendered(t *testing.T) (*Source, []Image, Files) {
	t.Helper()
	s := source(t)
	all := images(t, s)
	files, err := Render(s, all)
	if err != nil {
		t.Fatal(err)
	}
	return s, all, files
}

func programs(all []Image) map[string]*debug.BuildInfo {
	of := map[string]*debug.BuildInfo{}
	for _, i := range all {
		of[i.Name] = i.Info
	}
	return of
}

// TestRender: the bundle of this repository is valid, and the same each time.
func TestRender(t *testing.T) {
	s, all, files := rendered(t)
	want := []string{
		"component-constructor.yaml", "component-descriptor.yaml", "crd-lock/eventings.v1alpha1.json", "crd-lock/subscriptions.v1alpha2.json", "default-cr.tar",
		"eventing-default-cr.yaml", "eventing-eventmesh-cr.yaml", "eventing-kcp-cr.yaml", "eventing-manager.yaml", "eventing-single-node-cr.yaml",
		"images.json", "module-config.yaml", "module-release-meta.yaml", "moduletemplate-eventing-" + s.Version + ".yaml", "raw-manifest.tar",
	}
	for _, i := range all {
		want = append(want, "sbom/"+i.Name+".spdx.json")
	}
	want = append(want, "sec-scanners-config.yaml")
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	found := Verify(t.Context(), files, Against{Channels: s.Channels, Before: s.Channels, Released: s.Released, Programs: programs(all)})
	for _, f := range found {
		t.Error(f)
	}
	slices.Reverse(all)
	again, err := Render(source(t), all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files, again); diff != "" {
		t.Errorf("the same input makes other bytes (-first +second):\n%s", diff)
	}
	one, two := mustDigest(t, files), mustDigest(t, again)
	if one != two {
		t.Errorf("the artifact is %s, then %s", one, two)
	}
}

// TestAnotherName: the operator's Deployment can have another name, and another namespace.
func TestAnotherName(t *testing.T) {
	s := source(t)
	s.Config.Manager.Name, s.Config.Manager.Namespace = "eventing-controller-manager", "eventing"
	s.CRs[s.Config.DefaultCR] = bytes.Replace(s.CRs[s.Config.DefaultCR], []byte("namespace: kyma-system"), []byte("namespace: eventing"), 1)
	files, err := Render(s, images(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Verify(t.Context(), files, Against{}) {
		t.Error(f)
	}
	if text := string(files[s.Config.Manifest]); !strings.Contains(text, "  name: eventing-controller-manager\n  namespace: eventing\n") || strings.Contains(text, "namespace: kyma-system") {
		t.Error("the manifest has the names of the default")
	}
}

func mustDigest(t *testing.T, files Files) string {
	t.Helper()
	image, err := files.Artifact("registry.example/eventing")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// TestRefusedToRender: what cannot become a bundle is refused before a file is written.
func TestRefusedToRender(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(s *Source, all []Image) []Image
		want   string
	}{
		{reason: "an image is missing", change: func(_ *Source, all []Image) []Image { return all[1:] }, want: "the chart has the programs"},
		{reason: "an image too many", change: func(_ *Source, all []Image) []Image {
			return append(all, Image{Name: "x", Repository: all[0].Repository, Tag: all[0].Tag, Commit: commit})
		}, want: "the chart has the programs"},
		{reason: "two repositories", change: func(_ *Source, all []Image) []Image { all[1].Repository = "other.example"; return all }, want: "different repositories"},
		{reason: "two commits", change: func(_ *Source, all []Image) []Image { all[1].Commit = "x"; return all }, want: "build all of them again"},
		{reason: "no default object", change: func(s *Source, all []Image) []Image { delete(s.CRs, s.Config.DefaultCR); return all }, want: "eventing-default-cr.yaml is missing"},
		{reason: "no digest", change: func(_ *Source, all []Image) []Image { all[0].Digest = "latest"; return all }, want: "sha256"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := source(t)
			if _, err := Render(s, tc.change(s, images(t, s))); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestBrokenBundles: each fault is named, with its file and where it is, and nothing else is said
// of it but what follows from it.
func TestBrokenBundles(t *testing.T) {
	s, all, good := rendered(t)
	template := "moduletemplate-eventing-" + s.Version + ".yaml"
	manager := all[slices.IndexFunc(all, func(i Image) bool { return i.Name == "eventing-manager" })]
	nats := all[slices.IndexFunc(all, func(i Image) bool { return i.Name == "nats-server" })]
	lock, err := crd.ParseLock(good["crd-lock/eventings.v1alpha1.json"])
	if err != nil {
		t.Fatal(err)
	}
	spec := func(l *crd.Lock, change func(p map[string]apiextensionsv1.JSONSchemaProps)) *crd.Lock {
		raw, err := l.JSON()
		if err != nil {
			t.Fatal(err)
		}
		of, err := crd.ParseLock(raw)
		if err != nil {
			t.Fatal(err)
		}
		change(of.Schema.Properties["spec"].Properties)
		return of
	}
	for _, tc := range []struct {
		reason  string
		replace [3]string // in a file, a text, by another one
		files   func(f Files)
		against func(a *Against)
		want    []string // parts of one finding; the rest may follow from it
	}{
		{reason: "no name of a component", replace: [3]string{"module-config.yaml", "name: kyma-project.io/module/eventing", "name: Eventing"}, want: []string{"module-config.yaml at name", `"Eventing"`}},
		{reason: "a name of a module that lifecycle-manager refuses", replace: [3]string{"module-config.yaml", "name: kyma-project.io/module/eventing", "name: kyma-project.io/module/e2"}, want: []string{"module-config.yaml at name", "three lower-case letters"}},
		{reason: "a version with a v", replace: [3]string{"module-config.yaml", "version: " + s.Version, "version: v" + s.Version}, want: []string{"module-config.yaml at version", `"v` + s.Version}},
		{reason: "a version that lifecycle-manager refuses", replace: [3]string{"module-config.yaml", "version: " + s.Version, "version: 1.0.0-rc.1"}, want: []string{"module-config.yaml at version", "1.0.0-rc1"}},
		{reason: "no https", replace: [3]string{"module-config.yaml", "documentation: https://", "documentation: http://"}, want: []string{"module-config.yaml at documentation", "https://"}},
		{reason: "no team", replace: [3]string{"module-config.yaml", "team: kyma/eventing", `team: ""`}, want: []string{"module-config.yaml at team"}},
		{reason: "a misspelt field", replace: [3]string{"module-config.yaml", "team:", "teem:"}, want: []string{"module-config.yaml", "teem"}},
		{reason: "another Deployment first", replace: [3]string{"eventing-manager.yaml", "---\napiVersion: apps/v1\nkind: Deployment\n", "---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: other, namespace: kyma-system}\n---\napiVersion: apps/v1\nkind: Deployment\n"}, want: []string{"eventing-manager.yaml at StatefulSet kyma-system/other", "first Deployment"}},
		{reason: "an image by tag", replace: [3]string{"eventing-manager.yaml", "image: " + manager.reference(), "image: registry.example/eventing/eventing-manager:0.1.0"}, want: []string{"eventing-manager.yaml at Deployment kyma-system/eventing-manager spec.template.spec.containers[0].image", "by digest"}},
		{reason: "latest", replace: [3]string{"eventing-manager.yaml", "image: " + manager.reference(), "image: registry.example/eventing/eventing-manager:latest"}, want: []string{"containers[0].image", ":latest", "by digest"}},
		{reason: "no tag, by which Kyma's tools know an image", replace: [3]string{"eventing-manager.yaml", "image: registry.example/eventing/eventing-manager:" + s.Version + "@", "image: registry.example/eventing/eventing-manager@"}, want: []string{"containers[0].image", "as its tag"}},
		{reason: "an image of an argument", replace: [3]string{"eventing-manager.yaml", "--resource-prefix=eventing", "--nats-image=" + nats.reference()}, want: []string{"containers[0].args[0]", nats.reference(), "use a variable"}},
		{reason: "an image of a variable by tag", replace: [3]string{"eventing-manager.yaml", "value: " + nats.reference(), "value: nats:2.15"}, want: []string{"containers[0].env[1].value", "nats:2.15"}},
		{reason: "an image that the list does not have", replace: [3]string{"eventing-manager.yaml", "value: " + nats.reference(), "value: registry.example/eventing/nats-server:" + s.Version + "@" + digestOf(nil)}, want: []string{"eventing-manager.yaml at", "env[1].value", "images.json does not have"}},
		{reason: "an image that nobody uses", replace: [3]string{"eventing-manager.yaml", nats.reference(), manager.reference()}, want: []string{"images.json at images", "nats-server", "does not use"}},
		{reason: "a Namespace", replace: [3]string{"eventing-manager.yaml", "---\napiVersion: apps/v1\n", "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: kyma-system}\n---\napiVersion: apps/v1\n"}, want: []string{"eventing-manager.yaml at Namespace kyma-system", "remove it"}},
		{reason: "an object of another namespace", replace: [3]string{"eventing-manager.yaml", "name: eventing-manager-metrics\n  namespace: kyma-system", "name: eventing-manager-metrics\n  namespace: default"}, want: []string{"Service default/eventing-manager-metrics metadata.namespace", `"default"`}},
		{reason: "an unknown field of a pod", replace: [3]string{"eventing-manager.yaml", "serviceAccountName:", "serviceAcountName:"}, want: []string{"Deployment kyma-system/eventing-manager spec.template.spec", "serviceAcountName"}},
		{reason: "no YAML", replace: [3]string{"eventing-manager.yaml", "kind: Deployment", "kind: [Deployment"}, want: []string{"eventing-manager.yaml at document"}},
		{reason: "no manifest", files: func(f Files) { delete(f, "eventing-manager.yaml") }, want: []string{"eventing-manager.yaml: the file is missing"}},
		{reason: "a default object that the schema refuses", replace: [3]string{"eventing-default-cr.yaml", "type: NATS", "type: Kafka"}, want: []string{"eventing-default-cr.yaml at spec.backend.type", `"Kafka"`}},
		{reason: "a sample that a CEL rule refuses", replace: [3]string{"eventing-single-node-cr.yaml", "min: 1", "min: 3"}, want: []string{"eventing-single-node-cr.yaml at spec.publisher.replicas"}},
		{reason: "a sample with an unknown field", replace: [3]string{"eventing-eventmesh-cr.yaml", "type:", "tpye:"}, want: []string{"eventing-eventmesh-cr.yaml at spec.backend.tpye", "no such field"}},
		{reason: "a sample of another kind", replace: [3]string{"eventing-kcp-cr.yaml", "kind: Eventing", "kind: Keda"}, want: []string{"eventing-kcp-cr.yaml at kind", "Keda"}},
		{reason: "a default object elsewhere", replace: [3]string{"eventing-default-cr.yaml", "namespace: kyma-system", "namespace: default"}, want: []string{"eventing-default-cr.yaml at metadata.namespace", "kyma-system"}},
		{reason: "a ModuleTemplate of another module", replace: [3]string{template, "moduleName: eventing", "moduleName: keda"}, want: []string{template + " at spec.moduleName", "keda"}},
		{reason: "a ModuleTemplate without its label", replace: [3]string{template, "operator.kyma-project.io/module-name", "operator.kyma-project.io/module"}, want: []string{template + " at metadata.labels"}},
		{reason: "a ModuleTemplate with another default object", replace: [3]string{template, "type: NATS", "type: EventMesh"}, want: []string{template + " at spec.data"}},
		{reason: "a ModuleTemplate with another manager", replace: [3]string{template, "kind: Deployment", "kind: StatefulSet"}, want: []string{template + " at spec.manager"}},
		{reason: "a kind that is not in the manifest", replace: [3]string{template, "kind: Subscription", "kind: Subscriber"}, want: []string{template + " at spec.associatedResources[0]", "Subscriber"}},
		{reason: "a link to another version", replace: [3]string{template, "/download/v" + s.Version + "/", "/download/v9.9.9/"}, want: []string{template + " at spec.resources[0].link", "9.9.9"}},
		{reason: "a channel that cannot be", replace: [3]string{"module-release-meta.yaml", "channel: fast", "channel: v2"}, want: []string{"module-release-meta.yaml at spec.channels[0].channel", `"v2"`}},
		{reason: "a channel twice", replace: [3]string{"module-release-meta.yaml", "channel: fast", "channel: regular"}, want: []string{"module-release-meta.yaml at spec.channels[1].channel", "twice"}},
		{reason: "a version that was not released", replace: [3]string{"module-release-meta.yaml", "channel: fast\n    version: " + s.Version, "channel: fast\n    version: 7.0.0"}, want: []string{"module-release-meta.yaml at spec.channels[0].version", "7.0.0", "not released"}},
		{reason: "a channel that goes down", against: func(a *Against) { a.Before = []Channel{{"fast", "99.0.0"}} }, want: []string{"module-release-meta.yaml at spec.channels[0].version", "99.0.0", "never goes down"}},
		{reason: "other channels than the source", against: func(a *Against) { a.Channels = a.Channels[1:] }, want: []string{"module-release-meta.yaml at spec.channels", "module/channels.yaml"}},
		{reason: "no channel", replace: [3]string{"module-release-meta.yaml", "channels:\n", "channels: []\n#"}, want: []string{"module-release-meta.yaml"}},
		{reason: "another component", replace: [3]string{"component-descriptor.yaml", "name: kyma-project.io/module/eventing", "name: kyma-project.io/module/other"}, want: []string{"component-descriptor.yaml at component.name", "other"}},
		{reason: "another format of descriptors", replace: [3]string{"component-descriptor.yaml", "schemaVersion: v2", "schemaVersion: v3"}, want: []string{"component-descriptor.yaml at meta.schemaVersion"}},
		{reason: "no repository context, so that lifecycle-manager installs nothing", replace: [3]string{"component-descriptor.yaml", "repositoryContexts:\n  - baseUrl: registry.example/eventing\n    componentNameMapping: urlPath\n    type: OCIRegistry\n", "repositoryContexts: []\n"}, want: []string{"component-descriptor.yaml at component.repositoryContexts", "takes no layer"}},
		{reason: "a repository context with a protocol", replace: [3]string{"component-descriptor.yaml", "baseUrl: registry", "baseUrl: https://registry"}, want: []string{"component-descriptor.yaml at component.repositoryContexts.baseUrl", "without https://"}},
		{reason: "a label less", replace: [3]string{"component-descriptor.yaml", "name: security.kyma-project.io/scan", "name: security.kyma-project.io/scam"}, want: []string{"component-descriptor.yaml at component.labels[4]", "security.kyma-project.io/scan"}},
		{reason: "an image that the descriptor lacks", replace: [3]string{"component-descriptor.yaml", "name: nats-server-", "name: other-"}, want: []string{"component-descriptor.yaml at component.resources", "nats-server is missing"}},
		{reason: "an image of the descriptor by tag", replace: [3]string{"component-descriptor.yaml", "imageReference: " + nats.reference(), "imageReference: registry.example/eventing/nats-server:1"}, want: []string{"component-descriptor.yaml at component.resources", "imageReference", "by digest"}},
		{reason: "a digest of an image that is another one", replace: [3]string{"component-descriptor.yaml", "value: " + strings.TrimPrefix(nats.Digest, "sha256:"), "value: " + strings.TrimPrefix(manager.Digest, "sha256:")}, want: []string{"component-descriptor.yaml at component.resources", "digest.value"}},
		{reason: "a digest of a layer that is another one", replace: [3]string{"component-descriptor.yaml", "localReference: sha256:", "localReference: sha256:0"}, want: []string{"component-descriptor.yaml at component.resources", "localReference", "digest of raw-manifest.tar"}},
		{reason: "no commit", replace: [3]string{"component-descriptor.yaml", commit, "unknown"}, want: []string{"component-descriptor.yaml at component.sources[0].access.commit", "unknown"}},
		{reason: "another component of the constructor", replace: [3]string{"component-constructor.yaml", "path: raw-manifest.tar", "path: other.tar"}, want: []string{"component-constructor.yaml at components[0]"}},
		{reason: "another manifest in the artifact", files: func(f Files) { f["raw-manifest.tar"] = append(bytes.Clone(f["raw-manifest.tar"]), 0) }, want: []string{"raw-manifest.tar at manifest.yaml", "it is not eventing-manager.yaml"}},
		{reason: "a mutable tag", replace: [3]string{"images.json", `"tag": "` + s.Version + `"`, `"tag": "latest"`}, want: []string{"images.json at images[0].tag", "latest"}},
		{reason: "another digest in the list of images", replace: [3]string{"images.json", `"digest": "` + nats.Digest, `"digest": "` + manager.Digest}, want: []string{"images.json at images", "digest", "the reference has"}},
		{reason: "no size", replace: [3]string{"images.json", `"size": 12345`, `"size": 0`}, want: []string{"images.json at images[0].size"}},
		{reason: "no SBOM", files: func(f Files) { delete(f, "sbom/nats-server.spdx.json") }, want: []string{"sbom/nats-server.spdx.json", "missing"}},
		{reason: "an SBOM of another image", replace: [3]string{"sbom/nats-server.spdx.json", strings.TrimPrefix(nats.Digest, "sha256:"), strings.TrimPrefix(manager.Digest, "sha256:")}, want: []string{"sbom/nats-server.spdx.json at documentNamespace", "another image"}},
		{reason: "an SBOM that lacks a module", replace: [3]string{"sbom/nats-server.spdx.json", `"name": "example.org/library"`, `"name": "example.org/lib"`}, want: []string{"sbom/nats-server.spdx.json at packages", "example.org/library v0.1.0"}},
		{reason: "a file too many", files: func(f Files) { f["notes.txt"] = nil }, want: []string{"notes.txt", "no file of a bundle"}},
		{reason: "a lock of another schema", replace: [3]string{"crd-lock/eventings.v1alpha1.json", `"backend"`, `"backends"`}, want: []string{"crd-lock/eventings.v1alpha1.json", "not the schema"}},
		{reason: "a field less than a released version", against: func(a *Against) {
			a.Released = map[string]Release{"0.0.9": {Locks: map[string]*crd.Lock{lock.Name(): spec(lock, func(p map[string]apiextensionsv1.JSONSchemaProps) {
				p["gone"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
			})}}}
		}, want: []string{"crd-lock/eventings.v1alpha1.json at .spec.gone", "0.0.9 accepted it"}},
		{reason: "a smaller enum than a released version", against: func(a *Against) {
			a.Released = map[string]Release{"0.0.9": {Locks: map[string]*crd.Lock{lock.Name(): spec(lock, func(p map[string]apiextensionsv1.JSONSchemaProps) {
				typ := p["backend"].Properties["type"]
				typ.Enum = append(typ.Enum, apiextensionsv1.JSON{Raw: []byte(`"BEB"`)})
				p["backend"].Properties["type"] = typ
			})}}}
		}, want: []string{"crd-lock/eventings.v1alpha1.json at .spec.backend.type", `"BEB"`}},
		{reason: "a version of a kind that is gone", against: func(a *Against) {
			a.Released = map[string]Release{"0.0.9": {Locks: map[string]*crd.Lock{"eventings.v1alpha0.json": {Version: "v1alpha0"}}}}
		}, want: []string{"crd-lock/eventings.v1alpha0.json", "served no longer"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			files := maps.Clone(good)
			if file := tc.replace[0]; file != "" {
				changed := bytes.Replace(files[file], []byte(tc.replace[1]), []byte(tc.replace[2]), 1)
				if bytes.Equal(changed, files[file]) {
					t.Fatalf("%s does not have %q:\n%s", file, tc.replace[1], files[file])
				}
				files[file] = changed
			}
			if tc.files != nil {
				tc.files(files)
			}
			against := Against{Channels: s.Channels, Before: s.Channels, Released: s.Released, Programs: programs(all)}
			if tc.against != nil {
				tc.against(&against)
			}
			found := Verify(t.Context(), files, against)
			if !slices.ContainsFunc(found, func(f Finding) bool {
				for _, part := range tc.want {
					if !strings.Contains(f.String(), part) {
						return false
					}
				}
				return true
			}) {
				t.Errorf("no finding has all of %q: %v", tc.want, found)
			}
			for _, f := range found {
				if words := len(strings.Fields(f.Do)); words > 25 || f.Do == "" || f.File == "" {
					t.Errorf("%d words: %s", words, f)
				}
			}
		})
	}
}

// TestAllFaultsAtOnce: the first fault does not hide the others.
func TestAllFaultsAtOnce(t *testing.T) {
	s, all, files := rendered(t)
	replace := func(file, old, by string) {
		files[file] = bytes.Replace(files[file], []byte(old), []byte(by), 1)
	}
	replace("eventing-default-cr.yaml", "type: NATS", "type: Kafka")
	replace("module-config.yaml", "team: kyma/eventing", `team: ""`)
	replace("images.json", `"size": 12345`, `"size": 0`)
	files["component-descriptor.yaml"] = []byte("{")
	var at []string
	for _, f := range Verify(t.Context(), files, Against{Channels: s.Channels, Programs: programs(all)}) {
		at = append(at, f.File)
	}
	want := []string{"component-descriptor.yaml", "default-cr.tar", "eventing-default-cr.yaml", "images.json", "module-config.yaml", "moduletemplate-eventing-" + s.Version + ".yaml"}
	if diff := cmp.Diff(want, slices.Compact(at)); diff != "" {
		t.Errorf("files with faults (-want +got):\n%s", diff)
	}
	if len(Verify(t.Context(), Files{}, Against{})) < 5 {
		t.Error("an empty bundle has fewer than five faults")
	}
}

func TestPromote(t *testing.T) {
	const channels = "# a comment\nfast: 0.2.0\nregular: 0.1.0 # since Monday\nalpha: 0.3.0-rc1\n"
	for _, tc := range []struct{ reason, from, to, want, err string }{
		{reason: "one line changes", from: "fast", to: "regular", want: strings.Replace(channels, "regular: 0.1.0", "regular: 0.2.0", 1)},
		{reason: "a version before a release", from: "alpha", to: "fast", want: strings.Replace(channels, "fast: 0.2.0", "fast: 0.3.0-rc1", 1)},
		{reason: "the same version", from: "fast", to: "fast", want: channels},
		{reason: "down", from: "regular", to: "fast", err: "which is newer"},
		{reason: "an unknown channel", from: "slow", to: "fast", err: `no channel "slow"`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := Promote([]byte(channels), tc.from, tc.to)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("channels (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := ParseChannels([]byte("fast: 1.0.0\nfast: 1.0.0\n")); err == nil {
		t.Error("a channel that is there twice was read")
	}
}

// TestReadSource: a source that cannot be used is refused, with the file.
func TestReadSource(t *testing.T) {
	good := map[string]string{
		"module/VERSION": "1.0.0\n", "module/channels.yaml": "fast: 1.0.0\n", "module/module-config.yaml": "name: kyma-project.io/module/eventing\n", "module/cr/a-cr.yaml": "{}",
		"module/releases/0.9.0/release.yaml": "artifact: sha256:1\n", "module/releases/0.9.0/as.v1.json": `{"version": "v1", "schema": {}}`,
	}
	for _, tc := range []struct{ reason, file, text, want string }{
		{reason: "as it should be"},
		{reason: "a version with a v", file: "module/VERSION", text: "v1.0.0", want: `"v1.0.0"`},
		{reason: "channels in a list", file: "module/channels.yaml", text: "- fast", want: "module/channels.yaml"},
		{reason: "a version in the configuration", file: "module/module-config.yaml", text: "version: 1.0.0", want: "module/VERSION"},
		{reason: "an unknown field", file: "module/module-config.yaml", text: "nam: x", want: `"nam"`},
		{reason: "a lock without a schema", file: "module/releases/0.9.0/as.v1.json", text: "{}", want: "module/releases/0.9.0/as.v1.json"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range good {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if tc.file != "" {
				root[tc.file] = &fstest.MapFile{Data: []byte(tc.text)}
			}
			s, err := ReadSource(root)
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if err == nil && (s.Released["0.9.0"].Locks["as.v1.json"] == nil || len(s.CRs) != 1) {
				t.Errorf("source %+v", s)
			}
		})
	}
}

// TestFiles: what is written is read again, and a file of an older bundle is gone.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dist", "1.0.0")
	for _, files := range []Files{{"old": []byte("x"), "a": []byte("1")}, {"a": []byte("2"), "b/c": []byte("3")}} {
		if err := files.Write(dir); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(files, got); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 1 {
		t.Errorf("%d entries beside the bundle, %v", len(left), err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFiles(dir); err == nil {
		t.Error("a link was followed")
	}
}
