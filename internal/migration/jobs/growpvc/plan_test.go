package growpvc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return u
}

// set is StatefulSet data/db with one template of a size; more goes into its spec.
func set(t *testing.T, size, more string) *unstructured.Unstructured {
	t.Helper()
	return object(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: data, name: db, uid: u1, resourceVersion: "7", labels: {keep: me}, ownerReferences: [{kind: Database, name: db, uid: u0}]},
  spec: {replicas: 2, selector: {matchLabels: {app: db}}, volumeClaimTemplates: [{metadata: {name: store}, spec: {storageClassName: growing, resources: {requests: {storage: `+size+`}}}, status: {phase: Pending}}]`+more+`}, status: {replicas: 2}}`)
}

// claim is one of data/db: the size it asks for, and has.
func claim(t *testing.T, name, size, capacity, more string) *unstructured.Unstructured {
	t.Helper()
	return object(t, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: data, name: %s, uid: u-%s}, spec: {storageClassName: growing, resources: {requests: {storage: %q}}}, status: {phase: Bound, capacity: {storage: %q}%s}}`,
		name, name, size, capacity, more))
}

func size(t *testing.T, s string) resource.Quantity {
	t.Helper()
	q, err := resource.ParseQuantity(s)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func class(t *testing.T, expands bool) map[string]*unstructured.Unstructured {
	t.Helper()
	return map[string]*unstructured.Unstructured{"growing": object(t, fmt.Sprintf(`{kind: StorageClass, metadata: {name: growing}, allowVolumeExpansion: %t}`, expands))}
}

func summary(p *migration.Plan) []string {
	out := []string{}
	for _, u := range p.Units {
		var changes []string
		for i := range u.Changes {
			ch := &u.Changes[i]
			change := string(ch.Verb) + string(ch.Patch)
			if ch.Irreversible {
				change += " for good"
			}
			changes = append(changes, change)
		}
		out = append(out, u.ID+": "+strings.Join(changes, ", "))
	}
	for _, f := range p.Findings {
		out = append(out, string(f.Severity)+": "+f.Object+" "+f.Problem)
	}
	return out
}

func TestDecide(t *testing.T) {
	const (
		again = "StatefulSet data/db: delete, create"
		c0    = "PersistentVolumeClaim data/store-db-0"
		c1    = "PersistentVolumeClaim data/store-db-1"
		grows = `: patch{"spec":{"resources":{"requests":{"storage":"5Gi"}}}} for good`
	)
	two := func(first, second string) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{claim(t, "store-db-0", first, first, ""), claim(t, "store-db-1", second, second, "")}
	}
	for name, tc := range map[string]struct {
		reason string
		set    *unstructured.Unstructured
		claims []*unstructured.Unstructured
		class  map[string]*unstructured.Unstructured
		claim  string
		want   []string
	}{
		"Grows": {
			reason: "The StatefulSet first, which can be put back; then the claims, which cannot.",
			set:    set(t, "1Gi", ""), claims: two("1Gi", "1Gi"), class: class(t, true),
			want: []string{again, c0 + grows, c1 + grows},
		},
		"Done": {reason: "Nothing is left.", set: set(t, "5Gi", ""), claims: two("5Gi", "5Gi"), class: class(t, true), want: []string{}},
		"DoneInOtherUnits": {
			reason: "5120Mi are 5Gi.", set: set(t, "5120Mi", ""), claims: two("5Gi", "5368709120"), class: class(t, true), want: []string{},
		},
		"LargerStays": {
			reason: "It only ever grows; what is smaller besides does.",
			set:    set(t, "9Gi", ""), claims: two("9Gi", "1Gi"), class: class(t, true),
			want: []string{
				c1 + grows, "info: StatefulSet data/db its volume claim template has 9Gi already, which is not made smaller",
				"info: " + c0 + " has 9Gi already, which is not made smaller",
			},
		},
		"OnlyTheTemplate": {reason: "Somebody has let the claims grow by hand.", set: set(t, "1Gi", ""), claims: two("5Gi", "5Gi"), class: class(t, true), want: []string{again}},
		"Growing": {
			reason: "Asked for, and not there yet: it is awaited.",
			set:    set(t, "5Gi", ""), claims: []*unstructured.Unstructured{claim(t, "store-db-0", "5Gi", "1Gi", "")}, class: class(t, true),
			want: []string{c0 + ": await"},
		},
		"FileSystemLater": {
			reason: "Only the pod's next start is missing: that is not for this job.",
			set:    set(t, "5Gi", ""), claims: []*unstructured.Unstructured{claim(t, "store-db-0", "5Gi", "1Gi", `, conditions: [{type: FileSystemResizePending, status: "True"}]`)}, class: class(t, true),
			want: []string{},
		},
		"CannotExpand": {
			reason: "Found before anything is deleted: an error refuses the whole plan.",
			set:    set(t, "1Gi", ""), claims: two("1Gi", "1Gi"), class: class(t, false),
			want: []string{
				again,
				"error: " + c0 + " cannot grow from 1Gi to 5Gi: its StorageClass growing cannot expand volumes (allowVolumeExpansion is not true)",
				"error: " + c1 + " cannot grow from 1Gi to 5Gi: its StorageClass growing cannot expand volumes (allowVolumeExpansion is not true)",
			},
		},
		"NoClass": {
			reason: "A class that is gone cannot expand either.",
			set:    set(t, "5Gi", ""), claims: two("5Gi", "1Gi"), class: map[string]*unstructured.Unstructured{"growing": nil},
			want: []string{"error: " + c1 + " cannot grow from 1Gi to 5Gi: its StorageClass growing does not exist"},
		},
		"NotBound": {
			reason: "Its volume does not exist yet.",
			set:    set(t, "5Gi", ""), class: class(t, true),
			claims: []*unstructured.Unstructured{object(t, `{kind: PersistentVolumeClaim, metadata: {namespace: data, name: store-db-0}, spec: {storageClassName: growing, resources: {requests: {storage: 1Gi}}}, status: {phase: Pending}}`)},
			want:   []string{"error: " + c0 + " cannot grow from 1Gi to 5Gi: it is not bound to a volume"},
		},
		"ByHand": {
			reason: "A volume without a class has nobody who could let it grow.",
			set:    set(t, "5Gi", ""), class: class(t, true),
			claims: []*unstructured.Unstructured{object(t, `{kind: PersistentVolumeClaim, metadata: {namespace: data, name: store-db-0}, spec: {resources: {requests: {storage: 1Gi}}}, status: {phase: Bound}}`)},
			want:   []string{"error: " + c0 + " cannot grow from 1Gi to 5Gi: it has no StorageClass"},
		},
		"ClaimsGoWithIt": {
			reason: "To delete it would be to delete the data.",
			set:    set(t, "1Gi", ", persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}"), claims: two("1Gi", "1Gi"), class: class(t, true),
			want: []string{again, c0 + grows, c1 + grows, "error: StatefulSet data/db its claims are deleted when it is deleted"},
		},
		"Missing":   {reason: "A typing error.", want: []string{"error: StatefulSet data/db does not exist"}},
		"Meanwhile": {reason: "An interrupted run has deleted it: its journal creates it.", claims: two("5Gi", "5Gi"), class: class(t, true), want: []string{"warning: StatefulSet data/db does not exist now, or is being deleted; its claims still grow"}},
		"Several": {
			reason: "Which of them is not ours to guess.", set: object(t, `{kind: StatefulSet, metadata: {namespace: data, name: db}, spec: {volumeClaimTemplates: [{metadata: {name: a}}, {metadata: {name: b}}]}}`),
			want: []string{"error: StatefulSet data/db has several volume claim templates (a, b): choose one with --claim"},
		},
		"Another": {reason: "A typing error.", set: set(t, "1Gi", ""), claim: "stor", want: []string{`error: StatefulSet data/db has no volume claim template "stor"; there is store`}},
		"None":    {reason: "It keeps nothing.", set: object(t, `{kind: StatefulSet, metadata: {namespace: data, name: db}, spec: {}}`), want: []string{"error: StatefulSet data/db has no volume claim template"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.set.DeepCopy()
			plan := decide(&snapshot{set: tc.set, claims: tc.claims, classes: tc.class}, options{statefulSet: "data/db", size: "5Gi", claim: tc.claim})
			if diff := cmp.Diff(tc.want, summary(plan)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, f := range plan.Findings {
				if f.Severity == migration.Error && f.Note == "" {
					t.Errorf("nothing says what to do: %s", f)
				}
			}
			if diff := cmp.Diff(before, tc.set); diff != "" {
				t.Errorf("what was observed was changed:\n%s", diff)
			}
		})
	}
}

// TestTheNewStatefulSetIsTheOld but for the size in its template, and what the API
// server gives.
func TestTheNewStatefulSetIsTheOld(t *testing.T) {
	plan := decide(&snapshot{set: set(t, "1Gi", "")}, options{statefulSet: "data/db", size: "5Gi"})
	made := plan.Units[0].Changes[1]
	want := object(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: data, name: db, labels: {keep: me}, ownerReferences: [{kind: Database, name: db, uid: u0}]},
  spec: {replicas: 2, selector: {matchLabels: {app: db}}, volumeClaimTemplates: [{metadata: {name: store}, spec: {storageClassName: growing, resources: {requests: {storage: 5Gi}}}}]}}`)
	if diff := cmp.Diff(want, made.Object); diff != "" || made.Verb != migration.Create || plan.Units[0].Changes[0].UID != "u1" {
		t.Errorf("to %s, deletes the one with UID %q (-want +got):\n%s", made.Verb, plan.Units[0].Changes[0].UID, diff)
	}
}

// TestMistypedName: without its StatefulSet, a claim grows only if pods of that StatefulSet are
// there: an interrupted run has deleted it. On f3299ef the claims of StatefulSet my-db grew for
// good when somebody asked for db, with a warning.
func TestMistypedName(t *testing.T) {
	mine := claim(t, "store-db-0", "1Gi", "1Gi", "")
	theirs := claim(t, "store-my-db-0", "1Gi", "1Gi", "")
	other := set(t, "1Gi", "")
	other.SetName("my-db")
	pod := func(name, owner string) *unstructured.Unstructured {
		return object(t, `{kind: Pod, metadata: {namespace: data, name: `+name+owner+`}}`)
	}
	const grows = `PersistentVolumeClaim data/store-db-0: patch{"spec":{"resources":{"requests":{"storage":"5Gi"}}}} for good`
	const warning = "warning: StatefulSet data/db does not exist now, or is being deleted; its claims still grow"
	for name, tc := range map[string]struct {
		reason string
		there  []*unstructured.Unstructured
		want   []string
	}{
		"Mistyped": {"the claim of another StatefulSet, whose name ends so", []*unstructured.Unstructured{theirs, other, pod("my-db-0", ", ownerReferences: [{kind: StatefulSet, name: my-db, controller: true}]")}, []string{
			"error: StatefulSet data/db does not exist; in this namespace there is my-db",
		}},
		"MistypedOrphans": {"whose StatefulSet is gone, too", []*unstructured.Unstructured{theirs}, []string{"error: StatefulSet data/db does not exist"}},
		"Interrupted":     {"the pods are left, as the run leaves them", []*unstructured.Unstructured{mine, theirs, other, pod("db-0", "")}, []string{grows, warning}},
		"JustDeleted": {
			"and a moment before", []*unstructured.Unstructured{mine, pod("db-0", ", ownerReferences: [{kind: StatefulSet, name: db, controller: true}]")},
			[]string{grows, warning},
		},
		"OfAnother": {"a pod of that name that somebody else has", []*unstructured.Unstructured{mine, pod("db-0", ", ownerReferences: [{kind: Job, name: db, controller: true}]")}, []string{"error: StatefulSet data/db does not exist"}},
		"NoPods":    {"nothing says whose claims they are", []*unstructured.Unstructured{mine}, []string{"error: StatefulSet data/db does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := kinds{"StorageClass growing": class(t, true)["growing"]}
			for _, obj := range tc.there {
				cluster[obj.GetKind()+" "+obj.GetName()] = obj
			}
			o := options{statefulSet: "data/db", size: "5Gi"}
			s, err := observe(t.Context(), cluster, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, summary(decide(s, o))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// kinds is a cluster whose lists are of one kind each.
type kinds reads

func (k kinds) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	return k[ref.Kind+" "+ref.Name], nil
}

func (k kinds) List(_ context.Context, r migration.Resource, _ string, _ migration.ListOptions) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(k)) {
		if k[name].GetKind() == r.Kind {
			out = append(out, k[name])
		}
	}
	return out, nil
}

// reads is a cluster of a few objects.
type reads map[string]*unstructured.Unstructured

func (r reads) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	return r[ref.String()], nil
}

func (r reads) List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, u := range r {
		if u.GetKind() == "PersistentVolumeClaim" {
			out = append(out, u)
		}
	}
	return out, nil
}

// TestObserve finds the claims that a StatefulSet has made, and no others.
func TestObserve(t *testing.T) {
	cluster := reads{"StatefulSet data/db": set(t, "1Gi", ""), "StorageClass growing": object(t, `{kind: StorageClass, metadata: {name: growing}}`)}
	for _, name := range []string{
		"store-db-10", "store-db-2", "store-db-0", // its own, in the order of their pods
		"other-db-0", "store-db", "store-db-x", "store-mydb-0", "store-db-1-0", "storedb-0",
	} {
		cluster[name] = claim(t, name, "1Gi", "1Gi", "")
	}
	names := func(o options) []string {
		s, err := observe(t.Context(), cluster, o)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range s.claims {
			out = append(out, c.GetName())
		}
		if len(out) > 0 && s.classes["growing"] == nil {
			t.Error("the StorageClass was not read")
		}
		return out
	}
	mine := []string{"store-db-0", "store-db-2", "store-db-10"}
	if diff := cmp.Diff(mine, names(options{statefulSet: "data/db", size: "5Gi"})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// Between its deletion and its creation, only the name of the template tells.
	delete(cluster, "StatefulSet data/db")
	if diff := cmp.Diff(mine, names(options{statefulSet: "data/db", size: "5Gi", claim: "store"})); diff != "" {
		t.Errorf("without the StatefulSet (-want +got):\n%s", diff)
	}
	if got := names(options{statefulSet: "data/db", size: "5Gi"}); got != nil {
		t.Errorf("two templates, and none was chosen: %q", got)
	}
}

func TestAwait(t *testing.T) {
	pod := func(labels, owner string) *unstructured.Unstructured {
		return object(t, `{kind: Pod, metadata: {namespace: data, name: p, labels: {`+labels+`}, ownerReferences: [{kind: StatefulSet, name: db, uid: `+owner+`, controller: true}]}}`)
	}
	seen := func(observed int) *unstructured.Unstructured {
		u := set(t, "5Gi", "")
		u.SetGeneration(1)
		u.Object["status"] = map[string]any{"observedGeneration": int64(observed)}
		return u
	}
	ref := migration.Ref{Resource: statefulSets, Namespace: "data", Name: "db"}
	claimRef := migration.Ref{Resource: claims, Namespace: "data", Name: "store-db-0"}
	create := migration.Change{Verb: migration.Create, Ref: ref, Object: set(t, "5Gi", "")}
	patch := grow(claimRef, claim(t, "store-db-0", "1Gi", "1Gi", ""), size(t, "1Gi"), size(t, "5Gi")).Changes[0]
	await := migration.Change{Verb: migration.Await, Ref: claimRef}
	at := func(c *unstructured.Unstructured) view.Of { return view.Of{c} }
	j := New()
	j.options.size = "5Gi"
	for name, tc := range map[string]struct {
		change  migration.Change
		view    view.Of
		state   migration.State
		message string
	}{
		"NotThereYet":   {create, view.Of{}, migration.Pending, "it is not there"},
		"NotSeen":       {create, view.Of{seen(0)}, migration.Pending, "its controller has not seen it yet"},
		"Adopted":       {create, view.Of{seen(1), pod("app: db", "u1")}, migration.Met, ""},
		"NotAdopted":    {create, view.Of{seen(1), pod("app: db", "former")}, migration.Pending, "Pod data/p is not adopted yet"},
		"AnotherPod":    {create, view.Of{seen(1), pod("app: web", "other")}, migration.Met, ""},
		"Grown":         {patch, at(claim(t, "store-db-0", "5Gi", "5Gi", "")), migration.Met, ""},
		"FurtherGrown":  {patch, at(claim(t, "store-db-0", "9Gi", "8Gi", "")), migration.Met, ""},
		"Growing":       {patch, at(claim(t, "store-db-0", "5Gi", "1Gi", "")), migration.Pending, "its volume has 1Gi"},
		"GrowingByHand": {await, at(claim(t, "store-db-0", "5Gi", "1Gi", "")), migration.Pending, "its volume has 1Gi"},
		"Refused":       {patch, at(claim(t, "store-db-0", "5Gi", "1Gi", `, conditions: [{type: ControllerResizeError, status: "True", message: quota}]`)), migration.Pending, "ControllerResizeError: quota"},
		"Deleted":       {patch, view.Of{}, migration.Failed, "it was deleted meanwhile"},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := j.Await(&tc.change)
			if len(conditions) != 1 || conditions[0].Timeout <= 0 {
				t.Fatalf("%d conditions, want one with a limit", len(conditions))
			}
			got := conditions[0].Eval(tc.view)
			if got.State != tc.state || got.Message != tc.message {
				t.Errorf("%v %q, want %v %q", got.State, got.Message, tc.state, tc.message)
			}
		})
	}
	if c := j.Await(&migration.Change{Verb: migration.Delete, Ref: ref}); c != nil {
		t.Errorf("a deletion is awaited by the engine: %v", c)
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		o    options
		want []string
	}{
		{options{}, nil},
		{options{statefulSet: "data/db", size: "20Gi"}, nil},
		{options{size: "20Gi"}, []string{"--statefulset"}},
		{options{statefulSet: "db", size: "20Gi"}, []string{"--statefulset"}},
		{options{statefulSet: "data/db", size: "20 GB"}, []string{"--size"}},
		{options{statefulSet: "Data/db", size: "-1"}, []string{"--statefulset", "--size"}},
		{options{claim: "store"}, []string{"--statefulset", "--size"}},
	} {
		j := New()
		j.options = tc.o
		err := j.Validate()
		if (err != nil) != (len(tc.want) > 0) {
			t.Errorf("%+v: %v", tc.o, err)
		}
		for _, part := range tc.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q is missing in %v", tc.o, part, err)
			}
		}
	}
}
