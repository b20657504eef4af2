package engine_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// stateless is a sandbox whose jobs keep their state in another namespace, which does not
// exist.
func stateless(t *testing.T) (s *sandbox, state string) {
	t.Helper()
	s = newSandbox(t)
	state = s.namespace + "-state"
	t.Cleanup(func() {
		_ = s.client.CoreV1().Namespaces().Delete(context.Background(), state, metav1.DeleteOptions{})
	})
	return s, state
}

func in(state string) func(*engine.Options) {
	return func(o *engine.Options) { o.StateNamespace = state }
}

func (s *sandbox) hasNamespace(name string) bool {
	s.t.Helper()
	_, err := s.client.CoreV1().Namespaces().Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return err == nil
}

// user is an engine with the account that these rules give.
func (s *sandbox) user(change func(*engine.Options), rules ...rbacv1.PolicyRule) *engine.Engine {
	s.t.Helper()
	kubeconfig, err := cluster.User(s.t.Context(), s.namespace, rules...)
	if err != nil {
		s.t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	e, err := engine.New(cfg, s.options(change))
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// working may do what the scripted jobs do, and reach the state.
func working() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases", "secrets"},
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
	}}
}

// TestStateNamespaceIsMadeByTheFirstWrite: reads get along without it. Fails on the commit
// before: a run ended without a Lease, and said that the namespace does not exist.
func TestStateNamespaceIsMadeByTheFirstWrite(t *testing.T) {
	t.Parallel()
	s, state := stateless(t)
	job := fixed("stateful", func() *migration.Plan {
		if s.get("a") != nil {
			return nil
		}
		return &migration.Plan{Units: []migration.Unit{s.creation("a")}}
	})
	e := s.engine(in(state))
	want(t, e.Plan(t.Context(), job), migration.Planned, 0)
	want(t, e.Undo(t.Context(), job), migration.NothingToDo, 0)
	want(t, e.Run(t.Context(), fixed("stateful", func() *migration.Plan { return nil })), migration.NothingToDo, 0)
	if kept, err := e.State(t.Context()); err != nil || kept.Lock != nil || len(kept.Journals)+len(kept.Reports) > 0 {
		t.Errorf("%+v, %v", kept, err)
	}
	if s.hasNamespace(state) {
		t.Fatal("it was created although nothing was to be written")
	}
	want(t, e.Run(t.Context(), job), migration.Succeeded, 0)
	kept, err := e.State(t.Context())
	if err != nil || len(kept.Journals) != 1 || kept.Reports["stateful"] == nil {
		t.Errorf("%+v, %v", kept, err)
	}
	want(t, e.Undo(t.Context(), job), migration.Succeeded, 0)
}

// TestStateNamespaceOfAReport: what is refused writes a report, and no more.
func TestStateNamespaceOfAReport(t *testing.T) {
	t.Parallel()
	s, state := stateless(t)
	job := fixed("refused", func() *migration.Plan {
		return &migration.Plan{Findings: []migration.Finding{{Severity: migration.Error, Problem: "no"}}}
	})
	want(t, s.engine(in(state)).Run(t.Context(), job), migration.Refused, migration.ExitRefused)
	if kept, err := s.engine(in(state)).State(t.Context()); err != nil || kept.Reports["refused"] == nil {
		t.Errorf("there is no report: %+v, %v", kept, err)
	}
}

