package charts

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	product "github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// upgrades are those of a stand-in of Kyma's chart core, with the hooks over it, in which pods are
// processes.
type upgrades struct {
	*kubernetes.ControlPlane
	core        clientset.Interface
	dynamic     dynamic.Interface
	controllers *standin.Controllers
	mesh        *standin.Mesh
	binaries    map[string]string
	dir         string

	helm *helm.Helm
	// chart is the one with hooks.
	chart string
	// flags of Helm, besides those of every upgrade.
	flags []string
	// app is the Application that every way begins with.
	app string

	// way counts the ways: pods of a former one are no news.
	way  atomic.Int32
	ends chan end
	// early are ends that nobody has asked for yet.
	early []end
}

// end is how the process of a Job's pod ended.
type end struct {
	way  int32
	job  string
	code int
	said string
}

const coreRelease = "core"

var triggers = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "triggers"}

func newUpgrades(t *testing.T) *upgrades {
	t.Helper()
	u := &upgrades{ControlPlane: cluster(t), binaries: map[string]string{}, dir: t.TempDir(), ends: make(chan end, 100), chart: overlaid(t, coreRelease, "1.11")}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range []string{"httpsource-sync", "trigger-sync"} {
		u.binaries[job] = process.BuildPlain(t, "./cmd/"+job)
	}
	var err error
	u.core, err = clientset.NewForConfig(u.Config())
	check(err)
	u.dynamic, err = dynamic.NewForConfig(u.Config())
	check(err)
	u.controllers, err = standin.Start(t.Context(), u.Config(), standin.Options{})
	check(err)
	t.Cleanup(u.controllers.Stop)
	u.mesh, err = standin.StartMesh(t.Context(), u.Config(), standin.Options{})
	check(err)
	t.Cleanup(u.mesh.Stop)
	node, err := node.Start(t.Context(), u.Config(), node.Options{Run: u.run, Log: t.Logf})
	check(err)
	t.Cleanup(node.Stop)
	return u
}

// run starts what runs in a pod: a job as the ServiceAccount of its pod, or nothing.
func (u *upgrades) run(ctx context.Context, pod *corev1.Pod, _ node.Mounts) (node.Container, error) {
	binary, ok := u.binaries[node.Program(pod)]
	if !ok {
		return node.NewStill(), nil
	}
	token, err := u.core.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot get a token of ServiceAccount %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	config, err := clientcmd.LoadFromFile(u.Kubeconfig)
	if err != nil {
		return nil, err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	kubeconfig := filepath.Join(u.dir, string(pod.UID))
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	way := u.way.Load()
	p, err := node.StartProcess(binary, []string{"KUBECONFIG=" + kubeconfig}, pod.Spec.Containers[0].Args)
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.Exited()
		code, _ := p.Ended()
		u.ends <- end{way, pod.Labels["job-name"], int(code), p.Output()}
	}()
	return p, nil
}

// use begins with one Application, and a release of Kyma 1.10, which has no hooks.
func (u *upgrades) use(t *testing.T, h *helm.Helm) {
	t.Helper()
	ctx := t.Context()
	own := *h
	own.Env = []string{"KUBECONFIG=" + u.Kubeconfig, "HOME=" + t.TempDir()}
	u.helm, u.flags, u.early = &own, nil, nil
	u.way.Add(1)
	if h.Major == 2 {
		stop, err := own.StartTiller(ctx, u.Kubeconfig, standin.TillerNamespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	u.controllers.HealAll()
	u.mesh.HealAll()
	names, err := standin.Reset(ctx, u.Config(), 1)
	if err != nil {
		t.Fatal(err)
	}
	u.app = names[0]
	bare := filepath.Join(t.TempDir(), coreRelease)
	if err := kymasChart(bare, coreRelease); err != nil {
		t.Fatal(err)
	}
	if _, err := own.Upgrade(ctx, coreRelease, bare, systemNS, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what is left behind: %v", sortedKeys(u.left(t)))
			for len(u.ends) > 0 {
				e := <-u.ends
				t.Logf("Job %s ended with %d:\n%s", e.job, e.code, e.said)
			}
		}
		u.uninstall(t)
		u.cleanUp(t)
	})
}

