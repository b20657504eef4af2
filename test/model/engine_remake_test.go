package model_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// remaker is a job that deletes objects and creates them again.
type remaker struct {
	*scripted
	judge    func(*unstructured.Unstructured) migration.Assessment
	restored func(*migration.Change) []migration.Condition
	stalled  func(*migration.Change) *migration.Condition
}

func (j *remaker) Assess(_ context.Context, _ *migration.Cluster, live *unstructured.Unstructured) (migration.Assessment, error) {
	if j.judge == nil {
		return migration.Assessment{}, nil
	}
	return j.judge(live), nil
}

func (j *remaker) AwaitRestored(ch *migration.Change) []migration.Condition {
	if j.restored == nil {
		return nil
	}
	return j.restored(ch)
}

func (j *remaker) Stuck(ch *migration.Change) *migration.Condition {
	if j.stalled == nil {
		return nil
	}
	return j.stalled(ch)
}

// recreation deletes an object, and creates it again as it was.
func (s *sandbox) recreation(name string, between ...migration.Change) migration.Unit {
	live := s.live(name)
	restored := s.object(name, data(live.Object))
	restored.SetFinalizers(live.GetFinalizers())
	changes := append([]migration.Change{s.deletion(name)}, between...)
	return unit("remake-"+name, append(changes, migration.Change{Verb: migration.Recreate, Ref: ref(name), Object: restored})...)
}

