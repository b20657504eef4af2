package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// life is that of one process that writes: once it has ended, none of its requests
// reaches the API server any more, those of a rollback, of the journal and of its Lease
// included.
type life struct {
	*engine.Engine
	ctx    context.Context
	cancel context.CancelCauseFunc
	dead   atomic.Bool
	// at says of a request whether the process is killed before it, or after it and
	// before its answer; nil: never.
	at func(r *http.Request) moment
}

type moment int

const (
	lives moment = iota
	diesBefore
	diesAfter
)

var errKilled = errors.New("killed")

func (l *life) kill() {
	l.dead.Store(true)
	l.cancel(errKilled)
}

// roundTripper is a function that answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a refusal of the API server. A 403 is tried once.
func answer(r *http.Request, code int, text string) *http.Response {
	reasons := map[int]metav1.StatusReason{
		http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	}
	status, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reasons[code], Code: int32(code), Message: text,
	})
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: r.Proto, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader(status)), Request: r,
	}
}

// process is an engine that can be killed.
func (s *sandbox) process(change func(*engine.Options), at func(*http.Request) moment) *life {
	s.t.Helper()
	l := &life{at: at}
	l.ctx, l.cancel = context.WithCancelCause(s.t.Context())
	s.t.Cleanup(func() { l.cancel(nil) })
	l.Engine = s.engineThrough(change, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			dies := lives
			if l.at != nil && !l.dead.Load() {
				dies = l.at(r)
			}
			if dies == diesBefore {
				l.kill()
			}
			if l.dead.Load() {
				return answer(r, http.StatusForbidden, errKilled.Error()), nil
			}
			response, err := next.RoundTrip(r)
			if dies == diesAfter {
				l.kill()
				if err == nil {
					_ = response.Body.Close()
				}
				return answer(r, http.StatusForbidden, errKilled.Error()), nil
			}
			return response, err
		})
	})
	return l
}

// engineThrough is an engine whose requests go through wrap.
func (s *sandbox) engineThrough(change func(*engine.Options), wrap func(http.RoundTripper) http.RoundTripper) *engine.Engine {
	s.t.Helper()
	cfg := rest.CopyConfig(cluster.Config())
	cfg.Wrap(wrap)
	o := s.options(change)
	e, err := engine.New(cfg, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// killedAt runs a job in a process that is killed at a request.
func (s *sandbox) killedAt(job migration.Job, at func(*http.Request) moment) {
	s.t.Helper()
	l := s.process(nil, at)
	r := l.Run(l.ctx, job)
	if !l.dead.Load() {
		s.t.Fatalf("it was never killed: %+v", r)
	}
}

// killedAtDelete runs a job in a process that is killed when it deletes the ConfigMap of that name.
func (s *sandbox) killedAtDelete(job migration.Job, name string, dies moment) {
	s.t.Helper()
	s.killedAt(job, func(r *http.Request) moment {
		if s.request(r, http.MethodDelete, name) {
			return dies
		}
		return lives
	})
}

// signs waits for the ConfigMap of that name, and then gives the sign that the job waits for.
func (s *sandbox) signs(name string) {
	s.appears(name)
	s.sign(name)
}

// killedWhile runs a job in a process that is killed once waits returns.
func (s *sandbox) killedWhile(job migration.Job, waits func()) {
	s.t.Helper()
	l := s.process(nil, nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(l.ctx, job)
	}()
	waits()
	l.kill()
	<-ended
}

// request says whether a request is the method on the ConfigMap of that name; of a
// creation on any.
func (s *sandbox) request(r *http.Request, method, name string) bool {
	path := "/api/v1/namespaces/" + s.namespace + "/configmaps"
	if method != http.MethodPost {
		path += "/" + name
	}
	return r.Method == method && r.URL.Path == path
}

func (s *sandbox) edit(name, patch string) {
	s.t.Helper()
	if _, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.t.Error(err)
	}
}

func (s *sandbox) remove(name string) {
	s.t.Helper()
	if err := s.client.CoreV1().ConfigMaps(s.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Error(err)
	}
}

func (s *sandbox) labelling(name, label string, effects ...migration.Ref) migration.Unit {
	return migration.Unit{ID: name, Changes: []migration.Change{{
		Verb: migration.Patch, Ref: s.ref(name), Patch: fmt.Appendf(nil, `{"metadata":{"labels":{%q:"ours"}}}`, label), SideEffects: effects,
	}}}
}

// says returns the findings that hold the words.
func says(r *migration.Report, words string) []migration.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f migration.Finding) bool { return !strings.Contains(f.Problem, words) })
}