// upgrade upgrades to Kyma 1.11, with values of the hooks.
func (u *upgrades) upgrade(t *testing.T, timeout time.Duration, sets ...string) (string, error) {
	t.Helper()
	args := slices.Clone(u.flags)
	for _, set := range sets {
		args = append(args, "--set", "eventmesh-migration."+set)
	}
	return u.helm.Upgrade(t.Context(), coreRelease, u.chart, systemNS, timeout, args...)
}

func (u *upgrades) must(t *testing.T, sets ...string) {
	t.Helper()
	began := time.Now()
	if _, err := u.upgrade(t, 2*time.Minute, sets...); err != nil {
		t.Fatal(err)
	}
	t.Logf("helm upgrade took %s", time.Since(began).Round(time.Second/10))
}

// givesUp upgrades with too short a timeout, and returns the accounts of the Job that still runs,
// with all that gives them power.
func (u *upgrades) givesUp(t *testing.T, timeout time.Duration, sets ...string) map[string]types.UID {
	t.Helper()
	for range 5 {
		_, err := u.upgrade(t, timeout, sets...)
		if err == nil || !strings.Contains(err.Error(), "timed out waiting for the condition") && !strings.Contains(err.Error(), "context deadline exceeded") {
			t.Fatalf("Helm does not run out of time: %v", err)
		}
		t.Logf("Helm has given up: %v", err)
		jobs, err := u.core.BatchV1().Jobs(systemNS).List(t.Context(), metav1.ListOptions{LabelSelector: ours})
		if err != nil {
			t.Fatal(err)
		}
		left := u.left(t)
		for _, job := range jobs.Items {
			if job.Status.Active == 0 {
				continue
			}
			if account := "ServiceAccount " + systemNS + "/" + job.Spec.Template.Spec.ServiceAccountName; left[account] == "" {
				t.Errorf("Job %s runs, and %s is gone", job.Name, account)
			}
			return left
		}
		// On a machine that is busy with other tests, it can give up on what comes before a Job.
		t.Log("no Job runs: once more")
	}
	t.Fatal("no Job runs")
	return nil
}

// end waits for the end of a Job's process.
func (u *upgrades) end(t *testing.T, job string) end {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for {
		if i := slices.IndexFunc(u.early, func(e end) bool { return e.job == job && e.way == u.way.Load() }); i >= 0 {
			e := u.early[i]
			u.early = slices.Delete(u.early, i, i+1)
			return e
		}
		select {
		case e := <-u.ends:
			u.early = append(u.early, e)
		case <-limit.C:
			t.Fatalf("Job %s did not end; others: %v", job, u.early)
		}
	}
}

// cleanUpCommand is the one of the documents, taken apart.
func cleanUpCommand() (kinds []schema.GroupVersionResource, selector string) {
	fields := strings.Fields(verify.CleanUp)
	for _, name := range strings.Split(fields[2], ",") {
		kind := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: name}
		if name == "serviceaccounts" {
			kind.Group = ""
		}
		kinds = append(kinds, kind)
	}
	return kinds, fields[len(fields)-1]
}

// ours selects what the chart renders.
const ours = "app.kubernetes.io/name=eventmesh-migration"

// left are the accounts that are there, with all that gives them power.
func (u *upgrades) left(t *testing.T) map[string]types.UID {
	t.Helper()
	kinds, selector := cleanUpCommand()
	all := map[string]types.UID{}
	for _, kind := range kinds {
		list, err := u.dynamic.Resource(kind).List(context.WithoutCancel(t.Context()), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			ref := migration.Ref{Resource: migration.Resource{Kind: o.GetKind()}, Namespace: o.GetNamespace(), Name: o.GetName()}
			all[ref.String()] = o.GetUID()
		}
	}
	return all
}

