package migrationtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Subject is a job, and what it is to do. All fields but Options are required.
type Subject struct {
	// Job makes the job. It is called for each run: what a job remembers does not survive
	// its process.
	Job func() migration.Job
	// Prepare puts the cluster into the state that is to be migrated, from any other, and
	// returns when its controllers are at rest. It is called some hundred times: it must be
	// quick.
	Prepare func(ctx context.Context, client dynamic.Interface) error
	// Done returns an error if the migration is not finished.
	Done func(ctx context.Context, client dynamic.Interface) error
	// Kinds are those that the job writes, or causes controllers to write. They are
	// compared. Leave out kinds whose names are random, such as Pods.
	Kinds []schema.GroupVersionResource
	// Options of the engine. Identity, Log, OnFailure, Resume and Defer are the suite's to
	// set; Timeout is 2m by default.
	Options engine.Options
}

// cluster is where a Subject runs: it is prepared, read and compared.
type cluster struct {
	Subject
	config *rest.Config
	admin  dynamic.Interface
	core   kubernetes.Interface
}

// suite is a cluster with what all subtests know.
type suite struct {
	cluster
	// before is the state that is to be migrated, after that of an undisturbed run.
	before, after state
	// undisturbed is the way of that run.
	undisturbed *wire
	// stays is why the state before cannot be restored, "" if it can.
	stays string
}

// seeds of the random faults.
var seeds = []uint64{1, 2, 3}

// Survives runs the whole suite. See the documentation of the package.
func Survives(t *testing.T, cfg *rest.Config, subject Subject) {
	s := newSuite(t, cfg, subject)
	s.baseline(t)
	t.Run("Plan", s.plan)
	t.Run("NoWriteWhenDone", s.noWriteWhenDone)
	t.Run("Undo", s.undo)
	t.Run("Rollback", s.rollback)
	t.Run("Edit", s.edit)
	t.Run("Faults", s.faults)
	t.Run("KillForward", s.killForward)
	t.Run("KillBack", s.killBack)
	t.Run("KillRollback", s.killRollback)
	t.Run("KillUndo", s.killUndo)
}

func newSuite(t *testing.T, cfg *rest.Config, subject Subject) *suite {
	t.Helper()
	if subject.Job == nil || subject.Prepare == nil || subject.Done == nil || len(subject.Kinds) == 0 {
		t.Fatal("the subject is incomplete: only Options is optional")
	}
	s := &suite{cluster: cluster{Subject: subject, config: rest.CopyConfig(cfg)}}
	s.config.QPS = -1
	s.Options.Names.Program = cmp.Or(s.Options.Names.Program, "survival-suite")
	s.Options.StateNamespace = cmp.Or(s.Options.StateNamespace, s.Options.Names.Program)
	s.Options.Timeout = cmp.Or(s.Options.Timeout, 2*time.Minute)
	var err error
	if s.admin, err = dynamic.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	if s.core, err = kubernetes.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	return s
}

// baseline runs the job undisturbed: all other runs are compared with this one.
func (s *suite) baseline(t *testing.T) {
	t.Helper()
	s.reset(t)
	var err error
	if s.before, err = stable(t.Context(), s.content); err != nil {
		t.Fatal(err)
	}
	plan, err := s.engine(t, &wire{}).Decide(t.Context(), s.Job())
	if err != nil {
		t.Fatalf("cannot plan: %v", err)
	}
	s.stays = staying(plan)
	s.undisturbed = &wire{}
	s.finishes(t, s.undisturbed)
	if s.after, err = stable(t.Context(), s.content); err != nil {
		t.Fatal(err)
	}
	if gocmp.Equal(s.before, s.after) {
		t.Fatal("a run changes nothing of the kinds of the subject: there is nothing to test")
	}
	for _, written := range s.undisturbed.work {
		listed := slices.ContainsFunc(s.Kinds, func(kind schema.GroupVersionResource) bool { return kind.GroupResource() == written })
		if !listed && written != migration.Pods.GroupResource() {
			t.Errorf("the job writes %s: add it to the kinds of the subject", written)
		}
	}
	t.Logf("an undisturbed run makes %d writes, %d of them to objects of the job", len(s.undisturbed.writes), len(s.undisturbed.work))
}

// staying says why a rollback of the plan does not restore what was there.
func staying(plan *migration.Plan) string {
	for _, u := range slices.Concat(plan.Units, plan.Last) {
		if u.Commit {
			return "unit " + u.ID + " stays once it is complete (Commit)"
		}
		for i := range u.Changes {
			if u.Changes[i].Irreversible {
				return fmt.Sprintf("to %s %s is irreversible", u.Changes[i].Verb, u.Changes[i].Ref)
			}
		}
	}
	return ""
}

