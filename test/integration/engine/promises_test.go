package engine_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// fixed is a job that always plans the same.
func fixed(name string, plan func() *migration.Plan) *scripted {
	return &scripted{name: name, plan: func(context.Context, *migration.Cluster) (*migration.Plan, error) { return plan(), nil }}
}

func (s *sandbox) creation(name string) migration.Unit {
	return migration.Unit{ID: name, Changes: []migration.Change{{Verb: migration.Create, Ref: s.ref(name), Object: s.object(name, map[string]any{"k": "v"})}}}
}

func (s *sandbox) deletion(name string) migration.Unit {
	return migration.Unit{ID: name, Changes: []migration.Change{{Verb: migration.Delete, Ref: s.ref(name)}}}
}

// until is a condition that holds once ready does.
func until(ready func(v migration.View, ref migration.Ref) bool, timeout time.Duration) func(*migration.Change) []migration.Condition {
	return func(ch *migration.Change) []migration.Condition {
		return []migration.Condition{{
			Text: "a sign", On: []migration.Subject{ch.Ref.Subject()}, Timeout: timeout,
			Eval: func(v migration.View) migration.Status {
				if ready(v, ch.Ref) {
					return migration.Status{State: migration.Met}
				}
				return migration.Status{Message: "no sign yet"}
			},
		}}
	}
}

func signed(v migration.View, ref migration.Ref) bool {
	obj := v.Get(ref.Subject())
	return obj != nil && obj.GetLabels()["sign"] != ""
}

