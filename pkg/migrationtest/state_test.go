package migrationtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestStripped(t *testing.T) {
	const mark = "program/change"
	for _, tc := range []struct {
		reason    string
		obj, want map[string]any
	}{
		{
			reason: "what the API server and controllers set does not count",
			obj: map[string]any{
				"metadata": map[string]any{"name": "a", "uid": "1", "resourceVersion": "2", "generation": int64(3), "creationTimestamp": "now"},
				"status":   map[string]any{"ready": true},
			},
			want: map[string]any{"metadata": map[string]any{"name": "a"}},
		},
		{
			reason: "what the job says that controllers own does not count; other keys do",
			obj: map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{"revision": "1", "mine": "x"}},
				"spec":     map[string]any{"requests": int64(1), "size": int64(2)},
			},
			want: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"mine": "x"}}, "spec": map[string]any{"size": int64(2)}},
		},
		{
			reason: "a mark counts, the run that it names does not",
			obj:    map[string]any{"metadata": map[string]any{"annotations": map[string]any{mark: "r/u/1"}}},
			want:   map[string]any{"metadata": map[string]any{"annotations": map[string]any{mark: "the run that created it"}}},
		},
		{
			reason: "an owner counts by its name, since a restored one has another UID",
			obj:    map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{"name": "o", "uid": "7"}}}},
			want:   map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{"name": "o", "uid": "ConfigMap shop/o"}}}},
		},
	} {
		got := stripped(&unstructured.Unstructured{Object: tc.obj}, map[any]any{"7": "ConfigMap shop/o"}, []string{"revision", "spec.requests"}, mark)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