func (s *suite) plan(t *testing.T) {
	s.repeats(t)
	s.reset(t)
	before := s.atRest(t)
	w := &wire{}
	report := s.engine(t, w).Plan(t.Context(), s.Job())
	if report.Result != migration.Planned || len(report.Changes) == 0 {
		t.Errorf("the plan has %d changes%s", len(report.Changes), said(report))
	}
	s.onlyRead(t, w, before)
}

func (s *suite) noWriteWhenDone(t *testing.T) {
	s.repeats(t)
	s.reset(t)
	s.finishes(t, &wire{})
	for _, again := range []struct {
		reason string
		first  func(*testing.T)
	}{
		{reason: "the second run", first: func(*testing.T) {}},
		{reason: "a run that knows of no other, because the stored state is gone", first: s.forget},
	} {
		again.first(t)
		before := s.atRest(t)
		w := &wire{}
		report := s.engine(t, w).Run(t.Context(), s.Job())
		if report.Result != migration.NothingToDo && report.Result != migration.DeferredResult {
			t.Errorf("%s: nothing is left to do%s", again.reason, said(report))
		}
		if report.Result == migration.NothingToDo {
			s.onlyRead(t, w, before)
		}
	}
}

func (s *suite) undo(t *testing.T) {
	s.repeats(t)
	s.restores(t)
	s.reset(t)
	s.finishes(t, &wire{})
	s.undoes(t)
	s.finishes(t, &wire{})
	s.equals(t, s.after, "as after the first run")
}

// rollback refuses each write of the job once.
func (s *suite) rollback(t *testing.T) {
	s.each(t, len(s.undisturbed.work), func(t *testing.T, n int) {
		s.restores(t)
		s.reset(t)
		w := &wire{refuseAt: n}
		s.fails(t, w)
		s.equals(t, s.before, "as before the run")
	})
}

// edited is the annotation of an object that somebody edits during a run.
const edited = "migrationtest/edited"

// edit lets somebody edit the objects that the plan changes, after the plan was made.
func (s *suite) edit(t *testing.T) {
	s.repeats(t)
	s.reset(t)
	plan, err := s.engine(t, &wire{}).Decide(t.Context(), s.Job())
	if err != nil {
		t.Fatalf("cannot plan: %v", err)
	}
	refs := map[migration.Ref]bool{}
	for _, u := range slices.Concat(plan.Units, plan.Last) {
		for i := range u.Changes {
			if verb := u.Changes[i].Verb; verb == migration.Delete || verb == migration.Patch {
				refs[u.Changes[i].Ref] = true
			}
		}
	}
	w := &wire{onFirst: func() {
		for ref := range refs {
			patch := []byte(`{"metadata":{"annotations":{"` + edited + `":"yes"}}}`)
			if _, err := ref.In(s.admin, ref.Namespace).Patch(t.Context(), ref.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Errorf("cannot edit %s: %v", ref, err)
			}
		}
	}}
	report := s.run(t, w)
	for ref := range refs {
		obj, err := ref.In(s.admin, ref.Namespace).Get(t.Context(), ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			t.Errorf("%s was deleted although it was edited after the plan: a Delete needs the Object that the plan has read%s", ref, said(report))
		case err != nil:
			t.Error(err)
		case obj.GetAnnotations()[edited] == "":
			t.Errorf("an edit of %s, made after the plan, is lost: a Delete needs the Object that the plan has read%s", ref, said(report))
		}
	}
	s.ends(t)
}

func (s *suite) faults(t *testing.T) {
	for _, seed := range seeds {
		random := func() *wire { return &wire{faults: rand.New(rand.NewPCG(seed, 0))} }
		t.Run(fmt.Sprintf("Seed%d/Forward", seed), func(t *testing.T) {
			s.repeats(t)
			s.reset(t)
			w := random()
			s.finishes(t, w)
			w.mustBeFaulty(t, seed)
			s.equals(t, s.after, "as after an undisturbed run")
		})
		t.Run(fmt.Sprintf("Seed%d/Rollback", seed), func(t *testing.T) {
			s.repeats(t)
			s.restores(t)
			s.reset(t)
			w := random()
			w.refuseAt = len(s.undisturbed.work)
			s.fails(t, w)
			w.mustBeFaulty(t, seed)
			s.equals(t, s.before, "as before the run")
		})
	}
}

func (w *wire) mustBeFaulty(t *testing.T, seed uint64) {
	t.Helper()
	t.Logf("seed %d: %d requests failed, %d did not", seed, w.faulty, w.answered)
	if w.faulty == 0 {
		t.Error("not a single request failed: this run proves nothing")
	}
}

