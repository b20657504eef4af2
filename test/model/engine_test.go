package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

var configMaps = migration.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"}

// scripted is a job whose decisions a test writes down.
type scripted struct {
	plan  func() *migration.Plan
	await func(*migration.Change) []migration.Condition
}

func (s *scripted) Name() string          { return "scripted" }
func (s *scripted) Doc() (string, string) { return "", "" }
func (s *scripted) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	return s.plan(), nil
}

func (s *scripted) Await(ch *migration.Change) []migration.Condition {
	if s.await == nil {
		return nil
	}
	return s.await(ch)
}

// sandbox is a server with two namespaces, and a user.
type sandbox struct {
	t      *testing.T
	server *model.Server
	user   dynamic.Interface
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	return newSandboxOf(t, model.New(1))
}

func newSandboxOf(t *testing.T, server *model.Server) *sandbox {
	t.Helper()
	s := &sandbox{t: t, server: server}
	s.user = s.client("user")
	for _, name := range []string{program, "shop"} {
		_, err := s.user.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *sandbox) client(name string) dynamic.Interface {
	s.t.Helper()
	client, err := dynamic.NewForConfig(s.server.Actor(name).Config())
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

func (s *sandbox) object(name string, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "shop", "name": name},
		"data":     data,
	}}
}

func (s *sandbox) put(name string, data map[string]any) {
	s.t.Helper()
	if _, err := s.user.Resource(configMaps.GroupVersionResource).Namespace("shop").Create(s.t.Context(), s.object(name, data), metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sandbox) maps() dynamic.ResourceInterface {
	return s.user.Resource(configMaps.GroupVersionResource).Namespace("shop")
}

func (s *sandbox) get(name string) model.Object {
	return s.server.Objects()[model.Key{Plural: "configmaps", Namespace: "shop", Name: name}]
}

func ref(name string) migration.Ref {
	return migration.Ref{Resource: configMaps, Namespace: "shop", Name: name}
}

func (s *sandbox) engine(client *model.Client, name string) *engine.Engine {
	s.t.Helper()
	e, err := engine.New(client.Config(), engine.Options{Names: names, Identity: name, LeaseDuration: 15 * time.Second, Timeout: 5 * time.Minute})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *sandbox) run(name string, job migration.Job) *migration.Report {
	return s.engine(s.server.Client(name), name).Run(s.t.Context(), job)
}

func want(t *testing.T, r *migration.Report, result migration.Result) {
	t.Helper()
	if r.Result != result {
		raw, _ := json.MarshalIndent(r, "", "  ")
		t.Fatalf("got result %s, want %s\n%s", r.Result, result, raw)
	}
}

// plan has one change of each kind; what is created is awaited.
func (s *sandbox) plan() *migration.Plan {
	p := &migration.Plan{Parallelism: 4}
	if s.get("new") == nil {
		p.Units = append(p.Units, migration.Unit{ID: "new", Changes: []migration.Change{{Verb: migration.Create, Ref: ref("new"), Object: s.object("new", map[string]any{"k": "v"})}}})
	}
	if s.get("victim") != nil {
		p.Units = append(p.Units, migration.Unit{ID: "victim", Changes: []migration.Change{{Verb: migration.Delete, Ref: ref("victim")}}})
	}
	if data, _ := s.get("patched")["data"].(map[string]any); data["ours"] != "new" {
		p.Units = append(p.Units, migration.Unit{ID: "patched", Changes: []migration.Change{{Verb: migration.Patch, Ref: ref("patched"), Patch: []byte(`{"data":{"ours":"new","added":"x"}}`)}}})
	}
	return p
}

// ready is a condition that holds once the object has a status.
func ready(limit time.Duration) func(*migration.Change) []migration.Condition {
	return func(ch *migration.Change) []migration.Condition {
		if ch.Verb != migration.Create {
			return nil
		}
		return []migration.Condition{{
			Text: "a sign", On: []migration.Subject{ch.Ref.Subject()}, Timeout: limit,
			Eval: func(v migration.View) migration.Status {
				if obj := v.Get(ch.Ref.Subject()); obj != nil && obj.Object["status"] != nil {
					return migration.Status{State: migration.Met}
				}
				return migration.Status{Message: "no sign yet"}
			},
		}}
	}
}

// sign makes what is created ready some time later, until ctx ends.
func (s *sandbox) sign(ctx context.Context, later time.Duration) {
	client := s.client("controller").Resource(configMaps.GroupVersionResource).Namespace("shop")
	w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=new"})
	if err != nil {
		s.t.Error(err)
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type != watch.Added {
			continue
		}
		select {
		case <-time.After(later):
		case <-ctx.Done():
			return
		}
		obj.Object["status"] = map[string]any{"ready": true} // no edit, to the engine
		_, _ = client.Update(ctx, obj, metav1.UpdateOptions{})
	}
}

func (s *sandbox) before() map[string]string {
	s.put("victim", map[string]any{"a": "1"})
	s.put("patched", map[string]any{"ours": "old", "theirs": "1"})
	return s.contents()
}

// contents is what is in the objects, without what the server sets.
func (s *sandbox) contents() map[string]string {
	all := map[string]string{}
	for key, obj := range s.server.Objects() {
		if key.Plural == "configmaps" && key.Namespace == "shop" {
			raw, _ := json.Marshal(obj["data"])
			all[key.Name] = string(raw)
		}
	}
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: got %s, want %s", name, got[name], want[name])
		}
	}
}

