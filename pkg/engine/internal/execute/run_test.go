package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/actortest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/patch"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/wait"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "a", errors.New("no"))

// progress is what is shown of a run.
type progress struct {
	mu                  sync.Mutex
	done, waiting, most int
}

func (*progress) Start(int) {}

func (*progress) Stop() {}

func (p *progress) Step(done, waiting int, _ Wait, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.waiting, p.most = done, waiting, max(p.most, waiting)
}

// rechecker is a job that answers by the name of the guarded object.
type rechecker struct {
	enginetest.Job
	answer func(name string) (*migration.Finding, error)
	// live are the names of objects that carry live events.
	live  []string
	mu    sync.Mutex
	asked []string
}

func (j *rechecker) Protect(_ context.Context, _ *migration.Cluster, refs []migration.Ref) (map[migration.Ref]string, error) {
	protected := map[migration.Ref]string{}
	for _, ref := range refs {
		if slices.Contains(j.live, ref.Name) {
			protected[ref] = "it carries live events"
		}
	}
	return protected, nil
}

func (j *rechecker) Recheck(_ context.Context, _ migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	j.mu.Lock()
	j.asked = append(j.asked, u.Changes[i].Ref.Name)
	j.mu.Unlock()
	return j.answer(u.Changes[i].Ref.Name)
}

func holds(string) (*migration.Finding, error) { return nil, nil }

func ref(name string) migration.Ref { return enginetest.Ref("Thing", name) }

func creating(name string) migration.Change {
	return migration.Change{Verb: migration.Create, Ref: ref(name), Object: enginetest.Make("Thing", name, "new")}
}

func patching(name string) migration.Change {
	return migration.Change{Verb: migration.Patch, Ref: ref(name), Patch: json.RawMessage(`{"spec":{"x":"new"}}`)}
}

// releasing removes the finalizer of held.
func releasing(name string) migration.Change {
	return migration.Change{Verb: migration.Patch, Ref: ref(name), Lists: migration.RemoveFinalizer("f")}
}

// held is an object with a finalizer.
func held(name string) *unstructured.Unstructured {
	obj := enginetest.Make("Thing", name, "old")
	obj.SetFinalizers([]string{"f"})
	return obj
}

func deleting(name string) migration.Change {
	return migration.Change{Verb: migration.Delete, Ref: ref(name)}
}

func guarded(ch migration.Change) migration.Change {
	ch.Guard = true
	return ch
}

func unit(changes ...migration.Change) migration.Unit {
	return migration.Unit{ID: changes[0].Ref.Name, Changes: changes}
}

// play is one run.
type play struct {
	api      *enginetest.API
	a        *act.Actor
	progress *progress
	waits    []migration.ChangeReport
}

func (p *play) run(ctx context.Context, o Options, todo Todo) error {
	var mu sync.Mutex
	o.Progress = p.progress
	o.Reported = func(r migration.ChangeReport) {
		mu.Lock()
		defer mu.Unlock()
		p.waits = append(p.waits, r)
	}
	if o.Unready == 0 {
		o.Unready = 5
	}
	return New(ctx, p.a, o).Run(ctx, todo)
}

// results are those of the changes by their object, in the order of the journal.
func (p *play) results() []string {
	var all []string
	for _, e := range p.a.Recorder.Journal.Entries() {
		for _, r := range e.Reports() {
			all = append(all, fmt.Sprintf("%s:%s=%s", r.Verb, r.Name, r.Result))
		}
	}
	for _, r := range p.waits {
		all = append(all, fmt.Sprintf("%s:%s=%s", r.Verb, r.Name, r.Result))
	}
	return all
}