func (s *suite) killForward(t *testing.T) {
	long(t)
	for _, side := range []string{"Before", "After"} {
		t.Run(side, func(t *testing.T) {
			s.each(t, len(s.undisturbed.writes), func(t *testing.T, n int) {
				s.reset(t)
				s.killed(t, &wire{killAt: n, after: side == "After"})
				s.finishes(t, &wire{})
				s.equals(t, s.after, "as after an undisturbed run")
			})
		})
	}
}

// killBack, and the loops below, kill after a write only. Before the next one the cluster
// is the same, and what the process knew is gone in both cases.
func (s *suite) killBack(t *testing.T) {
	long(t)
	s.each(t, len(s.undisturbed.writes), func(t *testing.T, n int) {
		s.restores(t)
		s.reset(t)
		s.killed(t, &wire{killAt: n, after: true})
		s.undoes(t)
	})
}

func (s *suite) killRollback(t *testing.T) {
	long(t)
	s.reset(t)
	failing := &wire{refuseAt: len(s.undisturbed.work)}
	s.fails(t, failing)
	s.each(t, len(failing.writes), func(t *testing.T, n int) {
		s.reset(t)
		s.killed(t, &wire{refuseAt: failing.refuseAt, killAt: n, after: true})
		s.finishes(t, &wire{})
		s.equals(t, s.after, "as after an undisturbed run")
	})
}

func (s *suite) killUndo(t *testing.T) {
	long(t)
	s.restores(t)
	undo := func(t *testing.T, w *wire) *migration.Report {
		s.reset(t)
		s.finishes(t, &wire{})
		return s.command(t, w, (*engine.Engine).Undo)
	}
	undisturbed := &wire{}
	if report := undo(t, undisturbed); report.ExitCode() != migration.ExitOK {
		t.Fatalf("the undo did not end well%s", said(report))
	}
	s.each(t, len(undisturbed.writes), func(t *testing.T, n int) {
		undo(t, &wire{killAt: n, after: true})
		s.freeLock(t)
		s.undoes(t)
	})
}

// patience is how many writes may fail before a loop ends: the rest would mostly say the
// same.
const patience = 3

// each calls f for each write, in a subtest of its own.
func (s *suite) each(t *testing.T, writes int, f func(t *testing.T, n int)) {
	t.Helper()
	failed := 0
	for n := 1; n <= writes; n++ {
		ok := t.Run(fmt.Sprintf("Write%02d", n), func(t *testing.T) {
			s.repeats(t)
			f(t, n)
		})
		if !ok {
			failed++
		}
		if failed == patience {
			t.Fatalf("%d writes failed: the others are not tried", failed)
		}
	}
}

func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a kill loop, which -short leaves out")
	}
}

// restores skips what a job cannot do whose changes stay.
func (s *suite) restores(t *testing.T) {
	t.Helper()
	if s.stays != "" {
		t.Skipf("the state before cannot be restored: %s", s.stays)
	}
}

// reset removes what the engine stores, and prepares the cluster.
func (c *cluster) reset(t *testing.T) {
	t.Helper()
	c.forget(t)
	if err := c.Prepare(t.Context(), c.admin); err != nil {
		t.Fatalf("cannot prepare the cluster: %v", err)
	}
}

// forget removes what the engine stores: no earlier run is known.
func (c *cluster) forget(t *testing.T) {
	t.Helper()
	ctx, state := t.Context(), c.Options.StateNamespace
	// With the namespace in place, each first write of a run is the same.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: state}}
	if _, err := c.core.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("cannot create the state namespace: %v", err)
	}
	if err := c.core.CoordinationV1().Leases(state).Delete(ctx, c.Options.Names.Program, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("cannot delete the Lease: %v", err)
	}
	ofJob := metav1.ListOptions{LabelSelector: c.Options.Names.Key("job") + "=" + c.Job().Name()}
	if err := c.core.CoreV1().Secrets(state).DeleteCollection(ctx, metav1.DeleteOptions{}, ofJob); err != nil {
		t.Fatalf("cannot delete the journal: %v", err)
	}
	if err := c.core.CoreV1().ConfigMaps(state).DeleteCollection(ctx, metav1.DeleteOptions{}, ofJob); err != nil {
		t.Fatalf("cannot delete the report: %v", err)
	}
}

// freeLock ends the Lease of a killed run, as if it had expired.
func (c *cluster) freeLock(t *testing.T) {
	t.Helper()
	_, err := c.core.CoordinationV1().Leases(c.Options.StateNamespace).Patch(t.Context(), c.Options.Names.Program, types.MergePatchType,
		[]byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("cannot free the lock: %v", err)
	}
}

// runs counts the runs of this process: each needs an identity of its own.
var runs atomic.Int64