// TestStateNamespaceCannotBeMade: who may not create it, and who comes while it goes, is
// told what to do before anything is changed.
func TestStateNamespaceCannotBeMade(t *testing.T) {
	t.Parallel()
	s, state := stateless(t)
	job := fixed("homeless", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("a")}} })
	refused := func(r *migration.Report, problem, hint string) {
		t.Helper()
		want(t, r, migration.Refused, migration.ExitRefused)
		if len(r.Findings) != 1 || r.Findings[0].Object != "Namespace "+state || !strings.Contains(r.Findings[0].Problem, problem) || !strings.Contains(r.Findings[0].Hint, hint) {
			t.Errorf("want %q, %q; got %+v", problem, hint, r.Findings)
		}
		if s.get("a") != nil {
			t.Error("it wrote")
		}
	}
	e := s.user(in(state), working()...)
	refused(e.Run(t.Context(), job), "does not exist, and this account cannot create it", "kubectl create namespace "+state)

	// A finalizer of its own holds it in Terminating.
	namespaces := s.client.CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: state, Finalizers: []string{"example.com/hold"}}}, metav1.CreateOptions{})
	if err == nil {
		err = namespaces.Delete(t.Context(), state, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = namespaces.Patch(context.Background(), state, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	refused(s.engine(in(state)).Run(t.Context(), job), "is being deleted", "kubectl wait --for=delete namespace/"+state)
	refused(s.engine(in(state)).CreateStateNamespace(t.Context(), job), "is being deleted", "kubectl wait --for=delete namespace/"+state)
}

// TestCreateStateNamespace is what the first hook of a chart runs, with its account.
func TestCreateStateNamespace(t *testing.T) {
	t.Parallel()
	s, state := stateless(t)
	job := fixed("any", func() *migration.Plan { return nil })
	e := s.user(in(state),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{state}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}},
	)
	want(t, e.CreateStateNamespace(t.Context(), job), migration.Succeeded, 0)
	if !s.hasNamespace(state) {
		t.Fatal("it does not exist")
	}
	r := e.CreateStateNamespace(t.Context(), job)
	want(t, r, migration.NothingToDo, 0)
	if r.Requests.Writes != 0 {
		t.Errorf("it exists, and %d writes were made", r.Requests.Writes)
	}
}

// marks are the jobs of which the Lease says that a run is open.
func (s *sandbox) marks() []string {
	s.t.Helper()
	lease, err := s.client.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), "mover", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	var jobs []string
	for key, since := range lease.Annotations {
		if key == "mover.example.com/holder" {
			continue // it says who holds the Lease
		}
		job, ok := strings.CutPrefix(key, "mover.example.com/open-")
		if _, err := time.Parse(time.RFC3339, since); err != nil || !ok {
			s.t.Errorf("%s: %s", key, since)
		}
		jobs = append(jobs, job)
	}
	slices.Sort(jobs)
	return jobs
}

func (s *sandbox) marked(when string, jobs ...string) {
	s.t.Helper()
	if diff := cmp.Diff(jobs, s.marks()); diff != "" {
		s.t.Errorf("%s: the Lease marks (-want +got):\n%s", when, diff)
	}
}

