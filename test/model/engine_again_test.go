package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// with is an engine with options of its own.
func (s *sandbox) with(client *model.Client, change func(*engine.Options)) *engine.Engine {
	s.t.Helper()
	opts := engine.Options{Names: names, Identity: "with", LeaseDuration: 15 * time.Second, Timeout: 5 * time.Minute}
	change(&opts)
	e, err := engine.New(client.Config(), opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// planning is a job that plans these, one look after the other; the last one again and again.
func planning(plans ...*migration.Plan) (job *scripted, looks *int) {
	looks = new(int)
	return &scripted{plan: func() *migration.Plan {
		*looks++
		return plans[min(*looks, len(plans))-1]
	}}, looks
}

func serial(units ...migration.Unit) *migration.Plan {
	return &migration.Plan{Serial: true, Units: units}
}

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// held puts a Lease there whose holder was killed.
func (s *sandbox) held() {
	s.t.Helper()
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	_, err := s.user.Resource(leases).Namespace(program).Create(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "mover"},
		"spec": map[string]any{"holderIdentity": "killed", "leaseDurationSeconds": int64(1), "acquireTime": now, "renewTime": now, "leaseTransitions": int64(0)},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// deny takes a permission on ConfigMaps in the namespace of the test.
func (s *sandbox) deny(verb string) {
	s.server.Deny(func(p model.Permission) bool {
		return p.Verb == verb && p.Resource == "configmaps" && p.Namespace != program
	})
}

// writes are those to the objects of the test by a run.
func (s *sandbox) writes() (all []string) {
	for _, w := range s.server.History() {
		if w.Key.Namespace == "shop" && w.Key.Plural == "configmaps" && w.Actor != "user" {
			all = append(all, w.Verb+" "+w.Key.Name)
		}
	}
	return all
}

// TestEngineAsksFirst: everything is refused before the first write that can be.
func TestEngineAsksFirst(t *testing.T) {
	bubble(t, "Contended", func(t *testing.T, s *sandbox) { // M29
		s.held()
		job, looks := planning(serial(unit("a", s.creation("a"))), serial(unit("b", s.creation("b"))))
		want(t, s.run("first", job), migration.Succeeded)
		if *looks != 2 || s.get("a") != nil || s.get("b") == nil {
			t.Errorf("after a wait for the lock, the plan of now is made: %d looks", *looks)
		}
	})
	bubble(t, "Alone", func(t *testing.T, s *sandbox) {
		job, looks := planning(serial(unit("a", s.creation("a"))))
		want(t, s.run("first", job), migration.Succeeded)
		if *looks != 1 {
			t.Errorf("%d looks", *looks)
		}
	})
	bubble(t, "ContendedAndDenied", func(t *testing.T, s *sandbox) { // M26
		s.before()
		s.held()
		s.deny("create")
		job, _ := planning(serial(unit("p", patching("patched", `{"data":{"ours":"new"}}`))), serial(unit("a", s.creation("a"))))
		r := s.run("first", job)
		want(t, r, migration.Refused)
		if len(s.writes()) > 0 || len(says(r, "missing permission: create configmaps")) != 1 {
			t.Errorf("%+v, %v", r.Findings, s.writes())
		}
	})
	bubble(t, "ContendedAndDone", func(t *testing.T, s *sandbox) {
		s.held()
		job, _ := planning(serial(unit("a", s.creation("a"))), serial())
		want(t, s.run("first", job), migration.NothingToDo)
	})
	bubble(t, "Denied", func(t *testing.T, s *sandbox) {
		s.before()
		s.deny("patch")
		r := s.run("first", fixed(unit("p", patching("patched", `{"data":{"ours":"new"}}`))))
		want(t, r, migration.Refused)
		mustSay(t, r, migration.Error, "missing permission: patch configmaps in namespace shop")
		for _, w := range s.server.History() {
			if w.Key.Plural == "leases" {
				t.Error("it wrote the Lease")
			}
		}
	})
	// Fails on the commit before: what the interrupted run had made was deleted first.
	bubble(t, "DeniedBeforeReplacing", func(t *testing.T, s *sandbox) {
		s.before()
		first := unit("new", s.creation("new"))
		s.killed(fixed(first, unit("gate", s.creation("gate"))), true, call("create", "new"))
		other := s.creation("new")
		other.Object = s.object("new", map[string]any{"k": "another"})
		s.deny("patch")
		job := fixed(unit("new", other), unit("p", patching("patched", `{"data":{"ours":"new"}}`)))
		r := s.run("second", job)
		want(t, r, migration.Refused)
		if got := data(s.get("new")); got["k"] != "v" || s.phases() != "forward" {
			t.Errorf("it wrote before it was refused: %v, journal %q", got, s.phases())
		}
		s.server.Deny(nil)
		want(t, s.run("third", job), migration.Succeeded)
		if got := data(s.get("new")); got["k"] != "another" {
			t.Errorf("it is not replaced: %v", got)
		}
	})
	bubble(t, "TooLong", func(t *testing.T, s *sandbox) {
		plan := serial(unit("a", s.creation("a")))
		plan.Estimate = time.Hour
		job, _ := planning(plan)
		r := s.run("first", job)
		want(t, r, migration.Refused)
		mustSay(t, r, migration.Error, "the plan may take 1h0m0s, longer than --timeout 5m0s")
		plan.Units[0].Independent = true
		want(t, s.run("second", job), migration.Succeeded)
	})
	bubble(t, "Refused", func(t *testing.T, s *sandbox) {
		plan := serial(unit("a", s.creation("a")))
		plan.Findings = []migration.Finding{{Severity: migration.Error, Problem: "broken"}, {Severity: migration.Error, Problem: "too"}}
		job, _ := planning(plan)
		r := s.run("first", job)
		want(t, r, migration.Refused)
		if !strings.Contains(r.Message, "2 problems") || len(s.writes()) > 0 {
			t.Errorf("%s, %v", r.Message, s.writes())
		}
		want(t, s.engine(s.server.Client("plan"), "plan").Plan(t.Context(), job), migration.Refused)
	})
	bubble(t, "Panics", func(t *testing.T, s *sandbox) {
		r := s.run("first", &scripted{plan: func() *migration.Plan { panic("on purpose") }})
		want(t, r, migration.FailedResult)
		if !strings.Contains(r.Message, "panic: on purpose; nothing was changed") {
			t.Error(r.Message)
		}
	})
	bubble(t, "NoPlan", func(t *testing.T, s *sandbox) {
		want(t, s.run("first", &scripted{plan: func() *migration.Plan { return nil }}), migration.NothingToDo)
	})
	bubble(t, "Locked", func(t *testing.T, s *sandbox) {
		holder := s.server.Client("holder")
		job := fixed(unit("a", s.creation("a")))
		job.await = func(ch *migration.Change) []migration.Condition {
			return []migration.Condition{{Text: "ever", On: []migration.Subject{ch.Ref.Subject()}, Eval: func(migration.View) migration.Status { return migration.Status{Message: "not yet"} }}}
		}
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan *migration.Report, 1)
		go func() { ended <- s.engine(holder, "holder").Run(ctx, job) }()
		time.Sleep(5 * time.Second)
		r := s.with(s.server.Client("second"), func(o *engine.Options) { o.LockWait = 10 * time.Second }).Run(t.Context(), fixed(unit("b", s.creation("b"))))
		want(t, r, migration.Locked)
		if r.ExitCode() != migration.ExitLocked || s.get("b") != nil || !strings.Contains(r.Message, `"holder"`) {
			t.Errorf("%d, %s", r.ExitCode(), r.Message)
		}
		stop(engine.SignalError{Signal: syscall.SIGTERM})
		r = <-ended
		want(t, r, migration.Interrupted)
		if r.ExitCode() != 143 || s.phases() != "forward" || !strings.Contains(r.Message, "the journal is open") {
			t.Errorf("%d, %s, %q", r.ExitCode(), r.Message, s.phases())
		}
		for name, tc := range map[string]struct {
			resume engine.Resume
			want   bool
		}{"Back": {engine.ResumeBack, false}} {
			job.await = nil
			r := s.with(s.server.Client(name), func(o *engine.Options) { o.Resume = tc.resume }).Run(t.Context(), job)
			want(t, r, migration.RolledBack)
			if s.get("a") != nil || s.phases() != "rolled-back" {
				t.Errorf("%s: %q", name, s.phases())
			}
		}
	})
}

// TestEngineDefers: what has to wait is no failure, unless it is to be one.
func TestEngineDefers(t *testing.T) {
	later := []migration.Finding{{Severity: migration.Deferred, Object: "ConfigMap shop/x", Problem: "not yet"}}
	fail := func(o *engine.Options) { o.Defer = engine.DeferFail }
	bubble(t, "Nothing", func(t *testing.T, s *sandbox) {
		job, _ := planning(&migration.Plan{Findings: later})
		want(t, s.run("first", job), migration.DeferredResult)
		want(t, s.with(s.server.Client("second"), fail).Run(t.Context(), job), migration.FailedResult)
	})
	bubble(t, "Work", func(t *testing.T, s *sandbox) {
		plan := serial(unit("a", s.creation("a")))
		plan.Findings = later
		job, _ := planning(plan)
		r := s.with(s.server.Client("first"), fail).Run(t.Context(), job)
		want(t, r, migration.FailedResult)
		if s.get("a") != nil || len(r.Findings) != 1 {
			t.Errorf("it must fail before the first write: %+v", r.Findings)
		}
		r = s.run("second", job)
		want(t, r, migration.DeferredResult)
		if s.get("a") == nil || !strings.Contains(r.Message, "1 change made; the rest is deferred") {
			t.Errorf("%s", r.Message)
		}
	})
	bubble(t, "Interrupted", func(t *testing.T, s *sandbox) {
		plan := serial(unit("a", s.creation("a")), unit("b", s.creation("b")))
		s.killed(&scripted{plan: func() *migration.Plan { return plan }}, true, call("create", "a"))
		plan.Findings = later
		job, _ := planning(plan)
		r := s.with(s.server.Client("second"), fail).Run(t.Context(), job)
		want(t, r, migration.FailedResult)
		if s.get("b") == nil || s.phases() != "done" || !strings.Contains(r.Message, "what is done stays") {
			t.Errorf("an interrupted run is finished, and fails then: %s, %q", r.Message, s.phases())
		}
	})
	bubble(t, "Waits", func(t *testing.T, s *sandbox) {
		s.before()
		plan := serial(unit("w", migration.Change{Verb: migration.Await, Ref: ref("patched")}))
		job, _ := planning(plan)
		state := migration.Met
		job.await = func(ch *migration.Change) []migration.Condition {
			return []migration.Condition{{Text: "a sign", On: []migration.Subject{ch.Ref.Subject()}, Timeout: time.Minute, Eval: func(migration.View) migration.Status {
				return migration.Status{State: state, Message: "none", Note: "look"}
			}}}
		}
		r := s.run("first", job)
		want(t, r, migration.NothingToDo)
		if r.Message != "1 existing object is ready now; nothing had to be changed" {
			t.Error(r.Message)
		}
		plan.Findings = later
		r = s.run("second", job)
		want(t, r, migration.DeferredResult)
		if !strings.HasSuffix(r.Message, "; what is left is deferred") {
			t.Error(r.Message)
		}
		plan.Findings = nil
		for _, bad := range []migration.State{migration.Failed, migration.Pending} {
			state = bad
			r = s.run("third", job)
			want(t, r, migration.FailedResult)
			if r.Message != "1 existing object is not right; nothing was changed" || r.Findings[0].Hint != "look" || s.phases() != "" {
				t.Errorf("%s, %+v", r.Message, r.Findings)
			}
		}
	})
}

// rechecked is a job with a recheck.
type rechecked struct {
	*scripted
	recheck func(u *migration.Unit, i int) (*migration.Finding, error)
}

func (j *rechecked) Recheck(_ context.Context, _ migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	return j.recheck(u, i)
}

func guarded(ch migration.Change) migration.Change {
	ch.Guard = true
	return ch
}

// TestEngineGuards: a guarded step is made only if its reason still holds.
func TestEngineGuards(t *testing.T) {
	no := &migration.Finding{Severity: migration.Deferred, Object: "ConfigMap shop/victim", Problem: "used again"}
	units := func(s *sandbox) []migration.Unit {
		return []migration.Unit{unit("u", s.creation("new"), guarded(s.deletion("victim"))), unit("v", s.creation("other"))}
	}
	bubble(t, "Holds", func(t *testing.T, s *sandbox) {
		s.before()
		job := &rechecked{fixed(units(s)...), func(u *migration.Unit, i int) (*migration.Finding, error) {
			if u.ID != "u" || i != 1 || s.get("new") == nil {
				t.Errorf("asked about change %d of %s too early", i, u.ID)
			}
			return nil, nil
		}}
		want(t, s.run("first", job), migration.Succeeded)
		if s.get("victim") != nil {
			t.Error("it was left")
		}
	})
	for name, recheck := range map[string]func(*migration.Unit, int) (*migration.Finding, error){
		"HoldsNot":     func(*migration.Unit, int) (*migration.Finding, error) { return no, nil },
		"CannotTell":   func(*migration.Unit, int) (*migration.Finding, error) { return nil, errors.New("NATS does not answer") },
		"NoRechecker":  nil,
		"DeferredFail": func(*migration.Unit, int) (*migration.Finding, error) { return no, nil },
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.before()
			var job migration.Job = &rechecked{fixed(units(s)...), recheck}
			says := map[string]string{"HoldsNot": "used again", "CannotTell": "it is unknown whether the reason for it still holds: NATS does not answer", "NoRechecker": "this version of the job cannot check", "DeferredFail": "used again"}[name]
			if recheck == nil {
				job = fixed(units(s)...)
			}
			result, policy := migration.DeferredResult, engine.DeferAllow
			if name == "DeferredFail" {
				result, policy = migration.FailedResult, engine.DeferFail
			}
			r := s.with(s.server.Client("first"), func(o *engine.Options) { o.Defer = policy }).Run(t.Context(), job)
			want(t, r, result)
			mustSay(t, r, migration.Deferred, says)
			if s.get("victim") == nil || s.get("new") == nil || s.get("other") == nil || s.phases() != "done" {
				t.Errorf("only the guarded change is left: %v, %q", s.contents(), s.phases())
			}
			if i := slices.IndexFunc(r.Changes, func(ch migration.ChangeReport) bool { return ch.Name == "victim" }); r.Changes[i].Result != migration.ChangeLeft || r.Changes[i].Message == "" {
				t.Errorf("%+v", r.Changes[i])
			}
			want(t, s.undo(job), migration.Succeeded)
			if s.get("new") != nil || s.get("victim") == nil {
				t.Errorf("undone: %v", s.contents())
			}
		})
	}
	// A run that was killed between the two changes of a guarded step.
	for name, tc := range map[string]struct {
		reason string
		again  bool // the plan of now wants the rest
		holds  bool
		gone   bool
		says   string
	}{
		"HalfAndWanted":    {"it is finished", true, true, true, ""},
		"HalfAndGuarded":   {"it is asked about, and undone", true, false, false, "used again"},
		"HalfAndNotWanted": {"it is undone", false, true, false, "an interrupted run had begun it, and its reason does not hold any more"},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.before()
			s.edit("victim", `{"metadata":{"finalizers":["x.test/dead"]}}`)
			live := s.live("victim")
			step := []migration.Change{
				guarded(migration.Change{Verb: migration.Patch, Ref: ref("victim"), Object: live, UID: live.GetUID(), Lists: migration.RemoveFinalizer("x.test/dead")}),
				s.deletion("victim"),
			}
			yes := func(*migration.Unit, int) (*migration.Finding, error) { return nil, nil }
			s.killed(&rechecked{fixed(unit("u", step...)), yes}, true, call("patch", "victim"))
			job := &rechecked{fixed(), yes}
			if tc.again {
				job.scripted = fixed(unit("u", s.deletion("victim")))
			}
			if !tc.holds {
				job.recheck = func(*migration.Unit, int) (*migration.Finding, error) { return no, nil }
			}
			r := s.run("second", job)
			if (s.get("victim") == nil) != tc.gone {
				t.Errorf("%s: %+v", tc.reason, r)
			}
			if tc.says != "" && len(says(r, tc.says)) != 1 {
				t.Errorf("%s: %+v", tc.reason, r.Findings)
			}
			if victim := s.live("victim"); victim != nil && !slices.Contains(victim.GetFinalizers(), "x.test/dead") {
				t.Errorf("%s: its finalizer is not restored", tc.reason)
			}
		})
	}
}

