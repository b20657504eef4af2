package k8sutil

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// FuzzDecode: an object is decoded as Kubernetes decodes it, or not at all if that cannot.
func FuzzDecode(f *testing.F) {
	for _, raw := range []string{
		`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:a":{}}}],"labels":{}},"spec":{"managedFields":[1]}}`,
		` {"a":[1,-1,1.0,1e2,-0,9223372036854775807,9223372036854775808,0.1],"b":[true,false,null,[],{}]} ` + "\n",
		`{"a":"\u00e4\"\\\/\n\ud800","ä":"\ud83d\ude00","":"` + "\xff" + `","` + "\xff" + `":1,"\u0061":2}`,
		`{"a":{"b":1},"a":{"c":2},"metadata":{"a":1},"metadata":{"b":2}}`,
		`{"metadata":null}`, `{"metadata":[{"managedFields":1}]}`, `{"a":1e999}`,
		``, `null`, `[]`, `{`, `{}x`, `{}{}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":01}`, `{'a':1}`, `{"a":[1,]}`, "{\"a\":\"\n\"}",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var want map[string]any
		wantErr := json.Unmarshal([]byte(raw), &want)
		got, err := decodeObject([]byte(raw))
		if (err != nil) != (wantErr != nil || want == nil) {
			t.Fatalf("%q: %v, but Kubernetes: %v", raw, err, wantErr)
		}
		if err != nil {
			return
		}
		unstructured.RemoveNestedField(want, "metadata", "managedFields")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-Kubernetes +ours):\n%s", raw, diff)
		}
	})
}

func TestDecodeList(t *testing.T) {
	for raw, want := range map[string]int{
		`{"kind":"AList","items":[{"metadata":{"name":"a","managedFields":[]}},{}],"metadata":{"resourceVersion":"1","continue":"c","remainingItemCount":2}}`: 2,
		`{"kind":"AList","items":null,"metadata":{"resourceVersion":"1","continue":"c"}}`:                                                                     0,
		`{"kind":"AList","items":[]`:      -1,
		`{"kind":"AList","items":[]}{}`:   -1,
		`{"kind":"AList","items":[null]}`: -1,
		`{"kind":"AList","items":{}}`:     -1,
		`[]`:                              -1,
	} {
		list, err := decodeList([]byte(raw))
		if want < 0 {
			if err == nil {
				t.Errorf("%s: no error", raw)
			}
			continue
		}
		if err != nil || len(list.Items) != want || list.GetKind() != "AList" || list.GetResourceVersion() != "1" || list.GetContinue() != "c" {
			t.Errorf("%s: %v %v", raw, list, err)
		}
	}
}
