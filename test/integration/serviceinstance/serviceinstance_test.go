package serviceinstance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestRecreate recreates instances with and without bindings and usages, of
// services whose IDs are UUIDs and are not, with Service Catalog's cascade and
// without: each comes back as it was, and nothing is lost.
func TestRecreate(t *testing.T) {
	for _, cascading := range []bool{true, false} {
		t.Run(fmt.Sprintf("CascadingDeletion=%t", cascading), func(t *testing.T) {
			w := on(t)
			w.check(w.catalog.SetCascadingDeletion(w.ctx, cascading))
			owner := w.get(standin.Namespaces, "", ns)
			w.instance("orders", "orders", func(u *unstructured.Unstructured) {
				u.SetLabels(map[string]string{"team": "till"})
				u.SetAnnotations(map[string]string{"note": "kept"})
				u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns, UID: owner.GetUID()}})
			})
			w.patch(standin.ServiceInstances, ns, "orders", `{"metadata":{"finalizers":["kubernetes-incubator/service-catalog","example.com/audit"]}}`)
			w.instance("pizza", "pizza")
			w.instance("stock", "stock")
			w.instance("prices", "prices")
			w.bind("till", "orders")
			w.bind("app", "orders")
			w.bind("oven", "pizza")
			// Of another broker, for all namespaces; nothing provisions it.
			w.create(standin.ServiceInstances, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance", "metadata": map[string]any{"namespace": ns, "name": "redis"},
				"spec": map[string]any{"clusterServiceClassExternalName": "redis", "clusterServicePlanExternalName": "micro"},
			}})
			w.until(standin.ServiceInstances, ns, "redis", "looked at", func(u *unstructured.Unstructured) bool { return u != nil && condition(u, "Ready") != "" })
			// Of a class that nobody offers: it never gets a reference to one.
			w.create(standin.ServiceInstances, standin.ServiceInstance(ns, "ghost", "never-offered"))
			w.until(standin.ServiceInstances, ns, "ghost", "looked at", func(u *unstructured.Unstructured) bool { return u != nil && condition(u, "Ready") != "" })
			before, uids := w.census(), w.uids(standin.ServiceInstances)

			report := w.succeeds(migration.Succeeded, "--strategy=always")

			if diff := cmp.Diff(before, w.census()); diff != "" {
				t.Errorf("lost or changed (-before +after):\n%s", diff)
			}
			for name, uid := range w.uids(standin.ServiceInstances) {
				again := name != "prices" && name != "redis" && name != "ghost"
				if (uid != uids[name]) != again {
					t.Errorf("ServiceInstance %s was recreated: %t, want %t", name, uid != uids[name], again)
				}
			}
			got := w.get(standin.ServiceInstances, ns, "orders")
			is := map[string]any{
				"team": got.GetLabels()["team"], "note": got.GetAnnotations()["note"], "finalizers": got.GetFinalizers(), "owners": got.GetOwnerReferences(),
			}
			want := map[string]any{
				"team": "till", "note": "kept", "finalizers": []string{"kubernetes-incubator/service-catalog", "example.com/audit"},
				"owners": []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns, UID: owner.GetUID()}},
			}
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("it is not as it was (-want +got):\n%s", diff)
			}
			w.patch(standin.ServiceInstances, ns, "orders", `{"metadata":{"finalizers":["kubernetes-incubator/service-catalog"]}}`)
			w.isOnTheMesh("orders", orders)
			w.isOnTheMesh("pizza", pizza)
			w.isOnTheMesh("stock", stock)
			for _, ch := range report.Changes {
				if ch.Result == migration.ChangeFailed || ch.Result == migration.ChangeNotRestored {
					t.Errorf("%s %s: %s: %s", ch.Verb, ch.Name, ch.Result, ch.Message)
				}
			}
			w.succeeds(migration.NothingToDo)
		})
	}
}

