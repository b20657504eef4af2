package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// scripted is a job whose decisions a test writes down.
type scripted struct {
	name  string
	plan  func(ctx context.Context, c *migration.Cluster) (*migration.Plan, error)
	await func(*migration.Change) []migration.Condition
	keep  func([]migration.Ref) (map[migration.Ref]string, error)
}

func (s *scripted) Name() string          { return s.name }
func (s *scripted) Doc() (string, string) { return "", "" }
func (s *scripted) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	return s.plan(ctx, c)
}

func (s *scripted) Await(ch *migration.Change) []migration.Condition {
	if s.await == nil {
		return nil
	}
	return s.await(ch)
}

func (s *scripted) Protect(_ context.Context, _ *migration.Cluster, refs []migration.Ref) (map[migration.Ref]string, error) {
	if s.keep == nil {
		return nil, nil
	}
	return s.keep(refs)
}

var configMaps = migration.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap"}

// sandbox is a namespace of its own, with the state namespace of one test.
type sandbox struct {
	t         *testing.T
	namespace string
	client    kubernetes.Interface
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{t: t, client: client}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sandbox-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.namespace = ns.Name
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), s.namespace, metav1.DeleteOptions{})
	})
	return s
}

// options are those of one process.
func (s *sandbox) options(change func(*engine.Options)) engine.Options {
	o := engine.Options{
		Names:          names,
		StateNamespace: s.namespace, Identity: fmt.Sprintf("test-%d", time.Now().UnixNano()),
		LeaseDuration: time.Second, Timeout: time.Minute, Log: zaptest.NewLogger(s.t, zaptest.Level(zap.InfoLevel)),
	}
	if change != nil {
		change(&o)
	}
	return o
}

func (s *sandbox) engine(change func(*engine.Options)) *engine.Engine {
	s.t.Helper()
	e, err := engine.New(cluster.Config(), s.options(change))
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *sandbox) ref(name string) migration.Ref {
	return migration.Ref{Resource: configMaps, Namespace: s.namespace, Name: name}
}

func (s *sandbox) object(name string, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": s.namespace, "name": name},
		"data":     data,
	}}
}

func (s *sandbox) put(name string, data map[string]string, more ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	s.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Data: data}
	for _, m := range more {
		m(cm)
	}
	cm, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(), cm, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return cm
}

// get returns the object, nil if it does not exist.
func (s *sandbox) get(name string) *corev1.ConfigMap {
	s.t.Helper()
	cm, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return cm
}

func (s *sandbox) phases() string {
	s.t.Helper()
	list, err := s.client.CoreV1().Secrets(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "mover.example.com/phase"})
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, secret := range list.Items {
		all = append(all, secret.Labels["mover.example.com/phase"])
	}
	return strings.Join(all, ",")
}

func want(t *testing.T, r *migration.Report, result migration.Result, exit int) {
	t.Helper()
	if r.Result != result || r.ExitCode() != exit {
		raw, _ := json.MarshalIndent(r, "", "  ")
		t.Fatalf("got result %s, exit code %d; want %s, %d\n%s", r.Result, r.ExitCode(), result, exit, raw)
	}
}

