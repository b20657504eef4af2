package journal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestGoesOn holds which changes of an interrupted unit are made as they were planned
// then. Fails on the commit before: all of a unit went on as soon as a unit of its ID
// was planned, or any of it was begun.
func TestGoesOn(t *testing.T) {
	a, b := enginetest.Ref("Thing", "a"), enginetest.Ref("Thing", "b")
	expand := []migration.Change{{Verb: migration.Create, Ref: a}, {Verb: migration.Patch, Ref: b, Guard: true}, {Verb: migration.Delete, Ref: b}}
	remake := []migration.Change{{Verb: migration.Delete, Ref: a}, {Verb: migration.Await, Ref: b}, {Verb: migration.Recreate, Ref: a}, {Verb: migration.Delete, Ref: b}}
	for name, tc := range map[string]struct {
		reason         string
		changes        []migration.Change
		commit, last   bool
		states, made   string
		wanted         []ChangeKey
		follows, begun bool
		want           bool
		// wantStates after it.
		wantStates string
	}{
		"NothingBegun":  {reason: "of a unit of which nothing was begun, the plan of now decides all", changes: expand, states: "---", made: "---", wantStates: "lll"},
		"PlannedAgain":  {reason: "also if it wants the same: it is journaled anew", changes: expand, states: "---", made: "---", wanted: []ChangeKey{{migration.Create, a}, {migration.Delete, b}}, wantStates: "lll"},
		"FirstDone":     {reason: "the deletion of a unit that was begun with a creation is left to the plan of now", changes: expand, states: "d--", made: "+--", wanted: []ChangeKey{{migration.Patch, b}, {migration.Delete, b}}, want: true, wantStates: "dll"},
		"HalfGuarded":   {reason: "the rest of a guarded step that was begun goes on while the plan of now wants it", changes: expand, states: "d?-", made: "++-", wanted: []ChangeKey{{migration.Delete, b}}, want: true, wantStates: "d?-"},
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
			e.Read, e.Last, e.Unit.Commit = true, tc.last, tc.commit
			wanted := map[ChangeKey]*migration.Change{}
			for _, w := range tc.wanted {
				wanted[w] = &migration.Change{}
			}
			got := e.goOn(wanted, tc.follows, map[string]bool{"other": tc.begun})
			if got != tc.want || states(e) != tc.wantStates {
				t.Errorf("%s: goes on: %t, steps %s; want %t, %s", tc.reason, got, states(e), tc.want, tc.wantStates)
			}
		})
	}
}

// TestMade holds which objects a job may take for its own interrupted run's.
func TestMade(t *testing.T) {
	planned := enginetest.Object(t, `{"metadata":{"namespace":"shop","name":"a"},"spec":{"x":"1"}}`)
	created := planned.DeepCopy()
	created.SetAnnotations(map[string]string{enginetest.Names.Mark(): "run-1/0/0"})
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
		"AsCreated":    {"with the hash of what was created", patch.Hash(created, map[string]bool{enginetest.Names.Mark(): true}), created, true},
		"NoHash":       {"without one, it is compared with the plan", "", created, true},
		"Edited":       {"edited since", patch.Hash(created, map[string]bool{enginetest.Names.Mark(): true}), with(func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, "2", "spec", "x") }), false},
		"EditedNoHash": {"edited since, and the hash was lost with the process", "", with(func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, "2", "spec", "x") }), false},
		"Labelled":     {"a label is an edit", "", with(func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "1"}) }), false},
		"OtherRun": {"another run's", "", with(func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{enginetest.Names.Mark(): "run-0/0/0"})
		}), false},
		"NoMark": {"somebody else's", "", planned, false},
		"Copied": {"a copy under another name carries the mark, too", "", with(func(o *unstructured.Unstructured) { o.SetName("b") }), false},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith("?", "+", migration.Change{Verb: migration.Create, Ref: enginetest.Ref("Thing", "a"), Object: planned})
			e.known[0].hash = tc.hash
			rec := &Recorder{Ignored: map[string]bool{enginetest.Names.Mark(): true}, Journals: &Store{Names: enginetest.Names}, Journal: &Journal{Header: Header{Run: "run-1"}, chunks: []*Chunk{e.Chunk}}}
			if got := rec.Made(tc.live); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
	if (&Recorder{}).Made(created) {
		t.Error("without an open journal nothing is this run's")
	}
}

