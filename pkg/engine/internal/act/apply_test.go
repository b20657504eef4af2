package act_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/actortest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var (
	a, b       = enginetest.Ref("Thing", "a"), enginetest.Ref("Thing", "b")
	deployment = enginetest.Ref("Deployment", "d")
	things     = schema.GroupResource{Resource: "things"}
	busy       = apierrors.NewTooManyRequestsError("later")
	forbidden  = apierrors.NewForbidden(things, "a", errors.New("no"))
	create     = migration.Change{Verb: migration.Create, Ref: a, Object: thing("new")}
	remove     = migration.Change{Verb: migration.Delete, Ref: a}
	patched    = migration.Change{Verb: migration.Patch, Ref: a, Patch: json.RawMessage(`{"spec":{"x":"new"}}`)}
	freed      = migration.Change{Verb: migration.Patch, Ref: a, Lists: migration.RemoveFinalizer("f")}
)

func thing(value string) *unstructured.Unstructured { return enginetest.Make("Thing", "a", value) }

func with(finalizer string, obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj.SetFinalizers([]string{finalizer})
	return obj
}

func going(obj *unstructured.Unstructured) { obj.SetDeletionTimestamp(new(metav1.Now())) }

func controller() *unstructured.Unstructured {
	obj := enginetest.Make("Deployment", "d", "")
	obj.Object["spec"] = map[string]any{"replicas": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "d"}}}
	return obj
}

// pod of the Deployment, whose container started then; zero: it has not started.
func pod(name string, started time.Time) *unstructured.Unstructured {
	obj := enginetest.Make("Pod", name, "")
	obj.SetLabels(map[string]string{"app": "d"})
	if !started.IsZero() {
		obj.Object["status"] = map[string]any{"containerStatuses": []any{map[string]any{
			"name": "c", "state": map[string]any{"running": map[string]any{"startedAt": started.UTC().Format(time.RFC3339)}},
		}}}
	}
	return obj
}

// one is one unit in a journal.
type one struct {
	api *enginetest.API
	a   *act.Actor
	e   *journal.Entry
}

func newOne(t *testing.T, job migration.Job, before []*unstructured.Unstructured, changes ...migration.Change) *one {
	t.Helper()
	api := enginetest.NewAPI(t, before...)
	actor := actortest.New(api, job)
	return &one{api, actor, actortest.Journaled(t, actor, migration.Unit{ID: "u", Changes: changes})[0]}
}

// recreated is an object that an earlier attempt has made in the place of that of the pre-image.
func (o *one) recreated(value string) {
	o.api.Remove(a)
	o.api.Put(thing(value))
}

// ours is one that this unit has made, as far as the journal knows.
func (o *one) ours(value string) {
	o.recreated(value)
	o.e.Step(1).SetRecreated(o.api.Live(a).GetUID())
}

// kind is what an error says: "changed" for an object of somebody else's, with "!" if no request
// had an effect.
func kind(err error) string {
	moved, changed := errors.AsType[*write.ChangedError](err)
	switch {
	case err == nil:
		return ""
	case changed && moved.NoEffect:
		return "changed!"
	case changed:
		return "changed"
	}
	return "failed"
}

// recreator is a job that recreates objects: a "bad" one cannot be used.
type recreator struct {
	enginetest.Job
	stuck *migration.Condition
	err   error
}

func (*recreator) AwaitRestored(*migration.Change) []migration.Condition { return nil }

func (j *recreator) Assess(_ context.Context, _ *migration.Cluster, live *unstructured.Unstructured) (migration.Assessment, error) {
	judged := migration.Assessment{RemoveFinalizers: []string{"broken"}}
	if enginetest.Value(live) == "bad" {
		judged.Unusable = "it is bad"
	}
	return judged, j.err
}

func (j *recreator) Stuck(*migration.Change) *migration.Condition { return j.stuck }