// TestRun holds the order of the changes of a run, and what becomes of each.
func TestRun(t *testing.T) {
	old := func(name string) *unstructured.Unstructured { return enginetest.Make("Thing", name, "old") }
	deferred := func(string) (*migration.Finding, error) {
		return &migration.Finding{Severity: migration.Deferred, Object: "Thing shop/a", Problem: "not now"}, nil
	}
	edited := patching("a")
	edited.Object = enginetest.Make("Thing", "a", "before")
	panics := migration.Condition{Eval: func(migration.View) migration.Status { panic("no") }}
	for name, tc := range map[string]struct {
		reason string
		before []*unstructured.Unstructured
		job    *rechecker
		// plain: the job cannot be asked again.
		plain   bool
		awaited map[string][]migration.Condition
		todo    Todo
		serial  bool
		since   func(p *play)
		want    []string
		writes  []string
		// done are the units that ended; findings their number; fails whether the run does.
		done, findings int
		fails          bool
		asked          []string
		times          int
	}{
		"Order":  {reason: "the changes of a unit in order", todo: Todo{Units: []migration.Unit{unit(creating("a"), creating("b"), creating("c"))}}, want: []string{"create:a=done", "create:b=done", "create:c=done"}, writes: []string{"create a", "create b", "create c"}, done: 1},
		"Serial": {reason: "units one after the other", serial: true, todo: Todo{Units: []migration.Unit{unit(creating("a")), unit(creating("b"))}}, want: []string{"create:a=done", "create:b=done"}, writes: []string{"create a", "create b"}, done: 2},
		"Last":   {reason: "what comes last, although it is journaled first", serial: true, todo: Todo{Units: []migration.Unit{unit(creating("a"))}, Last: []migration.Unit{unit(creating("y")), unit(creating("z"))}}, want: []string{"create:y=done", "create:z=done", "create:a=done"}, writes: []string{"create a", "create y", "create z"}, done: 3},
		"LastNot": {
			reason: "but not after a failure", serial: true, todo: Todo{Units: []migration.Unit{unit(creating("a"))}, Last: []migration.Unit{unit(creating("z"))}},
			since: func(p *play) { p.api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: forbidden}) },
			want:  []string{"create:z=not-started", "create:a=failed"}, writes: []string{"create a"}, findings: 1, fails: true,
		},
		"LastFails": {
			reason: "and only until the first one fails", todo: Todo{Last: []migration.Unit{unit(creating("y")), unit(creating("z"))}},
			since: func(p *play) { p.api.Fail(enginetest.Fault{Verb: "create", Name: "y", Err: forbidden}) },
			want:  []string{"create:y=failed", "create:z=not-started"}, writes: []string{"create y"}, findings: 1, fails: true,
		},
		"Fails": {
			reason: "after a failure nothing is begun any more", serial: true, todo: Todo{Units: []migration.Unit{unit(creating("a"), creating("b")), unit(creating("c"))}},
			since: func(p *play) { p.api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: forbidden}) },
			want:  []string{"create:a=failed", "create:b=not-started", "create:c=not-started"}, writes: []string{"create a"}, findings: 1, fails: true,
		},
		"Awaits": {
			reason: "a change is done when what it waits for holds", awaited: map[string][]migration.Condition{"a": {enginetest.Shows(ref("a"), "new")}},
			todo: Todo{Units: []migration.Unit{unit(creating("a"), creating("b"))}}, want: []string{"create:a=done", "create:b=done"}, writes: []string{"create a", "create b"}, done: 1,
		},
		"AwaitsFail": {
			reason: "or fails with it", awaited: map[string][]migration.Condition{"a": {enginetest.Shows(ref("b"), "ready")}}, before: []*unstructured.Unstructured{enginetest.Make("Thing", "b", "bad")},
			todo: Todo{Units: []migration.Unit{unit(creating("a"), creating("c"))}}, want: []string{"create:a=failed", "create:c=not-started"}, writes: []string{"create a"}, findings: 1, fails: true,
		},
		"Panics": {
			reason: "a panic of the job fails its unit", awaited: map[string][]migration.Condition{"a": {panics}},
			todo: Todo{Units: []migration.Unit{unit(creating("a"))}}, want: []string{"create:a=open"}, writes: []string{"create a"}, findings: 1, fails: true,
		},
		"WaitPanics": {
			reason: "also that of a unit that only waits", awaited: map[string][]migration.Condition{"a": {panics}},
			todo: Todo{Waits: []migration.Unit{unit(migration.Change{Verb: migration.Await, Ref: ref("a")})}}, findings: 1, fails: true,
		},
		"Waits": {
			reason: "what only waits writes nothing, and is in no journal", awaited: map[string][]migration.Condition{"a": {enginetest.Shows(ref("a"), "old")}}, before: []*unstructured.Unstructured{old("a")},
			todo: Todo{Waits: []migration.Unit{unit(migration.Change{Verb: migration.Await, Ref: ref("a")})}}, want: []string{"await:a=done"}, done: 1,
		},
		"WaitsFail": {
			reason: "and may fail", awaited: map[string][]migration.Condition{"a": {enginetest.Shows(ref("a"), "old")}}, before: []*unstructured.Unstructured{enginetest.Make("Thing", "a", "bad")},
			todo: Todo{Waits: []migration.Unit{unit(migration.Change{Verb: migration.Await, Ref: ref("a")}, migration.Change{Verb: migration.Await, Ref: ref("b")})}}, want: []string{"await:a=failed"}, findings: 1, fails: true,
		},
		"Left": {
			reason: "a unit whose object was edited since the plan is left before it begins", before: []*unstructured.Unstructured{old("a")},
			todo: Todo{Units: []migration.Unit{unit(edited, creating("b")), unit(creating("c"))}}, want: []string{"create:c=done", "patch:a=left", "create:b=left"}, writes: []string{"create c"}, done: 2, findings: 1,
		},
		"LeftMeanwhile": {
			reason: "or when that is found at its first write", before: []*unstructured.Unstructured{old("a")}, todo: Todo{Units: []migration.Unit{unit(patching("a"), creating("b"))}},
			since: func(p *play) {
				p.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { p.api.Edit(ref("a"), enginetest.Set("edited")) }})
			}, want: []string{"patch:a=left", "create:b=left"}, writes: []string{"patch a"}, done: 1, findings: 1,
		},
		"NotLeft": {
			reason: "but not behind one", before: []*unstructured.Unstructured{old("a")}, todo: Todo{Units: []migration.Unit{unit(creating("b"), patching("a"))}},
			since: func(p *play) {
				p.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { p.api.Edit(ref("a"), enginetest.Set("edited")) }})
			}, want: []string{"create:b=done", "patch:a=failed"}, writes: []string{"create b", "patch a"}, findings: 1, fails: true,
		},
		"Unread": {
			reason: "without its pre-image nothing is begun", before: []*unstructured.Unstructured{old("a")}, todo: Todo{Units: []migration.Unit{unit(patching("a"))}},
			since: func(p *play) { p.api.Fail(enginetest.Fault{Verb: "get", Name: "a", Err: forbidden}) }, findings: 1, fails: true,
		},

		"Guarded":  {reason: "the job is asked before a guarded change", job: &rechecker{answer: holds}, todo: Todo{Units: []migration.Unit{unit(creating("a"), guarded(creating("b")))}}, want: []string{"create:a=done", "create:b=done"}, writes: []string{"create a", "create b"}, done: 1, asked: []string{"b"}},
		"GuardNot": {reason: "and it is left if its reason is gone, with all that belongs to it", job: &rechecker{answer: deferred}, todo: Todo{Units: []migration.Unit{unit(creating("a"), guarded(creating("b")), creating("c"))}}, want: []string{"create:a=done", "create:b=left", "create:c=left"}, writes: []string{"create a"}, done: 1, findings: 1, asked: []string{"b"}},
		"GuardNext": {
			reason: "but not with the next guarded one", job: &rechecker{answer: func(name string) (*migration.Finding, error) {
				if name == "a" {
					return deferred(name)
				}
				return nil, nil
			}}, todo: Todo{Units: []migration.Unit{unit(guarded(creating("a")), creating("b"), guarded(creating("c")))}}, want: []string{"create:a=left", "create:b=left", "create:c=done"}, writes: []string{"create c"}, done: 1, findings: 1, asked: []string{"a", "c"},
		},
		"GuardError": {
			reason: "an error of the job leaves it, too", job: &rechecker{answer: func(string) (*migration.Finding, error) { return nil, forbidden }},
			todo: Todo{Units: []migration.Unit{unit(guarded(creating("a")))}}, want: []string{"create:a=left"}, done: 1, findings: 1, asked: []string{"a"},
		},
		"GuardUnknown": {reason: "a job that cannot be asked any more", plain: true, todo: Todo{Units: []migration.Unit{unit(guarded(creating("a")))}}, want: []string{"create:a=left"}, done: 1, findings: 1},
		"GuardWaited": {
			reason: "after all that the unit waits for", job: &rechecker{answer: holds}, awaited: map[string][]migration.Condition{"a": {enginetest.Shows(ref("a"), "new")}},
			todo: Todo{Units: []migration.Unit{unit(creating("a"), guarded(creating("b")), guarded(creating("c")))}}, want: []string{"create:a=done", "create:b=done", "create:c=done"}, writes: []string{"create a", "create b", "create c"}, done: 1, asked: []string{"b", "c"},
		},
		"GuardSlow": {
			reason: "while the server is busy, the answer gets old: the job is asked again", job: &rechecker{answer: holds}, before: []*unstructured.Unstructured{old("a")},
			todo: Todo{Units: []migration.Unit{unit(guarded(patching("a")))}}, since: func(p *play) {
				for range 7 {
					p.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Err: apierrors.NewTooManyRequestsError("later")})
				}
			}, want: []string{"patch:a=done"}, done: 1, asked: []string{"a"}, times: 2,
		},
		"GuardEdited": {
			reason: "somebody has edited what a guarded change is about: it is left, and what was done of it is undone", job: &rechecker{answer: holds}, before: []*unstructured.Unstructured{old("a"), old("b")},
			todo: Todo{Units: []migration.Unit{unit(guarded(patching("b")), patching("a"))}}, since: func(p *play) {
				p.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { p.api.Edit(ref("a"), enginetest.Set("edited")) }})
			}, want: []string{"patch:b=rolled-back", "patch:a=left"}, writes: []string{"patch b", "patch a", "patch b"}, done: 1, findings: 1, asked: []string{"b"},
		},
		"GuardEditedCreated": {
			reason: "what was created for it is deleted", job: &rechecker{answer: holds}, before: []*unstructured.Unstructured{old("a")},
			todo: Todo{Units: []migration.Unit{unit(guarded(creating("b")), patching("a"))}}, since: func(p *play) {
				p.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { p.api.Edit(ref("a"), enginetest.Set("edited")) }})
			}, want: []string{"create:b=rolled-back", "patch:a=left"}, writes: []string{"create b", "patch a", "delete b"}, done: 1, findings: 1, asked: []string{"b"},
		},
		"GuardEditedLive": {
			reason: "but not if it carries live events meanwhile", job: &rechecker{answer: holds, live: []string{"b"}}, before: []*unstructured.Unstructured{old("a")},
			todo: Todo{Units: []migration.Unit{unit(guarded(creating("b")), patching("a"))}}, since: func(p *play) {
				p.api.Fail(enginetest.Fault{Verb: "patch", Name: "a", Before: func() { p.api.Edit(ref("a"), enginetest.Set("edited")) }})
			}, want: []string{"create:b=done", "patch:a=failed"}, writes: []string{"create b", "patch a"}, findings: 1, fails: true, asked: []string{"b"},
		},
		"GuardTurn": {
			reason: "turns of one name are taken one after the other", job: &rechecker{answer: holds},
			todo: Todo{Units: func() []migration.Unit {
				one, two := guarded(creating("a")), guarded(creating("b"))
				one.Turn, two.Turn = "t", "t"
				return []migration.Unit{unit(one), unit(two)}
			}()}, serial: true, want: []string{"create:a=done", "create:b=done"}, writes: []string{"create a", "create b"}, done: 2, asked: []string{"a", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var job migration.Job
				if tc.job == nil && !tc.plain {
					tc.job = &rechecker{answer: holds}
				}
				if tc.plain {
					job = &enginetest.Job{Awaited: tc.awaited}
				} else {
					tc.job.Awaited = tc.awaited
					job = tc.job
				}
				api := enginetest.NewAPI(t, tc.before...)
				p := &play{api: api, a: actortest.New(api, job), progress: &progress{}}
				if tc.since != nil {
					tc.since(p)
				}
				err := p.run(t.Context(), Options{Parallelism: 2, Serial: tc.serial}, tc.todo)
				if (err != nil) != tc.fails || p.progress.done != tc.done || p.progress.waiting != 0 || len(p.a.Findings.All()) != tc.findings {
					t.Errorf("%s: %v, %d units done, %d waiting, findings %v", tc.reason, err, p.progress.done, p.progress.waiting, p.a.Findings.All())
				}
				if diff := cmp.Diff(tc.want, p.results()); diff != "" {
					t.Errorf("%s: results (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.writes, p.api.Writes()); tc.writes != nil && diff != "" {
					t.Errorf("%s: writes (-want +got):\n%s", tc.reason, diff)
				}
				if !tc.plain {
					// How often an answer gets old depends on the pauses between attempts.
					if diff := cmp.Diff(tc.asked, slices.Compact(tc.job.asked)); diff != "" || len(tc.job.asked) < tc.times {
						t.Errorf("%s: asked %d times, about (-want +got):\n%s", tc.reason, len(tc.job.asked), diff)
					}
				}
			})
		})
	}
}

