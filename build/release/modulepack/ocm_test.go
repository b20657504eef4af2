//go:build slow

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
)

// TestOCMReadsTheModule asks the library of the Open Component Model for what was pushed. On
// f3299ef the component had no repository context, and no lifecycle-manager could install it.
func TestOCMReadsTheModule(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ocm")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../test/ocm", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build test/ocm: %v\n%s", err, out)
	}
	s := newSite(t)
	s.build()
	s.run(0, "render", "-images", s.layout, "-repository", "images.example/eventing")
	s.run(0, "push", "-registry", s.registry+"/modules")
	version := strings.TrimSpace(s.read("module/VERSION"))
	out, err := exec.CommandContext(t.Context(), program, s.file("dist/"+version+"/component-descriptor.yaml"), "http://"+s.registry+"/modules").Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, failed.Stderr)
	}
	s.check(err)
	var got struct {
		Registry, Mapping, Provider string
		Labels                      []string
		Resources                   map[string]string
	}
	s.check(json.Unmarshal(out, &got))
	if got.Registry != "images.example/eventing" || got.Mapping != "urlPath" || got.Provider != "kyma-project.io" {
		t.Errorf("the component is of %s, at %s by %s", got.Provider, got.Registry, got.Mapping)
	}
	labels := []string{
		"operator.kyma-project.io/beta", "operator.kyma-project.io/internal", "operator.kyma-project.io/requiresDowntime", "operator.kyma-project.io/is-cluster-scoped",
		"security.kyma-project.io/scan", "cloud.gardener.cnudie/responsibles",
	}
	if diff := cmp.Diff(labels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	files, err := bundle.ReadFiles(filepath.Join(s.root, "dist", version))
	s.check(err)
	want := map[string]string{"raw-manifest": digestOf(files["raw-manifest.tar"]), "default-cr": digestOf(files["default-cr.tar"]), "moduletemplate": digestOf(files["moduletemplate-eventing-"+version+".yaml"])}
	references, err := files.Images()
	s.check(err)
	for name, reference := range references {
		_, digest, _ := strings.Cut(reference, "@sha256:")
		want[name+"-"+digest[:8]] = ""
	}
	if diff := cmp.Diff(want, got.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}
