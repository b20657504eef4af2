package patch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/wI2L/jsondiff"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// content returns what people edit of an object: everything but status and
// the metadata that the server owns; of owner references without UID, since an
// owner that was restored has a new one. Ignored are labels, annotations and (with
// migration.IgnoredSpec) fields that do not count: those that controllers own, and the
// mark of the program.
func content(obj *unstructured.Unstructured, ignored map[string]bool) map[string]any {
	content := map[string]any{}
	for key, value := range obj.Object {
		switch key {
		case "apiVersion", "status", "metadata":
			// The version is the server's choice of representation.
		case "spec":
			content[key] = withoutIgnored(value, ignored)
		default:
			content[key] = value
		}
	}
	keep := func(all map[string]string) map[string]any {
		kept := map[string]any{}
		for key, value := range all {
			if !ignored[key] {
				kept[key] = value
			}
		}
		return kept
	}
	content["labels"] = keep(obj.GetLabels())
	content["annotations"] = keep(obj.GetAnnotations())
	owners := []any{}
	for _, o := range obj.GetOwnerReferences() {
		owners = append(owners, map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind, "name": o.Name})
	}
	content["ownerReferences"] = owners
	return content
}

// withoutIgnored is a spec without the fields that controllers own.
func withoutIgnored(spec any, ignored map[string]bool) any {
	fields, ok := spec.(map[string]any)
	if !ok {
		return spec
	}
	kept := make(map[string]any, len(fields))
	for field, value := range fields {
		if !ignored[migration.IgnoredSpec+field] {
			kept[field] = value
		}
	}
	return kept
}

// Hash is a hash of contentOf: equal hashes mean that nobody edited the object
// in between.
func Hash(obj *unstructured.Unstructured, ignored map[string]bool) string {
	// Maps are encoded with sorted keys.
	raw, err := json.Marshal(content(obj, ignored))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// contains says whether every field of want is in got with the same value;
// lists are compared whole.
func contains(got, want any) bool {
	wantMap, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(got, want)
	}
	gotMap, ok := got.(map[string]any)
	if !ok {
		return len(wantMap) == 0 && got == nil
	}
	for key, value := range wantMap {
		if !contains(gotMap[key], value) {
			return false
		}
	}
	return true
}

// AsPlanned says whether a live object is the planned one: its spec and data hold
// what was planned, and its labels, annotations and owners are these and no others.
//
// The generation of an object counts its specs. While it is 1, the spec is as it was
// created: what differs was added by the API server or by a webhook, also inside lists,
// such as the status of a StatefulSet's claim templates. Kinds without a spec have none.
func AsPlanned(live, planned *unstructured.Unstructured, ignored map[string]bool) bool {
	has, wants := content(live, ignored), content(planned, ignored)
	for _, key := range []string{"labels", "annotations", "ownerReferences"} {
		if !reflect.DeepEqual(has[key], wants[key]) {
			return false
		}
	}
	if _, spec := live.Object["spec"]; spec && live.GetGeneration() == 1 {
		return true
	}
	return contains(has, wants)
}

// Holds says whether an object has what want has, metadata and status aside. The
// server may have added defaults.
func Holds(live, want *unstructured.Unstructured) bool {
	for key, value := range want.Object {
		switch key {
		case "apiVersion", "kind", "metadata", "status":
		default:
			if !contains(live.Object[key], value) {
				return false
			}
		}
	}
	return true
}

// patched applies an RFC 7386 merge patch to an object. Like the API server it
// stores no empty lists and maps in the metadata.
func patched(obj *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	raw, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	raw, err = jsonpatch.MergePatch(raw, patch)
	if err != nil {
		return nil, fmt.Errorf("cannot apply the patch: %w", err)
	}
	after := &unstructured.Unstructured{}
	if err := after.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	metadata, _ := after.Object["metadata"].(map[string]any)
	for _, field := range []string{"annotations", "finalizers", "labels", "ownerReferences"} {
		switch value := metadata[field].(type) {
		case map[string]any:
			if len(value) == 0 {
				delete(metadata, field)
			}
		case []any:
			if len(value) == 0 {
				delete(metadata, field)
			}
		}
	}
	return after, nil
}

// AlreadyPatched says whether the patch would change nothing.
func AlreadyPatched(obj *unstructured.Unstructured, patch []byte) bool {
	after, err := patched(obj, patch)
	return err == nil && reflect.DeepEqual(obj.Object, after.Object)
}

