//go:build slow || soak

package servicecatalog_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestProvision holds what application-broker makes for an instance, and takes away with it.
func TestProvision(t *testing.T) {
	for _, version := range []standin.BrokerVersion{standin.Broker110, standin.Broker111} {
		t.Run(strings.ReplaceAll(string(version), ".", "-"), func(t *testing.T) {
			w := with(t, standin.ApplicationBrokerOptions{Version: version})
			w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
			instance := w.untilReady(standin.ServiceInstances, "orders")

			ea := w.until(standin.EventActivations, orders, "held", func(u *unstructuredObject) bool { return u != nil && len(u.GetFinalizers()) == 1 })
			owned := len(ea.GetOwnerReferences()) == 1 && ea.GetOwnerReferences()[0].UID == instance.GetUID()
			if owned != (version == standin.Broker110) {
				t.Errorf("owners of the EventActivation: %v", ea.GetOwnerReferences())
			}
			if text(ea, "spec", "sourceId") != app {
				t.Errorf("EventActivation: %v", ea.Object["spec"])
			}
			names := w.linkNames()
			if len(names) != 1 || !strings.HasPrefix(names[0], "brokersub-") {
				t.Fatalf("Knative Subscriptions: %v", names)
			}
			link, err := cluster.client.Resource(links).Namespace(standin.IntegrationNamespace).Get(w.ctx, names[0], metav1.GetOptions{})
			w.check(err)
			if text(link, "spec", "subscriber", "uri") != "http://default-broker."+w.ns || text(link, "spec", "channel", "name") != app {
				t.Errorf("Knative Subscription: %v", link.Object["spec"])
			}
			ns, err := cluster.client.Resource(standin.Namespaces).Get(w.ctx, w.ns, metav1.GetOptions{})
			w.check(err)
			if ns.GetLabels()["knative-eventing-injection"] != "enabled" || ns.GetLabels()["accessLabel"] != app {
				t.Errorf("labels of the namespace: %v", ns.GetLabels())
			}
			if policy := w.get(standin.Policies, w.ns+"-broker"); (policy != nil) != (version == standin.Broker111) {
				t.Errorf("Policy: %v", policy)
			}

			w.delete(standin.ServiceInstances, "orders")
			w.untilGone(standin.ServiceInstances, "orders")
			// In 1.10 the garbage collector sees to it.
			w.untilGone(standin.EventActivations, orders)
			if names := w.linkNames(); len(names) != 0 {
				t.Errorf("Knative Subscriptions that stayed: %v", names)
			}
			// Every deletion of an instance takes the label, though the mapping is still there.
			w.until(standin.Namespaces, w.ns, "without accessLabel", func(u *unstructuredObject) bool {
				_, has := u.GetLabels()["accessLabel"]
				return !has && u.GetLabels()["knative-eventing-injection"] == "enabled"
			})
		})
	}
}

// TestWhichServices holds that only services with events touch the mesh, that an instance is one of
// a kind, and that what the broker finds in place it uses.
func TestWhichServices(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.create(standin.ServiceInstance(w.ns, "api", "api"))
	w.untilReady(standin.ServiceInstances, "api")
	if names := w.linkNames(); len(names) != 0 || w.get(standin.EventActivations, api) != nil {
		t.Errorf("a service without events got %v", names)
	}
	// As the migration repairs it.
	_, err := cluster.client.Resource(links).Namespace(standin.IntegrationNamespace).Create(w.ctx, standin.Link("v1alpha1", app, w.ns, "brokersub-ours"), metav1.CreateOptions{})
	w.check(err)
	w.create(standin.ServiceInstance(w.ns, "legacy", "legacy"))
	legacy := w.untilReady(standin.ServiceInstances, "legacy")
	if class := text(legacy, "spec", "serviceClassRef", "name"); class == escaped || class == "" {
		t.Errorf("the class of %s is named %q", escaped, class)
	}
	w.create(standin.ServiceInstance(w.ns, "stock", "stock"))
	w.untilReady(standin.ServiceInstances, "stock")
	if names := w.linkNames(); len(names) != 1 || names[0] != "brokersub-ours" {
		t.Errorf("Knative Subscriptions: %v, want the one that was there", names)
	}
	w.create(standin.ServiceInstance(w.ns, "stock-2", "stock"))
	if why := w.untilFailed("stock-2"); !strings.Contains(why, "already activated") {
		t.Errorf("a second instance of a service failed with %q", why)
	}
}

