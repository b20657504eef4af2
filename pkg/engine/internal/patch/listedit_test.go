package patch

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestContains(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		got, want string
		contains  bool
	}{
		"Defaults":   {"fields that the server added are no difference", `{"spec":{"a":1,"b":2}}`, `{"spec":{"a":1}}`, true},
		"Value":      {"another value is one", `{"spec":{"a":2}}`, `{"spec":{"a":1}}`, false},
		"Missing":    {"a missing field is one", `{"spec":{}}`, `{"spec":{"a":1}}`, false},
		"EmptyMap":   {"an empty map equals a missing one", `{}`, `{"spec":{}}`, true},
		"OtherType":  {"a text is no map", `{"spec":"a"}`, `{"spec":{"a":1}}`, false},
		"LongerList": {"lists are compared whole", `{"l":[1,2]}`, `{"l":[1]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := contains(enginetest.Object(t, tc.got).Object, enginetest.Object(t, tc.want).Object); got != tc.contains {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestAsPlanned(t *testing.T) {
	const planned = `{"metadata":{"name":"n","labels":{"a":"1"}},"spec":{"x":1,"list":[{"n":"a"}]}}`
	for name, tc := range map[string]struct {
		reason string
		live   string
		want   bool
	}{
		"AsMade":     {"as it was created, with our mark and what the server adds", `{"metadata":{"name":"n","resourceVersion":"7","labels":{"a":"1"},"annotations":{"` + enginetest.Names.Mark() + `":"r/0/0"}},"spec":{"x":1,"list":[{"n":"a"}],"default":true},"status":{"y":1}}`, true},
		"Default":    {"what the API server adds inside a list", `{"metadata":{"name":"n","generation":1,"labels":{"a":"1"}},"spec":{"x":1,"list":[{"n":"a","added":true}]}}`, true},
		"Generation": {"the same, and somebody has changed the spec since", `{"metadata":{"name":"n","generation":2,"labels":{"a":"1"}},"spec":{"x":1,"list":[{"n":"a","added":true}]}}`, false},
		"Labelled":   {"a generation says nothing of labels", `{"metadata":{"name":"n","generation":1,"labels":{"b":"1"}},"spec":{"x":1,"list":[{"n":"a"}]}}`, false},
		"Data":       {"a generation says nothing of data", `{"metadata":{"name":"n","generation":1,"labels":{"a":"1"}},"data":{"x":"1"}}`, false},
		"Ignored":    {"a key that a webhook owns is no edit", `{"metadata":{"name":"n","labels":{"a":"1"},"annotations":{"webhook":"w"}},"spec":{"x":1,"list":[{"n":"a"}]}}`, true},
		"Spec":       {"an edited spec", `{"metadata":{"name":"n","labels":{"a":"1"}},"spec":{"x":2,"list":[{"n":"a"}]}}`, false},
		"MoreLabels": {"a label that somebody added", `{"metadata":{"name":"n","labels":{"a":"1","b":"1"}},"spec":{"x":1,"list":[{"n":"a"}]}}`, false},
		"LessLabels": {"a label that somebody removed", `{"metadata":{"name":"n"},"spec":{"x":1,"list":[{"n":"a"}]}}`, false},
		"Annotation": {"an annotation that somebody added", `{"metadata":{"name":"n","labels":{"a":"1"},"annotations":{"b":"1"}},"spec":{"x":1,"list":[{"n":"a"}]}}`, false},
		"Owner":      {"an owner that somebody added", `{"metadata":{"name":"n","labels":{"a":"1"},"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]},"spec":{"x":1,"list":[{"n":"a"}]}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := AsPlanned(enginetest.Object(t, tc.live), enginetest.Object(t, planned), map[string]bool{"webhook": true, enginetest.Names.Mark(): true}); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestUntouched(t *testing.T) {
	for name, tc := range map[string]struct {
		reason              string
		before, live, patch string
		want                bool
	}{
		"NoPatch":     {"list edits alone touch no field", `{"spec":{"a":1}}`, `{"spec":{"a":2}}`, ``, true},
		"Same":        {"nobody touched the field", `{"spec":{"a":1}}`, `{"spec":{"a":1}}`, `{"spec":{"a":2}}`, true},
		"OtherField":  {"an edit of another field does not count", `{"spec":{"a":1,"b":1}}`, `{"spec":{"a":1,"b":2}}`, `{"spec":{"a":2}}`, true},
		"Edited":      {"an edit of the field", `{"spec":{"a":1}}`, `{"spec":{"a":3}}`, `{"spec":{"a":2}}`, false},
		"Added":       {"somebody added the field", `{"spec":{}}`, `{"spec":{"a":3}}`, `{"spec":{"a":2}}`, false},
		"Removed":     {"somebody removed the field", `{"spec":{"a":1}}`, `{"spec":{}}`, `{"spec":{"a":null}}`, false},
		"EmptyIsNone": {"an empty map equals a missing one", `{"spec":{"a":{}}}`, `{"spec":{}}`, `{"spec":{"a":null}}`, true},
		"EmptyList":   {"an empty list equals a missing one", `{"spec":{}}`, `{"spec":{"a":[]}}`, `{"spec":{"a":[1]}}`, true},
		"ListGrew":    {"an entry that somebody added to a list which the patch sets", `{"spec":{"l":["a"]}}`, `{"spec":{"l":["a","b"]}}`, `{"spec":{"l":null}}`, false},
		"LabelsGone":  {"all labels are gone, and the patch sets one that was not there", `{"metadata":{"labels":{"b":"1"}}}`, `{"metadata":{}}`, `{"metadata":{"labels":{"a":"1"}}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Untouched(enginetest.Object(t, tc.before), enginetest.Object(t, tc.live), []byte(tc.patch))
			if err != nil || got != tc.want {
				t.Errorf("%s: got %t, %v", tc.reason, got, err)
			}
		})
	}
	if _, err := Untouched(enginetest.Object(t, `{}`), enginetest.Object(t, `{}`), []byte(`{`)); err == nil {
		t.Error("a patch that cannot be read is an error")
	}
}

// merged applies a merge patch as the server does; nil changes nothing.
func merged(t *testing.T, obj *unstructured.Unstructured, patch []byte) *unstructured.Unstructured {
	t.Helper()
	if patch == nil {
		return obj
	}
	after, err := patched(obj, patch)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// TestListEdits holds that an edit of a list leaves what others have added to it, and
// that undoing it restores its own entries and no others. Fails on the commit before:
// patches carried the whole list of the plan.
func TestListEdits(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// pre is the list when the change was journaled, live when it is made, later
		// when it is undone; nil: as the edit left it.
		pre, live   []any
		add, remove []any
		after       []any
		later       []any
		undone      []any
	}{
		"Remove":        {reason: "ours goes and comes back", pre: []any{"ours"}, live: []any{"ours"}, remove: []any{"ours"}, undone: []any{"ours"}},
		"OthersBefore":  {reason: "one that was added before the write stays, and is not restored", pre: []any{"ours"}, live: []any{"ours", "theirs"}, remove: []any{"ours"}, after: []any{"theirs"}, undone: []any{"theirs", "ours"}},
		"OthersLater":   {reason: "one that was added after the write stays", pre: []any{"ours"}, live: []any{"ours"}, remove: []any{"ours"}, later: []any{"theirs"}, undone: []any{"theirs", "ours"}},
		"OthersRemoved": {reason: "one that others removed meanwhile stays removed", pre: []any{"ours", "theirs"}, live: []any{"ours"}, remove: []any{"ours"}, undone: []any{"ours"}},
		"NotThere":      {reason: "what was not there is not restored", pre: []any{"theirs"}, live: []any{"theirs"}, remove: []any{"ours"}, after: []any{"theirs"}, undone: []any{"theirs"}},
		"Back":          {reason: "what its owner has added again is not there twice", pre: []any{"ours"}, live: []any{"ours"}, remove: []any{"ours"}, later: []any{"ours"}, undone: []any{"ours"}},
		"Add":           {reason: "what was added goes", pre: []any{"theirs"}, live: []any{"theirs"}, add: []any{"ours"}, after: []any{"theirs", "ours"}, undone: []any{"theirs"}},
		"AddedBefore":   {reason: "what was there before stays", pre: []any{"ours"}, live: []any{"ours"}, add: []any{"ours"}, after: []any{"ours"}, undone: []any{"ours"}},
		"Replace": {
			reason: "entries may be objects", pre: []any{map[string]any{"uid": "1"}}, live: []any{map[string]any{"uid": "1"}},
			add: []any{map[string]any{"uid": "2"}}, remove: []any{map[string]any{"uid": "1"}},
			after: []any{map[string]any{"uid": "2"}}, undone: []any{map[string]any{"uid": "1"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(list []any) *unstructured.Unstructured {
				obj := enginetest.Object(t, `{"metadata":{"name":"n","resourceVersion":"5"},"spec":{"x":1}}`)
				if len(list) > 0 {
					if err := unstructured.SetNestedSlice(obj.Object, list, "metadata", "entries"); err != nil {
						t.Fatal(err)
					}
				}
				return obj
			}
			entries := func(obj *unstructured.Unstructured) []any {
				list, _, err := unstructured.NestedSlice(obj.Object, "metadata", "entries")
				if err != nil {
					t.Fatal(err)
				}
				return list
			}
			edits := []migration.ListEdit{{Path: []string{"metadata", "entries"}, Add: tc.add, Remove: tc.remove}}
			pre, live := with(tc.pre), with(tc.live)
			patch, err := listEdited(live, edits)
			if err != nil {
				t.Fatal(err)
			}
			ch := &migration.Change{Verb: migration.Patch, Lists: edits}
			if IsMade(live, ch) != (patch == nil) {
				t.Errorf("%s: is patched: %t, patch: %s", tc.reason, IsMade(live, ch), patch)
			}
			after := merged(t, live, patch)
			if diff := cmp.Diff(tc.after, entries(after)); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if !IsMade(after, ch) {
				t.Errorf("%s: what was edited counts as not edited", tc.reason)
			}
			if tc.later != nil {
				after = with(tc.later)
			}
			after.SetResourceVersion("9")
			back, err := WithListEdits(nil, after, InverseLists(pre, edits))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.undone, entries(jsonPatched(t, after, back))); diff != "" {
				t.Errorf("%s, undone (-want +got):\n%s", tc.reason, diff)
			}
			if back == nil {
				return
			}
			// The list was computed on one version: it is refused on another.
			after.SetResourceVersion("10")
			if _, err := tryJSONPatch(after, back); err == nil {
				t.Errorf("%s: the undo does not insist on the version that it was computed on", tc.reason)
			}
		})
	}
}

// TestListEditsBesideFields: a patch of fields with list edits is undone as one.
func TestListEditsBesideFields(t *testing.T) {
	edits := migration.RemoveFinalizer("ours")
	ch := &migration.Change{Verb: migration.Patch, Patch: []byte(`{"spec":{"x":2}}`), Lists: edits}
	pre := enginetest.Object(t, `{"metadata":{"name":"n","resourceVersion":"5","finalizers":["ours","kept"]},"spec":{"x":1}}`)
	patch, err := For(ch, pre)
	if err != nil {
		t.Fatal(err)
	}
	var sent map[string]any
	if err := json.Unmarshal(patch, &sent); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"uid": "u", "resourceVersion": "5", "finalizers": []any{"kept"}},
		"spec":     map[string]any{"x": float64(2)},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}
	live := merged(t, pre, patch)
	if IsMade(pre, ch) || !IsMade(live, ch) {
		t.Errorf("is patched: %t before, %t after", IsMade(pre, ch), IsMade(live, ch))
	}
	back, theirs, err := Inverse(pre, live, ch.Patch)
	if err != nil || theirs != 0 {
		t.Fatal(theirs, err)
	}
	if back, err = WithListEdits(back, live, InverseLists(pre, edits)); err != nil {
		t.Fatal(err)
	}
	undone := jsonPatched(t, live, back)
	if diff := cmp.Diff([]string{"kept", "ours"}, undone.GetFinalizers()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if x, _, _ := unstructured.NestedFieldNoCopy(undone.Object, "spec", "x"); x != int64(1) {
		t.Errorf("spec.x: %v", x)
	}
	if _, err := listEdited(enginetest.Object(t, `{"metadata":{"finalizers":"none"}}`), edits); err == nil {
		t.Error("what is no list cannot be edited as one")
	}
	if none, err := For(&migration.Change{Verb: migration.Patch, Lists: migration.RemoveFinalizer("other")}, pre); err != nil || string(none) != `{"metadata":{"resourceVersion":"5","uid":"u"}}` {
		t.Errorf("without an edit the request holds the precondition alone: %s, %v", none, err)
	}
}

func jsonPatched(t *testing.T, obj *unstructured.Unstructured, patch []byte) *unstructured.Unstructured {
	t.Helper()
	if patch == nil {
		return obj
	}
	after, err := tryJSONPatch(obj, patch)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

func tryJSONPatch(obj *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	raw, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if raw, err = operations.Apply(raw); err != nil {
		return nil, err
	}
	after := &unstructured.Unstructured{}
	return after, after.UnmarshalJSON(raw)
}