// TestApply holds what each verb does, and does not, for what others have done since the plan.
func TestApply(t *testing.T) {
	again := migration.Change{Verb: migration.Recreate, Ref: a, Object: thing("again")}
	badAgain := migration.Change{Verb: migration.Recreate, Ref: a, Object: thing("bad")}
	based := patched
	based.Object = thing("old")
	scale := patched
	scale.Subresource = "scale"
	for name, tc := range map[string]struct {
		reason  string
		before  []*unstructured.Unstructured
		changes []migration.Change
		job     migration.Job
		// at is the change that is made.
		at    int
		since func(o *one)
		// result is that of the change, err what its error says.
		result, err string
		state       journal.StepState
		value       string
	}{
		"Create":        {reason: "it is created", changes: []migration.Change{create}, result: "done", state: 'b', value: "new"},
		"CreateExists":  {reason: "an object of somebody else's fails it, without an effect", changes: []migration.Change{create}, since: func(o *one) { o.api.Put(thing("theirs")) }, result: "failed", err: "changed!", state: '-', value: "theirs"},
		"CreateAgain":   {reason: "an earlier attempt has created it", changes: []migration.Change{create}, since: func(o *one) { o.apply(t, 0) }, result: "unchanged", state: 'b', value: "new"},
		"CreateRefused": {reason: "a refusal", changes: []migration.Change{create}, since: func(o *one) { o.api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: forbidden}) }, result: "failed", err: "failed", state: '-', value: "gone"},
		"Made": {reason: "an interrupted run has created it, and it is there", changes: []migration.Change{create}, since: func(o *one) {
			o.apply(t, 0)
			o.e.Step(0).SetInspected(true, true)
		}, result: "unchanged", state: 'b', value: "new"},
		"MadeGone": {reason: "somebody has deleted it since: it is not created once more", changes: []migration.Change{create}, since: func(o *one) { o.e.Step(0).SetInspected(true, true) }, result: "failed", err: "changed!", state: '-', value: "gone"},
		"MadeOther": {reason: "somebody has replaced it since", changes: []migration.Change{create}, since: func(o *one) {
			o.e.Step(0).SetInspected(true, true)
			o.api.Put(thing("theirs"))
		}, result: "failed", err: "changed!", state: '-', value: "theirs"},
		"MadeUnread": {reason: "it cannot be read", changes: []migration.Change{create}, since: func(o *one) {
			o.e.Step(0).SetInspected(true, true)
			o.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
		}, result: "failed", err: "failed", state: '-', value: "gone"},

		"Delete":       {reason: "it is deleted", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove}, result: "done", state: 'b', value: "gone"},
		"DeleteEdited": {reason: "somebody has edited it", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove}, since: func(o *one) { o.api.Edit(a, enginetest.Set("edited")) }, result: "failed", err: "changed!", state: '-', value: "edited"},
		"DeletePatched": {reason: "what the unit itself has patched is deleted at once", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, at: 1, since: func(o *one) {
			o.apply(t, 0)
			o.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
		}, result: "done", state: 'b', value: "gone"},

		"Patch":        {reason: "it is patched", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, result: "done", state: 'b', value: "new"},
		"PatchScale":   {reason: "a subresource is patched as such", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{scale}, result: "done", state: 'b', value: "new"},
		"PatchRefused": {reason: "a refusal", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) { o.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: forbidden}) }, result: "failed", err: "failed", state: '-', value: "old"},
		"PatchRefusedAfter": {reason: "after a lost answer, an effect is not ruled out", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) {
			o.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: busy}, enginetest.Fault{Verb: "patch", Name: "a", Err: forbidden})
		}, result: "failed", err: "failed", state: 'b', value: "old"},
		"PatchLost":   {reason: "an answer was lost, and the patch was made", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) { o.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: busy, Lost: true}) }, result: "done", state: 'b', value: "new"},
		"PatchSame":   {reason: "somebody has made the same patch", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) { o.api.Edit(a, enginetest.Set("new")) }, result: "unchanged", state: '-', value: "new"},
		"PatchEdited": {reason: "somebody has edited the field", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) { o.api.Edit(a, enginetest.Set("edited")) }, result: "failed", err: "changed!", state: '-', value: "edited"},
		"PatchEditedAfter": {reason: "after a lost answer, an effect is not ruled out", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) {
			o.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: busy}, enginetest.Fault{Verb: "patch", Name: "a", Before: func() { o.api.Edit(a, enginetest.Set("edited")) }})
		}, result: "failed", err: "changed", state: 'b', value: "edited"},
		"PatchStatus": {reason: "a controller has written its status", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) { o.api.Edit(a, func(obj *unstructured.Unstructured) { obj.Object["status"] = "x" }) }, result: "done", state: 'b', value: "new"},
		"PatchBased":  {reason: "somebody has edited the field that the decision rests on", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{based}, since: func(o *one) { o.api.Edit(a, enginetest.Set("edited")) }, result: "failed", err: "changed!", state: '-', value: "edited"},
		"PatchBasedStatus": {reason: "or another one", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{based}, since: func(o *one) {
			o.api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetLabels(map[string]string{"a": "b"}) })
		}, result: "done", state: 'b', value: "new"},
		"PatchOther": {reason: "it is another object", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) { o.recreated("old") }, result: "failed", err: "changed!", state: '-', value: "old"},
		"PatchOtherAfter": {reason: "after a lost answer, an effect is not ruled out", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) {
			o.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: busy}, enginetest.Fault{Verb: "patch", Name: "a", Before: func() { o.recreated("old") }})
		}, result: "failed", err: "changed", state: 'b', value: "old"},
		"PatchGone": {reason: "it is gone", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) { o.api.Remove(a) }, result: "failed", err: "failed", state: '-', value: "gone"},
		"PatchUnread": {reason: "it cannot be read", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) {
			o.api.Edit(a, enginetest.Set("edited"))
			o.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
		}, result: "failed", err: "failed", state: 'b', value: "edited"},
		"PatchMadeBefore": {reason: "an interrupted run has made it, and somebody has changed it since", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) {
			o.e.Step(0).SetInspected(true, true)
			o.api.Edit(a, enginetest.Set("edited"))
		}, result: "failed", err: "changed!", state: '-', value: "edited"},
		"PatchUnfit": {reason: "a patch that fits no object", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, since: func(o *one) {
			o.api.Edit(a, enginetest.Set("edited"))
			o.e.Unit.Changes[0].Lists = []migration.ListEdit{{Path: []string{"spec", "x"}, Add: []any{"y"}}}
		}, result: "failed", err: "failed", state: '-', value: "edited"},
		"PatchTwice": {reason: "a second patch of the unit builds on the first one", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, patched}, at: 1, since: func(o *one) {
			o.apply(t, 0)
			o.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
		}, result: "done", state: 'b', value: "new"},
		"PatchThenGone": {reason: "somebody has deleted what the unit deletes next", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, since: func(o *one) { o.api.Remove(a) }, result: "unchanged", state: 'b', value: "gone"},
		"PatchThenGoneMeanwhile": {reason: "or does so meanwhile", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, since: func(o *one) {
			o.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: apierrors.NewConflict(things, "a", nil), Before: func() { o.api.Remove(a) }})
		}, result: "unchanged", state: 'b', value: "gone"},
		"PatchThenEdited":     {reason: "the deletion that follows was not decided on what it is now", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, since: func(o *one) { o.api.Edit(a, enginetest.Set("edited")) }, result: "failed", err: "changed!", state: '-', value: "edited"},
		"PatchThenStatus":     {reason: "a status is no edit", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, since: func(o *one) { o.api.Edit(a, func(obj *unstructured.Unstructured) { obj.Object["status"] = "x" }) }, result: "done", state: 'b', value: "old"},
		"PatchReplaced":       {reason: "an earlier attempt has deleted it already, to recreate it", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove, again}, since: func(o *one) { o.recreated("again") }, result: "unchanged", state: '-', value: "again"},
		"PatchReplacedGone":   {reason: "and has not created it yet", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove, again}, since: func(o *one) { o.api.Remove(a) }, result: "unchanged", state: '-', value: "gone"},
		"PatchReplacedNot":    {reason: "it was not deleted yet", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove, again}, result: "done", state: 'b', value: "old"},
		"PatchReplacedUnread": {reason: "it cannot be read", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove, again}, since: func(o *one) { o.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}) }, result: "failed", err: "failed", state: '-', value: "old"},

		"Recreate":            {reason: "a unit that recreates deletes first", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, result: "done", state: 'b', value: "gone"},
		"RecreateAbsent":      {reason: "there is nothing to delete", changes: []migration.Change{remove, again}, result: "unchanged", state: '-', value: "gone"},
		"RecreateGone":        {reason: "it is gone already", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, since: func(o *one) { o.api.Remove(a) }, result: "unchanged", state: '-', value: "gone"},
		"RecreateMade":        {reason: "what an earlier attempt has made stays", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) { o.recreated("again") }, result: "unchanged", state: '-', value: "again"},
		"RecreatePlain":       {reason: "also for a job that cannot tell", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, since: func(o *one) { o.recreated("bad") }, result: "unchanged", state: '-', value: "bad"},
		"RecreateBad":         {reason: "unless it cannot be used", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) { o.ours("bad") }, result: "unchanged", state: '-', value: "gone"},
		"RecreateBadOfOthers": {reason: "one of somebody else's is left: nobody has its pre-image", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) { o.recreated("bad") }, result: "unchanged", state: '-', value: "bad"},
		"RecreateGoingOfOthers": {reason: "nor are finalizers of it removed", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) {
			o.recreated("theirs")
			o.api.Edit(a, func(obj *unstructured.Unstructured) { going(with("broken", obj)) })
		}, result: "unchanged", state: '-', value: "theirs"},
		"RecreateBadMore": {reason: "one that has more than the unit has made is somebody else's", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, badAgain}, job: &recreator{}, since: func(o *one) {
			o.recreated("bad")
			o.api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetLabels(map[string]string{"theirs": "1"}) })
		}, result: "unchanged", state: '-', value: "bad"},
		"RecreateBadNudged": {reason: "what a nudge has written is no difference", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, badAgain}, job: &recreator{}, since: func(o *one) {
			o.recreated("bad")
			o.api.Edit(a, func(obj *unstructured.Unstructured) {
				obj.SetAnnotations(map[string]string{enginetest.Names.Key("touched"): "1"})
			})
		}, result: "unchanged", state: '-', value: "gone"},
		"RecreateBadUnmarked": {reason: "the journal must know it before", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) {
			o.ours("bad")
			o.a.Recorder.Journals.Secrets = enginetest.Unwritable{SecretInterface: o.a.Recorder.Journals.Secrets}
		}, result: "failed", err: "failed", state: '-', value: "bad"},
		"RecreateBadRefused": {reason: "its deletion is refused", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) {
			o.ours("bad")
			o.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: forbidden})
		}, result: "failed", err: "failed", state: '-', value: "bad"},
		"RecreateBroken": {reason: "one whose deletion cannot end loses the finalizers that block it", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) {
			o.ours("bad")
			o.api.Edit(a, func(obj *unstructured.Unstructured) { going(with("broken", obj)) })
		}, result: "unchanged", state: '-', value: "gone"},
		"RecreateSlow": {reason: "and no other finalizers", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{}, since: func(o *one) {
			o.ours("bad")
			o.api.Edit(a, func(obj *unstructured.Unstructured) { going(with("slow", obj)) })
		}, result: "unchanged", state: '-', value: "bad"},
		"RecreateUnknown":  {reason: "nobody can tell whether it can be used", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, job: &recreator{err: forbidden}, since: func(o *one) { o.recreated("bad") }, result: "failed", err: "failed", state: '-', value: "bad"},
		"RecreateUnread":   {reason: "it cannot be read", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, since: func(o *one) { o.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}) }, result: "failed", err: "failed", state: '-', value: "old"},
		"Restores":         {reason: "the second half creates it", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, at: 1, since: func(o *one) { o.apply(t, 0) }, result: "done", state: 'b', value: "again"},
		"RestoresImage":    {reason: "from the pre-image, if the plan has no object", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, {Verb: migration.Recreate, Ref: a}}, at: 1, since: func(o *one) { o.apply(t, 0) }, result: "done", state: 'b', value: "old"},
		"RestoresNothing":  {reason: "if there was anything", changes: []migration.Change{remove, {Verb: migration.Recreate, Ref: a}}, at: 1, result: "unchanged", state: '-', value: "gone"},
		"RestoresExisting": {reason: "or finds it", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, at: 1, since: func(o *one) { o.recreated("again") }, result: "done", state: 'b', value: "again"},
		"RestoresOther":    {reason: "and not another one", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, at: 1, since: func(o *one) { o.recreated("theirs") }, result: "failed", err: "changed!", state: '-', value: "theirs"},
		"Unknown":          {reason: "a verb that this version does not know", changes: []migration.Change{{Verb: "bless", Ref: a}}, result: "failed", err: "failed", state: '-', value: "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.job == nil {
					tc.job = &enginetest.Job{}
				}
				o := newOne(t, tc.job, tc.before, tc.changes...)
				if tc.since != nil {
					tc.since(o)
				}
				result, err := o.a.Apply(t.Context(), o.e.Step(tc.at))
				if got := o.e.Step(tc.at).State(); result != tc.result || kind(err) != tc.err || got != tc.state || enginetest.Value(o.api.Live(a)) != tc.value {
					t.Errorf("%s: result %q, %v (%s), state %c, there is %q", tc.reason, result, err, kind(err), got, enginetest.Value(o.api.Live(a)))
				}
			})
		})
	}
}