// TestProgress counts what a run that timed out leaves.
func TestProgress(t *testing.T) {
	unit := func(id string, independent, done bool, state StepState) *Entry {
		e := entryWith(string(rune(state)), "-", migration.Change{Verb: migration.Delete, Ref: enginetest.Ref("Thing", id)})
		e.Unit.ID, e.Unit.Independent, e.Done = id, independent, done
		return e
	}
	c := &Chunk{entries: []*Entry{
		unit("a", true, true, StepDone), unit("b", true, false, StepBegun), unit("c", true, false, StepNotBegun), unit("d", false, true, StepDone),
	}}
	rec := &Recorder{Journal: &Journal{chunks: []*Chunk{c}}}
	done, all, changed := rec.Progress([]migration.Unit{{ID: "c", Independent: true}, {ID: "e", Independent: true}, {ID: "f"}})
	if done != 1 || all != 4 || !changed {
		t.Errorf("got %d of %d, changed %t; want 1 of 4, true", done, all, changed)
	}
	c.entries = c.entries[2:]
	if _, _, changed := rec.Progress(nil); changed {
		t.Error("an independent unit that was not begun changed nothing")
	}
}

// TestComplete (M09): a unit that commits is marked at once, others with their chunk.
func TestComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		commit      bool
		index, left int
		marked      bool
	}{
		"Commit":     {reason: "it must survive a later failure", commit: true, index: 0, left: 5, marked: true},
		"Others":     {reason: "a missing mark costs a look", index: 1, left: 5},
		"LastOfOne":  {reason: "the last one of a chunk marks it", index: 1, left: 1, marked: true},
		"FirstChunk": {reason: "the first chunk's marks go with the end of the run", index: 0, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith("d", "+", migration.Change{Verb: migration.Create, Ref: enginetest.Ref("Thing", "a")})
			e.Unit.Commit, e.Chunk.index = tc.commit, tc.index
			e.Chunk.left.Store(int32(tc.left))
			if got := e.Complete(); got != tc.marked || !e.Done || int(e.Chunk.left.Load()) != tc.left-1 {
				t.Errorf("%s: marked %t, done %t, left %d", tc.reason, got, e.Done, e.Chunk.left.Load())
			}
		})
	}
}

// TestChangedIn: what was refused, and what was left, is no change of a namespace; what was made
// and failed is.
func TestChangedIn(t *testing.T) {
	of := func(state StepState, result, namespace string) *Entry {
		e := entryWith(string(rune(state)), "-", migration.Change{Verb: migration.Delete, Ref: enginetest.Ref("Thing", "a")})
		e.reports[0].Result, e.reports[0].Namespace = result, namespace
		return e
	}
	c := &Chunk{entries: []*Entry{
		of(StepDone, migration.ChangeDone, "made"), of(StepBegun, migration.ChangeFailed, "made"), of(StepNotBegun, migration.ChangeFailed, "refused"), of(StepLeft, migration.ChangeLeft, "left"),
	}}
	rec := &Recorder{Journal: &Journal{chunks: []*Chunk{c}}}
	got := rec.ChangedIn([]migration.ChangeReport{{Namespace: "earlier", Result: migration.ChangeRolledBack}, {Namespace: "earlier", Result: migration.ChangeFailed}, {Namespace: "earlier", Verb: migration.Await, Result: migration.ChangeDone}})
	if diff := cmp.Diff(map[string]int{"made": 2, "refused": 0, "earlier": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
