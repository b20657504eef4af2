//go:build !race

// It shares helpers with engine_test.go.

package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestPlanUndo: what an undo would do is known before it begins, and nothing is written for it.
func TestPlanUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, enginetest.Make("Thing", "f", "old"), enginetest.Make("Thing", "e", "old"))
		job := planning(creating("a", "new"), deleting("f"), patching("e", "new"))
		if p := c.engine(Options{}).PlanUndo(t.Context(), job); p.Result != migration.NothingToDo || !p.RunStartedAt.IsZero() {
			t.Fatalf("before a run: %+v", p.Report)
		}
		run := c.run(job, Options{})
		if run.Result != migration.Succeeded {
			t.Fatalf("%+v", run)
		}
		if r := c.engine(Options{UndoOnly: map[string]string{job.Name(): "another"}}).Undo(t.Context(), job); r.Result != migration.Refused || !strings.Contains(r.Message, "run "+run.Run+" is") {
			t.Errorf("another run was agreed to: %s, %s", r.Result, r.Message)
		}
		before := len(c.client.Actions())
		p := c.engine(Options{}).PlanUndo(t.Context(), job)
		var got []string
		for _, ch := range p.Changes {
			got = append(got, fmt.Sprintf("%s %s: %s", ch.Verb, ch.Name, ch.Message))
		}
		if diff := cmp.Diff([]string{
			"patch e: the run changed it", "create f: the run deleted it; it gets a new UID", "delete a: the run created it",
		}, got); diff != "" || p.Result != migration.Planned || p.Run != run.Run || p.RunStartedAt.IsZero() {
			t.Errorf("%+v (-want +got):\n%s", p.Report, diff)
		}
		for _, a := range c.client.Actions()[before:] {
			if a.GetVerb() != "list" && a.GetVerb() != "get" {
				t.Errorf("it did %s %s", a.GetVerb(), a.GetResource().Resource)
			}
		}
	})
}
