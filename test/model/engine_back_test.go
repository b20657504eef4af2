package model_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// These tests hold single decisions of the engine on the model, in milliseconds. What
// test/integration/engine shows on the real API server is the proof; mutants of the engine meet
// these.

// bubble runs a test on a sandbox of its own, in a bubble.
func bubble(t *testing.T, name string, test func(t *testing.T, s *sandbox)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, newSandbox, test) })
}

func inBubble(t *testing.T, place func(*testing.T) *sandbox, test func(t *testing.T, s *sandbox)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, place(t)) })
}

// fixed is a job that plans these units in order, or those of now.
func fixed(units ...migration.Unit) *scripted {
	return &scripted{plan: func() *migration.Plan { return &migration.Plan{Serial: true, Units: units} }}
}

func unit(id string, changes ...migration.Change) migration.Unit {
	return migration.Unit{ID: id, Changes: changes}
}

func (s *sandbox) creation(name string) migration.Change {
	return migration.Change{Verb: migration.Create, Ref: ref(name), Object: s.object(name, map[string]any{"k": "v"})}
}

// live is an object as it is, nil if there is none.
func (s *sandbox) live(name string) *unstructured.Unstructured {
	obj := s.get(name)
	if obj == nil {
		return nil
	}
	return (&unstructured.Unstructured{Object: obj}).DeepCopy()
}

// deletion insists on the object as it is now.
func (s *sandbox) deletion(name string) migration.Change {
	live := s.live(name)
	return migration.Change{Verb: migration.Delete, Ref: ref(name), Object: live, UID: live.GetUID()}
}

func patching(name, patch string) migration.Change {
	return migration.Change{Verb: migration.Patch, Ref: ref(name), Patch: []byte(patch)}
}

func (s *sandbox) edit(name, patch string) {
	s.t.Helper()
	if _, err := s.maps().Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.t.Error(err)
	}
}

func (s *sandbox) remove(name string) {
	s.t.Helper()
	if err := s.maps().Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
	}
}

func (s *sandbox) again(name string, data map[string]any) {
	s.remove(name)
	s.put(name, data)
}

// gate fails a run when it has created one of these objects.
func gate(names ...string) func(*migration.Change) []migration.Condition {
	return func(ch *migration.Change) []migration.Condition {
		if ch.Verb != migration.Create || !slices.Contains(names, ch.Ref.Name) {
			return nil
		}
		return []migration.Condition{{
			Text: "the gate", On: []migration.Subject{ch.Ref.Subject()}, Timeout: time.Minute,
			Eval: func(migration.View) migration.Status {
				return migration.Status{State: migration.Failed, Message: "it is shut"}
			},
		}}
	}
}

// when does something once, before the first call that matches.
func when(c *model.Client, matches func(*model.Request) bool, do func()) {
	var once sync.Once
	c.Before(func(r *model.Request) {
		if matches(r) {
			once.Do(do)
		}
	})
}

func call(verb, name string) func(*model.Request) bool {
	return func(r *model.Request) bool {
		return r.Verb == verb && r.Name == name && r.Namespace == "shop" && !r.DryRun
	}
}

// meanwhile runs the job, and does something before the first call that matches.
func (s *sandbox) meanwhile(job migration.Job, matches func(*model.Request) bool, do func()) *migration.Report {
	client := s.server.Client("first")
	when(client, matches, do)
	return s.engine(client, "first").Run(s.t.Context(), job)
}

func (s *sandbox) undo(job migration.Job) *migration.Report {
	return s.engine(s.server.Client("undo"), "undo").Undo(s.t.Context(), job)
}

// killed runs the job until it is killed before or after the first call that matches.
func (s *sandbox) killed(job migration.Job, after bool, matches func(*model.Request) bool) {
	client := s.server.Client("first")
	ctx, stop := context.WithCancel(s.t.Context())
	kill := func(r *model.Request) {
		if matches(r) {
			client.Kill()
			stop()
		}
	}
	if after {
		client.After(kill)
	} else {
		client.Before(kill)
	}
	s.engine(client, "first").Run(ctx, job)
	if !client.Killed() {
		s.t.Fatal("it was not killed")
	}
}