// cleanUp does what the command of the documents does, and deletes Jobs.
func (u *upgrades) cleanUp(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	kinds, selector := cleanUpCommand()
	for _, kind := range append(kinds, batchv1.SchemeGroupVersion.WithResource("jobs")) {
		list, err := u.dynamic.Resource(kind).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			o, background := &list.Items[i], metav1.DeletePropagationBackground
			if err := resourceIn(u.dynamic, kind, o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := u.left(t); len(left) > 0 {
		t.Errorf("the command of the documents leaves %v", sortedKeys(left))
	}
}

func resourceIn(client dynamic.Interface, kind schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return client.Resource(kind)
	}
	return client.Resource(kind).Namespace(namespace)
}

// nothingLeft checks that an upgrade that succeeded has left neither accounts nor Jobs.
func (u *upgrades) nothingLeft(t *testing.T) {
	t.Helper()
	if left := u.left(t); len(left) > 0 {
		t.Errorf("an upgrade that succeeds leaves %v", sortedKeys(left))
	}
	jobs, err := u.core.BatchV1().Jobs(systemNS).List(t.Context(), metav1.ListOptions{LabelSelector: ours})
	if err != nil || len(jobs.Items) > 0 {
		t.Errorf("an upgrade that succeeds leaves %d Jobs: %v", len(jobs.Items), err)
	}
}

// released checks that nobody holds the lock, and no run is open.
func (u *upgrades) released(t *testing.T) {
	t.Helper()
	e, err := engine.New(u.Config(), engine.Options{Names: cli.Names, StateNamespace: systemNS})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := e.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if kept.Lock != nil {
		t.Errorf("the lock is held: %s", kept.Lock)
	}
	for _, j := range kept.Journals {
		if j.Open {
			t.Errorf("run %s of %s is open", j.Run, j.Job)
		}
	}
}

// sources are the HTTPSources that are there, by name.
func (u *upgrades) sources(t *testing.T) map[string]bool {
	t.Helper()
	list, err := u.dynamic.Resource(standin.HTTPSources).Namespace(standin.IntegrationNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for i := range list.Items {
		all[list.Items[i].GetName()] = true
	}
	return all
}

// uninstall deletes the release, if it is there.
func (u *upgrades) uninstall(t *testing.T) {
	t.Helper()
	args := []string{"uninstall", coreRelease, "--namespace", systemNS, "--ignore-not-found"}
	if u.helm.Major == 2 {
		args = []string{"delete", "--purge", coreRelease}
	}
	if out, err := u.helm.Run(context.WithoutCancel(t.Context()), args...); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Errorf("%v\n%s", err, out)
	}
}

// subscribe makes a Kyma Subscription of the Application, with all that trigger-sync wants to see,
// and returns "namespace/name" of the Trigger that it becomes.
func (u *upgrades) subscribe(t *testing.T) string {
	t.Helper()
	const namespace, name = "shop", "orders"
	sub := standin.KymaSubscription(namespace, name, u.app, "order.created")
	unstructured.RemoveNestedField(sub.Object, "spec", "include_subscription_name_header")
	sub.SetFinalizers(nil)
	link := standin.Link("v1alpha1", u.app, namespace, "brokersub-"+u.app)
	if err := standin.Load(t.Context(), u.Config(), append(standin.EventBus(), standin.EventService(u.app, false))...); err != nil {
		t.Fatal(err)
	}
	links := schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"}
	if _, err := u.dynamic.Resource(standin.KymaSubscriptions).Namespace(namespace).Create(t.Context(), sub, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.dynamic.Resource(links).Namespace(standin.IntegrationNamespace).Create(t.Context(), link, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	trigger := product.TriggerName(sub)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		remove := func(kind schema.GroupVersionResource, ns, name string) {
			if err := u.dynamic.Resource(kind).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Logf("cannot delete %s %s/%s: %v", kind.Resource, ns, name, err)
			}
		}
		remove(standin.KymaSubscriptions, namespace, name)
		remove(links, standin.IntegrationNamespace, link.GetName())
		remove(triggers, namespace, trigger)
		for _, d := range standin.EventBus() {
			remove(standin.Deployments, d.GetNamespace(), d.GetName())
		}
	})
	return namespace + "/" + trigger
}