// isOnTheMesh checks what application-broker makes for an instance.
func (w *world) isOnTheMesh(instance, service string) {
	w.t.Helper()
	u := w.get(standin.ServiceInstances, ns, instance)
	activation := w.get(standin.EventActivations, ns, service)
	switch {
	case activation == nil:
		w.t.Errorf("%s has no EventActivation", instance)
	case activation.GetDeletionTimestamp() != nil || text(activation, "spec", "sourceId") != app:
		w.t.Errorf("the EventActivation of %s: %v", instance, activation.Object)
	case len(activation.GetOwnerReferences()) != 1 || activation.GetOwnerReferences()[0].UID != u.GetUID():
		w.t.Errorf("the EventActivation of %s belongs to %v", instance, activation.GetOwnerReferences())
	}
	if names := w.linkNames(); len(names) != 1 {
		w.t.Errorf("Knative Subscriptions: %v, want one", names)
	}
	if ns := w.get(standin.Namespaces, "", ns); ns.GetLabels()["knative-eventing-injection"] != "enabled" {
		w.t.Errorf("labels of the namespace: %v", ns.GetLabels())
	}
}

// TestRepair makes what an instance lacks, and does not touch the instance;
// application-broker finds it, and uses it.
func TestRepair(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	w.bind("till", "orders")
	w.strip(orders)
	before := w.get(standin.ServiceInstances, ns, "orders").GetResourceVersion()

	plan, code := w.run("plan")
	if code != 0 || plan.Result != migration.Planned || w.get(standin.EventActivations, ns, orders) != nil {
		t.Fatalf("plan: exit code %d, %s: %s", code, plan.Result, plan.Message)
	}
	report := w.succeeds(migration.Succeeded)
	want := []string{"create EventActivation " + orders, "create Subscription " + w.linkNames()[0]}
	if diff := cmp.Diff(want, writesOf(report)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.isOnTheMesh("orders", orders)
	if after := w.get(standin.ServiceInstances, ns, "orders").GetResourceVersion(); after != before {
		t.Error("the instance was touched")
	}
	made := w.linkNames()
	w.instance("pizza", "pizza")
	if diff := cmp.Diff(made, w.linkNames()); diff != "" {
		t.Errorf("application-broker does not use what was made (-made +now):\n%s", diff)
	}
	w.succeeds(migration.NothingToDo)

	if report, code := w.run("undo"); code != 0 || w.get(standin.EventActivations, ns, orders) != nil && w.get(standin.EventActivations, ns, orders).GetDeletionTimestamp() == nil {
		t.Errorf("undo: exit code %d: %s: %s", code, report.Result, report.Message)
	}
}

// TestUndoKeepsABrokerInUse: an undo leaves the Broker that the run has made while a Trigger gets
// its events through it, and says what is to be done. It deletes the Broker once nobody uses it.
func TestUndoKeepsABrokerInUse(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	w.patch(standin.Namespaces, "", ns, `{"metadata":{"labels":{"knative-eventing-injection":null}}}`)
	poll.Until(t, time.Minute, "nobody creates the Broker again", func(ctx context.Context) error { // as long as the label is known
		return poll.Gone(w.client.Resource(brokers).Namespace(ns).Delete(ctx, "default", metav1.DeleteOptions{}))
	})
	w.strip(orders)
	w.succeeds(migration.Succeeded)
	if w.get(brokers, ns, "default") == nil {
		t.Fatal("the namespace has no Broker")
	}
	trigger := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "eventing.knative.dev/v1alpha1", "kind": "Trigger", "metadata": map[string]any{"namespace": ns, "name": "theirs"},
		"spec": map[string]any{"broker": "default", "subscriber": map[string]any{"uri": "http://till.shop"}},
	}}
	w.create(triggers, trigger)
	t.Cleanup(func() {
		err := w.client.Resource(triggers).Namespace(ns).Delete(context.WithoutCancel(t.Context()), "theirs", metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})

	report, code := w.run("undo")
	if code != 3 || report.Result != migration.PartlyRestored {
		t.Errorf("exit code %d, %s: %s", code, report.Result, report.Message)
	}
	const command = "kubectl -n shop delete trigger.eventing.knative.dev/theirs"
	if !slices.ContainsFunc(report.Findings, func(f migration.Finding) bool {
		return f.ID == "protected" && f.Object == "Broker shop/default" && f.Command == command
	}) {
		t.Errorf("no finding says what to do about Broker shop/default: %v", report.Findings)
	}
	if w.get(brokers, ns, "default") == nil {
		t.Error("the Broker is gone under the Trigger")
	}
	w.delete(triggers, ns, "theirs")
	if report, code := w.run("undo"); code != 0 || w.get(brokers, ns, "default") != nil {
		t.Errorf("undo again: exit code %d: %s: %s", code, report.Result, report.Message)
	}
}

