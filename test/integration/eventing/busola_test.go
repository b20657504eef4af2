package eventing_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// What Busola takes, by its schemas at 5d1c5fb (public/schemas/schema-*.yaml).
var (
	busolaWidgets = []string{
		"Alert", "Badge", "CodeViewer", "Columns", "ControlledBy", "EventList", "ExternalLink", "JoinedArray", "Labels", "Panel", "Plain", "ResourceLink",
		"ResourceList", "ResourceRefs", "Table", "Tabs", "Text",
	}
	busolaInputs     = []string{"Alert", "CodeEditor", "FormGroup", "GenericList", "KeyValuePair", "Name", "Resource", "ResourceRef", "SimpleList", "Text"}
	busolaHighlights = []string{"informative", "positive", "negative", "critical"}
	busolaEvents     = []string{"all", "information", "warning"}
	// busolaPath is an expression that is a field, and nothing else.
	busolaPath = regexp.MustCompile(`^(spec|status)(\.[A-Za-z]+)+$`)
)

// widget is a part of a page, shown or asked for.
type widget struct {
	Name, Source, Path, Widget, Filter, DefaultType, Description, Visibility string
	Highlights                                                               map[string][]string
	Children                                                                 []widget
	Enum                                                                     []string
	DefaultExpanded                                                          bool
}

// managerChart is the chart of the operator, and root the directory of this module.
func managerChart(t *testing.T) (root string, c *chart.Chart) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if c, err = chart.Load(os.DirFS(root), "charts/eventing-manager"); err != nil {
		t.Fatal(err)
	}
	return root, c
}

// TestBusola: the pages of both kinds are what Busola takes, every field that they show or ask for
// exists, and what a form offers is what the definition takes.
func TestBusola(t *testing.T) {
	root, c := managerChart(t)
	objects, err := c.Render(chart.Release{Name: "eventing-manager", Namespace: "kyma-system"}, map[string]any{"image": map[string]any{"tag": "v1"}})
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, u := range objects {
		if u.GetKind() != "ConfigMap" || u.GetLabels()["busola.io/extension"] == "" {
			continue
		}
		pages++
		if of := u.GetLabels(); of["busola.io/extension"] != "resource" || of["busola.io/extension-version"] != "0.5" || u.GetNamespace() != "kyma-system" {
			t.Errorf("%s is in %s, with the labels %v", u.GetName(), u.GetNamespace(), of)
		}
		busolaPage(t, root, u)
	}
	if pages != 2 {
		t.Errorf("%d pages, want one for each kind", pages)
	}
}

// kymaPages are the ConfigMaps of Kyma's modules, as they are released (config/default of
// eventing-manager 90ca37ae and nats-manager 8fabee2), all in kyma-system: name and urlPath of
// their pages by the names of the ConfigMaps.
var kymaPages = map[string]busolaKey{
	"eventings.operator.kyma-project.io": {"Eventing", "eventings"},
	"subscriptions":                      {"Subscriptions", "subscriptions"},
	"nats-operator.kyma-project.io":      {"NATS", "nats"},
}

// busolaKey is what tells pages apart, by isTheSameNameAndUrl of Busola at 5d1c5fb
// (src/state/navigation/extensionsAtom.ts).
type busolaKey struct {
	Name    string `json:"name"`
	URLPath string `json:"urlPath"`
}

// busolaShows returns the ConfigMap that Busola shows for each page to somebody who looks at a
// namespace. All are in kyma-system, and are read in the order of their names: a later one replaces
// an earlier one, unless the earlier one is in the namespace that is looked at (getExtensions).
func busolaShows(looksAt string, all map[string]busolaKey) map[busolaKey]string {
	shows := map[busolaKey]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if shows[all[name]] == "" || looksAt != "kyma-system" {
			shows[all[name]] = name
		}
	}
	return shows
}

// TestBusolaBesideKyma: our pages and those of Kyma's modules are other objects, and Busola shows
// one page for each kind: ours where its objects are.
func TestBusolaBesideKyma(t *testing.T) {
	root, c := managerChart(t)
	document, err := os.ReadFile(root + "/" + "docs/eventing/coming-from-kyma.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"eventing", "eventing-next"} {
		objects, err := c.Render(chart.Release{Name: "eventing-manager", Namespace: "kyma-system"}, map[string]any{"image": map[string]any{"tag": "v1"}, "resourcePrefix": prefix})
		if err != nil {
			t.Fatal(err)
		}
		ours, all := map[string]busolaKey{}, maps.Clone(kymaPages)
		for _, u := range objects {
			if u.GetLabels()["busola.io/extension"] == "" {
				continue
			}
			var key busolaKey
			general, _, _ := unstructured.NestedString(u.Object, "data", "general")
			if err := yaml.Unmarshal([]byte(general), &key); err != nil {
				t.Fatal(err)
			}
			if _, theirs := all[u.GetName()]; theirs {
				t.Errorf("ConfigMap %s is Kyma's", u.GetName())
			}
			ours[u.GetName()], all[u.GetName()] = key, key
			if prefix == "eventing-next" && !strings.Contains(string(document), u.GetName()) {
				t.Errorf("docs/eventing/coming-from-kyma.md does not say how ConfigMap %s is removed", u.GetName())
			}
		}
		eventings, subscriptions := busolaKey{"Eventing", "eventings"}, busolaKey{"Subscriptions", "subscriptions"}
		for _, tc := range []struct {
			looksAt                  string
			eventings, subscriptions bool // whether ours is shown
		}{
			{"kyma-system", true, false},
			{"shop", false, true},
			{"", false, true},
		} {
			shows := busolaShows(tc.looksAt, all)
			if len(shows) != len(kymaPages) {
				t.Errorf("with prefix %s, a kind has two pages: %v", prefix, shows)
			}
			for key, want := range map[busolaKey]bool{eventings: tc.eventings, subscriptions: tc.subscriptions} {
				if _, is := ours[shows[key]]; is != want {
					t.Errorf("with prefix %s, in namespace %q: %s is shown for %s", prefix, tc.looksAt, shows[key], key.Name)
				}
			}
			if alone := busolaShows(tc.looksAt, ours); ours[alone[eventings]] != eventings || ours[alone[subscriptions]] != subscriptions {
				t.Errorf("without Kyma's: %v", alone)
			}
		}
	}
}