func (o *one) apply(t *testing.T, i int) {
	t.Helper()
	if _, err := o.a.Apply(t.Context(), o.e.Step(i)); err != nil {
		t.Fatal(err)
	}
}

// TestCreatedIsKnown: an object that was created is known again by its mark and its content.
func TestCreatedIsKnown(t *testing.T) {
	object := thing("new")
	object.SetAnnotations(map[string]string{"note": "x"})
	o := newOne(t, &enginetest.Job{}, nil, migration.Change{Verb: migration.Create, Ref: a, Object: object})
	o.apply(t, 0)
	live := o.api.Live(a)
	if diff := cmp.Diff(map[string]string{"note": "x", enginetest.Names.Mark(): o.a.Recorder.Mark(o.e.Step(0))}, live.GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	defaulted := live.DeepCopy()
	defaulted.Object["spec"] = map[string]any{"x": "new", "y": "by default"}
	if !o.a.Recorder.Unedited(o.e.Step(0), live) || o.a.Recorder.Unedited(o.e.Step(0), defaulted) {
		t.Error("what the server returned is what was created, and what was added since is an edit")
	}
	o.apply(t, 0) // by a process that has lost the answer: it knows what was planned
	if !o.a.Recorder.Made(live) {
		t.Error("it is not known any more")
	}
}

// TestPreimages holds what is read before a change, and what refuses it.
func TestPreimages(t *testing.T) {
	based := patched
	based.Object = thing("old")
	dated := patched
	dated.UID = "u-1"
	image := thing("old")
	image.SetUID("u-1")
	removal := remove
	removal.Object = image
	broken := based
	broken.Patch = json.RawMessage(`7`)
	late := migration.Change{Verb: migration.Restart, Ref: deployment, Late: &migration.DeferredRestart{}}
	effects := patched
	effects.SideEffects = []migration.Ref{b, enginetest.Ref("Broker", "default")}
	for name, tc := range map[string]struct {
		reason  string
		before  []*unstructured.Unstructured
		changes []migration.Change
		last    bool
		fault   enginetest.Fault
		value   string
		absent  int
		pods    int
		err     string
	}{
		"Patch":           {reason: "the object as it is", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, value: "old"},
		"PatchGone":       {reason: "what does not exist cannot be patched", changes: []migration.Change{patched}, err: "changed", value: "gone"},
		"PatchBased":      {reason: "as it was decided", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{based}, value: "old"},
		"PatchMade":       {reason: "or as the patch makes it", before: []*unstructured.Unstructured{thing("new")}, changes: []migration.Change{based}, value: "new"},
		"PatchEdited":     {reason: "and not otherwise", before: []*unstructured.Unstructured{thing("edited")}, changes: []migration.Change{based}, err: "changed", value: "gone"},
		"PatchLast":       {reason: "unless it is made last, when others have changed it", before: []*unstructured.Unstructured{thing("edited")}, changes: []migration.Change{based}, last: true, value: "edited"},
		"PatchOdd":        {reason: "a patch that cannot be read", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{broken}, err: "failed", value: "gone"},
		"PatchUID":        {reason: "another object of its name", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{dated}, err: "changed", value: "old"},
		"PatchSameID":     {reason: "the very object", before: []*unstructured.Unstructured{image}, changes: []migration.Change{dated}, value: "old"},
		"Delete":          {reason: "the object as it is", before: []*unstructured.Unstructured{thing("live")}, changes: []migration.Change{remove}, value: "live"},
		"DeleteGone":      {reason: "there may be none", changes: []migration.Change{remove}, value: "gone"},
		"DeleteImage":     {reason: "the image that the plan gives is not read again", before: []*unstructured.Unstructured{thing("live")}, changes: []migration.Change{removal}, fault: enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}, value: "old"},
		"Unread":          {reason: "an object that cannot be read", before: []*unstructured.Unstructured{thing("live")}, changes: []migration.Change{remove}, fault: enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}, err: "failed", value: "gone"},
		"Freed":           {reason: "a deletion behind a patch was decided on the same object", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{freed, removal}, value: "old"},
		"FreedEdited":     {reason: "and not on this one", before: []*unstructured.Unstructured{thing("edited")}, changes: []migration.Change{freed, removal}, err: "changed", value: "edited"},
		"FreedNoBase":     {reason: "a deletion without an image was decided on any", before: []*unstructured.Unstructured{thing("edited")}, changes: []migration.Change{freed, remove}, value: "edited"},
		"Restart":         {reason: "the pods that are there", before: []*unstructured.Unstructured{controller(), pod("p", time.Time{})}, changes: []migration.Change{{Verb: migration.Restart, Ref: deployment}}, value: "gone", pods: 1},
		"RestartLate":     {reason: "unless it is decided later", before: []*unstructured.Unstructured{controller(), pod("p", time.Time{})}, changes: []migration.Change{late}, value: "gone"},
		"RestartGone":     {reason: "of a Deployment that exists", changes: []migration.Change{late}, err: "changed", value: "gone"},
		"RestartUnread":   {reason: "and can be read", before: []*unstructured.Unstructured{controller()}, changes: []migration.Change{late}, fault: enginetest.Fault{Verb: "get", Name: "d", Err: forbidden}, err: "failed", value: "gone"},
		"RestartUnlisted": {reason: "with pods that can be listed", before: []*unstructured.Unstructured{controller()}, changes: []migration.Change{{Verb: migration.Restart, Ref: deployment}}, fault: enginetest.Fault{Verb: "list", Err: forbidden}, err: "failed", value: "gone"},
		"Recreate":        {reason: "what is recreated is deleted before", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, {Verb: migration.Recreate, Ref: a}}, value: "old"},
		"RecreateAlone":   {reason: "or it would be a creation", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{{Verb: migration.Recreate, Ref: a}, remove}, err: "failed", value: "gone"},
		"Effects":         {reason: "what a controller is to make does not exist yet, or does", before: []*unstructured.Unstructured{thing("old"), enginetest.Make("Thing", "b", "")}, changes: []migration.Change{effects}, value: "old", absent: 1},
		"EffectsUnread":   {reason: "nobody can tell", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{effects}, fault: enginetest.Fault{Verb: "get", Name: "b", Err: forbidden}, err: "failed", value: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			api := enginetest.NewAPI(t, tc.before...)
			if tc.fault.Verb != "" {
				api.Fail(tc.fault)
			}
			pre, err := actortest.New(api, &enginetest.Job{}).Preimages(t.Context(), &migration.Unit{Changes: tc.changes}, tc.last)
			if kind(err) != tc.err || enginetest.Value(pre[0].Object) != tc.value || len(pre[0].Absent) != tc.absent || len(pre[0].Pods) != tc.pods {
				t.Errorf("%s: %+v, %v", tc.reason, pre, err)
			}
		})
	}
}

