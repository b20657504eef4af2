package jobmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// stampJob makes a ConfigMap: a job that writes, and whose time the API server
// tells.
type stampJob struct {
	name  string
	fails bool
	// before, if set, is called by Plan, which passes it no context.
	before func()
}

// at registers the job.
func (j *stampJob) at(hooks ...jobmanager.Hook) jobmanager.Registration {
	return jobmanager.Registration{Job: j, Hooks: hooks}
}

// running is for before: f is called when the engine runs the job, and not when the
// manager asks whether it is needed, which comes first.
func running(f func()) func() {
	var calls atomic.Int32
	return func() {
		if calls.Add(1) == 2 {
			f()
		}
	}
}

const stampNamespace = "stamps"

var configMaps = migration.Resource{GroupVersionResource: standin.ConfigMaps, Kind: "ConfigMap"}

func (j *stampJob) Name() string              { return j.name }
func (j *stampJob) Doc() (short, long string) { return j.name, "" }
func (j *stampJob) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	if j.before != nil {
		j.before()
	}
	if j.fails {
		return &migration.Plan{Findings: []migration.Finding{{Severity: migration.Error, Problem: "it is made to fail"}}}, nil
	}
	ref := migration.Ref{Resource: configMaps, Namespace: stampNamespace, Name: j.name}
	if made, err := c.Get(ctx, ref); err != nil || made != nil {
		return &migration.Plan{}, err
	}
	stamp := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ref.Namespace, "name": ref.Name},
	}}
	return &migration.Plan{Units: []migration.Unit{{ID: ref.String(), Changes: []migration.Change{{Verb: migration.Create, Ref: ref, Object: stamp}}}}}, nil
}
func (j *stampJob) Await(*migration.Change) []migration.Condition { return nil }

func newManager(t *testing.T, components []string, jobs ...jobmanager.Registration) *jobmanager.Manager {
	t.Helper()
	m, err := jobmanager.New(jobmanager.Options{Engine: jobmanager.ForCluster(cluster.Config()), Migration: options(t)}, components, jobs...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func stamps(t *testing.T) {
	t.Helper()
	namespace(t, stampNamespace)
	empty := func() {
		err := resource("ConfigMap", stampNamespace).DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		}
		forget(t)
	}
	empty()
	t.Cleanup(empty)
}

// deployer makes a Deployment of a component and waits until it is available, or
// has failed.
type deployer struct {
	// fails is the component that is given up soon.
	fails string

	mu    sync.Mutex
	began map[string]time.Time
	ended map[string]time.Time
}

func (d *deployer) deploy(ctx context.Context, component string) error {
	d.mu.Lock()
	d.began[component] = time.Now()
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended[component] = time.Now()
	}()
	labels := map[string]string{"app": component}
	patience := int32(300)
	if component == d.fails {
		patience = 2
	}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: component},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), ProgressDeadlineSeconds: &patience, MinReadySeconds: 1,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/" + component}}},
			},
		},
	}
	deployments := typed.AppsV1().Deployments(stampNamespace)
	w, err := deployments.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + component})
	if err != nil {
		return err
	}
	defer w.Stop()
	if _, err := deployments.Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, ok := <-w.ResultChan():
			if !ok {
				return errors.New("the watch ended")
			}
			live, ok := event.Object.(*appsv1.Deployment)
			if !ok {
				continue
			}
			for _, c := range live.Status.Conditions {
				switch {
				case c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue:
					return nil
				case c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded":
					return errors.New(c.Message)
				}
			}
		}
	}
}

