package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func parsed(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

var makeTarget = regexp.MustCompile(`(?m)^\s*make ([a-z-]+)`)

// TestWorkflows: what a workflow runs exists here, and no workflow may write more than it needs.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("the workflows are %q, %v", files, err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Steps []struct{ Run, Uses string }
			}
		}
		parsed(t, file, &workflow)
		if diff := cmp.Diff(map[string]string{"contents": "read"}, workflow.Permissions); diff != "" {
			t.Errorf("%s: permissions (-want +got):\n%s", file, diff)
		}
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				all.WriteString(step.Run + "\n")
				// Others' actions get the secrets of the job.
				if step.Uses != "" && !strings.HasPrefix(step.Uses, "actions/") {
					t.Errorf("%s uses %s, which is not GitHub's own", file, step.Uses)
				}
			}
		}
	}
	targets := makeTarget.FindAllStringSubmatch(all.String(), -1)
	for _, target := range targets {
		if !strings.Contains(string(makefile), "\n"+target[1]+": ") {
			t.Errorf("a workflow makes %s, which the Makefile does not know", target[1])
		}
	}
	if len(targets) == 0 || !strings.Contains(all.String(), ".ci/run") || !strings.Contains(all.String(), "go -C build/release run . verify") {
		t.Errorf("the workflows run neither make release nor .ci/run:\n%s", &all)
	}
}

// TestEachPartOfCIHasAJob: what .ci/run knows, and what it runs without an argument.
func TestEachPartOfCIHasAJob(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct{ Part []string }
			}
		}
	}
	parsed(t, "../../.github/workflows/test.yml", &workflow)
	jobs := workflow.Jobs["part"].Strategy.Matrix.Part
	slices.Sort(jobs)
	script, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, part := range regexp.MustCompile(`(?m)^part_([a-z0-9]+)\(\)`).FindAllStringSubmatch(string(script), -1) {
		parts = append(parts, part[1])
	}
	slices.Sort(parts)
	if diff := cmp.Diff(parts, jobs); diff != "" || len(parts) == 0 {
		t.Errorf("jobs of the workflow (-in .ci/run +in test.yml):\n%s", diff)
	}
	_, all, _ := strings.Cut(string(script), "if (($# == 0)); then\n")
	all, _, _ = strings.Cut(all, "\nfi\n")
	ran := []string{"unit"} // "test" has it, too
	for _, line := range regexp.MustCompile(`(?m)^  (?:\.ci/run|beside [0-9]+) (.*)$`).FindAllStringSubmatch(all, -1) {
		ran = append(ran, strings.Fields(line[1])...)
	}
	slices.Sort(ran)
	if diff := cmp.Diff(parts, ran); diff != "" {
		t.Errorf("without an argument, .ci/run runs (-parts +it runs):\n%s", diff)
	}
}

// pinnedModules are not updated, each with the reason: docs/testing.md has the table of all
// modules.
var pinnedModules = map[string]string{
	"/test/helm/v2":              "Helm 2 and Tiller, at the version of Kyma",
	"/test/kubernetes/build":     "a control plane is changed together with its images and the node",
	"/test/natsstreaming":        "archived",
	"/test/ocm":                  "the last version under this path",
	"/test/servicecatalog/build": "Service Catalog 0.3.1, at the version of Kyma",
}

func TestDependabotKnowsEachModule(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		}
	}
	parsed(t, "../../.github/dependabot.yml", &config)
	var known []string
	for _, update := range config.Updates {
		known = append(known, update.Directories...)
	}
	for dir := range pinnedModules {
		known = append(known, dir)
	}
	var modules []string
	err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" || d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if d.Name() == "go.mod" {
			modules = append(modules, "/"+filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(file), "../.."), "/")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(known)
	slices.Sort(modules)
	if diff := cmp.Diff(modules, known); diff != "" {
		t.Errorf("modules of the repository, and those in dependabot.yml or left out with a reason (-repository +known):\n%s", diff)
	}
}

// TestIssueForms: GitHub ignores a form with a mistake, without a word.
func TestIssueForms(t *testing.T) {
	files, err := filepath.Glob("../../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("the forms are %q, %v", files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Value string }
			}
		}
		parsed(t, file, &form)
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s has no name, no description or no body", file)
		}
		for _, field := range form.Body {
			if !slices.Contains([]string{"markdown", "textarea", "input"}, field.Type) || field.Attributes.Label+field.Attributes.Value == "" || field.Type != "markdown" && field.ID == "" {
				t.Errorf("%s: a field is incomplete: %+v", file, field)
			}
		}
	}
}