// TestInspect holds what the cluster tells of changes of which no mark does.
func TestInspect(t *testing.T) {
	again := migration.Change{Verb: migration.Recreate, Ref: a, Object: thing("again")}
	same := patched
	same.Patch = json.RawMessage(`{"spec":{"x":"old"}}`)
	for name, tc := range map[string]struct {
		reason  string
		before  []*unstructured.Unstructured
		changes []migration.Change
		done    bool
		states  string
		since   func(o *one)
		// made has a "+" for each change that the cluster shows as made.
		made, want string
		err        string
	}{
		"Done":           {reason: "what is done is not looked at", changes: []migration.Change{create}, done: true, states: "?", made: "-", want: "?"},
		"Known":          {reason: "nor what is known", changes: []migration.Change{create}, states: "d", made: "-", want: "d"},
		"Await":          {reason: "nor what writes nothing", changes: []migration.Change{{Verb: migration.Await, Ref: a}}, states: "?", made: "-", want: "?"},
		"CreateNot":      {reason: "not created", changes: []migration.Change{create}, states: "?", made: "-", want: "-"},
		"CreateBegunNot": {reason: "a request had no effect", changes: []migration.Change{create}, states: "b", made: "-", want: "-"},
		"Create":         {reason: "created", changes: []migration.Change{create}, states: "?", since: func(o *one) { o.apply(t, 0); o.e.Step(0).SetState('?') }, made: "+", want: "?"},
		"CreateOther":    {reason: "somebody else's has no mark", changes: []migration.Change{create}, states: "?", since: func(o *one) { o.api.Put(thing("new")) }, made: "-", want: "-"},
		"Delete":         {reason: "deleted", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove}, states: "?", since: func(o *one) { o.api.Remove(a) }, made: "+", want: "?"},
		"DeleteNot":      {reason: "not deleted", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove}, states: "?", made: "-", want: "-"},
		"DeleteAbsent":   {reason: "there was nothing to delete", changes: []migration.Change{remove}, states: "?", made: "-", want: "-"},
		"DeleteOther":    {reason: "another one is there: it was deleted", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove}, states: "?", since: func(o *one) { o.recreated("old") }, made: "+", want: "?"},
		"DeleteGoing":    {reason: "its deletion goes on", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{remove}, states: "?", since: func(o *one) { o.api.Edit(a, going) }, made: "+", want: "?"},
		"DeleteTheirs":   {reason: "the unit patches it first, and has not: somebody else deletes it", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, states: "??", since: func(o *one) { o.api.Edit(a, going) }, made: "--", want: "--"},
		"Patch":          {reason: "patched", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, states: "?", since: func(o *one) { o.api.Edit(a, enginetest.Set("new")) }, made: "+", want: "?"},
		"PatchNot":       {reason: "not patched", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, states: "?", made: "-", want: "-"},
		"PatchSame":      {reason: "it would change nothing: there is no telling", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{same}, states: "?", made: "-", want: "?"},
		"PatchGone":      {reason: "it is gone, and this unit does not delete it", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, states: "?", since: func(o *one) { o.api.Remove(a) }, made: "-", want: "-"},
		"PatchOther":     {reason: "another one of its name was not patched", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, states: "?", since: func(o *one) { o.recreated("new") }, made: "-", want: "-"},
		"Freed":          {reason: "patched and deleted", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, states: "??", since: func(o *one) { o.api.Remove(a) }, made: "++", want: "??"},
		"FreedOther":     {reason: "and somebody else has created another one", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove}, states: "??", since: func(o *one) { o.recreated("old") }, made: "++", want: "??"},
		"Recreated":      {reason: "deleted and created again", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, states: "??", since: func(o *one) { o.recreated("again") }, made: "++", want: "??"},
		"RecreatedHalf":  {reason: "deleted, and not created again", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, states: "??", since: func(o *one) { o.api.Remove(a) }, made: "+-", want: "?-"},
		"RecreatedNot":   {reason: "neither", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{remove, again}, states: "??", made: "--", want: "--"},
		"RecreatedNone":  {reason: "there was nothing, and somebody has created one", changes: []migration.Change{remove, again}, states: "??", since: func(o *one) { o.api.Put(thing("again")) }, made: "--", want: "--"},
		"RecreatedPatch": {reason: "the patch before went with the former object", before: []*unstructured.Unstructured{with("f", thing("old"))}, changes: []migration.Change{freed, remove, again}, states: "???", since: func(o *one) { o.recreated("again") }, made: "+++", want: "???"},
		"Restart":        {reason: "of a restart nobody can tell", before: []*unstructured.Unstructured{controller()}, changes: []migration.Change{{Verb: migration.Restart, Ref: deployment}}, states: "?", made: "-", want: "?"},
		"Unread":         {reason: "an object that cannot be read", before: []*unstructured.Unstructured{thing("old")}, changes: []migration.Change{patched}, states: "?", since: func(o *one) { o.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}) }, made: "-", want: "?", err: "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOne(t, &enginetest.Job{}, tc.before, tc.changes...)
				for i, state := range tc.states {
					o.e.Step(i).SetState(journal.StepState(state))
				}
				o.e.Done = tc.done
				if tc.since != nil {
					tc.since(o)
				}
				err := o.a.Inspect(t.Context(), o.e)
				made, states := "", ""
				for _, s := range o.e.Steps() {
					states += string(rune(s.State()))
					if s.IsShown() {
						made += "+"
					} else {
						made += "-"
					}
				}
				if made != tc.made || states != tc.want || kind(err) != tc.err {
					t.Errorf("%s: made %s, states %s, %v", tc.reason, made, states, err)
				}
			})
		})
	}
}

