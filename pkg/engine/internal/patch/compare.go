package patch

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/wI2L/jsondiff"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// comparison collects the fields in which two objects differ.
type comparison struct{ fields []string }

func (c *comparison) differs(path string) {
	if !slices.Contains(c.fields, path) {
		c.fields = append(c.fields, path)
	}
}

// Lost are the fields of what was sent that are not so in the answer to it. What the server and
// webhooks add is no loss.
func Lost(answer, sent *unstructured.Unstructured, ignored map[string]bool) []string {
	c := &comparison{}
	c.lost("", content(answer, ignored), content(sent, ignored))
	return c.fields
}

// Differences are the fields in which a restored object is not as it was: lost, changed, or
// added.
func Differences(live, was *unstructured.Unstructured, ignored map[string]bool) []string {
	lost := Lost(live, was, ignored)
	return append(lost, slices.DeleteFunc(Added(live, was, ignored), func(path string) bool { return slices.Contains(lost, path) })...)
}

// Added are the fields that a restored object had not before. Kubernetes adds defaults to the specs
// of its own kinds.
func Added(live, was *unstructured.Unstructured, ignored map[string]bool) []string {
	c := &comparison{}
	is := content(live, ignored)
	if group := live.GroupVersionKind().Group; !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") {
		delete(is, "spec")
	}
	c.added("", is, content(was, ignored))
	return c.fields
}

// OfMetadata says whether a field is a label or an annotation.
func OfMetadata(path string) bool {
	return strings.HasPrefix(path, "metadata.labels.") || strings.HasPrefix(path, "metadata.annotations.")
}

// AddedTo are the fields of an object that neither of two others has.
func AddedTo(live *unstructured.Unstructured, ignored map[string]bool, one, other *unstructured.Unstructured) []string {
	c := &comparison{}
	c.added("", content(live, ignored), union(content(one, ignored), content(other, ignored)))
	return c.fields
}

// union has the fields that either of two values has.
func union(a, b any) any {
	fields, ok := a.(map[string]any)
	more, both := b.(map[string]any)
	switch {
	case a == nil:
		return b
	case !ok || !both:
		return a
	}
	all := maps.Clone(fields)
	for key, value := range more {
		all[key] = union(fields[key], value)
	}
	return all
}

// LostOfPatch are the fields of a merge patch that are not so in the answer to it. The identity
// and version that it insisted on are none.
func LostOfPatch(answer *unstructured.Unstructured, merge []byte) ([]string, error) {
	var fields map[string]any
	if err := json.Unmarshal(merge, &fields); err != nil {
		return nil, fmt.Errorf("cannot read the patch: %w", err)
	}
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "uid")
		delete(metadata, "resourceVersion")
	}
	c := &comparison{}
	c.patched("", answer.Object, fields)
	return c.fields, nil
}

// patched notes what a merge patch has set or removed and the object does not show.
func (c *comparison) patched(path string, got any, patch map[string]any) {
	has, _ := got.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		at := below(path, key)
		switch value := patch[key].(type) {
		case nil:
			if !isEmpty(has[key]) {
				c.differs(at)
			}
		case map[string]any:
			c.patched(at, has[key], value)
		case []any:
			c.lost(at, has[key], value)
			if list, _ := has[key].([]any); len(list) > len(value) {
				c.differs(at) // what was to be removed is there
			}
		default:
			c.lost(at, has[key], value)
		}
	}
}

