package chart_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
)

// files are those of a chart with a subchart, and more templates.
func files(more map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range map[string]string{
		"Chart.yaml":              "{name: outer, dependencies: [{name: inner, condition: inner.enabled}]}",
		"values.yaml":             "{global: {prefix: shop}, labels: {}, inner: {enabled: true}}",
		"templates/b.yaml":        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Values.global.prefix }}\n  labels: {{- toYaml .Values.labels | nindent 4 }}",
		"templates/a.yaml":        "# no object\n",
		"charts/inner/Chart.yaml": "{name: inner, version: 1.2.3}", "charts/inner/values.yaml": "{enabled: true, size: 3}",
		"charts/inner/templates/c.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: {{ include "name" . }}, namespace: {{ .Release.Namespace }}}}`,
		"templates/_names.tpl":          `{{- define "name" }}{{ .Values.global.prefix }}-{{ .Chart.Name }}-{{ .Values.size }}{{ end -}}`,
	} {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for name, text := range more {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func TestRender(t *testing.T) {
	for _, tc := range []struct {
		reason string
		more   map[string]string
		values map[string]any
		want   []string // names of objects
		err    []string // what the message has
	}{
		{reason: "a chart and its subchart", want: []string{"/shop", "kyma-system/shop-inner-3"}},
		{reason: "without the subchart", values: map[string]any{"inner": map[string]any{"enabled": false}}, want: []string{"/shop"}},
		{reason: "values over values", values: map[string]any{"global": map[string]any{"prefix": "x"}, "inner": map[string]any{"size": int32(4)}}, want: []string{"/x", "kyma-system/x-inner-4"}},
		{reason: "an unknown value", values: map[string]any{"inner": map[string]any{"siez": 4}}, err: []string{"inner.siez"}},
		{reason: "a value of another type", values: map[string]any{"labels": map[string]string{}}, err: []string{".Values.labels", "map[string]string"}},
		{
			reason: "a missing key in an included template", more: map[string]string{"templates/b.yaml": "\n{{ include \"name\" . }}"},
			err: []string{"templates/b.yaml", "templates/_names.tpl:1:", "<.Values.size>", `no entry for key "size"`},
		},
		{reason: "an unknown function", more: map[string]string{"templates/d.yaml": "a: b\nc: {{ nonsense }}"}, err: []string{"templates/d.yaml:2", "nonsense"}},
		{reason: "a template that includes itself", more: map[string]string{"templates/d.yaml": `{{ define "d" }}{{ include "d" . }}{{ end }}{{ include "d" . }}`}, err: []string{"templates/d.yaml", "itself"}},
		{reason: "two templates of one name", more: map[string]string{"charts/inner/templates/_d.tpl": `{{ define "name" }}x{{ end }}`}, err: []string{`"name"`, "templates/_names.tpl", "charts/inner/templates/_d.tpl"}},
		{reason: "no YAML", more: map[string]string{"templates/d.yaml": "a: b: c"}, err: []string{"templates/d.yaml"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var got []string
			c, err := chart.Load(files(tc.more), ".")
			if err == nil {
				objects, failed := c.Render(chart.Release{Name: "r", Namespace: "kyma-system"}, tc.values)
				for _, u := range objects {
					got = append(got, u.GetNamespace()+"/"+u.GetName())
				}
				err = failed
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if (err != nil) != (len(tc.err) > 0) {
				t.Fatal(err)
			}
			for _, part := range tc.err {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not have %q: %v", part, err)
				}
			}
		})
	}
}

// TestRenderRemembers: the same values give the same objects, whatever a caller has done with those
// that it got, or with its values. Any other value, and another release, gives others.
func TestRenderRemembers(t *testing.T) {
	c, err := chart.Load(files(nil), ".")
	if err != nil {
		t.Fatal(err)
	}
	release := chart.Release{Name: "r", Namespace: "kyma-system"}
	global := map[string]any{"prefix": "x"}
	values := map[string]any{"global": global}
	render := func(release chart.Release) *unstructured.Unstructured {
		t.Helper()
		objects, err := c.Render(release, values)
		if err != nil || len(objects) != 2 {
			t.Fatalf("%d objects, %v", len(objects), err)
		}
		return objects[1]
	}
	first := render(release)
	if first.GetName() != "x-inner-3" {
		t.Fatalf("it is called %s", first.GetName())
	}
	was := first.DeepCopy()
	first.SetLabels(map[string]string{"changed": "true"})
	first.SetName("changed")
	for range 2 {
		again := render(release)
		if diff := cmp.Diff(was.Object, again.Object); diff != "" {
			t.Errorf("once more (-first +now):\n%s", diff)
		}
		again.SetName("changed, too")
	}
	global["prefix"] = "y"
	if name := render(release).GetName(); name != "y-inner-3" {
		t.Errorf("with another value in the same map, it is called %s", name)
	}
	release.Namespace = "elsewhere"
	if namespace := render(release).GetNamespace(); namespace != "elsewhere" {
		t.Errorf("of another release, it is in %s", namespace)
	}
}

// TestTemplatesChangeNothing: what a template sets is gone with the next Render, for the chart as
// for the values of the caller.
func TestTemplatesChangeNothing(t *testing.T) {
	c, err := chart.Load(files(map[string]string{"templates/a.yaml": `{{ $_ := set .Values.labels "n" (len .Values.labels | toString) }}`}), ".")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"labels": map[string]any{"a": "b", "c": "d"}}
	for _, name := range []string{"one", "another"} { // the second is rendered, and not remembered
		objects, err := c.Render(chart.Release{Name: name}, values)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"a": "b", "c": "d", "n": "2"}, objects[0].GetLabels()); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(map[string]any{"labels": map[string]any{"a": "b", "c": "d"}}, values); diff != "" {
		t.Errorf("values (-before +after):\n%s", diff)
	}
}