// TestFailedForGood recreates an instance whose provisioning failed, and which
// nothing else can help: application-broker never tries again.
func TestFailedForGood(t *testing.T) {
	w := on(t)
	w.broker.Break(standin.FailProvision, ns+"/"+orders)
	w.create(standin.ServiceInstances, standin.ServiceInstance(ns, "orders", "orders"))
	// Service Catalog cleans up after it, and leaves it then.
	w.until(standin.ServiceInstances, ns, "orders", "given up", func(u *unstructured.Unstructured) bool {
		return u != nil && condition(u, "Failed") == "True" && text(u, "status", "currentOperation") == ""
	})
	w.broker.HealAll()
	w.succeeds(migration.Succeeded)
	w.isOnTheMesh("orders", orders)
	w.untilReady(standin.ServiceInstances, "orders")
}

// TestInconsistentActivation recreates an instance whose EventActivation is for
// another Application: application-broker leaves one alone that exists.
func TestInconsistentActivation(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	w.bind("till", "orders")
	before, uids := w.census(), w.uids(standin.ServiceInstances)
	w.patch(standin.EventActivations, ns, orders, `{"spec":{"sourceId":"other"}}`)
	if report, code := w.run("run", "--strategy=repair"); code != 0 || report.Result != migration.DeferredResult {
		t.Errorf("--strategy=repair: exit code %d, %s: %s", code, report.Result, report.Message)
	}
	if diff := cmp.Diff(uids, w.uids(standin.ServiceInstances)); diff != "" {
		t.Errorf("--strategy=repair recreates (-before +after):\n%s", diff)
	}
	w.succeeds(migration.Succeeded)
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed (-before +after):\n%s", diff)
	}
	w.isOnTheMesh("orders", orders)
}

// TestBroker111 recreates through application-broker of Kyma 1.11, which deletes the
// Knative Subscription before the EventActivation, and sets back the Istio Policy of the
// namespace that somebody has edited.
func TestBroker111(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{Version: standin.Broker111}, services...)
	w.instance("orders", "orders")
	w.instance("stock", "stock")
	w.bind("till", "orders")
	made := w.get(standin.Policies, ns, ns+"-broker").Object["spec"]
	before := w.census()
	w.patch(standin.Policies, ns, ns+"-broker", `{"spec":{"peers":[]}}`)
	mark, err := w.Mark(w.ctx)
	w.check(err)

	w.succeeds(migration.Succeeded, "--strategy=always")
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(made, w.get(standin.Policies, ns, ns+"-broker").Object["spec"]); diff != "" {
		t.Errorf("the Policy is not as application-broker makes it (-want +got):\n%s", diff)
	}
	if names := w.linkNames(); len(names) != 1 || w.get(standin.EventActivations, ns, orders) == nil || w.get(standin.EventActivations, ns, stock) == nil {
		t.Errorf("Knative Subscriptions %v, or an EventActivation is missing", names)
	}
	deleted, err := w.Requests(w.ctx, mark, kubernetes.All(kubernetes.By(standin.ApplicationBrokerName), func(r kubernetes.Request) bool { return r.Verb == "delete" }))
	w.check(err)
	link := slices.IndexFunc(deleted, func(r kubernetes.Request) bool { return r.Resource == links.Group+"/"+links.Resource })
	activation := slices.IndexFunc(deleted, func(r kubernetes.Request) bool {
		return r.Resource == standin.EventActivations.Group+"/"+standin.EventActivations.Resource
	})
	if link < 0 || activation < link {
		t.Errorf("deleted by application-broker: %v", deleted)
	}
	w.succeeds(migration.NothingToDo)
}