// phases are those of the journals.
func (s *sandbox) phases() string {
	var all []string
	for key, obj := range s.server.Objects() {
		u := unstructured.Unstructured{Object: obj}
		if p := u.GetLabels()["mover.example.com/phase"]; key.Plural == "secrets" && p != "" {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// says are the findings that contain a text.
func says(r *migration.Report, text string) (all []migration.Finding) {
	for _, f := range r.Findings {
		if strings.Contains(f.String(), text) {
			all = append(all, f)
		}
	}
	return all
}

func mustSay(t *testing.T, r *migration.Report, severity migration.Severity, text string) {
	t.Helper()
	found := says(r, text)
	if len(found) != 1 || found[0].Severity != severity {
		t.Errorf("want one %s %q, got %+v", severity, text, r.Findings)
	}
}

func data(obj model.Object) map[string]any {
	d, _ := obj["data"].(map[string]any)
	return d
}

// TestEngineDeletes: a deletion is of the object that was decided on, and of no other.
func TestEngineDeletes(t *testing.T) {
	deletes := call("delete", "victim")
	bubble(t, "Edited", func(t *testing.T, s *sandbox) {
		s.before()
		r := s.meanwhile(fixed(unit("u", s.deletion("victim"))), deletes, func() { s.edit("victim", `{"data":{"a":"2"}}`) })
		want(t, r, migration.DeferredResult)
		mustSay(t, r, migration.Deferred, "was edited after the plan was made")
		if s.get("victim") == nil {
			t.Error("it was deleted")
		}
	})
	bubble(t, "Touched", func(t *testing.T, s *sandbox) {
		s.before()
		want(t, s.meanwhile(fixed(unit("u", s.deletion("victim"))), deletes, func() { s.edit("victim", `{"status":{"seen":true}}`) }), migration.Succeeded)
		if s.get("victim") != nil {
			t.Error("a status is no edit")
		}
	})
	bubble(t, "Another", func(t *testing.T, s *sandbox) { // M25
		s.before()
		job := fixed(unit("u", s.deletion("victim")), unit("gate", s.creation("gate")))
		r := s.meanwhile(job, deletes, func() { s.again("victim", map[string]any{"a": "1"}) })
		want(t, r, migration.Succeeded)
		if s.get("victim") == nil || r.Changes[0].Result != migration.ChangeUnchanged {
			t.Errorf("what came later was deleted: %+v", r.Changes)
		}
		want(t, s.undo(job), migration.Succeeded)
	})
	bubble(t, "Gone", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("u", s.deletion("victim")))
		want(t, s.meanwhile(job, deletes, func() { s.remove("victim") }), migration.Succeeded)
		want(t, s.undo(job), migration.Succeeded)
		if s.get("victim") != nil {
			t.Error("undo restores what somebody else had deleted")
		}
	})
	bubble(t, "BeingDeleted", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("u", s.deletion("victim")), unit("gate", s.creation("gate")))
		job.await = gate("gate")
		r := s.meanwhile(job, deletes, func() {
			s.edit("victim", `{"metadata":{"finalizers":["x.test/hold"]}}`)
			s.remove("victim")
			time.AfterFunc(time.Second, func() { s.edit("victim", `{"metadata":{"finalizers":null}}`) })
		})
		want(t, r, migration.RolledBack)
		if s.get("victim") != nil {
			t.Error("the rollback restores what somebody else had deleted")
		}
	})
}

// TestEngineCreates: what exists already was made by this run, or fails it.
func TestEngineCreates(t *testing.T) {
	bubble(t, "Exists", func(t *testing.T, s *sandbox) {
		before := s.before()
		r := s.meanwhile(fixed(unit("p", patching("patched", `{"data":{"ours":"new"}}`)), unit("u", s.creation("new"))), call("create", "new"), func() { s.put("new", map[string]any{"k": "v"}) })
		want(t, r, migration.RolledBack)
		before["new"] = `{"k":"v"}`
		same(t, s.contents(), before)
		mustSay(t, r, migration.Error, "exists already and was not made by this run")
	})
	bubble(t, "ExistsAndGoes", func(t *testing.T, s *sandbox) {
		r := s.meanwhile(fixed(unit("u", s.creation("new"))), call("create", "new"), func() {
			s.put("new", nil)
			s.edit("new", `{"metadata":{"finalizers":["x.test/hold"]}}`)
			s.remove("new")
		})
		want(t, r, migration.RolledBack)
		mustSay(t, r, migration.Error, "exists already and is being deleted")
	})
	bubble(t, "AnswerLost", func(t *testing.T, s *sandbox) {
		job := fixed(unit("u", s.creation("new")))
		want(t, s.through(job, 0, http.MethodPost, "/configmaps"), migration.Succeeded)
		if s.get("new") == nil {
			t.Error("it was not created")
		}
		want(t, s.undo(job), migration.Succeeded)
		if s.get("new") != nil {
			t.Error("undo leaves it")
		}
	})
}

