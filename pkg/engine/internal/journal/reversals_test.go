package journal

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestReversals(t *testing.T) {
	ref := enginetest.Ref("Thing", "a")
	e := NewEntry(0, migration.Unit{Changes: []migration.Change{
		{Verb: migration.Delete, Ref: ref},
		{Verb: migration.Recreate, Ref: ref},
		{Verb: migration.Patch, Ref: enginetest.Ref("Thing", "b"), Irreversible: true},
		{Verb: migration.Await, Ref: ref},
		{Verb: migration.Patch, Ref: enginetest.Ref("Thing", "c")},
	}}, make([]Preimage, 5))
	if got := Reversals(e); len(got) != 0 {
		t.Errorf("nothing has begun: %+v", got)
	}
	for _, s := range e.Steps()[:4] {
		s.SetState(StepDone)
	}
	var got []string
	for _, ch := range Reversals(e) {
		got = append(got, fmt.Sprintf("%s %s %s", ch.Verb, ch.Name, ch.Reversible))
	}
	if diff := cmp.Diff([]string{"patch b no", "recreate a "}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
