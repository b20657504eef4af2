package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// entryWith is an entry of one step for each letter of states, a stepState; made says
// by a "+" at a change that the cluster shows it made.
func entryWith(states, made string, changes ...migration.Change) *entry {
	e := &entry{Unit: migration.Unit{ID: "u", Changes: changes}, Pre: make([]preimage, len(changes)), chunk: &chunk{}}
	e.chunk.entries = []*entry{e}
	for i := range changes {
		e.steps = append(e.steps, step{state: stepState(states[i]), made: made[i] == '+'})
		e.reports = append(e.reports, changeReport(&changes[i], migration.ChangeNotStarted))
	}
	return e
}

func states(e *entry) string {
	all := ""
	for _, s := range e.steps {
		all += string(rune(s.state))
	}
	return all
}

func TestGuards(t *testing.T) {
	guarded := func(verb migration.Verb, name string) migration.Change {
		return migration.Change{Verb: verb, Ref: ref("Thing", name), Guard: true}
	}
	e := entryWith("------", "------",
		migration.Change{Verb: migration.Create, Ref: ref("Thing", "a")}, migration.Change{Verb: migration.Await, Ref: ref("Thing", "a")},
		guarded(migration.Patch, "b"), migration.Change{Verb: migration.Delete, Ref: ref("Thing", "b")}, guarded(migration.Delete, "c"), migration.Change{Verb: migration.Create, Ref: ref("Thing", "d")})
	var of, end []int
	for i := range e.Unit.Changes {
		of = append(of, e.guardOf(i))
		end = append(end, guardEnd(&e.Unit, i))
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
	a, b := ref("Thing", "a"), ref("Thing", "b")
	u := migration.Unit{Changes: []migration.Change{{Verb: migration.Patch, Ref: a}, {Verb: migration.Patch, Ref: b}, {Verb: migration.Delete, Ref: a}, {Verb: migration.Create, Ref: a}, {Verb: migration.Delete, Ref: b}}}
	e := &entry{Unit: u}
	var got, of []int
	var goes []bool
	for i := range u.Changes {
		got, of, goes = append(got, deletes(&u, i)), append(of, e.deletionOf(i)), append(goes, e.goes(i))
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
			e := entryWith(tc.states, tc.made, migration.Change{Verb: migration.Create, Ref: ref("Thing", "a")},
				migration.Change{Verb: migration.Patch, Ref: ref("Thing", "b"), Guard: true}, migration.Change{Verb: migration.Delete, Ref: ref("Thing", "b")})
			e.read = true
			ask, gaveUp := (&recorder{}).undecided(e, 1)
			if ask != tc.ask || gaveUp != tc.gaveUp {
				t.Errorf("%s: ask %t, gave up %t", tc.reason, ask, gaveUp)
			}
		})
	}
}

// TestUndecidedOfWhatIsReplaced: once the object is deleted, the journal decides what takes its
// place, and all of a unit that commits.
func TestUndecidedOfWhatIsReplaced(t *testing.T) {
	a, b := ref("Thing", "a"), ref("Thing", "b")
	for name, tc := range map[string]struct {
		made    string
		commit  bool
		ask     bool
		changes []migration.Change
	}{
		"NotBegun":    {"--", false, true, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Create, Ref: a, Replaces: true}}},
		"Replaces":    {"+-", false, false, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Create, Ref: a, Replaces: true}}},
		"OtherObject": {"+-", false, true, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Delete, Ref: b}}},
		"Commit":      {"+-", true, false, []migration.Change{{Verb: migration.Delete, Ref: a, Guard: true}, {Verb: migration.Delete, Ref: b}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith("??", tc.made, tc.changes...)
			e.read, e.Unit.Commit = true, tc.commit
			if ask, gaveUp := (&recorder{}).undecided(e, 0); ask != tc.ask || gaveUp {
				t.Errorf("ask %t, gave up %t", ask, gaveUp)
			}
		})
	}
}

