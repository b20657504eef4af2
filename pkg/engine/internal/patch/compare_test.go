package patch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
)

const restored = `{"metadata":{"name":"a","labels":{"l":"1"},"annotations":{"a":"1"}},
	"spec":{"x":"1","n":2,"off":false,"resources":{"requests":{"cpu":"0.5"}},"list":[{"k":"v"},{"k":"w"}],"version":"1.10","at":"2026-01-01T00:00:00Z"},"data":{"d":"1"}}`

// TestDifferences holds what counts as not restored.
func TestDifferences(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		edit    func(obj *unstructured.Unstructured)
		core    bool
		ignored map[string]bool
		// differ are the fields that differ, lost those that a forward change would have lost.
		differ, lost []string
	}{
		"Same": {reason: "nothing differs", edit: func(*unstructured.Unstructured) {}},
		"Server": {
			reason: "the server's own metadata and the status are none of it", edit: func(obj *unstructured.Unstructured) {
				obj.SetUID("other")
				obj.SetResourceVersion("7")
				obj.Object["status"] = map[string]any{"ready": true}
			},
		},
		"Field":    {reason: "a schema drops a field", edit: drop("spec", "x"), differ: []string{"spec.x"}, lost: []string{"spec.x"}},
		"Changed":  {reason: "a webhook corrects one", edit: put("2", "spec", "x"), differ: []string{"spec.x"}, lost: []string{"spec.x"}},
		"Label":    {reason: "a label is gone", edit: drop("metadata", "labels", "l"), differ: []string{"metadata.labels.l"}, lost: []string{"metadata.labels.l"}},
		"Added":    {reason: "a label is added", edit: put("x", "metadata", "labels", "m"), differ: []string{"metadata.labels.m"}},
		"Ignored":  {reason: "labels of webhooks are ignored", edit: put("x", "metadata", "labels", "m"), ignored: map[string]bool{"m": true}},
		"Data":     {reason: "data is added", edit: put("x", "data", "e"), differ: []string{"data.e"}},
		"Default":  {reason: "Kubernetes adds defaults to the specs of its own kinds", edit: put("x", "spec", "new"), core: true},
		"NoDeflt":  {reason: "and not to those of others", edit: put("x", "spec", "new"), differ: []string{"spec.new"}},
		"Omitted":  {reason: "a field without a value may be left out", edit: drop("spec", "off")},
		"Quantity": {reason: "quantities are written in the server's way", edit: put("500m", "spec", "resources", "requests", "cpu")},
		"Version":  {reason: "and only quantities", edit: put("1.1", "spec", "version"), differ: []string{"spec.version"}, lost: []string{"spec.version"}},
		"Number":   {reason: "numbers are compared as such", edit: put(float64(2), "spec", "n")},
		"Time":     {reason: "and times", edit: put("2026-01-01T01:00:00+01:00", "spec", "at")},
		"Item":     {reason: "an entry of a list is changed", edit: put([]any{map[string]any{"k": "v"}, map[string]any{"k": "z"}}, "spec", "list"), differ: []string{"spec.list[1].k"}, lost: []string{"spec.list[1].k"}},
		"ItemGone": {reason: "or gone", edit: put([]any{map[string]any{"k": "v"}}, "spec", "list"), differ: []string{"spec.list"}, lost: []string{"spec.list"}},
		"ItemMore": {reason: "or added", edit: put([]any{map[string]any{"k": "v"}, map[string]any{"k": "w"}, "x"}, "spec", "list"), differ: []string{"spec.list"}},
	} {
		t.Run(name, func(t *testing.T) {
			was := enginetest.Object(t, restored)
			if !tc.core {
				was.SetAPIVersion("example.test/v1")
			}
			is := was.DeepCopy()
			tc.edit(is)
			if diff := cmp.Diff(tc.differ, Differences(is, was, tc.ignored)); diff != "" {
				t.Errorf("%s: differences (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.lost, Lost(is, was, tc.ignored)); diff != "" {
				t.Errorf("%s: lost (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func put(value any, path ...string) func(*unstructured.Unstructured) {
	return func(obj *unstructured.Unstructured) { _ = unstructured.SetNestedField(obj.Object, value, path...) }
}

func drop(path ...string) func(*unstructured.Unstructured) {
	return func(obj *unstructured.Unstructured) { unstructured.RemoveNestedField(obj.Object, path...) }
}

// TestLostOfPatches holds which fields of a patch are missing in the answer to it, forward and
// back.
func TestLostOfPatches(t *testing.T) {
	const before = `{"metadata":{"name":"a","uid":"u","finalizers":["f","g"]},"spec":{"x":"old","gone":"1","deep":{"y":"1"}}}`
	merge := []byte(`{"metadata":{"uid":"u","resourceVersion":"1","finalizers":["g"]},"spec":{"x":"new","gone":null,"deep":{"z":2}}}`)
	for name, tc := range map[string]struct {
		reason string
		edit   func(after *unstructured.Unstructured)
		lost   []string
		edited func(back *unstructured.Unstructured)
		left   []string
	}{
		"Made":    {reason: "all of it is there", edit: func(*unstructured.Unstructured) {}, edited: func(*unstructured.Unstructured) {}},
		"More":    {reason: "what is added is no loss", edit: put("w", "spec", "more"), edited: put("w", "spec", "more")},
		"Field":   {reason: "a field is not set", edit: put("old", "spec", "x"), lost: []string{"spec.x"}, edited: put("new", "spec", "x"), left: []string{"spec.x"}},
		"Pruned":  {reason: "a field is dropped", edit: drop("spec", "deep", "z"), lost: []string{"spec.deep.z"}, edited: drop("spec", "gone"), left: []string{"spec.gone"}},
		"Kept":    {reason: "a field is not removed", edit: put("1", "spec", "gone"), lost: []string{"spec.gone"}, edited: put(int64(2), "spec", "deep", "z"), left: []string{"spec.deep.z"}},
		"List":    {reason: "an entry is not removed", edit: put([]any{"f", "g"}, "metadata", "finalizers"), lost: []string{"metadata.finalizers"}, edited: put([]any{"g"}, "metadata", "finalizers"), left: []string{"metadata.finalizers"}},
		"ListOdd": {reason: "an entry is another one", edit: put([]any{"h"}, "metadata", "finalizers"), lost: []string{"metadata.finalizers[0]"}, edited: put([]any{"g", "f", "h"}, "metadata", "finalizers")},
	} {
		t.Run(name, func(t *testing.T) {
			pre := enginetest.Object(t, before)
			after, err := patched(pre, merge)
			if err != nil {
				t.Fatal(err)
			}
			back, _, err := Inverse(pre, after, merge)
			if err != nil {
				t.Fatal(err)
			}
			tc.edit(after)
			lost, err := LostOfPatch(after, merge)
			if diff := cmp.Diff(tc.lost, lost); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
			tc.edited(pre)
			left, err := NotReverted(pre, back)
			if diff := cmp.Diff(tc.left, left); diff != "" || err != nil {
				t.Errorf("%s: reverted: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
	if _, err := LostOfPatch(enginetest.Object(t, before), []byte("7")); err == nil {
		t.Error("a patch that is none")
	}
	if _, err := NotReverted(enginetest.Object(t, before), []byte("7")); err == nil {
		t.Error("a JSON patch that is none")
	}
}

// TestAddedTo: what both others lack is added, whichever of them has the rest.
func TestAddedTo(t *testing.T) {
	of := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": spec}}
	}
	live := of(map[string]any{"one": "1", "other": map[string]any{"a": "1", "b": "2"}, "new": "3"})
	one, other := of(map[string]any{"one": "1", "other": map[string]any{"a": "1"}}), of(map[string]any{"other": map[string]any{"b": "2"}})
	if diff := cmp.Diff([]string{"spec.new"}, AddedTo(live, nil, one, other)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"spec.new"}, AddedTo(live, nil, other, one)); diff != "" {
		t.Errorf("the other way round (-want +got):\n%s", diff)
	}
}
