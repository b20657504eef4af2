// Package serviceinstance proves serviceinstance-recreate against the real Service
// Catalog, on a real API server, with the real program as a process of its own, and
// stand-ins for application-broker and Kyma's and Knative's controllers.
package serviceinstance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/servicecatalog"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// plane is the cluster that all tests share: a namespace "shop" that uses the
// Application "store" through application-broker.
type plane struct {
	*kubernetes.ControlPlane
	client      dynamic.Interface
	catalog     *servicecatalog.Catalog
	mesh        *standin.Mesh
	activations *standin.Activations
	usages      *standin.BindingUsages
	broker      *standin.ApplicationBroker
	brokerIs    standin.ApplicationBrokerOptions
}

var (
	sharedMu sync.Mutex
	shared   *plane
)

const (
	app = "store"
	ns  = "shop"
	// orders and pizza (whose ID is no UUID, and is escaped) have an API and events,
	// stock has events alone, prices has none.
	orders = "6b1b5a4e-0001-4d5c-8f0a-000000000001"
	pizza  = "pizza.zone-1"
	stock  = "6b1b5a4e-0002-4d5c-8f0a-000000000002"
	prices = "6b1b5a4e-0003-4d5c-8f0a-000000000003"
)

var services = []standin.AppService{
	{ID: orders, Name: "orders", API: true, Events: true}, {ID: pizza, Name: "pizza", API: true, Events: true},
	{ID: stock, Name: "stock", Events: true}, {ID: prices, Name: "prices", API: true},
}

var (
	links    = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"}
	channels = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "channels"}
	brokers  = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "brokers"}
	triggers = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "triggers"}
	leases   = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.After(func() error {
		if shared == nil {
			return nil
		}
		return shared.stop()
	}))
}

func (p *plane) stop() error {
	for _, one := range []interface{ Stop() }{p.broker, p.usages, p.activations, p.mesh} {
		one.Stop()
	}
	return errors.Join(p.catalog.Stop(), p.ControlPlane.Stop())
}