// TestLateRestart holds which pods are replaced when the turn of a restart comes.
func TestLateRestart(t *testing.T) {
	before := time.Date(2020, 3, 1, 10, 0, 0, 0, time.UTC)
	old, young := pod("old", before.Add(-time.Hour)), pod("young", before.Add(time.Hour))
	leaving := with("f", pod("leaving", before.Add(-time.Hour)))
	going(leaving)
	left := thing("")
	left.SetLabels(map[string]string{"left": "over"})
	leftGoing := with("f", left.DeepCopy())
	going(leftGoing)
	leftovers := &migration.Leftovers{Ref: a, LabelSelector: "left=over"}
	for name, tc := range map[string]struct {
		reason   string
		late     migration.DeferredRestart
		more     []*unstructured.Unstructured
		unusable bool
		fault    enginetest.Fault
		result   string
		deleted  []string
		err      string
	}{
		"All":             {reason: "without a time, all", more: []*unstructured.Unstructured{controller(), old, young}, result: "done", deleted: []string{"old", "young"}},
		"Since":           {reason: "those that have run since before are spared", late: migration.DeferredRestart{After: before}, more: []*unstructured.Unstructured{controller(), old, young}, result: "done", deleted: []string{"young"}},
		"Unusable":        {reason: "but not after a recreated object was unusable", late: migration.DeferredRestart{After: before}, unusable: true, more: []*unstructured.Unstructured{controller(), old, young}, result: "done", deleted: []string{"old", "young"}},
		"None":            {reason: "none is left to replace", late: migration.DeferredRestart{After: before}, more: []*unstructured.Unstructured{controller(), old}, result: "unchanged"},
		"Leaving":         {reason: "one that is going is waited for", late: migration.DeferredRestart{After: before}, more: []*unstructured.Unstructured{controller(), leaving}, result: "done", deleted: []string{"leaving"}},
		"Leftovers":       {reason: "while something is left over, none is spared", late: migration.DeferredRestart{After: before, Leftovers: leftovers}, more: []*unstructured.Unstructured{controller(), old, left}, result: "done", deleted: []string{"old"}},
		"LeftoversGoing":  {reason: "what is going is not left over", late: migration.DeferredRestart{After: before, Leftovers: leftovers}, more: []*unstructured.Unstructured{controller(), old, leftGoing}, result: "unchanged"},
		"LeftoversOther":  {reason: "nor what has other labels", late: migration.DeferredRestart{After: before, Leftovers: leftovers}, more: []*unstructured.Unstructured{controller(), old, thing("")}, result: "unchanged"},
		"LeftoversUnread": {reason: "nobody can tell", late: migration.DeferredRestart{After: before, Leftovers: leftovers}, more: []*unstructured.Unstructured{controller(), old}, fault: enginetest.Fault{Verb: "list", Err: forbidden}, err: "failed"},
		"Unless":          {reason: "what it is for has been done", late: migration.DeferredRestart{Unless: &a}, more: []*unstructured.Unstructured{controller(), old, thing("")}, result: "unchanged"},
		"UnlessGone":      {reason: "or not", late: migration.DeferredRestart{Unless: &a}, more: []*unstructured.Unstructured{controller(), old}, result: "done", deleted: []string{"old"}},
		"UnlessGoing":     {reason: "or is undone", late: migration.DeferredRestart{Unless: &a}, more: []*unstructured.Unstructured{controller(), old, leftGoing}, result: "done", deleted: []string{"old"}},
		"UnlessUnread":    {reason: "nobody can tell", late: migration.DeferredRestart{Unless: &a}, more: []*unstructured.Unstructured{controller(), old}, fault: enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}, err: "failed"},
		"Gone":            {reason: "the Deployment is gone", more: []*unstructured.Unstructured{old}, err: "changed"},
		"Unread":          {reason: "the Deployment cannot be read", more: []*unstructured.Unstructured{controller(), old}, fault: enginetest.Fault{Verb: "get", Name: "d", Err: forbidden}, err: "failed"},
		"Unlisted":        {reason: "its pods cannot be listed", more: []*unstructured.Unstructured{controller(), old}, fault: enginetest.Fault{Verb: "list", Err: forbidden}, err: "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t, tc.more...)
				if tc.fault.Verb != "" {
					api.Fail(tc.fault)
				}
				actor := actortest.New(api, &enginetest.Job{})
				e := journal.NewEntry(0, migration.Unit{Changes: []migration.Change{{Verb: migration.Restart, Ref: deployment, Late: &tc.late}}}, make([]journal.Preimage, 1))
				result, err := actor.LateRestart(t.Context(), e.Step(0), tc.unusable)
				var deleted []string
				for _, name := range []string{"leaving", "old", "young"} {
					if cmp.Equal(api.Writes(), []string{"delete " + name}) || len(api.Writes()) > 1 && name != "leaving" {
						deleted = append(deleted, name)
					}
				}
				if result != tc.result || kind(err) != tc.err || !cmp.Equal(tc.deleted, deleted) || len(e.Pre[0].Pods) != len(deleted) {
					t.Errorf("%s: %q, %v, %v, waits for %v", tc.reason, result, err, api.Writes(), e.Pre[0].Pods)
				}
			})
		})
	}
}