// TestEngineRemakes: a recreation is finished, in whatever direction the run goes on.
func TestEngineRemakes(t *testing.T) {
	bubble(t, "Succeeds", func(t *testing.T, s *sandbox) {
		before := s.before()
		former := s.live("victim").GetUID()
		job := &remaker{scripted: fixed(s.recreation("victim"))}
		want(t, s.run("first", job), migration.Succeeded)
		same(t, s.contents(), before)
		made := s.live("victim")
		if made.GetUID() == former || made.GetAnnotations()[names.Mark()] != "" {
			t.Errorf("it is another one, without a mark: %+v", made)
		}
		want(t, s.undo(job), migration.Succeeded)
		if s.live("victim").GetUID() != made.GetUID() {
			t.Error("an undo leaves what was created again")
		}
	})
	bubble(t, "RollsBack", func(t *testing.T, s *sandbox) {
		before := s.before()
		awaited := 0
		base := fixed(s.recreation("victim"), unit("gate", s.creation("gate")))
		base.await = gate("gate")
		job := &remaker{scripted: base, restored: func(*migration.Change) []migration.Condition {
			awaited++
			return nil
		}}
		want(t, s.run("first", job), migration.RolledBack)
		same(t, s.contents(), before)
		if awaited == 0 {
			t.Error("what must become something again is waited for")
		}
	})
	for name, after := range map[string]bool{"KilledBefore": false, "KilledAfter": true} {
		for _, verb := range []string{"delete", "create"} {
			for _, resume := range []engine.Resume{engine.ResumeForward, engine.ResumeBack} {
				bubble(t, fmt.Sprintf("%s/%s/%s", name, verb, resume), func(t *testing.T, s *sandbox) {
					before := s.before()
					job := &remaker{scripted: fixed(s.recreation("victim"))}
					s.killed(job, after, call(verb, "victim"))
					job.scripted = fixed()
					r := s.with(s.server.Client("second"), func(o *engine.Options) { o.Resume = resume }).Run(t.Context(), job)
					same(t, s.contents(), before)
					if r.ExitCode() > 1 || s.phases() != "done" && s.phases() != "rolled-back" {
						t.Errorf("%s: %s, journal %q", r.Result, r.Message, s.phases())
					}
				})
			}
		}
	}
	bubble(t, "Spoilt", func(t *testing.T, s *sandbox) {
		before := s.before()
		u := s.recreation("victim")
		u.Commit = true
		job := &remaker{scripted: fixed(u, unit("other", s.creation("other")))}
		s.killed(job, true, call("create", "victim"))
		spoilt := s.live("victim").GetUID()
		job.judge = func(live *unstructured.Unstructured) migration.Assessment {
			if live.GetUID() == spoilt {
				return migration.Assessment{Unusable: "it will never be ready"}
			}
			return migration.Assessment{}
		}
		job.scripted = fixed()
		want(t, s.run("second", job), migration.Succeeded)
		same(t, s.contents(), before)
		if s.live("victim").GetUID() == spoilt {
			t.Error("it is of no use, and was left")
		}
	})
	bubble(t, "SpoiltOfOthers", func(t *testing.T, s *sandbox) {
		s.before()
		u := s.recreation("victim")
		u.Commit = true
		job := &remaker{scripted: fixed(u)}
		s.killed(job, true, call("delete", "victim"))
		s.put("victim", map[string]any{"k": "theirs"})
		theirs := s.live("victim").GetUID()
		job.judge = func(*unstructured.Unstructured) migration.Assessment {
			return migration.Assessment{Unusable: "it will never be ready"}
		}
		job.scripted = fixed()
		r := s.run("second", job)
		if live := s.live("victim"); live == nil || live.GetUID() != theirs {
			t.Error("what somebody else has created was deleted, and nobody has its pre-image")
		}
		if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool { return f.ID == "unusable-of-others" && f.Command != "" }) {
			t.Errorf("%s: %s, %v", r.Result, r.Message, r.Findings)
		}
	})
	bubble(t, "Released", func(t *testing.T, s *sandbox) {
		s.before()
		u := s.recreation("victim")
		u.Commit = true
		job := &remaker{scripted: fixed(u)}
		s.killed(job, true, call("create", "victim"))
		s.edit("victim", `{"metadata":{"finalizers":["x.test/dead","x.test/alive"]}}`)
		spoilt := s.live("victim").GetUID()
		job.judge = func(live *unstructured.Unstructured) migration.Assessment {
			if live.GetUID() != spoilt {
				return migration.Assessment{}
			}
			return migration.Assessment{Unusable: "it will never be ready", RemoveFinalizers: []string{"x.test/dead"}}
		}
		job.scripted = fixed()
		go func() {
			time.Sleep(30 * time.Second)
			if left := s.live("victim").GetFinalizers(); !slices.Equal(left, []string{"x.test/alive"}) {
				t.Errorf("finalizers %v", left)
			}
			s.edit("victim", `{"metadata":{"finalizers":null}}`)
		}()
		want(t, s.run("second", job), migration.Succeeded)
		if s.live("victim").GetUID() == spoilt {
			t.Error("it was not created again")
		}
	})
	bubble(t, "Stalled", func(t *testing.T, s *sandbox) {
		s.before()
		s.edit("victim", `{"metadata":{"finalizers":["x.test/slow"]}}`)
		job := &remaker{scripted: fixed(s.recreation("victim"))}
		job.stalled = func(ch *migration.Change) *migration.Condition {
			return &migration.Condition{Text: "a stall", On: []migration.Subject{ch.Ref.Subject()}, Eval: func(v migration.View) migration.Status {
				if obj := v.Get(ch.Ref.Subject()); obj != nil && obj.GetDeletionTimestamp() != nil {
					return migration.Status{State: migration.Met}
				}
				return migration.Status{Message: "goes on"}
			}}
		}
		go func() {
			// Its owner goes on only when somebody has touched it.
			for {
				time.Sleep(time.Second)
				live := s.live("victim")
				if live == nil || live.GetDeletionTimestamp() == nil {
					continue
				}
				if live.GetAnnotations()["mover.example.com/touched"] != "" {
					s.edit("victim", `{"metadata":{"finalizers":null}}`)
					return
				}
			}
		}()
		want(t, s.run("first", job), migration.Succeeded)
		if got := s.live("victim").GetFinalizers(); !slices.Equal(got, []string{"x.test/slow"}) {
			t.Errorf("finalizers %v", got)
		}
	})
}