// TestGoesOn holds which changes of an interrupted unit are made as they were planned
// then. Fails on the commit before: all of a unit went on as soon as a unit of its ID
// was planned, or any of it was begun.
func TestGoesOn(t *testing.T) {
	a, b := ref("Thing", "a"), ref("Thing", "b")
	expand := []migration.Change{{Verb: migration.Create, Ref: a}, {Verb: migration.Patch, Ref: b, Guard: true}, {Verb: migration.Delete, Ref: b}}
	remake := []migration.Change{{Verb: migration.Delete, Ref: a}, {Verb: migration.Await, Ref: b}, {Verb: migration.Create, Ref: a}, {Verb: migration.Delete, Ref: b}}
	for name, tc := range map[string]struct {
		reason         string
		changes        []migration.Change
		commit, last   bool
		states, made   string
		wanted         []changeKey
		follows, begun bool
		want           bool
		// wantStates after it.
		wantStates string
	}{
		"NothingBegun":  {reason: "of a unit of which nothing was begun, the plan of now decides all", changes: expand, states: "---", made: "---", wantStates: "lll"},
		"PlannedAgain":  {reason: "also if it wants the same: it is journaled anew", changes: expand, states: "---", made: "---", wanted: []changeKey{{migration.Create, a}, {migration.Delete, b}}, wantStates: "lll"},
		"FirstDone":     {reason: "the deletion of a unit that was begun with a creation is left to the plan of now", changes: expand, states: "d--", made: "+--", wanted: []changeKey{{migration.Patch, b}, {migration.Delete, b}}, want: true, wantStates: "dll"},
		"HalfGuarded":   {reason: "the rest of a guarded step that was begun goes on while the plan of now wants it", changes: expand, states: "d?-", made: "++-", wanted: []changeKey{{migration.Delete, b}}, want: true, wantStates: "d?-"},
		"HalfUnwanted":  {reason: "and is given up if not, so that it is undone", changes: expand, states: "d?-", made: "++-", want: true, wantStates: "d?l"},
		"Restores":      {reason: "what a begun deletion removed is created again, whatever the plan of now says", changes: remake, states: "?---", made: "+---", want: true, wantStates: "?l-l"},
		"RestoresNot":   {reason: "what was not deleted is not", changes: remake, states: "?---", made: "----", wantStates: "llll"},
		"CommitBegun":   {reason: "a unit that commits goes on whole once it has deleted anything", changes: remake, commit: true, states: "?---", made: "+---", want: true, wantStates: "?---"},
		"CommitNot":     {reason: "and not before", changes: remake, commit: true, states: "?---", made: "----", wantStates: "llll"},
		"Follows":       {reason: "a unit that follows from one that was begun is done although no plan shows it", changes: expand, states: "---", made: "---", follows: true, want: true, wantStates: "---"},
		"Last":          {reason: "what comes last is done once anything was begun", changes: expand, last: true, states: "---", made: "---", begun: true, want: true, wantStates: "---"},
		"LastNothing":   {reason: "and not if nothing was", changes: expand, last: true, states: "---", made: "---", wantStates: "lll"},
		"BegunNoEffect": {reason: "a request that the cluster shows nothing of does not make the unit go on", changes: expand, states: "b--", made: "---", wantStates: "lll"},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith(tc.states, tc.made, tc.changes...)
			e.read, e.Last, e.Unit.Commit = true, tc.last, tc.commit
			wanted := map[changeKey]*migration.Change{}
			for _, w := range tc.wanted {
				wanted[w] = &migration.Change{}
			}
			got := (&actor{recorder: &recorder{}}).continues(e, wanted, tc.follows, map[string]bool{"other": tc.begun})
			if got != tc.want || states(e) != tc.wantStates {
				t.Errorf("%s: goes on: %t, steps %s; want %t, %s", tc.reason, got, states(e), tc.want, tc.wantStates)
			}
		})
	}
}

