package drift_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDrifted(t *testing.T) {
	for _, tc := range []struct {
		reason, want, is string
		drifted          bool
	}{
		{"equal", "{a: 1, b: [x, y]}", "{a: 1, b: [x, y]}", false},
		{"others added a field", "{a: {b: 1}}", "{a: {b: 1, c: 2}, d: 3}", false},
		{"a value differs", "{a: {b: 1}}", "{a: {b: 2}}", true},
		{"a field is gone", "{a: {b: 1}}", "{a: {}}", true},
		{"the API server leaves empty values out", "{a: '', b: [], c: {}, d: false}", "{}", false},
		{"zero is a value", "{a: 0}", "{}", true},
		{"a list of values has its order", "{a: [x, y]}", "{a: [y, x]}", true},
		{"a list of values has its length", "{a: [x]}", "{a: [x, y]}", true},
		{"a list of objects has none", "{a: [{n: x, v: 1}, {n: y}]}", "{a: [{n: y, z: 2}, {n: other}, {n: x, v: 1}]}", false},
		{"an object of a list is gone", "{a: [{n: x}, {n: y}]}", "{a: [{n: x}]}", true},
		{"an object of a list differs", "{a: [{n: x, v: 1}]}", "{a: [{n: x, v: 2}]}", true},
		{"a quantity in another spelling", "{limits: {cpu: 1000m, memory: 1024Mi}}", `{limits: {cpu: "1", memory: 1Gi}}`, false},
		{"another quantity", "{requests: {cpu: 1000m}}", `{requests: {cpu: "2"}}`, true},
		{"what looks like a quantity and is text", `{labels: {v: "1.0"}}`, `{labels: {v: "1"}}`, true},
		{"another kind of value", "{a: {b: 1}}", "{a: x}", true},
	} {
		if got := drift.Drifted(object(t, tc.want), object(t, tc.is)); got != tc.drifted {
			t.Errorf("%s: drifted is %v", tc.reason, got)
		}
	}
}

// TestSeal: a field that is not rendered any more is seen by the hash, because the live object
// still has it.
func TestSeal(t *testing.T) {
	before, after := object(t, "{metadata: {labels: {a: x, b: y}}}"), object(t, "{metadata: {labels: {a: x}}}")
	drift.Seal(before, "e")
	live := before.DeepCopy()
	drift.Seal(after, "e")
	if !drift.Drifted(after, live) {
		t.Error("a label that is not wanted any more is not seen")
	}
	same := object(t, "{metadata: {labels: {a: x, b: y}}}")
	drift.Seal(same, "e")
	if drift.Drifted(same, live) {
		t.Error("the same object differs")
	}
}

func TestOverlay(t *testing.T) {
	is := object(t, "{spec: {ports: [{port: 1}], clusterIP: 10.0.0.1}, metadata: {labels: {theirs: x, ours: old}}}")
	want := object(t, "{spec: {ports: [{port: 2}]}, metadata: {labels: {ours: new}}}")
	got := drift.Overlay(is.Object, want.Object)
	if diff := cmp.Diff(object(t, "{spec: {ports: [{port: 2}], clusterIP: 10.0.0.1}, metadata: {labels: {theirs: x, ours: new}}}").Object, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if is.Object["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] == 2 {
		t.Error("what is was changed")
	}
}
