package suite

import (
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// NoWriteWhenDone runs the job on a cluster where nothing is left to do: it must
// only read, and say so under its own name. Such a run takes no lock, so that two
// at once are no trouble either.
func NoWriteWhenDone(t *testing.T, subject Subject) {
	s := subject.with(t)
	s.reset(t)
	out := s.finishes(t)
	t.Run("AfterItsOwnRun", s.onlyReads)
	t.Run("WithoutAnyState", func(t *testing.T) {
		if out.report.Result == migration.DeferredResult {
			t.Skip("what is deferred is reported once")
		}
		// Somebody else, or the installer, may have migrated the cluster.
		s.forget(t)
		s.onlyReads(t)
	})
}

func (s *Subject) onlyReads(t *testing.T) {
	var mark kubernetes.Mark
	audit := s.Audit != nil && s.Audit.AuditLog != ""
	if audit {
		var err error
		if mark, err = s.Audit.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	proxy, kubeconfig := s.proxy(t)
	runs := []*Process{s.start(t, kubeconfig, "run"), s.start(t, kubeconfig, "run")}
	for _, p := range runs {
		out := p.outcome()
		out.mustExit(t, migration.ExitOK)
		if out.report.Result != migration.NothingToDo && out.report.Result != migration.DeferredResult {
			t.Errorf("nothing is left to do%s", out.said())
		}
		if out.report.Requests.Writes != 0 {
			t.Errorf("the report counts %d writes", out.report.Requests.Writes)
		}
	}
	if made := writes(proxy.Log()); len(made) > 0 {
		t.Errorf("the run wrote: %v", made)
	}
	agent := s.Name + "/"
	for _, e := range proxy.Log() {
		if !strings.HasPrefix(e.UserAgent, agent) {
			t.Errorf("%s came from user agent %q, want %s…", e.Request, e.UserAgent, agent)
		}
	}
	if audit {
		// The API server's own word for it.
		requests, err := s.Audit.Requests(t.Context(), mark, kubernetes.By(agent))
		if err != nil {
			t.Fatal(err)
		}
		if len(requests) == 0 {
			t.Errorf("the audit log knows of no request by %s…", agent)
		}
		for _, r := range requests {
			if kubernetes.IsWrite(r) {
				t.Errorf("the audit log has a write: %s", r)
			}
		}
	}
	s.done(t)
}
