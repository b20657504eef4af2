package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// policyKey is the label and the annotation that a policy of the cluster adds in these tests.
const policyKey = "policy.example.com/team"

// admitted is a sandbox whose API server changes each object of some kinds that is written, those
// in which the engine keeps its state among them.
func admitted(t *testing.T, patch string) *sandbox {
	t.Helper()
	s := newSandbox(t)
	s.put("victim", map[string]string{"k": "v"})
	s.put("patched", map[string]string{"ours": "old"})
	cluster.Mutate(t, kubernetes.Mutation{Name: "objects-" + s.namespace, Namespace: s.namespace, Resources: []string{"configmaps", "secrets"}, Patch: patch})
	return s
}

// verbs is a job that creates, patches and deletes what is left to; last is what it creates last.
func (s *sandbox) verbs() *scripted {
	return fixed("verbs", func() *migration.Plan {
		p := &migration.Plan{Parallelism: 1, Serial: true}
		if s.get("new") == nil {
			p.Units = append(p.Units, s.creation("new"))
		}
		if s.get("patched").Labels["ours"] == "" {
			p.Units = append(p.Units, migration.Unit{ID: "patched", Changes: []migration.Change{{
				Verb: migration.Patch, Ref: s.ref("patched"), Patch: []byte(`{"data":{"ours":"new"},"metadata":{"labels":{"ours":"1"},"annotations":{"ours":"1"}}}`),
			}}})
		}
		if s.get("victim") != nil {
			p.Units = append(p.Units, s.deletion("victim"))
		}
		if s.get("last") == nil {
			p.Units = append(p.Units, s.creation("last"))
		}
		return p
	})
}

// TestWhatAPolicyAdds: labels and annotations that a policy adds at each write are nobody's edit.
// A run, a rollback and an undo do what they would do without, and say what an object has more.
func TestWhatAPolicyAdds(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(s *sandbox) *migration.Report{
		"RolledBack": func(s *sandbox) *migration.Report {
			job := s.verbs()
			job.await = func(ch *migration.Change) []migration.Condition {
				if ch.Ref.Name != "last" {
					return nil
				}
				return until(signed, time.Second)(ch)
			}
			r := s.engine(nil).Run(s.t.Context(), job)
			want(s.t, r, migration.RolledBack, migration.ExitFailed)
			return r
		},
		"Undone": func(s *sandbox) *migration.Report {
			want(s.t, s.engine(nil).Run(s.t.Context(), s.verbs()), migration.Succeeded, migration.ExitOK)
			want(s.t, s.engine(nil).Run(s.t.Context(), s.verbs()), migration.NothingToDo, migration.ExitOK)
			r := s.engine(nil).Undo(s.t.Context(), s.verbs())
			want(s.t, r, migration.Succeeded, migration.ExitOK)
			return r
		},
		"KilledResumedUndone": func(s *sandbox) *migration.Report {
			s.killedAtDelete(s.verbs(), "victim", diesAfter)
			want(s.t, s.engine(nil).Run(s.t.Context(), s.verbs()), migration.Succeeded, migration.ExitOK)
			r := s.engine(nil).Undo(s.t.Context(), s.verbs())
			want(s.t, r, migration.Succeeded, migration.ExitOK)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := admitted(t, kubernetes.Labelled(policyKey))
			r := back(s)
			if s.get("new") != nil || s.get("last") != nil {
				t.Error("what the run had created is there")
			}
			if victim := s.get("victim"); victim == nil || victim.Data["k"] != "v" || victim.Labels[policyKey] == "" {
				t.Errorf("what the run had deleted: %v", victim)
			}
			if patched := s.get("patched"); patched.Data["ours"] != "old" || patched.Labels["ours"]+patched.Annotations["ours"] != "" || patched.Labels[policyKey] == "" {
				t.Errorf("what the run had patched: %v", patched)
			}
			if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
				return f.Severity == migration.Warning && f.Object == s.ref("victim").String() && strings.Contains(f.Problem, "in addition metadata.annotations."+policyKey+", metadata.labels."+policyKey)
			}) || !strings.Contains(r.Message, "see the warnings") {
				t.Errorf("what the policy added to an object is not said: %s, %+v", r.Message, r.Findings)
			}
		})
	}
}

// TestWhatAPolicyChanges: of a field that a run wants and a policy sets, both values are said.
func TestWhatAPolicyChanges(t *testing.T) {
	t.Parallel()
	s := admitted(t, `object.kind == "ConfigMap" && has(object.data) && has(object.data.ours) ? [JSONPatch{op: "replace", path: "/data/ours", value: "policy"}] : []`)
	r := s.engine(nil).Run(t.Context(), s.verbs())
	want(t, r, migration.Succeeded, migration.ExitOK)
	if !strings.Contains(r.Message, "the API server stored 1 object otherwise than sent") {
		t.Errorf("it says only: %s", r.Message)
	}
	if len(r.Findings) != 1 || r.Findings[0].Object != s.ref("patched").String() || r.Findings[0].Command != "kubectl -n "+s.namespace+" get configmaps patched -o yaml" ||
		!strings.Contains(r.Findings[0].Problem, `data.ours is "policy", and not "new"`) {
		t.Errorf("findings: %+v", r.Findings)
	}
}
