package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

const homepage = "https://github.com/kyma-project/eventmesh-migration"

// plugin is a command line as package managers describe it.
type plugin struct {
	// Program is its file; Name is what follows "kubectl", and Class what Homebrew calls it. Link
	// is the name by which kubectl finds it, if that is another one.
	Program, Name, Class, Link string
	// Short is for krew and has at most 50 characters, Brief is for Homebrew.
	Short, Brief string
	// Long is a paragraph, each of its lines indented by four.
	Long string
}

func (p plugin) krewFile() string    { return p.Program + ".krew.yaml" }
func (p plugin) formulaFile() string { return p.Program + ".rb" }

var plugins = []plugin{
	{
		Program: tool, Name: "eventmesh-migrate", Class: "EventmeshMigrate", Link: "kubectl-eventmesh_migrate",
		Short: "Migrate Kyma 1.10 to the Event Mesh", Brief: "Migrate Kyma 1.10 clusters to the Event Mesh",
		Long: `    Moves a live Kyma 1.10 cluster from the Event Bus to the Event Mesh (Knative
    Eventing): check, plan, run, verify, map and undo. Each change is in a
    journal first, so that a run that fails is rolled back, and a run that was
    killed is finished or undone.`,
	},
	{
		Program: eventingTool, Name: "eventing", Class: "KubectlEventing",
		Short: "See events that wait, and deliver them again", Brief: "See how Kyma's eventing is, and deliver dead letters again",
		Long: `    Shows how eventing is in one screen, the worst first: Subscriptions whose
    events wait, what their sinks answer, and the next command. Lists dead
    letters, delivers them again and deletes them. Sends a test event, and says
    who wants it.`,
	},
}

// download is an archive of the command line, as package managers need to know it.
type download struct {
	OS, Architecture, Program, URL, SHA256 string
}

// krew is the manifest of a kubectl plugin:
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
var krew = template.Must(template.New("krew").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: {{.Name}}
spec:
  version: v{{.Version}}
  homepage: {{.Homepage}}
  shortDescription: {{.Short}}
  description: |
{{.Long}}
  platforms:
{{- range .Downloads}}
  - selector:
      matchLabels:
        os: {{.OS}}
        arch: {{.Architecture}}
    uri: {{.URL}}
    sha256: {{.SHA256}}
    bin: {{.Program}}
{{- end}}
`))

// formula is that of Homebrew: https://docs.brew.sh/Formula-Cookbook.
//
//nolint:dupword // each block of Ruby has its end
var formula = template.Must(template.New("formula").Parse(`class {{.Class}} < Formula
  desc "{{.Brief}}"
  homepage "{{.Homepage}}"
  version "{{.Version}}"
  license "Apache-2.0"
{{range $os, $all := .Systems}}
  on_{{$os}} do
{{- range $all}}
    on_{{if eq .Architecture "arm64"}}arm{{else}}intel{{end}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "{{.Program}}"
{{- if .Link}}
    bin.install_symlink "{{.Program}}" => "{{.Link}}"
{{- end}}
    prefix.install "licenses"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/{{.Program}} version")
  end
end
`))

// packageManagers writes what krew and Homebrew install the command lines by.
func packageManagers(o options, into string) error {
	for _, p := range plugins {
		if err := packaged(o, p, into); err != nil {
			return err
		}
	}
	return nil
}

// packaged writes the files of one command line.
func packaged(o options, of plugin, into string) error {
	about := struct {
		plugin
		Version, Homepage string
		Downloads         []download
		Systems           map[string][]download
	}{of, o.Version, homepage, nil, map[string][]download{}}
	brewed := map[string]string{"darwin": "macos", "linux": "linux"}
	for _, p := range o.Platforms {
		file := archiveFile(of.Program, o.Version, p)
		raw, err := os.ReadFile(filepath.Join(into, file))
		if err != nil {
			return err
		}
		d := download{p.OS, p.Architecture, p.file(of.Program), fmt.Sprintf("%s/releases/download/v%s/%s", homepage, o.Version, file), strings.TrimPrefix(sum(raw), "sha256:")}
		about.Downloads = append(about.Downloads, d)
		if system := brewed[p.OS]; system != "" {
			about.Systems[system] = append(about.Systems[system], d)
		}
	}
	for name, t := range map[string]*template.Template{of.krewFile(): krew, of.formulaFile(): formula} {
		var text bytes.Buffer
		if err := t.Execute(&text, about); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(into, name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