// TestEngineVerbs makes each kind of change, undoes it, and makes it fail.
func TestEngineVerbs(t *testing.T) {
	t.Parallel()
	never := func(ch *migration.Change) []migration.Condition {
		if ch.Ref.Name != "never" {
			return nil
		}
		return []migration.Condition{{
			Text: "what never comes", On: []migration.Subject{ch.Ref.Subject()}, Timeout: 300 * time.Millisecond,
			Eval: func(migration.View) migration.Status {
				return migration.Status{Message: "it is not there", Note: "wait for ever"}
			},
		}}
	}
	setUp := func(s *sandbox) func(fail bool) *migration.Plan {
		owner := s.put("owner", nil)
		s.put("victim", map[string]string{"secret": "kept"}, func(cm *corev1.ConfigMap) {
			cm.Labels = map[string]string{"a": "1"}
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		})
		s.put("patched", map[string]string{"ours": "old", "theirs": "1"})
		return func(fail bool) *migration.Plan {
			p := &migration.Plan{Parallelism: 4, Units: []migration.Unit{
				{ID: "new", Changes: []migration.Change{{Verb: migration.Create, Ref: s.ref("new"), Object: s.object("new", map[string]any{"k": "v"})}}},
				{ID: "victim", Changes: []migration.Change{{Verb: migration.Delete, Ref: s.ref("victim")}}},
				{ID: "patched", Changes: []migration.Change{{Verb: migration.Patch, Ref: s.ref("patched"), Patch: []byte(`{"data":{"ours":"new","added":"x"},"metadata":{"labels":{"l":"1"}}}`)}}},
			}}
			if fail {
				p.Units = append(p.Units, migration.Unit{ID: "never", Changes: []migration.Change{{Verb: migration.Create, Ref: s.ref("never"), Object: s.object("never", nil)}}})
			}
			return p
		}
	}
	before := func(t *testing.T, s *sandbox) {
		t.Helper()
		if s.get("new") != nil || s.get("never") != nil {
			t.Error("created objects are still there")
		}
		victim := s.get("victim")
		if victim == nil || victim.Data["secret"] != "kept" || victim.Labels["a"] != "1" || len(victim.OwnerReferences) != 1 {
			t.Errorf("the deleted object did not come back as it was: %+v", victim)
		}
		if patched := s.get("patched"); patched.Data["ours"] != "old" || patched.Data["added"] != "" || patched.Labels["l"] != "" {
			t.Errorf("patched fields were not put back: %+v", patched)
		}
	}

	t.Run("SucceedsAndIsUndone", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		plan := setUp(s)
		job := &scripted{name: "verbs", plan: func(context.Context, *migration.Cluster) (*migration.Plan, error) { return plan(false), nil }}
		want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
		if s.get("victim") != nil || s.get("new") == nil || s.get("patched").Data["ours"] != "new" {
			t.Fatal("the plan was not carried out")
		}
		if got := s.phases(); got != "done" {
			t.Errorf("journal phases: %s", got)
		}
		// What others edit in the meantime stays.
		theirs := s.get("patched")
		theirs.Data["theirs"] = "2"
		if _, err := s.client.CoreV1().ConfigMaps(s.namespace).Update(t.Context(), theirs, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, s.engine(nil).Undo(t.Context(), job), migration.Succeeded, 0)
		before(t, s)
		if s.get("patched").Data["theirs"] != "2" {
			t.Error("somebody else's edit was undone, too")
		}
		if got := s.phases(); got != "undone" {
			t.Errorf("journal phases: %s", got)
		}
		want(t, s.engine(nil).Undo(t.Context(), job), migration.NothingToDo, 0)
	})

	t.Run("FailsAndRollsBack", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		plan := setUp(s)
		job := &scripted{name: "verbs", await: never, plan: func(context.Context, *migration.Cluster) (*migration.Plan, error) { return plan(true), nil }}
		r := s.engine(nil).Run(t.Context(), job)
		want(t, r, migration.RolledBack, 1)
		before(t, s)
		if got := s.phases(); got != "rolled-back" {
			t.Errorf("journal phases: %s", got)
		}
		if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Problem, "it is not there") || r.Findings[0].Hint == "" {
			t.Errorf("findings: %+v", r.Findings)
		}
	})

	t.Run("FailsAndKeeps", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		plan := setUp(s)
		job := &scripted{name: "verbs", await: never, plan: func(context.Context, *migration.Cluster) (*migration.Plan, error) { return plan(true), nil }}
		r := s.engine(func(o *engine.Options) { o.OnFailure = engine.OnFailureLeave }).Run(t.Context(), job)
		want(t, r, migration.FailedResult, 3)
		if got := s.phases(); got != "forward" {
			t.Errorf("journal phases: %s", got)
		}
		r = s.engine(func(o *engine.Options) { o.Resume = engine.ResumeBack }).Run(t.Context(), job)
		want(t, r, migration.RolledBack, 1)
		before(t, s)
	})

	t.Run("EditedSinceIsRefusedByUndo", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		plan := setUp(s)
		job := &scripted{name: "verbs", plan: func(context.Context, *migration.Cluster) (*migration.Plan, error) { return plan(false), nil }}
		want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
		for name, patch := range map[string]string{"new": `{"data":{"k":"edited"}}`, "patched": `{"data":{"ours":"edited"}}`} {
			if _, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		want(t, s.engine(nil).Undo(t.Context(), job), migration.PartlyRestored, 3)
		if s.get("new").Data["k"] != "edited" || s.get("patched").Data["ours"] != "edited" || s.get("victim") == nil {
			t.Error("edits were lost, or the rest was not restored")
		}
	})

	t.Run("LiveEventsAreKept", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		plan := setUp(s)
		job := &scripted{
			name: "verbs", await: never,
			plan: func(context.Context, *migration.Cluster) (*migration.Plan, error) { return plan(true), nil },
			keep: func([]migration.Ref) (map[migration.Ref]string, error) {
				return map[migration.Ref]string{s.ref("new"): "carries live events"}, nil
			},
		}
		r := s.engine(nil).Run(t.Context(), job)
		want(t, r, migration.PartlyRestored, 3)
		if s.get("new") == nil || s.get("victim") == nil {
			t.Error("what carries live events must stay, the rest must be restored")
		}
	})
}

// migrationObject reads an object as a job would.
func migrationObject(s *sandbox, name string) (*unstructured.Unstructured, error) {
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		return nil, err
	}
	return client.Resource(configMaps.GroupVersionResource).Namespace(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
}