func start(ctx context.Context) (_ *plane, err error) {
	p := &plane{} // not the result, which is nil when it fails
	if p.ControlPlane, err = kubernetes.Start(ctx); err != nil {
		return nil, err
	}
	if !p.Own() {
		return p, servicecatalog.ErrNotOwn
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.ControlPlane.Stop())
		}
	}()
	if err := p.InstallCRDs(ctx, kubernetes.KnativeV1alpha1); err != nil {
		return nil, err
	}
	if p.client, err = dynamic.NewForConfig(p.Config()); err != nil {
		return nil, err
	}
	if _, err := standin.Put(ctx, p.Config(), 0); err != nil {
		return nil, err
	}
	if err := standin.Load(ctx, p.Config(), standin.EventBus()...); err != nil {
		return nil, err
	}
	// The controllers outlive this test.
	background := context.Background()
	if p.activations, err = standin.StartActivations(background, p.Config(), standin.Options{}); err != nil {
		return nil, err
	}
	if p.mesh, err = standin.StartMesh(background, p.Config(), standin.Options{}); err != nil {
		return nil, err
	}
	if p.usages, err = standin.StartBindingUsages(background, p.Config(), standin.Options{}); err != nil {
		return nil, err
	}
	if p.catalog, err = servicecatalog.Start(ctx, p.ControlPlane, servicecatalog.Options{CascadingDeletion: true, QPS: 1000}); err != nil {
		return nil, err
	}
	for _, name := range []string{ns, "knative-eventing"} {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
		if _, err := p.client.Resource(standin.Namespaces).Create(ctx, obj, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
	return p, nil
}

// world is one test's use of the cluster.
type world struct {
	*plane
	t   testing.TB
	ctx context.Context
}

// on returns the cluster with application-broker of 1.10, and nothing of earlier
// tests.
func on(t testing.TB) *world { return with(t, standin.ApplicationBrokerOptions{}, services...) }

// with returns it with a certain broker, and an Application with certain services.
func with(t testing.TB, opts standin.ApplicationBrokerOptions, offered ...standin.AppService) *world {
	t.Helper()
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if shared == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
		defer cancel()
		p, err := start(ctx)
		if errors.Is(err, servicecatalog.ErrNotOwn) {
			t.Skip("Service Catalog cannot run beside a cluster of somebody else")
		}
		if err != nil {
			t.Fatal(err)
		}
		shared = p
	}
	w := &world{plane: shared, t: t, ctx: t.Context()}
	w.check(w.catalog.StartWebhook(w.ctx))
	w.check(w.catalog.SetCascadingDeletion(w.ctx, true))
	w.forget()
	w.check(standin.ClearServices(w.ctx, w.Config()))
	opts.InCluster = true
	if w.broker == nil || w.brokerIs.Version != opts.Version || w.brokerIs.APIPackages != opts.APIPackages {
		if w.broker != nil {
			w.broker.Stop()
		}
		var err error
		w.broker, err = standin.StartApplicationBroker(context.Background(), w.Config(), opts)
		w.check(err)
		w.brokerIs = opts
	}
	w.broker.HealAll()
	w.broker.Up()
	w.check(w.broker.Restart(w.ctx))
	w.put(standin.Applications, standin.ApplicationWith(app, offered...))
	channel := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "Channel",
		"metadata": map[string]any{"name": app, "namespace": standin.IntegrationNamespace, "labels": map[string]any{"application-name": app}},
	}}
	w.create(channels, channel)
	w.patch(channels, standin.IntegrationNamespace, app, `{"status":{"conditions":[{"type":"Ready","status":"True"}],"address":{"url":"http://x"}}}`, "status")
	w.create(standin.ApplicationMappings, standin.ApplicationMapping(ns, app))
	w.check(w.broker.WaitCatalog(w.ctx, ns))
	return w
}

// forget removes what the job keeps.
func (p *plane) forgetIn(ctx context.Context) error {
	errs := []error{}
	err := p.client.Resource(leases).Namespace(kyma.StateNamespace).Delete(ctx, "eventmesh-migration", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		errs = append(errs, err)
	}
	for _, gvr := range []schema.GroupVersionResource{standin.Secrets, standin.ConfigMaps} {
		errs = append(errs, p.client.Resource(gvr).Namespace(kyma.StateNamespace).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: "eventmesh-migration.kyma-project.io/job"}))
	}
	return errors.Join(errs...)
}

