//go:build slow || soak

package rbac

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/servicecatalog"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// catalog is a cluster with the real Service Catalog, whose namespace "shop" uses
// two services of the Application "store".
type catalog struct {
	*bus
	t *testing.T
	// broker is application-broker, stock and orders what it offers.
	broker        *standin.ApplicationBroker
	orders, stock string
}

func TestRolesOfServiceInstanceRecreateAreExact(t *testing.T) {
	for _, version := range []kubernetes.KnativeVersion{kubernetes.KnativeV1alpha1, kubernetes.KnativeV1} {
		t.Run(string(version), func(t *testing.T) {
			c := newCatalog(t, version)
			a := c.account(t, "serviceinstance-recreate")
			c.instance("orders")
			c.bind("till", "orders")

			// Repairs: all that an instance can lack is made, and undone.
			for range 7 {
				c.strip()
				a.run(t, migration.Succeeded, "run")
				a.run(t, migration.Succeeded, "undo")
			}
			a.contended(t, func() { a.run(t, migration.Succeeded, "run") })
			a.run(t, migration.NothingToDo, "run")
			// Without its controller, the Knative Subscription does not become ready.
			c.strip()
			c.mesh.Stop()
			a.run(t, migration.RolledBack, "run", "--activation-timeout=1s", "--ready-timeout=5s")
			a.killed(t, func() bool {
				_, err := c.dynamic.Resource(standin.EventActivations).Namespace("shop").Get(t.Context(), c.orders, metav1.GetOptions{})
				return err == nil
			})
			c.startMesh()
			a.run(t, migration.Succeeded, "run")
			// An EventActivation that would go with somebody else.
			c.instance("stock")
			c.patch(standin.EventActivations, "shop", c.orders, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"ServiceInstance","name":"stock","uid":%q}]}}`,
				standin.ServiceInstances.GroupVersion(), c.get(standin.ServiceInstances, "shop", "stock").GetUID()))
			a.run(t, migration.Succeeded, "run")

			// Recreations: with finalizers and owners of others. application-broker was
			// restarted since the instance was provisioned, and has to be once more.
			c.check(c.broker.Restart(t.Context()))
			c.patch(standin.ServiceInstances, "shop", "orders", `{"metadata":{"finalizers":["kubernetes-incubator/service-catalog","example.com/audit"]}}`)
			for range 2 {
				a.run(t, migration.Succeeded, "run", "--strategy=always", "--timeout=30m", "--delete-timeout=2m", "--ready-timeout=2m", "--activation-timeout=2m", "--restart-timeout=2m")
			}
			c.patch(standin.ServiceInstances, "shop", "orders", `{"metadata":{"finalizers":["kubernetes-incubator/service-catalog"]}}`)

			// application-broker of 1.11 makes a Policy, too.
			c.startBroker(standin.Broker111)
			_, err := c.core.AppsV1().Deployments(standin.IntegrationNamespace).Patch(t.Context(), standin.ApplicationBrokerName, types.JSONPatchType,
				[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"application-broker:ea60970f"}]`), metav1.PatchOptions{})
			c.check(err)
			c.strip()
			a.run(t, migration.Succeeded, "run")
			a.run(t, migration.Succeeded, "undo")

			// What Knative makes with the label has no finalizers, or a rollback would
			// watch it go.
			faults := faultOnly{
				journal: "the answer to a creation was lost",
				"get policies.authentication.istio.io everywhere": "the answer to a creation was lost",
			}
			if version == kubernetes.KnativeV1alpha1 {
				faults["watch serviceaccounts everywhere"] = "one had a finalizer"
				faults["watch rolebindings.rbac.authorization.k8s.io everywhere"] = "one had a finalizer"
			}
			c.strip()
			a.refusesWithout(t, faults)
			recreation := faultOnly{
				"get pods in kyma-integration":                                         "somebody else replaced a pod at the same time",
				"patch servicebindings.servicecatalog.k8s.io everywhere":               "a webhook took finalizers off one that was restored",
				"patch servicebindingusages.servicecatalog.kyma-project.io everywhere": "a webhook took finalizers off one that was restored",
			}
			a.refusesWithout(t, recreation, "--strategy=always", "--timeout=30m")
			maps.Copy(faults, recreation)
			a.exactly(t, faults)
		})
	}
}

