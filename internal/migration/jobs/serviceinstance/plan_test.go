package serviceinstance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// summary is a plan in words: the changes, and what has a severity above info.
func summary(p *migration.Plan) []string {
	out := []string{}
	for _, u := range p.Units {
		for i := range u.Changes {
			out = append(out, fmt.Sprintf("%s %s", u.Changes[i].Verb, u.Changes[i].Ref))
		}
	}
	for _, f := range p.Findings {
		if f.Severity != migration.Info {
			out = append(out, string(f.Severity)+": "+f.Object+": "+f.Problem)
		}
	}
	return out
}

// TestOddObjects: an object of which a part cannot be read changes nothing for the others. It is
// named with the field if it hides what an instance lacks.
func TestOddObjects(t *testing.T) {
	var odd []edit
	for _, kind := range []string{
		"applicationconnector.kyma-project.io/v1alpha1 ApplicationMapping", "applicationconnector.kyma-project.io/v1alpha1 EventActivation",
		"servicecatalog.k8s.io/v1beta1 ServiceBroker", "servicecatalog.k8s.io/v1beta1 ServiceClass", "servicecatalog.k8s.io/v1beta1 ServicePlan",
		"servicecatalog.k8s.io/v1beta1 ServiceInstance", "servicecatalog.k8s.io/v1beta1 ServiceBinding", "servicecatalog.kyma-project.io/v1alpha1 ServiceBindingUsage",
		"messaging.knative.dev/v1alpha1 Subscription", "messaging.knative.dev/v1alpha1 Channel", "eventing.knative.dev/v1alpha1 Broker", "eventing.knative.dev/v1alpha1 Trigger",
		"apps/v1 Deployment", "v1 Pod",
	} {
		version, name, _ := strings.Cut(kind, " ")
		for _, namespace := range []string{"shop", "kyma-integration"} {
			odd = append(odd, add(fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: a-%s}, spec: text, status: {conditions: text}}", version, name, namespace, strings.ToLower(name))))
		}
	}
	good := summary(planOf(t, recreate, failed))
	if diff := cmp.Diff(good, summary(planOf(t, recreate, append([]edit{failed}, odd...)...))); diff != "" || len(good) == 0 {
		t.Errorf("odd objects change what is done (-want +got):\n%s", diff)
	}
	for field, spec := range map[string]string{
		"spec is no object": `text`, "spec.services is no list": `{services: {id: odd}}`, "spec.services[1] is no object": `{services: [{id: a}, odd]}`,
		"spec.services[0].id is no text": `{services: [{id: 5}]}`, "spec.services[0].entries is no list": `{services: [{id: a, entries: Events}]}`,
		"spec.services[0].entries[0].type is no text": `{services: [{id: a, entries: [{type: [Events]}]}]}`, "spec.services[0].entries[0] is no object": `{services: [{id: a, entries: [Events]}]}`,
	} {
		app := add("{apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: Application, metadata: {name: odd}, spec: " + spec + "}")
		want := append(slices.Clone(good), "deferred: Application odd: "+field+": ServiceInstances of that part are left as they are")
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(summary(planOf(t, recreate, failed, app))))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
}