// TestAccessLabel: application-broker removes the label of the namespace whenever an
// instance of it is deleted, and sets it again with its resync only, which comes after
// half an hour. It fails on the commit before: the label was gone after the run.
func TestAccessLabel(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	w.instance("stock", "stock")
	label := func() string { return w.get(standin.Namespaces, "", ns).GetLabels()["accessLabel"] }
	w.until(standin.Namespaces, "", ns, "labelled by application-broker", func(u *unstructured.Unstructured) bool { return u.GetLabels()["accessLabel"] == app })

	w.succeeds(migration.Succeeded, "--strategy=always")
	if got := label(); got != app {
		t.Errorf("the label accessLabel is %q, was %q", got, app)
	}
	// Values that a user has set are restored, too.
	w.patch(standin.Namespaces, "", ns, `{"metadata":{"labels":{"accessLabel":"mine"}}}`)
	w.succeeds(migration.Succeeded, "--strategy=always")
	if got := label(); got != "mine" {
		t.Errorf("the label accessLabel is %q, was %q", got, "mine")
	}
	// It is none of the job's own.
	w.patch(standin.Namespaces, "", ns, `{"metadata":{"labels":{"accessLabel":null}}}`)
	w.succeeds(migration.Succeeded, "--strategy=always")
	if got := label(); got != "" {
		t.Errorf("the label accessLabel is %q, and there was none", got)
	}
}

// TestPlan: a plan says for each candidate what would happen and why, which
// bindings and workloads that touches, and how long it takes; and does nothing.
func TestPlan(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	w.bind("till", "orders")
	w.instance("stock", "stock")
	w.instance("prices", "prices")
	w.delete(standin.EventActivations, ns, stock)
	const recreated = "ServiceInstance shop/orders: is deleted and created again: --strategy=always; " +
		"and so are ServiceBinding till (Secret till); ServiceBindingUsage till, of deployment till"
	for _, tc := range []struct {
		strategy string
		want     []string
	}{
		{"auto", []string{
			"ServiceInstance shop/orders: nothing to do: it is provisioned, and has all that the mesh needs",
			"ServiceInstance shop/stock: repaired in place: it lacks its EventActivation",
		}},
		{"recreate", []string{
			"the recreation of 1 ServiceInstance, one after the other,",
			"ServiceInstance shop/stock: is deleted and created again: it lacks its EventActivation",
		}},
		{"always", []string{"the recreation of 2 ServiceInstances, one after the other,", recreated, "Meanwhile the workloads are without the credentials"}},
	} {
		proxy, kubeconfig := w.proxied()
		p := w.begin(kubeconfig, "plan", "--output=wide", "--strategy="+tc.strategy)
		if code := p.Wait(); code != 0 {
			t.Errorf("--strategy=%s: exit code %d", tc.strategy, code)
		}
		said := strings.Join(strings.Fields(p.Stdout()), " ")
		for _, want := range tc.want {
			if !strings.Contains(said, want) {
				t.Errorf("--strategy=%s: the plan does not say %q:\n%s", tc.strategy, want, p.Stdout())
			}
		}
		if strings.Contains(said, "shop/prices") {
			t.Errorf("--strategy=%s: a service without events is no candidate:\n%s", tc.strategy, p.Stdout())
		}
		for _, request := range proxy.Log() {
			if request.Writes() && !strings.HasSuffix(request.Resource, "reviews") {
				t.Errorf("--strategy=%s: the plan writes: %s", tc.strategy, request)
			}
		}
		proxy.Close()
	}
}

