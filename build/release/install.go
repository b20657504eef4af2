package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

const (
	krewFile, formulaFile = "eventmesh-migrate.krew.yaml", "eventmesh-migrate.rb"
	homepage              = "https://github.com/kyma-project/eventmesh-migration"
)

// download is an archive of the command line, as package managers need to know it.
type download struct {
	OS, Architecture, Program, URL, SHA256 string
}

// krew is the manifest of a kubectl plugin:
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
var krew = template.Must(template.New(krewFile).Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: eventmesh-migrate
spec:
  version: v{{.Version}}
  homepage: {{.Homepage}}
  shortDescription: Migrate Kyma 1.10 to the Event Mesh
  description: |
    Moves a live Kyma 1.10 cluster from the Event Bus to the Event Mesh (Knative
    Eventing): check, plan, run, verify, map and undo. Each change is in a
    journal first, so that a run that fails is rolled back, and a run that was
    killed is finished or undone.
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
var formula = template.Must(template.New(formulaFile).Parse(`class EventmeshMigrate < Formula
  desc "Migrate Kyma 1.10 clusters to the Event Mesh"
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
    bin.install "eventmesh-migrate"
    bin.install_symlink "eventmesh-migrate" => "kubectl-eventmesh_migrate"
    prefix.install "licenses"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/eventmesh-migrate version")
  end
end
`))

// packageManagers writes what krew and Homebrew install the command line by.
func packageManagers(o options, into string) error {
	about := struct {
		Version, Homepage string
		Downloads         []download
		Systems           map[string][]download
	}{o.Version, homepage, nil, map[string][]download{}}
	brewed := map[string]string{"darwin": "macos", "linux": "linux"}
	for _, p := range o.Platforms {
		file := archiveFile(o.Version, p)
		raw, err := os.ReadFile(filepath.Join(into, file))
		if err != nil {
			return err
		}
		d := download{p.OS, p.Architecture, p.file(tool), fmt.Sprintf("%s/releases/download/v%s/%s", homepage, o.Version, file), strings.TrimPrefix(sum(raw), "sha256:")}
		about.Downloads = append(about.Downloads, d)
		if system := brewed[p.OS]; system != "" {
			about.Systems[system] = append(about.Systems[system], d)
		}
	}
	for _, t := range []*template.Template{krew, formula} {
		var text bytes.Buffer
		if err := t.Execute(&text, about); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(into, t.Name()), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