func (w *world) forget() {
	w.t.Helper()
	w.check(w.forgetIn(w.ctx))
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(gvr schema.GroupVersionResource, u *unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	created, err := w.client.Resource(gvr).Namespace(u.GetNamespace()).Create(w.ctx, u, metav1.CreateOptions{})
	w.check(err)
	return created
}

// put creates an object, in the place of one that may be there.
func (w *world) put(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
	w.t.Helper()
	err := w.client.Resource(gvr).Namespace(u.GetNamespace()).Delete(w.ctx, u.GetName(), metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		w.check(err)
	}
	w.create(gvr, u)
}

func (w *world) get(gvr schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	w.t.Helper()
	u, err := w.client.Resource(gvr).Namespace(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.check(err)
	return u
}

func (w *world) list(gvr schema.GroupVersionResource, namespace, selector string) []unstructured.Unstructured {
	w.t.Helper()
	list, err := w.client.Resource(gvr).Namespace(namespace).List(w.ctx, metav1.ListOptions{LabelSelector: selector})
	w.check(err)
	return list.Items
}

// delete removes an object that may be gone already, and waits until it is.
func (w *world) delete(gvr schema.GroupVersionResource, namespace, name string) {
	w.t.Helper()
	err := w.client.Resource(gvr).Namespace(namespace).Delete(w.ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	w.check(err)
	w.untilGone(gvr, namespace, name)
}

func (w *world) patch(gvr schema.GroupVersionResource, namespace, name, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.client.Resource(gvr).Namespace(namespace).Patch(w.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	w.check(err)
}

// until watches an object until the test holds; one that does not exist is nil.
func (w *world) until(gvr schema.GroupVersionResource, namespace, name, what string, holds func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	w.t.Helper()
	resource := w.client.Resource(gvr).Namespace(namespace)
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	var last *unstructured.Unstructured
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Minute)
	defer cancel()
	_, err := watchtools.UntilWithSync(ctx, kubernetes.ListWatch(resource.List, resource.Watch, func(opts *metav1.ListOptions) {
		opts.FieldSelector = selector
	}), &unstructured.Unstructured{}, func(store cache.Store) (bool, error) {
		return len(store.ListKeys()) == 0 && holds(nil), nil // one that is there comes as an event
	}, func(event watch.Event) (bool, error) {
		last, _ = event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Deleted {
			last = nil
		}
		return holds(last), nil
	})
	if err != nil {
		w.t.Fatalf("%s %s/%s is not %s: %v\n%v", gvr.Resource, namespace, name, what, err, last)
	}
	return last
}

func (w *world) untilReady(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.t.Helper()
	return w.until(gvr, ns, name, "ready", func(u *unstructured.Unstructured) bool { return u != nil && ready(u) })
}

func (w *world) untilGone(gvr schema.GroupVersionResource, namespace, name string) {
	w.t.Helper()
	w.until(gvr, namespace, name, "gone", func(u *unstructured.Unstructured) bool { return u == nil })
}

func ready(u *unstructured.Unstructured) bool {
	return u.GetDeletionTimestamp() == nil && condition(u, "Ready") == "True"
}

func condition(u *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == kind {
			status, _ := c["status"].(string)
			return status
		}
	}
	return ""
}

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// instance makes a ServiceInstance and waits until it is provisioned.
func (w *world) instance(name, class string, edits ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	w.t.Helper()
	u := standin.ServiceInstance(ns, name, class)
	for _, edit := range edits {
		edit(u)
	}
	w.create(standin.ServiceInstances, u)
	return w.untilReady(standin.ServiceInstances, name)
}

// bind gives a Deployment of the name the credentials of an instance, through a
// binding and a usage of that name.
func (w *world) bind(name, instance string) {
	w.t.Helper()
	if w.get(standin.Deployments, ns, name) == nil {
		w.create(standin.Deployments, standin.Workload(ns, name))
	}
	w.create(standin.ServiceBindings, standin.ServiceBinding(ns, name, instance))
	w.untilReady(standin.ServiceBindings, name)
	w.create(standin.ServiceBindingUsages, standin.ServiceBindingUsage(ns, name, name, name))
	w.untilReady(standin.ServiceBindingUsages, name)
}

// linkNames are the Knative Subscriptions of the Application in the namespace.
func (w *world) linkNames() []string {
	w.t.Helper()
	var names []string
	for _, link := range w.list(links, standin.IntegrationNamespace, "application-name="+app+",broker-namespace="+ns) {
		names = append(names, link.GetName())
	}
	return names
}

// strip takes away what was made of the mesh for a service: as if it was
// provisioned by Kyma 1.8.
func (w *world) strip(service string) {
	w.t.Helper()
	w.delete(standin.EventActivations, ns, service)
	for _, name := range w.linkNames() {
		w.delete(links, standin.IntegrationNamespace, name)
	}
}

// proxied starts a proxy in front of the API server, and returns its kubeconfig.
func (w *world) proxied() (*faultproxy.Proxy, string) {
	w.t.Helper()
	proxy, err := faultproxy.Start(w.Config())
	w.check(err)
	w.t.Cleanup(proxy.Close)
	kubeconfig, err := proxy.Kubeconfig(w.t.TempDir())
	w.check(err)
	return proxy, kubeconfig
}

// arguments of every run: leases that are short enough to wait for.
func arguments(kubeconfig, command string, args ...string) []string {
	return append([]string{command, "--kubeconfig=" + kubeconfig, "--log-format=json", "--lease-duration=1s"}, args...)
}

// begin starts the job through a kubeconfig.
func (w *world) begin(kubeconfig, command string, args ...string) *suite.Process {
	w.t.Helper()
	return suite.Start(w.t, process.Program{
		Binary: process.Build(w.t, "./cmd/serviceinstance-recreate"), Args: arguments(kubeconfig, command, args...), Limit: 5 * time.Minute,
	})
}

// run runs the job to its end.
func (w *world) run(command string, args ...string) (*migration.Report, int) {
	w.t.Helper()
	return w.begin(w.Kubeconfig, command, append([]string{"--output=json"}, args...)...).Report()
}

// succeeds runs the job, which must end with 0 and the result.
func (w *world) succeeds(want migration.Result, args ...string) *migration.Report {
	w.t.Helper()
	report, code := w.run("run", args...)
	if code != 0 || report.Result != want {
		w.t.Fatalf("exit code %d, %s: %s, want %s\n%v", code, report.Result, report.Message, want, report.Findings)
	}
	return report
}

// census is what must not be lost: instances with their external IDs, finalizers and
// owners, bindings with their Secrets and the credentials in them, and usages with
// the credentials of their workloads. A usage whose owner is gone counts as lost:
// the garbage collector has only not come yet.
func (w *world) census() map[string]any {
	w.t.Helper()
	found := map[string]any{}
	for _, u := range w.list(standin.ServiceInstances, ns, "") {
		found["ServiceInstance "+u.GetName()] = []any{
			text(&u, "spec", "externalID"), condition(&u, "Ready"), u.GetDeletionTimestamp() != nil, u.GetFinalizers(), u.GetOwnerReferences(), u.GetLabels()["team"],
		}
	}
	bindings := map[types.UID]string{}
	for _, u := range w.list(standin.ServiceBindings, ns, "") {
		bindings[u.GetUID()] = u.GetName()
		name := text(&u, "spec", "secretName")
		found["ServiceBinding "+u.GetName()] = []any{text(&u, "spec", "externalID"), condition(&u, "Ready"), u.GetDeletionTimestamp() != nil}
		if secret := w.get(standin.Secrets, ns, name); secret != nil {
			found["Secret "+name] = secret.Object["data"]
		}
	}
	for _, u := range w.list(standin.ServiceBindingUsages, ns, "") {
		owners := []string{}
		for _, owner := range u.GetOwnerReferences() {
			owners = append(owners, bindings[owner.UID])
		}
		found["ServiceBindingUsage "+u.GetName()] = []any{condition(&u, "Ready"), u.GetDeletionTimestamp() != nil, owners}
		workload := text(&u, "spec", "usedBy", "name")
		credentials, err := w.usages.Credentials(w.ctx, ns, workload)
		if err != nil {
			found["credentials of "+workload] = err.Error()
		} else {
			found["credentials of "+workload] = credentials
		}
	}
	return found
}

// uids are the UIDs of all objects of a kind, by name.
func (w *world) uids(gvr schema.GroupVersionResource) map[string]types.UID {
	w.t.Helper()
	all := map[string]types.UID{}
	for _, u := range w.list(gvr, ns, "") {
		all[u.GetName()] = u.GetUID()
	}
	return all
}

// writesOf are the changes of a report that wrote something, as "verb Kind name".
func writesOf(report *migration.Report) []string {
	all := []string{}
	for _, ch := range report.Changes {
		if ch.Verb != migration.Await && ch.Result == migration.ChangeDone {
			all = append(all, fmt.Sprintf("%s %s %s", ch.Verb, ch.Kind, ch.Name))
		}
	}
	slices.Sort(all)
	return all
}
