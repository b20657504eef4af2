package engine

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestReplaces (M07): what creates another object of the name is not the former one
// restored.
func TestReplaces(t *testing.T) {
	a := ref("Thing", "a")
	e := entryWith("--", "--", migration.Change{Verb: migration.Delete, Ref: a}, migration.Change{Verb: migration.Create, Ref: a, Replaces: true})
	if recreatedBy(&e.Unit, 0) != -1 || recreates(&e.Unit, 0) || recreatesAny(&e.Unit) || e.restores(1) {
		t.Error("a replacement counts as the former object")
	}
	if e.deletionOf(1) != 0 {
		t.Error("it is created all the same once the former one was deleted")
	}
	e.Unit.Changes[1].Replaces = false
	if recreatedBy(&e.Unit, 0) != 1 || !recreatesAny(&e.Unit) || !e.restores(1) {
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
			e := entryWith("d", "+", migration.Change{Verb: migration.Create, Ref: ref("Thing", "a")})
			e.Unit.Commit, e.chunk.index, e.chunk.left = tc.commit, tc.index, tc.left
			if got := (&recorder{}).complete(e); got != tc.marked || !e.done || e.chunk.left != tc.left-1 {
				t.Errorf("%s: marked %t, done %t, left %d", tc.reason, got, e.done, e.chunk.left)
			}
		})
	}
}

// TestTellsTruth (M20): "nothing to do" after an undo is news, after a success it is none.
func TestTellsTruth(t *testing.T) {
	finding := []migration.Finding{{Severity: migration.Deferred, Problem: "not yet"}}
	for name, tc := range map[string]struct {
		reason   string
		old, now migration.Report
		want     bool
	}{
		"AfterSuccess": {"nothing to do after a success", migration.Report{Command: "run", Result: migration.Succeeded}, migration.Report{Command: "run", Result: migration.NothingToDo}, true},
		"Again":        {"nothing to do once more", migration.Report{Command: "run", Result: migration.NothingToDo}, migration.Report{Command: "run", Result: migration.NothingToDo}, true},
		"AfterUndo":    {"the stored report says that the run was undone", migration.Report{Command: "undo", Result: migration.Succeeded}, migration.Report{Command: "run", Result: migration.NothingToDo}, false},
		"AfterFailure": {"it says that the run failed", migration.Report{Command: "run", Result: migration.RolledBack}, migration.Report{Command: "run", Result: migration.NothingToDo}, false},
		"Deferred":     {"the same is deferred", migration.Report{Command: "run", Result: migration.DeferredResult, Findings: finding, Run: "r"}, migration.Report{Command: "run", Result: migration.DeferredResult, Findings: finding}, true},
		"DeferredUndo": {"the same is deferred after an undo", migration.Report{Command: "undo", Result: migration.DeferredResult, Findings: finding}, migration.Report{Command: "run", Result: migration.DeferredResult, Findings: finding}, false},
		"OtherFinding": {"something else is deferred", migration.Report{Command: "run", Result: migration.DeferredResult, Findings: finding}, migration.Report{Command: "run", Result: migration.DeferredResult}, false},
		"OtherMessage": {"another failure", migration.Report{Command: "run", Result: migration.FailedResult, Message: "a"}, migration.Report{Command: "run", Result: migration.FailedResult, Message: "b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.old.Findings = nonNil(tc.old.Findings)
			raw, err := json.Marshal(published{Report: tc.old})
			if err != nil {
				t.Fatal(err)
			}
			stored := &corev1.ConfigMap{Data: map[string]string{"report.json": string(raw)}}
			if got := upToDate(stored, &tc.now); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
	if upToDate(&corev1.ConfigMap{}, &migration.Report{}) {
		t.Error("an empty report tells nothing")
	}
}