// listEdited returns the merge patch that applies list edits to the lists as they
// are in obj; nil if they change nothing. A list that becomes empty is removed.
func listEdited(obj *unstructured.Unstructured, edits []migration.ListEdit) ([]byte, error) {
	patch := map[string]any{}
	for _, edit := range edits {
		before, _, err := unstructured.NestedSlice(obj.Object, edit.Path...)
		if err != nil {
			return nil, fmt.Errorf("cannot edit the list %s: %w", strings.Join(edit.Path, "."), err)
		}
		after := editList(before, edit.Add, edit.Remove)
		if len(after) == len(before) && reflect.DeepEqual(after, before) {
			continue
		}
		var value any // null removes the field
		if len(after) > 0 {
			value = after
		}
		parent := patch
		for _, field := range edit.Path[:len(edit.Path)-1] {
			next, _ := parent[field].(map[string]any)
			if next == nil {
				next = map[string]any{}
				parent[field] = next
			}
			parent = next
		}
		parent[edit.Path[len(edit.Path)-1]] = value
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(patch)
}

func editList(list, add, remove []any) []any {
	holds := func(in []any, v any) bool {
		return slices.ContainsFunc(in, func(have any) bool { return reflect.DeepEqual(have, v) })
	}
	after := slices.DeleteFunc(slices.Clone(list), func(v any) bool { return holds(remove, v) })
	for _, v := range add {
		if !holds(after, v) {
			after = append(after, v)
		}
	}
	return after
}

// InverseLists returns the edits that undo what edits did to a list that was as in pre:
// what was removed comes back, and what was added goes, if it was not there before.
func InverseLists(pre *unstructured.Unstructured, edits []migration.ListEdit) []migration.ListEdit {
	back := make([]migration.ListEdit, 0, len(edits))
	for _, edit := range edits {
		before, _, _ := unstructured.NestedSlice(pre.Object, edit.Path...)
		had := func(v any) bool {
			return slices.ContainsFunc(before, func(have any) bool { return reflect.DeepEqual(have, v) })
		}
		back = append(back, migration.ListEdit{
			Path:   edit.Path,
			Add:    slices.DeleteFunc(slices.Clone(edit.Remove), func(v any) bool { return !had(v) }),
			Remove: slices.DeleteFunc(slices.Clone(edit.Add), func(v any) bool { return had(v) }),
		})
	}
	return back
}

// For is the request that makes a Patch on an object: with its list edits
// applied to the lists of the object, and the server answers 409 if the object is
// another one, or changed.
func For(ch *migration.Change, obj *unstructured.Unstructured) ([]byte, error) {
	lists, err := listEdited(obj, ch.Lists)
	if err != nil {
		return nil, err
	}
	patch := []byte(ch.Patch)
	switch {
	case len(patch) == 0 && lists == nil:
		patch = []byte("{}")
	case len(patch) == 0:
		patch = lists
	case lists != nil:
		if patch, err = jsonpatch.MergeMergePatches(patch, lists); err != nil {
			return nil, fmt.Errorf("cannot join the patch and its list edits: %w", err)
		}
	}
	return withPrecondition(patch, obj)
}

// IsMade says whether a Patch would change nothing.
func IsMade(obj *unstructured.Unstructured, ch *migration.Change) bool {
	lists, err := listEdited(obj, ch.Lists)
	return err == nil && lists == nil && (len(ch.Patch) == 0 || AlreadyPatched(obj, ch.Patch))
}

// withPrecondition adds UID and resource version to a merge patch: the server
// answers 409 if the object is another one, or changed.
func withPrecondition(patch []byte, obj *unstructured.Unstructured) ([]byte, error) {
	precondition, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(),
	}})
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergeMergePatches(patch, precondition)
}

// Inverse returns the JSON patch that undoes from live what patch
// changed in pre, field by field. A field that somebody else has changed since
// is left alone and counted in theirs. The patch tests each field, so that the
// server refuses it with 422 if one changes on the way. It is nil if there is
// nothing of ours to undo.
func Inverse(pre, live *unstructured.Unstructured, patch []byte) (back []byte, theirs int, err error) {
	if len(patch) == 0 {
		return nil, 0, nil
	}
	after, err := patched(pre, patch)
	if err != nil {
		return nil, 0, err
	}
	// Each label and annotation is one field, also of an object that had none: others add theirs.
	before := pre.DeepCopy()
	for _, field := range []string{"annotations", "labels"} {
		if _, has, _ := unstructured.NestedMap(after.Object, "metadata", field); has {
			if _, had, _ := unstructured.NestedMap(before.Object, "metadata", field); !had {
				_ = unstructured.SetNestedMap(before.Object, map[string]any{}, "metadata", field)
			}
		}
	}
	operations, err := jsondiff.Compare(after.Object, before.Object, jsondiff.Invertible())
	if err != nil {
		return nil, 0, fmt.Errorf("cannot invert the patch: %w", err)
	}
	result := jsondiff.Patch{{Type: jsondiff.OperationTest, Path: "/metadata/uid", Value: string(pre.GetUID())}}
	tested := map[string]bool{}
	for len(operations) > 0 {
		// A field is one operation, after its test if it has one.
		n := 1
		if operations[0].Type == jsondiff.OperationTest && len(operations) > 1 {
			n = 2
		}
		field := operations[:n]
		operations = operations[n:]
		if entry, list, ok := entryOf(after, live, field); ok {
			// A place in a list says nothing: others put in and take out theirs.
			if !slices.Contains(list, entry.Value) {
				parent := entry.Path[:strings.LastIndex(entry.Path, "/")]
				if !tested[parent] {
					tested[parent] = true
					result = append(result, jsondiff.Operation{Type: jsondiff.OperationTest, Path: parent, Value: list})
				}
				result = append(result, jsondiff.Operation{Type: jsondiff.OperationAdd, Path: parent + "/-", Value: entry.Value})
			}
			continue
		}
		ours, err := stillOurs(live, field)
		if err != nil {
			return nil, 0, err
		}
		if ours {
			result = append(result, field...)
			continue
		}
		if restored, err := isRestored(live, field[n-1]); err != nil {
			return nil, 0, err
		} else if !restored {
			theirs++
		}
	}
	if len(result) == 1 {
		return nil, theirs, nil
	}
	back, err = json.Marshal(result)
	return back, theirs, err
}

