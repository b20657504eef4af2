package jobmanager

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// migrated is a small cluster whose migration is finished: two Applications, their
// events in two namespaces. What Knative's and Kyma's controllers write is written
// here; those of Kubernetes are real.
type migrated struct {
	kubelet *node.Kubelet
}

var (
	migratedOnce sync.Once
	theMigrated  *migrated
)

const ready = `{conditions: [{type: Ready, status: "True", lastTransitionTime: "2020-03-04T00:00:00Z"}]`

// finished returns the cluster, whole.
func finished(t *testing.T) *migrated {
	t.Helper()
	migratedOnce.Do(func() {
		kubelet, err := node.StartKubelet(context.Background(), cluster.Config(), standin.IntegrationNamespace)
		if err != nil {
			t.Fatal(err)
		}
		theMigrated = &migrated{kubelet: kubelet}
	})
	forget(t)
	for _, ns := range []string{"shop", "crm"} {
		namespace(t, ns)
	}
	for app, where := range map[string]string{"commerce": "shop", "billing": "crm"} {
		theMigrated.application(t, app)
		theMigrated.eventService(t, app)
		theMigrated.consumer(t, app, where)
	}
	for _, d := range standin.EventBus() {
		theMigrated.bus(t, d.GetName())
	}
	theMigrated.catalog(t)
	t.Cleanup(func() { theMigrated.clear(t) })
	return theMigrated
}

// clear takes everything away again.
func (m *migrated) clear(t *testing.T) {
	t.Helper()
	for app, where := range map[string]string{"commerce": "shop", "billing": "crm"} {
		remove(t, "Application", "", app)
		remove(t, "Deployment", standin.IntegrationNamespace, app+"-event-service")
		for _, kind := range []string{"HTTPSource", "Channel", "Adapter"} {
			remove(t, kind, standin.IntegrationNamespace, app)
		}
		remove(t, "Link", standin.IntegrationNamespace, "brokersub-"+app)
		for _, o := range [][2]string{{"EventActivation", app + "-events"}, {"Broker", "default"}, {"Trigger", "on-" + app}} {
			remove(t, o[0], where, o[1])
		}
	}
	for _, d := range standin.EventBus() {
		remove(t, "Deployment", standin.SystemNamespace, d.GetName())
	}
	for kind, name := range map[string]string{"ServiceInstance": "commerce", "ServiceBinding": "commerce", "ServiceBindingUsage": "commerce"} {
		remove(t, kind, "shop", name)
	}
	forget(t)
}

// application puts an Application, and what takes its events into the mesh.
func (m *migrated) application(t *testing.T, name string) {
	t.Helper()
	put(t, "Application", standin.Application(name, false))
	for _, kind := range []string{"Adapter", "Channel"} {
		remove(t, kind, standin.IntegrationNamespace, name)
	}
	source := standin.HTTPSource(name)
	source.Object["status"] = object(t, ready+", SinkURI: http://x}").Object
	source = put(t, "HTTPSource", source)
	owner := *metav1.NewControllerRef(source, source.GroupVersionKind())
	channel := object(t, fmt.Sprintf(`{apiVersion: messaging.knative.dev/v1alpha1, kind: Channel, metadata: {namespace: kyma-integration, name: %[1]s, labels: {application-name: %[1]s}},
  spec: {channelTemplate: {apiVersion: messaging.knative.dev/v1alpha1, kind: NatssChannel}},
  status: %[2]s, address: {url: "http://%[1]s-kn-channel.kyma-integration.svc.cluster.local"}}}`, name, ready))
	channel.SetOwnerReferences([]metav1.OwnerReference{owner})
	put(t, "Channel", channel)
	adapter := object(t, fmt.Sprintf(`{apiVersion: serving.knative.dev/v1alpha1, kind: Service, metadata: {namespace: kyma-integration, name: %s}, spec: {template: {spec: {containers: [{image: a}]}}}, status: %s}}`, name, ready))
	adapter.SetOwnerReferences([]metav1.OwnerReference{owner})
	put(t, "Adapter", adapter)
}

func (m *migrated) eventService(t *testing.T, name string) {
	t.Helper()
	put(t, "Deployment", standin.EventService(name, true))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := m.kubelet.WaitRolledOut(ctx, name+"-event-service"); err != nil {
		t.Fatal(err)
	}
}

func (m *migrated) consumer(t *testing.T, app, where string) {
	t.Helper()
	ea := standin.EventActivation(where, app+"-events", app)
	ea.SetFinalizers(nil)
	put(t, "EventActivation", ea)
	link := standin.Link("v1alpha1", app, where, "brokersub-"+app)
	link.Object["status"] = object(t, ready+"}").Object
	put(t, "Link", link)
	put(t, "Broker", object(t, fmt.Sprintf(`{apiVersion: eventing.knative.dev/v1alpha1, kind: Broker, metadata: {namespace: %s, name: default}, spec: {}, status: %s, address: {url: "http://default-broker.%s"}}}`, where, ready, where)))
	put(t, "Trigger", trigger(t, where, "on-"+app, app, "http://"+app+"."+where+":8080/"))
}

func trigger(t *testing.T, namespace, name, source, uri string) *unstructured.Unstructured {
	t.Helper()
	return object(t, fmt.Sprintf(`{apiVersion: eventing.knative.dev/v1alpha1, kind: Trigger, metadata: {namespace: %s, name: %s},
  spec: {broker: default, filter: {attributes: {source: %s, type: order.created, eventtypeversion: v1}}, subscriber: {uri: "%s"}}, status: %s}}`, namespace, name, source, uri, ready))
}

// bus puts a Deployment of the Event Bus as the migration leaves it.
func (m *migrated) bus(t *testing.T, name string) {
	t.Helper()
	for _, d := range standin.EventBus() {
		if d.GetName() == name {
			d.Object["spec"].(map[string]any)["replicas"] = int64(0)
			put(t, "Deployment", d)
		}
	}
}

func (m *migrated) catalog(t *testing.T) {
	t.Helper()
	put(t, "ServiceInstance", object(t, `{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceInstance, metadata: {namespace: shop, name: commerce},
  spec: {serviceClassExternalName: commerce, servicePlanExternalName: default, parameters: {password: hunter2}}, status: `+ready+`, provisionStatus: Provisioned, deprovisionStatus: Required, asyncOpInProgress: false, orphanMitigationInProgress: false, reconciledGeneration: 1, observedGeneration: 1, userSpecifiedPlanName: default, userSpecifiedClassName: commerce}}`))
	put(t, "ServiceBinding", object(t, `{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBinding, metadata: {namespace: shop, name: commerce},
  spec: {instanceRef: {name: commerce}, secretName: commerce}, status: `+ready+`, asyncOpInProgress: false, orphanMitigationInProgress: false, reconciledGeneration: 1, unbindStatus: Required}}`))
	put(t, "ServiceBindingUsage", object(t, `{apiVersion: servicecatalog.kyma-project.io/v1alpha1, kind: ServiceBindingUsage, metadata: {namespace: shop, name: commerce},
  spec: {serviceBindingRef: {name: commerce}, usedBy: {kind: deployment, name: web}}}`))
}
