// Command applicationoverlay puts the event path of charts/application over the
// per-Application chart in application-operator's image.
//
//	go run ./build/applicationoverlay -chart kyma/components/application-operator/charts/application -into bin/image/application
//
// That chart contains more than the event path (gateway, validator, ingress), and an upgrade
// deletes objects that a new chart lacks. The chart is therefore kept unchanged, whatever its
// version, except for the objects that both charts have: their documents are cut out of its
// templates, and our templates and values are added. Nothing is written unless all of them were
// found and could be cut out completely.
//
//	go run ./build/applicationoverlay -connector kyma/resources/application-connector -repository eu.gcr.io/kyma-project/eventmesh-migration -tag 1
//
// The values of Kyma's chart application-connector name the images: those of
// application-operator and of event-service are set to <repository>/<name>:<tag>.
// Nothing else of the chart is changed, and it can be repeated.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	chart := flag.String("chart", "", "`folder` of the chart in application-operator's image: /application there")
	ours := flag.String("ours", "charts/application", "`folder` of the event path")
	into := flag.String("into", "bin/image/application", "`folder` to create; it must not exist")
	connector := flag.String("connector", "", "`folder` of Kyma's chart application-connector: set the images there, and do nothing else")
	repository := flag.String("repository", "", "`registry/path` of the images")
	tag := flag.String("tag", "", "`tag` of the images")
	digestsFile := flag.String("digests", "", "`file` with a line <registry/path>/<program>@sha256:... for each image; the digest replaces the tag")
	flag.Parse()
	var err error
	if *connector != "" {
		err = nameImages(filepath.Join(*connector, "values.yaml"), *repository, *tag, *digestsFile)
	} else {
		err = overlay(*chart, *ours, *into)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// object names what a document of a template makes.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

// replaced are the objects of the event path; true: without it, that chart is none
// that this program knows.
var replaced = map[object]bool{
	{"Deployment", "{{.Release.Name}}-event-service"}:         true,
	{"Service", "{{.Release.Name}}-event-service"}:            true,
	{"HTTPSource", "{{.Release.Name}}"}:                       true,
	{"ServiceAccount", "{{.Release.Name}}-event-service"}:     true,
	{"ClusterRole", "{{.Release.Name}}-event-service"}:        false,
	{"ClusterRoleBinding", "{{.Release.Name}}-event-service"}: false,
}

const (
	guard     = "guard.yaml"
	newValues = "eventServiceOnMesh"
)

func overlay(chart, ours, into string) error {
	if chart == "" {
		return errors.New("name the chart in application-operator's image: -chart")
	}
	if _, err := os.Lstat(into); err == nil {
		return fmt.Errorf("%s exists: remove it, or choose another folder with -into", into)
	}
	files := map[string][]byte{}
	if err := readAll(chart, files); err != nil {
		return fmt.Errorf("cannot read the chart %s: %w", chart, err)
	}
	if files["Chart.yaml"] == nil || files["values.yaml"] == nil {
		return fmt.Errorf("%s is no chart: Chart.yaml or values.yaml is missing", chart)
	}
	found := map[object]int{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "templates/") || filepath.Ext(name) != ".yaml" {
			continue
		}
		rest, err := cut(files[name], found)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[name] = rest
	}
	for o, needed := range replaced {
		if found[o] > 1 || needed && found[o] == 0 {
			return fmt.Errorf("%s has %d documents for %s, not one: the event path cannot be put over this chart", chart, found[o], o)
		}
	}
	if err := addOurs(files, ours); err != nil {
		return err
	}
	return writeAll(into, files)
}

// readAll reads the files of a folder, by their names in it.
func readAll(dir string, files map[string][]byte) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name], err = os.ReadFile(filepath.Join(dir, name))
		return err
	})
}

func writeAll(dir string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	separator = regexp.MustCompile(`(?m)^---[ \t]*\n`)
	kindLine  = regexp.MustCompile(`(?m)^kind:[ \t]*(\S+)`)
	nameLine  = regexp.MustCompile(`(?m)^  name:[ \t]*(.+?)[ \t]*$`)
	action    = regexp.MustCompile(`\{\{-?\s*(.*?)\s*-?\}\}`)
	opening   = regexp.MustCompile(`^(if|range|with|define|block)\b`)
)

