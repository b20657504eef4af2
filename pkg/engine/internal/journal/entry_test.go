package journal

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// entryWith is an entry of one step for each letter of states, a stepState; made says
// by a "+" at a change that the cluster shows it made.
func entryWith(states, made string, changes ...migration.Change) *Entry {
	e := &Entry{Record: Record{Unit: migration.Unit{ID: "u", Changes: changes}, Pre: make([]Preimage, len(changes))}, Chunk: &Chunk{}}
	e.Chunk.entries = []*Entry{e}
	for i := range changes {
		e.known = append(e.known, known{state: StepState(states[i]), made: made[i] == '+'})
		e.reports = append(e.reports, migration.ReportOf(&changes[i], migration.ChangeNotStarted))
	}
	return e
}

func states(e *Entry) string {
	all := ""
	for _, s := range e.Steps() {
		all += string(rune(s.State()))
	}
	return all
}

// indexOf is the index of a step, -1 if there is none.
func indexOf(s Step, ok bool) int {
	if !ok {
		return -1
	}
	return s.Index
}

func TestGuards(t *testing.T) {
	guarded := func(verb migration.Verb, name string) migration.Change {
		return migration.Change{Verb: verb, Ref: enginetest.Ref("Thing", name), Guard: true}
	}
	e := entryWith("------", "------",
		migration.Change{Verb: migration.Create, Ref: enginetest.Ref("Thing", "a")}, migration.Change{Verb: migration.Await, Ref: enginetest.Ref("Thing", "a")},
		guarded(migration.Patch, "b"), migration.Change{Verb: migration.Delete, Ref: enginetest.Ref("Thing", "b")}, guarded(migration.Delete, "c"), migration.Change{Verb: migration.Create, Ref: enginetest.Ref("Thing", "d")})
	var of, end []int
	for i, s := range e.Steps() {
		of = append(of, indexOf(s.GuardedBy()))
		end = append(end, i+len(s.Guarded()))
	}
	if diff := cmp.Diff([]int{-1, -1, 2, 2, 4, 4}, of); diff != "" {
		t.Errorf("what a change belongs to (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{2, 2, 4, 4, 6, 6}, end); diff != "" {
		t.Errorf("where what belongs to it ends (-want +got):\n%s", diff)
	}
}

// TestDeletes finds the change that deletes the object of another, that one or a later one.
func TestDeletes(t *testing.T) {
	a, b := enginetest.Ref("Thing", "a"), enginetest.Ref("Thing", "b")
	u := migration.Unit{Changes: []migration.Change{{Verb: migration.Patch, Ref: a}, {Verb: migration.Patch, Ref: b}, {Verb: migration.Delete, Ref: a}, {Verb: migration.Create, Ref: a}, {Verb: migration.Delete, Ref: b}}}
	e := &Entry{Record: Record{Unit: u}}
	var got, of []int
	var goes []bool
	for _, s := range e.Steps() {
		got, of, goes = append(got, indexOf(s.DeletedBy())), append(of, indexOf(s.Deletion())), append(goes, s.Goes())
	}
	if diff := cmp.Diff([]int{2, 4, 2, -1, 4}, got); diff != "" {
		t.Errorf("what deletes it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{-1, -1, -1, 2, -1}, of); diff != "" {
		t.Errorf("what had deleted it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{true, true, false, false, false}, goes); diff != "" {
		t.Errorf("whether it goes later (-want +got):\n%s", diff)
	}
}

func TestUndecided(t *testing.T) {
	for name, tc := range map[string]struct {
		reason       string
		states, made string
		ask, gaveUp  bool
	}{
		"NotBegun": {"nothing was begun: ask", "d--", "+--", true, false},
		"All":      {"an earlier process did all of it: its reason is no question any more", "ddd", "+++", false, false},
		"ShownAll": {"the cluster shows all of it", "d??", "+++", false, false},
		"Half":     {"half of it was done: the reason must hold for the rest", "d?-", "++-", true, false},
		"HalfLeft": {"half of it was done, and the plan of now does not want the rest: undo it", "d?l", "++-", false, true},
		"AllLeft":  {"none of it is wanted, and none was done", "dll", "+--", false, false},
		"Unknown":  {"whether it was begun is not known, and the cluster does not show it: ask", "d??", "+--", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith(tc.states, tc.made, migration.Change{Verb: migration.Create, Ref: enginetest.Ref("Thing", "a")},
				migration.Change{Verb: migration.Patch, Ref: enginetest.Ref("Thing", "b"), Guard: true}, migration.Change{Verb: migration.Delete, Ref: enginetest.Ref("Thing", "b")})
			e.Read = true
			ask, gaveUp := e.Step(1).undecided()
			if ask != tc.ask || gaveUp != tc.gaveUp {
				t.Errorf("%s: ask %t, gave up %t", tc.reason, ask, gaveUp)
			}
		})
	}
}

// TestUndecidedOfWhatIsReplaced: once the object is deleted, the journal decides what takes its
// place, and all of a unit that commits.
func TestUndecidedOfWhatIsReplaced(t *testing.T) {
	a, b := enginetest.Ref("Thing", "a"), enginetest.Ref("Thing", "b")
	for name, tc := range map[string]struct {
		made    string
		commit  bool
		ask     bool
		changes []migration.Change
	}{
		"NotBegun":    {"--", false, true, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Create, Ref: a}}},
		"Replaces":    {"+-", false, false, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Create, Ref: a}}},
		"Recreates":   {"+-", false, false, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Recreate, Ref: a}}},
		"OtherObject": {"+-", false, true, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Delete, Ref: b}}},
		"Commit":      {"+-", true, false, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Delete, Ref: b}}},
		// On f3299ef nobody was asked.
		"CommitPatched": {"+-", true, true, []migration.Change{{Verb: migration.Patch, Ref: a, Guard: true}, {Verb: migration.Delete, Ref: a}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith("??", tc.made, tc.changes...)
			e.Read, e.Unit.Commit = true, tc.commit
			if ask, gaveUp := e.Step(0).undecided(); ask != tc.ask || gaveUp {
				t.Errorf("ask %t, gave up %t", ask, gaveUp)
			}
		})
	}
}

