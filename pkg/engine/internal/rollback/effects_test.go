//go:build !race

// The order that testing/synctest gives to two goroutines is not known to the race detector.

package rollback

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/actortest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// controller creates the Broker after some time, as often as it does not exist then.
func (w *world) controller(after time.Duration, value string, times int) {
	go func() {
		for range times {
			if k8sutil.Sleep(w.ctx, after) != nil {
				return
			}
			if w.api.Live(broker) == nil {
				w.api.Put(enginetest.Make("Broker", "default", value))
			}
		}
	}()
}

// recorded notes what the controller has made, as a run does when the unit ends.
func (w *world) recorded() {
	made := w.api.Put(enginetest.Make("Broker", "default", "made"))
	w.e.Step(0).NoteEffect(journal.EffectMark{Ref: broker, UID: made.GetUID(), Hash: patch.Hash(made, nil)})
}

// TestEffects holds what becomes of an object that a controller makes because of a change.
func TestEffects(t *testing.T) {
	warning, failed := migration.Warning, migration.Error
	for name, tc := range map[string]struct {
		reason           string
		job              migration.Job
		since            func(w *world)
		careful, resumed bool
		want             result
		// mark is what the journal says of the change afterwards.
		mark string
	}{
		"Recorded": {
			reason: "what the run noted goes with the change", since: (*world).recorded, want: result{A: "old", Reports: []string{"rolled-back"}}, mark: "r",
		},
		"None": {reason: "there may be none", since: func(*world) {}, want: result{A: "old", Reports: []string{"rolled-back"}}, mark: "r"},
		"Theirs": {
			reason: "what somebody else has made in its place stays, also when it is looked at again", since: func(w *world) {
				w.recorded()
				w.api.Remove(broker)
				w.api.Put(enginetest.Make("Broker", "default", "theirs"))
			}, want: result{A: "old", Broker: "theirs", Reports: []string{"rolled-back"}}, mark: "r",
		},
		"EditedUndo": {
			reason: "an undo leaves what was edited since", careful: true, since: func(w *world) {
				w.recorded()
				w.api.Edit(broker, enginetest.Set("edited"))
			}, want: result{A: "old", Broker: "edited", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}}, mark: "r",
		},
		"Again": {
			reason: "what the controller makes once more is deleted once more", since: func(w *world) {
				w.recorded()
				w.controller(time.Second, "made", 1)
			}, want: result{A: "old", Reports: []string{"rolled-back"}}, mark: "r",
		},
		"AgainTwice": {
			reason: "and twice", since: func(w *world) {
				w.recorded()
				w.controller(controllerPause-time.Second, "made", 2)
			}, want: result{A: "old", Reports: []string{"rolled-back"}}, mark: "r",
		},
		"AgainAlways": {
			reason: "somebody makes it each time: that is said", since: func(w *world) {
				w.recorded()
				w.controller(1100*time.Millisecond, "made", 30) // never at the same time as a look of the rollback
			}, want: result{A: "old", Reports: []string{"not-restored"}, Unrestored: 1, Findings: []migration.Severity{failed}}, mark: "r",
		},
		"AgainDifferent": {
			reason: "what differs from what the controller had made is somebody else's", since: func(w *world) {
				w.recorded()
				w.controller(time.Second, "theirs", 1)
			}, want: result{A: "old", Broker: "theirs", Reports: []string{"rolled-back"}}, mark: "r",
		},
		"Late": {
			reason: "what it makes only now is deleted, and said", since: func(w *world) { w.controller(time.Second, "made", 1) },
			want: result{A: "old", Reports: []string{"rolled-back"}, Findings: []migration.Severity{warning}}, mark: "r",
		},
		"LateOlder": {
			reason: "what is older than the journal is none of its doing", since: func(w *world) {
				w.e.Chunk.Created = metav1.NewTime(time.Now().Add(time.Hour))
				w.controller(time.Second, "theirs", 1)
			}, want: result{A: "old", Broker: "theirs", Reports: []string{"rolled-back"}}, mark: "r",
		},
		"WantedAgain": {
			reason: "somebody makes the same change again: what comes of it stays", since: func(w *world) {
				w.recorded()
				go func() {
					time.Sleep(time.Second)
					w.api.Edit(a, enginetest.Set("new"))
					w.api.Put(enginetest.Make("Broker", "default", "made"))
				}()
			}, want: result{A: "new", Broker: "made", Reports: []string{"rolled-back"}}, mark: "r",
		},
		"Unproven": {
			reason: "without proof of the change, there is a warning, and the journal says so", since: func(w *world) {
				w.recorded()
				w.e.Step(0).SetState(journal.StepUnknown)
			}, want: result{A: "old", Reports: []string{"rolled-back"}, Unproven: 1, Findings: []migration.Severity{warning}}, mark: "R",
		},
		"Killed": {
			reason: "a rollback that was killed between the two goes on with what the controller made", since: func(w *world) {
				w.recorded()
				w.api.Edit(a, enginetest.Set("old"))
				w.e.Step(0).SetState(journal.StepReverting)
			}, want: result{A: "old", Reports: []string{"rolled-back"}}, mark: "",
		},
		"NotInForce": {
			reason: "somebody has taken the change back before: what came of it may be wanted", since: func(w *world) {
				w.recorded()
				w.api.Edit(a, enginetest.Set("old"))
			}, want: result{A: "old", Broker: "made", Reports: []string{"done"}}, mark: "",
		},
		"Protected": {
			reason: "what carries live events stays", job: &protector{live: map[migration.Ref]string{broker: "live"}}, since: (*world).recorded,
			want: result{A: "old", Broker: "made", Reports: []string{"protected"}, Protected: 1, Findings: []migration.Severity{warning}}, mark: "r",
		},
		"NotMarked": {
			reason: "nothing is undone before the journal says so", resumed: true, since: func(w *world) {
				w.recorded()
				w.a.Recorder.Journals.Secrets = enginetest.Unwritable{SecretInterface: w.a.Recorder.Journals.Secrets}
			}, want: result{A: "new", Broker: "made", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}}, mark: "",
		},
		"AgainUnread": {
			reason: "what cannot be looked at again is said", since: func(w *world) {
				w.recorded()
				go func() {
					time.Sleep(time.Second)
					w.api.Fail(enginetest.Fault{Verb: "get", Name: "default", Err: forbidden})
				}()
			}, want: result{A: "old", Reports: []string{"not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{failed}}, mark: "r",
		},
		"AgainProtected": {
			reason: "what is made once more and carries live events stays", job: &protector{}, since: func(w *world) {
				w.recorded()
				w.controller(time.Second, "made", 1)
				go func() {
					time.Sleep(time.Second)
					w.a.Job.(*protector).live = map[migration.Ref]string{broker: "live"}
				}()
			}, want: result{A: "old", Broker: "made", Reports: []string{"protected"}, Protected: 1, Findings: []migration.Severity{warning}}, mark: "r",
		},
		"CutOff": {
			reason: "a rollback whose time is over does not wait for controllers", since: func(w *world) {
				w.recorded()
				go func() {
					time.Sleep(time.Second)
					w.end(errors.New("over"))
				}()
			}, want: result{A: "old", Reports: []string{"rolled-back"}, Err: true}, mark: "r",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.job == nil {
					tc.job = &enginetest.Job{}
				}
				change := patched
				change.SideEffects = []migration.Ref{broker}
				w := newWorld(t, tc.job, []*unstructured.Unstructured{former("old")}, migration.Unit{ID: "u", Changes: []migration.Change{change}}, true)
				w.e.Chunk.Created = metav1.Now()
				w.a.Recorder.Journal.Undone = 0
				tc.since(w)
				tc.want.B = "gone"
				if tc.want.Broker == "" {
					tc.want.Broker = "gone"
				}
				if diff := cmp.Diff(tc.want, w.run(tc.careful, tc.resumed)); diff != "" {
					t.Errorf("%s (-want +got):\n%s\nfindings: %v", tc.reason, diff, w.a.Findings.All())
				}
				mark := ""
				stored, err := w.a.Recorder.Journals.Load(t.Context(), w.a.Recorder.Journal.Header, journal.PhaseForward)
				if err != nil {
					t.Fatal(err)
				}
				if state := stored.Entries()[0].Step(0).State(); state.IsReverting() {
					mark = string(rune(state))
				}
				if mark != tc.mark {
					t.Errorf("%s: the journal says %q, want %q", tc.reason, mark, tc.mark)
				}
			})
		})
	}
}