// TestEngineRetreats: a process that is killed while it undoes the first change of a guarded step,
// which an earlier one had marked as done, leaves nothing that the next one takes for done. On
// 2b3be85 that deleted the object with the finalizer back on it, and waited for ever.
func TestEngineRetreats(t *testing.T) {
	bubble(t, "", func(t *testing.T, s *sandbox) {
		s.before()
		s.edit("victim", `{"metadata":{"finalizers":["x.test/dead"]}}`)
		live := s.live("victim")
		job := func(reason *migration.Finding) *rechecked {
			return &rechecked{fixed(unit("u", guarded(migration.Change{
				Verb: migration.Patch, Ref: ref("victim"), Object: live, UID: live.GetUID(), Lists: migration.RemoveFinalizer("x.test/dead"),
			}), s.deletion("victim"))), func(*migration.Unit, int) (*migration.Finding, error) { return reason, nil }}
		}
		ctx, stop := context.WithCancelCause(t.Context())
		client := s.server.Client("first")
		client.After(func(r *model.Request) {
			if call("patch", "victim")(r) {
				stop(engine.SignalError{Signal: syscall.SIGTERM})
			}
		})
		want(t, s.engine(client, "first").Run(ctx, job(nil)), migration.Interrupted)
		s.killed(job(&migration.Finding{Severity: migration.Deferred, Object: "ConfigMap shop/victim", Problem: "used again"}), true, call("patch", "victim"))
		if victim := s.live("victim"); victim == nil || len(victim.GetFinalizers()) != 1 {
			t.Fatalf("its finalizer is to be back: %v", victim)
		}
		r := s.run("third", job(nil))
		want(t, r, migration.Succeeded)
		if s.get("victim") != nil {
			t.Errorf("it is still there: %+v", r.Findings)
		}
	})
}