// TestOpenRunIsOnTheLease: from the call that takes it to the release after the journal is
// closed, whatever happens in between. Fails on the commit before: there was no mark.
func TestOpenRunIsOnTheLease(t *testing.T) {
	t.Parallel()
	write := func(method, path string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == method && strings.Contains(r.URL.Path, path) }
	}
	// A renewal names the holder, a release does not.
	release := func(r *http.Request) bool {
		if !write(http.MethodPut, "/leases")(r) {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		return !bytes.Contains(body, []byte("test-"))
	}
	for name, tc := range map[string]struct {
		reason string
		// dies is where the first run is killed, before or after the call takes effect.
		dies func(*http.Request) bool
		when moment
		// open: it leaves a mark; journal: and an open journal.
		open, journal bool
		// second is how the second run ends.
		second migration.Result
	}{
		"Lease":    {"nothing was taken", write(http.MethodPost, "/leases"), diesBefore, false, false, migration.Succeeded},
		"Between":  {"it has the lock, and no journal yet", write(http.MethodPost, "/secrets"), diesBefore, true, false, migration.Succeeded},
		"Journal":  {"the journal is there, and nothing is done", write(http.MethodPost, "/secrets"), diesAfter, true, true, migration.Succeeded},
		"Change":   {"in the middle", write(http.MethodPost, "/configmaps"), diesAfter, true, true, migration.Succeeded},
		"Closed":   {"all is done, and the journal is closed", release, diesBefore, true, false, migration.NothingToDo},
		"Released": {"the last call took effect", release, diesAfter, false, false, migration.NothingToDo},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			job := fixed("marked", func() *migration.Plan {
				if s.get("a") != nil {
					return nil
				}
				return &migration.Plan{Units: []migration.Unit{s.creation("a")}}
			})
			p := s.process(nil, func(r *http.Request) moment {
				if tc.dies(r) {
					return tc.when
				}
				return lives
			})
			p.Run(p.ctx, job)
			if !p.dead.Load() {
				t.Fatal("it was not killed")
			}
			var open []string
			if tc.open {
				open = []string{"marked"}
			}
			s.marked(tc.reason, open...)
			if got := strings.Contains(s.phases(), "forward"); got != tc.journal {
				t.Errorf("%s: an open journal: %t", tc.reason, got)
			}
			// Who may read journals believes them; who may not, the mark.
			told := func(e *engine.Engine) int {
				t.Helper()
				return len(slices.DeleteFunc(e.Plan(t.Context(), job).Findings, func(f migration.Finding) bool { return f.Severity != migration.Warning }))
			}
			if got := told(s.engine(nil)); got != map[bool]int{true: 1}[tc.journal] {
				t.Errorf("%s: a plan that reads journals tells of %d runs", tc.reason, got)
			}
			blind := s.user(nil, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}})
			if got := told(blind); got != map[bool]int{true: 1}[tc.open] {
				t.Errorf("%s: a plan that reads the Lease only tells of %d runs", tc.reason, got)
			}
			want(t, s.engine(nil).Run(t.Context(), job), tc.second, 0)
			s.marked("after the second run")
			if r := s.engine(nil).Run(t.Context(), job); r.Result != migration.NothingToDo || r.Requests.Writes != 0 {
				t.Errorf("the third run: %s, %d writes", r.Result, r.Requests.Writes)
			}
		})
	}
}

// TestOpenRunsOfSeveralJobs: each has its mark, a rollback that did not end keeps it, and
// a Lease that was deleted gets them back.
func TestOpenRunsOfSeveralJobs(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	job := func(name string) *scripted {
		j := fixed(name, func() *migration.Plan {
			return &migration.Plan{Serial: true, Units: []migration.Unit{s.creation(name + "-gate"), s.creation(name + "-b")}}
		})
		j.await = awaiting(name + "-gate")
		return j
	}
	one, two := job("one"), job("two")
	for _, j := range []*scripted{one, two} {
		s.killedWhile(j, func() { s.appears(j.name + "-gate") })
	}
	s.marked("both were killed", "one", "two")

	// The rollback of one is killed, too.
	p := s.process(nil, func(r *http.Request) moment {
		if r.Method == http.MethodDelete {
			return diesAfter
		}
		return lives
	})
	p.Undo(p.ctx, one)
	s.marked("a rollback was killed", "one", "two")
	if err := s.client.CoordinationV1().Leases(s.namespace).Delete(t.Context(), "mover", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want(t, s.engine(nil).Undo(t.Context(), one), migration.Succeeded, 0)
	s.marked("one is undone, on a new Lease", "two")

	// An account that may not read journals knows of them all the same.
	blind := s.user(nil,
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
	)
	for _, read := range []func(context.Context) (*engine.State, error){blind.State, blind.OpenState} {
		kept, err := read(t.Context())
		if err != nil || len(kept.Journals) != 1 || kept.Open("two") == nil || kept.Open("one") != nil || kept.Open("two").StartedAt.IsZero() {
			t.Errorf("%+v, %v", kept, err)
		}
	}

	// Two jobs of one process share the Lease; each mark goes when its job is done.
	s.sign("two-gate")
	shared := engine.NewSharedLock()
	three := fixed("three", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("c")}} })
	identity := func(o *engine.Options) { o.Identity = "shared-" + s.namespace }
	run := func(j migration.Job) *migration.Report {
		return s.engine(func(o *engine.Options) { identity(o); o.Seat = shared.Seat() }).Run(t.Context(), j)
	}
	want(t, run(two), migration.Succeeded, 0)
	held := s.marks()
	three.await = func(ch *migration.Change) []migration.Condition {
		return []migration.Condition{{Text: "nothing", On: []migration.Subject{ch.Ref.Subject()}, Eval: func(migration.View) migration.Status {
			if got := s.marks(); !slices.Contains(got, "three") {
				t.Errorf("three is at work, and the Lease marks %q", got)
			}
			return migration.Status{State: migration.Met}
		}}}
	}
	want(t, run(three), migration.Succeeded, 0)
	shared.Release()
	s.marked("all are done, and the Lease is released")
	if len(held) > 1 {
		t.Errorf("between the two: %q", held)
	}
}