// TestProtectorIsAskedAgain: an answer of the job counts for two seconds, and no longer.
func TestProtectorIsAskedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		since  func(w *world)
		want   result
		asked  int
	}{
		"AtOnce": {"one answer serves all that is deleted at once", func(*world) {}, result{A: "gone", B: "gone", Reports: []string{"rolled-back", "rolled-back"}}, 1},
		"Waited": {
			"a deletion that took a minute makes it old", func(w *world) {
				w.api.Edit(b, func(obj *unstructured.Unstructured) { obj.SetFinalizers([]string{"f"}) })
				w.careless()
				go func() {
					time.Sleep(time.Minute)
					w.a.Job.(*protector).live = map[migration.Ref]string{a: "live"}
					w.api.Remove(b)
				}()
			}, result{A: "new", B: "gone", Reports: []string{"protected", "rolled-back"}, Protected: 1, Findings: []migration.Severity{migration.Warning}}, 2,
		},
		"Repeated": {
			"attempts that fail for a moment make it old", func(w *world) {
				for range 7 {
					w.api.Fail(enginetest.Fault{Verb: "delete", Name: "b", Err: busy})
				}
			}, result{A: "gone", B: "gone", Reports: []string{"rolled-back", "rolled-back"}}, 2,
		},
		// On f3299ef these asked for ever: an answer that took longer than 2 s was too old as soon
		// as it was there.
		"Slow": {
			"one that takes longer than an answer counts serves all as well", func(w *world) { w.a.Job.(*protector).takes = 2500 * time.Millisecond },
			result{A: "gone", B: "gone", Reports: []string{"rolled-back", "rolled-back"}}, 1,
		},
		"TooSlow": {
			"one that always takes too long is told, with the time, and nothing is deleted", func(w *world) { w.a.Job.(*protector).takes = 11 * time.Second },
			result{A: "new", B: "new", Reports: []string{"done", "not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{migration.Error}}, 3,
		},
		// On f3299ef a was deleted: the answer was 6 s old, since client-go and the writer had
		// waited.
		"TooLate": {
			"and one that no request can follow in time", func(w *world) {
				w.a.Writer.Guard = func(ctx context.Context) (context.Context, context.CancelFunc, error) {
					time.Sleep(6 * time.Second)
					ctx, cancel := context.WithCancel(ctx)
					return ctx, cancel, nil
				}
			}, result{A: "new", B: "new", Reports: []string{"done", "not-restored"}, Unrestored: 1, Retry: true, Findings: []migration.Severity{migration.Error}}, 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := &protector{}
				other := migration.Change{Verb: migration.Create, Ref: b, Object: enginetest.Make("Thing", "b", "new")}
				w := newWorld(t, job, nil, migration.Unit{ID: "u", Changes: []migration.Change{create, other}}, true)
				tc.since(w)
				tc.want.Broker = "gone"
				if diff := cmp.Diff(tc.want, w.run(false, false)); diff != "" {
					t.Errorf("%s (-want +got):\n%s\nfindings: %v", tc.reason, diff, w.a.Findings.All())
				}
				if len(job.asked) < tc.asked || tc.asked == 1 && len(job.asked) != 1 {
					t.Errorf("%s: it is asked %d times", tc.reason, len(job.asked))
				}
				if diff := cmp.Diff([]migration.Ref{a, b}, job.asked[0]); diff != "" {
					t.Errorf("about (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// careless makes the object as it is now that which the run has created.
func (w *world) careless() { w.a.Recorder.SetHash(w.e.Step(1), w.api.Live(b)) }

// TestReplaced holds what becomes of an object of an interrupted run when the plan wants another
// one.
func TestReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		job    migration.Job
		since  func(w *world)
		gone   bool
		left   bool
		told   []migration.Severity
		fails  bool
	}{
		"Unedited":  {reason: "it is deleted for the other one", since: func(*world) {}, gone: true, left: true},
		"Edited":    {reason: "what somebody edited stays", since: func(w *world) { w.api.Edit(a, enginetest.Set("edited")) }, told: []migration.Severity{migration.Deferred}},
		"Protected": {reason: "what carries live events stays", job: &protector{live: map[migration.Ref]string{a: "live"}}, since: func(*world) {}, told: []migration.Severity{migration.Deferred}},
		"Refused":   {reason: "an error ends the run", since: func(w *world) { w.api.Fail(enginetest.Fault{Verb: "delete", Name: "a", Err: forbidden}) }, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.job == nil {
					tc.job = &enginetest.Job{}
				}
				w := newWorld(t, tc.job, nil, migration.Unit{ID: "u", Changes: []migration.Change{create}}, true)
				tc.since(w)
				gone, err := act.Replaced(t.Context(), w.a, w.e.Step(0))
				if gone != tc.gone || (err != nil) != tc.fails || (w.api.Live(a) == nil) != tc.gone || (w.e.Step(0).State() == journal.StepLeft) != tc.left {
					t.Errorf("%s: gone: %t, %v, state %c", tc.reason, gone, err, w.e.Step(0).State())
				}
				var told []migration.Severity
				for _, f := range w.a.Findings.All() {
					told = append(told, f.Severity)
				}
				if diff := cmp.Diff(tc.told, told); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestWatermark: the journal knows before a unit is undone that it may have been.
func TestWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &enginetest.Job{}, nil, migration.Unit{ID: "u", Changes: []migration.Change{create}}, true)
		w.a.Recorder.Journals.Secrets = enginetest.Unwritable{SecretInterface: w.a.Recorder.Journals.Secrets}
		got := w.run(false, false)
		if !got.Err || got.A != "new" {
			t.Errorf("got %+v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &enginetest.Job{}, nil, migration.Unit{ID: "u", Changes: []migration.Change{create}}, false)
		w.a.Recorder.Journals.Secrets = enginetest.Unwritable{SecretInterface: w.a.Recorder.Journals.Secrets}
		if got := w.run(false, false); got.Err {
			t.Errorf("a unit that was not begun needs no watermark: %+v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// Of two units, the second was undone before the kill.
		w := newWorld(t, &enginetest.Job{}, []*unstructured.Unstructured{former("old"), enginetest.Make("Thing", "b", "old")}, migration.Unit{ID: "u", Changes: []migration.Change{patched}}, true)
		change := patched
		change.Ref = b
		second := actortest.Journaled(t, w.a, migration.Unit{ID: "v", Changes: []migration.Change{change}})[0]
		actortest.Done(t, w.a, second)
		w.a.Recorder.Journal.Undone = second.Seq
		w.a.Recorder.Journal.Serial = true
		if got := w.run(false, true); got.A != "old" || got.B != "old" || len(got.Findings) != 1 || w.a.Findings.All()[0].Object != b.String() {
			t.Errorf("got %+v, %v", got, w.a.Findings.All())
		}
	})
}