// TestEngineResumes: what was begun is finished, also what no plan shows any more.
func TestEngineResumes(t *testing.T) {
	follow := func(id string) migration.Unit {
		u := unit("after", patching("patched", `{"data":{"ours":"new"}}`))
		u.Follows = []string{id}
		return u
	}
	bubble(t, "Follows", func(t *testing.T, s *sandbox) { // M08
		s.before()
		s.killed(fixed(unit("victim", s.deletion("victim")), follow("victim")), true, call("delete", "victim"))
		want(t, s.run("second", fixed()), migration.Succeeded)
		if data(s.get("patched"))["ours"] != "new" || s.phases() != "done" {
			t.Errorf("what follows from a unit that was begun is done: %v", s.contents())
		}
	})
	bubble(t, "FollowsNothing", func(t *testing.T, s *sandbox) {
		s.before()
		s.killed(fixed(unit("victim", s.deletion("victim")), follow("victim")), false, call("delete", "victim"))
		r := s.run("second", fixed())
		if data(s.get("patched"))["ours"] != "old" || s.get("victim") == nil {
			t.Errorf("of a unit that was not begun, nothing follows: %s, %v", r.Message, s.contents())
		}
	})
	bubble(t, "Last", func(t *testing.T, s *sandbox) {
		s.before()
		plan := serial(unit("victim", s.deletion("victim")))
		plan.Last = []migration.Unit{unit("last", s.creation("last")), unit("later", patching("patched", `{"data":{"ours":"new"}}`))}
		plan.Last[1].Changes[0].Object = s.live("patched")
		job, _ := planning(plan)
		s.killed(job, true, call("delete", "victim"))
		if s.get("last") != nil {
			t.Error("it came before the others were done")
		}
		want(t, s.run("second", fixed()), migration.Succeeded)
		if s.get("last") == nil || data(s.get("patched"))["ours"] != "new" {
			t.Errorf("what comes last is done: %v", s.contents())
		}
	})
	bubble(t, "LastInOrder", func(t *testing.T, s *sandbox) {
		s.before()
		plan := &migration.Plan{Parallelism: 4, Units: []migration.Unit{unit("victim", s.deletion("victim")), unit("new", s.creation("new"))}, Last: []migration.Unit{unit("last", s.creation("last"))}}
		job, _ := planning(plan)
		want(t, s.run("first", job), migration.Succeeded)
		if all := s.writes(); all[len(all)-1] != "create last" || len(all) != 3 {
			t.Errorf("%v", all)
		}
		want(t, s.undo(job), migration.Succeeded)
	})
	bubble(t, "Gives up", func(t *testing.T, s *sandbox) {
		s.before()
		s.killed(fixed(unit("new", s.creation("new")), unit("p", patching("patched", `{"data":{"ours":"new"}}`))), false, call("patch", "patched"))
		want(t, s.run("second", fixed()), migration.Succeeded)
		if data(s.get("patched"))["ours"] != "old" || s.get("new") == nil {
			t.Errorf("the plan of now does not want the rest: %v", s.contents())
		}
		want(t, s.undo(fixed()), migration.Succeeded)
		if s.get("new") != nil {
			t.Error("one undo is for all of the run")
		}
	})
	bubble(t, "NotReplaced", func(t *testing.T, s *sandbox) {
		s.killed(fixed(unit("new", s.creation("new")), unit("gate", s.creation("gate"))), true, call("create", "new"))
		s.edit("new", `{"data":{"k":"mine"}}`)
		other := s.creation("new")
		other.Object = s.object("new", map[string]any{"k": "another"})
		r := s.run("second", fixed(unit("new", other)))
		if got := data(s.get("new")); got["k"] != "mine" || len(says(r, "was edited after the run")) != 1 {
			t.Errorf("somebody edited it: %v, %+v", got, r.Findings)
		}
	})
	bubble(t, "Keep", func(t *testing.T, s *sandbox) {
		before := s.before()
		job := fixed(unit("victim", s.deletion("victim")), unit("gate", s.creation("gate")))
		job.await = gate("gate")
		keep := func(o *engine.Options) { o.OnFailure = engine.OnFailureLeave }
		r := s.with(s.server.Client("first"), keep).Run(t.Context(), job)
		want(t, r, migration.FailedResult)
		if r.ExitCode() != 3 || s.phases() != "forward" || s.get("victim") != nil || !strings.Contains(r.Message, "what was done stays (--on-failure=leave)") {
			t.Errorf("%d, %s", r.ExitCode(), r.Message)
		}
		want(t, s.undo(job), migration.Succeeded)
		same(t, s.contents(), before)
	})
	bubble(t, "TimesOutIndependent", func(t *testing.T, s *sandbox) {
		before := s.before()
		a, b, c := unit("a", s.creation("a")), unit("b", s.creation("b")), unit("c", s.creation("c"))
		a.Independent, b.Independent, c.Independent = true, true, true
		plan := serial(a, b, c)
		plan.Last = []migration.Unit{unit("last", s.creation("last"))}
		job, _ := planning(plan)
		job.await = func(ch *migration.Change) []migration.Condition {
			if ch.Ref.Name != "b" {
				return nil
			}
			return []migration.Condition{{Text: "ever", On: []migration.Subject{ch.Ref.Subject()}, Eval: func(migration.View) migration.Status { return migration.Status{Message: "not yet"} }}}
		}
		r := s.run("first", job)
		want(t, r, migration.TimedOut)
		if !strings.Contains(r.Message, "1 of 3 are done and stay") || s.get("a") == nil || s.get("c") != nil || s.get("last") == nil || s.phases() != "forward" {
			t.Errorf("%s, %v, %q", r.Message, s.contents(), s.phases())
		}
		job.await = nil
		plan.Units, plan.Last = plan.Units[2:], nil
		want(t, s.run("second", job), migration.Succeeded)
		if s.get("c") == nil || s.phases() != "done" {
			t.Errorf("the next run goes on: %v", s.contents())
		}
		want(t, s.undo(job), migration.Succeeded)
		same(t, s.contents(), before)
	})
}

