package relabel_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.org/installer/relabel"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// deployment has the same labels in its metadata, selector and template.
func deployment(labels map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "orders", "namespace": "shop", "uid": "1", "resourceVersion": "2", "labels": labels},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}},
		},
		"status": map[string]any{"replicas": int64(1)},
	}}
	return obj.DeepCopy()
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		reason string
		labels map[string]any
		// want are the labels of the new Deployment; nil: nothing is to be done.
		want map[string]any
		bad  bool
	}{
		{
			reason: "the label gets its new name, and others stay", labels: map[string]any{"app": "orders", "tier": "web"},
			want: map[string]any{"app.kubernetes.io/name": "orders", "tier": "web"},
		},
		{
			reason: "both labels say the same", labels: map[string]any{"app": "orders", "app.kubernetes.io/name": "orders"},
			want: map[string]any{"app.kubernetes.io/name": "orders"},
		},
		{reason: "both labels say different things", labels: map[string]any{"app": "orders", "app.kubernetes.io/name": "cart"}, bad: true},
		{reason: "a migrated one is left alone", labels: map[string]any{"app.kubernetes.io/name": "orders"}},
	} {
		former := deployment(tc.labels)
		plan, err := relabel.Decide([]*unstructured.Unstructured{former})
		if (err != nil) != tc.bad {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if err != nil {
			continue
		}
		var want []migration.Change
		if tc.want != nil {
			next := deployment(tc.want)
			delete(next.Object, "status")
			unstructured.RemoveNestedField(next.Object, "metadata", "uid")
			unstructured.RemoveNestedField(next.Object, "metadata", "resourceVersion")
			ref := migration.Ref{Resource: relabel.Deployments, Namespace: "shop", Name: "orders"}
			want = []migration.Change{
				{Verb: migration.Delete, Ref: ref, UID: "1", Object: former, Guard: true, Why: "its selector cannot be changed"},
				{Verb: migration.Create, Ref: ref, Object: next, Why: "with the label app.kubernetes.io/name"},
			}
		}
		var got []migration.Change
		for _, u := range plan.Units {
			got = append(got, u.Changes...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func ExampleDecide() {
	plan, err := relabel.Decide([]*unstructured.Unstructured{deployment(map[string]any{"app": "orders"})})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, unit := range plan.Units {
		for _, change := range unit.Changes {
			fmt.Printf("%s %s: %s\n", change.Verb, change.Ref, change.Why)
		}
	}
	// Output:
	// delete Deployment shop/orders: its selector cannot be changed
	// create Deployment shop/orders: with the label app.kubernetes.io/name
}
