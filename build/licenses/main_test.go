package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/process"
)

// images is the platform of images.
var images = []string{"GOOS=linux", "CGO_ENABLED=0"}

// TestEachLinkedModuleIsInTheImageWithItsLicence collects for each command, and asks programs
// themselves what they are linked from. Fails on the commit before: images held a program and
// nothing else.
func TestEachLinkedModuleIsInTheImageWithItsLicence(t *testing.T) {
	mains, err := filepath.Glob("../../cmd/*/main.go")
	if err != nil || len(mains) < 8 {
		t.Fatalf("the commands are %q, %v", mains, err)
	}
	into := t.TempDir()
	for _, main := range append(mains, "nats-server=../../cmd/internal/nats-server") {
		command, of, found := strings.Cut(main, "=")
		if !found {
			command, of = filepath.Base(filepath.Dir(main)), filepath.Dir(main)
		}
		t.Run(command, func(t *testing.T) {
			dir := filepath.Join(into, command)
			modules, err := collect(t.Context(), of, dir, images)
			if err != nil {
				t.Fatal(err)
			}
			info := &debug.BuildInfo{}
			for _, m := range modules {
				switch {
				case m.Main || strings.HasPrefix(of, m.Path):
					info.Main = debug.Module{Path: m.Path, Version: m.Version}
				case m.Path == "go":
					info.GoVersion = "go" + m.Version
				default:
					info.Deps = append(info.Deps, &debug.Module{Path: m.Path, Version: m.Version})
				}
			}
			if missing := withoutText(info, dir); len(missing) > 0 || len(info.Deps) < 5 {
				t.Errorf("of %d linked modules, %q have no licence in the image", len(info.Deps), missing)
			}
		})
	}
	// These two are linked from all that any of them is.
	for _, command := range []string{"event-service", "eventmesh-migrate"} {
		if testing.Short() {
			break // they would have to be built
		}
		info, err := buildinfo.ReadFile(process.Build(t, "./cmd/"+command))
		if err != nil {
			t.Fatal(err)
		}
		if missing := withoutText(info, filepath.Join(into, command)); len(missing) > 0 || len(info.Deps) < 5 {
			t.Errorf("of the %d modules that %s says it is linked from, %q have no licence in the image", len(info.Deps), command, missing)
		}
	}
}

// TestTheDockerfilesCopyTheLicences: what is collected has to be in the images, too.
func TestTheDockerfilesCopyTheLicences(t *testing.T) {
	for file, want := range map[string]string{
		"../../Dockerfile":                      "COPY bin/image/licenses/${CMD} /licenses",
		"../../Dockerfile.nats-server":          "COPY bin/image/licenses/${CMD} /licenses",
		"../../Dockerfile.application-operator": "COPY LICENSE /licenses/eventmesh-migration/LICENSE",
		"../../.dockerignore":                   "!LICENSE",
	} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Split(string(raw), "\n"), want) {
			t.Errorf("%s has no line %q", filepath.Base(file), want)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		files    []string
		packages []string
		want     []string
		err      string
	}{
		{reason: "a text, and nothing else that is there", files: []string{"LICENSE", "README.md", "license.go", "main.go"}, want: []string{"LICENSE"}},
		{reason: "the Apache licence asks for the notice, too", files: []string{"LICENSE.txt", "NOTICE"}, want: []string{"LICENSE.txt", "NOTICE"}},
		{reason: "a grant of patents", files: []string{"LICENSE", "PATENTS"}, want: []string{"LICENSE", "PATENTS"}},
		{reason: "other names for it", files: []string{"COPYING", "LICENCE-MIT", "MIT-LICENSE.md", "UNLICENSE"}, want: []string{"COPYING", "LICENCE-MIT", "MIT-LICENSE.md", "UNLICENSE"}},
		{reason: "code of others has a text of its own", files: []string{"LICENSE", "third_party/forked/LICENSE", "third_party/forked/json/x.go"},
			packages: []string{"third_party/forked/json"}, want: []string{"LICENSE", "third_party/forked/LICENSE"}},
		{reason: "code of others that is not linked", files: []string{"LICENSE", "third_party/forked/LICENSE", "json/x.go"}, packages: []string{"json"}, want: []string{"LICENSE"}},
		{reason: "no text", files: []string{"README.md"}, err: "no licence is at its root"},
		{reason: "a notice is no licence", files: []string{"NOTICE"}, err: "no licence is at its root"},
	} {
		root := t.TempDir()
		for _, file := range tc.files {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var packages []string
		for _, p := range tc.packages {
			packages = append(packages, filepath.Join(root, p))
		}
		got, err := texts(root, packages)
		if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: error %v, files (-want +got):\n%s", tc.reason, err, diff)
		}
	}
}

func TestWithoutText(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"LICENSE", "go@1.26.0/LICENSE", "example.com/a@v1.0.0/LICENSE", "example.com/b@v1.0.0/NOTICE"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		reason string
		goes   string
		deps   []*debug.Module
		want   []string
	}{
		{reason: "all have one", goes: "go1.26.0", deps: []*debug.Module{{Path: "example.com/a", Version: "v1.0.0"}}},
		{reason: "of another version", goes: "go1.26.0", deps: []*debug.Module{{Path: "example.com/a", Version: "v1.1.0"}}, want: []string{"example.com/a"}},
		{reason: "a notice is no licence", goes: "go1.26.0", deps: []*debug.Module{{Path: "example.com/b", Version: "v1.0.0"}}, want: []string{"example.com/b"}},
		{reason: "Go's own", goes: "go1.27.0", want: []string{"go"}},
	} {
		got := withoutText(&debug.BuildInfo{GoVersion: tc.goes, Main: debug.Module{Path: ours}, Deps: tc.deps}, dir)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestOtherPlatformsHaveOtherModules: on Windows, the command line has a module more.
func TestOtherPlatformsHaveOtherModules(t *testing.T) {
	for _, tc := range []struct {
		goos string
		want bool
	}{{"linux", false}, {"windows", true}} {
		modules, _, err := linked(t.Context(), "../../cmd/eventmesh-migrate", []string{"GOOS=" + tc.goos, "CGO_ENABLED=0"})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(modules, func(m *module) bool { return m.Path == "github.com/inconshreveable/mousetrap" })
		if got != tc.want {
			t.Errorf("%s: linked from mousetrap: %t, not %t", tc.goos, got, tc.want)
		}
	}
}