// TestEngineInABubble proves that the engine runs on the model, and that its minutes
// take milliseconds.
func TestEngineInABubble(t *testing.T) {
	t.Run("RunAndUndo", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSandbox(t)
			before := s.before()
			ctx, cancel := context.WithCancel(t.Context())
			go s.sign(ctx, 3*time.Minute)
			job := &scripted{plan: s.plan, await: ready(4 * time.Minute)}
			began := time.Now()
			want(t, s.run("first", job), migration.Succeeded)
			if took := time.Since(began); took < 3*time.Minute {
				t.Errorf("it took %s, and had to wait for three minutes", took)
			}
			same(t, s.contents(), map[string]string{"new": `{"k":"v"}`, "patched": `{"added":"x","ours":"new","theirs":"1"}`})
			want(t, s.run("second", job), migration.NothingToDo)
			want(t, s.engine(s.server.Client("third"), "third").Undo(t.Context(), job), migration.Succeeded)
			same(t, s.contents(), before)
			cancel()
		})
	})
	t.Run("RollsBack", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSandbox(t)
			before := s.before()
			want(t, s.run("first", &scripted{plan: s.plan, await: ready(time.Minute)}), migration.RolledBack)
			same(t, s.contents(), before)
		})
	})
	t.Run("TimesOut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSandbox(t)
			before := s.before()
			want(t, s.run("first", &scripted{plan: s.plan, await: ready(0)}), migration.TimedOut)
			same(t, s.contents(), before)
		})
	})
	t.Run("KilledAndResumed", func(t *testing.T) {
		// Before and after each of its calls. It waits for some renewals of its Lease: in minutes
		// there would be dozens, all alike.
		for n := 1; ; n++ {
			ended := false
			synctest.Test(t, func(t *testing.T) {
				s := newSandbox(t)
				s.before()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go s.sign(ctx, 30*time.Second)
				job := &scripted{plan: s.plan, await: ready(4 * time.Minute)}
				client := s.server.Client("first")
				runCtx, kill := context.WithCancelCause(t.Context())
				hook := func(r *model.Request) {
					if r.N == n/2+1 {
						client.Kill()
						kill(errors.New("killed"))
					}
				}
				if n%2 == 0 {
					client.Before(hook)
				} else {
					client.After(hook)
				}
				s.engine(client, "first").Run(runCtx, job)
				ended = !client.Killed()
				s.run("second", job)
				want(t, s.run("third", job), migration.NothingToDo)
				same(t, s.contents(), map[string]string{"new": `{"k":"v"}`, "patched": `{"added":"x","ours":"new","theirs":"1"}`})
			})
			if t.Failed() {
				t.Fatalf("killed at %d", n)
			}
			if ended {
				t.Logf("%d kills", n-1)
				break
			}
		}
	})
}
