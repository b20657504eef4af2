//go:build !race

// The order that testing/synctest gives to two goroutines is not known to the race detector.

package rollback

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/actortest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// protector is a job that says which objects carry live events.
type protector struct {
	enginetest.Job
	live  map[migration.Ref]string
	err   error
	asked [][]migration.Ref
	// takes is how long it reads, and then what somebody does meanwhile.
	takes time.Duration
	then  func()
}

func (j *protector) Protect(_ context.Context, _ *migration.Cluster, refs []migration.Ref) (map[migration.Ref]string, error) {
	j.asked = append(j.asked, refs)
	live := j.live
	time.Sleep(j.takes)
	if j.then != nil {
		j.then()
	}
	return live, j.err
}

// restorer is a job whose restored objects must become something.
type restorer struct {
	enginetest.Job
	restored migration.Condition
}

func (j *restorer) AwaitRestored(*migration.Change) []migration.Condition {
	return []migration.Condition{j.restored}
}

var (
	a, b      = enginetest.Ref("Thing", "a"), enginetest.Ref("Thing", "b")
	broker    = enginetest.Ref("Broker", "default")
	things    = schema.GroupResource{Resource: "things"}
	create    = migration.Change{Verb: migration.Create, Ref: a, Object: enginetest.Make("Thing", "a", "new")}
	remove    = migration.Change{Verb: migration.Delete, Ref: a}
	patched   = migration.Change{Verb: migration.Patch, Ref: a, Patch: json.RawMessage(`{"spec":{"x":"new"}}`)}
	freed     = migration.Change{Verb: migration.Patch, Ref: a, Lists: migration.RemoveFinalizer("f")}
	busy      = apierrors.NewTooManyRequestsError("later")
	forbidden = apierrors.NewForbidden(things, "a", errors.New("no"))
)

// world is one run that is to be reversed.
type world struct {
	*testing.T
	api *enginetest.API
	a   *act.Actor
	e   *journal.Entry
	ctx context.Context //nolint:containedctx // that of the rollback, which a row may end
	end context.CancelCauseFunc
}

func newWorld(t *testing.T, job migration.Job, before []*unstructured.Unstructured, u migration.Unit, done bool) *world {
	t.Helper()
	api := enginetest.NewAPI(t, before...)
	w := &world{T: t, api: api, a: actortest.New(api, job)}
	w.ctx, w.end = context.WithCancelCause(t.Context())
	w.e = actortest.Journaled(t, w.a, u)[0]
	if done {
		actortest.Done(t, w.a, w.e)
	}
	return w
}

// run rolls the run back, and returns what there is then.
func (w *world) run(careful, resumed bool) result {
	w.Helper()
	v, err := Run(w.ctx, w.a, careful, resumed)
	if err != nil {
		w.Log(err)
	}
	got := result{
		A: enginetest.Value(w.api.Live(a)), B: enginetest.Value(w.api.Live(b)), Broker: enginetest.Value(w.api.Live(broker)),
		Unrestored: v.Unrestored, ForGood: v.ForGood, Protected: v.Protected, Finished: v.Finished, Unproven: v.Unproven, Retry: v.Retry, Err: err != nil,
	}
	for _, report := range w.e.Reports() {
		got.Reports = append(got.Reports, report.Result)
	}
	for _, f := range w.a.Findings.All() {
		got.Findings = append(got.Findings, f.Severity)
	}
	return got
}

// result is what a rollback has done.
type result struct {
	// A and B are the fields of the objects afterwards.
	A, B string
	// Broker is what a controller had made.
	Broker string
	// Reports are the results of the changes.
	Reports                                            []string
	Unrestored, ForGood, Protected, Finished, Unproven int
	Retry                                              bool
	// Findings are severities.
	Findings []migration.Severity
	Err      bool
}

// with is an object with a finalizer.
func with(finalizer string, obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj.SetFinalizers([]string{finalizer})
	return obj
}