// TestEngineResumesARollback: only of what the interrupted rollback may have begun with, nobody
// can tell who changed it since. Fails on the commit before: each restored object was named.
func TestEngineResumesARollback(t *testing.T) {
	const n = 130
	bubble(t, "Many", func(t *testing.T, s *sandbox) {
		var units []migration.Unit
		for i := range n {
			name := fmt.Sprintf("v%03d", i)
			s.put(name, map[string]any{"a": "1"})
			units = append(units, unit(name, s.deletion(name)))
		}
		before := s.contents()
		job := fixed(append(units, unit("gate", s.creation("gate")))...)
		job.await = gate("gate")
		restored := 0
		s.killed(job, true, func(r *model.Request) bool {
			if r.Verb == "create" && strings.HasPrefix(r.Name, "v") && r.Namespace == "shop" {
				restored++
			}
			return restored == 20
		})
		r := s.run("second", fixed())
		want(t, r, migration.NothingToDo)
		same(t, s.contents(), before)
		named := len(says(r, "restored by a rollback that goes on after an interruption"))
		if named != 29 || named != len(r.Findings) {
			t.Errorf("%d of %d are named: %+v", named, n-restored, r.Findings)
		}
		if len(says(r, "v000")) > 0 || s.phases() != "rolled-back" {
			t.Errorf("the interrupted rollback had not begun with the first one; journal %q", s.phases())
		}
	})
}