// TestUnready: only so many units wait at once for what they have made.
func TestUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := &enginetest.Job{Awaited: map[string][]migration.Condition{}}
		api := enginetest.NewAPI(t)
		var units []migration.Unit
		for i := range 6 {
			name := fmt.Sprintf("t-%d", i)
			job.Awaited[name] = []migration.Condition{enginetest.Shows(ref(name), "ready")}
			units = append(units, unit(creating(name)))
		}
		go func() {
			for i := range 6 {
				time.Sleep(time.Second)
				api.Edit(ref(fmt.Sprintf("t-%d", i)), enginetest.Set("ready"))
			}
		}()
		p := &play{api: api, a: actortest.New(api, job), progress: &progress{}}
		if err := p.run(t.Context(), Options{Parallelism: 4, Unready: 2}, Todo{Units: units}); err != nil || p.progress.most != 2 || p.progress.done != 6 {
			t.Errorf("%v: %d wait at once, %d done", err, p.progress.most, p.progress.done)
		}
	})
}

// TestStops: a run whose time is over names what it waits for, and begins nothing.
func TestStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := &enginetest.Job{Awaited: map[string][]migration.Condition{"a": {enginetest.Shows(ref("a"), "ready")}}}
		api := enginetest.NewAPI(t)
		p := &play{api: api, a: actortest.New(api, job), progress: &progress{}}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, &act.TimeoutError{What: "the run"})
		defer cancel()
		err := p.run(ctx, Options{Serial: true}, Todo{Units: []migration.Unit{unit(creating("a"), creating("b")), unit(creating("c"))}})
		if _, cut := errors.AsType[*wait.CutOffError](err); !cut || len(p.a.Findings.All()) != 1 {
			t.Errorf("got %v, %v", err, p.a.Findings.All())
		}
		if diff := cmp.Diff([]string{"create:a=open", "create:b=not-started", "create:c=not-started"}, p.results()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// TestStopsAtADeadWebhook: a run whose time is over names the webhook that did not answer its last
// writes, also if the API server still waited for it then.
func TestStopsAtADeadWebhook(t *testing.T) {
	dead := apierrors.NewInternalError(errors.New(`failed calling webhook "policy.example.com": Post "https://policy.gate.svc:443/": context deadline exceeded`))
	for _, tc := range []struct {
		reason  string
		answers int
		want    []string
	}{
		{"all writes are answered", 100, []string{"webhook-down Thing shop/a"}},
		{"the last one is not", 1, []string{"webhook-down Thing shop/a"}},
		{"none is", 0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := enginetest.NewAPI(t)
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, &act.TimeoutError{What: "the run", Limit: "10s", Flag: "--timeout"})
			defer cancel()
			for range tc.answers {
				api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: dead})
			}
			api.Fail(enginetest.Fault{Verb: "create", Name: "a", Err: fmt.Errorf("Post: %w", context.DeadlineExceeded), Before: func() {
				<-ctx.Done()
				time.Sleep(time.Millisecond) // that of the request ends after it
			}})
			p := &play{api: api, a: actortest.New(api, &enginetest.Job{}), progress: &progress{}}
			err := p.run(ctx, Options{Serial: true}, Todo{Units: []migration.Unit{unit(creating("a"), creating("b")), unit(creating("c"))}})
			if _, late := errors.AsType[*act.TimeoutError](err); !late {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			var got []string
			for _, f := range p.a.Findings.All() {
				got = append(got, f.ID+" "+f.Object)
				if !strings.Contains(f.Problem, "10s (--timeout)") || !strings.Contains(f.Note, "policy.example.com") || f.Command == "" {
					t.Errorf("%s: %+v", tc.reason, f)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{"create:a=open", "create:b=not-started", "create:c=not-started"}, p.results()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestResumes: a run that goes on makes what is left of the entries of an earlier process, and
// undoes what that one gave up.
func TestResumes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		changes []migration.Change
		states  string
		// applied: the first change was made.
		applied bool
		want    []string
		// value of c afterwards.
		value string
		// commit: the unit goes on whole once it has deleted anything.
		commit bool
		// refused: the reason of what is guarded does not hold any more; asked is how often the
		// job was asked.
		refused bool
		asked   int
	}{
		"Done": {reason: "what is done is not repeated", changes: []migration.Change{creating("a"), creating("b")}, states: "d-", want: []string{"create:a=done", "create:b=done"}, value: "old"},
		"Left": {reason: "what was left stays so", changes: []migration.Change{creating("a"), creating("b")}, states: "l-", want: []string{"create:a=left", "create:b=done"}, value: "old"},
		"Half": {
			reason:  "the rest of a guarded step is not wanted any more: what was done of it is undone",
			changes: []migration.Change{guarded(patching("c")), creating("b")}, states: "bl", applied: true, want: []string{"patch:c=rolled-back", "create:b=left"}, value: "old",
		},
		// On f3299ef what was marked as done stayed.
		"HalfDone": {
			reason:  "also if it was marked as done",
			changes: []migration.Change{guarded(releasing("c")), deleting("c")}, states: "dl", applied: true, want: []string{"patch:c=rolled-back", "delete:c=left"}, value: "old",
		},
		// On f3299ef these deleted c, and nobody was asked.
		"Asked": {
			reason:  "a guard that was done is no decision: the deletion asks",
			changes: []migration.Change{guarded(releasing("c")), deleting("c")}, states: "d-", applied: true, want: []string{"patch:c=done", "delete:c=done"}, value: "gone", asked: 1,
		},
		"Refused": {
			reason:  "and is left, and what was done of it undone, if its reason does not hold any more",
			changes: []migration.Change{guarded(releasing("c")), deleting("c")}, states: "d-", applied: true, want: []string{"patch:c=rolled-back", "delete:c=left"}, value: "old",
			refused: true, asked: 1,
		},
		"RefusedCommit": {
			reason:  "also of a unit that commits, as long as it has deleted nothing",
			changes: []migration.Change{guarded(releasing("c")), deleting("c")}, states: "d-", applied: true, want: []string{"patch:c=rolled-back", "delete:c=left"}, value: "old",
			commit: true, refused: true, asked: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t, held("c"), held("d"))
				job := &rechecker{answer: holds}
				if tc.refused {
					job.answer = func(name string) (*migration.Finding, error) {
						return &migration.Finding{Severity: migration.Deferred, Object: name, Problem: "it is used again"}, nil
					}
				}
				p := &play{api: api, a: actortest.New(api, job), progress: &progress{}}
				u := unit(tc.changes...)
				u.Commit = tc.commit
				e := actortest.Journaled(t, p.a, u)[0]
				if tc.applied {
					if _, err := p.a.Apply(t.Context(), e.Step(0)); err != nil {
						t.Fatal(err)
					}
				}
				for i, state := range tc.states {
					e.Step(i).SetState(journal.StepState(state))
				}
				if err := p.run(t.Context(), Options{}, Todo{Entries: []*journal.Entry{e}}); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, p.results()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				if live := api.Live(ref("c")); live != nil && len(live.GetFinalizers()) != 1 {
					t.Errorf("%s: it has the finalizers %q", tc.reason, live.GetFinalizers())
				}
				if enginetest.Value(api.Live(ref("c"))) != tc.value || len(job.asked) != tc.asked {
					t.Errorf("%s: there is %s, and the job was asked about %v", tc.reason, enginetest.Value(api.Live(ref("c"))), job.asked)
				}
			})
		})
	}
}