func labelled(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj.SetLabels(map[string]string{"l": "1"})
	return obj
}

func former(value string) *unstructured.Unstructured {
	return enginetest.Make("Thing", "a", value)
}

// another is an object that somebody else has created under the same name.
func (w *world) another(value string) {
	w.api.Remove(a)
	w.api.Put(former(value))
}

// TestRun holds what the reversal of each kind of change does, for what others have done since.
func TestRun(t *testing.T) {
	warning, failed := migration.Warning, migration.Error
	for name, tc := range map[string]struct {
		reason  string
		before  []*unstructured.Unstructured
		changes []migration.Change
		commit  bool
		// notDone: the run only planned the changes.
		notDone bool
		job     migration.Job
		// since is what happened after the run.
		since            func(w *world)
		careful, resumed bool
		want             result
	}{
		"Create":         {reason: "what was created is deleted", changes: []migration.Change{create}, want: result{Reports: []string{"rolled-back"}}},
		"CreateGone":     {reason: "somebody has deleted it: nothing to undo", changes: []migration.Change{create}, since: func(w *world) { w.api.Remove(a) }, want: result{Reports: []string{"done"}}},
		"CreateOther":    {reason: "an object without the mark is somebody else's", changes: []migration.Change{create}, since: func(w *world) { w.another("theirs") }, want: result{A: "theirs", Reports: []string{"done"}}},
		"CreateEdited":   {reason: "a rollback comes soon, deletes what was edited, and says so", changes: []migration.Change{create}, since: func(w *world) { w.api.Edit(a, enginetest.Set("edited")) }, want: result{Reports: []string{"rolled-back"}, Findings: []migration.Severity{warning}}},
		"CreateUndo":     {reason: "an undo deletes what nobody edited", changes: []migration.Change{create}, careful: true, want: result{Reports: []string{"rolled-back"}}},
		"CreateUndoEdit": {reason: "an undo leaves what was edited", changes: []migration.Change{create}, careful: true, since: func(w *world) { w.api.Edit(a, enginetest.Set("edited")) }, want: result{A: "edited", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}}},
		"NotBegun":       {reason: "what was not begun is not undone, whatever there is", changes: []migration.Change{create}, notDone: true, since: func(w *world) { w.api.Put(former("theirs")) }, want: result{A: "theirs", Reports: []string{"not-started"}}},
		"NotBegunOpen": {
			reason: "and is reported as not started", changes: []migration.Change{create}, notDone: true,
			since: func(w *world) { w.e.Step(0).ReportResult(migration.ChangeOpen) }, want: result{Reports: []string{"not-started"}},
		},
		"BegunNoEffect": {
			reason: "a request without an effect leaves nothing to undo", changes: []migration.Change{create}, notDone: true,
			since: func(w *world) {
				w.e.Step(0).SetState(journal.StepBegun)
				w.e.Step(0).ReportResult(migration.ChangeOpen)
			}, want: result{Reports: []string{"not-started"}},
		},
		"CreateFinalizer": {
			reason: "a deletion is over when the object is gone", changes: []migration.Change{{Verb: migration.Create, Ref: a, Object: with("f", former("new"))}},
			since: func(w *world) {
				go func() {
					time.Sleep(time.Minute)
					w.api.Remove(a)
				}()
			}, want: result{Reports: []string{"rolled-back"}},
		},
		"CreateFinalizerStays": {
			reason: "one that does not end cuts the rollback off", changes: []migration.Change{{Verb: migration.Create, Ref: a, Object: with("f", former("new"))}},
			since: func(w *world) {
				go func() {
					time.Sleep(time.Minute)
					w.end(&act.TimeoutError{What: "the rollback"})
				}()
			}, want: result{A: "new", Reports: []string{"done"}, Err: true},
		},
		"CreateProtected": {
			reason: "what carries live events stays", changes: []migration.Change{create}, job: &protector{live: map[migration.Ref]string{a: "live"}},
			want: result{A: "new", Reports: []string{"protected"}, Protected: 1, Findings: []migration.Severity{warning}},
		},
		"ProtectedGoesOn": {
			reason: "what comes before a protected object in its unit is undone all the same", before: []*unstructured.Unstructured{enginetest.Make("Thing", "b", "old")},
			changes: []migration.Change{{Verb: migration.Patch, Ref: b, Patch: patched.Patch}, create}, job: &protector{live: map[migration.Ref]string{a: "live"}},
			want: result{A: "new", B: "old", Reports: []string{"rolled-back", "protected"}, Protected: 1, Findings: []migration.Severity{warning}},
		},
		"CreateUnsure": {
			reason: "while the job cannot tell, nothing is deleted, and another attempt may help", changes: []migration.Change{create}, job: &protector{err: errors.New("no answer")},
			want: result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"CreateConflict": {
			reason: "a controller has written the status meanwhile: it is deleted at its new version", changes: []migration.Change{create},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Before: func() { w.api.Edit(a, func(obj *unstructured.Unstructured) { obj.Object["status"] = "x" }) }})
			}, want: result{Reports: []string{"rolled-back"}},
		},
		"CreateConflictEdited": {
			reason: "somebody has edited it meanwhile: an undo leaves it", changes: []migration.Change{create}, careful: true,
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Before: func() { w.api.Edit(a, enginetest.Set("edited")) }})
			}, want: result{A: "edited", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"CreateConflictGone": {
			reason: "somebody has deleted it meanwhile", changes: []migration.Change{create},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Before: func() { w.api.Remove(a) }})
			}, want: result{Reports: []string{"rolled-back"}},
		},
		"CreateConflictOther": {
			reason: "somebody has made another one meanwhile: it stays", changes: []migration.Change{create},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Before: func() { w.another("theirs") }})
			}, want: result{A: "theirs", Reports: []string{"rolled-back"}},
		},
		"CreateConflictUnread": {
			reason: "an answer that cannot be read is an error", changes: []migration.Change{create},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Before: func() { w.api.Edit(a, enginetest.Set("edited")) }}, enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
			}, want: result{A: "edited", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"CreateLostAnswer": {
			reason: "the answer of the deletion is lost, and the next attempt finds it gone", changes: []migration.Change{create},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: busy, Lost: true})
			}, want: result{Reports: []string{"rolled-back"}},
		},
		"CreateLostAnswerShortCall": {
			reason: "and looks as long as it takes, although the call that was told so ends with the Lease", changes: []migration.Change{create},
			since: func(w *world) {
				w.a.Writer.Guard = func(ctx context.Context) (context.Context, context.CancelFunc, error) {
					call, cancel := context.WithTimeout(context.WithoutCancel(ctx), act.LookPause/2)
					return call, cancel, nil
				}
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: busy, Lost: true})
			}, want: result{Reports: []string{"rolled-back"}},
		},
		"CreateForbidden": {
			reason: "what cannot be deleted is named", changes: []migration.Change{create},
			since: func(w *world) { w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: forbidden}) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"CreateUnlisted": {
			reason: "objects that cannot be listed are not deleted", changes: []migration.Change{create},
			since: func(w *world) { w.api.Fail(enginetest.Fault{Verb: "list", Err: forbidden}) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"CreateNotFoundOnce": {
			// On f3299ef nothing was deleted, and the undo said that all was undone.
			reason: "that one list is answered with 404 proves nothing", changes: []migration.Change{create}, careful: true,
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "list", Err: apierrors.NewNotFound(things, "")})
			}, want: result{Reports: []string{"rolled-back"}},
		},
		"CreateNotFoundAlways": {
			// On f3299ef the object stayed, and the rollback said that everything was as before.
			reason: "nor do several, while discovery says that the kind is served", changes: []migration.Change{create},
			since: func(w *world) {
				for range act.Looks {
					w.api.Fail(enginetest.Fault{Verb: "list", Err: apierrors.NewNotFound(things, "")})
				}
			}, want: result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"CreateNotFoundDeletion": {
			// On f3299ef the object stayed, and was reported as deleted.
			reason: "nor does that of a deletion", changes: []migration.Change{create},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: apierrors.NewNotFound(things, "a")})
			}, want: result{Reports: []string{"rolled-back"}},
		},
		"CreateKindAway": {
			// On f3299ef the rollback said that everything was as before.
			reason: "of an object whose kind is not served, nobody can tell whether it exists", changes: []migration.Change{create},
			since: func(w *world) { w.api.Away("Thing", true) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"CreateKindAwayUndo": {
			// On f3299ef the journal was closed as undone.
			reason: "an undo can be begun again when it is served", changes: []migration.Change{create}, careful: true,
			since: func(w *world) { w.api.Away("Thing", true) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"CreateKindBack": {
			// On f3299ef the object stayed, and was reported as deleted.
			reason: "a kind that is away for a moment is asked for again", changes: []migration.Change{create},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "list", Err: apierrors.NewNotFound(things, "")}, enginetest.Fault{Verb: "list", Err: apierrors.NewNotFound(things, "")})
			}, want: result{Reports: []string{"rolled-back"}},
		},

		"Delete": {reason: "what was deleted is created again", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove}, want: result{A: "old", Reports: []string{"rolled-back"}}},
		"DeleteUnproven": {
			reason: "without proof that this run deleted it, it is restored with a warning", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) { w.e.Step(0).SetState(journal.StepUnknown) }, want: result{A: "old", Reports: []string{"rolled-back"}, Unproven: 1, Findings: []migration.Severity{warning}},
		},
		"DeleteResumed": {
			reason: "a rollback that goes on may have restored it already: a warning", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove}, resumed: true,
			want: result{A: "old", Reports: []string{"rolled-back"}, Findings: []migration.Severity{warning}},
		},
		"DeleteNever": {
			reason: "it was never deleted", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove}, notDone: true,
			since: func(w *world) { w.e.Step(0).SetState(journal.StepBegun) }, want: result{A: "old", Reports: []string{"not-started"}},
		},
		"DeleteAbsent": {
			reason: "there was nothing to delete", changes: []migration.Change{remove}, want: result{Reports: []string{"unchanged"}},
		},
		"DeleteSame": {
			reason: "somebody has created the same again", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) { w.api.Put(former("old")) }, want: result{A: "old", Reports: []string{"done"}},
		},
		"DeleteOther": {
			reason: "somebody has created another one: it is left, and said", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) { w.api.Put(former("theirs")) }, want: result{A: "theirs", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"DeleteGoing": {
			reason: "its deletion goes on: it is created again when that has ended", before: []*unstructured.Unstructured{with("f", former("old"))}, changes: []migration.Change{remove},
			since: func(w *world) {
				go func() {
					time.Sleep(time.Minute)
					w.api.Remove(a)
				}()
			}, want: result{A: "old", Reports: []string{"rolled-back"}},
		},
		"DeleteGoingOn": {
			reason: "a deletion that does not end cuts the rollback off", before: []*unstructured.Unstructured{with("f", former("old"))}, changes: []migration.Change{remove},
			since: func(w *world) {
				go func() {
					time.Sleep(time.Minute)
					w.end(&act.TimeoutError{What: "the rollback"})
				}()
			}, want: result{A: "old", Reports: []string{"done"}, Err: true},
		},
		"DeleteUnread": {
			reason: "an object that cannot be read is not restored", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) { w.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}) },
			want:  result{A: "gone", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"DeleteNamespaceGone": {
			reason: "without its namespace no attempt can restore it", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")})
			}, want: result{Reports: []string{"not-restored"}, Unrestored: 1, ForGood: 1, Findings: []migration.Severity{failed}},
		},
		"DeleteKindAwayUndo": {
			// On f3299ef the journal was closed as undone: the object could not be restored when
			// the kind was back.
			reason: "without its kind it cannot be restored now, but later", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove}, careful: true,
			since: func(w *world) { w.api.Away("Thing", true) },
			want:  result{Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"DeleteLosesField": {
			// On f3299ef it counted as restored, and the rollback said that everything was as
			// before.
			reason: "what a schema or a webhook makes of the restored object is not what it was", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) { w.api.Admit(enginetest.Set("corrected")) },
			want:  result{A: "corrected", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"DeleteGetsMore": {
			reason: "what a policy adds to the restored object is said, and no failure", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) {
				w.api.Admit(func(obj *unstructured.Unstructured) { obj.SetLabels(map[string]string{"policy": "1"}) })
			}, want: result{A: "old", Reports: []string{"rolled-back"}, Findings: []migration.Severity{warning}},
		},
		"DeleteSameButMoreLabels": {
			reason: "nor is it what a policy adds to what somebody else has created", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) { w.api.Put(labelled(former("old"))) },
			want:  result{A: "old", Reports: []string{"done"}, Findings: []migration.Severity{warning}},
		},
		"DeleteSameButLabels": {
			// On f3299ef it counted as restored.
			reason: "somebody has created it again, without its labels: that is said", before: []*unstructured.Unstructured{labelled(former("old"))}, changes: []migration.Change{remove},
			since: func(w *world) { w.api.Put(former("old")) },
			want:  result{A: "old", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"DeleteSameButMore": {
			// On f3299ef it counted as restored.
			reason: "or with more than it had", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) {
				more := former("old")
				more.Object["data"] = map[string]any{"extra": "1"}
				w.api.Put(more)
			}, want: result{A: "old", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"PatchNotReverted": {
			// On f3299ef it counted as undone.
			reason: "a webhook keeps what the run had set: that is said", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.api.Admit(enginetest.Set("new")) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"DeleteNotFoundAsAWhole": {
			reason: "a creation that is answered with 404 as a whole is repeated", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: apierrors.NewGenericServerResponse(404, "create", things, "a", "", 0, true)})
			}, want: result{A: "old", Reports: []string{"rolled-back"}},
		},
		"DeleteRestoredReady": {
			reason: "it counts as restored when the job's condition holds", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{remove},
			job: &restorer{restored: enginetest.Shows(a, "old")}, want: result{A: "old", Reports: []string{"rolled-back"}},
		},
		"DeleteRestoredBad": {
			reason: "and not if that cannot become true", before: []*unstructured.Unstructured{former("bad")}, changes: []migration.Change{remove},
			job: &restorer{restored: enginetest.Shows(a, "old")}, want: result{A: "bad", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{warning, failed}},
		},
		"DeleteSameBad": {
			reason: "nor what somebody else has created", before: []*unstructured.Unstructured{former("bad")}, changes: []migration.Change{remove}, since: func(w *world) { w.api.Put(former("bad")) },
			job: &restorer{restored: enginetest.Shows(a, "old")}, want: result{A: "bad", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{warning, failed}},
		},

		"Patch":     {reason: "what was patched gets its former fields", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, want: result{A: "old", Reports: []string{"rolled-back"}}},
		"PatchUndo": {reason: "also by an undo", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, careful: true, want: result{A: "old", Reports: []string{"rolled-back"}}},
		"PatchUnproven": {
			reason: "without proof, with a warning", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.e.Step(0).SetState(journal.StepFound) }, want: result{A: "old", Reports: []string{"rolled-back"}, Unproven: 1, Findings: []migration.Severity{warning}},
		},
		"PatchNever": {
			reason: "it was never made", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, notDone: true,
			since: func(w *world) { w.e.Step(0).SetState(journal.StepBegun) }, want: result{A: "old", Reports: []string{"not-started"}},
		},
		"PatchEdited": {
			reason: "what others changed since stays, with a warning", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.api.Edit(a, enginetest.Set("theirs")) }, want: result{A: "theirs", Reports: []string{"done"}, Findings: []migration.Severity{warning}},
		},
		"PatchUndoEdited": {
			reason: "an undo leaves the whole object then", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, careful: true,
			since: func(w *world) { w.api.Edit(a, enginetest.Set("theirs")) }, want: result{A: "theirs", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"PatchGone": {
			reason: "somebody has deleted the object: nothing of the patch is in force", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.api.Remove(a) }, want: result{A: "gone", Reports: []string{"done"}, Findings: []migration.Severity{warning}},
		},
		"PatchNotFoundOnce": {
			// On f3299ef the patch stayed, and was reported as undone, since its object did not
			// exist.
			reason: "that one read is answered with 404 proves nothing", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: apierrors.NewNotFound(things, "a")})
			},
			want: result{A: "old", Reports: []string{"rolled-back"}},
		},
		"PatchKindAwayUndo": {
			reason: "nor does an answer about a kind that is not served", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, careful: true,
			since: func(w *world) { w.api.Away("Thing", true) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"PatchOther": {
			reason: "somebody has created it again: it is left", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.another("theirs") }, want: result{A: "theirs", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"PatchUnread": {
			reason: "an object that cannot be read is not restored", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"PatchForbidden": {
			reason: "a refusal is named", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: forbidden}) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"PatchGoing": {
			reason: "an object that somebody deletes is left", before: []*unstructured.Unstructured{with("f", former("old"))}, changes: []migration.Change{patched},
			since: func(w *world) {
				w.api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetDeletionTimestamp(new(metav1.Now())) })
			}, want: result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"PatchRaced": {
			reason: "somebody changes the field on the way: his value stays", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { w.api.Edit(a, enginetest.Set("theirs")) }})
			}, want: result{A: "theirs", Reports: []string{"done"}, Findings: []migration.Severity{warning}},
		},
		"PatchRacedUnread": {
			reason: "and an answer that cannot be read is an error", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) {
				w.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() {
					w.api.Edit(a, enginetest.Set("theirs"))
					w.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
				}})
			}, want: result{A: "theirs", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"PatchLostAnswer": {
			reason: "an attempt whose answer was lost has undone it", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: busy, Lost: true}) },
			want:  result{A: "old", Reports: []string{"rolled-back"}},
		},
		"PatchNotAPatch": {
			reason: "a patch of the journal that cannot be read is named", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.e.Unit.Changes[0].Patch = json.RawMessage(`7`) },
			want:  result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"PatchList": {
			reason: "an entry of a list comes back beside those of others", before: []*unstructured.Unstructured{with("f", former("old"))},
			changes: []migration.Change{{Verb: migration.Patch, Ref: a, Patch: patched.Patch, Lists: migration.RemoveFinalizer("f")}},
			since: func(w *world) {
				w.api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetFinalizers([]string{"g"}) })
			},
			want: result{A: "old", Reports: []string{"rolled-back"}},
		},
		"PatchListOdd": {
			reason: "a list that is none is named", before: []*unstructured.Unstructured{former("old")},
			changes: []migration.Change{patched}, since: func(w *world) {
				w.e.Unit.Changes[0].Lists = []migration.ListEdit{{Path: []string{"spec", "x"}, Add: []any{"y"}}}
			},
			want: result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"PatchScale": {
			reason: "a subresource is patched as such", before: []*unstructured.Unstructured{former("old")},
			changes: []migration.Change{{Verb: migration.Patch, Ref: a, Patch: patched.Patch, Subresource: "scale"}}, want: result{A: "old", Reports: []string{"rolled-back"}},
		},
		"PatchThenDelete": {
			reason: "an object that was patched and deleted is restored from the pre-image", before: []*unstructured.Unstructured{with("f", former("old"))}, changes: []migration.Change{freed, remove},
			want: result{A: "old", Reports: []string{"rolled-back", "rolled-back"}},
		},
		"PatchThenLeft": {
			reason: "somebody else has deleted what the unit was to delete: nothing is missed", before: []*unstructured.Unstructured{with("f", former("old"))}, changes: []migration.Change{freed, remove},
			since: func(w *world) { w.e.Step(1).SetState(journal.StepLeft) }, want: result{A: "gone", Reports: []string{"done", "done"}},
		},
		"PatchThenTheirs": {
			reason: "a failure stops its unit: what came before is built upon", before: []*unstructured.Unstructured{former("old"), enginetest.Make("Thing", "b", "old")},
			changes: []migration.Change{{Verb: migration.Patch, Ref: b, Patch: patched.Patch}, patched}, careful: true,
			since: func(w *world) { w.api.Edit(a, enginetest.Set("theirs")) },
			want:  result{A: "theirs", B: "new", Reports: []string{"done", "not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},

		"Committed":    {reason: "a finished unit stays", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, commit: true, want: result{A: "new", Reports: []string{"protected"}, Finished: 1}},
		"CommittedNot": {reason: "one that was not begun is not counted", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, commit: true, notDone: true, since: func(w *world) { w.e.Done = true }, want: result{A: "old", Reports: []string{"not-started"}}},
		"CommittedHalf": {
			reason: "one that did not end is undone", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched}, commit: true,
			since: func(w *world) { w.e.Done = false }, want: result{A: "old", Reports: []string{"rolled-back"}},
		},
		"Irreversible": {
			reason: "what was done for good is said", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Patch, Ref: a, Patch: patched.Patch, Irreversible: true}},
			want: result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, ForGood: 1, Findings: []migration.Severity{failed}},
		},
		"IrreversibleUnchanged": {
			reason: "what was so already is none of the run's", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Patch, Ref: a, Patch: patched.Patch, Irreversible: true}},
			since: func(w *world) { w.e.Step(0).ReportResult(migration.ChangeUnchanged) }, want: result{A: "new", Reports: []string{"unchanged"}},
		},
		"IrreversibleFailed": {
			reason: "of what failed, the cluster tells that it was not made", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Patch, Ref: a, Patch: patched.Patch, Irreversible: true}}, notDone: true,
			since: func(w *world) { w.e.Step(0).SetState(journal.StepBegun) }, want: result{A: "old", Reports: []string{"not-started"}},
		},
		"IrreversibleMade": {
			reason: "or that it was", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Patch, Ref: a, Patch: patched.Patch, Irreversible: true}}, notDone: true,
			since: func(w *world) {
				w.e.Step(0).SetState(journal.StepBegun)
				w.api.Edit(a, enginetest.Set("new"))
			}, want: result{A: "new", Reports: []string{"not-restored"}, Unrestored: 1, ForGood: 1, Findings: []migration.Severity{failed}},
		},
		"IrreversibleDeletion": {
			reason: "a deletion that goes on was made", before: []*unstructured.Unstructured{with("f", former("old"))}, changes: []migration.Change{{Verb: migration.Delete, Ref: a, Irreversible: true}}, notDone: true,
			since: func(w *world) {
				w.e.Step(0).SetState(journal.StepBegun)
				w.api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetDeletionTimestamp(new(metav1.Now())) })
			}, want: result{A: "old", Reports: []string{"not-restored"}, Unrestored: 1, ForGood: 1, Findings: []migration.Severity{failed}},
		},
		"IrreversibleNotDeleted": {
			reason: "an object that is there was not deleted", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Delete, Ref: a, Irreversible: true}}, notDone: true,
			since: func(w *world) { w.e.Step(0).SetState(journal.StepBegun) }, want: result{A: "old", Reports: []string{"not-started"}},
		},
		"IrreversibleGone": {
			reason: "one that is gone was", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Delete, Ref: a, Irreversible: true}}, notDone: true,
			since: func(w *world) {
				w.e.Step(0).SetState(journal.StepBegun)
				w.api.Remove(a)
			}, want: result{A: "gone", Reports: []string{"not-restored"}, Unrestored: 1, ForGood: 1, Findings: []migration.Severity{failed}},
		},
		"IrreversibleOther": {
			reason: "also if somebody has created another one", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Delete, Ref: a, Irreversible: true}}, notDone: true,
			since: func(w *world) {
				w.e.Step(0).SetState(journal.StepBegun)
				w.another("theirs")
			}, want: result{A: "theirs", Reports: []string{"not-restored"}, Unrestored: 1, ForGood: 1, Findings: []migration.Severity{failed}},
		},
		"IrreversibleUnread": {
			reason: "what cannot be read may be restored by another attempt", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Delete, Ref: a, Irreversible: true}}, notDone: true,
			since: func(w *world) {
				w.e.Step(0).SetState(journal.StepBegun)
				w.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
			}, want: result{A: "old", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"AwaitOnly": {
			reason: "a wait leaves nothing", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{{Verb: migration.Await, Ref: a}}, notDone: true,
			want: result{A: "old", Reports: []string{"not-started"}},
		},
		"Interrupted": {
			reason: "a rollback whose time is over undoes nothing more", before: []*unstructured.Unstructured{former("old")}, changes: []migration.Change{patched},
			since: func(w *world) { w.end(act.SignalError{Signal: 15}) }, want: result{A: "new", Reports: []string{"done"}, Err: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.job == nil {
					tc.job = &enginetest.Job{}
				}
				w := newWorld(t, tc.job, tc.before, migration.Unit{ID: "u", Changes: tc.changes, Commit: tc.commit}, !tc.notDone)
				if tc.since != nil {
					tc.since(w)
				}
				w.a.Recorder.Journal.Undone = 0
				want := tc.want
				if want.A == "" {
					want.A = "gone"
				}
				if want.B == "" {
					want.B = "gone"
				}
				want.Broker = "gone"
				if diff := cmp.Diff(want, w.run(tc.careful, tc.resumed)); diff != "" {
					t.Errorf("%s (-want +got):\n%s\nfindings: %v", tc.reason, diff, w.a.Findings.All())
				}
			})
		})
	}
}