// looking is a job that decides over the cluster.
type looking struct {
	*scripted
	look func(context.Context, *migration.Cluster) *migration.Plan
}

func (j *looking) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	return j.look(ctx, c), nil
}

// TestEngineKnowsItsOwn: a job is told which objects its interrupted run created, unedited.
func TestEngineKnowsItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(s *sandbox)
		want bool
	}{
		"Unedited": {func(*sandbox) {}, true},
		"Edited":   {func(s *sandbox) { s.edit("new", `{"data":{"k":"mine"}}`) }, false},
		"Another":  {func(s *sandbox) { s.again("new", map[string]any{"k": "v"}) }, false},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.killed(fixed(unit("new", s.creation("new")), unit("gate", s.creation("gate"))), true, call("create", "new"))
			tc.do(s)
			made := false
			s.run("second", &looking{fixed(), func(ctx context.Context, c *migration.Cluster) *migration.Plan {
				obj, err := c.Get(ctx, ref("new"))
				if err != nil || obj == nil {
					t.Errorf("%v, %v", obj, err)
					return nil
				}
				made = c.Made(obj)
				return nil
			}})
			if made != tc.want {
				t.Errorf("made by this run: %t", made)
			}
		})
	}
}

// keeper is a job whose objects may carry live events.
type keeper struct {
	*scripted
	keep func([]migration.Ref) (map[migration.Ref]string, error)
}

func (j *keeper) Protect(_ context.Context, _ *migration.Cluster, refs []migration.Ref) (map[migration.Ref]string, error) {
	return j.keep(refs)
}

// guardian is a job that refuses an undo.
type guardian struct {
	*scripted
	reasons []migration.Finding
	err     error
}

func (j *guardian) RefuseUndo(context.Context, *migration.Cluster, []migration.Change) ([]migration.Finding, error) {
	return j.reasons, j.err
}