// TestNothingIsTriedAgain holds that a provisioning which fails, fails for good.
func TestNothingIsTriedAgain(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.check(cluster.client.Resource(channels).Namespace(standin.IntegrationNamespace).Delete(w.ctx, app, metav1.DeleteOptions{}))
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	if why := w.untilFailed("orders"); !strings.Contains(why, "expected 1 Channel, found 0") {
		t.Errorf("without a Channel it failed with %q", why)
	}
	w.broker.Break(standin.FailProvision, w.ns+"/"+api)
	w.create(standin.ServiceInstance(w.ns, "api", "api"))
	if why := w.untilFailed("api"); !strings.Contains(why, "injected") {
		t.Errorf("the fault failed it with %q", why)
	}
	w.broker.HealAll()
	w.broker.Break(standin.HangProvision)
	w.create(standin.ServiceInstance(w.ns, "stock", "stock"))
	w.until(standin.ServiceInstances, "stock", "provisioning", func(u *unstructuredObject) bool {
		return u != nil && text(u, "status", "currentOperation") == "Provision" && u.Object["status"].(map[string]any)["asyncOpInProgress"] == true
	})
}

// TestRestartTrap holds docs/migration/domain.md §4.3: what becomes of an instance that is
// recreated after the broker was restarted, and the cure. Each case has a namespace of its own;
// they share the broker, and so its restarts.
func TestRestartTrap(t *testing.T) {
	all := with(t, standin.ApplicationBrokerOptions{})
	const (
		never   = "never"   // recreated by a broker that was not restarted
		thrice  = "thrice"  // and twice again: the newest operation counts
		same    = "same"    // recreated under the same ID, by a broker that was restarted before
		renamed = "renamed" // under a new ID
		cured   = "cured"   // under the same ID, after a restart in between
	)
	cases := []string{never, thrice, same, renamed, cured}
	in := map[string]*world{}
	for _, name := range cases {
		in[name] = all.in("trap-" + name)
	}
	exported := map[string]*unstructuredObject{}
	ready := func(cases ...string) {
		t.Helper()
		for _, name := range cases {
			exported[name] = again(in[name].untilReady(standin.ServiceInstances, "orders"))
			if got := len(in[name].linkNames()); got != 1 {
				t.Errorf("%s: %d Knative Subscriptions, want 1", name, got)
			}
		}
	}
	remove := func(wantStatus int, reason string, cases ...string) {
		t.Helper()
		for _, name := range cases {
			in[name].delete(standin.ServiceInstances, "orders")
		}
		for _, name := range cases {
			w := in[name]
			w.untilGone(standin.ServiceInstances, "orders")
			w.untilGone(standin.EventActivations, orders)
			// Nobody but the broker removes the Knative Subscription.
			if got := len(w.linkNames()) == 0; got != (wantStatus == http.StatusAccepted) {
				t.Errorf("%s, %s: the Knative Subscription went: %t", name, reason, got)
			}
			status := 0
			for _, call := range w.broker.Calls("deprovision") {
				if call.Namespace == w.ns {
					status = call.Status
				}
			}
			if status != wantStatus {
				t.Errorf("%s, %s: deprovisioning was answered %d, want %d", name, reason, status, wantStatus)
			}
		}
	}
	recreate := func(cases ...string) {
		t.Helper()
		for _, name := range cases {
			in[name].create(exported[name])
		}
	}
	fails := func(name, with string) {
		t.Helper()
		if why := in[name].untilFailed("orders"); !strings.Contains(why, with) {
			t.Errorf("%s: failed with %q, want %q", name, why, with)
		}
	}

	for _, name := range cases {
		in[name].create(standin.ServiceInstance(in[name].ns, "orders", "orders"))
	}
	ready(cases...)

	remove(http.StatusAccepted, "the broker knows its operations", never, thrice)
	recreate(never, thrice)
	ready(never, thrice)
	for range 2 {
		remove(http.StatusAccepted, "the newest operation counts", thrice)
		recreate(thrice)
		ready(thrice)
	}

	all.check(all.broker.Restart(all.ctx))
	remove(http.StatusGone, "the broker was restarted", same, renamed, cured)
	delete(exported[renamed].Object["spec"].(map[string]any), "externalID")
	recreate(same, renamed)
	fails(same, "element already exists")
	fails(renamed, "already activated")

	all.check(all.broker.Restart(all.ctx))
	recreate(cured)
	ready(cured)
}

// TestUnknownApplication holds that an instance whose service has gone from its Application
// meanwhile is answered 500, and asked for again: it is not failed permanently.
func TestUnknownApplication(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.broker.Break(standin.UnknownService, w.ns+"/"+orders)
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	w.until(standin.ServiceInstances, "orders", "refused", func(u *unstructuredObject) bool {
		return u != nil && condition(u, "Ready").status == "False" && slices.ContainsFunc(w.broker.Calls("provision"), func(call standin.BrokerCall) bool {
			return call.Namespace == w.ns && call.Status == http.StatusInternalServerError
		})
	})
	if failed := condition(w.get(standin.ServiceInstances, "orders"), "Failed"); failed.status == "True" {
		t.Errorf("it has failed permanently: %v", failed)
	}
}