func newCatalog(t *testing.T, version kubernetes.KnativeVersion) *catalog {
	t.Helper()
	c := &catalog{bus: &bus{plane: start(t, version)}, t: t, orders: "6b1b5a4e-0001-4d5c-8f0a-000000000001", stock: "6b1b5a4e-0002-4d5c-8f0a-000000000002"}
	ctx, outlive := t.Context(), context.WithoutCancel(t.Context())
	c.check(standin.Load(ctx, c.Config(), standin.EventBus()...))
	activations, err := standin.StartActivations(outlive, c.Config(), standin.Options{})
	c.check(err)
	t.Cleanup(activations.Stop)
	c.startMesh()
	t.Cleanup(func() { c.mesh.Stop() })
	usages, err := standin.StartBindingUsages(outlive, c.Config(), standin.Options{})
	c.check(err)
	t.Cleanup(usages.Stop)
	service, err := servicecatalog.Start(ctx, c.ControlPlane, servicecatalog.Options{CascadingDeletion: true, QPS: 1000})
	c.check(err)
	t.Cleanup(func() {
		if err := service.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.startBroker(standin.Broker110)
	t.Cleanup(func() { c.broker.Stop() })
	c.create(standin.Applications, standin.ApplicationWith("store",
		standin.AppService{ID: c.orders, Name: "orders", API: true, Events: true}, standin.AppService{ID: c.stock, Name: "stock", Events: true}))
	c.check(standin.PutHTTPSources(ctx, c.Config(), "store"))
	c.check(c.controllers.WaitReady(ctx, "store"))
	c.create(standin.ApplicationMappings, standin.ApplicationMapping("shop", "store"))
	c.check(c.broker.WaitCatalog(ctx, "shop"))
	return c
}

// startBroker starts application-broker, in the place of the one that runs.
func (c *catalog) startBroker(version standin.BrokerVersion) {
	c.t.Helper()
	if c.broker != nil {
		c.broker.Stop()
	}
	var err error
	c.broker, err = standin.StartApplicationBroker(context.WithoutCancel(c.t.Context()), c.Config(), standin.ApplicationBrokerOptions{Version: version, InCluster: true})
	c.check(err)
}

func (c *catalog) startMesh() {
	c.t.Helper()
	var err error
	c.mesh, err = standin.StartMesh(context.WithoutCancel(c.t.Context()), c.Config(), standin.Options{})
	c.check(err)
}

func (c *catalog) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *catalog) create(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
	c.t.Helper()
	_, err := resource(c.dynamic, gvr, u.GetNamespace()).Create(c.t.Context(), u, metav1.CreateOptions{})
	c.check(err)
}

func (c *catalog) get(gvr schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	c.t.Helper()
	u, err := resource(c.dynamic, gvr, namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	c.check(err)
	return u
}

func (c *catalog) patch(gvr schema.GroupVersionResource, namespace, name, patch string) {
	c.t.Helper()
	_, err := resource(c.dynamic, gvr, namespace).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.check(err)
}

// instance makes a ServiceInstance of the service of that name.
func (c *catalog) instance(name string) {
	c.t.Helper()
	c.create(standin.ServiceInstances, standin.ServiceInstance("shop", name, name))
	c.ready(standin.ServiceInstances, name)
}

// bind gives a Deployment of the name the credentials of an instance.
func (c *catalog) bind(name, instance string) {
	c.t.Helper()
	c.create(standin.Deployments, standin.Workload("shop", name))
	c.create(standin.ServiceBindings, standin.ServiceBinding("shop", name, instance))
	c.ready(standin.ServiceBindings, name)
	c.create(standin.ServiceBindingUsages, standin.ServiceBindingUsage("shop", name, name, name))
	c.ready(standin.ServiceBindingUsages, name)
}

func (c *catalog) ready(gvr schema.GroupVersionResource, name string) {
	c.t.Helper()
	c.until(gvr.Resource+" "+name+" is ready", func(context.Context) error {
		conditions, _, _ := unstructured.NestedSlice(c.get(gvr, "shop", name).Object, "status", "conditions")
		for _, one := range conditions {
			if m, ok := one.(map[string]any); ok && m["type"] == "Ready" && m["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", conditions)
	})
}

// strip takes away all that the mesh has for an instance: as if it was provisioned
// by Kyma 1.8.
func (c *catalog) strip() {
	c.t.Helper()
	ctx := c.t.Context()
	c.patch(standin.Namespaces, "", "shop", `{"metadata":{"labels":{"knative-eventing-injection":null}}}`)
	for _, kind := range []struct {
		gvr       schema.GroupVersionResource
		namespace string
	}{
		{standin.EventActivations, "shop"},
		{c.knative("messaging", "subscriptions"), standin.IntegrationNamespace},
		{c.knative("eventing", "brokers"), "shop"},
		{schema.GroupVersionResource{Group: "authentication.istio.io", Version: "v1alpha1", Resource: "policies"}, "shop"},
		{corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "shop"},
		{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, "shop"},
		{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, "knative-eventing"},
	} {
		objects := c.dynamic.Resource(kind.gvr).Namespace(kind.namespace)
		list, err := objects.List(ctx, metav1.ListOptions{})
		c.check(err)
		for _, u := range list.Items {
			if u.GetName() == "default" && u.GetKind() == "ServiceAccount" || u.GetLabels()["app.kubernetes.io/name"] == "eventmesh-migration" {
				continue
			}
			if err := objects.Delete(ctx, u.GetName(), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				c.check(err)
			}
			c.until(u.GetKind()+" "+u.GetName()+" is gone", func(ctx context.Context) error {
				now, err := objects.Get(ctx, u.GetName(), metav1.GetOptions{})
				if err == nil && now.GetUID() != u.GetUID() {
					return nil // another one, of the same name
				}
				return poll.Gone(err)
			})
		}
	}
}

func (c *catalog) until(what string, holds func(context.Context) error) {
	c.t.Helper()
	poll.Until(c.t, 2*time.Minute, what, holds)
}
