// Package suite holds the tests that every job must pass, whatever it does: it is
// killed at every write, meets a bad API server, is run twice at once, loses its
// lock, is asked to stop. A job's own tests describe it as a Subject and call
// these functions; none of them is copied.
//
// All of them run the job's binary as a process, against a real API server, and
// look at the result in the cluster, in the report and in the exit code. When a
// test fails, it prints the log of each process it ran.
package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/snapshot"
)

// Subject is a job, a cluster, and what the job is to do there.
type Subject struct {
	// Name of the job; its user agent begins with it.
	Name string
	// Package is that of its command, such as ./cmd/trigger-sync. It is built with the race
	// detector (see Build), and for kills without it: some hundred kills show what is left in the
	// cluster, and the other tests run the same code with it.
	Package string
	// Binary is the path of its executable, if that is not the one of Package.
	Binary string
	// Args come after the command, for every command: such as waits that are
	// shorter than the defaults.
	Args []string

	// Kubeconfig is the path of the job's own way to the cluster.
	Kubeconfig string
	// Admin looks at the cluster and cleans up after the job.
	Admin *rest.Config
	// Audit, if set, is also asked for what the job has requested.
	Audit *kubernetes.ControlPlane
	// StateNamespace is the job's --state-namespace; default kyma.StateNamespace.
	StateNamespace string
	// Snapshot says what counts when clusters are compared.
	Snapshot snapshot.Options

	// Reset puts the cluster into the state that is to be migrated, from any
	// other, and returns when its controllers are at rest. The migration needs
	// at least two changes there. The suite itself removes what the job keeps in
	// the state namespace. Reset is called some hundred times: it must be quick.
	Reset func(ctx context.Context, t testing.TB)
	// Done checks the end state of a finished migration, and reports with
	// t.Error or t.Fatal what is wrong.
	Done func(ctx context.Context, t testing.TB)
	// Break lets every run fail, late and soon: when all its changes are made,
	// without a long wait. A run must make the same number of writes each time,
	// or some are not tried. What it returns ends that.
	Break func(ctx context.Context, t testing.TB) (mend func())
	// BrokenArgs come after Args for runs that are broken, such as a limit that
	// makes them fail sooner.
	BrokenArgs []string
}

// test is one test of the suite.
type test struct {
	name string
	run  func(*testing.T, Subject)
}

func quick(rounds int) []test {
	return []test{
		{"NoWriteWhenDone", NoWriteWhenDone},
		{"RandomFaults", func(t *testing.T, s Subject) { RandomFaults(t, s, 1, rounds) }},
		{"KillForward", KillForward},
	}
}

// Quick runs what every change of a job must pass: one bad API server, and a
// kill at each write of a run. It takes one to two minutes.
func Quick(t *testing.T, subject Subject) { runTests(t, subject, quick(1)) }

// Processes runs what depends on the engine and on the process, and not on the job: two
// runs at once, a lock that is taken, a process that is frozen or gets a signal. One
// subject is enough.
func Processes(t *testing.T, subject Subject) {
	runTests(t, subject, []test{
		{"TwoRuns", TwoRuns},
		{"SecondRunWaits", SecondRunWaits},
		{"LockTheft", LockTheft},
		{"Frozen", Frozen},
		{"SIGTERM", SIGTERM},
	})
}

// All runs the whole suite, quick tests first; the kill loops of rollback and
// undo take several minutes. The random faults take the given number of rounds,
// with seeds from 1 on.
func All(t *testing.T, subject Subject, rounds int) {
	runTests(t, subject, append(quick(rounds),
		test{"KillUndo", KillUndo},
		test{"KillThenBack", KillThenBack},
		test{"KillRollback", KillRollback},
	))
}

func runTests(t *testing.T, subject Subject, tests []test) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, subject) })
	}
}

// with returns the subject with its defaults, for the test.
func (s Subject) with(t testing.TB) *Subject {
	t.Helper()
	if s.StateNamespace == "" {
		s.StateNamespace = kyma.StateNamespace
	}
	if s.Binary == "" && s.Package != "" {
		s.Binary = process.Build(t, s.Package)
	}
	if s.Name == "" || s.Binary == "" || s.Kubeconfig == "" || s.Admin == nil || s.Reset == nil || s.Done == nil || s.Break == nil {
		t.Fatal("the subject is incomplete: there is Package or Binary, and only Args, Audit, StateNamespace, Snapshot and BrokenArgs are optional")
	}
	s.Snapshot.StateNamespace = s.StateNamespace
	// The mark on created objects names the run.
	s.Snapshot.IgnoreAnnotations = append(slices.Clone(s.Snapshot.IgnoreAnnotations), kyma.MarkAnnotation)
	return &s
}

// killed is with for tests that kill at every write.
func (s Subject) killed(t testing.TB) *Subject {
	t.Helper()
	if s.Binary == "" && s.Package != "" {
		s.Binary = process.BuildPlain(t, s.Package)
	}
	return s.with(t)
}

// Names of what the engine keeps in the state namespace.
const (
	stateName  = "eventmesh-migration"
	labelJob   = stateName + ".kyma-project.io/job"
	labelPhase = stateName + ".kyma-project.io/phase"
)