// TestApplyRestart: the two kinds of a restart.
func TestApplyRestart(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		late   *migration.DeferredRestart
		since  func(o *one)
		result string
		state  journal.StepState
		left   bool
	}{
		"Early":        {reason: "the pods of the pre-image go", since: func(*one) {}, result: "done", state: 'b'},
		"EarlyOther":   {reason: "and no others", since: func(o *one) { o.api.Remove(enginetest.RefTo(pod("p", time.Time{}))); o.api.Put(pod("p", time.Time{})) }, result: "done", state: 'b', left: true},
		"Late":         {reason: "those that are there when its turn comes", late: &migration.DeferredRestart{}, since: func(o *one) { o.api.Remove(enginetest.RefTo(pod("p", time.Time{}))); o.api.Put(pod("p", time.Time{})) }, result: "done", state: '-'},
		"LateSpared":   {reason: "but for those that are spared", late: &migration.DeferredRestart{After: time.Now().Add(time.Minute)}, since: func(*one) {}, result: "unchanged", state: '-', left: true},
		"LateUnusable": {reason: "none, once a recreated object was unusable", late: &migration.DeferredRestart{After: time.Now().Add(time.Minute)}, since: func(o *one) { o.e.Step(0).SetUnusable("u") }, result: "done", state: '-'},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOne(t, &enginetest.Job{}, []*unstructured.Unstructured{controller(), pod("p", time.Now().Add(-time.Hour))}, migration.Change{Verb: migration.Restart, Ref: deployment, Late: tc.late})
			tc.since(o)
			result, err := o.a.Apply(t.Context(), o.e.Step(0))
			if left := o.api.Live(enginetest.RefTo(pod("p", time.Time{}))) != nil; err != nil || result != tc.result || o.e.Step(0).State() != tc.state || left != tc.left {
				t.Errorf("%s: %q, %v, state %c, pod left: %t", tc.reason, result, err, o.e.Step(0).State(), left)
			}
		})
	}
}

