package chart

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"text/template/parse"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

// deepest is how deep templates include each other: more is a template that includes itself.
const deepest = 1000

// templates are all that can be included, by name.
//
// What executes them is text/template without calls of methods: with those, whose names are known
// at run time only, the linker keeps each exported method of each type of Kubernetes
// (docs/decisions/1421-charts-without-helm-and-program-sizes.md).
type templates map[string]*parse.Tree

// add parses a file, and what it defines.
func (t templates) add(name, content string) error {
	parsed, err := parse.Parse(name, content, "", "", functions, builtins)
	if err != nil {
		return err
	}
	return t.join(parsed)
}

// join adds the templates of another chart. A name has one template: which of two is meant would
// depend on an order.
func (t templates) join(more templates) error {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if was := t[name]; was != nil {
			return fmt.Errorf("the template %q is in %s and in %s", name, was.ParseName, more[name].ParseName)
		}
		t[name] = more[name]
	}
	return nil
}

// execute returns the text of a template. data are plain values.
type execute func(name string, data any) (string, error)

// executor returns what executes the templates, also several at a time.
func (t templates) executor() (execute, error) {
	root := template.New("").Option("missingkey=error")
	var depth atomic.Int64
	execute := func(name string, data any) (string, error) {
		defer depth.Add(-1)
		if depth.Add(1) > deepest {
			return "", fmt.Errorf("the template %q includes itself", name)
		}
		var out strings.Builder
		if err := root.ExecuteTemplate(&out, name, data); err != nil {
			return "", err
		}
		for _, nothing := range []string{"<no value>", "%!"} {
			if strings.Contains(out.String(), nothing) {
				return "", fmt.Errorf("the template %q writes a value that is missing, or has no text: %s", name, nothing)
			}
		}
		return out.String(), nil
	}
	root.Funcs(functions).Funcs(template.FuncMap{"include": execute})
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if _, err := root.AddParseTree(name, t[name]); err != nil {
			return nil, err
		}
	}
	return execute, nil
}

// functions are those of sprig that give the same result each time, and those that Helm has in
// addition and our charts need.
var functions = func() map[string]any {
	all := map[string]any(sprig.HermeticTxtFuncMap())
	maps.Copy(all, map[string]any{
		"include": func(string, any) (string, error) { return "", nil }, // for the parser: see executor
		"required": func(message string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, errors.New(message)
			}
			return value, nil
		},
		"toYaml": func(value any) (string, error) {
			raw, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(raw), "\n"), err
		},
		"fromYaml": func(content string) (map[string]any, error) {
			m := map[string]any{}
			err := yaml.Unmarshal([]byte(content), &m)
			return m, err
		},
	})
	return all
}()

// builtins are the functions of text/template, for the parser, which wants only to know that they
// exist.
var builtins = map[string]any{
	"and": true, "or": true, "not": true, "len": true, "index": true, "slice": true, "print": true, "printf": true, "println": true,
	"eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true, "call": true, "html": true, "js": true, "urlquery": true,
}

// plain returns a copy of a value for templates: they can change it, and do not change the chart or
// the values of the caller.
func plain(at string, value any) (any, error) {
	switch value := value.(type) {
	case nil, string, bool, int, int64, float64:
		return value, nil
	case int32:
		return int64(value), nil
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, of := range value {
			var err error
			if out[key], err = plain(at+"."+key, of); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(value))
		for i, of := range value {
			var err error
			if out[i], err = plain(fmt.Sprintf("%s.%d", at, i), of); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return nil, fmt.Errorf("the value %s has the type %T, which templates do not know", at, value)
	}
}
