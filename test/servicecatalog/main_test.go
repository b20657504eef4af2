//go:build slow || soak

package servicecatalog_test

import (
	"context"
	"strings"
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

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/servicecatalog"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// cluster is what all tests share: a control plane with Service Catalog.
var cluster struct {
	*kubernetes.ControlPlane
	catalog *servicecatalog.Catalog
	client  dynamic.Interface
}

// activations are the stand-in that serves EventActivations.
var activations *standin.Activations

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Shared(&cluster.ControlPlane), kubernetes.Before(furnish), kubernetes.After(func() error {
		var err error
		if cluster.catalog != nil {
			err = cluster.catalog.Stop()
		}
		if activations != nil {
			activations.Stop()
		}
		return err
	}))
}

// furnish installs Service Catalog and what else of Kyma its tests need.
func furnish(ctx context.Context) (err error) {
	if !cluster.Own() {
		return kubernetes.SkipAll("Service Catalog cannot run beside a cluster of somebody else")
	}
	if err := cluster.InstallCRDs(ctx, kubernetes.KnativeV1alpha1); err != nil {
		return err
	}
	if cluster.client, err = dynamic.NewForConfig(cluster.Config()); err != nil {
		return err
	}
	// Kyma's namespaces.
	if _, err := standin.Put(ctx, cluster.Config(), 0); err != nil {
		return err
	}
	if err := standin.Load(ctx, cluster.Config(), standin.EventBus()...); err != nil {
		return err
	}
	// It lives as long as the tests do, not only as long as this does.
	if activations, err = standin.StartActivations(context.WithoutCancel(ctx), cluster.Config(), standin.Options{}); err != nil {
		return err
	}
	cluster.catalog, err = servicecatalog.Start(ctx, cluster.ControlPlane, servicecatalog.Options{CascadingDeletion: true, QPS: 500})
	return err
}

// world is a namespace that uses the Application "shop" through a broker.
type world struct {
	*testing.T
	ctx    context.Context
	ns     string
	broker *standin.ApplicationBroker
}

const (
	app = "shop"
	// orders has an API and events, stock nothing but events; api has no events.
	orders = "6b1b5a4e-0001-4d5c-8f0a-000000000001"
	stock  = "6b1b5a4e-0002-4d5c-8f0a-000000000002"
	api    = "6b1b5a4e-0003-4d5c-8f0a-000000000003"
	// escaped is an ID that is not the name of its class: Service Catalog escapes every z.
	escaped = "legacy-zone"
)

var services = []standin.AppService{
	{ID: orders, Name: "orders", API: true, Events: true}, {ID: stock, Name: "stock", Events: true},
	{ID: api, Name: "api", API: true}, {ID: escaped, Name: "legacy", API: true, Events: true},
}

var channels = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "channels"}
var links = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"}

// with returns a namespace with a broker, whose catalog Service Catalog knows, and nothing of
// earlier tests.
func with(t *testing.T, opts standin.ApplicationBrokerOptions) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &world{T: t, ctx: ctx}
	w.check(cluster.catalog.SetCascadingDeletion(ctx, true))
	w.check(standin.ClearServices(ctx, cluster.Config()))
	channel := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "Channel",
		"metadata": map[string]any{"name": app, "namespace": standin.IntegrationNamespace, "labels": map[string]any{"application-name": app}},
	}}
	w.check(standin.Load(ctx, cluster.Config(), channel, standin.ApplicationWith(app, services...)))
	var err error
	w.broker, err = standin.StartApplicationBroker(context.WithoutCancel(ctx), cluster.Config(), opts)
	w.check(err)
	t.Cleanup(w.broker.Stop)
	return w.in("ns-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
}

// in returns another namespace, which uses the Application through the same broker.
func (w *world) in(ns string) *world {
	w.Helper()
	w = &world{T: w.T, ctx: w.ctx, ns: ns, broker: w.broker}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}}}
	w.check(standin.Load(w.ctx, cluster.Config(), namespace))
	w.check(standin.Load(w.ctx, cluster.Config(), standin.ApplicationMapping(ns, app)))
	w.check(w.broker.WaitCatalog(w.ctx, ns))
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(u *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	created, err := w.tryCreate(u)
	w.check(err)
	return created
}