// view shows objects to conditions.
type view map[migration.Ref]*unstructured.Unstructured

func (v view) Get(s migration.Subject) *unstructured.Unstructured {
	for ref, obj := range v {
		if ref.Subject() == s {
			return obj
		}
	}
	return nil
}

func (v view) List(gk schema.GroupKind, _ string) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for ref, obj := range v {
		if ref.Kind == gk.Kind {
			all = append(all, obj)
		}
	}
	return all
}

// TestAfter holds what the engine itself waits for after a change.
func TestAfter(t *testing.T) {
	image := func(uid string, finalizers ...string) *unstructured.Unstructured {
		obj := thing("old")
		obj.SetUID(types.UID(uid))
		obj.SetFinalizers(finalizers)
		return obj
	}
	rolledOut := func(replicas int64, more map[string]any) *unstructured.Unstructured {
		obj := controller()
		obj.SetAPIVersion("apps/v1")
		obj.Object["spec"].(map[string]any)["replicas"] = replicas
		obj.Object["status"] = map[string]any{"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas, "conditions": []any{map[string]any{"type": "Available", "status": "True"}}}
		for key, value := range more {
			obj.Object["status"].(map[string]any)[key] = value
		}
		return obj
	}
	replaced := pod("p", time.Time{})
	replaced.SetUID("p")
	pods := enginetest.Ref("Pod", "p")
	restart, late := migration.Change{Verb: migration.Restart, Ref: deployment}, migration.Change{Verb: migration.Restart, Ref: deployment, Late: &migration.DeferredRestart{}}
	noSelector := rolledOut(0, nil)
	noSelector.Object["spec"].(map[string]any)["selector"] = "x"
	for name, tc := range map[string]struct {
		reason string
		ch     migration.Change
		pre    journal.Preimage
		bad    types.UID
		view   view
		none   bool
		want   migration.State
	}{
		"Create":        {reason: "a creation is over when it is answered", ch: create, none: true},
		"DeleteAbsent":  {reason: "nothing was deleted", ch: remove, none: true},
		"Delete":        {reason: "it is gone", ch: remove, pre: journal.Preimage{Object: image("u")}, want: migration.Met},
		"DeleteThere":   {reason: "it is there", ch: remove, pre: journal.Preimage{Object: image("u")}, view: view{a: image("u")}},
		"DeleteHeld":    {reason: "a finalizer holds it", ch: remove, pre: journal.Preimage{Object: image("u")}, view: view{a: image("u", "f")}},
		"DeleteOther":   {reason: "another one is there", ch: remove, pre: journal.Preimage{Object: image("u")}, view: view{a: image("v")}, want: migration.Met},
		"DeleteBad":     {reason: "an unusable one is deleted in its place", ch: remove, pre: journal.Preimage{Object: image("u")}, bad: "v", view: view{a: image("v")}},
		"DeleteBadNot":  {reason: "and the former one is not waited for", ch: remove, pre: journal.Preimage{Object: image("u")}, bad: "v", view: view{a: image("u")}, want: migration.Met},
		"Restarted":     {reason: "the pods are replaced", ch: restart, pre: journal.Preimage{Pods: []types.UID{"p"}}, view: view{deployment: rolledOut(1, nil)}, want: migration.Met},
		"RestartOld":    {reason: "a pod is there", ch: restart, pre: journal.Preimage{Pods: []types.UID{"p"}}, view: view{deployment: rolledOut(1, nil), pods: replaced}},
		"RestartNew":    {reason: "another one is", ch: restart, pre: journal.Preimage{Pods: []types.UID{"q"}}, view: view{deployment: rolledOut(1, nil), pods: replaced}, want: migration.Met},
		"RestartGone":   {reason: "the Deployment is gone", ch: restart, want: migration.Failed},
		"RestartNot":    {reason: "its new pods are not available", ch: restart, view: view{deployment: rolledOut(1, map[string]any{"availableReplicas": int64(0)})}},
		"RestartFailed": {reason: "nor will they be", ch: restart, view: view{deployment: rolledOut(1, map[string]any{"conditions": []any{map[string]any{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}}})}, want: migration.Failed},
		"RestartOdd":    {reason: "its status cannot be read", ch: restart, view: view{deployment: rolledOut(1, map[string]any{"conditions": "x"})}},
		"LateReady":     {reason: "no pod is wanted", ch: late, view: view{deployment: rolledOut(0, nil)}, want: migration.Met},
		"LateNot":       {reason: "its status may be about pods that went", ch: late, view: view{deployment: rolledOut(1, nil)}},
		"LateOdd":       {reason: "nobody knows its pods", ch: late, view: view{deployment: noSelector}, want: migration.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			actor := actortest.New(enginetest.NewAPI(t), &enginetest.Job{})
			e := journal.NewEntry(0, migration.Unit{Changes: []migration.Change{tc.ch}}, []journal.Preimage{tc.pre})
			if tc.bad != "" {
				e.Step(0).SetUnusable(tc.bad)
			}
			conditions := actor.After(e.Step(0))
			if (len(conditions) == 0) != tc.none {
				t.Fatalf("%s: %v", tc.reason, conditions)
			}
			for _, c := range conditions {
				got := c.Eval(tc.view)
				if got.State != tc.want || (got.Message == "") != (got.State == migration.Met) {
					t.Errorf("%s: %+v", tc.reason, got)
				}
				if held := tc.view[a]; held != nil && (got.Command != "") != (len(held.GetFinalizers()) > 0) {
					t.Errorf("%s: hint %q", tc.reason, got.Command)
				}
			}
		})
	}
}