func planOf(t *testing.T, strategy string, edits ...edit) *migration.Plan {
	t.Helper()
	j := New()
	j.options.strategy = strategy
	plan, err := j.plan(t.Context(), newWorld(t, edits...), func(namespace string) bool { return namespace == "excluded" }, true)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// Edits that several tests need.
const failedStatus = `status: {provisionStatus: null, deprovisionStatus: NotRequired, conditions: [{type: Ready, status: "False"}, {type: Failed, status: "True", reason: ProvisionCallFailed, message: refused}]}`

var (
	withoutDependents = drop("ServiceBinding orders-binding", "ServiceBindingUsage orders-usage")
	withoutMesh       = drop("EventActivation orders", "Subscription brokersub-x")
	failed            = patch("ServiceInstance orders", failedStatus)
)

// sequence is the whole of a recreation.
var sequence = []string{
	"await ServiceInstance shop/orders",
	"delete ServiceBindingUsage shop/orders-usage",
	"delete ServiceBinding shop/orders-binding",
	"await ServiceInstance shop/orders",
	"delete ServiceInstance shop/orders",
	"await EventActivation shop/orders",
	"restart Deployment kyma-integration/application-broker",
	"recreate ServiceInstance shop/orders",
	"await ServiceInstance shop/orders",
	"recreate ServiceBinding shop/orders-binding",
	"await ServiceBinding shop/orders-binding",
	"recreate ServiceBindingUsage shop/orders-usage",
	"await ServiceBindingUsage shop/orders-usage",
}

// alone is that of an instance that nothing is bound to.
var alone = []string{
	"await ServiceInstance shop/orders",
	"delete ServiceInstance shop/orders",
	"await EventActivation shop/orders",
	"restart Deployment kyma-integration/application-broker",
	"recreate ServiceInstance shop/orders",
	"await ServiceInstance shop/orders",
}

func TestDecide(t *testing.T) {
	const si = "ServiceInstance shop/orders: "
	for _, tc := range []struct {
		reason   string
		strategy string
		edits    []edit
		want     []string
	}{
		{reason: "nothing is missing", want: []string{}},
		{reason: "nothing is missing: recreate is for what lacks something", strategy: recreate, want: []string{}},
		{reason: "all are recreated, as Kyma's own migration does", strategy: always, want: sequence},
		{reason: "no Service Catalog, nothing to do", edits: []edit{withoutMesh, unserved("ServiceInstance")}, want: []string{}},
		{reason: "no Applications, nothing to do", edits: []edit{withoutMesh, unserved("Application")}, want: []string{}},
		{
			reason: "both halves are missing and made at once, in place", edits: []edit{withoutMesh},
			want: []string{"create Subscription kyma-integration/brokersub-4621630b71", "create EventActivation shop/orders"},
		},
		{reason: "only recreation was asked for", strategy: recreate, edits: []edit{withoutMesh}, want: sequence},
		{
			reason: "no label and no Broker: with Knative 0.12 the label makes the Broker",
			edits:  []edit{patch("Namespace shop", "metadata: {labels: null}"), drop("Broker default")},
			want:   []string{"patch Namespace shop"},
		},
		{
			reason: "no label and no Broker: today's Knative makes none upon a label",
			edits:  []edit{patch("Namespace shop", "metadata: {labels: null}"), drop("Broker default"), modern},
			want:   []string{"patch Namespace shop", "create Broker shop/default"},
		},
		{
			reason: "the label is there, and the Broker is to come",
			edits:  []edit{drop("Broker default")},
			want:   []string{"await Broker shop/default"},
		},
		{
			reason: "the namespace is to have no Broker",
			edits:  []edit{drop("Broker default"), patch("Namespace shop", "metadata: {labels: {knative-eventing-injection: disabled}}")},
			want:   []string{"deferred: " + si + "left for later: its namespace has no Broker, and its label knative-eventing-injection=disabled says that it is to have none"},
		},
		{
			reason: "an EventActivation of an instance that is gone would go, too",
			edits:  []edit{patch("EventActivation orders", "metadata: {ownerReferences: [{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceInstance, name: orders, uid: old}]}")},
			want:   []string{"patch EventActivation shop/orders"},
		},
		{
			reason: "of 1.11 an EventActivation has no owner", edits: []edit{patch("EventActivation orders", "metadata: {ownerReferences: null}")}, want: []string{},
		},
		{
			reason: "application-broker of 1.11 makes a Policy, too",
			edits:  []edit{patch("Deployment application-broker", `spec: {template: {spec: {containers: [{name: broker, image: "x/application-broker:ea60970f"}]}}}`)},
			want:   []string{"create Policy shop/shop-broker"},
		},
		{
			reason: "application-broker of 1.11 where Istio's Policy is not served",
			edits:  []edit{patch("Deployment application-broker", `spec: {template: {spec: {containers: [{name: broker, image: "x/application-broker:ea60970f"}]}}}`), unserved("Policy")},
			want:   []string{},
		},
		{
			reason: "an EventActivation of another Application that goes with the instance", edits: []edit{patch("EventActivation orders", "spec: {sourceId: other}")},
			want: sequence,
		},
		{
			reason: "the same, and no recreation is wanted", strategy: repair, edits: []edit{patch("EventActivation orders", "spec: {sourceId: other}")},
			want: []string{"deferred: " + si + `its EventActivation is of the Application "other", and not of store`},
		},
		{
			reason: "the same, and it would stay", edits: []edit{patch("EventActivation orders", "spec: {sourceId: other}\nmetadata: {ownerReferences: null}")},
			want: []string{"error: " + si + `its EventActivation is of the Application "other", and not of store; it does not belong to the instance, and would stay as it is`},
		},
		{reason: "provisioning has failed permanently", edits: []edit{withoutDependents, withoutMesh, failed}, want: alone},
		{
			reason: "the same, and no recreation is wanted", strategy: repair, edits: []edit{withoutDependents, withoutMesh, failed},
			want: []string{"deferred: " + si + "not provisioned, and never will be: ProvisionCallFailed: refused"},
		},
		{
			reason: "a failed one beside one that provides the service is of no use",
			edits: []edit{withoutDependents, failed, add(`
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {namespace: shop, name: other, uid: si-2}
spec: {serviceClassRef: {name: class-1}, servicePlanRef: {name: plan-1}}
status: {provisionStatus: Provisioned, conditions: [{type: Ready, status: "True"}]}`), patch("EventActivation orders", "metadata: {ownerReferences: null}")},
			want: []string{"warning: " + si + "left alone: its provisioning has failed, and ServiceInstance other provides the same service already"},
		},
		{
			reason: "an update that failed does not make it unprovisioned", edits: []edit{withoutMesh, patch("ServiceInstance orders", `status: {conditions: [{type: Ready, status: "False"}, {type: Failed, status: "True"}]}`)},
			want: []string{"create Subscription kyma-integration/brokersub-4621630b71", "create EventActivation shop/orders"},
		},
		{
			reason: "something is under way", edits: []edit{withoutMesh, patch("ServiceInstance orders", `status: {currentOperation: Update, conditions: [{type: Ready, status: "False", reason: Updating}]}`)},
			want: []string{"deferred: " + si + "left for later: its update is under way (Updating)"},
		},
		{
			reason: "not provisioned yet", edits: []edit{withoutMesh, patch("ServiceInstance orders", `status: {provisionStatus: NotProvisioned, conditions: []}`)},
			want: []string{"deferred: " + si + "left for later: it is not provisioned yet (it has no status)"},
		},
		{
			reason: "being deleted", edits: []edit{withoutMesh, patch("ServiceInstance orders", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}`)},
			want: []string{"warning: " + si + "left alone: it is being deleted"},
		},
		{
			reason: "being deleted for ever", edits: []edit{withoutMesh, patch("ServiceInstance orders", "metadata: {deletionTimestamp: \"2020-03-04T00:00:00Z\"}\nstatus: {deprovisionStatus: Failed}")},
			want: []string{"warning: " + si + "left alone: it is being deleted, and its deprovisioning has failed permanently"},
		},
		{reason: "opted out", edits: []edit{withoutMesh, patch("ServiceInstance orders", `metadata: {labels: {eventmesh-migration.kyma-project.io/skip: "true"}}`)}, want: []string{}},
		{reason: "its namespace is opted out", edits: []edit{withoutMesh, patch("Namespace shop", `metadata: {labels: {eventmesh-migration.kyma-project.io/skip: "true"}}`)}, want: []string{}},
		{reason: "its namespace goes", edits: []edit{withoutMesh, patch("Namespace shop", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}`)}, want: []string{}},
		{reason: "its namespace is excluded", edits: []edit{withoutMesh, patch("ServiceInstance orders", `metadata: {namespace: excluded}`)}, want: []string{}},
		{reason: "a service without events", edits: []edit{withoutMesh, patch("ServiceClass class-1", `spec: {externalID: prices}`)}, want: []string{}},
		{reason: "a service of no Application", edits: []edit{withoutMesh, patch("ServiceClass class-1", `spec: {externalID: unknown}`)}, want: []string{}},
		{reason: "a class of another broker", edits: []edit{withoutMesh, patch("ServiceClass class-1", `spec: {serviceBrokerName: helm-broker}`)}, want: []string{}},
		{
			reason: "a cluster-wide class, and no serviceClassRef",
			edits:  []edit{withoutMesh, patch("ServiceInstance orders", `spec: {serviceClassExternalName: null, serviceClassRef: null, clusterServiceClassExternalName: redis}`)},
			want:   []string{},
		},
		{
			reason: "a reference that Service Catalog has not resolved yet",
			edits:  []edit{withoutMesh, patch("ServiceInstance orders", `spec: {serviceClassRef: null, servicePlanRef: null}`)},
			want:   []string{"create Subscription kyma-integration/brokersub-4621630b71", "create EventActivation shop/orders"},
		},
		{
			reason: "the name of a class is escaped, its external ID is not",
			edits: []edit{withoutMesh, patch("ServiceClass class-1", `spec: {externalID: pizza}`), patch("ServicePlan plan-1", `spec: {externalID: pizza-plan}`),
				patch("Application store", `spec: {services: [{id: pizza, entries: [{type: Events}]}]}`)},
			want: []string{"create Subscription kyma-integration/brokersub-4621630b71", "create EventActivation shop/pizza"},
		},
		{
			reason: "with API packages the class is the Application, and the plan is the service",
			edits: []edit{withoutMesh, patch("ServiceClass class-1", `spec: {externalID: compass-1}`), patch("ServicePlan plan-1", `spec: {externalID: orders}`),
				patch("Application store", `spec: {compassMetadata: {applicationId: compass-1}}`)},
			want: []string{"create Subscription kyma-integration/brokersub-4621630b71", "create EventActivation shop/orders"},
		},
		{
			reason: "with API packages, a plan without events",
			edits: []edit{withoutMesh, patch("ServiceClass class-1", `spec: {externalID: compass-1}`), patch("ServicePlan plan-1", `spec: {externalID: prices}`),
				patch("Application store", `spec: {compassMetadata: {applicationId: compass-1}}`)},
			want: []string{},
		},
		{
			reason: "two Applications with the same service, of which the mapping says which",
			edits: []edit{withoutMesh, add(`
apiVersion: applicationconnector.kyma-project.io/v1alpha1
kind: Application
metadata: {name: another}
spec: {services: [{id: orders, entries: [{type: Events}]}]}`)},
			want: []string{"create Subscription kyma-integration/brokersub-4621630b71", "create EventActivation shop/orders"},
		},
		{
			reason: "two Applications with the same service, and both are mapped",
			edits: []edit{withoutMesh, add(`
apiVersion: applicationconnector.kyma-project.io/v1alpha1
kind: Application
metadata: {name: another}
spec: {services: [{id: orders, entries: [{type: Events}]}]}
---
{apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: ApplicationMapping, metadata: {namespace: shop, name: another}}`)},
			want: []string{"error: " + si + `its service "orders" is one of several Applications, and nothing says which: another, store`},
		},
		{
			reason: "the Application has no Channel yet", edits: []edit{withoutMesh, drop("Channel store")},
			want: []string{"deferred: " + si + "left for later: its Application store has no Channel in kyma-integration yet"},
		},
		{
			reason: "two Knative Subscriptions already",
			edits:  []edit{drop("EventActivation orders"), add(`{apiVersion: messaging.knative.dev/v1alpha1, kind: Subscription, metadata: {namespace: kyma-integration, name: brokersub-y, labels: {application-name: store, broker-namespace: shop}}}`)},
			want:   []string{"deferred: " + si + "left for later, because 2 Knative Subscriptions bring the events of store to its namespace, each event 2 times: brokersub-x, brokersub-y"},
		},
		{
			reason: "what is being deleted counts as missing, and has to go first", edits: []edit{patch("Subscription brokersub-x", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}`)},
			want: []string{"deferred: " + si + "left for later: Knative Subscription kyma-integration/brokersub-x is being deleted"},
		},
		{
			reason: "an EventActivation that is being deleted, as well", edits: []edit{patch("EventActivation orders", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}`)},
			want: []string{"deferred: " + si + "left for later: its EventActivation shop/orders is being deleted"},
		},
		{
			reason: "an ID that no object can have as its name",
			edits: []edit{withoutMesh, patch("ServiceClass class-1", `spec: {externalID: My_Orders}`), patch("ServicePlan plan-1", `spec: {externalID: My_Orders-plan}`),
				patch("Application store", `spec: {services: [{id: My_Orders, entries: [{type: Events}]}]}`)},
			want: []string{"error: " + si + `the ID of its service, "My_Orders", can be no name of an EventActivation: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		},
		{
			reason: "work, and no Knative", edits: []edit{withoutMesh, unserved("Subscription", "Broker")},
			want: []string{
				"error: : the API server serves no kind Subscription (messaging.knative.dev), without which no event gets through the mesh",
				"error: : the API server serves no kind Broker (eventing.knative.dev), without which no event gets through the mesh",
			},
		},
		{reason: "no work, and no Knative", edits: []edit{withoutMesh, drop("ServiceInstance orders"), unserved("Subscription", "Broker")}, want: []string{}},
		{
			reason: "foreign finalizers are taken off, or they would keep it", strategy: always,
			edits: []edit{withoutDependents, patch("ServiceInstance orders", "metadata: {finalizers: [kubernetes-incubator/service-catalog, example.com/audit]}")},
			want:  slices.Insert(slices.Clone(alone), 1, "patch ServiceInstance shop/orders"),
		},
		{
			reason: "a Secret with the key", strategy: always, edits: []edit{
				patch("ServiceBinding orders-binding", "spec: {parametersFrom: [{secretKeyRef: {name: params, key: json}}]}"),
				add(`{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: params}, data: {json: e30=}}`),
			}, want: sequence,
		},
		{
			reason: "the label that application-broker removes with the instance is set again, last", strategy: always,
			edits: []edit{patch("Namespace shop", "metadata: {labels: {accessLabel: store}}")},
			want:  append(slices.Clone(sequence), "patch Namespace shop"),
		},
		{
			reason: "a list that begins again hands its objects over twice", edits: []edit{withoutMesh, func(_ *testing.T, w *world) { w.twice = true }},
			want: []string{"create Subscription kyma-integration/brokersub-4621630b71", "create EventActivation shop/orders"},
		},
		{
			reason: "bindings and usages that were not ready are made again, and not waited for", strategy: always,
			edits: []edit{patch("ServiceBinding orders-binding", `status: {conditions: [{type: Ready, status: "False"}]}`), patch("ServiceBindingUsage orders-usage", `status: null`)},
			want: slices.DeleteFunc(slices.Clone(sequence), func(step string) bool {
				return strings.HasPrefix(step, "await ServiceBinding")
			}),
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if tc.strategy == "" {
				tc.strategy = auto
			}
			got := summary(planOf(t, tc.strategy, tc.edits...))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRefuse holds what is never deleted, since it could not come back, or not
// now. All have the strategy that would delete it.
func TestRefuse(t *testing.T) {
	const si = "ServiceInstance shop/orders: "
	for _, tc := range []struct {
		reason string
		edits  []edit
		want   string
	}{
		{"the class is removed", []edit{patch("ServiceClass class-1", "status: {removedFromBrokerCatalog: true}")}, "error: " + si + "could not be provisioned again: its ServiceClass class-1 is removed from the catalog"},
		{"the plan is removed", []edit{patch("ServicePlan plan-1", "status: {removedFromBrokerCatalog: true}")}, "error: " + si + "could not be provisioned again: its ServicePlan plan-1 is removed from the catalog"},
		{"the plan is gone", []edit{drop("ServicePlan plan-1")}, "error: " + si + "its ServicePlan does not exist any more: it could not be provisioned again"},
		{
			"the plan is ambiguous", []edit{
				patch("ServiceInstance orders", "spec: {servicePlanRef: null, servicePlanExternalName: null}"),
				add(`{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServicePlan, metadata: {namespace: shop, name: plan-2}, spec: {externalName: other, serviceClassRef: {name: class-1}}}`),
			}, "error: " + si + "its ServicePlan is ambiguous: plan-1, plan-2",
		},
		{
			"the class is ambiguous", []edit{
				patch("ServiceInstance orders", "spec: {serviceClassRef: null}"),
				add(`{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceClass, metadata: {namespace: shop, name: class-2}, spec: {externalID: other, externalName: orders-name, serviceBrokerName: application-broker}}`),
			}, "error: " + si + "its ServiceClass is ambiguous: class-1, class-2",
		},
		{"no ServiceBroker", []edit{drop("ServiceBroker application-broker")}, "error: " + si + "could not be provisioned again: there is no ServiceBroker shop/application-broker"},
		{"no mapping", []edit{drop("ApplicationMapping store")}, "error: " + si + "could not be provisioned again: there is no ApplicationMapping shop/store"},
		{"a mapping of other services", []edit{patch("ApplicationMapping store", "spec: {services: [{id: prices}]}")}, "error: " + si + "could not be provisioned again: ApplicationMapping shop/store does not enable its service orders"},
		{"a mapping of no service", []edit{patch("ApplicationMapping store", "spec: {services: []}")}, "error: " + si + "could not be provisioned again: ApplicationMapping shop/store does not enable its service orders"},
		{"deprovisioning failed", []edit{patch("ServiceInstance orders", "status: {deprovisionStatus: Failed}")}, "error: " + si + "could not be provisioned again: its deprovisioning has failed permanently, and its deletion would never end"},
		{"parameters, which application-broker refuses", []edit{patch("ServiceInstance orders", "spec: {parameters: {a: b}}")}, "error: " + si + "could not be provisioned again: it has parameters, which application-broker does not accept"},
		{
			"the Secret of a binding's parameters is gone", []edit{patch("ServiceBinding orders-binding", "spec: {parametersFrom: [{secretKeyRef: {name: params, key: json}}]}")},
			"error: " + si + "could not come back: the Secret params, which the parameters of ServiceBinding orders-binding come from, does not exist",
		},
		{
			"the Secret of a binding's parameters is not the account's to read", []edit{
				patch("ServiceBinding orders-binding", "spec: {parametersFrom: [{secretKeyRef: {name: params, key: json}}]}"),
				func(_ *testing.T, w *world) { w.forbidden = "Secret" },
			},
			"error: " + si + "may not come back: the parameters of ServiceBinding orders-binding come from the Secret params, and this account may not check whether that exists",
		},
		{
			"the Secret is there, and its key is not", []edit{
				patch("ServiceBinding orders-binding", "spec: {parametersFrom: [{secretKeyRef: {name: params, key: json}}]}"),
				add(`{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: params}, data: {other: e30=}}`),
			},
			"error: " + si + `could not come back: the Secret params, which the parameters of ServiceBinding orders-binding come from, has no key "json"`,
		},
		{
			"a second instance of the service", []edit{add(`
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {namespace: shop, name: second, uid: si-2, labels: {eventmesh-migration.kyma-project.io/skip: "false"}}
spec: {serviceClassRef: {name: class-1}, servicePlanRef: {name: plan-1}}
status: {provisionStatus: Provisioned, currentOperation: Update}`)},
			"error: " + si + "could not be provisioned again: ServiceInstance second provides the same service, and application-broker accepts one only",
		},
		{"the Channel is not ready", []edit{patch("Channel store", `status: {conditions: [{type: Ready, status: "False"}]}`)}, "deferred: " + si + "left for later: the Channel kyma-integration/store of its Application is not ready"},
		{"no Channel", []edit{drop("Channel store")}, "deferred: " + si + "left for later: its Application store has no Channel in kyma-integration yet"},
		{
			"two Channels", []edit{add(`{apiVersion: messaging.knative.dev/v1alpha1, kind: Channel, metadata: {namespace: kyma-integration, name: second, labels: {application-name: store}}}`)},
			"deferred: " + si + "left for later, because 2 Channels in kyma-integration are labelled application-name=store: second, store",
		},
		{"application-broker is down", []edit{patch("Pod application-broker-5d-x", `status: {conditions: [{type: Ready, status: "False"}]}`)}, "deferred: " + si + "left for later: no pod of Deployment kyma-integration/application-broker is ready"},
		{
			"nobody takes the finalizer off the EventActivation", []edit{
				patch("EventActivation orders", "metadata: {finalizers: [eventactivation.finalizers.kyma-project.io]}"), patch("Deployment event-bus-subscription-controller", "spec: {replicas: 0}"),
			}, "deferred: " + si + "left for later: EventActivation shop/orders could not go: nothing would remove its finalizer",
		},
		{"a binding goes", []edit{patch("ServiceBinding orders-binding", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}`)}, "deferred: " + si + "left for later: its ServiceBinding orders-binding is being deleted"},
		{"a binding is being made", []edit{patch("ServiceBinding orders-binding", `status: {currentOperation: Bind}`)}, "deferred: " + si + "left for later: its ServiceBinding orders-binding is being bound or unbound"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := slices.DeleteFunc(summary(planOf(t, always, tc.edits...)), func(line string) bool { return strings.Contains(line, "shop/second") })
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRepairAsTheBroker holds that what is made is what application-broker makes.
func TestRepairAsTheBroker(t *testing.T) {
	plan := planOf(t, auto, withoutMesh)
	var got []map[string]any
	for _, u := range plan.Units {
		got = append(got, u.Changes[0].Object.Object)
	}
	want := []map[string]any{{
		"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "Subscription",
		"metadata": map[string]any{
			"namespace": "kyma-integration", "name": "brokersub-4621630b71", "labels": map[string]any{"application-name": "store", "broker-namespace": "shop"},
		},
		"spec": map[string]any{
			"channel":    map[string]any{"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "Channel", "name": "store"},
			"subscriber": map[string]any{"uri": "http://default-broker.shop"},
		},
	}, {
		"apiVersion": "applicationconnector.kyma-project.io/v1alpha1", "kind": "EventActivation",
		"metadata": map[string]any{
			"namespace": "shop", "name": "orders",
			"ownerReferences": []any{map[string]any{"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance", "name": "orders", "uid": "si-1"}},
		},
		"spec": map[string]any{"displayName": "Orders", "sourceId": "store"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if plan.Serial || plan.Estimate != 0 {
		t.Errorf("repairs need not wait for each other: serial %t, estimate %s", plan.Serial, plan.Estimate)
	}
}

// TestOwnerOf: application-broker of 1.11 gives an EventActivation no owner, and
// removes it itself; one that it does not own would be deleted with the instance
// first.
func TestOwnerOf(t *testing.T) {
	owned := func(uid string) edit {
		return patch("EventActivation orders", `metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: cm-1}, {apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceInstance, name: orders, uid: `+uid+`}]}`)
	}
	version := func(tag string) edit {
		return patch("Deployment application-broker", `spec: {template: {spec: {containers: [{name: broker, image: "x/application-broker:`+tag+`"}]}}}`)
	}
	ref := func(uid string) map[string]any {
		return map[string]any{"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance", "name": "orders", "uid": uid}
	}
	path := []string{"metadata", "ownerReferences"}
	for _, tc := range []struct {
		reason string
		edits  []edit
		owners any
		lists  []migration.ListEdit
	}{
		{"made for 1.10", []edit{withoutMesh, version("87fe96df")}, []any{ref("si-1")}, nil},
		{"made for 1.11", []edit{withoutMesh, version("ea60970f"), unserved("Policy")}, nil, nil},
		{"made for one that is not known: 1.10 would leave it behind", []edit{withoutMesh, version("main")}, []any{ref("si-1")}, nil},
		// These fail on the commit before: the whole list was written, and the ConfigMap's
		// entry, or one that was added meanwhile, was lost.
		{"another instance's, for 1.10: entry by entry", []edit{owned("old")}, nil, []migration.ListEdit{{Path: path, Add: []any{ref("si-1")}, Remove: []any{ref("old")}}}},
		{"another instance's, for 1.11", []edit{owned("old"), version("ea60970f"), unserved("Policy")}, nil, []migration.ListEdit{{Path: path, Remove: []any{ref("old")}}}},
	} {
		plan := planOf(t, auto, tc.edits...)
		for _, u := range plan.Units {
			ch := &u.Changes[0]
			if ch.Ref.Kind != kyma.EventActivation.Kind {
				continue
			}
			var owners any
			if ch.Object != nil {
				owners = ch.Object.Object["metadata"].(map[string]any)["ownerReferences"]
			}
			if diff := cmp.Diff(tc.owners, owners); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.lists, ch.Lists); diff != "" || len(ch.Patch) > 0 {
				t.Errorf("%s: patch %s (-want +got):\n%s", tc.reason, ch.Patch, diff)
			}
			tc.reason = ""
		}
		if tc.reason != "" {
			t.Errorf("%s: nothing is done: %v", tc.reason, summary(plan))
		}
	}
}

// TestWrites: what is patched is what was read, and no list is written whole. It
// fails on the commit before: an entry that others added meanwhile was lost.
func TestWrites(t *testing.T) {
	plan := planOf(t, always, withoutDependents, patch("ServiceInstance orders", "metadata: {finalizers: [kubernetes-incubator/service-catalog, example.com/audit]}"))
	ch := plan.Units[0].Changes[1]
	want := []migration.ListEdit{{Path: []string{"metadata", "finalizers"}, Remove: []any{"example.com/audit"}}}
	if diff := cmp.Diff(want, ch.Lists); diff != "" || ch.Patch != nil || !ch.Guard {
		t.Errorf("patch %s, guarded %t (-want +got):\n%s", ch.Patch, ch.Guard, diff)
	}
	for i, ch := range plan.Units[0].Changes {
		if ch.Guard != (i == 1) {
			t.Errorf("%s %s: guarded %t: all of a recreation is done, or nothing", ch.Verb, ch.Ref, ch.Guard)
		}
	}
	plan = planOf(t, auto, patch("Namespace shop", "metadata: {labels: {knative-eventing-injection: null, a: b}}"), drop("Broker default"))
	got := plan.Units[0].Changes[0].Object.Object
	if diff := cmp.Diff(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "uid": "ns-1"}}, got); diff != "" {
		t.Errorf("the basis of a label (-want +got):\n%s", diff)
	}
}

// TestRecreateAsItWas holds what is deleted, and what is created instead.
func TestRecreateAsItWas(t *testing.T) {
	plan := planOf(t, always,
		patch("ServiceInstance orders", "metadata: {labels: {a: b}, annotations: {c: d}, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: cm-1}]}"),
		patch("ServiceBinding orders-binding", "spec: {parameters: {token: hush}}"))
	if len(plan.Units) != 1 || !plan.Serial || !plan.Units[0].Commit {
		t.Fatalf("one at a time, and each stays: %d units, serial %t", len(plan.Units), plan.Serial)
	}
	got := map[string]any{}
	for _, ch := range plan.Units[0].Changes {
		switch ch.Verb {
		case migration.Recreate:
			got[ch.Ref.Kind] = ch.Object.Object
			if !ch.Hidden {
				t.Errorf("a plan would show %s, which may hold a password", ch.Ref)
			}
		case migration.Delete:
			if ch.Object.GetResourceVersion() == "" || ch.UID == "" {
				t.Errorf("%s: whatever has its name would be deleted", ch.Ref)
			}
		}
	}
	want := map[string]any{
		"ServiceInstance": map[string]any{
			"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance",
			"metadata": map[string]any{
				"namespace": "shop", "name": "orders", "labels": map[string]any{"a": "b"}, "annotations": map[string]any{"c": "d"},
				"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "cm-1"}},
				"finalizers":      []any{"kubernetes-incubator/service-catalog"},
			},
			"spec": map[string]any{"serviceClassExternalName": "orders-name", "servicePlanExternalName": "default", "externalID": "ext-1"},
		},
		"ServiceBinding": map[string]any{
			"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceBinding",
			"metadata": map[string]any{"namespace": "shop", "name": "orders-binding"},
			"spec":     map[string]any{"instanceRef": map[string]any{"name": "orders"}, "secretName": "orders-secret", "externalID": "ext-2", "parameters": map[string]any{"token": "hush"}},
		},
		"ServiceBindingUsage": map[string]any{
			"apiVersion": "servicecatalog.kyma-project.io/v1alpha1", "kind": "ServiceBindingUsage",
			"metadata": map[string]any{
				"namespace": "shop", "name": "orders-usage",
				"ownerReferences": []any{map[string]any{"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceBinding", "name": "orders-binding", "uid": "sb-1"}},
			},
			"spec": map[string]any{"serviceBindingRef": map[string]any{"name": "orders-binding"}, "usedBy": map[string]any{"kind": "deployment", "name": "till"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestJournal holds that another process reads the same changes out of the journal.
func TestJournal(t *testing.T) {
	want := planOf(t, always).Units
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []migration.Unit
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e := expectationOf(&got[0].Changes[0]); e.Kind != expectQuiet || len(e.Bindings) != 1 {
		t.Errorf("what is expected: %+v", e)
	}
}

// TestAnnounce holds what a plan says of a recreation, and that it keeps quiet
// about what is nobody's business.
func TestAnnounce(t *testing.T) {
	plan := planOf(t, recreate, withoutMesh, patch("ServiceBinding orders-binding", "spec: {parameters: {token: hush}}"))
	got := []string{}
	for _, f := range plan.Findings {
		got = append(got, f.String())
	}
	want := []string{
		"the recreation of 1 ServiceInstance, one after the other, takes about 55s, with 1 restart of application-broker; --timeout has to be longer",
		"ServiceInstance shop/orders: is deleted and created again: it lacks its EventActivation, and a Knative Subscription that brings the events of store to its namespace; " +
			"and so are ServiceBinding orders-binding (Secret orders-secret); ServiceBindingUsage orders-usage, of deployment till (Meanwhile the workloads are without the credentials, and their pods are replaced.)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if plan.Estimate != 55*time.Second {
		t.Errorf("estimate %s", plan.Estimate)
	}
}

// TestRestarts holds when application-broker has to be restarted, and in which
// order that costs least.
func TestRestarts(t *testing.T) {
	second := add(`
apiVersion: applicationconnector.kyma-project.io/v1alpha1
kind: Application
metadata: {name: crm}
spec: {services: [{id: leads, entries: [{type: Events}]}]}
---
{apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: ApplicationMapping, metadata: {namespace: shop, name: crm}}
---
{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceClass, metadata: {namespace: shop, name: class-2}, spec: {externalID: leads, serviceBrokerName: application-broker}}
---
{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServicePlan, metadata: {namespace: shop, name: plan-2}, spec: {externalID: leads-plan, serviceClassRef: {name: class-2}}}
---
apiVersion: messaging.knative.dev/v1alpha1
kind: Channel
metadata: {namespace: kyma-integration, name: crm, labels: {application-name: crm}}
status: {conditions: [{type: Ready, status: "True"}]}
---
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {namespace: shop, name: early, uid: si-2, creationTimestamp: "2020-01-01T10:00:00Z"}
spec: {serviceClassRef: {name: class-2}, servicePlanRef: {name: plan-2}}
status: {provisionStatus: Provisioned, conditions: [{type: Ready, status: "True"}]}`)
	const restarted = `status: {containerStatuses: [{state: {running: {startedAt: "2020-03-02T10:00:00Z"}}}]}`
	for _, tc := range []struct {
		reason   string
		edits    []edit
		order    []string
		estimate time.Duration
	}{
		{"it has run since before", []edit{withoutDependents}, []string{"orders"}, 15 * time.Second},
		{"its container was restarted, in the same pod", []edit{withoutDependents, patch("Pod application-broker-5d-x", restarted)}, []string{"orders"}, 45 * time.Second},
		{"it began about when the instance did", []edit{withoutDependents, patch("Pod application-broker-5d-x", `status: {startTime: "2020-03-01T10:00:00Z"}`)}, []string{"orders"}, 45 * time.Second},
		{"there is nothing to tell by whether it deprovisioned it", []edit{withoutDependents, drop("Subscription brokersub-x")}, []string{"orders"}, 45 * time.Second},
		{"it remembers what failed", []edit{withoutDependents, failed}, []string{"orders"}, 45 * time.Second},
		{"those without a restart come first", []edit{withoutDependents, second}, []string{"orders", "early"}, 60 * time.Second},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan := planOf(t, always, tc.edits...)
			var order []string
			for _, u := range plan.Units {
				order = append(order, strings.TrimPrefix(u.ID, "ServiceInstance shop/"))
			}
			if diff := cmp.Diff(tc.order, order); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if plan.Estimate != tc.estimate {
				t.Errorf("%s: estimate %s, want %s", tc.reason, plan.Estimate, tc.estimate)
			}
		})
	}
}