// TestRunTakenOver: one unit begins a deletion, and a later one removes the finalizer for which it
// waits. The object is restored once, and is not taken for one that somebody else has deleted.
func TestRunTakenOver(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// others: somebody else had begun the deletion.
		others   bool
		value    string
		findings int
	}{
		"Own":    {reason: "the earlier unit restores it", value: "old"},
		"Others": {reason: "what somebody else has deleted is said", others: true, value: "gone", findings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, &enginetest.Job{}, []*unstructured.Unstructured{with("f", former("old"))}, migration.Unit{ID: "begins", Changes: []migration.Change{remove}}, false)
				w.a.Recorder.Journal.Parallelism = 1
				if tc.others {
					w.e.Step(0).SetState(journal.StepLeft)
					w.api.Edit(a, func(obj *unstructured.Unstructured) { obj.SetDeletionTimestamp(new(metav1.Now())) })
				} else {
					actortest.Done(t, w.a, w.e)
				}
				over := actortest.Journaled(t, w.a, migration.Unit{ID: "over", Changes: []migration.Change{freed}})[0]
				actortest.Done(t, w.a, over)
				if w.api.Live(a) != nil {
					t.Fatal("it still exists")
				}
				got := w.run(true, false)
				if got.A != tc.value || len(got.Findings) != tc.findings {
					t.Errorf("%s: %+v\nfindings: %v", tc.reason, got, w.a.Findings.All())
				}
			})
		})
	}
}
