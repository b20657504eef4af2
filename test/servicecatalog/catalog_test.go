//go:build slow || soak

package servicecatalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/test/standin"
)

type unstructuredObject = unstructured.Unstructured

// TestCreateAgain holds what Service Catalog refuses, overwrites and keeps of an exported instance.
func TestCreateAgain(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	u := standin.ServiceInstance(w.ns, "orders", "orders")
	u.SetLabels(map[string]string{"team": "sales"})
	w.create(u)
	exported := w.untilReady(standin.ServiceInstances, "orders")
	w.delete(standin.ServiceInstances, "orders")
	w.untilGone(standin.ServiceInstances, "orders")

	refused := map[string]struct {
		reason  string
		edit    func(*unstructured.Unstructured)
		refused func(error) bool
	}{
		"ClassRef": {"the controller sets it", func(u *unstructured.Unstructured) {
			u.Object["spec"].(map[string]any)["serviceClassRef"] = map[string]any{"name": orders}
		}, func(err error) bool {
			return strings.Contains(err.Error(), "serviceClassRef must not be present on create")
		}},
		"PlanRef": {"the controller sets it", func(u *unstructured.Unstructured) {
			u.Object["spec"].(map[string]any)["servicePlanRef"] = map[string]any{"name": orders + "-plan"}
		}, func(err error) bool {
			return strings.Contains(err.Error(), "servicePlanRef must not be present on create")
		}},
		"ResourceVersion": {"the API server answers an internal error", func(u *unstructured.Unstructured) {
			u.SetResourceVersion(exported.GetResourceVersion())
		}, func(err error) bool {
			return apierrors.IsInternalError(err) || strings.Contains(err.Error(), "should not be set on objects to be created")
		}},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			u := again(exported)
			tc.edit(u)
			if _, err := w.tryCreate(u); err == nil || !tc.refused(err) {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}

	u = again(exported)
	spec := u.Object["spec"].(map[string]any)
	spec["userInfo"] = map[string]any{"username": "somebody", "uid": "", "groups": []any{}}
	spec["clusterServiceClassRef"] = map[string]any{"name": "gone"}
	spec["updateRequests"] = int64(7)
	u.SetFinalizers([]string{"example.com/hold"})
	u.SetAnnotations(map[string]string{"example.com/note": "kept"})
	got := w.create(u)
	gotSpec := got.Object["spec"].(map[string]any)
	for _, check := range []struct {
		what      string
		want, got any
	}{
		{"finalizers are overwritten", []string{standin.CatalogFinalizer}, got.GetFinalizers()},
		{"the caller is who creates it", "admin", text(got, "spec", "userInfo", "username")},
		{"the external ID is kept", text(exported, "spec", "externalID"), text(got, "spec", "externalID")},
		{"update requests are kept", int64(7), gotSpec["updateRequests"]},
		{"annotations are kept", "kept", got.GetAnnotations()["example.com/note"]},
		{"labels are kept", "sales", got.GetLabels()["team"]},
		{"cluster refs are dropped", nil, gotSpec["clusterServiceClassRef"]},
	} {
		if diff := cmp.Diff(check.want, check.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", check.what, diff)
		}
	}
	w.untilReady(standin.ServiceInstances, "orders")
}

// TestDeleteCascades holds what the deletion of an instance takes along with the feature gate of
// Kyma.
func TestDeleteCascades(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	usages := w.bound()
	credentials, err := usages.Credentials(w.ctx, w.ns, "fn")
	w.check(err)
	want := map[string]string{"GATEWAY_URL": "http://shop-orders.kyma-integration.svc.cluster.local"}
	if diff := cmp.Diff(want, credentials); diff != "" {
		t.Errorf("credentials (-want +got):\n%s", diff)
	}
	w.delete(standin.ServiceInstances, "orders")
	w.untilGone(standin.ServiceInstances, "orders")
	w.untilGone(standin.ServiceBindings, "orders")
	w.untilGone(standin.Secrets, "orders")
	w.untilGone(standin.ServiceBindingUsages, "orders")
	w.until(standin.Deployments, "fn", "without the label", func(u *unstructuredObject) bool {
		labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
		return cmp.Equal(labels, map[string]string{"app": "fn"})
	})
}

// bound makes an instance with a binding that the Deployment fn uses, and returns when all are
// ready.
func (w *world) bound() *standin.BindingUsages {
	w.Helper()
	usages, err := standin.StartBindingUsages(w.ctx, cluster.Config(), standin.Options{})
	w.check(err)
	w.Cleanup(usages.Stop)
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	w.create(standin.Workload(w.ns, "fn"))
	w.untilReady(standin.ServiceInstances, "orders")
	w.create(standin.ServiceBinding(w.ns, "orders", "orders"))
	w.untilReady(standin.ServiceBindings, "orders")
	w.create(standin.ServiceBindingUsage(w.ns, "orders", "orders", "fn"))
	w.untilReady(standin.ServiceBindingUsages, "orders")
	return usages
}

// TestDeleteIsBlocked holds what happens without the feature gate, and how to go on.
func TestDeleteIsBlocked(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.check(cluster.catalog.SetCascadingDeletion(w.ctx, false))
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	w.untilReady(standin.ServiceInstances, "orders")
	w.create(standin.ServiceBinding(w.ns, "orders", "orders"))
	w.untilReady(standin.ServiceBindings, "orders")
	w.delete(standin.ServiceInstances, "orders")
	blocked := func(u *unstructuredObject) bool {
		return u != nil && condition(u, "Ready").reason == "DeprovisionBlockedByExistingCredentials"
	}
	w.until(standin.ServiceInstances, "orders", "blocked", blocked)
	if _, err := w.tryCreate(standin.ServiceInstance(w.ns, "orders", "orders")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same name can be created: %v", err)
	}
	if _, err := w.tryCreate(standin.ServiceBinding(w.ns, "late", "orders")); err == nil {
		t.Error("an instance that is being deleted can be bound to")
	}
	if w.get(standin.Secrets, "orders") == nil {
		t.Error("the old binding's Secret is gone")
	}
	w.delete(standin.ServiceBindings, "orders")
	w.untilGone(standin.ServiceBindings, "orders")
	// Unbinding does not re-queue the instance; its next try may be minutes away. Any update does.
	w.patch(standin.ServiceInstances, "orders", `{"metadata":{"annotations":{"example.com/look":"again"}}}`)
	w.untilGone(standin.ServiceInstances, "orders")
}

// TestBrokerDown holds that a deletion waits for the broker.
func TestBrokerDown(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	w.untilReady(standin.ServiceInstances, "orders")
	w.broker.Down()
	w.delete(standin.ServiceInstances, "orders")
	w.until(standin.ServiceInstances, "orders", "failing", func(u *unstructuredObject) bool {
		return u != nil && condition(u, "Ready").reason == "DeprovisionCallFailed"
	})
	w.broker.Up()
	w.untilGone(standin.ServiceInstances, "orders")
}

// TestBindingAgain holds that a binding can be created again from its export, and that a usage with
// the UID of the former binding goes, while one without gets the new.
func TestBindingAgain(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	usages := w.bound()
	binding, stale := w.get(standin.ServiceBindings, "orders"), w.get(standin.ServiceBindingUsages, "orders")
	if refs := stale.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != binding.GetUID() || refs[0].Controller != nil {
		t.Fatalf("owners of the usage: %v", refs)
	}
	w.delete(standin.ServiceBindings, "orders")
	w.untilGone(standin.ServiceBindings, "orders")
	w.untilGone(standin.ServiceBindingUsages, "orders")
	w.create(again(binding))
	bound := w.untilReady(standin.ServiceBindings, "orders")
	if text(bound, "spec", "secretName") != "orders" || text(bound, "spec", "externalID") != text(binding, "spec", "externalID") {
		t.Errorf("the binding again: %v", bound.Object["spec"])
	}
	stale.SetName("stale")
	w.create(again(stale))
	w.untilGone(standin.ServiceBindingUsages, "stale")
	fresh := again(stale)
	fresh.SetName("orders")
	fresh.SetOwnerReferences(nil)
	w.create(fresh)
	got := w.untilReady(standin.ServiceBindingUsages, "orders")
	if !slices.ContainsFunc(got.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == bound.GetUID() }) {
		t.Errorf("owners of the usage: %v", got.GetOwnerReferences())
	}
	if credentials, err := usages.Credentials(w.ctx, w.ns, "fn"); err != nil || credentials["GATEWAY_URL"] == "" {
		t.Errorf("the workload has credentials %v: %v", credentials, err)
	}
}