func (s *Subject) client(t testing.TB) clientset.Interface {
	t.Helper()
	config := rest.CopyConfig(s.Admin)
	config.UserAgent, config.QPS = "eventmesh-suite", -1
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// reset removes the state of the job, and puts the cluster into the state that
// is to be migrated.
func (s *Subject) reset(t testing.TB) {
	t.Helper()
	s.forget(t)
	s.Reset(t.Context(), t)
}

// forget removes the state of the job: no run before is known or waited for.
func (s *Subject) forget(t testing.TB) {
	t.Helper()
	ctx, client := t.Context(), s.client(t)
	// With it, each first write of a run is the same.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.StateNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("cannot create the state namespace: %v", err)
	}
	err := client.CoordinationV1().Leases(s.StateNamespace).Delete(ctx, stateName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("cannot remove the Lease: %v", err)
	}
	ofJob := metav1.ListOptions{LabelSelector: labelJob + "=" + s.Name}
	if err := client.CoreV1().Secrets(s.StateNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, ofJob); err != nil {
		t.Fatalf("cannot remove the journal: %v", err)
	}
	if err := client.CoreV1().ConfigMaps(s.StateNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, ofJob); err != nil {
		t.Fatalf("cannot remove the report: %v", err)
	}
}

// freeLock ends the Lease of a killed run, as if it had expired.
func (s *Subject) freeLock(t testing.TB) {
	t.Helper()
	_, err := s.client(t).CoordinationV1().Leases(s.StateNamespace).
		Patch(t.Context(), stateName, types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("cannot free the Lease: %v", err)
	}
}

// breakIt switches the fault on; it is switched off at the end of the test at the
// latest.
func (s *Subject) breakIt(t testing.TB) (mend func()) {
	t.Helper()
	mend = sync.OnceFunc(s.Break(t.Context(), t))
	t.Cleanup(mend)
	return mend
}

// before resets the cluster and returns how it looks then.
func (s *Subject) before(t testing.TB) snapshot.Snapshot {
	t.Helper()
	s.reset(t)
	return s.stable(t)
}

func (s *Subject) stable(t testing.TB) snapshot.Snapshot {
	t.Helper()
	taken, err := snapshot.Stable(t.Context(), s.Admin, s.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// equals checks that the whole cluster is, or becomes, as it was.
func (s *Subject) equals(t testing.TB, want snapshot.Snapshot, what string) {
	t.Helper()
	diff, err := snapshot.AwaitEqual(t.Context(), s.Admin, want, s.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if diff != "" {
		t.Errorf("the cluster is not %s:\n%s", what, diff)
	}
}

// openJournals returns the job's journals that are neither finished nor undone,
// with their phases.
func (s *Subject) openJournals(t testing.TB) []string {
	t.Helper()
	var open []string
	for name, phase := range s.journals(t) {
		if phase == "forward" || phase == "rollback" || phase == "undo" {
			open = append(open, name+" ("+phase+")")
		}
	}
	slices.Sort(open)
	return open
}

// journals returns the first Secret of each of the job's journals and its phase.
func (s *Subject) journals(t testing.TB) map[string]string {
	t.Helper()
	secrets, err := s.client(t).CoreV1().Secrets(s.StateNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: labelJob + "=" + s.Name})
	if err != nil {
		t.Fatalf("cannot list the journals: %v", err)
	}
	phases := map[string]string{}
	for _, secret := range secrets.Items {
		if phase := secret.Labels[labelPhase]; phase != "" {
			phases[secret.Name] = phase
		}
	}
	return phases
}

func (s *Subject) noOpenJournal(t testing.TB) {
	t.Helper()
	if open := s.openJournals(t); len(open) > 0 {
		t.Errorf("journals are still open: %s", strings.Join(open, ", "))
	}
}

// proxy starts a fault proxy for one process, and writes its kubeconfig.
func (s *Subject) proxy(t testing.TB, options ...faultproxy.Option) (p *faultproxy.Proxy, kubeconfig string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatalf("cannot read the job's kubeconfig: %v", err)
	}
	if p, err = faultproxy.Start(config, options...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if kubeconfig, err = p.Kubeconfig(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

// works says whether a write is one of the migration's own, rather than of its
// lock, its journal or its reports.
func (s *Subject) works(r faultproxy.Request) bool {
	state := r.Namespace == s.StateNamespace && strings.HasPrefix(r.Name, stateName) &&
		(r.Is("leases") || r.Is("secrets") || r.Is("configmaps"))
	return r.Writes() && !state && !r.Is("events")
}

// finishes runs the job without any trouble, to the end.
func (s *Subject) finishes(t testing.TB, args ...string) outcome {
	t.Helper()
	out := s.start(t, s.Kubeconfig, "run", args...).outcome()
	out.mustExit(t, migration.ExitOK)
	s.done(t)
	return out
}

// done checks that the migration is finished in every respect.
func (s *Subject) done(t testing.TB) {
	t.Helper()
	s.Done(t.Context(), t)
	s.noOpenJournal(t)
}

// rollsBack runs the job, which is to end with a rollback.
func (s *Subject) rollsBack(t testing.TB, args ...string) {
	t.Helper()
	s.start(t, s.Kubeconfig, "run", args...).outcome().mustRollBack(t)
	s.noOpenJournal(t)
}

func (o outcome) mustExit(t testing.TB, code int) {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit code %d, want %d%s", o.code, code, o.said())
	}
}

// mustRollBack checks an outcome of a broken run. One that finds nothing to roll
// back has failed; both exit alike.
func (o outcome) mustRollBack(t testing.TB) {
	t.Helper()
	o.mustExit(t, migration.ExitFailed)
	if o.report.Result != migration.RolledBack {
		t.Errorf("result %q, want %q%s", o.report.Result, migration.RolledBack, o.said())
	}
}

func (o outcome) said() string {
	if o.report == nil {
		return ": it died without a report"
	}
	return fmt.Sprintf(": %s: %s", o.report.Result, o.report.Message)
}