// TestDryRunRemaining: after a refusal, one run names all that would be refused.
func TestDryRunRemaining(t *testing.T) {
	api := enginetest.NewAPI(t)
	a := actortest.New(api, &enginetest.Job{})
	entries := actortest.Journaled(t, a, unit(creating("done")), unit(creating("begun")), unit(creating("journaled")))
	entries[0].Done = true
	entries[1].Step(0).ReportResult(migration.ChangeFailed)
	for _, name := range []string{"done", "begun", "journaled", "planned", "awaits"} {
		api.Fail(enginetest.Fault{Verb: "create", Name: name, Err: forbidden})
	}
	api.Fail(enginetest.Fault{Verb: "create", Name: "webhook", Err: apierrors.NewBadRequest("it does not support dry run")}, enginetest.Fault{Verb: "create", Name: "busy", Err: apierrors.NewTooManyRequestsError("later")})
	await := migration.Change{Verb: migration.Await, Ref: ref("x")}
	DryRunRemaining(t.Context(), a, []migration.Unit{
		unit(creating("journaled")), unit(creating("planned")), {ID: "awaits", Changes: []migration.Change{await, creating("awaits")}}, unit(creating("fine")), unit(creating("webhook")), unit(creating("busy")),
		unit(patching("patched")), unit(await),
	})
	named := map[string]int{}
	for _, f := range a.Findings.All() {
		named[f.Object]++
	}
	if diff := cmp.Diff(map[string]int{"Thing shop/journaled": 1, "Thing shop/planned": 1, "Thing shop/awaits": 1}, named); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if api.Live(ref("fine")) != nil {
		t.Error("a dry run has written")
	}
}

