package migration

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestReplaces (M07): what creates another object of the name is not the former one
// restored.
func TestReplaces(t *testing.T) {
	a := ref("Thing", "a")
	e := entryWith("--", "--", Change{Verb: Delete, Ref: a}, Change{Verb: Create, Ref: a, Replaces: true})
	if remadeBy(&e.Unit, 0) != -1 || remakes(&e.Unit, 0) || remakesAny(&e.Unit) || e.restores(1) {
		t.Error("a replacement counts as the former object")
	}
	if e.deletionOf(1) != 0 {
		t.Error("it is created all the same once the former one was deleted")
	}
	e.Unit.Changes[1].Replaces = false
	if remadeBy(&e.Unit, 0) != 1 || !remakesAny(&e.Unit) || !e.restores(1) {
		t.Error("one that is created again does not")
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
			e := entryWith("d", "+", Change{Verb: Create, Ref: ref("Thing", "a")})
			e.Unit.Commit, e.chunk.index, e.chunk.left = tc.commit, tc.index, tc.left
			if got := (&run{}).complete(e); got != tc.marked || !e.done || e.chunk.left != tc.left-1 {
				t.Errorf("%s: marked %t, done %t, left %d", tc.reason, got, e.done, e.chunk.left)
			}
		})
	}
}

// TestTellsTruth (M20): "nothing to do" after an undo is news, after a success it is none.
func TestTellsTruth(t *testing.T) {
	finding := []Finding{{Severity: Deferred, Problem: "not yet"}}
	for name, tc := range map[string]struct {
		reason   string
		old, now Report
		want     bool
	}{
		"AfterSuccess": {"nothing to do after a success", Report{Command: "run", Result: Succeeded}, Report{Command: "run", Result: NothingToDo}, true},
		"Again":        {"nothing to do once more", Report{Command: "run", Result: NothingToDo}, Report{Command: "run", Result: NothingToDo}, true},
		"AfterUndo":    {"the stored report says that the run was undone", Report{Command: "undo", Result: Succeeded}, Report{Command: "run", Result: NothingToDo}, false},
		"AfterFailure": {"it says that the run failed", Report{Command: "run", Result: RolledBack}, Report{Command: "run", Result: NothingToDo}, false},
		"Deferred":     {"the same is deferred", Report{Command: "run", Result: DeferredResult, Findings: finding, Run: "r"}, Report{Command: "run", Result: DeferredResult, Findings: finding}, true},
		"DeferredUndo": {"the same is deferred after an undo", Report{Command: "undo", Result: DeferredResult, Findings: finding}, Report{Command: "run", Result: DeferredResult, Findings: finding}, false},
		"OtherFinding": {"something else is deferred", Report{Command: "run", Result: DeferredResult, Findings: finding}, Report{Command: "run", Result: DeferredResult}, false},
		"OtherMessage": {"another failure", Report{Command: "run", Result: FailedResult, Message: "a"}, Report{Command: "run", Result: FailedResult, Message: "b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.old.Findings = stable(tc.old.Findings)
			raw, err := json.Marshal(published{Report: tc.old})
			if err != nil {
				t.Fatal(err)
			}
			stored := &corev1.ConfigMap{Data: map[string]string{"report.json": string(raw)}}
			if got := tellsTruth(stored, &tc.now); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
	if tellsTruth(&corev1.ConfigMap{}, &Report{}) {
		t.Error("an empty report tells nothing")
	}
}
