package engine_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// unsure is a job that cannot say what carries live events, while unknown is set.
type unsure struct {
	*scripted
	unknown atomic.Bool
}

func (u *unsure) Protect(context.Context, *migration.Cluster, []migration.Ref) (map[migration.Ref]string, error) {
	if u.unknown.Load() {
		return nil, errors.New("NATS does not answer")
	}
	return nil, nil
}

// TestEngineKeepsWhileUnsure (M10, M27): while nobody can say what carries live events,
// nothing is deleted, and the journal stays open; the next run finishes the rollback.
func TestEngineKeepsWhileUnsure(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("victim", map[string]string{"k": "v"})
	planned := true
	job := &unsure{scripted: fixed("unsure", func() *migration.Plan {
		if !planned {
			return nil
		}
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.creation("a"), s.deletion("victim"), s.creation("gate")}}
	})}
	job.unknown.Store(true)
	job.await = awaiting("gate")
	go func() {
		s.appears("gate")
		s.edit("gate", signBad)
	}()
	r := s.engine(nil).Run(t.Context(), job)
	want(t, r, migration.PartlyRestored, 3)
	if s.get("a") == nil || s.get("gate") == nil {
		t.Error("nothing may be deleted")
	}
	if s.get("victim") == nil {
		t.Error("what was deleted must be restored all the same")
	}
	if s.phases() != "rollback" || len(says(r, "NATS does not answer")) != 2 {
		t.Errorf("the journal must stay open, and both be named: %s, %+v", s.phases(), r.Findings)
	}
	job.unknown.Store(false)
	planned = false
	want(t, s.engine(nil).Run(t.Context(), job), migration.NothingToDo, 0)
	if s.get("a") != nil || s.get("gate") != nil || s.phases() != "rolled-back" {
		t.Errorf("the next run must finish the rollback: %s", s.phases())
	}
}

// TestEngineKeepsWhatBecameLive: what begins to carry live events while a rollback is under
// way stays. Fails on the commit before: the job was asked once, when the rollback began.
func TestEngineKeepsWhatBecameLive(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	var until atomic.Int64
	e := s.engineThrough(nil, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if s.request(r, http.MethodDelete, "gate") {
				until.CompareAndSwap(0, time.Now().Add(2500*time.Millisecond).UnixNano())
				if time.Now().UnixNano() < until.Load() {
					return answer(r, http.StatusServiceUnavailable, "for a moment"), nil
				}
			}
			return next.RoundTrip(r)
		})
	})
	job := fixed("became-live", func() *migration.Plan {
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.creation("a"), s.creation("gate")}}
	})
	job.await = awaiting("gate")
	job.keep = func([]migration.Ref) (map[migration.Ref]string, error) {
		if until.Load() == 0 {
			return nil, nil
		}
		return map[migration.Ref]string{s.ref("a"): "it carries live events"}, nil
	}
	go func() {
		s.appears("gate")
		s.edit("gate", signBad)
	}()
	r := e.Run(t.Context(), job)
	want(t, r, migration.PartlyRestored, 3)
	if s.get("a") == nil || s.get("gate") != nil {
		t.Errorf("a carries live events and stays, gate is deleted: %s", r.Message)
	}
}

// TestEngineRollbackIsRefused (M27): what could not be restored for now keeps the journal
// open.
func TestEngineRollbackIsRefused(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("victim", map[string]string{"k": "v"})
	var refuses atomic.Bool
	e := s.engineThrough(nil, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if refuses.Load() && s.request(r, http.MethodPost, "") {
				return answer(r, http.StatusForbidden, "a quota is full"), nil
			}
			return next.RoundTrip(r)
		})
	})
	planned := true
	job := fixed("refused-back", func() *migration.Plan {
		if !planned {
			return nil
		}
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.deletion("victim"), s.creation("gate")}}
	})
	job.await = awaiting("gate")
	go func() {
		s.appears("gate")
		refuses.Store(true)
		s.edit("gate", signBad)
	}()
	r := e.Run(t.Context(), job)
	want(t, r, migration.PartlyRestored, 3)
	if s.phases() != "rollback" || !strings.Contains(r.Message, "the journal keeps everything") {
		t.Errorf("the journal must stay open: %s, %s", s.phases(), r.Message)
	}
	planned = false
	want(t, s.engine(nil).Run(t.Context(), job), migration.NothingToDo, 0)
	if cm := s.get("victim"); cm == nil || cm.Data["k"] != "v" || s.phases() != "rolled-back" {
		t.Errorf("not restored; journal phases %s", s.phases())
	}
}