// TestEffectsAreNoted: a run notes what controllers have made because of its changes, when a unit
// ends and at its end.
func TestEffectsAreNoted(t *testing.T) {
	broker := enginetest.Ref("Broker", "default")
	for name, tc := range map[string]struct {
		reason string
		late   bool
		fault  bool
		read   bool
		noted  int
		hash   bool
		// before: it is made before the change takes effect; seen: it is watched.
		before, seen bool
		theirs       bool
	}{
		// On f3299ef it was taken for an effect, and an undo deleted it.
		"Before": {reason: "what a person has made before the change took effect is his", before: true, noted: 1, theirs: true},
		// On f3299ef the edit was noted as what the controller had made, and an undo deleted it.
		"Seen":      {reason: "what is watched is noted before anybody edits it", seen: true, noted: 1, hash: true},
		"AtTheEnd":  {reason: "what is there when its unit ends", noted: 1, hash: true},
		"Late":      {reason: "or when the run does", late: true, noted: 1, hash: true},
		"Unread":    {reason: "nobody can tell", fault: true},
		"AfterKill": {reason: "what is there after a kill may have been edited already", read: true, noted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t, enginetest.Make("Thing", "a", "old"))
				var once sync.Once
				thing, on := ref("a"), []migration.Subject{ref("a").Subject()}
				if tc.seen {
					on = append(on, broker.Subject())
				}
				await := migration.Condition{Text: "the controller", On: on, Eval: func(migration.View) migration.Status {
					if tc.late || tc.before {
						return migration.Status{State: migration.Met}
					}
					once.Do(func() {
						api.Put(enginetest.Make("Broker", "default", ""))
						if tc.seen {
							time.AfterFunc(time.Second, func() {
								api.Edit(broker, enginetest.Set("edited"))
								time.Sleep(time.Second)
								api.Edit(thing, func(obj *unstructured.Unstructured) { obj.Object["status"] = "ready" })
							})
						}
					})
					if live := api.Live(thing); tc.seen && live.Object["status"] == nil {
						return migration.Status{Message: "not yet"}
					}
					return migration.Status{State: migration.Met}
				}}
				p := &play{api: api, a: actortest.New(api, &enginetest.Job{Awaited: map[string][]migration.Condition{"a": {await}}}), progress: &progress{}}
				ch := patching("a")
				ch.SideEffects = []migration.Ref{broker}
				e := actortest.Journaled(t, p.a, unit(ch))[0]
				e.Read = tc.read
				if tc.fault {
					api.Fail(enginetest.Fault{Verb: "list"}, enginetest.Fault{Verb: "list"}, enginetest.Fault{Verb: "list", Err: forbidden})
				}
				if tc.before {
					api.Put(enginetest.Make("Broker", "default", ""))
				}
				x := New(t.Context(), p.a, Options{Unready: 1, Progress: p.progress})
				if err := x.Run(t.Context(), Todo{Entries: []*journal.Entry{e}}); err != nil {
					t.Fatal(err)
				}
				if tc.late {
					time.Sleep(time.Minute)
					api.Put(enginetest.Make("Broker", "default", ""))
					x.RecordLateEffects(t.Context())
					x.RecordLateEffects(t.Context())
				}
				got := e.Step(0).Effects()
				if len(got) != tc.noted || len(got) > 0 && ((got[0].Hash != "") != tc.hash || got[0].Theirs != tc.theirs) ||
					tc.seen && got[0].Hash == patch.Hash(api.Live(broker), nil) {
					t.Errorf("%s: %v", tc.reason, got)
				}
			})
		})
	}
}