// engine makes the engine of one run. What it logs is printed if the test fails.
func (s *suite) engine(t *testing.T, w *wire) *engine.Engine {
	t.Helper()
	w.stateNamespace = s.Options.StateNamespace
	cfg := rest.CopyConfig(s.config)
	cfg.Wrap(w.wrap)
	opts := s.Options
	opts.OnFailure, opts.Resume, opts.Defer = engine.OnFailureRollback, engine.ResumeForward, engine.DeferAllow
	number := runs.Add(1)
	opts.Identity = fmt.Sprintf("migrationtest-%d", number)
	log := &syncBuffer{}
	opts.Log = zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), log, zap.DebugLevel))
	t.Cleanup(func() {
		if said := log.String(); t.Failed() && said != "" {
			t.Logf("log of run %d:\n%s", number, said)
		}
	})
	e, err := engine.New(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// command runs the job, or undoes its newest run.
func (s *suite) command(t *testing.T, w *wire, do func(*engine.Engine, context.Context, migration.Job) *migration.Report) *migration.Report {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	w.end = end
	report := do(s.engine(t, w), ctx, s.Job())
	w.close()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("writes of the %s that ended with %s:\n\t%s", report.Command, report.Result, strings.Join(w.writes, "\n\t"))
		}
	})
	return report
}

func (s *suite) run(t *testing.T, w *wire) *migration.Report {
	t.Helper()
	return s.command(t, w, (*engine.Engine).Run)
}

// finishes runs the job to its end.
func (s *suite) finishes(t *testing.T, w *wire) {
	t.Helper()
	if report := s.run(t, w); report.ExitCode() != migration.ExitOK {
		t.Fatalf("the run did not end well%s", said(report))
	}
	s.ends(t)
	if err := s.Done(t.Context(), s.admin); err != nil {
		t.Fatalf("the migration is not finished: %v", err)
	}
}

// fails runs the job, which is to fail and to be rolled back.
func (s *suite) fails(t *testing.T, w *wire) {
	t.Helper()
	report := s.run(t, w)
	if s.stays == "" && report.Result != migration.RolledBack {
		t.Errorf("a write was refused, and the run was not rolled back%s", said(report))
	}
	s.ends(t)
}

// killed runs the job, which is killed on its way.
func (s *suite) killed(t *testing.T, w *wire) {
	t.Helper()
	s.run(t, w)
	if len(w.writes) >= w.killAt {
		t.Logf("killed at %s", w.writes[w.killAt-1])
	}
	s.freeLock(t)
}

// undoes asks for an undo of the newest run: the state before must be restored.
func (s *suite) undoes(t *testing.T) {
	t.Helper()
	if report := s.command(t, &wire{}, (*engine.Engine).Undo); report.ExitCode() != migration.ExitOK {
		t.Fatalf("the undo did not end well%s", said(report))
	}
	s.ends(t)
	s.equals(t, s.before, "as before the run")
}

// ends checks that no journal is open.
func (s *suite) ends(t *testing.T) {
	t.Helper()
	stored, err := s.engine(t, &wire{}).OpenState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if open := stored.Open(s.Job().Name()); open != nil {
		t.Errorf("the journal of %s is still open (%s)", open.What(), open.Phase)
	}
}

func (s *suite) equals(t *testing.T, want state, what string) {
	t.Helper()
	diff, err := s.becomes(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	if diff != "" {
		t.Fatalf("the cluster is not %s (-want +got):\n%s", what, diff)
	}
}

func (c *cluster) atRest(t *testing.T) state {
	t.Helper()
	versions, err := stable(t.Context(), c.versions)
	if err != nil {
		t.Fatal(err)
	}
	return versions
}

// onlyRead checks that nothing was written since, neither through the engine nor past it.
func (s *suite) onlyRead(t *testing.T, w *wire, before state) {
	t.Helper()
	if len(w.writes) > 0 {
		t.Errorf("it wrote:\n\t%s", strings.Join(w.writes, "\n\t"))
	}
	if diff := gocmp.Diff(before, s.atRest(t)); diff != "" {
		t.Errorf("objects were written past the engine: a job reads through its Cluster only (-before +after):\n%s", diff)
	}
}

// repeats prints how to repeat the test, should it fail.
func (s *suite) repeats(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat it: go test -run '^%s$'", strings.ReplaceAll(t.Name(), "/", "$/^"))
		}
	})
}

// said is how a command ended, for the end of a message.
func said(r *migration.Report) string {
	text := fmt.Sprintf(": result %s, %s", r.Result, r.Message)
	for _, f := range r.Findings {
		finding, _ := json.Marshal(f) // strings only
		text += "\n\t" + string(finding)
	}
	return text
}

// syncBuffer takes the log of several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) Sync() error { return nil }

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