// awaiting lets only the objects of these names wait for their sign; one that is signed
// "bad" has failed.
func awaiting(names ...string) func(*migration.Change) []migration.Condition {
	return func(ch *migration.Change) []migration.Condition {
		if !slices.Contains(names, ch.Ref.Name) {
			return nil
		}
		return []migration.Condition{{
			Text: "a sign", On: []migration.Subject{ch.Ref.Subject()},
			Eval: func(v migration.View) migration.Status {
				switch obj := v.Get(ch.Ref.Subject()); {
				case obj == nil || obj.GetLabels()["sign"] == "":
					return migration.Status{Message: "no sign yet"}
				case obj.GetLabels()["sign"] == "bad":
					return migration.Status{State: migration.Failed, Message: "it went wrong"}
				}
				return migration.Status{State: migration.Met}
			},
		}}
	}
}

const signBad = `{"metadata":{"labels":{"sign":"bad"}}}`

// TestEngineStalePlan: of a unit of which nothing was begun, the plan of now decides.
// Fails on the commit before: the journal's object was created, as it was planned before
// the kill.
func TestEngineStalePlan(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	address := "old"
	job := fixed("stale", func() *migration.Plan {
		p := &migration.Plan{Serial: true}
		if s.get("gate") == nil {
			p.Units = append(p.Units, s.creation("gate"))
		}
		p.Units = append(p.Units, migration.Unit{ID: "a", Changes: []migration.Change{{Verb: migration.Create, Ref: s.ref("a"), Object: s.object("a", map[string]any{"address": address})}}})
		return p
	})
	job.await = awaiting("gate")
	s.killedWhile(job, func() { s.appears("gate") })
	address = "new"
	s.sign("gate")
	want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
	if got := s.get("a").Data["address"]; got != "new" {
		t.Errorf("a was created as it was planned before the kill: %s", got)
	}
	if got := s.phases(); got != "done" {
		t.Errorf("journal phases: %s", got)
	}
	// One undo takes all of both. The sign is an edit like any other.
	s.edit("gate", `{"metadata":{"labels":{"sign":null}}}`)
	want(t, s.engine(nil).Undo(t.Context(), job), migration.Succeeded, 0)
	if s.get("gate") != nil || s.get("a") != nil {
		t.Error("undo left something")
	}
}

// TestEngineLeavesWhatOthersDid: a rollback does not undo what others did to objects that
// the run never touched. Fails on the commit before: it looked at the cluster alone.
func TestEngineLeavesWhatOthersDid(t *testing.T) {
	t.Parallel()
	t.Run("InTheSameProcess", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		for _, name := range []string{"victim", "label", "space"} {
			s.put(name, nil)
		}
		job := fixed("others", func() *migration.Plan {
			return &migration.Plan{Serial: true, Units: []migration.Unit{
				s.creation("gate"), s.deletion("victim"), s.labelling("label", "l"), s.labelling("space", "l", s.ref("made")),
			}}
		})
		job.await = awaiting("gate")
		go func() {
			s.appears("gate")
			s.remove("victim")
			s.edit("label", `{"metadata":{"labels":{"l":"ours"}}}`)
			s.put("made", nil)
			s.edit("gate", signBad)
		}()
		r := s.engine(nil).Run(t.Context(), job)
		want(t, r, migration.RolledBack, 1)
		if s.get("victim") != nil {
			t.Error("its owner deleted it, and the rollback created it again")
		}
		if s.get("label").Labels["l"] != "ours" {
			t.Error("somebody set the label, and the rollback removed it")
		}
		if s.get("made") == nil {
			t.Error("the rollback deleted the side effect of a patch that was never made")
		}
		for _, ch := range r.Changes {
			if ch.Name != "gate" && ch.Result != migration.ChangeNotStarted {
				t.Errorf("%s %s: %s", ch.Verb, ch.Name, ch.Result)
			}
		}
	})
	t.Run("AfterAKill", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		name := func(i int) string { return fmt.Sprintf("v-%02d", i) }
		for i := range 60 {
			s.put(name(i), map[string]string{"k": "v"})
		}
		job := fixed("killed", func() *migration.Plan {
			p := &migration.Plan{Serial: true, Units: []migration.Unit{s.creation("gate")}}
			for i := range 60 {
				p.Units = append(p.Units, s.deletion(name(i)))
			}
			return p
		})
		job.await = awaiting("gate")
		s.killedWhile(job, func() { s.appears("gate") })
		// 49 more units may have begun with the gate, as far as the journal knows.
		for _, i := range []int{10, 55} {
			s.remove(name(i))
		}
		r := s.engine(func(o *engine.Options) { o.Resume = engine.ResumeBack }).Run(t.Context(), job)
		want(t, r, migration.RolledBack, 1)
		if s.get(name(55)) != nil {
			t.Error("above the watermark, nothing was begun: its owner deleted it")
		}
		if s.get(name(10)) == nil {
			t.Error("below it, nobody can tell: it must be restored")
		}
		told := says(r, "no proof")
		if len(told) != 1 || !strings.HasSuffix(told[0].Object, name(10)) || told[0].Hint == "" {
			t.Errorf("findings: %+v", r.Findings)
		}
		if s.get("gate") != nil {
			t.Error("gate is left")
		}
	})
}

