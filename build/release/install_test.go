package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestPackageManagers: krew and Homebrew find each archive of their platforms, with its checksum,
// and the program in it.
func TestPackageManagers(t *testing.T) {
	for _, p := range plugins {
		t.Run(p.Program, func(t *testing.T) { testPackaged(t, p) })
	}
}

func testPackaged(t *testing.T, by plugin) {
	t.Helper()
	sums := map[string]string{}
	for _, p := range made.about.Platforms {
		file := archiveFile(by.Program, made.about.Version, p)
		raw, err := os.ReadFile(filepath.Join(made.dir, file))
		if err != nil {
			t.Fatal(err)
		}
		sums[homepage+"/releases/download/v"+made.about.Version+"/"+file] = strings.TrimPrefix(sum(raw), "sha256:")
	}
	raw, err := os.ReadFile(filepath.Join(made.dir, by.krewFile()))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.UnmarshalStrict(raw, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Spec.Platforms) != len(made.about.Platforms) || manifest.Spec.Version != "v"+made.about.Version || len(manifest.Spec.ShortDescription) > 50 || manifest.Metadata.Name != by.Name {
		t.Errorf("%+v", manifest)
	}
	for i, p := range manifest.Spec.Platforms {
		of := made.about.Platforms[i]
		if sums[p.URI] == "" || p.SHA256 != sums[p.URI] || p.Selector.MatchLabels["os"] != of.OS || p.Selector.MatchLabels["arch"] != of.Architecture || p.Bin != of.file(by.Program) {
			t.Errorf("%+v, %s", p, sums[p.URI])
		}
	}

	text, err := os.ReadFile(filepath.Join(made.dir, by.formulaFile()))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`url "(.*)"\n\s*sha256 "(.*)"`).FindAllSubmatch(text, -1)
	for _, pair := range found {
		if sums[string(pair[1])] != string(pair[2]) {
			t.Errorf("%s has %s", pair[1], pair[2])
		}
	}
	brewed := 0
	for _, p := range made.about.Platforms {
		if p.OS != "windows" {
			brewed++
		}
	}
	if len(found) != brewed || brewed == 0 {
		t.Errorf("%d of %d archives:\n%s", len(found), brewed, text)
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Log("ruby is not installed: the syntax of the formula is not checked")
	} else if out, err := exec.Command("ruby", "-c", filepath.Join(made.dir, by.formulaFile())).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
