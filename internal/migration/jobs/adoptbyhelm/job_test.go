package adoptbyhelm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// thing is an object with that metadata, besides its name; "" for one that does not
// exist.
func thing(t *testing.T, name, metadata string) found {
	t.Helper()
	f := found{named: named{kind: schema.GroupKind{Group: "g", Kind: "Thing"}, namespace: "shop", name: name}, served: true}
	f.ref = migration.Ref{Resource: migration.Resource{Kind: "Thing"}, Namespace: "shop", Name: name}
	if metadata != "" {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{apiVersion: g/v1, kind: Thing, metadata: {namespace: shop, name: "+name+", uid: u1"+strings.TrimPrefix(metadata, "-")+"}}"), &u.Object); err != nil {
			t.Fatal(err)
		}
		f.live = u
	}
	return f
}

func TestDecide(t *testing.T) {
	const (
		label      = `"labels":{"app.kubernetes.io/managed-by":"Helm"}`
		both       = `"annotations":{"meta.helm.sh/release-name":"web","meta.helm.sh/release-namespace":"shop"}`
		ours       = ", labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: web, meta.helm.sh/release-namespace: shop}"
		beingGone  = `, deletionTimestamp: "2020-03-04T00:00:00Z"`
		ofAnother  = ", annotations: {meta.helm.sh/release-name: other, meta.helm.sh/release-namespace: shop}"
		elsewhere  = ", annotations: {meta.helm.sh/release-name: web, meta.helm.sh/release-namespace: prod}"
		withTiller = ", labels: {app.kubernetes.io/managed-by: Tiller, keep: me}, annotations: {meta.helm.sh/release-name: web}"
	)
	unserved := thing(t, "x", "")
	unserved.served = false
	for name, tc := range map[string]struct {
		reason string
		all    []found
		want   []string
	}{
		"Bare":      {"Everything is missing.", []found{thing(t, "x", "-")}, []string{`x: patch {"metadata":{` + both + "," + label + `}}`}},
		"Whole":     {"Nothing differs.", []found{thing(t, "x", ours)}, []string{}},
		"Half":      {"Only what differs; the rest stays.", []found{thing(t, "x", withTiller)}, []string{`x: patch {"metadata":{"annotations":{"meta.helm.sh/release-namespace":"shop"},` + label + `}}`}},
		"Twice":     {"Named twice, patched once.", []found{thing(t, "x", "-"), thing(t, "x", "-")}, []string{`x: patch {"metadata":{` + both + "," + label + `}}`}},
		"Absent":    {"The chart creates it.", []found{thing(t, "x", "")}, []string{"info: does not exist: the chart creates it"}},
		"Another":   {"It belongs to somebody.", []found{thing(t, "x", ofAnother)}, []string{"error: belongs to the Helm release shop/other"}},
		"Elsewhere": {"A release of this name in another namespace is another one.", []found{thing(t, "x", elsewhere)}, []string{"error: belongs to the Helm release prod/web"}},
		"Going":     {"It would be adopted, and vanish.", []found{thing(t, "x", ours+beingGone)}, []string{"error: is being deleted"}},
		"Unserved":  {"A typing error.", []found{unserved}, []string{"error: the API server serves no kind Thing.g"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := decide(tc.all, options{release: "web", namespace: "shop"})
			got := []string{}
			for _, u := range plan.Units {
				for _, ch := range u.Changes {
					got = append(got, ch.Ref.Name+": "+string(ch.Verb)+" "+string(ch.Patch))
					if basis := ch.Object.GetAnnotations(); len(basis) != len(tc.all[0].live.GetAnnotations()) || ch.Object.GetUID() != "u1" {
						t.Errorf("decided on %v, patched while it is %v", tc.all[0].live.GetAnnotations(), basis)
					}
					if ch.UID != "u1" || ch.Irreversible {
						t.Errorf("UID %q, irreversible %t", ch.UID, ch.Irreversible)
					}
				}
			}
			for _, f := range plan.Findings {
				got = append(got, string(f.Severity)+": "+f.Problem)
				if f.Severity == migration.Error && f.Note == "" {
					t.Errorf("nothing says what to do: %s", f)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	good := options{release: "web", namespace: "shop", objects: []string{"HTTPSource.sources.kyma-project.io/kyma-integration/shop", "Namespace/shop"}}
	for _, tc := range []struct {
		change func(*options)
		want   []string
	}{
		{func(*options) {}, nil},
		{func(o *options) { *o = options{} }, nil},
		{func(o *options) { o.release = "Web" }, []string{"--release"}},
		{func(o *options) { o.release = strings.Repeat("x", 54) }, []string{"--release"}},
		{func(o *options) { o.namespace = "" }, []string{"--release-namespace"}},
		{func(o *options) { o.objects = nil }, []string{"--objects names none"}},
		{func(o *options) { o.objects = []string{"Namespace", "namespace/shop", "A/b/c/d", "Namespace/"} }, []string{`"Namespace"`, `"namespace/shop"`, `"A/b/c/d"`, `"Namespace/"`}},
		{func(o *options) { o.objects = []string{"ConfigMap/No_Namespace/x"} }, []string{`"No_Namespace" is no name of a namespace`}},
	} {
		j := New()
		j.options = good
		tc.change(&j.options)
		err := j.Validate()
		if (err != nil) != (len(tc.want) > 0) {
			t.Errorf("%+v: %v", j.options, err)
		}
		for _, part := range tc.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q is missing in %v", j.options, part, err)
			}
		}
	}
}