func (s *sandbox) sign(name string) {
	s.t.Helper()
	_, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"sign":"1"}}}`), metav1.PatchOptions{})
	if err != nil {
		s.t.Error(err)
	}
}

// appears waits until the object exists.
func (s *sandbox) appears(name string) {
	s.t.Helper()
	w, err := s.client.CoreV1().ConfigMaps(s.namespace).Watch(s.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Stop()
	if s.get(name) != nil {
		return
	}
	select {
	case <-w.ResultChan():
	case <-time.After(20 * time.Second):
		s.t.Fatalf("%s did not appear", name)
	}
}

func TestEngineTimesOut(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	job := fixed("slow", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("a")}} })
	job.await = until(signed, 0)
	r := s.engine(func(o *engine.Options) { o.Timeout = 10 * time.Second }).Run(t.Context(), job)
	want(t, r, migration.TimedOut, migration.ExitTimedOut)
	if s.get("a") != nil || !strings.Contains(r.Message, "--timeout") {
		t.Errorf("not rolled back, or not said why: %s", r.Message)
	}
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Problem, "no sign yet") {
		t.Errorf("the object that was waited for has no name: %+v", r.Findings)
	}
}

func TestEngineInterruptedAndResumed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		resume func(*engine.Options)
		undo   bool
		result migration.Result
		exit   int
		exists bool
	}{
		{"forward is the default", nil, false, migration.Succeeded, 0, true},
		{"back rolls back and stops", func(o *engine.Options) { o.Resume = engine.ResumeBack }, false, migration.RolledBack, 1, false},
		{"undo takes an interrupted run, too", nil, true, migration.Succeeded, 0, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			job := fixed("interrupted", func() *migration.Plan {
				p := &migration.Plan{Parallelism: 1, Serial: true}
				for _, name := range []string{"a", "b"} {
					if s.get(name) == nil {
						p.Units = append(p.Units, s.creation(name))
					}
				}
				return p
			})
			job.await = until(signed, 0)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				s.appears("a")
				cancel(engine.SignalError{Signal: syscall.SIGTERM})
			}()
			r := s.engine(nil).Run(ctx, job)
			want(t, r, migration.Interrupted, 128+15)
			if s.phases() != "forward" || s.get("a") == nil || s.get("b") != nil {
				t.Fatal("the journal must be open, a made and b not begun")
			}
			go func() {
				if tc.result == migration.Succeeded && !tc.undo {
					s.sign("a")
					s.signs("b")
				}
			}()
			e := s.engine(tc.resume)
			if tc.undo {
				r = e.Undo(t.Context(), job)
			} else {
				r = e.Run(t.Context(), job)
			}
			want(t, r, tc.result, tc.exit)
			if got := s.get("a") != nil; got != tc.exists {
				t.Errorf("a exists: %t", got)
			}
			if got := s.get("b") != nil; got != tc.exists {
				t.Errorf("b exists: %t", got)
			}
		})
	}
}

func TestEngineLock(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	job := fixed("locked", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("a")}} })
	job.await = until(signed, 0)
	first := make(chan *migration.Report)
	e := s.engine(func(o *engine.Options) { o.LeaseDuration = 15 * time.Second })
	go func() { first <- e.Run(t.Context(), job) }()
	s.appears("a")
	second := s.engine(func(o *engine.Options) { o.LockWait = 1500 * time.Millisecond }).Run(t.Context(), job)
	want(t, second, migration.Locked, migration.ExitLocked)
	if second.Requests.Writes != 0 || !strings.Contains(second.Message, "test-") {
		t.Errorf("the second must write nothing and name the holder: %+v", second)
	}
	s.sign("a")
	want(t, <-first, migration.Succeeded, 0)
}

func TestEngineStopsWhenTheLockIsTaken(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	job := fixed("robbed", func() *migration.Plan {
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.creation("a"), s.creation("b")}}
	})
	job.await = until(signed, 0)
	done := make(chan *migration.Report)
	go func() { done <- s.engine(nil).Run(t.Context(), job) }()
	s.appears("a")
	// Somebody takes the Lease without waiting for it to expire. A conflict
	// means that the run renewed it in between.
	for {
		lease, err := s.client.CoordinationV1().Leases(s.namespace).Get(t.Context(), "mover", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity = new("thief")
		if _, err = s.client.CoordinationV1().Leases(s.namespace).Update(t.Context(), lease, metav1.UpdateOptions{}); err == nil {
			break
		}
	}
	// The run learns of it with its next renewal at the latest, and its write
	// must not begin after that: give it a second, then let it go on.
	time.Sleep(time.Second)
	s.sign("a")
	r := <-done
	want(t, r, migration.Locked, migration.ExitLocked)
	if s.get("b") != nil || s.phases() != "forward" || !strings.Contains(r.Message, "thief") {
		t.Errorf("it must stop before its next write and leave the journal open: %s", r.Message)
	}
}

func TestEngineRestoresOwnersAndLargeObjects(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	noise := make([]byte, 700<<10) // does not compress: three of them need several Secrets
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	large := func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"noise": noise} }
	owner := s.put("owner", nil, large)
	s.put("large", nil, large)
	s.put("owned", map[string]string{"k": "v"}, large, func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		cm.Finalizers = []string{"example.com/keep"}
	})
	// owned first, so that it is restored last, when its owner lives again.
	job := fixed("large", func() *migration.Plan {
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.deletion("owned"), s.deletion("large"), s.deletion("owner"), s.creation("never")}}
	})
	job.await = func(ch *migration.Change) []migration.Condition {
		if ch.Ref.Name != "never" {
			return nil
		}
		return until(signed, 200*time.Millisecond)(ch)
	}
	go func() {
		// The finalizer's controller.
		for ; t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) {
			cm, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(context.Background(), "owned", metav1.GetOptions{})
			if err == nil && cm.DeletionTimestamp != nil {
				_, err = s.client.CoreV1().ConfigMaps(s.namespace).Patch(context.Background(), "owned", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err == nil {
					return
				}
			}
		}
	}()
	// A write of a megabyte takes its time, and none may outlast the lease.
	e := s.engine(func(o *engine.Options) { o.LeaseDuration = 15 * time.Second })
	want(t, e.Run(t.Context(), job), migration.RolledBack, 1)
	secrets, err := s.client.CoreV1().Secrets(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "mover.example.com/job=large"})
	if err != nil || len(secrets.Items) < 3 {
		t.Errorf("want the journal in several secrets, got %d (%v)", len(secrets.Items), err)
	}
	restored, newOwner := s.get("owned"), s.get("owner")
	if restored == nil || newOwner == nil || s.get("large") == nil {
		t.Fatal("not everything came back")
	}
	if len(restored.OwnerReferences) != 1 || restored.OwnerReferences[0].UID != newOwner.UID {
		t.Errorf("the owner reference must point at the restored owner: %+v", restored.OwnerReferences)
	}
	if !slices.Equal(restored.Finalizers, []string{"example.com/keep"}) || !slices.Equal(restored.BinaryData["noise"], noise) {
		t.Error("content or finalizers differ")
	}
	_, _ = s.client.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), "owned", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
}

func TestEngineKeepsFinishedRecreations(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("done", map[string]string{"v": "old"})
	s.put("half", map[string]string{"v": "old"})
	recreate := func(name string) migration.Unit {
		return migration.Unit{ID: name, Commit: true, Changes: []migration.Change{
			{Verb: migration.Delete, Ref: s.ref(name)},
			{Verb: migration.Recreate, Ref: s.ref(name), Object: s.object(name, map[string]any{"v": "old"})},
		}}
	}
	formerDone, formerHalf := s.get("done").UID, s.get("half").UID
	job := fixed("recreate", func() *migration.Plan {
		return &migration.Plan{Serial: true, Units: []migration.Unit{recreate("done"), recreate("half")}}
	})
	job.await = func(ch *migration.Change) []migration.Condition {
		if ch.Ref.Name != "half" || ch.Verb != migration.Recreate {
			return nil
		}
		return until(signed, 200*time.Millisecond)(ch)
	}
	r := s.engine(nil).Run(t.Context(), job)
	want(t, r, migration.RolledBack, 1)
	done, half := s.get("done"), s.get("half")
	if done == nil || half == nil || done.UID == formerDone || half.UID == formerHalf {
		t.Fatal("both must exist, created again")
	}
	if done.Annotations[names.Mark()] != "" || half.Annotations[names.Mark()] != "" {
		t.Error("what restores a pre-image carries no mark")
	}
	kept := 0
	for _, ch := range r.Changes {
		if ch.Result == migration.ChangeProtected {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("the finished unit's two changes must be reported as kept: %+v", r.Changes)
	}
}

// TestEngineTakesAwaySideEffects has a controller that makes something because of a
// label, and one that does so once more when the label is gone: it has not seen that.
func TestEngineTakesAwaySideEffects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		// makes is how often it is made again.
		makes  int
		result migration.Result
		exit   int
		says   string
	}{
		{"a controller that sees everything at once", 0, migration.RolledBack, 1, ""},
		{"a controller that lags behind", 2, migration.RolledBack, 1, ""},
		{"somebody who wants it", 1 << 30, migration.PartlyRestored, 3, "is recreated each time it is deleted"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			s.put("label", nil)
			s.put("was-there", nil)
			job := fixed("effects", func() *migration.Plan {
				return &migration.Plan{Units: []migration.Unit{{ID: "label", Changes: []migration.Change{{
					Verb: migration.Patch, Ref: s.ref("label"), Patch: []byte(`{"metadata":{"labels":{"inject":"enabled"}}}`),
					SideEffects: []migration.Ref{s.ref("made"), s.ref("was-there")},
				}}}}}
			})
			job.await = func(ch *migration.Change) []migration.Condition {
				return []migration.Condition{{
					Text: "what is made", On: []migration.Subject{ch.Ref.Subject(), s.ref("made").Subject()},
					Eval: func(v migration.View) migration.Status {
						if v.Get(s.ref("made").Subject()) == nil {
							return migration.Status{Message: "nothing is made yet"}
						}
						return migration.Status{State: migration.Failed, Message: "it is not what was wanted"}
					},
				}}
			}
			configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
			w, err := configMaps.Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			go func() {
				again, made := tc.makes, false
				for event := range w.ResultChan() {
					cm, ok := event.Object.(*corev1.ConfigMap)
					switch {
					case ok && cm.Name == "label" && cm.Labels["inject"] != "" && !made:
						made = true
					case ok && cm.Name == "made" && event.Type == watch.Deleted && again > 0:
						again--
						time.Sleep(500 * time.Millisecond)
					default:
						continue
					}
					_, _ = configMaps.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
				}
			}()
			r := s.engine(nil).Run(t.Context(), job)
			want(t, r, tc.result, tc.exit)
			if tc.says != "" {
				if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool { return strings.Contains(f.Problem, tc.says) && f.Hint != "" }) {
					t.Errorf("not said: %+v", r.Findings)
				}
			} else if s.get("made") != nil {
				t.Error("what a controller made because of us stays")
			}
			if s.get("was-there") == nil || s.get("label").Labels["inject"] != "" {
				t.Error("what was there before goes, or the label stays")
			}
		})
	}
}

func TestEngineConflicts(t *testing.T) {
	t.Parallel()
	t.Run("AForeignObjectIsLeftAlone", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		job := fixed("foreign", func() *migration.Plan {
			return &migration.Plan{Units: []migration.Unit{s.creation("a"), s.creation("b")}}
		})
		s.put("b", map[string]string{"mine": "1"})
		r := s.engine(nil).Run(t.Context(), job)
		want(t, r, migration.RolledBack, 1)
		if s.get("a") != nil || s.get("b").Data["mine"] != "1" {
			t.Error("a must be gone, b untouched")
		}
		if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Problem, "not made by this run") {
			t.Errorf("findings: %+v", r.Findings)
		}
	})
	t.Run("AnEditBetweenPlanAndWrite", func(t *testing.T) {
		t.Parallel()
		s := newSandbox(t)
		for _, name := range []string{"other-field", "our-field", "deleted"} {
			s.put(name, map[string]string{"ours": "old", "theirs": "1"})
		}
		patch := func(name string) migration.Unit {
			return migration.Unit{ID: name, Changes: []migration.Change{{Verb: migration.Patch, Ref: s.ref(name), Patch: []byte(`{"data":{"ours":"new"}}`)}}}
		}
		stale, err := migrationObject(s, "deleted")
		if err != nil {
			t.Fatal(err)
		}
		edit := func(name, patch string) {
			if _, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
		// The pre-images are in the journal when the first unit runs: it waits
		// until the edits are made.
		job := fixed("edited", func() *migration.Plan {
			return &migration.Plan{Serial: true, Units: []migration.Unit{
				s.creation("gate"), patch("other-field"), patch("our-field"),
			}}
		})
		job.await = func(ch *migration.Change) []migration.Condition {
			if ch.Ref.Name != "gate" {
				return nil
			}
			return until(signed, 0)(ch)
		}
		go func() {
			s.appears("gate")
			edit("other-field", `{"data":{"theirs":"2"}}`)
			edit("our-field", `{"data":{"ours":"theirs now"}}`)
			s.sign("gate")
		}()
		r := s.engine(nil).Run(t.Context(), job)
		// An edited object is left and reported, and changes that do not depend on it are made.
		want(t, r, migration.DeferredResult, 0)
		wantDeferred(t, r, s.ref("our-field"))
		if got := s.get("other-field").Data; got["ours"] != "new" || got["theirs"] != "2" {
			t.Errorf("other-field: %v", got)
		}
		if got := s.get("our-field").Data["ours"]; got != "theirs now" {
			t.Errorf("our-field: %v", got)
		}
		// A deletion insists on the version that the plan saw.
		edit("deleted", `{"data":{"theirs":"2"}}`)
		job = fixed("deleted", func() *migration.Plan {
			return &migration.Plan{Units: []migration.Unit{{ID: "d", Changes: []migration.Change{{Verb: migration.Delete, Ref: s.ref("deleted"), Object: stale}}}}}
		})
		r = s.engine(nil).Run(t.Context(), job)
		want(t, r, migration.DeferredResult, 0)
		wantDeferred(t, r, s.ref("deleted"))
		if s.get("deleted") == nil {
			t.Error("what was edited since the plan must not be deleted")
		}
	})
}

func wantDeferred(t *testing.T, r *migration.Report, ref migration.Ref) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Severity == migration.Deferred && f.Object == ref.String() {
			return
		}
	}
	t.Errorf("no finding says that %s is deferred: %v", ref, r.Findings)
}

func TestEngineNamesEveryRefusal(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	if err := cluster.Lacks("ValidatingAdmissionPolicy", 30); err != nil {
		t.Skip(err)
	}
	name := "deny-" + s.namespace
	policies := s.client.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: `!object.metadata.name.startsWith("bad")`, Message: "no bad ones here"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = policies.ValidatingAdmissionPolicies().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.namespace}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	// A policy takes a moment to be in force.
	poll.Until(t, 30*time.Second, "the policy is in force", func(ctx context.Context) error {
		_, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil {
			return errors.New("what it denies may be created")
		}
		return nil
	})
	job := fixed("refused", func() *migration.Plan {
		p := &migration.Plan{Parallelism: 1}
		for i := range 20 {
			p.Units = append(p.Units, s.creation(fmt.Sprintf("good-%02d", i)))
			if i%5 == 4 {
				bad := s.creation(fmt.Sprintf("bad-%02d", i))
				if i > 5 { // the first has to be written, and fail
					bad.Changes = slices.Insert(bad.Changes, 0, migration.Change{Verb: migration.Await, Ref: s.ref("good-00")})
				}
				p.Units = append(p.Units, bad)
			}
		}
		return p
	})
	r := s.engine(nil).Run(t.Context(), job)
	want(t, r, migration.RolledBack, 1)
	named := 0
	for _, f := range r.Findings {
		if strings.Contains(f.Problem, "no bad ones here") && f.Hint != "" {
			named++
		}
	}
	if named != 4 {
		t.Errorf("want all 4 refused objects named, got %d: %+v", named, r.Findings)
	}
	list, err := s.client.CoreV1().ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cm := range list.Items {
		if strings.HasPrefix(cm.Name, "good") {
			t.Errorf("%s is left behind", cm.Name)
		}
	}
}

// engineOf is an engine whose account may write ConfigMaps and the state, delete nothing,
// and do what the rules say.
func (s *sandbox) engineOf(user string, rules ...rbacv1.PolicyRule) *engine.Engine {
	s.t.Helper()
	kubeconfig, err := cluster.User(s.t.Context(), user, append(rules, rbacv1.PolicyRule{
		APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases", "secrets"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch"},
	})...)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	e, err := engine.New(cfg, engine.Options{Names: names, StateNamespace: s.namespace, Identity: "preflight", LeaseDuration: time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func TestEnginePreflight(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	e := s.engineOf("preflight")
	r := e.Run(t.Context(), fixed("preflight", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("a")}} }))
	want(t, r, migration.Refused, migration.ExitRefused)
	var missing []string
	for _, f := range r.Findings {
		missing = append(missing, strings.TrimPrefix(f.Problem, "missing permission: "))
	}
	wanted := []string{"delete configmaps in namespace " + s.namespace, "delete secrets in namespace " + s.namespace}
	if !slices.Equal(missing, wanted) {
		t.Errorf("got %q, want %q", missing, wanted)
	}
	if s.get("a") != nil || s.phases() != "" {
		t.Error("something was written")
	}
}

// named is a job with a table of its own.
type named struct {
	*scripted
	rows []migration.Access
}

func (n named) Access() []migration.Access { return n.rows }

// Fails on the commit before: of what a row of the whole cluster limits to some names,
// the preflight asked for the kind.
func TestEnginePreflightAsksByName(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	e := s.engineOf("preflight-by-name",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"delete"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"a"}, Verbs: []string{"delete"}},
	)
	job := named{fixed("by-name", func() *migration.Plan {
		return &migration.Plan{Units: []migration.Unit{s.creation("a"), s.creation("b")}}
	}), []migration.Access{{Resource: "configmaps", Names: []string{"a", "b"}, Verbs: []string{"delete"}}}}
	r := e.Run(t.Context(), job)
	want(t, r, migration.Refused, migration.ExitRefused)
	var missing []string
	for _, f := range r.Findings {
		missing = append(missing, strings.TrimPrefix(f.Problem, "missing permission: "))
	}
	wanted := []string{"delete configmaps b in namespace " + s.namespace}
	if !slices.Equal(missing, wanted) {
		t.Errorf("got %q, want %q", missing, wanted)
	}
}

func TestEngineSaysTheSameOnlyOnce(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	finding := migration.Finding{Severity: migration.Deferred, Object: "ConfigMap x/y", Problem: "is not switched yet"}
	job := fixed("deferred", func() *migration.Plan { return &migration.Plan{Findings: []migration.Finding{finding}} })
	version := func() string {
		t.Helper()
		return s.get("mover-deferred").ResourceVersion
	}
	want(t, s.engine(nil).Run(t.Context(), job), migration.DeferredResult, 0)
	first := version()
	r := s.engine(nil).Run(t.Context(), job)
	want(t, r, migration.DeferredResult, 0)
	if version() != first || r.Requests.Writes != 0 {
		t.Error("a second deferred run must write nothing")
	}
	want(t, s.engine(func(o *engine.Options) { o.Defer = engine.DeferFail }).Run(t.Context(), job), migration.FailedResult, 1)
	job.plan = func(context.Context, *migration.Cluster) (*migration.Plan, error) { return &migration.Plan{}, nil }
	want(t, s.engine(nil).Run(t.Context(), job), migration.NothingToDo, 0)
	var stored migration.Report
	if err := json.Unmarshal([]byte(s.get("mover-deferred").Data["report.json"]), &stored); err != nil || stored.Result != migration.NothingToDo {
		t.Errorf("the stored report must say what is true now: %+v, %v", stored, err)
	}
	last := version()
	if r := s.engine(nil).Run(t.Context(), job); r.Requests.Writes != 0 || version() != last {
		t.Error("nothing to do is said once")
	}
}

func TestEngineBoundsWhatWaits(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	const limit = 3
	job := fixed("bounded", func() *migration.Plan {
		p := &migration.Plan{Parallelism: 8}
		for i := range 12 {
			p.Units = append(p.Units, s.creation(fmt.Sprintf("o-%02d", i)))
		}
		return p
	})
	job.await = until(signed, 0)
	var unready, peak atomic.Int64
	w, err := s.client.CoreV1().ConfigMaps(s.namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	go func() {
		for event := range w.ResultChan() {
			cm, ok := event.Object.(*corev1.ConfigMap)
			if !ok || event.Type != "ADDED" || !strings.HasPrefix(cm.Name, "o-") {
				continue
			}
			peak.Store(max(peak.Load(), unready.Add(1)))
			go func() {
				time.Sleep(100 * time.Millisecond)
				unready.Add(-1)
				s.sign(cm.Name)
			}()
		}
	}()
	want(t, s.engine(func(o *engine.Options) { o.MaxUnready = limit }).Run(t.Context(), job), migration.Succeeded, 0)
	if got := peak.Load(); got > limit || got == 0 {
		t.Errorf("%d objects were unready at once, the limit is %d", got, limit)
	}
}

// TestEngineListsOnce: units that all begin to wait for one kind at once must
// look at the same list of it. With a list each, what one of them had shown was
// "deleted" in the next.
func TestEngineListsOnce(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	job := fixed("lists-once", func() *migration.Plan {
		p := &migration.Plan{Parallelism: 32}
		for i := range 32 {
			p.Units = append(p.Units, s.creation(fmt.Sprintf("o-%02d", i)))
		}
		return p
	})
	job.await = func(ch *migration.Change) []migration.Condition {
		return []migration.Condition{{Text: "it to be there", On: []migration.Subject{ch.Ref.Subject()}, Eval: func(v migration.View) migration.Status {
			if v.Get(ch.Ref.Subject()) == nil {
				return migration.Status{Message: "not yet"}
			}
			return migration.Status{State: migration.Met}
		}}}
	}
	mark, err := cluster.Mark(t.Context())
	if errors.Is(err, kubernetes.ErrNoAudit) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
	for _, verb := range []string{"list", "watch"} {
		requests, err := cluster.Requests(t.Context(), mark, func(r kubernetes.Request) bool {
			return r.Verb == verb && r.Resource == "configmaps" && r.Namespace == s.namespace
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(requests) != 1 {
			t.Errorf("%d times %s, want once: %v", len(requests), verb, requests)
		}
	}
}

func TestEngineRestartsPods(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	deployments := migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Kind: "Deployment"}
	labels := map[string]string{"app": "broker"}
	_, err := s.client.AppsV1().Deployments(s.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "broker"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// There is no kubelet here: whatever pod appears is made Ready.
	pods := s.client.CoreV1().Pods(s.namespace)
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	names := make(chan string, 10)
	go func() {
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type != "ADDED" {
				continue
			}
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if _, err := pods.UpdateStatus(context.Background(), pod, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
			names <- pod.Name
		}
	}()
	former := <-names
	job := fixed("restart", func() *migration.Plan {
		return &migration.Plan{Units: []migration.Unit{{ID: "r", Changes: []migration.Change{{
			Verb: migration.Restart, Ref: migration.Ref{Resource: deployments, Namespace: s.namespace, Name: "broker"},
		}}}}}
	})
	want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name == former {
		t.Errorf("the pod was not replaced: %d pods", len(list.Items))
	}
}

func TestEngineRefusesWhatCannotBeDecided(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	for _, tc := range []struct {
		reason string
		plan   func() *migration.Plan
		result migration.Result
		exit   int
		says   string
	}{
		{"a panic in a job is its error", func() *migration.Plan { panic("nil somewhere") }, migration.FailedResult, 1, "nil somewhere"},
		{"every error finding is reported", func() *migration.Plan {
			return &migration.Plan{Units: []migration.Unit{s.creation("a")}, Findings: []migration.Finding{{Severity: migration.Error, Problem: "one"}, {Severity: migration.Error, Problem: "two"}}}
		}, migration.Refused, 4, "2 problems"},
		{"a plan that cannot end in time is not begun", func() *migration.Plan {
			return &migration.Plan{Units: []migration.Unit{s.creation("a")}, Estimate: time.Hour}
		}, migration.Refused, 4, "--timeout"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			r := s.engine(nil).Run(t.Context(), fixed("undecided", tc.plan))
			want(t, r, tc.result, tc.exit)
			if !strings.Contains(r.Message, tc.says) {
				t.Errorf("message %q does not say %q", r.Message, tc.says)
			}
			if s.get("a") != nil || s.phases() != "" {
				t.Error("something was written")
			}
		})
	}
}
