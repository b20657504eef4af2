package growpvc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestRecheck decides once more right before the StatefulSet is deleted. It fails on
// the commit before: what was decided once was deleted, whatever it had become.
func TestRecheck(t *testing.T) {
	o := options{statefulSet: "data/db", size: "5Gi"}
	read := func(change func(set, claim *unstructured.Unstructured, classes map[string]*unstructured.Unstructured)) *snapshot {
		s := &snapshot{set: set(t, "1Gi", ""), claims: []*unstructured.Unstructured{claim(t, "store-db-0", "1Gi", "1Gi", "")}, classes: class(t, true)}
		s.set.SetGeneration(1)
		if change != nil {
			change(s.set, s.claims[0], s.classes)
		}
		return s
	}
	type classes = map[string]*unstructured.Unstructured
	const left = "deferred: StatefulSet data/db: left as it is: "
	for _, tc := range []struct {
		reason string
		now    *snapshot
		want   string
	}{
		{"nothing has changed", read(nil), ""},
		{"status is nobody's edit", read(func(set, _ *unstructured.Unstructured, _ classes) { set.SetResourceVersion("8") }), ""},
		{
			"its image was edited: the copy has the former one",
			read(func(set, _ *unstructured.Unstructured, _ classes) { set.SetGeneration(2) }),
			left + "it was edited after the plan was made (generation 1, now 2) (Run the job again. It decides on what is there then.)",
		},
		{
			"its claims would go with it now",
			read(func(set, _ *unstructured.Unstructured, _ classes) {
				_ = unstructured.SetNestedField(set.Object, "Delete", "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted")
			}),
			left + "StatefulSet data/db: its claims are deleted when it is deleted (Set persistentVolumeClaimRetentionPolicy.whenDeleted to Retain first: kubectl -n data describe statefulsets.apps db)",
		},
		{
			"a claim cannot grow any more",
			read(func(_, _ *unstructured.Unstructured, all classes) { all["growing"] = nil }),
			left + "PersistentVolumeClaim data/store-db-0: cannot grow from 1Gi to 5Gi: its StorageClass growing does not exist (Create the StorageClass, or move the data to a claim of another one: kubectl -n data describe persistentvolumeclaims store-db-0)",
		},
		{
			"somebody else did it, and the generation starts again",
			read(func(set, _ *unstructured.Unstructured, _ classes) {
				set.Object["spec"] = map[string]any{"volumeClaimTemplates": []any{map[string]any{
					"metadata": map[string]any{"name": "store"}, "spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": "5Gi"}}},
				}}}
			}),
			left + "it needs no larger template any more (Run the job again. It decides on what is there then.)",
		},
		{"another one of its name: the engine leaves it alone", read(func(set, _ *unstructured.Unstructured, _ classes) { set.SetUID("u2") }), ""},
		{"it is gone", &snapshot{}, ""},
	} {
		plan := decide(read(nil), o)
		got := ""
		if f := recheck(tc.now, o, &plan.Units[0].Changes[0]); f != nil {
			got = string(f.Severity) + ": " + f.String()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestWhatIsWrittenIsWhatWasRead: the deletion and the patch carry what they were
// decided on. It fails on the commit before: the deletion carried no object, so an
// edit between the plan and the pre-image was lost.
func TestWhatIsWrittenIsWhatWasRead(t *testing.T) {
	read := set(t, "1Gi", "")
	read.SetManagedFields(nil)
	plan := decide(&snapshot{set: read, claims: []*unstructured.Unstructured{claim(t, "store-db-0", "1Gi", "1Gi", "")}, classes: class(t, true)}, options{statefulSet: "data/db", size: "5Gi"})
	del, grow := plan.Units[0].Changes[0], plan.Units[1].Changes[0]
	if diff := cmp.Diff(read, del.Object); diff != "" || !del.Guard || del.Verb != migration.Delete {
		t.Errorf("guarded %t (-want +got):\n%s", del.Guard, diff)
	}
	want := object(t, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: data, name: store-db-0, uid: u-store-db-0}, spec: {resources: {requests: {storage: 1Gi}}}}`)
	if diff := cmp.Diff(want, grow.Object); diff != "" {
		t.Errorf("the claim's basis (-want +got):\n%s", diff)
	}
}
