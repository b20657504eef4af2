package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
)

type definitions []*apiextensionsv1.CustomResourceDefinition

// of is the definition that serves a kind, nil if there is none.
func (all definitions) of(group, version, kind string) *apiextensionsv1.CustomResourceDefinition {
	for _, d := range all {
		if d.Spec.Group == group && d.Spec.Names.Kind == kind && slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version && v.Served }) {
			return d
		}
	}
	return nil
}

// parseObject reads one object. Whole numbers stay whole: a float64 would be written as 1e+06.
func parseObject(raw []byte) (*unstructured.Unstructured, error) {
	raw, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, utiljson.Unmarshal(raw, &u.Object)
}

// parseObjects reads a file with several objects.
func (v *verifier) parseObjects(file string) []*unstructured.Unstructured {
	raw, ok := v.files[file]
	if !ok {
		v.report(file, "", "", "the file is missing; "+again)
		return nil
	}
	var all []*unstructured.Unstructured
	for i, document := range bytes.Split(append([]byte("\n"), raw...), []byte("\n---\n")) {
		u, err := parseObject(document)
		if err != nil {
			v.report(file, fmt.Sprintf("document %d", i), "", "%s; %s", strings.Join(strings.Fields(err.Error()), " "), again)
			continue
		}
		if len(u.Object) == 0 {
			continue
		}
		if u.GetKind() == "" || u.GetAPIVersion() == "" || u.GetName() == "" {
			v.report(file, fmt.Sprintf("document %d", i), u.GetKind(), "it is no object with apiVersion, kind and name; %s", again)
			continue
		}
		all = append(all, u)
	}
	if len(all) == 0 {
		v.report(file, "", "", "it has no objects; "+again)
	}
	return all
}

func (v *verifier) parseDefinitions() definitions {
	var all definitions
	for _, u := range v.objects {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		raw, err := json.Marshal(u.Object)
		if err == nil {
			var d *apiextensionsv1.CustomResourceDefinition
			if d, err = crd.Parse(raw); err == nil {
				for _, fault := range crd.Established(d) {
					v.report(v.config.Manifest, named(u)+" "+fault.Field, fmt.Sprint(fault.BadValue), "%s", fault.ErrorBody())
				}
				all = append(all, d)
			}
		}
		if err != nil {
			v.report(v.config.Manifest, named(u), "", "%v; %s", err, again)
		}
	}
	return all
}

func named(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return u.GetKind() + " " + u.GetName()
	}
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// clusterKinds are the kinds of a manifest that have no namespace.
var clusterKinds = []string{"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}

func (v *verifier) checkManifest() {
	if v.config == nil || v.objects == nil {
		return
	}
	file, manager := v.config.Manifest, v.config.Manager
	seen := map[string]bool{}
	first := true
	for _, u := range v.objects {
		at := named(u)
		if seen[at] {
			v.report(file, at, "", "it is there twice; "+again)
		}
		seen[at] = true
		switch {
		case u.GetKind() == "Namespace":
			v.report(file, at, "", "a module does not own the namespace, and would delete it; remove it")
		case u.GetKind() == "Secret":
			v.report(file, at, "", "a manifest that everybody reads has no Secret; remove it")
		case slices.Contains(clusterKinds, u.GetKind()):
		case u.GetNamespace() != manager.Namespace:
			v.report(file, at+" metadata.namespace", u.GetNamespace(), "all of the module is in %s; %s", manager.Namespace, again)
		}
		if workload(u) && first {
			first = false
			if u.GetKind() != manager.Kind.Kind || u.GetName() != manager.Name {
				v.report(file, at, u.GetName(), "%s %s has to be the first Deployment or StatefulSet, which is the state of the module", manager.Kind.Kind, manager.Name)
			}
		}
	}
	if first {
		v.report(file, "", "", "there is no Deployment; "+again)
	}
	for _, of := range v.references {
		if of.argument {
			v.report(file, of.path, of.value, "Kyma's tools do not find an image in an argument, and do not move it to another registry; use a variable of the container")
		}
		if _, _, digest := splitReference(of.value); digest == "" {
			v.report(file, of.path, of.value, byDigest)
		}
	}
}

// reference is an image that a manifest names.
type reference struct {
	path, value string
	argument    bool
}

// readReferences finds the images of containers, and those that arguments and variables name for
// the operator to install.
func (v *verifier) readReferences() []reference {
	var all []reference
	for _, u := range v.objects {
		if !workload(u) {
			continue
		}
		var pod corev1.PodSpec
		spec, _, err := unstructured.NestedMap(u.Object, "spec", "template", "spec")
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(spec, &pod, true)
		}
		if err != nil {
			v.report(v.config.Manifest, named(u)+" spec.template.spec", "", "%v; %s", err, again)
			continue
		}
		for _, of := range []struct {
			name string
			all  []corev1.Container
		}{{"initContainers", pod.InitContainers}, {"containers", pod.Containers}} {
			for i, c := range of.all {
				at := fmt.Sprintf("%s spec.template.spec.%s[%d].", named(u), of.name, i)
				all = append(all, reference{path: at + "image", value: c.Image})
				for j, arg := range append(slices.Clone(c.Command), c.Args...) {
					flag, value, ok := strings.Cut(arg, "=")
					if ok && strings.HasSuffix(flag, "-image") {
						all = append(all, reference{fmt.Sprintf("%sargs[%d]", at, j-len(c.Command)), value, true})
					}
				}
				for j, env := range c.Env {
					if strings.HasSuffix(env.Name, "IMAGE") {
						all = append(all, reference{path: fmt.Sprintf("%senv[%d].value", at, j), value: env.Value})
					}
				}
			}
		}
	}
	return all
}