var (
	deploymentKind = migration.CoreResource("apps", "deployments", "Deployment")
	podResource    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// deployment has two pods that were started at a time, which it replaces.
func (s *sandbox) deployment(started time.Time) migration.Ref {
	s.t.Helper()
	s.withStatus(deploymentKind.GroupVersionResource, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d"},
		"spec":   map[string]any{"replicas": int64(2), "selector": map[string]any{"matchLabels": map[string]any{"app": "d"}}},
		"status": map[string]any{"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(2), "readyReplicas": int64(2), "availableReplicas": int64(2), "conditions": []any{map[string]any{"type": "Available", "status": "True"}}},
	})
	for _, name := range []string{"p1", "p2"} {
		s.pod(name, started, "True")
	}
	s.pod("other", started, "True")
	return migration.Ref{Resource: deploymentKind, Namespace: "shop", Name: "d"}
}

func (s *sandbox) pod(name string, started time.Time, ready string) {
	s.t.Helper()
	app := "d"
	if name == "other" {
		app = "other"
	}
	at := started.UTC().Format(time.RFC3339)
	s.withStatus(podResource, map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "labels": map[string]any{"app": app}},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}},
		"status": map[string]any{
			"phase": "Running", "startTime": at, "conditions": []any{map[string]any{"type": "Ready", "status": ready}},
			"containerStatuses": []any{map[string]any{"name": "c", "state": map[string]any{"running": map[string]any{"startedAt": at}}}},
		},
	})
}