func (w *world) tryCreate(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	gvr := map[string]schema.GroupVersionResource{
		"ServiceInstance": standin.ServiceInstances, "ServiceBinding": standin.ServiceBindings, "ServiceBindingUsage": standin.ServiceBindingUsages,
		"Deployment": standin.Deployments,
	}[u.GetKind()]
	return cluster.client.Resource(gvr).Namespace(w.ns).Create(w.ctx, u, metav1.CreateOptions{})
}

func (w *world) get(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.Helper()
	u, err := cluster.client.Resource(gvr).Namespace(w.ns).Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.check(err)
	return u
}

func (w *world) delete(gvr schema.GroupVersionResource, name string) {
	w.Helper()
	w.check(cluster.client.Resource(gvr).Namespace(w.ns).Delete(w.ctx, name, metav1.DeleteOptions{}))
}

func (w *world) patch(gvr schema.GroupVersionResource, name, patch string) {
	w.Helper()
	_, err := cluster.client.Resource(gvr).Namespace(w.ns).Patch(w.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.check(err)
}

// until watches an object until the test holds; one that does not exist is nil.
func (w *world) until(gvr schema.GroupVersionResource, name, what string, holds func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	w.Helper()
	resource := cluster.client.Resource(gvr).Namespace(w.ns)
	if gvr == standin.Namespaces {
		resource = cluster.client.Resource(gvr)
	}
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	var last *unstructured.Unstructured
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	_, err := watchtools.UntilWithSync(ctx, kubernetes.ListWatch(resource.List, resource.Watch, func(opts *metav1.ListOptions) {
		opts.FieldSelector = selector
	}), &unstructured.Unstructured{}, func(store cache.Store) (bool, error) {
		if len(store.ListKeys()) == 0 {
			return holds(nil), nil
		}
		return false, nil // it comes as an event
	}, func(event watch.Event) (bool, error) {
		last, _ = event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Deleted {
			last = nil
		}
		return holds(last), nil
	})
	if err != nil {
		w.Fatalf("%s %s is not %s: %v\n%v\nthe broker was asked: %v", gvr.Resource, name, what, err, last, w.broker.Calls("provision", "deprovision", "bind", "unbind"))
	}
	return last
}

func (w *world) untilReady(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.Helper()
	return w.until(gvr, name, "ready", func(u *unstructured.Unstructured) bool {
		return u != nil && u.GetDeletionTimestamp() == nil && condition(u, "Ready").status == "True"
	})
}

func (w *world) untilGone(gvr schema.GroupVersionResource, name string) {
	w.Helper()
	w.until(gvr, name, "gone", func(u *unstructured.Unstructured) bool { return u == nil })
}

// untilFailed waits until Service Catalog has given the instance up, and returns why.
func (w *world) untilFailed(name string) string {
	w.Helper()
	u := w.until(standin.ServiceInstances, name, "failed", func(u *unstructured.Unstructured) bool { return u != nil && condition(u, "Failed").status == "True" })
	return condition(u, "Failed").message
}

type conditionOf struct{ status, reason, message string }

func condition(u *unstructured.Unstructured, kind string) conditionOf {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		m := item.(map[string]any)
		text := func(key string) string { s, _ := m[key].(string); return s }
		if text("type") == kind {
			return conditionOf{text("status"), text("reason"), text("message")}
		}
	}
	return conditionOf{}
}

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// linkNames are the Knative Subscriptions of the Application in the namespace.
func (w *world) linkNames() []string {
	w.Helper()
	list, err := cluster.client.Resource(links).Namespace(standin.IntegrationNamespace).List(w.ctx, metav1.ListOptions{LabelSelector: "application-name=" + app + ",broker-namespace=" + w.ns})
	w.check(err)
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

// again is the instance as it can be created anew: without what the webhooks refuse.
func again(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.SetResourceVersion("")
	u.SetUID("")
	u.SetFinalizers(nil)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "spec", "serviceClassRef")
	unstructured.RemoveNestedField(u.Object, "spec", "servicePlanRef")
	return u
}
