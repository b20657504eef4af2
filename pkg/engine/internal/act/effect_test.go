package act

import (
	"testing"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestIsEffect tells what a controller made because of a change from what others made.
// Fails on the commit before: everything that was absent before was taken for it.
func TestIsEffect(t *testing.T) {
	journaled := time.Date(2020, 3, 1, 10, 0, 0, 0, time.UTC)
	broker := enginetest.Ref("Broker", "default")
	live := func(uid, spec string, age time.Duration) *unstructured.Unstructured {
		obj := enginetest.Object(t, `{"metadata":{"namespace":"shop","name":"default"},"spec":{"x":"`+spec+`"}}`)
		obj.SetUID(types.UID(uid))
		obj.SetCreationTimestamp(metav1.NewTime(journaled.Add(age)))
		return obj
	}
	for name, tc := range map[string]struct {
		reason  string
		live    *unstructured.Unstructured
		noted   bool
		state   journal.StepState
		careful bool
		want    bool
		moved   bool
		// before: it existed when the change took effect; theirs: that was noted.
		before, theirs bool
		// untold: the run that made the change could not tell what existed then.
		untold bool
		// unknown: nobody can tell what existed then.
		unknown bool
		// told: a finding says what was deleted without proof.
		told bool
		// marked: the controller gives labels to what it makes. unmarked: and this object has none
		// of them.
		marked, unmarked bool
	}{
		"Noted":          {reason: "the very object that was noted when the unit ended", live: live("1", "a", time.Second), noted: true, state: journal.StepDone, want: true},
		"NotedUndo":      {reason: "also in an undo", live: live("1", "a", time.Second), noted: true, state: journal.StepDone, careful: true, want: true},
		"EditedRollback": {reason: "its controller writes it: a rollback comes soon", live: live("1", "b", time.Second), noted: true, state: journal.StepDone, want: true, told: true},
		"EditedUndo":     {reason: "edited since the run: an undo leaves it and says so", live: live("1", "b", time.Second), noted: true, state: journal.StepDone, careful: true, moved: true},
		"OtherUID":       {reason: "somebody made it anew", live: live("2", "a", time.Hour), noted: true, state: journal.StepDone},
		"OtherUIDUndo":   {reason: "also in an undo", live: live("2", "a", time.Hour), noted: true, state: journal.StepDone, careful: true},
		"NotNotedDone":   {reason: "its controller was slow: a rollback comes soon, and says that there is no proof", live: live("1", "a", time.Second), state: journal.StepDone, want: true, told: true},
		"NotNotedUndo":   {reason: "it was not there when the run ended: somebody made it later", live: live("1", "a", time.Hour), state: journal.StepDone, careful: true, told: true},
		"KilledUndo":     {reason: "nothing was noted, since the unit did not end", live: live("1", "a", time.Second), state: journal.StepUnknown, careful: true, want: true, told: true},
		"KilledYounger":  {reason: "the unit did not end: what is younger than the journal may be of it", live: live("1", "a", time.Second), state: journal.StepUnknown, want: true, told: true},
		"KilledSameTime": {reason: "times have whole seconds", live: live("1", "a", 0), state: journal.StepUnknown, want: true, told: true},
		"KilledOlder":    {reason: "what is older than the journal is not", live: live("1", "a", -time.Second), state: journal.StepUnknown},
		// On f3299ef the next four were deleted: an object that a person had made after the journal
		// was written, and before the change.
		"Before":        {reason: "what existed when the change took effect is not because of it", live: live("1", "a", time.Second), state: journal.StepUnknown, before: true, told: true},
		"BeforeUndo":    {reason: "also in an undo of a unit that did not end", live: live("1", "a", time.Second), state: journal.StepUnknown, careful: true, before: true, told: true},
		"BeforeNoted":   {reason: "the run that made the change has seen it", live: live("1", "a", time.Second), state: journal.StepDone, theirs: true},
		"BeforeUntold":  {reason: "and if that run could not tell", live: live("1", "a", time.Second), state: journal.StepDone, untold: true, told: true},
		"BeforeUnknown": {reason: "without proof it is left, and said", live: live("1", "a", time.Second), state: journal.StepUnknown, unknown: true, told: true},
		"Reverting":     {reason: "a rollback that goes on after a kill knows the same", live: live("1", "a", time.Second), state: journal.StepReverting, want: true, told: true},
		// An object that a person creates after the change used to be deleted as a side effect,
		// whatever it looked like.
		"Marked":         {reason: "it has the labels that the controller gives", live: live("1", "a", time.Second), state: journal.StepUnknown, marked: true, want: true, told: true},
		"Unmarked":       {reason: "without them a person has made it", live: live("1", "a", time.Second), state: journal.StepUnknown, unmarked: true},
		"UnmarkedDone":   {reason: "also after the unit has ended", live: live("1", "a", time.Second), state: journal.StepDone, unmarked: true},
		"UnmarkedUndo":   {reason: "and in an undo", live: live("1", "a", time.Second), state: journal.StepDone, careful: true, unmarked: true},
		"UnmarkedEdited": {reason: "somebody has taken the labels away since: that is an edit", live: live("1", "a", time.Second), noted: true, state: journal.StepDone, careful: true, unmarked: true, moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := journal.NewEntry(0, migration.Unit{Changes: []migration.Change{{Verb: migration.Patch, Ref: enginetest.Ref("Namespace", "shop"), SideEffects: []migration.Ref{broker}}}}, nil)
			e.Chunk = &journal.Chunk{Created: metav1.NewTime(journaled)}
			e.Step(0).SetState(tc.state)
			if tc.marked || tc.unmarked {
				e.Unit.Changes[0].SideEffectLabels = map[string]string{"made-by": "controller", "for": "shop"}
				if tc.live.SetLabels(map[string]string{"made-by": "controller"}); tc.marked {
					tc.live.SetLabels(map[string]string{"made-by": "controller", "for": "shop", "more": "x"})
				}
			}
			if tc.noted {
				noted := live("1", "a", time.Second)
				e.Step(0).NoteEffect(journal.EffectMark{Ref: broker, UID: noted.GetUID(), Hash: patch.Hash(noted, nil)})
			}
			e.Done = tc.state == journal.StepDone
			api := enginetest.NewAPI(t)
			if tc.before {
				api.Put(made(tc.live))
			}
			version := api.Put(enginetest.Make("Thing", "namespace", "labelled")).GetResourceVersion()
			if !tc.before {
				api.Put(made(tc.live))
			}
			if tc.unknown {
				api.Fail(enginetest.Fault{Verb: "list", Err: apierrors.NewResourceExpired("too old")})
			}
			a := &Actor{Findings: findings.New(zap.NewNop()), Recorder: &journal.Recorder{}, Writer: &write.Writer{Reader: api, Read: enginetest.Direct}}
			if tc.theirs {
				e.Step(0).NoteEffect(journal.EffectMark{Ref: broker, UID: tc.live.GetUID(), Theirs: true})
			}
			if tc.untold {
				e.Step(0).NoteEffect(journal.EffectMark{Ref: broker, Theirs: true})
			}
			got, err := a.IsEffect(t.Context(), e.Step(0), broker, tc.live, tc.careful, version)
			if got != tc.want || (err != nil) != tc.moved || (len(a.Findings.All()) > 0) != tc.told {
				t.Errorf("%s: got %t, %v, findings %v", tc.reason, got, err, a.Findings.All())
			}
		})
	}
}

// made is such an object as the API holds it.
func made(obj *unstructured.Unstructured) *unstructured.Unstructured {
	own := obj.DeepCopy()
	own.SetKind("Broker")
	return own
}
