//go:build !race

// The order that testing/synctest gives to two goroutines is not known to the race detector.

package rollback

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// recreator is a job whose units recreate an object. One whose field is "bad" cannot be used.
type recreator struct {
	restorer
	err error
	// once: only the first one that is looked at can be bad.
	once, looked bool
}

func (j *recreator) Assess(_ context.Context, _ *migration.Cluster, live *unstructured.Unstructured) (migration.Assessment, error) {
	judged := migration.Assessment{RemoveFinalizers: []string{"broken"}}
	if enginetest.Value(live) == "bad" && !(j.once && j.looked) {
		judged.Unusable = "it is bad"
	}
	j.looked = true
	return judged, j.err
}

func (*recreator) Stuck(*migration.Change) *migration.Condition { return nil }

// TestRecreate holds how an object comes back that a unit deletes and creates again.
func TestRecreate(t *testing.T) {
	failed, warning := migration.Error, migration.Warning
	deployment := enginetest.Ref("Deployment", "controller")
	await := migration.Change{Verb: migration.Await, Ref: b}
	restart := migration.Change{Verb: migration.Restart, Ref: deployment, Timeout: time.Minute, Late: &migration.DeferredRestart{}}
	again := migration.Change{Verb: migration.Recreate, Ref: a, Object: former("again")}
	controller := func() *unstructured.Unstructured {
		obj := enginetest.Make("Deployment", "controller", "")
		obj.Object["spec"] = map[string]any{"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"app": "controller"}}}
		return obj
	}
	pod := func() *unstructured.Unstructured {
		obj := enginetest.Make("Pod", "p", "")
		obj.SetLabels(map[string]string{"app": "controller"})
		return obj
	}
	for name, tc := range map[string]struct {
		reason  string
		between []migration.Change
		more    []*unstructured.Unstructured
		// image: the plan has no object to recreate it from.
		image bool
		// absent: there was nothing to delete.
		absent bool
		// again is the field of what the unit makes, if it is another one.
		again string
		job   func(*recreator)
		since func(w *world)
		want  result
		// pods that are left.
		pods int
	}{
		"Deleted": {reason: "what was deleted is created again", since: func(w *world) { w.api.Remove(a) }, want: result{A: "again", Reports: []string{"rolled-back", "not-started"}}},
		"Never":   {reason: "what was never deleted stays", since: func(*world) {}, want: result{A: "old", Reports: []string{"not-started", "not-started"}}},
		"Made":    {reason: "what was created again already stays", since: func(w *world) { w.another("again") }, want: result{A: "again", Reports: []string{"not-started", "not-started"}}},
		"Image":   {reason: "or as it was, if the plan says nothing else", image: true, since: func(w *world) { w.api.Remove(a) }, want: result{A: "old", Reports: []string{"rolled-back", "not-started"}}},
		"Absent":  {reason: "there was nothing to recreate", absent: true, since: func(*world) {}, want: result{A: "gone", Reports: []string{"not-started", "not-started"}}},
		"Bad": {
			reason: "one of the unit that cannot be used is recreated once more", since: func(w *world) {
				w.another("bad")
				w.e.Step(1).SetRecreated(w.api.Live(a).GetUID())
			}, want: result{A: "again", Reports: []string{"rolled-back", "not-started"}},
		},
		"BadOfOthers": {
			reason: "one of somebody else's is left, since nobody has its pre-image", since: func(w *world) { w.another("bad") },
			want: result{A: "bad", Reports: []string{"not-restored", "not-started"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"BadAsMade": {
			reason: "one that is as the unit makes it is recreated without a loss", again: "bad", since: func(w *world) { w.another("bad") },
			job:  func(j *recreator) { j.once = true },
			want: result{A: "bad", Reports: []string{"rolled-back", "not-started"}},
		},
		"GoingOfOthers": {
			reason: "nor are finalizers of it removed", since: func(w *world) {
				w.another("theirs")
				w.api.Edit(a, func(obj *unstructured.Unstructured) {
					obj.SetFinalizers([]string{"broken"})
					obj.SetDeletionTimestamp(new(metav1.Now()))
				})
			}, want: result{A: "theirs", Reports: []string{"not-restored", "not-started"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"Going": {
			reason: "one that is being deleted is recreated when it is gone", since: func(w *world) {
				w.api.Edit(a, func(obj *unstructured.Unstructured) {
					obj.SetFinalizers([]string{"slow"})
					obj.SetDeletionTimestamp(new(metav1.Now()))
				})
				go func() {
					time.Sleep(time.Minute)
					w.api.Remove(a)
				}()
			}, want: result{A: "again", Reports: []string{"rolled-back", "not-started"}},
		},
		"GoingBroken": {
			reason: "finalizers that nobody removes are removed", since: func(w *world) {
				w.api.Edit(a, func(obj *unstructured.Unstructured) {
					obj.SetFinalizers([]string{"broken"})
					obj.SetDeletionTimestamp(new(metav1.Now()))
				})
			}, want: result{A: "again", Reports: []string{"rolled-back", "not-started"}},
		},
		"GoingOn": {
			reason: "a deletion that does not end cuts the rollback off", since: func(w *world) {
				w.api.Edit(a, func(obj *unstructured.Unstructured) {
					obj.SetFinalizers([]string{"slow"})
					obj.SetDeletionTimestamp(new(metav1.Now()))
				})
				go func() {
					time.Sleep(time.Minute)
					w.end(&act.TimeoutError{What: "the rollback"})
				}()
			}, want: result{A: "old", Reports: []string{"open", "not-started"}, Err: true},
		},
		"NotAssessed": {
			reason: "one of which nobody can tell is left", job: func(j *recreator) { j.err = forbidden }, since: func(w *world) { w.another("bad") },
			want: result{A: "bad", Reports: []string{"not-restored", "not-started"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"Unread": {
			reason: "one that cannot be read is left", since: func(w *world) {
				w.api.Remove(a)
				w.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden})
			}, want: result{A: "gone", Reports: []string{"not-restored", "not-started"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"Refused": {
			reason: "a creation that is refused is named", since: func(w *world) {
				w.api.Remove(a)
				w.api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: forbidden})
			}, want: result{A: "gone", Reports: []string{"not-restored", "not-started"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"Ready": {
			reason: "it counts as restored when the job's condition holds", job: func(j *recreator) { j.restored = enginetest.Shows(a, "ready") },
			since: func(w *world) {
				w.api.Remove(a)
				go func() {
					time.Sleep(time.Minute)
					w.api.Edit(a, enginetest.Set("ready"))
				}()
			}, want: result{A: "ready", Reports: []string{"rolled-back", "not-started"}},
		},
		"BadOnce": {
			reason: "a controller makes it unusable: it is recreated once more", job: func(j *recreator) { j.restored = enginetest.Shows(a, "ready") },
			since: func(w *world) {
				w.api.Remove(a)
				go func() {
					for _, value := range []string{"bad", "ready"} {
						time.Sleep(time.Minute)
						w.api.Edit(a, enginetest.Set(value))
					}
				}()
			}, want: result{A: "ready", Reports: []string{"rolled-back", "not-started"}},
		},
		"BadAlways": {
			reason: "but not for ever", job: func(j *recreator) { j.restored = enginetest.Shows(a, "ready") },
			since: func(w *world) {
				w.api.Remove(a)
				go func() {
					for range 3 {
						time.Sleep(time.Minute)
						w.api.Edit(a, enginetest.Set("bad"))
					}
				}()
			}, want: result{A: "bad", Reports: []string{"not-restored", "not-started"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{warning, failed}},
		},
		"Awaits": {
			reason: "what stands between is waited for", between: []migration.Change{await}, more: []*unstructured.Unstructured{enginetest.Make("Thing", "b", "")},
			since: func(w *world) {
				w.api.Remove(a)
				go func() {
					time.Sleep(time.Minute)
					if w.api.Live(a) != nil {
						w.Error("it was recreated before what stands between")
					}
					w.api.Edit(b, enginetest.Set("ready"))
				}()
			}, want: result{A: "again", B: "ready", Reports: []string{"rolled-back", "not-started", "not-started"}},
		},
		"AwaitsBad": {
			reason: "but not that the object stays away", between: []migration.Change{await}, more: []*unstructured.Unstructured{enginetest.Make("Thing", "b", "bad")},
			since: func(w *world) { w.api.Remove(a) }, want: result{A: "again", B: "bad", Reports: []string{"rolled-back", "not-started", "not-started"}, Findings: []migration.Severity{warning}},
		},
		"AwaitsCutOff": {
			reason: "the end of the rollback ends that wait", between: []migration.Change{await}, more: []*unstructured.Unstructured{enginetest.Make("Thing", "b", "")},
			since: func(w *world) {
				w.api.Remove(a)
				go func() {
					time.Sleep(time.Minute)
					w.end(&act.TimeoutError{What: "the rollback"})
				}()
			}, want: result{A: "gone", Reports: []string{"open", "not-started", "not-started"}, Err: true},
		},
		"Restarts": {
			reason: "the pods of the controller are replaced before", between: []migration.Change{restart}, more: []*unstructured.Unstructured{controller(), pod()},
			since: func(w *world) { w.api.Remove(a) }, want: result{A: "again", Reports: []string{"rolled-back", "not-started", "not-started"}},
		},
		"RestartsNot": {
			reason: "without the controller it is not recreated", between: []migration.Change{restart}, more: []*unstructured.Unstructured{controller(), pod()},
			since: func(w *world) {
				w.api.Remove(a)
				w.api.Remove(deployment)
			}, pods: 1,
			want: result{A: "gone", Reports: []string{"not-restored", "not-started", "not-started"}, Unrestored: 1, Findings: []migration.Severity{failed}},
		},
		"RestartsBad": {
			reason: "nor while its pods do not go", between: []migration.Change{restart}, more: []*unstructured.Unstructured{controller(), with("f", pod())},
			since: func(w *world) { w.api.Remove(a) }, pods: 1,
			want: result{A: "gone", Reports: []string{"not-restored", "not-started", "not-started"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}},
		},
		"RestartsEarly": {
			reason: "a restart that was decided when the unit was journaled is not repeated", between: []migration.Change{{Verb: migration.Restart, Ref: deployment}}, more: []*unstructured.Unstructured{controller(), pod()},
			since: func(w *world) { w.api.Remove(a) }, pods: 1, want: result{A: "again", Reports: []string{"rolled-back", "not-started", "not-started"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := &recreator{restorer: restorer{restored: migration.Condition{Eval: func(migration.View) migration.Status { return migration.Status{State: migration.Met} }}}}
				job.Awaited = map[string][]migration.Condition{"b": {enginetest.Shows(b, "ready")}}
				if tc.job != nil {
					tc.job(job)
				}
				before := tc.more
				if !tc.absent {
					before = append(before, former("old"))
				}
				changes := append(append([]migration.Change{remove}, tc.between...), again)
				if tc.again != "" {
					changes[len(changes)-1].Object = former(tc.again)
				}
				if tc.image {
					changes[len(changes)-1].Object = nil
				}
				u := migration.Unit{ID: "u", Changes: changes}
				w := newWorld(t, job, before, u, false)
				w.e.Step(0).ReportResult(migration.ChangeOpen)
				w.e.Step(0).SetState(journal.StepBegun)
				tc.since(w)
				if tc.want.B == "" {
					tc.want.B = enginetest.Value(w.api.Live(b))
				}
				tc.want.Broker = "gone"
				if diff := cmp.Diff(tc.want, w.run(false, false)); diff != "" {
					t.Errorf("%s (-want +got):\n%s\nfindings: %v", tc.reason, diff, w.a.Findings.All())
				}
				uids := []types.UID{}
				if obj := w.api.Live(enginetest.RefTo(pod())); obj != nil {
					uids = append(uids, obj.GetUID())
				}
				if len(uids) != tc.pods {
					t.Errorf("%s: pods %v", tc.reason, uids)
				}
			})
		})
	}
}