// TestIsEffect tells what a controller made because of a change from what others made.
// Fails on the commit before: everything that was absent before was taken for it.
func TestIsEffect(t *testing.T) {
	journaled := time.Date(2020, 3, 1, 10, 0, 0, 0, time.UTC)
	broker := ref("Broker", "default")
	live := func(uid, spec string, age time.Duration) *unstructured.Unstructured {
		obj := object(t, `{"metadata":{"namespace":"shop","name":"default"},"spec":{"x":"`+spec+`"}}`)
		obj.SetUID(types.UID(uid))
		obj.SetCreationTimestamp(metav1.NewTime(journaled.Add(age)))
		return obj
	}
	for name, tc := range map[string]struct {
		reason  string
		live    *unstructured.Unstructured
		noted   bool
		state   stepState
		careful bool
		want    bool
		moved   bool
		// told: a finding says what was deleted without proof.
		told bool
	}{
		"Noted":          {reason: "the very object that was noted when the unit ended", live: live("1", "a", time.Second), noted: true, state: stepDone, want: true},
		"NotedUndo":      {reason: "also in an undo", live: live("1", "a", time.Second), noted: true, state: stepDone, careful: true, want: true},
		"EditedRollback": {reason: "its controller writes it: a rollback comes soon", live: live("1", "b", time.Second), noted: true, state: stepDone, want: true, told: true},
		"EditedUndo":     {reason: "edited since the run: an undo leaves it and says so", live: live("1", "b", time.Second), noted: true, state: stepDone, careful: true, moved: true},
		"OtherUID":       {reason: "somebody made it anew", live: live("2", "a", time.Hour), noted: true, state: stepDone},
		"OtherUIDUndo":   {reason: "also in an undo", live: live("2", "a", time.Hour), noted: true, state: stepDone, careful: true},
		"NotNotedDone":   {reason: "its controller was slow: a rollback comes soon, and says that there is no proof", live: live("1", "a", time.Second), state: stepDone, want: true, told: true},
		"NotNotedUndo":   {reason: "it was not there when the run ended: somebody made it later", live: live("1", "a", time.Hour), state: stepDone, careful: true, told: true},
		"KilledUndo":     {reason: "nothing was noted, since the unit did not end", live: live("1", "a", time.Second), state: stepUnknown, careful: true, want: true, told: true},
		"KilledYounger":  {reason: "the unit did not end: what is younger than the journal may be of it", live: live("1", "a", time.Second), state: stepUnknown, want: true, told: true},
		"KilledSameTime": {reason: "times have whole seconds", live: live("1", "a", 0), state: stepUnknown, want: true, told: true},
		"KilledOlder":    {reason: "what is older than the journal is not", live: live("1", "a", -time.Second), state: stepUnknown},
		"Reverting":      {reason: "a rollback that goes on after a kill knows the same", live: live("1", "a", time.Second), state: stepReverting, want: true, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith(string(rune(tc.state)), "+", migration.Change{Verb: migration.Patch, Ref: ref("Namespace", "shop"), SideEffects: []migration.Ref{broker}})
			e.chunk.created = metav1.NewTime(journaled)
			if tc.noted {
				noted := live("1", "a", time.Second)
				e.steps[0].effects = []effectMark{{broker, noted.GetUID(), hashOf(noted, nil)}}
			}
			e.done = tc.state == stepDone
			a := &actor{findings: &findings{log: zap.NewNop()}, recorder: &recorder{}}
			got, err := a.isEffect(e, 0, broker, tc.live, tc.careful)
			if got != tc.want || (err != nil) != tc.moved || (len(a.allFindings()) > 0) != tc.told {
				t.Errorf("%s: got %t, %v, findings %v", tc.reason, got, err, a.allFindings())
			}
		})
	}
}

// TestMade holds which objects a job may take for its own interrupted run's.
func TestMade(t *testing.T) {
	planned := object(t, `{"metadata":{"namespace":"shop","name":"a"},"spec":{"x":"1"}}`)
	created := planned.DeepCopy()
	created.SetAnnotations(map[string]string{MarkAnnotation: "run-1/0/0"})
	with := func(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		obj := created.DeepCopy()
		change(obj)
		return obj
	}
	for name, tc := range map[string]struct {
		reason string
		hash   string
		live   *unstructured.Unstructured
		want   bool
	}{
		"AsCreated":    {"with the hash of what was created", hashOf(created, nil), created, true},
		"NoHash":       {"without one, it is compared with the plan", "", created, true},
		"Edited":       {"edited since", hashOf(created, nil), with(func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, "2", "spec", "x") }), false},
		"EditedNoHash": {"edited since, and the hash was lost with the process", "", with(func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, "2", "spec", "x") }), false},
		"Labelled":     {"a label is an edit", "", with(func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "1"}) }), false},
		"OtherRun":     {"another run's", "", with(func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{MarkAnnotation: "run-0/0/0"}) }), false},
		"NoMark":       {"somebody else's", "", planned, false},
		"Copied":       {"a copy under another name carries the mark, too", "", with(func(o *unstructured.Unstructured) { o.SetName("b") }), false},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith("?", "+", migration.Change{Verb: migration.Create, Ref: ref("Thing", "a"), Object: planned})
			e.steps[0].hash = tc.hash
			rec := &recorder{journal: &journal{header: header{Run: "run-1"}, chunks: []*chunk{e.chunk}}}
			if got := rec.made(tc.live); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
	if (&recorder{}).made(created) {
		t.Error("without an open journal nothing is this run's")
	}
}
