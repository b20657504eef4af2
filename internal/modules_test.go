package internal_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// notLinked are the modules of the root's go.mod that no program and no package for importers is
// linked from on Linux, each with the reason why it is there. Everything else of that kind is in a
// module of its own (docs/decisions/0001-libraries.md).
var notLinked = map[string]string{
	"github.com/cloudevents/sdk-go/v2":     "one module, which brings no other one: the adapter of test/eventservice and two fuzz tests need it",
	"github.com/google/go-tpm":             "NATS on Windows",
	"github.com/inconshreveable/mousetrap": "cobra on Windows",
}

// requirements are the versions in a go.mod, by module.
func requirements(t *testing.T, dir string) map[string]string {
	t.Helper()
	file := filepath.Join("..", dir, "go.mod")
	if _, err := os.ReadFile(file); err != nil { // as for load
		t.Fatal(err)
	}
	out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatalf("cannot read %s: %v", file, err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range mod.Require {
		all[r.Path] = r.Version
	}
	return all
}

// linked are the modules, of those that are required, that the programs and the packages for
// importers are linked from.
func linked(packages []*goPackage, required map[string]string) map[string]bool {
	all := map[string]bool{}
	for _, p := range packages {
		if strings.HasPrefix(p.ImportPath, module+"/internal/") {
			continue // what is needed of it is in Deps of the others
		}
		for _, dep := range p.Deps {
			for ; dep != "."; dep = path.Dir(dep) {
				if required[dep] != "" {
					all[dep] = true
					break
				}
			}
		}
	}
	return all
}

// unneeded says which required modules are neither linked nor have a reason, and which reasons are
// about no such module.
func unneeded(required map[string]string, linked map[string]bool, reasons map[string]string) (all []string) {
	for _, m := range slices.Sorted(maps.Keys(required)) {
		if !linked[m] && reasons[m] == "" {
			all = append(all, "go.mod needs no "+m+": no program is linked from it. What needs it is in a module of its own, such as build/release and test/knative")
		}
	}
	for _, m := range slices.Sorted(maps.Keys(reasons)) {
		if required[m] == "" || linked[m] {
			all = append(all, "notLinked needs no "+m+": go.mod does not have it, or a program is linked from it")
		}
	}
	return all
}

// TestImportersGetWhatProgramsNeed: who imports pkg/ has each module of the root's go.mod in the
// graph of its own, and in the reports of its scanner.
func TestImportersGetWhatProgramsNeed(t *testing.T) {
	required := requirements(t, ".")
	for _, problem := range unneeded(required, linked(load(t), required), notLinked) {
		t.Error(problem)
	}
}

func TestUnneededCatches(t *testing.T) {
	required := map[string]string{"a": "v1.0.0", "b": "v1.0.0", "c": "v1.0.0", "d": "v1.0.0"}
	var got []string
	for _, problem := range unneeded(required, map[string]bool{"a": true, "d": true}, map[string]string{"b": "tests", "d": "linked by now", "e": "gone"}) {
		before, _, _ := strings.Cut(problem, ": ")
		got = append(got, before)
	}
	if diff := cmp.Diff([]string{"go.mod needs no c", "notLinked needs no d", "notLinked needs no e"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestModulesShareVersions: modules that are built with the root's have the versions of the root's.
// With others, CI would compile each package twice, and a release would be tested with what it is
// not made of.
func TestModulesShareVersions(t *testing.T) {
	root, modules := requirements(t, "."), 0
	for name, text := range checkout(t) {
		dir := path.Dir(name)
		if path.Base(name) != "go.mod" || dir == "." || !strings.Contains(text, "replace "+module+" => ") {
			continue
		}
		modules++
		for m, version := range requirements(t, dir) {
			if root[m] != "" && root[m] != version {
				t.Errorf("%s has %s %s, go.mod has %s: make both equal, and run make fmt", name, m, version, root[m])
			}
		}
	}
	if modules < 4 {
		t.Errorf("%d modules are built with the root's", modules)
	}
}