// isCR says whether a file is the default object or a sample.
func isCR(name string) bool {
	return strings.HasSuffix(name, "-cr.yaml") && !strings.Contains(name, "/")
}

// checkCRs judges the default object and the samples as an API server would.
func (v *verifier) checkCRs(ctx context.Context) {
	if v.config == nil {
		return
	}
	if _, ok := v.files[v.config.DefaultCR]; !ok {
		v.report(v.config.DefaultCR, "", "", "the file is missing; "+again)
	}
	validators := map[string]*crd.Validator{}
	for _, file := range slices.Sorted(maps.Keys(v.files)) {
		if !isCR(file) && file != v.config.DefaultCR {
			continue
		}
		objects := v.parseObjects(file)
		for _, u := range objects {
			kind := u.GroupVersionKind()
			d := v.definitions.of(kind.Group, kind.Version, kind.Kind)
			if d == nil {
				v.report(file, "kind", u.GetAPIVersion()+" "+u.GetKind(), "%s has no such kind; correct the sample in %s/cr", v.config.Manifest, sourceDir)
				continue
			}
			validator, ok := validators[kind.String()]
			if !ok {
				var err error
				if validator, err = crd.New(d, kind.Version); err != nil {
					v.report(v.config.Manifest, "CustomResourceDefinition "+d.Name, "", "%v", err)
				}
				validators[kind.String()] = validator
			}
			if validator == nil {
				continue
			}
			faults, err := validator.Validate(ctx, u)
			if err != nil {
				v.report(file, "kind", u.GetKind(), "%v", err)
			}
			for _, fault := range faults {
				value := ""
				if text, ok := fault.BadValue.(string); ok {
					value = text
				}
				v.report(file, strings.Trim(fault.Field, "."), value, "%s; correct it in %s/cr", fault.ErrorBody(), sourceDir)
			}
		}
		if file == v.config.DefaultCR && len(objects) == 1 {
			v.same(file, "metadata.namespace", objects[0].GetNamespace(), v.config.Manager.Namespace, "where the module is")
		}
	}
}

// spdx has the fields that are read of an SBOM.
type spdx struct {
	SPDXVersion       string `json:"spdxVersion"`
	DocumentNamespace string `json:"documentNamespace"`
	Packages          []struct {
		Name        string `json:"name"`
		VersionInfo string `json:"versionInfo"`
	} `json:"packages"`
}

func (v *verifier) checkSBOMs() {
	if v.images == nil {
		return
	}
	known := map[string]bool{}
	for _, image := range v.images.Images {
		file := sbomFile(image.Name)
		known[file] = true
		raw, ok := v.files[file]
		if !ok {
			v.report(file, "", "", "the file is missing, the list of modules of %s; %s", image.Name, again)
			continue
		}
		list := spdx{}
		if err := json.Unmarshal(raw, &list); err != nil {
			v.report(file, "", "", "%v; %s", err, again)
			continue
		}
		v.same(file, "spdxVersion", list.SPDXVersion, "SPDX-2.3", "the version of the format")
		if !strings.HasSuffix(list.DocumentNamespace, strings.TrimPrefix(image.Digest, "sha256:")) {
			v.report(file, "documentNamespace", list.DocumentNamespace, "it is about another image than %s; %s", image.Digest, again)
		}
		has := map[string]bool{}
		for _, p := range list.Packages {
			has[p.Name+" "+p.VersionInfo] = true
		}
		if len(has) == 0 {
			v.report(file, "packages", "", "it names no module; "+again)
		}
		for _, module := range modulesOf(v.against.Programs[image.Name]) {
			if !has[module] {
				v.report(file, "packages", "", "%s is linked from %s, which is missing; %s", image.Name, module, again)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		if strings.HasPrefix(name, sbomDir) && !known[name] {
			v.report(name, "", "", "%s has no such image; remove the file", imagesFile)
		}
	}
}

// modulesOf are the modules that a program is linked from, as "path version". Without a program
// there are none.
func modulesOf(info *debug.BuildInfo) []string {
	if info == nil {
		return nil
	}
	all := []string{info.Main.Path + " " + info.Main.Version}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		all = append(all, dep.Path+" "+dep.Version)
	}
	return all
}