// TestEngineUndoTwice (M12, M19): an undo leaves all fields of an object of which one was
// edited, and what it left can be undone once the edit is gone.
func TestEngineUndoTwice(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("patched", map[string]string{"ours": "old"})
	job := fixed("twice", func() *migration.Plan {
		return &migration.Plan{Units: []migration.Unit{s.creation("a"), {ID: "p", Changes: []migration.Change{{
			Verb: migration.Patch, Ref: s.ref("patched"), Patch: []byte(`{"data":{"ours":"new","added":"x"}}`),
		}}}}}
	})
	want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
	s.edit("patched", `{"data":{"ours":"edited"}}`)
	want(t, s.engine(nil).Undo(t.Context(), job), migration.PartlyRestored, 3)
	if got := s.get("patched").Data; got["ours"] != "edited" || got["added"] != "x" {
		t.Errorf("the edited object must be left as it is: %v", got)
	}
	if s.get("a") != nil || s.phases() != "done" {
		t.Errorf("the rest must be undone, and the journal kept: %s", s.phases())
	}
	s.edit("patched", `{"data":{"ours":"new"}}`)
	want(t, s.engine(nil).Undo(t.Context(), job), migration.Succeeded, 0)
	if got := s.get("patched").Data; got["ours"] != "old" || got["added"] != "" || s.phases() != "undone" {
		t.Errorf("the second undo must take the rest: %v, %s", got, s.phases())
	}
}

// TestEngineUndoOfAnother (M22): an undo leaves an object that somebody deleted and made
// again, or is deleting.
func TestEngineUndoOfAnother(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("made-again", map[string]string{"ours": "old"})
	s.put("going", map[string]string{"ours": "old"})
	patch := func(name string) migration.Unit {
		return migration.Unit{ID: name, Changes: []migration.Change{{Verb: migration.Patch, Ref: s.ref(name), Patch: []byte(`{"data":{"ours":"new"}}`)}}}
	}
	job := fixed("another", func() *migration.Plan {
		return &migration.Plan{Units: []migration.Unit{patch("made-again"), patch("going")}}
	})
	want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
	s.remove("made-again")
	s.put("made-again", map[string]string{"ours": "new"})
	s.edit("going", `{"metadata":{"finalizers":["example.com/x"]}}`)
	s.remove("going")
	r := s.engine(nil).Undo(t.Context(), job)
	want(t, r, migration.PartlyRestored, 3)
	if s.get("made-again").Data["ours"] != "new" || len(says(r, "was created again by somebody else")) != 1 {
		t.Errorf("it is another object: %+v", r.Findings)
	}
	if len(says(r, "is being deleted by somebody else")) != 1 {
		t.Errorf("findings: %+v", r.Findings)
	}
	s.edit("going", `{"metadata":{"finalizers":null}}`)
}

// TestEngineOwnerIsAnother (M21): an owner that somebody deleted and made again is not the
// owner that a restored object had.
func TestEngineOwnerIsAnother(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	owner := s.put("owner", nil)
	s.put("owned", map[string]string{"k": "v"}, func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
	})
	job := fixed("owner", func() *migration.Plan {
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.deletion("owned"), s.creation("gate")}}
	})
	job.await = awaiting("gate")
	go func() {
		s.appears("gate")
		s.remove("owner")
		s.put("owner", nil)
		s.edit("gate", signBad)
	}()
	r := s.engine(nil).Run(t.Context(), job)
	want(t, r, migration.RolledBack, 1)
	owned := s.get("owned")
	if owned == nil || len(owned.OwnerReferences) != 0 {
		t.Errorf("it must be restored without the reference: %+v", owned)
	}
	if len(says(r, "without its owner")) != 1 {
		t.Errorf("findings: %+v", r.Findings)
	}
}

// TestEngineDeletesNoOther (M25): a deletion that meets another object of the name, made
// after the plan, leaves it.
func TestEngineDeletesNoOther(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("victim", map[string]string{"k": "v"})
	job := fixed("other", func() *migration.Plan {
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.creation("gate"), s.deletion("victim")}}
	})
	job.await = awaiting("gate")
	go func() {
		s.appears("gate")
		s.remove("victim")
		s.put("victim", map[string]string{"k": "v"})
		s.sign("gate")
	}()
	want(t, s.engine(nil).Run(t.Context(), job), migration.Succeeded, 0)
	if s.get("victim") == nil {
		t.Error("what came after the plan was deleted")
	}
}

// TestEngineAsksForPermissionsAgain (M26): the plan that is made after another run held
// the lock needs other permissions.
func TestEngineAsksForPermissionsAgain(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.put("patched", nil)
	verbs := []string{"get", "list", "watch", "create", "update", "patch"}
	kubeconfig, err := cluster.User(t.Context(), "second-"+s.namespace,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs},
		rbacv1.PolicyRule{APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"leases", "secrets"}, Verbs: append(slices.Clone(verbs), "delete")},
	)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(cfg, s.options(nil))
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewMicroTime(time.Now())
	_, err = s.client.CoordinationV1().Leases(s.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "mover"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("killed"), LeaseDurationSeconds: new(int32(1)), AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(0))},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	r := e.Run(t.Context(), fixed("second", func() *migration.Plan {
		looks++
		if looks == 1 {
			return &migration.Plan{Units: []migration.Unit{s.labelling("patched", "l")}}
		}
		return &migration.Plan{Units: []migration.Unit{s.creation("a")}}
	}))
	want(t, r, migration.Refused, migration.ExitRefused)
	if s.get("a") != nil || s.phases() != "" || len(says(r, "delete configmaps")) != 1 {
		t.Errorf("it must be refused before the first write: %+v", r.Findings)
	}
}
