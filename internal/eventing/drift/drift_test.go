package drift_test

import (
	"fmt"
	"testing"
	"time"

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

// TestKept: what a webhook makes of each write is applied once, and again when something else
// changes or after a while.
func TestKept(t *testing.T) {
	want := object(t, `{kind: Deployment, metadata: {uid: a}, spec: {replicas: 1, containers: [{name: c, image: x, env: [{name: A, value: "1"}]}, {name: d}]}}`)
	mirrored := object(t, `{kind: Deployment, metadata: {uid: a}, spec: {replicas: 1, containers: [{name: c, image: mirror/x, env: [{name: A, value: "1"}]}, {name: d}]}}`)
	edited := object(t, `{kind: Deployment, metadata: {uid: a}, spec: {replicas: 2, containers: [{name: c, image: mirror/x, env: [{name: A, value: "1"}]}, {name: d}]}}`)
	moving := object(t, `{kind: Deployment, metadata: {uid: a}, spec: {replicas: 1, containers: [{name: c, image: mirror/y, env: [{name: A, value: "1"}]}, {name: d}]}}`)
	start := time.Now()
	kept := drift.Kept{}
	if found := kept.Of(want, mirrored, start); found != nil {
		t.Errorf("nothing was applied yet, and %v is kept", found)
	}
	kept.Note(want, mirrored, start)
	for _, tc := range []struct {
		reason string
		is     *unstructured.Unstructured
		after  time.Duration
		kept   string
	}{
		{"as it was", mirrored, 9 * time.Minute, `[spec.containers[c].image is "mirror/x", and not "x"]`},
		{"somebody changes another field", edited, time.Second, "[]"},
		{"the webhook has another value each time", moving, time.Second, `[spec.containers[c].image is "mirror/y", and not "x"]`},
		{"somebody changes the same field", moving, 2 * time.Minute, "[]"},
		{"the webhook may be gone", mirrored, 11 * time.Minute, "[]"},
	} {
		if found := fmt.Sprint(kept.Of(want, tc.is, start.Add(tc.after))); found != tc.kept {
			t.Errorf("%s: %s is kept, want %s", tc.reason, found, tc.kept)
		}
	}
	kept.Note(want, want, start)
	if found := kept.Of(want, mirrored, start); found != nil {
		t.Errorf("it was applied as it is wanted, and %v is kept", found)
	}
}

// TestDifferences: each names its field. A Secret shows no value.
func TestDifferences(t *testing.T) {
	for _, tc := range []struct{ want, is, differences string }{
		{"{a: {b: 1, c: 2}, d: x}", "{a: {b: 1, c: 3}}", `[a.c is 3, and not 2 d is null, and not "x"]`},
		{"{a: {b: 1}}", "{a: x}", `[a is "x", and not {"b":1}]`},
		{"{a: [{v: 1}]}", "{a: [{v: 2}]}", `[a[0] is null, and not {"v":1}]`},
		{"{a: [{name: k, v: 1}, {name: m}]}", "{a: [{name: m}]}", `[a[k] is null, and not {"name":"k","v":1}]`},
		{"{a: [x, z]}", "{a: [z]}", `[a is ["z"], and not ["x","z"]]`},
		{"{limits: {cpu: 1000m}}", `{limits: {cpu: "2"}}`, `[limits.cpu is "2", and not "1000m"]`},
		{"{limits: {cpu: 1000m}}", `{limits: {cpu: "1"}}`, "[]"},
		{"{kind: Secret, data: {seed: c2VlZA==}}", "{kind: Secret, data: {seed: b3RoZXI=}}", "[data.seed]"},
	} {
		want, is := object(t, tc.want), object(t, tc.is)
		found := drift.Differences(want, is)
		if got := fmt.Sprint(found); got != tc.differences {
			t.Errorf("%s and %s: %s, want %s", tc.want, tc.is, got, tc.differences)
		}
		if drift.Drifted(want, is) != (len(found) > 0) {
			t.Errorf("%s and %s: drifted, or with differences %v", tc.want, tc.is, found)
		}
	}
}