// TestRecreation finds what recreates an object: only what says so, and what comes behind.
func TestRecreation(t *testing.T) {
	orders, other := enginetest.Ref("ServiceInstance", "orders"), enginetest.Ref("ServiceInstance", "other")
	u := migration.Unit{Changes: []migration.Change{
		{Verb: migration.Patch, Ref: orders}, {Verb: migration.Delete, Ref: other}, {Verb: migration.Delete, Ref: orders}, {Verb: migration.Await, Ref: other},
		{Verb: migration.Recreate, Ref: orders}, {Verb: migration.Patch, Ref: orders}, {Verb: migration.Create, Ref: other},
	}}
	var got []int
	for _, s := range NewEntry(0, u, nil).Steps() {
		got = append(got, indexOf(s.Recreation()))
	}
	// What comes before the recreation is overtaken by it; what follows is not.
	if diff := cmp.Diff([]int{4, -1, 4, -1, -1, -1, -1}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !Recreates(&u) || Recreates(&migration.Unit{Changes: slices.Delete(u.Changes, 4, 5)}) {
		t.Error("a unit recreates if a change of it does")
	}
}

// TestRecreated: what is recreated is what the change says, or else what the deletion found.
func TestRecreated(t *testing.T) {
	a := enginetest.Ref("Thing", "a")
	found, given := enginetest.Make("Thing", "a", "found"), enginetest.Make("Thing", "a", "given")
	found.SetUID("u")
	for name, tc := range map[string]struct {
		found, given *unstructured.Unstructured
		want         string
	}{
		"Found":   {found, nil, "found"},
		"Given":   {found, given, "given"},
		"Nothing": {nil, nil, "gone"},
	} {
		e := NewEntry(0, migration.Unit{Changes: []migration.Change{{Verb: migration.Delete, Ref: a}, {Verb: migration.Recreate, Ref: a, Object: tc.given}}}, []Preimage{{Object: tc.found}, {}})
		got := e.Step(1).Recreated()
		if enginetest.Value(got) != tc.want || got != nil && got.GetUID() != "" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRecord: what this process knows of a unit is not stored with it.
func TestRecord(t *testing.T) {
	e := entryWith("d", "+", migration.Change{Verb: migration.Create, Ref: enginetest.Ref("Thing", "a")})
	s, j := fakeJournals(), New("job", "v1", 1, &migration.Plan{})
	if err := s.Append(t.Context(), j, []*Entry{e}); err != nil {
		t.Fatal(err)
	}
	list, err := s.Secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d Secrets, %v", len(list.Items), err)
	}
	unpack, err := gzip.NewReader(bytes.NewReader(list.Items[0].Data["units"]))
	if err != nil {
		t.Fatal(err)
	}
	var stored []map[string]json.RawMessage
	if err := json.NewDecoder(unpack).Decode(&stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pre", "seq", "unit"}, slices.Sorted(maps.Keys(stored[0]))); diff != "" {
		t.Errorf("fields of a stored unit (-want +got):\n%s", diff)
	}
}

// TestReportEarlier: what an earlier process has ended is reported as it left it, and what it left
// to others is no change of the run.
func TestReportEarlier(t *testing.T) {
	for name, tc := range map[string]struct {
		states, made string
		ended        bool
		want         []string
	}{
		"Done":  {"ddf", "---", true, []string{"done", "done", "unchanged"}},
		"Half":  {"d??", "-+-", false, []string{"done", "open", "not-started"}},
		"Left":  {"dll", "---", true, []string{"done", "left", "left"}},
		"None":  {"---", "---", false, []string{"not-started", "not-started", "not-started"}},
		"Given": {"lll", "---", true, nil},
		"Goes":  {"lll", "---", false, []string{"left", "left", "left"}},
	} {
		e := entryWith(tc.states, tc.made, migration.Change{Verb: migration.Create}, migration.Change{Verb: migration.Patch}, migration.Change{Verb: migration.Await})
		e.Done = tc.ended
		e.ReportEarlier()
		var got []string
		for _, r := range e.Reports() {
			got = append(got, r.Result)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