// cut takes the documents of the event path out of a template, and counts them.
func cut(template []byte, found map[object]int) ([]byte, error) {
	documents := separator.Split(string(template), -1)
	kept := documents[:0:0]
	for _, d := range documents {
		o := objectOf(d)
		if _, ours := replaced[o]; !ours {
			kept = append(kept, d)
			continue
		}
		found[o]++
		// An {{ if }} that is closed in another document would be left open.
		if depth := depthOf(d); depth != 0 {
			return nil, fmt.Errorf("%s cannot be cut out: a template action that begins or ends with it spans other documents, too", o)
		}
	}
	if len(kept) == len(documents) {
		return template, nil
	}
	return []byte(strings.Join(kept, "---\n")), nil
}

func objectOf(document string) object {
	kind, name := kindLine.FindStringSubmatch(document), nameLine.FindStringSubmatch(document)
	if kind == nil || name == nil {
		return object{}
	}
	return object{kind[1], action.ReplaceAllString(strings.Trim(name[1], `"'`), "{{$1}}")}
}

func depthOf(document string) int {
	depth := 0
	for _, a := range action.FindAllStringSubmatch(document, -1) {
		switch {
		case opening.MatchString(a[1]):
			depth++
		case a[1] == "end":
			depth--
		}
		if depth < 0 {
			return depth
		}
	}
	return depth
}

// addOurs puts our templates and values to theirs.
func addOurs(files map[string][]byte, ours string) error {
	own := map[string][]byte{}
	if err := readAll(ours, own); err != nil {
		return fmt.Errorf("cannot read the chart of the event path: %w", err)
	}
	for name, content := range own {
		if !strings.HasPrefix(name, "templates/") || name == "templates/"+guard {
			continue
		}
		if theirs := bytes.TrimSpace(files[name]); len(theirs) > 0 {
			return fmt.Errorf("%s has more than the event path, and would be overwritten", name)
		}
		files[name] = content
	}
	// What was emptied only says that something is missing.
	for name, content := range files {
		if strings.HasPrefix(name, "templates/") && len(bytes.TrimSpace(content)) == 0 {
			files[name] = []byte("{{- /* replaced by the event path on the mesh */ -}}\n")
		}
	}
	values := string(files["values.yaml"])
	_, block, ok := strings.Cut(string(own["values.yaml"]), "\n"+newValues+":\n")
	switch {
	case !ok:
		return fmt.Errorf("the values of the event path have no block %q", newValues)
	case strings.Contains("\n"+values, "\n"+newValues+":"):
		return fmt.Errorf("the chart already has values %q: it is an overlay", newValues)
	}
	values = strings.TrimRight(values, "\n") + "\n\n" + newValues + ":\n" + block
	files["values.yaml"] = []byte(values)
	return complete(values, string(own["values.yaml"]))
}

// complete checks that the values our templates take from the operator's chart are
// there; a template that misses one fails when an Application is upgraded.
func complete(values, own string) error {
	var theirs, needed map[string]any
	if err := yaml.Unmarshal([]byte(values), &theirs); err != nil {
		return fmt.Errorf("cannot read the values: %w", err)
	}
	if err := yaml.Unmarshal([]byte(own), &needed); err != nil {
		return fmt.Errorf("cannot read the values of the event path: %w", err)
	}
	// The operator passes the image.
	delete(needed, "global")
	if missing := missingIn(theirs, needed, ""); len(missing) > 0 {
		return fmt.Errorf("the chart lacks the values %s", strings.Join(missing, ", "))
	}
	return nil
}

func missingIn(values, needed map[string]any, at string) []string {
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(needed)) {
		value, ok := values[key]
		if !ok {
			missing = append(missing, at+key)
			continue
		}
		inner, _ := value.(map[string]any)
		if deeper, isMap := needed[key].(map[string]any); isMap {
			missing = append(missing, missingIn(inner, deeper, at+key+".")...)
		}
	}
	return missing
}
