package engine

import (
	"testing"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestWorse: what a finished rollback could not restore is not right because the run
// after it went well. Fails on the commit before: exit 0.
func TestWorse(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		earlier, then migration.Result
		want          migration.Result
	}{
		"Restored":    {"all was restored", migration.RolledBack, migration.NothingToDo, migration.NothingToDo},
		"None":        {"there was no rollback to finish", "", migration.Succeeded, migration.Succeeded},
		"NothingToDo": {"nothing to do afterwards", migration.PartlyRestored, migration.NothingToDo, migration.PartlyRestored},
		"Succeeded":   {"a success afterwards", migration.PartlyRestored, migration.Succeeded, migration.PartlyRestored},
		"Deferred":    {"a deferral afterwards", migration.PartlyRestored, migration.DeferredResult, migration.PartlyRestored},
		"Locked":      {"what failed by itself says so", migration.PartlyRestored, migration.Locked, migration.Locked},
		"TimedOut":    {"a timeout, too", migration.PartlyRestored, migration.TimedOut, migration.TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{earlierOutcome: outcome{result: tc.earlier, message: "1 change could not be restored"}}
			got := r.withEarlier(outcome{result: tc.then, message: "then"})
			said := got.message == "1 change could not be restored; then: then"
			if got.result != tc.want || said != (tc.earlier == migration.PartlyRestored) {
				t.Errorf("%s: got %s, %q", tc.reason, got.result, got.message)
			}
		})
	}
}

// TestFinished: work that has to wait fails the run under --defer=fail.
func TestFinished(t *testing.T) {
	deferred := []migration.Finding{{Severity: migration.Deferred, Problem: "not yet"}}
	for name, tc := range map[string]struct {
		findings []migration.Finding
		policy   Defer
		want     migration.Result
	}{
		"Nothing":       {nil, DeferFail, migration.Succeeded},
		"Deferred":      {deferred, DeferAllow, migration.DeferredResult},
		"DeferredFails": {deferred, DeferFail, migration.FailedResult},
	} {
		t.Run(name, func(t *testing.T) {
			found := findings.New(zap.NewNop())
			found.Add(tc.findings...)
			r := &run{engine: &Engine{opts: Options{Defer: tc.policy}}, findings: found}
			if got := r.finished(outcome{result: migration.Succeeded}); got.result != tc.want {
				t.Errorf("got %s", got.result)
			}
		})
	}
}

func TestAllIndependent(t *testing.T) {
	writes := []migration.Change{{Verb: migration.Create}}
	for name, tc := range map[string]struct {
		reason string
		units  []migration.Unit
		want   bool
	}{
		"All":   {"all are", []migration.Unit{{Changes: writes, Independent: true}, {Changes: writes, Independent: true}}, true},
		"One":   {"one is not", []migration.Unit{{Changes: writes, Independent: true}, {Changes: writes}}, false},
		"Waits": {"one that only waits does not count", []migration.Unit{{Changes: writes, Independent: true}, {Changes: []migration.Change{{Verb: migration.Await}}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := allIndependent(&migration.Plan{Units: tc.units}); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}