// WithListEdits adds list edits to a JSON patch that undoes another: the lists as they
// are in live, edited. The server refuses it if live changed in between.
func WithListEdits(back []byte, live *unstructured.Unstructured, edits []migration.ListEdit) ([]byte, error) {
	merge, err := listEdited(live, edits)
	if err != nil || merge == nil {
		return back, err
	}
	operations := jsondiff.Patch{
		{Type: jsondiff.OperationTest, Path: "/metadata/uid", Value: string(live.GetUID())},
		{Type: jsondiff.OperationTest, Path: "/metadata/resourceVersion", Value: live.GetResourceVersion()},
	}
	after, err := patched(live, merge)
	if err != nil {
		return nil, err
	}
	changes, err := jsondiff.Compare(live.Object, after.Object)
	if err != nil {
		return nil, fmt.Errorf("cannot edit lists: %w", err)
	}
	operations = append(operations, changes...)
	if back != nil {
		var first jsondiff.Patch
		if err := json.Unmarshal(back, &first); err != nil {
			return nil, fmt.Errorf("cannot join the patch and its list edits: %w", err)
		}
		operations = append(operations, first...)
	}
	return json.Marshal(operations)
}

// entryOf returns the operation that restores a string into a list, such as that of
// finalizers, and the list as it is now.
func entryOf(after, live *unstructured.Unstructured, field jsondiff.Patch) (entry jsondiff.Operation, list []any, ok bool) {
	entry = field[len(field)-1]
	if _, text := entry.Value.(string); !text || entry.Type != jsondiff.OperationAdd || len(field) > 1 {
		return entry, nil, false
	}
	segments := strings.Split(entry.Path, "/")[1:]
	for i, segment := range segments {
		segments[i] = strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~")
	}
	segments = segments[:len(segments)-1]
	if _, is, err := unstructured.NestedSlice(after.Object, segments...); !is || err != nil {
		return entry, nil, false
	}
	list, ok, err := unstructured.NestedSlice(live.Object, segments...)
	return entry, list, ok && err == nil
}

// stillOurs says whether live has the field as our patch left it.
func stillOurs(live *unstructured.Unstructured, field jsondiff.Patch) (bool, error) {
	if len(field) == 1 && field[0].Type == jsondiff.OperationAdd {
		// We removed it: it is ours as long as it is absent.
		exists, err := applies(live, jsondiff.Patch{{Type: jsondiff.OperationRemove, Path: field[0].Path}})
		if err != nil || exists {
			return false, err
		}
	}
	return applies(live, field)
}

// isRestored says whether live has the field as the operation would leave it.
func isRestored(live *unstructured.Unstructured, op jsondiff.Operation) (bool, error) {
	if op.Type == jsondiff.OperationRemove {
		exists, err := applies(live, jsondiff.Patch{op})
		return !exists, err
	}
	return applies(live, jsondiff.Patch{{Type: jsondiff.OperationTest, Path: op.Path, Value: op.Value}})
}

func applies(live *unstructured.Unstructured, patch jsondiff.Patch) (bool, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return false, err
	}
	operations, err := jsonpatch.DecodePatch(raw)
	if err != nil {
		return false, err
	}
	object, err := live.MarshalJSON()
	if err != nil {
		return false, err
	}
	_, err = operations.Apply(object)
	return err == nil, nil
}

// Untouched says whether the fields that patch sets are in live as they are in
// before. A field that is missing equals one that is empty.
func Untouched(before, live *unstructured.Unstructured, patch []byte) (bool, error) {
	if len(patch) == 0 {
		return true, nil
	}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return false, fmt.Errorf("cannot read the patch: %w", err)
	}
	return sameFields(before.Object, live.Object, fields), nil
}

func sameFields(a, b any, fields map[string]any) bool {
	mapA, _ := a.(map[string]any)
	mapB, _ := b.(map[string]any)
	for key, value := range fields {
		if nested, ok := value.(map[string]any); ok {
			if !sameFields(mapA[key], mapB[key], nested) {
				return false
			}
			continue
		}
		if !reflect.DeepEqual(mapA[key], mapB[key]) && (!isEmpty(mapA[key]) || !isEmpty(mapB[key])) {
			return false
		}
	}
	return true
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
