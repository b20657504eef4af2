package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/digests"
	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// chartNames are the charts that are installed by themselves. The others are overlays, which make
// overlay puts over Kyma's charts, or are part of the operator.
var chartNames = []string{"eventing-manager", "eventmesh-migration"}

// chartLayer is the type of a packaged chart in a registry.
const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

func chartRepository(name string) string    { return "charts/" + name }
func chartFile(name, version string) string { return name + "-" + version + ".tgz" }

// chart is a packaged one.
type chart struct {
	name, version string
	about         map[string]any
	archive       []byte
}

// packageChart packages a chart as helm package does, with its version, and with all images by
// digest.
func packageChart(o options, name string, images map[string]string) (chart, error) {
	files := map[string]artifact.File{}
	root := os.DirFS(filepath.Join(o.Root, "charts", name))
	names, err := filesIn(root)
	if err != nil {
		return chart{}, err
	}
	for _, file := range names {
		if path.Ext(file) == ".go" {
			continue // embeds the chart in the operator
		}
		raw, err := fs.ReadFile(root, file)
		if err != nil {
			return chart{}, err
		}
		switch file {
		case "Chart.yaml":
			raw, err = versioned(raw, o.Version)
		case "values.yaml":
			raw, err = pinned(raw, o.Repository, images)
		}
		if err != nil {
			return chart{}, fmt.Errorf("%s: %w", file, err)
		}
		files[name+"/"+file] = artifact.File{Content: raw}
	}
	c := chart{name: name, version: o.Version}
	if err := yaml.Unmarshal(files[name+"/Chart.yaml"].Content, &c.about); err != nil {
		return chart{}, fmt.Errorf("cannot read Chart.yaml: %w", err)
	}
	raw, err := artifact.Tar(files)
	if err != nil {
		return chart{}, err
	}
	c.archive, err = artifact.Gzip(raw)
	return c, err
}

var (
	versionLine    = regexp.MustCompile(`(?m)^version: .*$`)
	appVersionLine = regexp.MustCompile(`(?m)^appVersion: .*$`)
	repositoryLine = regexp.MustCompile(`(?m)^  repository: .*$`)
)

// versioned sets the version of a chart, and of its programs. Both are one: they are tested
// together.
func versioned(about []byte, version string) ([]byte, error) {
	for key, line := range map[string]*regexp.Regexp{"version": versionLine, "appVersion": appVersionLine} {
		if len(line.FindAll(about, -1)) != 1 {
			return nil, fmt.Errorf("it has no line %s, or several", key)
		}
		about = line.ReplaceAllLiteral(about, fmt.Appendf(nil, "%s: %q", key, version))
	}
	return about, nil
}

// pinned sets the repository and the digest of each image in the values of a chart, and leaves
// comments as they are.
func pinned(values []byte, repository string, images map[string]string) ([]byte, error) {
	wanted, err := imagesOf(values)
	if err != nil {
		return nil, err
	}
	if len(repositoryLine.FindAll(values, -1)) != 1 {
		return nil, fmt.Errorf("image.repository is not in one line")
	}
	values = repositoryLine.ReplaceAllLiteral(values, []byte("  repository: "+repository))
	for program := range wanted {
		digest, ok := images[program]
		line := []byte("\n    " + program + `: ""` + "\n")
		if !ok || bytes.Count(values, line) != 1 {
			return nil, fmt.Errorf("image.digests.%s: no such image, or not in one line", program)
		}
		values = bytes.Replace(values, line, []byte("\n    "+program+": "+digest+"\n"), 1)
	}
	if wanted, err = imagesOf(values); err != nil {
		return nil, err
	}
	return values, digests.Complete("values.yaml", wanted)
}

// imagesOf returns the digests in the values of a chart, by program.
func imagesOf(values []byte) (map[string]string, error) {
	var v struct {
		Image struct {
			Digests map[string]string `json:"digests"`
		} `json:"image"`
	}
	if err := yaml.Unmarshal(values, &v); err != nil {
		return nil, err
	}
	if len(v.Image.Digests) == 0 {
		return nil, fmt.Errorf("image.digests is empty")
	}
	return v.Image.Digests, nil
}

// chartImages returns the digests in a packaged chart, by program.
func chartImages(archive []byte, name string) (map[string]string, error) {
	files, err := untar(archive)
	if err != nil {
		return nil, err
	}
	values, ok := files[strings.Join([]string{name, "values.yaml"}, "/")]
	if !ok {
		return nil, fmt.Errorf("it has no values.yaml")
	}
	return imagesOf(values)
}