// NotReverted are the fields that a JSON patch of Inverse and WithListEdits was to restore, and
// that the answer to it does not show so.
func NotReverted(answer *unstructured.Unstructured, back []byte) ([]string, error) {
	var operations jsondiff.Patch
	if err := json.Unmarshal(back, &operations); err != nil {
		return nil, fmt.Errorf("cannot read the patch: %w", err)
	}
	c := &comparison{}
	for _, op := range operations {
		if op.Type == jsondiff.OperationTest {
			continue
		}
		segments := strings.Split(op.Path, "/")[1:]
		for i, segment := range segments {
			segments[i] = strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~")
		}
		var got any = answer.Object
		inList := false
		for i, segment := range segments {
			if list, ok := got.([]any); ok {
				// A place in a list says nothing: others put in and take out theirs.
				inList = true
				if op.Type != jsondiff.OperationRemove && !slices.ContainsFunc(list, func(v any) bool { return holds(v, op.Value) }) && i == len(segments)-1 {
					c.differs(strings.Join(segments[:i], "."))
				}
				break
			}
			fields, _ := got.(map[string]any)
			got = fields[segment]
		}
		switch at := strings.Join(segments, "."); {
		case inList:
		case op.Type != jsondiff.OperationRemove:
			c.lost(at, got, op.Value)
		case !isEmpty(got):
			c.differs(at)
		}
	}
	return c.fields, nil
}

func below(path, key string) string {
	switch {
	case path != "":
		return path + "." + key
	case key == "labels", key == "annotations", key == "ownerReferences":
		return "metadata." + key
	}
	return key
}

// lost notes what want has and got has not. A field of no value may be left out.
func (c *comparison) lost(path string, got, want any) {
	switch want := want.(type) {
	case map[string]any:
		has, ok := got.(map[string]any)
		if !ok {
			if !isZero(want) {
				c.differs(path)
			}
			return
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			c.lost(below(path, key), has[key], want[key])
		}
	case []any:
		has, _ := got.([]any)
		for i, v := range want {
			switch {
			case slices.ContainsFunc(has, func(one any) bool { return holds(one, v) }):
			case i < len(has) && len(has) == len(want):
				c.lost(fmt.Sprintf("%s[%d]", path, i), has[i], v)
			default:
				c.differs(path)
			}
		}
	default:
		if !sameValue(path, got, want) && !(got == nil && isZero(want)) {
			c.differs(path)
		}
	}
}

// holds says whether got has all that want has.
func holds(got, want any) bool {
	c := &comparison{}
	c.lost("", got, want)
	return len(c.fields) == 0
}

// added notes what got has and was has not.
func (c *comparison) added(path string, got, was any) {
	switch got := got.(type) {
	case map[string]any:
		had, ok := was.(map[string]any)
		if !ok {
			if !isZero(got) {
				c.differs(path)
			}
			return
		}
		for _, key := range slices.Sorted(maps.Keys(got)) {
			c.added(below(path, key), got[key], had[key])
		}
	case []any:
		had, _ := was.([]any)
		if len(got) > len(had) {
			c.differs(path)
			return
		}
		for i, v := range got {
			c.added(fmt.Sprintf("%s[%d]", path, i), v, had[i])
		}
	default:
		if was == nil && !isZero(got) {
			c.differs(path)
		}
	}
}

// isZero says whether a value is what a field has that is left out.
func isZero(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, field := range v {
			if !isZero(field) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return v == nil || reflect.ValueOf(v).IsZero()
}

// sameValue says whether two values mean the same: API servers write numbers, times and
// quantities in their own way.
func sameValue(path string, a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	if k8sutil.SameNumber(a, b) {
		return true
	}
	textA, textB := fmt.Sprint(a), fmt.Sprint(b)
	if timeA, err := time.Parse(time.RFC3339, textA); err == nil {
		timeB, err := time.Parse(time.RFC3339, textB)
		return err == nil && timeA.Equal(timeB)
	}
	if !isQuantity(path) || a == nil || b == nil {
		return false
	}
	return k8sutil.SameQuantity(textA, textB)
}

// isQuantity says whether a field is one of those that hold quantities, such as
// resources.requests.cpu. Elsewhere "1.10" is a version, and not "1.1".
func isQuantity(path string) bool {
	for _, field := range []string{".requests.", ".limits.", ".capacity.", ".hard.", ".sizeLimit"} {
		if strings.Contains(path+".", field) {
			return true
		}
	}
	return false
}