func TestDeployAroundRealDeployments(t *testing.T) {
	stamps(t)
	t.Cleanup(func() {
		for _, name := range []string{"alpha", "beta", "gamma"} {
			remove(t, "Deployment", stampNamespace, name)
		}
	})
	kubelet, err := node.StartKubelet(t.Context(), cluster.Config(), stampNamespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kubelet.Stop)
	kubelet.Break("beta", node.Unpullable)

	jobs := []jobmanager.Registration{
		(&stampJob{name: "global-pre"}).at(jobmanager.Before(jobmanager.Global)),
		(&stampJob{name: "global-post"}).at(jobmanager.After(jobmanager.Global)),
		(&stampJob{name: "gamma-pre", fails: true}).at(jobmanager.Before("gamma")),
		(&stampJob{name: "gamma-post"}).at(jobmanager.After("gamma")),
	}
	for _, c := range []string{"alpha", "beta"} {
		jobs = append(jobs, (&stampJob{name: c + "-pre"}).at(jobmanager.Before(c)), (&stampJob{name: c + "-post"}).at(jobmanager.After(c)))
	}
	d := &deployer{fails: "beta", began: map[string]time.Time{}, ended: map[string]time.Time{}}
	run := func(components ...string) (*jobmanager.Report, error) {
		return newManager(t, []string{"alpha", "beta", "gamma"}, jobs...).Deploy(t.Context(), components, d.deploy)
	}

	// All is well: the times tell the order.
	report, err := run("alpha")
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]jobmanager.JobReport{}
	for _, j := range report.Jobs {
		at[j.Job] = j
	}
	type moment struct {
		what string
		when time.Time
	}
	order := []moment{
		{"global-pre begins", at["global-pre"].Began}, {"global-pre ends", at["global-pre"].Ended},
		{"alpha-pre begins", at["alpha-pre"].Began}, {"alpha-pre ends", at["alpha-pre"].Ended},
		{"the deployment begins", d.began["alpha"]}, {"the deployment ends", d.ended["alpha"]},
		{"alpha-post begins", at["alpha-post"].Began}, {"alpha-post ends", at["alpha-post"].Ended},
		{"global-post begins", at["global-post"].Began}, {"global-post ends", at["global-post"].Ended},
	}
	for i := 1; i < len(order); i++ {
		if order[i].when.IsZero() || order[i].when.Before(order[i-1].when) {
			t.Errorf("%s at %s, before %s at %s", order[i].what, order[i].when, order[i-1].what, order[i-1].when)
		}
	}
	made := func() []string {
		list, err := resource("ConfigMap", stampNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for i := range list.Items {
			if name := list.Items[i].GetName(); name != "kube-root-ca.crt" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	if got, want := made(), []string{"alpha-post", "alpha-pre", "global-post", "global-pre"}; !slices.Equal(got, want) {
		t.Errorf("written: %q, want %q", got, want)
	}

	// The Deployment of beta fails, and the pre-job of gamma; alpha, deployed
	// before, is done again.
	stampsOnly := func() {
		for _, name := range made() {
			remove(t, "ConfigMap", stampNamespace, name)
		}
	}
	stampsOnly()
	remove(t, "Deployment", stampNamespace, "alpha")
	report, err = run("beta", "gamma", "alpha")
	if err == nil || report.ExitCode != migration.ExitFailed {
		t.Fatalf("exit code %d, error %v", report.ExitCode, err)
	}
	for _, part := range []string{"cannot deploy component beta", "job gamma-pre (gamma/pre)"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %v", part, err)
		}
	}
	if got, want := made(), []string{"alpha-post", "alpha-pre", "beta-pre", "global-pre"}; !slices.Equal(got, want) {
		t.Errorf("written: %q, want %q: no post-job of beta or gamma, no global one", got, want)
	}
	if !d.began["gamma"].IsZero() {
		t.Error("gamma was deployed although its pre-job failed")
	}
}

func TestADeafJobWritesNothing(t *testing.T) {
	stamps(t)
	release, released := make(chan struct{}), make(chan struct{})
	deaf := (&stampJob{name: "deaf", before: running(func() { <-release; close(released) })}).at(jobmanager.Before("alpha"))
	deaf.Timeout = 5 * time.Second
	var mark kubernetes.Mark
	if cluster.Own() {
		var err error
		if mark, err = cluster.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m := newManager(t, []string{"alpha"}, deaf)
	began := time.Now()
	report, err := m.Deploy(t.Context(), []string{"alpha"}, func(context.Context, string) error { t.Error("it was deployed"); return nil })
	took := time.Since(began)
	t.Logf("back after %s", took)
	if err == nil || report.ExitCode != migration.ExitTimedOut || !strings.Contains(err.Error(), "job deaf (alpha/pre): it did not stop in time") {
		t.Errorf("exit code %d, error %v", report.ExitCode, err)
	}
	// 5.5 s on an idle machine; the job itself would never end.
	if took > poll.Within(20*time.Second) {
		t.Errorf("it took %s", took)
	}
	// Now it goes on, with a plan to write: nothing of it may get through.
	close(release)
	select {
	case <-released:
		time.Sleep(time.Second)
	case <-time.After(time.Minute):
		t.Fatal("it never came to its plan")
	}
	if !cluster.Own() {
		return
	}
	requests, err := cluster.Requests(t.Context(), mark, kubernetes.IsWrite)
	if err != nil {
		t.Fatal(err)
	}
	controllers := kubernetes.By("kube-controller-manager") // fills a new namespace
	for _, r := range requests {
		if controllers(r) {
			continue
		}
		if strings.Contains(r.URI, "/namespaces/"+stampNamespace) || strings.Contains(r.URI, "eventmesh-migration") {
			t.Errorf("it wrote after it was abandoned: %s", r)
		}
	}
}

// TestOneLeaseForAllJobs lets jobs write side by side: each would wait for the
// other, or take its lock away, had each a Lease of its own.
func TestOneLeaseForAllJobs(t *testing.T) {
	stamps(t)
	if !cluster.Own() {
		t.Skip(kubernetes.ErrNoAudit)
	}
	var meet sync.WaitGroup
	var jobs []jobmanager.Registration
	const n = 4
	meet.Add(n)
	for i := range n {
		together := running(func() { meet.Done(); meet.Wait() }) // all of them have read before any writes
		jobs = append(jobs, (&stampJob{name: fmt.Sprintf("side-%d", i), before: together}).at(jobmanager.Before("alpha")))
	}
	mark, err := cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report, err := newManager(t, []string{"alpha"}, jobs...).Run(t.Context(), jobmanager.Selection{})
	if err != nil || report.ExitCode != 0 {
		t.Fatalf("exit code %d: %v", report.ExitCode, err)
	}
	taken := 0
	requests, err := cluster.Requests(t.Context(), mark, func(r kubernetes.Request) bool {
		return r.Resource == "coordination.k8s.io/leases" && r.Verb == "create"
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if strings.Contains(r.URI, "/namespaces/"+kyma.StateNamespace+"/") {
			taken++
		}
	}
	if taken != 1 {
		t.Errorf("the Lease was created %d times", taken)
	}
	lease, err := typed.CoordinationV1().Leases(kyma.StateNamespace).Get(t.Context(), "eventmesh-migration", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *lease.Spec.HolderIdentity != "" || *lease.Spec.LeaseTransitions != 0 {
		t.Errorf("held by %q after %d transitions; want released, and never taken over", *lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions)
	}
	for _, j := range report.Jobs {
		if j.Report == nil || j.Report.Result != migration.Succeeded {
			t.Errorf("%s: %+v", j.Job, j)
		}
	}
	// One after the other, and again: the Lease is taken once more.
	stamps(t)
	if _, err := newManager(t, []string{"alpha"}, jobs[0]).Deploy(t.Context(), []string{"alpha"}, func(context.Context, string) error {
		lease, err := typed.CoordinationV1().Leases(kyma.StateNamespace).Get(t.Context(), "eventmesh-migration", metav1.GetOptions{})
		if err == nil && *lease.Spec.HolderIdentity != "" {
			err = errors.New("the Lease is held while a component is deployed")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestWorkersShareOneLease calls the hooks of components from a goroutine each, as an
// installer does that deploys them side by side.
func TestWorkersShareOneLease(t *testing.T) {
	stamps(t)
	components := []string{"alpha", "beta", "gamma"}
	var meet sync.WaitGroup
	meet.Add(len(components))
	var hooks []jobmanager.Hook
	var jobs []jobmanager.Registration
	for _, c := range components {
		together := running(func() { meet.Done(); meet.Wait() })
		jobs = append(jobs, (&stampJob{name: c + "-pre", before: together}).at(jobmanager.Before(c)))
		hooks = append(hooks, jobmanager.After(c))
	}
	// Of two runs of one job at a time, the second would find the object of the first.
	jobs = append(jobs, (&stampJob{name: "shared"}).at(hooks...), (&stampJob{name: "last"}).at(jobmanager.After(jobmanager.Global)))
	d, err := newManager(t, components, jobs...).Begin(components)
	if err != nil {
		t.Fatal(err)
	}
	var workers sync.WaitGroup
	for _, c := range components {
		workers.Go(func() {
			if err := d.Pre(t.Context(), c); err != nil {
				t.Error(err)
				return
			}
			if err := d.Post(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	if err := d.Post(t.Context(), jobmanager.Global); err != nil {
		t.Error(err)
	}
	report, err := d.End()
	if err != nil || len(report.Jobs) != 7 {
		t.Errorf("%d jobs, %v", len(report.Jobs), err)
	}
	lease, err := typed.CoordinationV1().Leases(kyma.StateNamespace).Get(t.Context(), "eventmesh-migration", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The hooks before the components overlap, and are one acquisition; each of the others
	// is one at most.
	if *lease.Spec.HolderIdentity != "" || *lease.Spec.LeaseTransitions > 4 {
		t.Errorf("held by %q after %d transitions", *lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions)
	}
}
