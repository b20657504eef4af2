package crd_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
)

func definition(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	raw, err := os.ReadFile("../../../../charts/eventing-manager/crds/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := crd.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

const head = "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing, namespace: kyma-system}, "

// TestValidate: moduletest asks a real API server about the same kinds of objects.
func TestValidate(t *testing.T) {
	d := definition(t, "operator.kyma-project.io_eventings")
	eventing, err := crd.New(d, "v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, text string
		want         []string // parts of each error
	}{
		{reason: "nothing said", text: head + "spec: {}}"},
		{reason: "the object of the users' document", text: head + "spec: {backend: {type: nats}}, status: {state: Ready}}"},
		{reason: "as users of Kyma's own operator write it, without a backend", text: head + "spec: {publisher: {replicas: {min: 2, max: 2}, resources: {limits: {cpu: 500m, memory: 512Mi}, requests: {cpu: 40m, memory: 64Mi}}}}}"},
		{reason: "as they write it for NATS", text: head + "spec: {backend: {type: NATS, config: {natsStreamStorageType: File, natsStreamReplicas: 3, natsStreamMaxSize: 700Mi, natsMaxMsgsPerTopic: 1000000}}, logging: {logLevel: Info}}}"},
		{reason: "as they write it for the remote service", text: head + "spec: {backend: {type: EventMesh, config: {eventMeshSecret: kyma-system/eventing-backend, eventTypePrefix: sap.kyma.custom}}}}"},
		{reason: "a field that does not exist", text: head + "spec: {backend: {typ: nats}}}", want: []string{"spec.backend.typ"}},
		{reason: "a value that is not in the enum", text: head + "spec: {backend: {type: kafka}}}", want: []string{`spec.backend.type: Unsupported value: "kafka"`}},
		{reason: "another type", text: head + "spec: {controller: {replicas: two}}}", want: []string{"spec.controller.replicas"}},
		{reason: "what the same rule allows", text: head + "spec: {publisher: {replicas: {min: 1, max: 2}}, controller: {replicas: 1}}}"},
		{reason: "a rule of one field with another", text: head + "spec: {publisher: {replicas: {min: 3, max: 2}}}}", want: []string{"min must not be greater"}},
		{reason: "a rule with a default", text: head + "spec: {backend: {type: NATS, config: {natsStreamMaxSize: 2Gi}}}}", want: []string{"spec.backend.config"}},
		{reason: "two faults", text: head + "spec: {backend: {type: kafka, typ: nats}}}", want: []string{"spec.backend.typ", "spec.backend.type"}},
		{reason: "no namespace", text: "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing}, spec: {}}", want: []string{"metadata.namespace"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			u := object(t, tc.text)
			before := u.DeepCopy()
			got, err := eventing.Validate(t.Context(), u)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tc.want) {
				t.Fatalf("got %v, want %q", got, tc.want)
			}
			for i, part := range tc.want {
				if !strings.Contains(got[i].Error(), part) {
					t.Errorf("error %d does not have %q: %v", i, part, got[i])
				}
			}
			if diff := cmp.Diff(before, u); diff != "" {
				t.Errorf("the object was changed (-before +after):\n%s", diff)
			}
		})
	}
	if _, err := eventing.Validate(t.Context(), object(t, "{apiVersion: operator.kyma-project.io/v1beta1, kind: Eventing, metadata: {name: a, namespace: b}}")); err == nil {
		t.Error("an object of another version was judged")
	}
	if _, err := crd.New(d, "v1beta1"); err == nil {
		t.Error("a version that is not served was accepted")
	}
}

// TestBreaks: what users may rely on, and what may change.
func TestBreaks(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	float := func(n float64) *float64 { return &n }
	yes := true
	for _, tc := range []struct {
		reason string
		change func(spec *apiextensionsv1.JSONSchemaProps)
		want   []string // "<path> <what>", only parts
	}{
		{reason: "nothing changes", change: func(*apiextensionsv1.JSONSchemaProps) {}},
		{reason: "another description", change: func(s *apiextensionsv1.JSONSchemaProps) { s.Description = "better" }},
		{reason: "a new field", change: func(s *apiextensionsv1.JSONSchemaProps) {
			s.Properties["new"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}},
		{reason: "a larger enum", change: func(s *apiextensionsv1.JSONSchemaProps) {
			p := s.Properties["enum"]
			p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: []byte(`"c"`)})
			s.Properties["enum"] = p
		}},
		{reason: "no enum any longer", change: set("enum", func(p *apiextensionsv1.JSONSchemaProps) { p.Enum = nil })},
		{reason: "wider limits", change: set("text", func(p *apiextensionsv1.JSONSchemaProps) { p.MaxLength, p.MinLength, p.Pattern = number(20), nil, "" })},
		{reason: "required no longer", change: func(s *apiextensionsv1.JSONSchemaProps) { s.Required = nil }},
		{reason: "a field less", change: func(s *apiextensionsv1.JSONSchemaProps) { delete(s.Properties, "text") }, want: []string{".spec.text is gone"}},
		{reason: "a field deep down less", change: set("deep", func(p *apiextensionsv1.JSONSchemaProps) { delete(p.Items.Schema.Properties, "a") }), want: []string{".spec.deep[].a is gone"}},
		{reason: "another type", change: set("text", func(p *apiextensionsv1.JSONSchemaProps) { p.Type = "integer" }), want: []string{".spec.text was string and is integer"}},
		{reason: "a smaller enum", change: set("enum", func(p *apiextensionsv1.JSONSchemaProps) { p.Enum = p.Enum[:1] }), want: []string{`.spec.enum does not take "b"`}},
		{reason: "an enum where none was", change: set("text", func(p *apiextensionsv1.JSONSchemaProps) { p.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"x"`)}} }), want: []string{".spec.text has an enum"}},
		{reason: "required", change: func(s *apiextensionsv1.JSONSchemaProps) { s.Required = append(s.Required, "text") }, want: []string{".spec.text is required"}},
		{reason: "shorter", change: set("text", func(p *apiextensionsv1.JSONSchemaProps) { p.MaxLength = number(9) }), want: []string{".spec.text has a smaller maxLength: 9"}},
		{reason: "longer", change: set("text", func(p *apiextensionsv1.JSONSchemaProps) { p.MinLength = number(2) }), want: []string{".spec.text has a larger minLength: 2"}},
		{reason: "a smaller maximum", change: set("number", func(p *apiextensionsv1.JSONSchemaProps) { p.Maximum = float(4) }), want: []string{".spec.number has a smaller maximum: 4"}},
		{reason: "a minimum", change: set("number", func(p *apiextensionsv1.JSONSchemaProps) { p.Minimum = float(1) }), want: []string{".spec.number has a larger minimum: 1"}},
		{reason: "another pattern", change: set("text", func(p *apiextensionsv1.JSONSchemaProps) { p.Pattern = "^a$" }), want: []string{".spec.text has another pattern: ^a$"}},
		{reason: "unknown fields are pruned", change: set("open", func(p *apiextensionsv1.JSONSchemaProps) { p.XPreserveUnknownFields = nil }), want: []string{".spec.open keeps unknown"}},
		{reason: "a new rule", change: func(s *apiextensionsv1.JSONSchemaProps) {
			s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: "has(self.text)"})
		}, want: []string{".spec has a new rule: has(self.text)"}},
		{reason: "the same rule in two lines", change: func(s *apiextensionsv1.JSONSchemaProps) { s.XValidations[0].Rule = "size(self.enum)\n  > 0" }},
		{reason: "no null any longer", change: set("open", func(p *apiextensionsv1.JSONSchemaProps) { p.Nullable = false }), want: []string{".spec.open may be null"}},
		{reason: "values of a map", change: set("map", func(p *apiextensionsv1.JSONSchemaProps) { p.AdditionalProperties.Schema.Type = "integer" }), want: []string{".spec.map{} was string"}},
		{reason: "no map any longer", change: set("map", func(p *apiextensionsv1.JSONSchemaProps) { p.AdditionalProperties = nil }), want: []string{".spec.map{} is gone"}},
		{reason: "two at once", change: func(s *apiextensionsv1.JSONSchemaProps) { delete(s.Properties, "text"); delete(s.Properties, "enum") }, want: []string{".spec.enum is gone", ".spec.text is gone"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			lock := func() *crd.Lock {
				return &crd.Lock{Group: "g", Kind: "K", Plural: "ks", Scope: "Namespaced", Version: "v1", Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {
						Type: "object", Required: []string{"enum"}, XValidations: []apiextensionsv1.ValidationRule{{Rule: "size(self.enum) > 0"}},
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"text":   {Type: "string", MaxLength: number(10), MinLength: number(1), Pattern: "^[a-z]*$"},
							"number": {Type: "integer", Maximum: float(5)},
							"enum":   {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}, {Raw: []byte(`"b"`)}}},
							"deep":   {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string"}}}}},
							"map":    {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
							"open":   {Type: "object", Nullable: true, XPreserveUnknownFields: &yes},
						},
					},
				}}}
			}
			now := lock()
			spec := now.Schema.Properties["spec"]
			tc.change(&spec)
			now.Schema.Properties["spec"] = spec
			got := crd.Breaks(lock(), now)
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i, part := range tc.want {
				if text := got[i].Path + " " + got[i].What; !strings.Contains(text, part) {
					t.Errorf("%q does not have %q", text, part)
				}
			}
		})
	}
	if got := crd.Breaks(&crd.Lock{Version: "v1"}, nil); len(got) != 1 {
		t.Errorf("a version that is gone: %v", got)
	}
}

func set(name string, change func(p *apiextensionsv1.JSONSchemaProps)) func(*apiextensionsv1.JSONSchemaProps) {
	return func(s *apiextensionsv1.JSONSchemaProps) {
		p := s.Properties[name]
		change(&p)
		s.Properties[name] = p
	}
}

// TestLocks: what is stored is read again as it was, and has all versions.
func TestLocks(t *testing.T) {
	for _, name := range []string{"operator.kyma-project.io_eventings", "eventing.kyma-project.io_subscriptions"} {
		d := definition(t, name)
		before := d.DeepCopy()
		locks := crd.Locks(d)
		if len(locks) != 1 {
			t.Fatalf("%s has %d locks", name, len(locks))
		}
		raw, err := locks[0].JSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), `"description": "`) {
			t.Errorf("%s has descriptions", name)
		}
		read, err := crd.ParseLock(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := crd.Breaks(read, locks[0]); len(got) > 0 {
			t.Errorf("%s is not compatible with itself: %v", name, got)
		}
		if diff := cmp.Diff(before, d); diff != "" {
			t.Errorf("the definition was changed:\n%s", diff)
		}
	}
}