// TestKilled holds that both processes can be killed at any time, and what is refused meanwhile.
func TestKilled(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.broker.Break(standin.HangProvision)
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	w.until(standin.ServiceInstances, "orders", "provisioning", func(u *unstructuredObject) bool {
		return u != nil && text(u, "status", "currentOperation") == "Provision"
	})
	cluster.catalog.KillController()
	w.broker.HealAll()
	cluster.catalog.KillWebhook()
	if _, err := w.tryCreate(standin.ServiceInstance(w.ns, "stock", "stock")); err == nil {
		t.Error("without its webhooks, Service Catalog takes writes")
	}
	w.check(cluster.catalog.StartWebhook(w.ctx))
	w.create(standin.ServiceInstance(w.ns, "stock", "stock"))
	w.check(cluster.catalog.StartController(w.ctx))
	w.untilReady(standin.ServiceInstances, "orders")
	w.untilReady(standin.ServiceInstances, "stock")
}

// TestCrash holds that a binding made before its instance is ready crashes the controller manager,
// unless it has an annotation, and that it is ready in the end.
func TestCrash(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.broker.Break(standin.HangProvision)
	for _, name := range []string{"orders", "api"} {
		w.create(standin.ServiceInstance(w.ns, name, name))
		binding := standin.ServiceBinding(w.ns, name, name)
		if name == "orders" {
			binding.SetAnnotations(map[string]string{"example.com/any": "thing"})
		}
		w.create(binding)
		w.until(standin.ServiceBindings, name, "waiting", func(u *unstructuredObject) bool {
			return u != nil && condition(u, "Ready").reason == "ErrorInstanceNotReady"
		})
		before := cluster.catalog.Crashes()
		w.broker.HealAll()
		w.untilReady(standin.ServiceBindings, name)
		if got := cluster.catalog.Crashes() - before; (got > 0) != (name == "api") {
			t.Errorf("%d crashes because of the binding %s", got, name)
		}
		w.broker.Break(standin.HangProvision)
	}
}