// TestVersion holds that only version 2.13 of the API is answered, and that this Service Catalog
// asks for it.
func TestVersion(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	for version, want := range map[string]int{"2.13": http.StatusOK, "2.14": http.StatusPreconditionFailed, "": http.StatusPreconditionFailed} {
		req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.broker.URL()+"/"+w.ns+"/v2/catalog", nil)
		w.check(err)
		req.Header.Set("X-Broker-API-Version", version)
		resp, err := http.DefaultClient.Do(req)
		w.check(err)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("version %q: %s, want %d", version, resp.Status, want)
		}
	}
}

// TestPolicyIsCorrected holds that 1.11 corrects a Policy that somebody has edited.
func TestPolicyIsCorrected(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{Version: standin.Broker111})
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	w.untilReady(standin.ServiceInstances, "orders")
	policies := cluster.client.Resource(standin.Policies).Namespace(w.ns)
	_, err := policies.Patch(w.ctx, w.ns+"-broker", types.MergePatchType, []byte(`{"spec":{"peers":[{"mtls":{"mode":"STRICT"}}]}}`), metav1.PatchOptions{})
	w.check(err)
	w.create(standin.ServiceInstance(w.ns, "stock", "stock"))
	w.untilReady(standin.ServiceInstances, "stock")
	peers, _, _ := unstructured.NestedSlice(w.get(standin.Policies, w.ns+"-broker").Object, "spec", "peers")
	if fmt.Sprint(peers) != "[map[mtls:map[mode:PERMISSIVE]]]" {
		t.Errorf("peers: %v", peers)
	}
}

// TestDeletionTakesTheServiceBroker holds the side effect of a deletion: without a mapping the
// ServiceBroker goes with the last instance, and the class with it.
func TestDeletionTakesTheServiceBroker(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{})
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	w.untilReady(standin.ServiceInstances, "orders")
	w.delete(standin.ApplicationMappings, app)
	w.until(standin.Namespaces, w.ns, "without accessLabel", func(u *unstructuredObject) bool { _, has := u.GetLabels()["accessLabel"]; return !has })
	if w.get(standin.ServiceBrokers, standin.ApplicationBrokerName) == nil {
		t.Error("the ServiceBroker went before the instance")
	}
	w.delete(standin.ServiceInstances, "orders")
	w.untilGone(standin.ServiceInstances, "orders")
	w.untilGone(standin.ServiceBrokers, standin.ApplicationBrokerName)
	w.untilGone(standin.ServiceClasses, orders)
}

// TestAPIPackages holds the other shape of the catalog.
func TestAPIPackages(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{Version: standin.Broker111, APIPackages: true})
	u := standin.ServiceInstance(w.ns, "orders", app)
	u.Object["spec"].(map[string]any)["servicePlanExternalName"] = "orders"
	w.create(u)
	instance := w.untilReady(standin.ServiceInstances, "orders")
	if class := w.get(standin.ServiceClasses, text(instance, "spec", "serviceClassRef", "name")); text(class, "spec", "externalID") != "compass-"+app {
		t.Errorf("class: %v", class.Object["spec"])
	}
	if plan := w.get(standin.ServicePlans, text(instance, "spec", "servicePlanRef", "name")); text(plan, "spec", "externalID") != orders {
		t.Errorf("plan: %v", plan.Object["spec"])
	}
	if w.get(standin.EventActivations, orders) == nil || len(w.linkNames()) != 1 {
		t.Error("the instance got no EventActivation or no Knative Subscription")
	}
}

// TestPod holds that the broker lives and dies with its pod.
func TestPod(t *testing.T) {
	w := with(t, standin.ApplicationBrokerOptions{InCluster: true})
	pods := func() *unstructuredObject {
		list, err := cluster.client.Resource(standin.Pods).Namespace(standin.IntegrationNamespace).List(w.ctx, metav1.ListOptions{LabelSelector: "app=application-broker"})
		w.check(err)
		for i := range list.Items {
			if list.Items[i].GetDeletionTimestamp() == nil {
				return &list.Items[i]
			}
		}
		return nil
	}
	first := pods()
	if condition(first, "Ready").status != "True" || text(first, "status", "startTime") == "" {
		t.Fatalf("the pod is not ready: %v", first.Object["status"])
	}
	w.create(standin.ServiceInstance(w.ns, "orders", "orders"))
	exported := w.untilReady(standin.ServiceInstances, "orders")
	w.check(w.broker.Restart(w.ctx))
	if second := pods(); second == nil || second.GetUID() == first.GetUID() {
		t.Error("there is no other pod after the restart")
	}
	w.delete(standin.ServiceInstances, "orders")
	w.untilGone(standin.ServiceInstances, "orders")
	w.untilGone(standin.EventActivations, orders)
	w.create(again(exported))
	if why := w.untilFailed("orders"); !strings.Contains(why, "element already exists") {
		t.Errorf("after the restart of the pod it failed with %q", why)
	}
}