// TestEngineKeeps: what carries live events stays, and all of it while nobody can say.
func TestEngineKeeps(t *testing.T) {
	bubble(t, "Kept", func(t *testing.T, s *sandbox) {
		s.before()
		base := fixed(unit("u", s.deletion("victim"), s.creation("new")), unit("gate", s.creation("gate")))
		base.await = gate("gate")
		job := &keeper{base, func(refs []migration.Ref) (map[migration.Ref]string, error) {
			if !slices.Contains(refs, ref("new")) || slices.Contains(refs, ref("victim")) {
				t.Errorf("asked about %v", refs)
			}
			return map[migration.Ref]string{ref("new"): "events go through it"}, nil
		}}
		r := s.run("first", job)
		want(t, r, migration.PartlyRestored)
		mustSay(t, r, migration.Warning, "protected: events go through it")
		if s.get("new") == nil || s.get("victim") == nil || s.get("gate") != nil || s.phases() != "rolled-back" {
			t.Errorf("%v, %q", s.contents(), s.phases())
		}
	})
	bubble(t, "Unknown", func(t *testing.T, s *sandbox) { // M10, M27
		s.before()
		base := fixed(unit("new", s.creation("new")), unit("victim", s.deletion("victim")), unit("gate", s.creation("gate")))
		base.await = gate("gate")
		unknown := true
		job := &keeper{base, func([]migration.Ref) (map[migration.Ref]string, error) {
			if unknown {
				return nil, errors.New("NATS does not answer")
			}
			return nil, nil
		}}
		r := s.run("first", job)
		want(t, r, migration.PartlyRestored)
		if s.get("new") == nil || s.get("gate") == nil || s.get("victim") == nil || s.phases() != "rollback" || len(says(r, "NATS does not answer")) != 2 {
			t.Errorf("%v, %q, %+v", s.contents(), s.phases(), r.Findings)
		}
		unknown = false
		base.plan = func() *migration.Plan { return nil }
		want(t, s.run("second", job), migration.NothingToDo)
		if s.get("new") != nil || s.get("gate") != nil || s.phases() != "rolled-back" {
			t.Errorf("%v, %q", s.contents(), s.phases())
		}
	})
	bubble(t, "UndoneMeanwhile", func(t *testing.T, s *sandbox) {
		job := fixed(unit("new", s.creation("new")))
		want(t, s.run("first", job), migration.Succeeded)
		lock := s.user.Resource(leases).Namespace(program)
		if err := lock.Delete(t.Context(), "mover", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.held()
		secrets := s.user.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(program)
		time.AfterFunc(500*time.Millisecond, func() {
			list, err := secrets.List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				t.Error(err, len(list.Items))
				return
			}
			_, err = secrets.Patch(t.Context(), list.Items[0].GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"mover.example.com/phase":"undone"}}}`), metav1.PatchOptions{})
			if err != nil {
				t.Error(err)
			}
		})
		want(t, s.undo(job), migration.NothingToDo)
		if s.get("new") == nil {
			t.Error("the run was undone, and this object is somebody's who has it now")
		}
	})
	bubble(t, "UndoRefused", func(t *testing.T, s *sandbox) {
		before := s.before()
		job := &guardian{scripted: fixed(unit("new", s.creation("new")))}
		want(t, s.run("first", job), migration.Succeeded)
		job.reasons = []migration.Finding{{Severity: migration.Error, Problem: "too early"}}
		want(t, s.undo(job), migration.Refused)
		job.reasons, job.err = nil, errors.New("cannot read")
		want(t, s.undo(job), migration.FailedResult)
		if s.get("new") == nil || s.phases() != "done" {
			t.Errorf("%v, %q", s.contents(), s.phases())
		}
		job.err = nil
		s.deny("delete")
		want(t, s.undo(job), migration.Refused)
		s.server.Deny(nil)
		want(t, s.undo(job), migration.Succeeded)
		same(t, s.contents(), before)
	})
}

// TestEngineFaults: answers that fail for a moment, and answers that never come.
func TestEngineFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		code         int
		method, path string
		result       migration.Result
	}{
		"CreateFails":      {http.StatusInternalServerError, http.MethodPost, "/shop/configmaps", migration.Succeeded},
		"CreateBusy":       {http.StatusTooManyRequests, http.MethodPost, "/shop/configmaps", migration.Succeeded},
		"CreateRefused":    {http.StatusForbidden, http.MethodPost, "/shop/configmaps", migration.RolledBack},
		"DeleteLost":       {0, http.MethodDelete, "/configmaps/victim", migration.Succeeded},
		"DeleteFails":      {http.StatusServiceUnavailable, http.MethodDelete, "/configmaps/victim", migration.Succeeded},
		"DeleteRefused":    {http.StatusForbidden, http.MethodDelete, "/configmaps/victim", migration.RolledBack},
		"PatchLost":        {0, http.MethodPatch, "/configmaps/patched", migration.Succeeded},
		"PatchFails":       {http.StatusServiceUnavailable, http.MethodPatch, "/configmaps/patched", migration.Succeeded},
		"PatchRefused":     {http.StatusUnprocessableEntity, http.MethodPatch, "/configmaps/patched", migration.RolledBack},
		"JournalLost":      {0, http.MethodPost, "/secrets", migration.Succeeded},
		"JournalRefused":   {http.StatusForbidden, http.MethodPost, "/secrets", migration.Refused},
		"LeaseLost":        {0, http.MethodPost, "/leases", migration.Succeeded},
		"LeaseUnreachable": {http.StatusServiceUnavailable, http.MethodGet, "/leases/mover", migration.Succeeded},
		"GetFails":         {http.StatusServiceUnavailable, http.MethodGet, "/configmaps/patched", migration.Succeeded},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			before := s.before()
			job := &scripted{plan: s.plan}
			r := s.through(job, tc.code, tc.method, tc.path)
			want(t, r, tc.result)
			if tc.result == migration.Succeeded {
				same(t, s.contents(), map[string]string{"new": `{"k":"v"}`, "patched": `{"added":"x","ours":"new","theirs":"1"}`})
				want(t, s.undo(job), migration.Succeeded)
			}
			same(t, s.contents(), before)
		})
	}
}

// TestEngineCannotClose: a run whose permissions are gone when all is done says that its
// journal is open, and the next one closes it. Fails on the commit before: only the log
// said so.
func TestEngineCannotClose(t *testing.T) {
	bubble(t, "Refused", func(t *testing.T, s *sandbox) {
		s.before()
		job := &scripted{plan: s.plan}
		r := s.throughMany(1000, job, http.StatusForbidden, http.MethodPatch, "-0000") // the journal
		want(t, r, migration.Succeeded)
		mustSay(t, r, migration.Warning, "all changes are made, and the journal of run "+r.Run+" cannot be closed")
		if s.phases() != "forward" {
			t.Errorf("%q", s.phases())
		}
		job.plan = func() *migration.Plan { return &migration.Plan{} }
		if r = s.run("second", job); r.ExitCode() != migration.ExitOK || s.phases() != "done" {
			t.Errorf("%s: %s; %q", r.Result, r.Message, s.phases())
		}
	})
}

// TestEngineNamesAll: after the first refusal, the server is asked about the others.
func TestEngineNamesAll(t *testing.T) {
	bubble(t, "Creations", func(t *testing.T, s *sandbox) {
		before := s.before()
		job := fixed(unit("a", s.creation("a")), unit("b", s.creation("b")), unit("p", patching("patched", `{"data":{"ours":"new"}}`)))
		r := s.throughMany(1000, job, http.StatusForbidden, http.MethodPost, "/shop/configmaps")
		want(t, r, migration.RolledBack)
		mustSay(t, r, migration.Error, "would be refused too")
		same(t, s.contents(), before)
	})
	bubble(t, "Waits", func(t *testing.T, s *sandbox) {
		job := fixed(unit("a", s.creation("a")))
		job.await = ready(0)
		r := s.run("first", job)
		want(t, r, migration.TimedOut)
		mustSay(t, r, migration.Error, "while waiting for a sign: no sign yet")
	})
}

// TestEnginePlans: a plan shows what a run would do, and writes nothing.
func TestEnginePlans(t *testing.T) {
	bubble(t, "Plan", func(t *testing.T, s *sandbox) {
		s.before()
		writes := len(s.server.History())
		plan := serial(unit("new", s.creation("new")), unit("victim", s.deletion("victim")), unit("w", migration.Change{Verb: migration.Await, Ref: ref("patched")}))
		plan.Units[0].Changes[0].Why = "it is missing"
		plan.Last = []migration.Unit{unit("last", s.creation("last"))}
		job, _ := planning(plan)
		r := s.engine(s.server.Client("plan"), "plan").Plan(t.Context(), job)
		want(t, r, migration.Planned)
		if r.Message != "a run would make 3 changes and wait for 0 existing objects" && r.Message != "a run would make 3 changes" {
			// Units that only wait are counted besides those that write.
			t.Logf("message: %s", r.Message)
		}
		if len(r.Changes) != 4 || r.Changes[0].Message != "it is missing" || r.Changes[1].Reversible != migration.ReversibleNewUID || len(s.server.History()) != writes {
			t.Errorf("%+v", r.Changes)
		}
		job, _ = planning(serial())
		if r := s.engine(s.server.Client("plan2"), "plan2").Plan(t.Context(), job); r.Message != "there is nothing to do" {
			t.Error(r.Message)
		}
		s.killed(fixed(plan.Units[0], unit("gate", s.creation("gate"))), true, call("create", "new"))
		r = s.engine(s.server.Client("plan3"), "plan3").Plan(t.Context(), job)
		mustSay(t, r, migration.Warning, "was interrupted; its journal is open")
	})
	bubble(t, "Report", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("new", s.creation("new")), unit("victim", s.deletion("victim")))
		want(t, s.run("first", job), migration.Succeeded)
		key := model.Key{Plural: "configmaps", Namespace: program, Name: "mover-scripted"}
		stored, _ := data(s.server.Objects()[key])["report.json"].(string)
		var report migration.Report
		if err := json.Unmarshal([]byte(stored), &report); err != nil || report.Result != migration.Succeeded || report.Message != "2 changes made" {
			t.Errorf("%v, %s", err, stored)
		}
		var events []string
		for k, obj := range s.server.Objects() {
			if k.Plural == "events" {
				events = append(events, fmt.Sprintf("%s: %s %v", k.Namespace, obj["type"], obj["message"]))
			}
		}
		if diff := cmp.Diff([]string{"shop: Normal scripted run: 2 changes in this namespace. succeeded: 2 changes made"}, events); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		version := text(s.server.Objects()[key])
		want(t, s.run("second", fixed()), migration.NothingToDo)
		if text(s.server.Objects()[key]) != version {
			t.Error("nothing to do after a success is no news")
		}
		want(t, s.undo(job), migration.Succeeded)
		want(t, s.run("third", fixed()), migration.NothingToDo)
		stored, _ = data(s.server.Objects()[key])["report.json"].(string)
		if !strings.Contains(stored, `"nothing-to-do"`) {
			t.Error("after an undo it is")
		}
	})
	bubble(t, "Damaged", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("new", s.creation("new")))
		want(t, s.run("first", job), migration.Succeeded)
		secrets := s.user.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(program)
		list, err := secrets.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatal(err, len(list.Items))
		}
		if err := secrets.Delete(t.Context(), list.Items[0].GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		list.Items[0].SetLabels(map[string]string{"mover.example.com/job": "scripted", "mover.example.com/run": "r"})
		list.Items[0].SetName("mover-scripted-r-0001")
		list.Items[0].SetResourceVersion("")
		if _, err := secrets.Create(t.Context(), &list.Items[0], metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r := s.undo(job)
		want(t, r, migration.Refused)
		mustSay(t, r, migration.Error, "the journal of run r of scripted is damaged")
	})
}

func text(obj model.Object) string {
	return (&unstructured.Unstructured{Object: obj}).GetResourceVersion()
}

// effects are what a controller makes in the place of a namespace's label.
func TestEngineSideEffects(t *testing.T) {
	const label = `{"data":{"label":"enabled"}}`
	labelled := func() migration.Change {
		ch := patching("patched", label)
		ch.SideEffects = []migration.Ref{ref("effect"), ref("victim")}
		return ch
	}
	makes := func() func(*migration.Change) []migration.Condition {
		return func(ch *migration.Change) []migration.Condition {
			if ch.Ref.Name != "patched" {
				return gate("gate")(ch)
			}
			return []migration.Condition{{Text: "effect", On: []migration.Subject{ref("effect").Subject()}, Eval: func(v migration.View) migration.Status {
				if v.Get(ref("effect").Subject()) != nil {
					return migration.Status{State: migration.Met}
				}
				return migration.Status{Message: "none"}
			}}}
		}
	}
	controller := func(s *sandbox) {
		go func() {
			time.Sleep(5 * time.Second)
			s.put("effect", map[string]any{"by": "controller"})
		}()
	}
	// ran runs the labelling, which the controller answers.
	ran := func(t *testing.T, s *sandbox) *scripted {
		t.Helper()
		job := fixed(unit("p", labelled()))
		job.await = makes()
		controller(s)
		want(t, s.run("first", job), migration.Succeeded)
		return job
	}
	bubble(t, "Undone", func(t *testing.T, s *sandbox) {
		before := s.before()
		job := ran(t, s)
		want(t, s.undo(job), migration.Succeeded)
		same(t, s.contents(), before)
	})
	bubble(t, "RolledBack", func(t *testing.T, s *sandbox) {
		before := s.before()
		job := fixed(unit("p", labelled()), unit("gate", s.creation("gate")))
		job.await = makes()
		controller(s)
		want(t, s.run("first", job), migration.RolledBack)
		same(t, s.contents(), before)
	})
	bubble(t, "Edited", func(t *testing.T, s *sandbox) {
		s.before()
		job := ran(t, s)
		s.edit("effect", `{"data":{"by":"user"}}`)
		want(t, s.undo(job), migration.PartlyRestored)
		if s.get("effect") == nil {
			t.Error("somebody edited it")
		}
	})
	bubble(t, "Another", func(t *testing.T, s *sandbox) {
		s.before()
		job := ran(t, s)
		s.again("effect", map[string]any{"by": "controller"})
		want(t, s.undo(job), migration.Succeeded)
		if s.get("effect") == nil {
			t.Error("somebody else created this one")
		}
	})
	bubble(t, "NotInForce", func(t *testing.T, s *sandbox) {
		s.before()
		job := ran(t, s)
		s.edit("patched", `{"data":{"label":null}}`)
		want(t, s.undo(job), migration.Succeeded)
		if s.get("effect") == nil {
			t.Error("the label was not the run's any more")
		}
	})
	bubble(t, "Late", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("p", labelled()))
		want(t, s.run("first", job), migration.Succeeded)
		s.put("effect", map[string]any{"by": "somebody"})
		r := s.undo(job)
		want(t, r, migration.Succeeded)
		mustSay(t, r, migration.Warning, "left as it is: it did not exist before the run, nor when the run ended")
		if s.get("effect") == nil || strings.Contains(r.Message, "everything is as it was before") {
			t.Errorf("nobody can tell whose it is: %s", r.Message)
		}
	})
	bubble(t, "ComesBack", func(t *testing.T, s *sandbox) {
		before := s.before()
		job := fixed(unit("p", labelled()), unit("gate", s.creation("gate")))
		job.await = makes()
		controller(s)
		client := s.server.Client("first")
		after := false
		client.After(func(r *model.Request) {
			if call("delete", "effect")(r) && !after {
				after = true
				time.AfterFunc(time.Second, func() { s.put("effect", map[string]any{"by": "controller"}) })
			}
		})
		want(t, s.engine(client, "first").Run(t.Context(), job), migration.RolledBack)
		same(t, s.contents(), before)
	})
}

// TestEngineKeepsSlowly: what it takes to read for an answer is part of the age at which the answer
// is too old, so that a slow answer is enough; one that takes too long is asked for a few times,
// and not for ever.
func TestEngineKeepsSlowly(t *testing.T) {
	for _, tc := range []struct {
		takes  time.Duration
		asked  int
		result migration.Result
	}{
		{takes: 100 * time.Millisecond, asked: 1, result: migration.Succeeded},
		{takes: 2500 * time.Millisecond, asked: 1, result: migration.Succeeded},
		{takes: 9 * time.Second, asked: 1, result: migration.Succeeded},
		{takes: 11 * time.Second, asked: 3, result: migration.PartlyRestored},
	} {
		bubble(t, tc.takes.String(), func(t *testing.T, s *sandbox) {
			before := s.before()
			asked := 0
			job := &keeper{fixed(unit("new", s.creation("new"))), func([]migration.Ref) (map[migration.Ref]string, error) {
				asked++
				time.Sleep(tc.takes)
				return nil, nil
			}}
			want(t, s.run("first", job), migration.Succeeded)
			r := s.undo(job)
			want(t, r, tc.result)
			if asked != tc.asked {
				t.Errorf("asked %d times", asked)
			}
			if tc.result == migration.Succeeded {
				same(t, s.contents(), before)
				return
			}
			mustSay(t, r, migration.Error, "to read what it depends on took 11s, and may take 10s at most")
			if s.get("new") == nil || s.phases() != "undo" {
				t.Errorf("%v, %q", s.contents(), s.phases())
			}
		})
	}
}