// TestRefuse: what could not come back is not deleted, nor anything else.
func TestRefuse(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	w.instance("stock", "stock")
	w.delete(standin.ApplicationMappings, ns, app)
	before := w.uids(standin.ServiceInstances)
	report, code := w.run("run", "--strategy=always")
	if code != migration.ExitRefused || len(report.Changes) > 0 {
		t.Errorf("exit code %d, %s: %s", code, report.Result, report.Message)
	}
	if diff := cmp.Diff(before, w.uids(standin.ServiceInstances)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if w.get(leases, kyma.StateNamespace, "eventmesh-migration") != nil {
		t.Error("a Lease was taken for nothing")
	}

	// The service is not offered any more: the instance works, as long as it is there.
	w.create(standin.ApplicationMappings, standin.ApplicationMapping(ns, app, stock))
	w.until(standin.ServiceClasses, ns, orders, "removed from the catalog", func(u *unstructured.Unstructured) bool {
		if u == nil {
			return false
		}
		removed, _, _ := unstructured.NestedBool(u.Object, "status", "removedFromBrokerCatalog")
		return removed
	})
	report, code = w.run("run", "--strategy=always")
	removed := func(f migration.Finding) bool {
		return f.Object == "ServiceInstance shop/orders" && strings.Contains(f.Problem, "is removed from the catalog")
	}
	if code != migration.ExitRefused || !slices.ContainsFunc(report.Findings, removed) {
		t.Errorf("exit code %d, %s: %v", code, report.Result, report.Findings)
	}
	if diff := cmp.Diff(before, w.uids(standin.ServiceInstances)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestTooLittleTime: a run that cannot end in time does not begin.
func TestTooLittleTime(t *testing.T) {
	w := on(t)
	w.instance("orders", "orders")
	report, code := w.run("run", "--strategy=always", "--timeout=10s")
	if code != migration.ExitRefused || w.get(leases, kyma.StateNamespace, "eventmesh-migration") != nil {
		t.Errorf("exit code %d, %s: %s", code, report.Result, report.Message)
	}
	if !slices.ContainsFunc(report.Findings, func(f migration.Finding) bool { return strings.Contains(f.Problem, "longer than --timeout 10s") }) {
		t.Errorf("it does not say why: %v", report.Findings)
	}
}

// TestParameters: with API packages, instances have parameters, of which some come
// from Secrets. They come back, and nobody gets to see them.
func TestParameters(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{Version: standin.Broker111, APIPackages: true}, services...)
	const hush = "hush-hush"
	w.put(standin.Secrets, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": ns, "name": "params"}, "stringData": map[string]any{"json": `{"token":"` + hush + `"}`},
	}})
	w.instance("orders", app, func(u *unstructured.Unstructured) {
		spec := u.Object["spec"].(map[string]any)
		spec["servicePlanExternalName"] = "orders"
		spec["parameters"] = map[string]any{"password": hush}
		spec["parametersFrom"] = []any{map[string]any{"secretKeyRef": map[string]any{"name": "params", "key": "json"}}}
	})
	w.bind("till", "orders")
	before := w.census()
	var said bytes.Buffer
	for _, run := range []struct {
		command string
		args    []string
	}{
		{"plan", []string{"--output=wide"}}, {"plan", []string{"--output=json"}}, {"run", []string{"--output=json", "--log-level=debug"}},
	} {
		p := w.begin(w.Kubeconfig, run.command, append(run.args, "--strategy=always")...)
		if code := p.Wait(); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", run.command, code, p.Stdout())
		}
		said.WriteString(p.Stdout())
		said.WriteString(p.Stderr())
	}
	for _, u := range w.list(standin.ConfigMaps, kyma.StateNamespace, "eventmesh-migration.kyma-project.io/job") {
		fmt.Fprint(&said, u.Object)
	}
	if strings.Contains(said.String(), hush) {
		t.Error("a parameter is shown")
	}
	if diff := cmp.Diff(before, w.census()); diff != "" {
		t.Errorf("lost or changed (-before +after):\n%s", diff)
	}
	spec := w.get(standin.ServiceInstances, ns, "orders").Object["spec"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"password": hush}, spec["parameters"]); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	// The Secret that the parameters come from is gone: it could not come back.
	w.delete(standin.Secrets, ns, "params")
	if report, code := w.run("run", "--strategy=always"); code != migration.ExitRefused {
		t.Errorf("exit code %d, %s: %s", code, report.Result, report.Message)
	}
}