func busolaPage(t *testing.T, root string, u *unstructured.Unstructured) {
	t.Helper()
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	var general struct {
		Resource                                    struct{ Kind, Group, Version string }
		Name, Category, Scope, URLPath, Description string
	}
	var list, form []widget
	var details struct{ Header, Body []widget }
	for key, into := range map[string]any{"general": &general, "list": &list, "details": &details, "form": &form} {
		if err := yaml.UnmarshalStrict([]byte(data[key]), into); err != nil {
			t.Errorf("%s, %s: %v", u.GetName(), key, err)
		}
	}
	raw, err := os.ReadFile(root + "/charts/eventing-manager/crds/" + general.Resource.Group + "_" + general.URLPath + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		t.Fatal(err)
	}
	if n := definition.Spec.Names; n.Kind != general.Resource.Kind || n.Plural != general.URLPath || definition.Spec.Versions[0].Name != general.Resource.Version || general.Scope != "namespace" {
		t.Errorf("%s is about %+v", u.GetName(), general)
	}
	schema := *definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, w := range slices.Concat(list, details.Header, details.Body) {
		shown(t, u.GetName(), w, schema)
	}
	for _, w := range form {
		asked(t, u.GetName(), w, schema)
	}
	if len(list) == 0 || len(details.Header) == 0 || len(details.Body) == 0 || len(form) == 0 {
		t.Errorf("%s has no list, no details or no form", u.GetName())
	}
}

// shown checks a part of a list or of details.
func shown(t *testing.T, page string, w widget, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if w.Widget != "" && !slices.Contains(busolaWidgets, w.Widget) || w.Path != "" || w.Source == "" && w.Widget != "EventList" {
		t.Errorf("%s: %+v is no part of a page", page, w)
	}
	if busolaPath.MatchString(w.Source) && property(schema, w.Source) == nil {
		t.Errorf("%s: %s is no field", page, w.Source)
	}
	for name := range w.Highlights {
		if w.Widget != "Badge" || !slices.Contains(busolaHighlights, name) {
			t.Errorf("%s: %s has the highlight %s", page, w.Source, name)
		}
	}
	if w.Widget == "EventList" && !slices.Contains(busolaEvents, w.DefaultType) {
		t.Errorf("%s shows %s of Events", page, w.DefaultType)
	}
	for _, child := range w.Children {
		if field, ok := strings.CutPrefix(child.Source, "$item."); ok && busolaPath.MatchString("spec."+field) {
			if items := property(schema, w.Source); items == nil || items.Items == nil || property(*items.Items.Schema, field) == nil {
				t.Errorf("%s: %s has no field %s", page, w.Source, field)
			}
		}
		shown(t, page, child, schema)
	}
}

// asked checks a part of a form.
func asked(t *testing.T, page string, w widget, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if w.Widget != "" && !slices.Contains(busolaInputs, w.Widget) || w.Path == "" || w.Source != "" {
		t.Errorf("%s: %+v is no part of a form", page, w)
	}
	if w.Path == "[]" {
		return
	}
	of := property(schema, w.Path)
	if of == nil {
		t.Errorf("%s: %s is no field", page, w.Path)
		return
	}
	for _, value := range w.Enum {
		if !slices.ContainsFunc(of.Enum, func(is apiextensionsv1.JSON) bool { return string(is.Raw) == `"`+value+`"` }) {
			t.Errorf("%s: %s offers %s, which the API server refuses", page, w.Path, value)
		}
	}
	for _, child := range w.Children {
		asked(t, page, child, *of)
	}
}

// property is a field of a schema, "spec.sink"; nil if there is none.
func property(schema apiextensionsv1.JSONSchemaProps, path string) *apiextensionsv1.JSONSchemaProps {
	for name := range strings.SplitSeq(path, ".") {
		next, ok := schema.Properties[name]
		if !ok {
			return nil
		}
		schema = next
	}
	return &schema
}
