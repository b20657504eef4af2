package journal

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestStepStates holds what each state says of a change.
func TestStepStates(t *testing.T) {
	for state, want := range map[StepState]string{
		StepUnknown: "begun", StepNotBegun: "proven", StepBegun: "begun proven", StepDone: "begun done proven", StepLeft: "proven", StepFound: "begun done",
		StepReverting: "begun proven reverting", StepRevertingUnproven: "begun reverting",
	} {
		got := ""
		for _, one := range []struct {
			word string
			is   bool
		}{{"begun", state.Begun()}, {"done", state.IsDone()}, {"proven", state.IsProven()}, {"reverting", state.IsReverting()}} {
			if one.is && got != "" {
				got += " "
			}
			if one.is {
				got += one.word
			}
		}
		if got != want {
			t.Errorf("%c: got %q, want %q", state, got, want)
		}
	}
}

// TestBegun holds whether anything of a unit was begun, or left.
func TestBegun(t *testing.T) {
	await, create := migration.Change{Verb: migration.Await}, migration.Change{Verb: migration.Create}
	for name, tc := range map[string]struct {
		reason       string
		states, made string
		any, has     bool
		left         bool
	}{
		"Nothing": {"nothing was begun", "--", "--", false, false, false},
		"Waited":  {"a wait writes nothing", "d-", "--", false, false, false},
		"Unknown": {"it may have been, and the cluster shows nothing of it", "-?", "--", false, true, false},
		"Made":    {"the cluster shows it made", "-?", "-+", true, true, false},
		"Left":    {"it was left", "-l", "--", false, false, true},
	} {
		e := entryWith(tc.states, tc.made, await, create)
		if got := e.AnyBegun(); got != tc.any {
			t.Errorf("%s: %s: any begun: %t", name, tc.reason, got)
		}
		if got := e.HasBegun(); got != tc.has {
			t.Errorf("%s: %s: has begun: %t", name, tc.reason, got)
		}
		if got := e.AnyLeft(); got != tc.left {
			t.Errorf("%s: %s: any left: %t", name, tc.reason, got)
		}
	}
}

// TestRestoredUID: the UIDs of objects that the run has begun to delete, loaded or not. On a979837,
// those counted whose deletion was left, too: an object that somebody else had created in the place
// of one was taken for ours.
func TestRestoredUID(t *testing.T) {
	object := func(uid types.UID) Preimage {
		obj := enginetest.Make("Thing", "a", "")
		obj.SetUID(uid)
		return Preimage{Object: obj}
	}
	e := entryWith("dd-l", "----", migration.Change{Verb: migration.Delete}, migration.Change{Verb: migration.Patch}, migration.Change{Verb: migration.Delete}, migration.Change{Verb: migration.Delete})
	e.Pre = []Preimage{object("deleted"), object("patched"), {}, object("left")}
	rec := &Recorder{Journal: &Journal{chunks: []*Chunk{e.Chunk}}}
	for range 2 {
		for uid, want := range map[types.UID]bool{"deleted": true, "patched": false, "left": false, "other": false} {
			if got := rec.RestoredUID(uid); got != want {
				t.Errorf("%s: got %t", uid, got)
			}
		}
		e.Unload()
	}
	if rec.NextSeq() != e.Seq+1 || (&Recorder{}).NextSeq() != 0 {
		t.Error("the next unit comes after the last one")
	}
}