// TestRecheckTakesTime: what a recheck reads may take longer than its answer counts, and it may ask
// for time; what always takes too long is left, with the time.
func TestRecheckTakesTime(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		takes  time.Duration
		later  int
		// guard is how long the Lease takes to be renewed before each write.
		guard time.Duration
		asked int
		left  string
	}{
		// On f3299ef this was asked again and again if it was the protector's, and never too old if
		// it was this one.
		"Slow":    {"2.5 s of reading are added to its age", 2500 * time.Millisecond, 0, 0, 1, ""},
		"TooSlow": {"11 s are never acted on", 11 * time.Second, 0, 0, 3, "to read what it depends on took 11s, and may take 10s at most"},
		"Later":   {"what it waits for is no part of its answer", time.Second, 2, 0, 3, ""},
		// On f3299ef this was sent, 6 s after the answer.
		"TooLate": {"a request can never leave in time", time.Second, 0, 6 * time.Second, 18, "no request could be sent within 3s of an answer in 2m6s; the last answer was 7s old"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := enginetest.NewAPI(t, held("c"))
				job := &rechecker{}
				job.answer = func(string) (*migration.Finding, error) {
					time.Sleep(tc.takes)
					if tc.later > 0 {
						tc.later--
						return nil, &migration.AskLaterError{After: time.Minute}
					}
					return nil, nil
				}
				p := &play{api: api, a: actortest.New(api, job), progress: &progress{}}
				guard := p.a.Writer.Guard
				p.a.Writer.Guard = func(ctx context.Context) (context.Context, context.CancelFunc, error) {
					time.Sleep(tc.guard)
					return guard(ctx)
				}
				e := actortest.Journaled(t, p.a, unit(guarded(releasing("c"))))[0]
				if err := p.run(t.Context(), Options{}, Todo{Entries: []*journal.Entry{e}}); err != nil {
					t.Fatal(err)
				}
				if made := len(api.Live(ref("c")).GetFinalizers()) == 0; made != (tc.left == "") || len(job.asked) != tc.asked {
					t.Errorf("%s: made %t, asked %d times", tc.reason, made, len(job.asked))
				}
				var told []string
				for _, f := range p.a.Findings.All() {
					told = append(told, f.Problem)
				}
				if tc.left == "" && len(told) > 0 || tc.left != "" && (len(told) != 1 || !strings.Contains(told[0], tc.left)) {
					t.Errorf("%s: %q", tc.reason, told)
				}
			})
		})
	}
}