// reader is a job that only reads.
type reader struct{ *scripted }

func (reader) OnlyReads() {}

// TestReaderNeedsNoSecrets: neither a run of a job that only reads nor a plan asks for
// journals, so that their accounts need no permission. Fails on the commit before: both
// were refused.
func TestReaderNeedsNoSecrets(t *testing.T) {
	t.Parallel()
	if !cluster.Own() {
		t.Skip("needs the audit log")
	}
	s := newSandbox(t)
	mark, err := cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deferred := fixed("reader", func() *migration.Plan {
		return &migration.Plan{Findings: []migration.Finding{{Severity: migration.Deferred, Problem: "later"}}}
	})
	e := s.user(nil, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update"}})
	want(t, e.Run(t.Context(), reader{deferred}), migration.DeferredResult, 0)
	planner := s.user(nil, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}})
	want(t, planner.Plan(t.Context(), deferred), migration.Planned, 0)
	refused, err := cluster.Requests(t.Context(), mark, func(r kubernetes.Request) bool {
		return r.Code == http.StatusForbidden && strings.Contains(r.User, s.namespace)
	})
	if err != nil || len(refused) > 0 {
		t.Errorf("refused: %v, %v", refused, err)
	}
	writes := reader{fixed("liar", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("a")}} })}
	want(t, s.engine(nil).Run(t.Context(), writes), migration.FailedResult, 1)
	if s.get("a") != nil {
		t.Error("a job that says that it only reads wrote")
	}
}

// TestTwoPrograms: what one program of this library keeps, another one does not see, not even in
// the same namespace and for a job of the same name; and nothing in the cluster is called after us.
func TestTwoPrograms(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	job := fixed("same", func() *migration.Plan {
		return &migration.Plan{Serial: true, Units: []migration.Unit{s.creation("gate"), s.creation("b")}}
	})
	job.await = awaiting("gate")
	s.killedWhile(job, func() { s.appears("gate") })
	s.marked("it was killed", "same")

	other := s.engine(func(o *engine.Options) { o.Names = migration.Names{Program: "other"} })
	kept, err := other.State(t.Context())
	if err != nil || len(kept.Journals) != 0 || len(kept.Reports) != 0 || kept.Lock != nil {
		t.Errorf("another program sees %+v, %v", kept, err)
	}
	want(t, other.Undo(t.Context(), job), migration.NothingToDo, 0)
	idle := fixed("same", func() *migration.Plan { return &migration.Plan{Units: []migration.Unit{s.creation("of-other")}} })
	want(t, other.Run(t.Context(), idle), migration.Succeeded, 0)
	if mark := s.get("of-other").Annotations["other/change"]; mark == "" {
		t.Errorf("annotations: %v", s.get("of-other").Annotations)
	}
	want(t, s.engine(nil).Undo(t.Context(), job), migration.Succeeded, 0)
	if s.get("of-other") == nil {
		t.Error("the undo of one program took what another one has made")
	}

	for _, kind := range []string{"configmaps", "secrets", "events"} {
		raw, err := s.client.CoreV1().RESTClient().Get().Namespace(s.namespace).Resource(kind).Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"kyma", "eventmesh", "EventMesh"} {
			if strings.Contains(string(raw), word) {
				t.Errorf("%q is in the %s of the state namespace: %s", word, kind, raw)
			}
		}
	}
}
