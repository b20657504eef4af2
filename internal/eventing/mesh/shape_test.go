package mesh

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

func TestDiffers(t *testing.T) {
	t.Parallel()
	in := &Trigger{namespace: "control", names: backend.Names(backend.DefaultPrefix)}
	b := Broker{Name: "eventing", UID: "broker", Epoch: "1"}
	set := func(value any, fields ...string) func(*testing.T, *unstructured.Unstructured) {
		return func(t *testing.T, u *unstructured.Unstructured) {
			t.Helper()
			if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for reason, tc := range map[string]struct {
		edit func(*testing.T, *unstructured.Unstructured)
		want bool
	}{
		"as it was created":        {func(*testing.T, *unstructured.Unstructured) {}, false},
		"what Knative adds":        {set(map[string]any{"attributes": map[string]any{}}, "spec", "filter"), false},
		"another creation":         {set(triggerQuery+"other", "spec", "subscriber", "uri"), false},
		"another sink":             {set("/deliver/shop/orders", "spec", "subscriber", "uri"), true},
		"no creation":              {set(triggerQuery, "spec", "subscriber", "uri"), true},
		"another Service":          {set("other", "spec", "subscriber", "ref", "name"), true},
		"a filter":                 {set(map[string]any{"attributes": map[string]any{"type": "a.b"}}, "spec", "filter"), true},
		"filters":                  {set([]any{map[string]any{"cesql": "TRUE"}}, "spec", "filters"), true},
		"another Broker":           {set("default", "spec", "broker"), true},
		"more tries":               {set(int64(9), "spec", "delivery", "retry"), true},
		"the delivery of a Broker": {set(map[string]any{}, "spec", "delivery"), true},
		"a dead letter sink":       {set("http://letters", "spec", "delivery", "deadLetterSink", "uri"), true},
		"a Broker of former days":  {set("former", "metadata", "annotations", brokerAnnotation), true},
	} {
		is := in.wanted(b, "eventing-controller")
		tc.edit(t, is)
		if got := differs(is, in.wanted(b, "eventing-controller")); got != tc.want {
			t.Errorf("%s: differs: %v, want %v", reason, got, tc.want)
		}
	}
}
