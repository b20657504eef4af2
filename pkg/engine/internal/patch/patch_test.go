package patch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestInversePatch(t *testing.T) {
	for name, tc := range map[string]struct {
		reason          string
		pre, patch      string
		live            string // "": as our patch left it
		want            string
		theirs          int
		nothingToRevert bool
	}{
		"Replaced":         {reason: "a replaced value comes back", pre: `{"spec":{"replicas":2}}`, patch: `{"spec":{"replicas":0}}`, want: `{"spec":{"replicas":2}}`},
		"Added":            {reason: "an added value goes", pre: `{"spec":{"a":1}}`, patch: `{"spec":{"b":2}}`, want: `{"spec":{"a":1}}`},
		"AddedMap":         {reason: "a map that was not there goes whole", pre: `{"spec":{}}`, patch: `{"spec":{"m":{"a":1}}}`, want: `{"spec":{}}`},
		"Removed":          {reason: "a removed value comes back", pre: `{"spec":{"a":1,"b":2}}`, patch: `{"spec":{"b":null}}`, want: `{"spec":{"a":1,"b":2}}`},
		"Slash":            {reason: "label keys with a slash are escaped", pre: `{"spec":{"x.y/z":"1"}}`, patch: `{"spec":{"x.y/z":"2"}}`, want: `{"spec":{"x.y/z":"1"}}`},
		"OthersField":      {reason: "another field that somebody changed stays", pre: `{"spec":{"a":1,"b":1}}`, patch: `{"spec":{"a":2}}`, live: `{"spec":{"a":2,"b":9}}`, want: `{"spec":{"a":1,"b":9}}`},
		"OurFieldEdited":   {reason: "our field that somebody changed stays, the rest comes back", pre: `{"spec":{"a":1,"b":1}}`, patch: `{"spec":{"a":2,"b":2}}`, live: `{"spec":{"a":7,"b":2}}`, want: `{"spec":{"a":7,"b":1}}`, theirs: 1},
		"RemovedThenAdded": {reason: "a field that we removed and somebody added again stays", pre: `{"spec":{"a":1}}`, patch: `{"spec":{"a":null}}`, live: `{"spec":{"a":5}}`, theirs: 1, nothingToRevert: true},
		"LabelOfOthers":    {reason: "a label goes that was the first one, and that of somebody else stays", pre: `{"metadata":{}}`, patch: `{"metadata":{"labels":{"a":"1"}}}`, live: `{"metadata":{"labels":{"a":"1","b":"2"}}}`, want: `{"metadata":{"labels":{"b":"2"}}}`},
		"ListEntry":        {reason: "what was taken out of a list comes back", pre: `{"spec":{"f":["a","b","c"]}}`, patch: `{"spec":{"f":["a"]}}`, want: `{"spec":{"f":["a","b","c"]}}`},
		"ListOfOthers":     {reason: "what others put into a list stays", pre: `{"spec":{"f":["a","b"]}}`, patch: `{"spec":{"f":["a"]}}`, live: `{"spec":{"f":["a","x"]}}`, want: `{"spec":{"f":["a","x","b"]}}`},
		"ListUntouched":    {reason: "what was never taken out of a list is not put in twice", pre: `{"spec":{"f":["a","b"]}}`, patch: `{"spec":{"f":["a"]}}`, live: `{"spec":{"f":["a","b"]}}`, nothingToRevert: true},
		"NeverApplied":     {reason: "nothing to undo", pre: `{"spec":{"a":1}}`, patch: `{"spec":{"a":2}}`, live: `{"spec":{"a":1}}`, nothingToRevert: true},
		"NoChange":         {reason: "a patch that changed nothing", pre: `{"spec":{"a":1}}`, patch: `{"spec":{"a":1}}`, nothingToRevert: true},
	} {
		t.Run(name, func(t *testing.T) {
			pre := enginetest.Object(t, tc.pre)
			live, err := patched(pre, []byte(tc.patch))
			if err != nil {
				t.Fatal(err)
			}
			if tc.live != "" {
				live = enginetest.Object(t, tc.live)
			}
			back, theirs, err := Inverse(pre, live, []byte(tc.patch))
			if err != nil || theirs != tc.theirs || (back == nil) != tc.nothingToRevert {
				t.Fatalf("%s: got %s, %d, %v", tc.reason, back, theirs, err)
			}
			if back == nil {
				return
			}
			operations, err := jsonpatch.DecodePatch(back)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := live.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if raw, err = operations.Apply(raw); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			got := &unstructured.Unstructured{}
			if err := got.UnmarshalJSON(raw); err != nil {
				t.Fatal(err)
			}
			want := enginetest.Object(t, tc.want)
			wantRaw, _ := want.MarshalJSON()
			_ = want.UnmarshalJSON(wantRaw)
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLastFinalizer: the server stores no empty list, and so knows a patch that
// leaves none when it meets it again.
func TestLastFinalizer(t *testing.T) {
	const patch = `{"metadata":{"finalizers":[]}}`
	pre, live := enginetest.Object(t, `{"spec":{}}`), enginetest.Object(t, `{"spec":{}}`)
	pre.SetFinalizers([]string{"example.com/cleanup"})
	if AlreadyPatched(pre, []byte(patch)) || !AlreadyPatched(live, []byte(patch)) {
		t.Errorf("already patched: %t before, %t after; want false, true", AlreadyPatched(pre, []byte(patch)), AlreadyPatched(live, []byte(patch)))
	}
	back, theirs, err := Inverse(pre, live, []byte(patch))
	if err != nil || theirs != 0 || !strings.Contains(string(back), "example.com/cleanup") {
		t.Errorf("it is undone by %s, %d fields are somebody else's: %v", back, theirs, err)
	}
}

func TestHashOf(t *testing.T) {
	base := `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1"}},"spec":{"x":1}}`
	for name, tc := range map[string]struct {
		reason string
		other  string
		equal  bool
	}{
		"Status":       {"status is nobody's edit", `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1"}},"spec":{"x":1},"status":{"y":1}}`, true},
		"ServerFields": {"what the server owns is nobody's edit", `{"metadata":{"resourceVersion":"9","generation":3,"labels":{"a":"1"},"annotations":{"n":"1"}},"spec":{"x":1}}`, true},
		"Ignored":      {"a key that a webhook owns", `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1","webhook":"w"}},"spec":{"x":1}}`, true},
		"IgnoredField": {"a field of the spec that a controller owns", `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1"}},"spec":{"x":1,"listed":[{"uid":"u"}]}}`, true},
		"OtherField":   {"an edit: the field is ignored in the spec only", `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1"}},"spec":{"x":1},"listed":[1]}`, false},
		"Mark":         {"our own mark", `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1","` + enginetest.Names.Mark() + `":"r/0/0"}},"spec":{"x":1}}`, true},
		"Spec":         {"an edit", `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1"}},"spec":{"x":2}}`, false},
		"Label":        {"an edit", `{"metadata":{"labels":{"a":"2"},"annotations":{"n":"1"}},"spec":{"x":1}}`, false},
		"Owner":        {"an edit", `{"metadata":{"labels":{"a":"1"},"annotations":{"n":"1"},"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]},"spec":{"x":1}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			ignored := map[string]bool{"webhook": true, enginetest.Names.Mark(): true, migration.IgnoredSpec + "listed": true}
			if got := Hash(enginetest.Object(t, base), ignored) == Hash(enginetest.Object(t, tc.other), ignored); got != tc.equal {
				t.Errorf("%s: equal is %t", tc.reason, got)
			}
		})
	}
}