func (s *sandbox) withStatus(r schema.GroupVersionResource, content map[string]any) {
	s.t.Helper()
	client := s.user.Resource(r).Namespace("shop")
	obj := &unstructured.Unstructured{Object: content}
	created, err := client.Create(s.t.Context(), obj.DeepCopy(), metav1.CreateOptions{})
	if err == nil {
		created.Object["status"] = obj.Object["status"]
		_, err = client.UpdateStatus(s.t.Context(), created, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Error(err)
	}
}

// pods are the names of those that exist.
func (s *sandbox) pods() (names []string) {
	for key := range s.server.Objects() {
		if key.Plural == "pods" {
			names = append(names, key.Name)
		}
	}
	slices.Sort(names)
	return names
}

// replacing creates a pod for each that a client deletes.
func (s *sandbox) replacing(client *model.Client, ready string) {
	client.After(func(r *model.Request) {
		if r.Verb == "delete" && r.Plural == "pods" && r.Code == 200 {
			s.pod("new-"+r.Name, time.Now(), ready)
		}
	})
}

// TestEngineRestarts: the pods that are to be replaced are, and no others.
func TestEngineRestarts(t *testing.T) {
	long := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // a bubble begins then
	restart := func(of migration.Ref, late *migration.DeferredRestart) migration.Unit {
		return unit("restart", migration.Change{Verb: migration.Restart, Ref: of, Late: late, Timeout: time.Minute})
	}
	for name, tc := range map[string]struct {
		reason string
		late   *migration.DeferredRestart
		before func(s *sandbox)
		ready  string
		result migration.Result
		want   []string
	}{
		"Now":       {"those that exist when the change is journaled", nil, nil, "True", migration.Succeeded, []string{"new-p1", "new-p2", "other"}},
		"Late":      {"those that exist when its turn comes", &migration.DeferredRestart{}, func(s *sandbox) { s.pod("p3", time.Now(), "True") }, "True", migration.Succeeded, []string{"new-p1", "new-p2", "new-p3", "other"}},
		"Spared":    {"pods that have run since before are spared", &migration.DeferredRestart{After: long.Add(time.Hour)}, func(s *sandbox) { time.Sleep(2 * time.Hour); s.pod("p3", time.Now(), "True") }, "True", migration.Succeeded, []string{"new-p3", "other", "p1", "p2"}},
		"Traces":    {"none while there are traces of what they remember", &migration.DeferredRestart{After: long.Add(time.Hour), Leftovers: &migration.Leftovers{Ref: ref(""), LabelSelector: "trace=1"}}, func(s *sandbox) { s.put("t", nil); s.edit("t", `{"metadata":{"labels":{"trace":"1"}}}`) }, "True", migration.Succeeded, []string{"new-p1", "new-p2", "other"}},
		"NoTraces":  {"and spared without", &migration.DeferredRestart{After: long.Add(time.Hour), Leftovers: &migration.Leftovers{Ref: ref(""), LabelSelector: "trace=1"}}, nil, "True", migration.Succeeded, []string{"other", "p1", "p2"}},
		"Unless":    {"what it is for has been done", &migration.DeferredRestart{Unless: new(ref("done"))}, func(s *sandbox) { s.put("done", nil) }, "True", migration.Succeeded, []string{"other", "p1", "p2"}},
		"UnlessNot": {"or not", &migration.DeferredRestart{Unless: new(ref("done"))}, nil, "True", migration.Succeeded, []string{"new-p1", "new-p2", "other"}},
		"NotReady":  {"new pods are waited for", &migration.DeferredRestart{}, nil, "False", migration.RolledBack, []string{"new-p1", "new-p2", "other"}},
	} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			of := s.deployment(long)
			if tc.late != nil && tc.late.Leftovers != nil {
				tc.late.Leftovers.Ref.Namespace = "shop"
			}
			if tc.before != nil {
				tc.before(s)
			}
			client := s.server.Client("first")
			s.replacing(client, tc.ready)
			want(t, s.engine(client, "first").Run(t.Context(), fixed(restart(of, tc.late))), tc.result)
			if got := s.pods(); !slices.Equal(got, tc.want) {
				t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
	bubble(t, "NoDeployment", func(t *testing.T, s *sandbox) {
		none := migration.Ref{Resource: deploymentKind, Namespace: "shop", Name: "none"}
		r := s.run("first", fixed(restart(none, nil), unit("a", s.creation("a"))))
		want(t, r, migration.DeferredResult)
		if len(says(r, "does not exist any more")) != 1 {
			t.Errorf("%+v", r.Findings)
		}
	})
	bubble(t, "NoDeploymentLater", func(t *testing.T, s *sandbox) {
		none := migration.Ref{Resource: deploymentKind, Namespace: "shop", Name: "none"}
		u := restart(s.deployment(long), &migration.DeferredRestart{})
		u.Changes[0].Ref = none
		r := s.run("first", fixed(u))
		if len(says(r, "does not exist any more")) != 1 {
			t.Errorf("%s: %+v", r.Result, r.Findings)
		}
	})
	bubble(t, "SameName", func(t *testing.T, s *sandbox) {
		of := s.deployment(long)
		client := s.server.Client("first")
		pods := s.user.Resource(podResource).Namespace("shop")
		when(client, func(r *model.Request) bool { return r.Verb == "delete" && r.Name == "p1" }, func() {
			if err := pods.Delete(t.Context(), "p1", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			s.pod("p1", time.Now(), "True")
		})
		s.replacing(client, "True")
		want(t, s.engine(client, "first").Run(t.Context(), fixed(restart(of, nil))), migration.Succeeded)
		if got := s.pods(); !slices.Equal(got, []string{"new-p2", "other", "p1"}) {
			t.Errorf("the pod that took its place stays: %v", got)
		}
	})
	bubble(t, "Killed", func(t *testing.T, s *sandbox) {
		of := s.deployment(long)
		s.killed(fixed(restart(of, nil)), true, func(r *model.Request) bool { return r.Verb == "delete" && r.Plural == "pods" })
		s.pod("new-p1", time.Now(), "True")
		client := s.server.Client("second")
		s.replacing(client, "True")
		want(t, s.engine(client, "second").Run(t.Context(), fixed(restart(of, nil))), migration.Succeeded)
		if slices.Contains(s.pods(), "p2") {
			t.Errorf("%v", s.pods())
		}
	})
}