// TestGoneCommand: the command fits the scope of the object.
func TestGoneCommand(t *testing.T) {
	zone := enginetest.Ref("Zone", "z")
	zone.Namespace = ""
	for ref, want := range map[migration.Ref]string{
		a:    `kubectl -n shop patch Thing a --type=merge -p '{"metadata":{"finalizers":null}}'`,
		zone: `kubectl patch Zone z --type=merge -p '{"metadata":{"finalizers":null}}'`,
	} {
		obj := with("f", thing(""))
		got := act.Gone(ref, "", &migration.Change{}).Eval(view{ref: obj}).Command
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", ref, got)
		}
	}
}

// TestWaits: which units need a place among those that wait.
func TestWaits(t *testing.T) {
	actor := actortest.New(enginetest.NewAPI(t), &enginetest.Job{Awaited: map[string][]migration.Condition{"b": {enginetest.Shows(b, "")}}})
	for name, tc := range map[string]struct {
		ch   migration.Change
		want bool
	}{
		"Create":  {create, false},
		"Awaited": {migration.Change{Verb: migration.Create, Ref: b}, true},
		"Delete":  {remove, true},
		"Restart": {migration.Change{Verb: migration.Restart, Ref: a}, true},
	} {
		if got := actor.Waits(&migration.Unit{Changes: []migration.Change{tc.ch}}); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestNudging holds when a deletion that stalls is updated.
func TestNudging(t *testing.T) {
	stalled := migration.Condition{Text: "it to stall", On: []migration.Subject{a.Subject()}, Eval: func(migration.View) migration.Status {
		return migration.Status{State: migration.Met}
	}}
	for name, tc := range map[string]struct {
		reason string
		job    migration.Job
		ch     migration.Change
		gone   bool
		fault  error
		// nudges in the three and a half seconds of the wait.
		nudges int
	}{
		"Stalled":  {reason: "once a second", job: &recreator{stuck: &stalled}, ch: remove, nudges: 4},
		"Refused":  {reason: "also after a refusal", job: &recreator{stuck: &stalled}, ch: remove, fault: forbidden, nudges: 4},
		"Gone":     {reason: "not what is gone", job: &recreator{stuck: &stalled}, ch: remove, gone: true},
		"NotStuck": {reason: "a deletion that cannot stall", job: &recreator{}, ch: remove},
		"Plain":    {reason: "a job that recreates nothing", job: &enginetest.Job{}, ch: remove},
		"Patch":    {reason: "a change that deletes nothing", job: &recreator{stuck: &stalled}, ch: patched},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t)
				if !tc.gone {
					api.Put(thing("old"))
				}
				if tc.fault != nil {
					api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: tc.fault})
				}
				actor := actortest.New(api, tc.job)
				ctx, end := context.WithCancel(t.Context())
				defer end()
				waited := errors.New("it did not end")
				err := actor.Nudging(ctx, wait.New(ctx, actor.Writer.Cluster), &tc.ch, func() error {
					time.Sleep(3500 * time.Millisecond)
					return waited
				})
				if !errors.Is(err, waited) || len(api.Writes()) != tc.nudges {
					t.Errorf("%s: %v, %v", tc.reason, err, api.Writes())
				}
			})
		})
	}
}

// TestNoteOthersHasItsOwnTime: the call that made the change ends with the Lease. What existed when
// it took effect is asked for afterwards, and would be nobody's for good if that had no time left.
func TestNoteOthersHasItsOwnTime(t *testing.T) {
	label := patched
	label.SideEffects = []migration.Ref{b}
	o := newOne(t, &enginetest.Job{}, []*unstructured.Unstructured{thing("old")}, label)
	o.a.Writer.Guard = func(ctx context.Context) (context.Context, context.CancelFunc, error) {
		call, cancel := context.WithDeadline(context.WithoutCancel(ctx), time.Now().Add(-time.Second))
		return call, cancel, nil
	}
	o.a.Writer.Read = func(ctx context.Context, op func(context.Context) error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return op(ctx)
	}
	if result, err := o.a.Apply(t.Context(), o.e.Step(0)); err != nil || result != migration.ChangeDone {
		t.Fatalf("%s, %v", result, err)
	}
	if effects := o.e.Step(0).Effects(); len(effects) != 0 {
		t.Errorf("nothing existed, and the journal notes %v", effects)
	}
}