// through runs the job behind a transport on which the first request for a path ending so is
// answered with that code, without effect; 0: it takes effect, and its answer is lost.
func (s *sandbox) through(job migration.Job, code int, method, path string) *migration.Report {
	s.t.Helper()
	return s.throughMany(1, job, code, method, path)
}

// throughMany is through for the first so many requests.
func (s *sandbox) throughMany(n int32, job migration.Job, code int, method, path string) *migration.Report {
	s.t.Helper()
	return s.behind(n, code, method, path).Run(s.t.Context(), job)
}

// undoThrough is through for an undo.
func (s *sandbox) undoThrough(job migration.Job, code int, method, path string) *migration.Report {
	s.t.Helper()
	return s.behind(1, code, method, path).Undo(s.t.Context(), job)
}

// behind is the engine behind such a transport.
func (s *sandbox) behind(n int32, code int, method, path string) *engine.Engine {
	s.t.Helper()
	cfg := s.server.Client("first").Config()
	var faults atomic.Int32
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (resp *http.Response, err error) {
			fault := r.Method == method && strings.HasSuffix(r.URL.Path, path) && faults.Add(1) <= n
			if fault && code > 0 {
				return &http.Response{
					StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
					Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"on purpose"}`, code))),
				}, nil
			}
			resp, err = next.RoundTrip(r)
			if fault && err == nil {
				_ = resp.Body.Close()
				return nil, io.ErrUnexpectedEOF
			}
			return resp, err
		})
	})
	e, err := engine.New(cfg, engine.Options{Names: names, Identity: "first", LeaseDuration: 15 * time.Second, Timeout: 5 * time.Minute})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestEngineCreatesOnce: what an interrupted run had created and somebody deletes while the
// next run goes on with it is not created again. Fails on the commit before.
func TestEngineCreatesOnce(t *testing.T) {
	bubble(t, "Deleted", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("move", s.creation("new"), s.deletion("victim")))
		s.killed(job, true, call("delete", "victim"))
		reads := 0
		r := s.meanwhile(job, func(r *model.Request) bool {
			if call("get", "new")(r) {
				reads++
			}
			return reads == 2 // the first one finds it
		}, func() { s.remove("new") })
		want(t, r, migration.RolledBack)
		mustSay(t, r, migration.Error, "was deleted by somebody else since an interrupted run had created it")
		if s.get("new") != nil || s.get("victim") == nil {
			t.Errorf("%v", s.contents())
		}
	})
}

// TestEngineNamesWhatARollbackWaitsFor: a rollback that does not end says of which object,
// and what to do. Fails on the commit before: it named neither.
func TestEngineNamesWhatARollbackWaitsFor(t *testing.T) {
	bubble(t, "Finalizer", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("move", s.deletion("victim")))
		want(t, s.run("first", job), migration.Succeeded)
		s.put("victim", map[string]any{"k": "other"})
		s.edit("victim", `{"metadata":{"finalizers":["example.com/audit"]}}`)
		s.remove("victim")
		r := s.undo(job)
		want(t, r, migration.PartlyRestored)
		mustSay(t, r, migration.Error, `(--rollback-timeout) while waiting for its deletion to end: it still has the finalizers ["example.com/audit"]`)
		for _, f := range r.Findings {
			if !strings.Contains(f.Problem, "ConfigMap shop/victim") || !strings.Contains(f.Hint, "kubectl -n shop patch configmaps victim") {
				t.Errorf("%s", f)
			}
		}
	})
}

// TestEnginePatches: a patch is made on what was decided on.
func TestEnginePatches(t *testing.T) {
	patches := call("patch", "patched")
	const ours = `{"data":{"ours":"new","added":"x"}}`
	decided := func(s *sandbox) migration.Change {
		ch := patching("patched", ours)
		ch.Object = s.live("patched")
		ch.UID = ch.Object.GetUID()
		return ch
	}
	for name, tc := range map[string]struct {
		reason  string
		decided bool
		do      func(s *sandbox)
		result  migration.Result
		says    string
		want    map[string]any
	}{
		"OtherField":    {"an edit of another field", true, func(s *sandbox) { s.edit("patched", `{"data":{"theirs":"2"}}`) }, migration.Succeeded, "", map[string]any{"ours": "new", "added": "x", "theirs": "2"}},
		"SameField":     {"an edit of the field", true, func(s *sandbox) { s.edit("patched", `{"data":{"ours":"edited"}}`) }, migration.DeferredResult, "was edited after the plan was made", map[string]any{"ours": "edited", "theirs": "1"}},
		"NoBasis":       {"an edit of another field, and nothing says what it was decided on", false, func(s *sandbox) { s.edit("patched", `{"data":{"theirs":"2"}}`) }, migration.Succeeded, "", map[string]any{"ours": "new", "added": "x", "theirs": "2"}},
		"NoBasisEdited": {"an edit of the field", false, func(s *sandbox) { s.edit("patched", `{"data":{"ours":"edited"}}`) }, migration.DeferredResult, "was edited after its pre-image was read", map[string]any{"ours": "edited", "theirs": "1"}},
		"Done":          {"somebody makes the same change", true, func(s *sandbox) { s.edit("patched", ours) }, migration.Succeeded, "", map[string]any{"ours": "new", "added": "x", "theirs": "1"}},
		"Another":       {"another object of the name", true, func(s *sandbox) { s.again("patched", map[string]any{"ours": "old"}) }, migration.DeferredResult, "is another object than when the plan was made", map[string]any{"ours": "old"}},
		"Gone":          {"it is deleted", true, func(s *sandbox) { s.remove("patched") }, migration.RolledBack, "not found", nil},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.before()
			ch := patching("patched", ours)
			if tc.decided {
				ch = decided(s)
			}
			job := fixed(unit("p", ch))
			r := s.meanwhile(job, patches, func() { tc.do(s) })
			want(t, r, tc.result)
			if tc.says != "" && len(says(r, tc.says)) != 1 {
				t.Errorf("%s: findings %+v", tc.reason, r.Findings)
			}
			if diff := cmp.Diff(tc.want, data(s.get("patched"))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if name == "Done" {
				want(t, s.undo(job), migration.Succeeded)
				if data(s.get("patched"))["ours"] != "new" {
					t.Error("what somebody else had done is undone")
				}
			}
		})
	}
	for name, tc := range map[string]struct {
		reason string
		do     func(s *sandbox)
		says   string
	}{
		"PlannedFieldEdited": {"edited between plan and journal", func(s *sandbox) { s.edit("patched", `{"data":{"ours":"edited"}}`) }, "was edited after the plan was made"},
		"PlannedAnother":     {"another object between plan and journal", func(s *sandbox) { s.again("patched", map[string]any{"ours": "old"}) }, "is another object than when the plan was made"},
		"PlannedGone":        {"deleted between plan and journal", func(s *sandbox) { s.remove("patched") }, "does not exist any more"},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.before()
			job := fixed(unit("p", decided(s)), unit("q", s.creation("new")))
			tc.do(s)
			r := s.run("first", job)
			want(t, r, migration.DeferredResult)
			mustSay(t, r, migration.Deferred, tc.says)
			if s.get("new") == nil {
				t.Errorf("%s: the other unit is none of that", tc.reason)
			}
		})
	}
	bubble(t, "Lists", func(t *testing.T, s *sandbox) {
		s.before()
		s.edit("patched", `{"metadata":{"finalizers":["a.test/ours","a.test/kept"]}}`)
		live := s.live("patched")
		job := fixed(unit("p", migration.Change{Verb: migration.Patch, Ref: ref("patched"), UID: live.GetUID(), Object: live, Lists: migration.RemoveFinalizer("a.test/ours")}))
		r := s.meanwhile(job, patches, func() {
			s.edit("patched", `{"metadata":{"finalizers":["a.test/ours","a.test/kept","b.test/theirs"]}}`)
		})
		want(t, r, migration.Succeeded)
		if diff := cmp.Diff([]string{"a.test/kept", "b.test/theirs"}, s.live("patched").GetFinalizers()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		want(t, s.undo(job), migration.Succeeded)
		if diff := cmp.Diff([]string{"a.test/kept", "b.test/theirs", "a.test/ours"}, s.live("patched").GetFinalizers()); diff != "" {
			t.Errorf("undone (-want +got):\n%s", diff)
		}
	})
	// It failed, and rolled back all that had been deleted, when an attempt to remove the last
	// finalizer had taken effect and its answer was lost, or when the finalizer's own controller
	// was faster.
	bubble(t, "Terminating", func(t *testing.T, s *sandbox) {
		s.before()
		s.edit("patched", `{"metadata":{"finalizers":["a.test/ours"]}}`)
		s.remove("patched")
		live := s.live("patched")
		job := fixed(unit("p", migration.Change{Verb: migration.Patch, Ref: ref("patched"), UID: live.GetUID(), Object: live, Lists: migration.RemoveFinalizer("a.test/ours")}))
		r := s.meanwhile(job, patches, func() { s.edit("patched", `{"metadata":{"finalizers":null}}`) })
		want(t, r, migration.Succeeded)
		if s.get("patched") != nil {
			t.Error("it is there")
		}
	})
}

// TestEngineUndoes: what was edited since stays, as a whole; what others deleted or made is
// none of the run's.
func TestEngineUndoes(t *testing.T) {
	const ours = `{"data":{"ours":"new","added":"x"}}`
	for name, tc := range map[string]struct {
		reason string
		do     func(s *sandbox)
		result migration.Result
		says   string
		want   map[string]string
		phase  string
	}{
		"Nothing":       {"nobody did anything", func(*sandbox) {}, migration.Succeeded, "", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}, "undone"},
		"FieldEdited":   {"M12, M19: its fields are left alone, and may be undone later", func(s *sandbox) { s.edit("patched", `{"data":{"ours":"edited"}}`) }, migration.PartlyRestored, "was edited after the run; its fields are left alone", map[string]string{"patched": `{"added":"x","ours":"edited","theirs":"1"}`, "victim": `{"a":"1"}`}, "done"},
		"OtherField":    {"an edit of another field", func(s *sandbox) { s.edit("patched", `{"data":{"theirs":"2"}}`) }, migration.Succeeded, "", map[string]string{"patched": `{"ours":"old","theirs":"2"}`, "victim": `{"a":"1"}`}, "undone"},
		"FieldRestored": {"somebody undid the patch", func(s *sandbox) { s.edit("patched", `{"data":{"ours":"old","added":null}}`) }, migration.Succeeded, "", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}, "undone"},
		"PatchedAgain":  {"M22b: somebody deleted and created the patched object", func(s *sandbox) { s.again("patched", map[string]any{"ours": "new", "added": "x"}) }, migration.PartlyRestored, "was created again by somebody else; it is left alone", map[string]string{"patched": `{"added":"x","ours":"new"}`, "victim": `{"a":"1"}`}, "done"},
		"PatchedGone":   {"somebody deleted the patched object: nothing is left to undo (fails on the commit before: exit code 3, for ever)", func(s *sandbox) { s.remove("patched") }, migration.Succeeded, "was deleted by somebody else, so that there is nothing to undo on it", map[string]string{"victim": `{"a":"1"}`}, "undone"},
		"PatchedGoing": {"somebody is deleting it", func(s *sandbox) {
			s.edit("patched", `{"metadata":{"finalizers":["x.test/hold"]}}`)
			s.remove("patched")
		}, migration.PartlyRestored, "is being deleted by somebody else", map[string]string{"patched": `{"added":"x","ours":"new","theirs":"1"}`, "victim": `{"a":"1"}`}, "done"},
		"MadeEdited":    {"the created object was edited", func(s *sandbox) { s.edit("new", `{"data":{"k":"mine"}}`) }, migration.PartlyRestored, "was edited after the run; it is left alone", map[string]string{"new": `{"k":"mine"}`, "patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}, "done"},
		"MadeGone":      {"the created object is gone", func(s *sandbox) { s.remove("new") }, migration.Succeeded, "", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}, "undone"},
		"MadeAgain":     {"somebody deleted and created it", func(s *sandbox) { s.again("new", map[string]any{"k": "v"}) }, migration.Succeeded, "", map[string]string{"new": `{"k":"v"}`, "patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}, "undone"},
		"RestoredSame":  {"somebody restored the deleted object", func(s *sandbox) { s.put("victim", map[string]any{"a": "1"}) }, migration.Succeeded, "", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}, "undone"},
		"RestoredOther": {"somebody created another one", func(s *sandbox) { s.put("victim", map[string]any{"a": "2"}) }, migration.PartlyRestored, "was created again by somebody else, differently", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"2"}`}, "done"},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.before()
			job := fixed(unit("new", s.creation("new")), unit("victim", s.deletion("victim")), unit("patched", patching("patched", ours)))
			want(t, s.run("first", job), migration.Succeeded)
			tc.do(s)
			r := s.undo(job)
			want(t, r, tc.result)
			same(t, s.contents(), tc.want)
			if tc.says != "" && len(says(r, tc.says)) != 1 || tc.says == "" && len(r.Findings) > 0 {
				t.Errorf("%s: findings %+v", tc.reason, r.Findings)
			}
			if s.phases() != tc.phase {
				t.Errorf("%s: the journal is %q, want %q", tc.reason, s.phases(), tc.phase)
			}
		})
	}
	bubble(t, "Twice", func(t *testing.T, s *sandbox) {
		before := s.before()
		job := fixed(unit("patched", patching("patched", ours)))
		want(t, s.run("first", job), migration.Succeeded)
		s.edit("patched", `{"data":{"ours":"edited"}}`)
		want(t, s.undo(job), migration.PartlyRestored)
		s.edit("patched", `{"data":{"ours":"new"}}`)
		want(t, s.undo(job), migration.Succeeded)
		same(t, s.contents(), before)
		want(t, s.undo(job), migration.NothingToDo)
	})
	bubble(t, "NamespaceGone", func(t *testing.T, s *sandbox) {
		s.before()
		job := fixed(unit("victim", s.deletion("victim")))
		want(t, s.run("first", job), migration.Succeeded)
		if err := s.user.Resource(namespaces).Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r := s.undo(job)
		want(t, r, migration.PartlyRestored)
		mustSay(t, r, migration.Error, "its namespace does not exist any more")
		if s.phases() != "undone" {
			t.Errorf("nothing can be undone later, and the journal is %q", s.phases())
		}
	})
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// TestEngineRollsBack: what this run did is undone, and what others did meanwhile stays.
func TestEngineRollsBack(t *testing.T) {
	const ours = `{"data":{"ours":"new","added":"x"}}`
	for name, tc := range map[string]struct {
		reason string
		do     func(s *sandbox)
		result migration.Result
		says   string
		want   map[string]string
	}{
		"Nothing":      {"nobody did anything", func(*sandbox) {}, migration.RolledBack, "", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}},
		"FieldEdited":  {"an edited field stays, the others are undone", func(s *sandbox) { s.edit("patched", `{"data":{"ours":"edited"}}`) }, migration.RolledBack, "1 field edited by somebody else in the meantime", map[string]string{"patched": `{"ours":"edited","theirs":"1"}`, "victim": `{"a":"1"}`}},
		"PatchedGone":  {"the patched object was deleted (fails on the commit before: exit code 3)", func(s *sandbox) { s.remove("patched") }, migration.RolledBack, "nothing to undo on it", map[string]string{"victim": `{"a":"1"}`}},
		"PatchedAgain": {"and created again", func(s *sandbox) { s.again("patched", map[string]any{"ours": "new"}) }, migration.PartlyRestored, "was created again by somebody else; it is left alone", map[string]string{"patched": `{"ours":"new"}`, "victim": `{"a":"1"}`}},
		"MadeEdited":   {"what this run created goes, edited or not", func(s *sandbox) { s.edit("new", `{"data":{"k":"mine"}}`) }, migration.RolledBack, "although somebody edited it after this run had created it", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}},
		"MadeAgain":    {"what somebody else created stays", func(s *sandbox) { s.again("new", map[string]any{"k": "v"}) }, migration.RolledBack, "", map[string]string{"new": `{"k":"v"}`, "patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}},
		"NotBegun":     {"A4: what the run had not begun with is others' doing", func(s *sandbox) { s.remove("later") }, migration.RolledBack, "", map[string]string{"patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`}},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			s.before()
			units := []migration.Unit{
				unit("new", s.creation("new")), unit("victim", s.deletion("victim")), unit("patched", patching("patched", ours)), unit("gate", s.creation("gate")),
			}
			if name == "NotBegun" {
				s.put("later", map[string]any{"a": "1"})
				units = append(units, unit("later", s.deletion("later")))
			}
			job := fixed(units...)
			job.await = gate("gate")
			r := s.meanwhile(job, call("create", "gate"), func() { tc.do(s) })
			want(t, r, tc.result)
			same(t, s.contents(), tc.want)
			if tc.says != "" && len(says(r, tc.says)) != 1 || tc.says == "" && len(r.Findings) != 1 {
				t.Errorf("%s: findings %+v", tc.reason, r.Findings)
			}
		})
	}
	bubble(t, "OwnerIsAnother", func(t *testing.T, s *sandbox) { // M21
		s.put("owner", nil)
		s.put("owned", map[string]any{"k": "v"})
		s.edit("owned", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, s.live("owner").GetUID()))
		job := fixed(unit("owned", s.deletion("owned")), unit("gate", s.creation("gate")))
		job.await = gate("gate")
		r := s.meanwhile(job, call("create", "gate"), func() { s.again("owner", nil) })
		want(t, r, migration.RolledBack)
		if owned := s.live("owned"); owned == nil || len(owned.GetOwnerReferences()) != 0 {
			t.Errorf("it must be restored without the reference: %+v", owned)
		}
		mustSay(t, r, migration.Warning, "restored without its owner ConfigMap owner, which is gone")
	})
	bubble(t, "OwnerIsRestored", func(t *testing.T, s *sandbox) {
		s.put("owner", nil)
		s.put("owned", map[string]any{"k": "v"})
		s.edit("owned", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, s.live("owner").GetUID()))
		job := fixed(unit("owned", s.deletion("owned")), unit("owner", s.deletion("owner")), unit("gate", s.creation("gate")))
		job.await = gate("gate")
		want(t, s.run("first", job), migration.RolledBack)
		owner, owned := s.live("owner"), s.live("owned")
		if owner == nil || owned == nil || len(owned.GetOwnerReferences()) != 1 || owned.GetOwnerReferences()[0].UID != owner.GetUID() {
			t.Errorf("its reference must lead to the owner that was restored: %+v", owned)
		}
	})
	bubble(t, "Committed", func(t *testing.T, s *sandbox) {
		s.before()
		stays := unit("stays", s.creation("new"))
		stays.Commit = true
		job := fixed(stays, unit("victim", s.deletion("victim")), unit("gate", s.creation("gate")))
		job.await = gate("gate")
		r := s.run("first", job)
		want(t, r, migration.RolledBack)
		same(t, s.contents(), map[string]string{"new": `{"k":"v"}`, "patched": `{"ours":"old","theirs":"1"}`, "victim": `{"a":"1"}`})
		if r.Changes[0].Result != migration.ChangeProtected {
			t.Errorf("a finished unit that commits stays: %+v", r.Changes[0])
		}
	})
	bubble(t, "Irreversible", func(t *testing.T, s *sandbox) {
		s.before()
		ch := s.deletion("victim")
		ch.Irreversible = true
		job := fixed(unit("victim", ch), unit("gate", s.creation("gate")))
		job.await = gate("gate")
		r := s.run("first", job)
		want(t, r, migration.PartlyRestored)
		mustSay(t, r, migration.Error, "was changed irreversibly")
		if s.get("victim") != nil || s.phases() != "rolled-back" {
			t.Errorf("it cannot be restored, and the journal is closed: %q", s.phases())
		}
	})
}
