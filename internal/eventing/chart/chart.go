// Package chart renders a Helm chart without Helm, with the functions of Helm that give the same
// result each time. A test compares each result with that of the real Helm. Helm's own engine makes
// the operator larger than its limit
// (docs/decisions/1421-charts-without-helm-and-program-sizes.md).
package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Chart is a chart that was read.
type Chart struct {
	name      string
	condition string // the value that enables it, as seen by its parent: "nats.enabled"
	metadata  map[string]any
	values    map[string]any
	files     []string // the paths of the templates, sorted
	templates templates
	charts    []*Chart
	// executor has the templates of all charts below, also of those that are not enabled. It is
	// made once.
	executor func() (execute, error)
	// last is the newest rendering.
	last atomic.Pointer[rendering]
}

// rendering is what Render has returned, and for what.
type rendering struct {
	release Release
	values  map[string]any // a copy
	objects []*unstructured.Unstructured
}

// Release is what templates know as .Release.
type Release struct {
	Name, Namespace string
}

// Load reads a chart from a directory, and parses its templates. A function that is unknown here is
// an error, also when Helm knows it.
func Load(files fs.FS, dir string) (*Chart, error) {
	c := &Chart{templates: templates{}}
	if err := readYAML(files, path.Join(dir, "Chart.yaml"), &c.metadata); err != nil {
		return nil, err
	}
	c.name, _ = c.metadata["name"].(string)
	if c.name == "" {
		return nil, fmt.Errorf("%s/Chart.yaml has no name", dir)
	}
	if err := readYAML(files, path.Join(dir, "values.yaml"), &c.values); err != nil {
		return nil, err
	}
	err := fs.WalkDir(files, path.Join(dir, "templates"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		c.files = append(c.files, name)
		return c.templates.add(name, string(raw))
	})
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.name, err)
	}
	slices.Sort(c.files)
	subcharts, err := fs.ReadDir(files, path.Join(dir, "charts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("chart %s: %w", c.name, err)
	}
	for _, d := range subcharts {
		sub, err := Load(files, path.Join(dir, "charts", d.Name()))
		if err != nil {
			return nil, err
		}
		sub.condition = c.conditionOf(sub.name)
		c.charts = append(c.charts, sub)
	}
	c.executor = sync.OnceValues(func() (execute, error) {
		all := templates{}
		if err := c.collect(all); err != nil {
			return nil, err
		}
		return all.executor()
	})
	return c, nil
}

// collect adds the templates of a chart and of its subcharts. All share their named templates.
func (c *Chart) collect(all templates) error {
	if err := all.join(c.templates); err != nil {
		return err
	}
	for _, sub := range c.charts {
		if err := sub.collect(all); err != nil {
			return err
		}
	}
	return nil
}

func readYAML(files fs.FS, name string, into any) error {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *Chart) conditionOf(dependency string) string {
	all, _ := c.metadata["dependencies"].([]any)
	for _, d := range all {
		if m, _ := d.(map[string]any); m["name"] == dependency {
			condition, _ := m["condition"].(string)
			return condition
		}
	}
	return ""
}

// Render renders the chart with values over its own. Objects come in the order of the names of
// their files, those of subcharts after those of their parent. An unknown key of values is an
// error: it would be a setting without effect. So is a key that a template reads and nothing has.
// Values are map[string]any, []any, string, bool, int, int32, int64, float64 and nil; they are not
// changed. The same values give the same objects, so the newest rendering is kept: an operator asks
// for it each time that it looks. The objects are the caller's own.
func (c *Chart) Render(release Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	// Integers of all sizes are one type for templates.
	copied, err := plain(".Values", values)
	if err != nil {
		return nil, err
	}
	own, _ := copied.(map[string]any)
	if last := c.last.Load(); last != nil && last.release == release && reflect.DeepEqual(last.values, own) {
		return copies(last.objects), nil
	}
	objects, err := c.render(release, values)
	if err != nil {
		return nil, err
	}
	c.last.Store(&rendering{release, own, objects})
	return copies(objects), nil
}

func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objects))
	for i, u := range objects {
		out[i] = u.DeepCopy()
	}
	return out
}

func (c *Chart) render(release Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	if err := c.unknown("", values); err != nil {
		return nil, err
	}
	r := &renderer{release: map[string]any{"Name": release.Name, "Namespace": release.Namespace, "Service": "Helm"}}
	if err := r.add(c, merge(c.values, values)); err != nil {
		return nil, err
	}
	execute, err := c.executor()
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, t := range r.todo {
		text, err := execute(t.name, t.data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		of, err := objectsOf(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		objects = append(objects, of...)
	}
	return objects, nil
}

// unknown finds keys that neither the chart nor a subchart has a value for. What is below an empty
// map is anybody's.
func (c *Chart) unknown(at string, values map[string]any) error {
	known := maps.Clone(c.values)
	for _, sub := range c.charts {
		own, _ := known[sub.name].(map[string]any)
		known[sub.name] = merge(sub.values, own)
	}
	return unknown(at, known, values)
}

func unknown(at string, known, values map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		was, ok := known[key]
		if !ok {
			return fmt.Errorf("the chart has no value %s%s", at, key)
		}
		below, isMap := was.(map[string]any)
		if of, ok := values[key].(map[string]any); ok && isMap && len(below) > 0 {
			if err := unknown(at+key+".", below, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// merge returns the values of over, and where it has none, those of base.
func merge(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range over {
		below, isMap := out[key].(map[string]any)
		if of, ok := value.(map[string]any); ok && isMap {
			value = merge(below, of)
		}
		out[key] = value
	}
	return out
}

type renderer struct {
	release map[string]any
	todo    []file
}

type file struct {
	name string
	data any
}

// add collects the files of a chart and of the subcharts that are enabled.
func (r *renderer) add(c *Chart, values map[string]any) error {
	data, err := plain("", map[string]any{"Values": values, "Release": r.release, "Chart": upper(c.metadata)})
	if err != nil {
		return err
	}
	for _, name := range c.files {
		if !strings.HasPrefix(path.Base(name), "_") {
			r.todo = append(r.todo, file{name, data})
		}
	}
	for _, sub := range c.charts {
		if sub.condition != "" && !enabled(values, sub.condition) {
			continue
		}
		own, _ := values[sub.name].(map[string]any)
		of := merge(sub.values, own)
		global, _ := values["global"].(map[string]any)
		of["global"] = merge(nil, global)
		if err := r.add(sub, of); err != nil {
			return err
		}
	}
	return nil
}

// upper has the keys of Chart.yaml as templates know them: .Chart.Name.
func upper(metadata map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range metadata {
		out[strings.ToUpper(key[:1])+key[1:]] = value
	}
	return out
}

func enabled(values map[string]any, condition string) bool {
	on, found, err := unstructured.NestedBool(values, strings.Split(condition, ".")...)
	return err == nil && (on || !found)
}

// objectsOf reads the objects of a rendered file. Comments and empty documents are none.
func objectsOf(text string) (objects []*unstructured.Unstructured, err error) {
	for d := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := d.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		raw, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, err
		}
		objects = append(objects, u)
	}
}
