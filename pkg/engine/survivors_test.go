package engine

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

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