// TestEngineSideEffectsOfOthers: an undo deletes only what a controller made because of
// the run. Fails on the commit before: it deleted whatever had the name.
func TestEngineSideEffectsOfOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		later  func(s *sandbox)
		result migration.Result
		exit   int
		stays  bool
	}{
		"Untouched": {"what the controller made goes", func(*sandbox) {}, migration.Succeeded, 0, false},
		"Weeks": {"the user removed the label and made one of his own", func(s *sandbox) {
			s.edit("space", `{"metadata":{"labels":{"inject":null}}}`)
			s.remove("made")
			s.put("made", map[string]string{"mine": "1"})
		}, migration.Succeeded, 0, true},
		"OtherUID": {"the label is there still, but the object is the user's", func(s *sandbox) {
			s.remove("made")
			s.put("made", map[string]string{"mine": "1"})
		}, migration.Succeeded, 0, true},
		"Edited": {"the user edited it", func(s *sandbox) { s.edit("made", `{"data":{"mine":"1"}}`) }, migration.PartlyRestored, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			s.put("space", nil)
			job := fixed("effects", func() *migration.Plan {
				return &migration.Plan{Units: []migration.Unit{s.labelling("space", "inject", s.ref("made"))}}
			})
			job.await = func(*migration.Change) []migration.Condition {
				return []migration.Condition{{
					Text: "what is made", On: []migration.Subject{s.ref("made").Subject()},
					Eval: func(v migration.View) migration.Status {
						if v.Get(s.ref("made").Subject()) == nil {
							return migration.Status{Message: "nothing is made yet"}
						}
						return migration.Status{State: migration.Met}
					},
				}}
			}
			w, err := s.client.CoreV1().ConfigMaps(s.namespace).Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			go func() {
				for event := range w.ResultChan() {
					if cm, ok := event.Object.(*corev1.ConfigMap); ok && cm.Name == "space" && cm.Labels["inject"] != "" {
						s.put("made", nil)
						return
					}
				}
			}()
			want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
			tc.later(s)
			want(t, s.engine(nil).Undo(t.Context(), job), tc.result, tc.exit)
			if s.get("space").Labels["inject"] != "" {
				t.Error("the label is left")
			}
			if got := s.get("made") != nil; got != tc.stays {
				t.Errorf("%s: it exists: %t", tc.reason, got)
			}
		})
	}
}

// TestEngineEditBeforeResume: an object that somebody edited between the kill and the run
// that goes on is not deleted by undo. Fails on the commit before: the hash of what was
// found then was taken for that of what was created.
func TestEngineEditBeforeResume(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]string{"Data": `{"data":{"k":"theirs"}}`, "Label": `{"metadata":{"labels":{"theirs":"1"}}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			job := fixed("edited", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("a")}} })
			s.killedAt(job, func(r *http.Request) moment {
				if s.request(r, http.MethodPost, "a") {
					return diesAfter
				}
				return lives
			})
			s.edit("a", edit)
			want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
			want(t, s.engine(nil).Undo(t.Context(), job), migration.PartlyRestored, 3)
			if s.get("a") == nil {
				t.Error("somebody's edit is lost")
			}
		})
	}
}

// TestEnginePatchBasis: a patch is made on the object that was decided on. Fails on the
// commit before: it was made on whatever was there when it was journaled.
func TestEnginePatchBasis(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("namespace", map[string]string{"inject": "", "other": "1"})
	job := &scripted{name: "basis"}
	edit := `{"data":{"inject":"disabled"}}`
	job.plan = func(context.Context, *migration.Cluster) (*migration.Plan, error) {
		basis, err := migrationObject(s, "namespace")
		if err != nil {
			return nil, err
		}
		s.edit("namespace", edit)
		return &migration.Plan{Units: []migration.Unit{s.creation("a"), {ID: "b", Changes: []migration.Change{{
			Verb: migration.Patch, Ref: s.ref("namespace"), Object: basis, Patch: []byte(`{"data":{"inject":"enabled"}}`),
		}}}}}, nil
	}
	r := s.engine(nil).Run(t.Context(), job)
	want(t, r, migration.DeferredResult, 0)
	if s.get("namespace").Data["inject"] != "disabled" || s.get("a") == nil {
		t.Error("somebody's decision is lost, or the other unit was not done")
	}
	if told := says(r, "edited after the plan was made"); len(told) != 1 || told[0].Severity != migration.Deferred {
		t.Errorf("findings: %+v", r.Findings)
	}
	// An edit of another field does not count.
	edit = `{"data":{"other":"2"}}`
	job.name = "basis-2"
	s.edit("namespace", `{"data":{"inject":""}}`)
	s.remove("a")
	want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
	if got := s.get("namespace").Data; got["inject"] != "enabled" || got["other"] != "2" {
		t.Errorf("got %v", got)
	}
}
