package serviceinstance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// states are how the conditions of a change stand: "met", "pending: …", …
func states(w *world, conditions []migration.Condition) []string {
	got := []string{}
	for _, c := range conditions {
		status := c.Eval(view{w})
		word := map[migration.State]string{migration.Met: "met", migration.Pending: "pending: ", migration.Failed: "failed: "}[status.State]
		got = append(got, word+status.Message)
	}
	return got
}

// step returns a change of the recreation that a plan over the complete world has.
func step(t *testing.T, verb migration.Verb, kind string, n int) *migration.Change {
	t.Helper()
	plan := planOf(t, always)
	for i := range plan.Units[0].Changes {
		ch := &plan.Units[0].Changes[i]
		if ch.Verb == verb && ch.Ref.Kind == kind {
			if n--; n < 0 {
				return ch
			}
		}
	}
	t.Fatalf("no %s of a %s", verb, kind)
	return nil
}

// other is another instance, whose class and reason are to be filled in.
const other = `
apiVersion: servicecatalog.k8s.io/v1beta1
kind: ServiceInstance
metadata: {namespace: shop, name: other, uid: si-2}
spec: {serviceClassRef: {name: %s}}
status: {asyncOpInProgress: true, currentOperation: Provision, conditions: [{type: Ready, status: "False", reason: %s}]}`

// refused is the status of an instance whose Application application-broker did not
// know when it was to provision it.
const refused = `status: {orphanMitigationInProgress: true, currentOperation: Provision, provisionStatus: NotProvisioned, deprovisionStatus: Required, operationStartTime: "2020-03-05T10:00:00Z", conditions: [{type: Ready, status: Unknown, reason: DeprovisionCallFailed, message: "Status: 400; ErrorMessage: getting instance ext-1 from storage: element not found"}]}`

func TestConditions(t *testing.T) {
	const polling = `status: {asyncOpInProgress: true, currentOperation: Provision, provisionStatus: NotProvisioned, operationStartTime: "2020-03-05T10:00:00Z", conditions: [{type: Ready, status: "False", reason: %s}]}`
	quiet := step(t, migration.Await, kyma.ServiceInstance.Kind, 0)
	provisioned := step(t, migration.Await, kyma.ServiceInstance.Kind, 2)
	deleted := step(t, migration.Delete, kyma.ServiceInstance.Kind, 0)
	gone := step(t, migration.Await, kyma.EventActivation.Kind, 0)
	binding := step(t, migration.Await, kyma.ServiceBinding.Kind, 0)
	restored := *deleted
	repaired := planOf(t, auto, withoutMesh)
	link := &repaired.Units[0].Changes[0]
	isReady := patch("Subscription brokersub-x", `{metadata: {name: `+kyma.LinkName("store", "shop")+`}, status: {conditions: [{type: Ready, status: "True"}]}}`)
	for _, tc := range []struct {
		reason string
		change *migration.Change
		edits  []edit
		want   []string
	}{
		{"nothing else uses it", quiet, nil, []string{"met"}},
		{"nor after it was deleted, or some of it was", quiet, []edit{drop("ServiceInstance orders", "ServiceBindingUsage orders-usage")}, []string{"met"}},
		{
			"a binding that nobody knew of", quiet, []edit{add(`{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBinding, metadata: {namespace: shop, name: late}, spec: {instanceRef: {name: orders}}}`)},
			[]string{"failed: ServiceBinding shop/late was made meanwhile, and would be lost"},
		},
		{
			"a usage that nobody knew of", quiet, []edit{add(`{apiVersion: servicecatalog.kyma-project.io/v1alpha1, kind: ServiceBindingUsage, metadata: {namespace: shop, name: late}, spec: {serviceBindingRef: {name: orders-binding}}}`)},
			[]string{"failed: ServiceBindingUsage shop/late was made meanwhile, and would be lost"},
		},
		{
			"those of others are theirs", quiet, []edit{
				add(`{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBinding, metadata: {namespace: shop, name: late}, spec: {instanceRef: {name: else}}}`),
				add(`{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBinding, metadata: {namespace: crm, name: late}, spec: {instanceRef: {name: orders}}}`),
			}, []string{"met"},
		},
		{"application-broker provisions another one", quiet, []edit{add(fmt.Sprintf(other, "class-1", "Provisioning"))}, []string{"pending: the provision of ServiceInstance shop/other goes on"}},
		{"another broker does", quiet, []edit{add(fmt.Sprintf(other, "class-of-another-broker", "Provisioning"))}, []string{"met"}},
		{"application-broker has forgotten the other one already", quiet, []edit{add(fmt.Sprintf(other, "class-1", kyma.ReasonPolling))}, []string{"met"}},

		{"its deletion goes on", deleted, []edit{patch("ServiceInstance orders", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}`)}, []string{"met"}},
		{
			"its deletion will never end", deleted,
			[]edit{patch("ServiceInstance orders", "metadata: {deletionTimestamp: \"2020-03-04T00:00:00Z\"}\nstatus: {deprovisionStatus: Failed, conditions: [{type: Ready, status: Unknown, reason: DeprovisionCallFailed}]}")},
			[]string{"failed: its deprovisioning has failed permanently: DeprovisionCallFailed"},
		},
		{"it is gone", deleted, []edit{drop("ServiceInstance orders")}, []string{"met"}},

		{"its EventActivation still belongs to it", gone, nil, []string{"pending: the garbage collector has not deleted it yet"}},
		{"its EventActivation goes", gone, []edit{patch("EventActivation orders", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z", finalizers: [x]}`)}, []string{`pending: it still has the finalizers ["x"]`}},
		{"its EventActivation is gone", gone, []edit{drop("EventActivation orders")}, []string{"met"}},
		{"of 1.11, it may be left over", gone, []edit{patch("EventActivation orders", `metadata: {ownerReferences: null}`)}, []string{"met"}},
		{"it belongs to the new one already", gone, []edit{patch("EventActivation orders", `metadata: {ownerReferences: [{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceInstance, name: orders, uid: new}]}`)}, []string{"met"}},
		{
			"its Knative Subscription goes", gone, []edit{drop("EventActivation orders"), patch("Subscription brokersub-x", `metadata: {deletionTimestamp: "2020-03-04T00:00:00Z", finalizers: [x]}`)},
			[]string{`pending: Knative Subscription kyma-integration/brokersub-x still has the finalizers ["x"]`},
		},

		{"all is there again", provisioned, nil, []string{"met", "met"}},
		{"it is not seen yet", provisioned, []edit{drop("ServiceInstance orders")}, []string{"pending: it does not exist", "met"}},
		{"it has no status yet", provisioned, []edit{patch("ServiceInstance orders", "status: null")}, []string{"pending: it has no status yet", "met"}},
		{
			"ready is not provisioned: Service Catalog may say so of what its broker does not have", provisioned,
			[]edit{patch("ServiceInstance orders", "status: {provisionStatus: NotProvisioned}")}, []string{"pending: ", "met"},
		},
		{"it is being provisioned", provisioned, []edit{patch("ServiceInstance orders", fmt.Sprintf(polling, "Provisioning"))}, []string{"pending: Provisioning", "met"}},
		{
			"application-broker was restarted meanwhile", provisioned,
			[]edit{patch("ServiceInstance orders", fmt.Sprintf(polling, "Provisioning")), patch("Pod application-broker-5d-x", `status: {startTime: "2020-03-05T10:00:01Z"}`)},
			[]string{"failed: application-broker was restarted during the operation, and has no record of it", "met"},
		},
		{
			"application-broker was restarted in the same second, and knows nothing", provisioned,
			[]edit{patch("ServiceInstance orders", fmt.Sprintf(polling, kyma.ReasonPolling)), patch("Pod application-broker-5d-x", `status: {startTime: "2020-03-05T10:00:00Z"}`)},
			[]string{"failed: application-broker was restarted during the operation, and has no record of it", "met"},
		},
		{"application-broker does not answer", provisioned, []edit{patch("ServiceInstance orders", fmt.Sprintf(polling, kyma.ReasonPolling))}, []string{"pending: ErrorPollingLastOperation", "met"}},
		{
			"application-broker did not know its Application", provisioned, []edit{patch("ServiceInstance orders", refused)},
			[]string{"pending: " + unknown + ": DeprovisionCallFailed: Status: 400; ErrorMessage: getting instance ext-1 from storage: element not found", "met"},
		},
		{
			"Service Catalog deprovisions what may have come of a failed call", provisioned,
			[]edit{patch("ServiceInstance orders", strings.Replace(refused, "getting instance ext-1", "getting application", 1))},
			[]string{"pending: DeprovisionCallFailed: Status: 400; ErrorMessage: getting application from storage: element not found", "met"},
		},
		{"it has failed permanently", provisioned, []edit{failed}, []string{"failed: ProvisionCallFailed: refused", "met"}},
		{"the mesh objects are missing", provisioned, []edit{withoutMesh}, []string{"met", "pending: there is no EventActivation shop/orders"}},
		{"the Knative Subscription is missing", provisioned, []edit{drop("Subscription brokersub-x")}, []string{"met", "pending: no Knative Subscription in kyma-integration brings them"}},
		{
			"there are two of them", provisioned, []edit{add(`{apiVersion: messaging.knative.dev/v1alpha1, kind: Subscription, metadata: {namespace: kyma-integration, name: brokersub-y, labels: {application-name: store, broker-namespace: shop}}}`)},
			[]string{"met", "failed: 2 Knative Subscriptions in kyma-integration bring them, each of them each event"},
		},
		{"the label is missing", provisioned, []edit{patch("Namespace shop", "metadata: {labels: null}")}, []string{"met", "pending: the namespace has no label knative-eventing-injection"}},

		{"a binding is ready", binding, nil, []string{"met"}},
		{"a binding is not", binding, []edit{patch("ServiceBinding orders-binding", `status: {conditions: [{type: Ready, status: "False", reason: Binding}]}`)}, []string{"pending: Binding"}},
		{
			"a binding never will be", binding,
			[]edit{patch("ServiceBinding orders-binding", `status: {conditions: [{type: Ready, status: "False"}, {type: Failed, status: "True", reason: Refused}]}`)},
			[]string{"failed: Refused"},
		},
		{"a Knative Subscription that was made is ready", link, []edit{isReady}, []string{"met", "met"}},
		{
			"application-broker has made one besides", link, []edit{isReady, add(`{apiVersion: messaging.knative.dev/v1alpha1, kind: Subscription, metadata: {namespace: kyma-integration, name: brokersub-y, labels: {application-name: store, broker-namespace: shop}}}`)},
			[]string{"met", "failed: 2 of them bring the events of store to namespace shop"},
		},
		{"a rollback waits for the instance alone", &restored, []edit{withoutMesh}, []string{"met"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, tc.edits...)
			j := New()
			conditions := j.Await(tc.change)
			if tc.change == &restored {
				conditions = j.AwaitRestored(tc.change)
			}
			if diff := cmp.Diff(tc.want, states(w, conditions)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, c := range conditions {
				if c.Timeout == 0 {
					t.Errorf("%q has no limit of its own", c.Text)
				}
			}
		})
	}
}

// TestVanished holds that what was there and goes is not waited for.
func TestVanished(t *testing.T) {
	w := newWorld(t, patch("ServiceBindingUsage orders-usage", "status: null"))
	conditions := New().Await(step(t, migration.Await, kyma.ServiceBindingUsage.Kind, 0))
	if diff := cmp.Diff([]string{"pending: it has no status yet"}, states(w, conditions)); diff != "" {
		t.Fatal(diff)
	}
	drop("ServiceBindingUsage orders-usage")(t, w)
	if diff := cmp.Diff([]string{"failed: it was deleted meanwhile"}, states(w, conditions)); diff != "" {
		t.Error(diff)
	}
}

func TestJudge(t *testing.T) {
	const lost = `status: {asyncOpInProgress: true, currentOperation: Provision, provisionStatus: NotProvisioned, operationStartTime: "2020-01-05T10:00:00Z", conditions: [{type: Ready, status: "False"}]}`
	catalog := []string{kyma.ServiceCatalogFinalizer}
	deleted := patch("ServiceInstance orders", `metadata: {deletionTimestamp: "2020-03-05T10:01:00Z"}`)
	provisions := func(class, reason string) edit {
		return add(fmt.Sprintf(other, class, reason))
	}
	for _, tc := range []struct {
		reason string
		object string
		edits  []edit
		want   migration.Assessment
	}{
		{"it is provisioned", "ServiceInstance orders", nil, migration.Assessment{}},
		{"it may yet be", "ServiceInstance orders", []edit{patch("ServiceInstance orders", "status: null")}, migration.Assessment{}},
		{"it never will be", "ServiceInstance orders", []edit{failed}, migration.Assessment{Unusable: "its provisioning has failed permanently: ProvisionCallFailed: refused"}},
		{"nobody knows of its operation", "ServiceInstance orders", []edit{patch("ServiceInstance orders", lost)}, migration.Assessment{
			Unusable: "application-broker was restarted while it provisioned it, and has forgotten that", RemoveFinalizers: catalog,
		}},
		{
			"its operation goes on", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", strings.Replace(lost, "2020-01", "2020-03", 1))}, migration.Assessment{},
		},
		{
			"its deprovisioning is answered for even if it is forgotten", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", strings.Replace(lost, "Provision,", "Deprovision,", 1))}, migration.Assessment{},
		},
		{
			"its deletion will never end", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", "metadata: {deletionTimestamp: \"2020-03-04T00:00:00Z\"}\nstatus: {deprovisionStatus: Failed}")}, migration.Assessment{RemoveFinalizers: catalog},
		},
		{
			"application-broker did not know its Application, and will never deprovision it", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", refused)}, migration.Assessment{Unusable: unknown, RemoveFinalizers: catalog},
		},
		{
			"the run that deleted it was killed", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", strings.Replace(refused, "orphanMitigationInProgress: true, currentOperation: Provision", "currentOperation: Deprovision", 1)), deleted},
			migration.Assessment{Unusable: unknown, RemoveFinalizers: catalog},
		},
		{
			"application-broker was restarted since: the deletion ends by itself, but no provisioning succeeds", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", refused), patch("Pod application-broker-5d-x", `status: {startTime: "2020-03-05T10:00:01Z"}`)},
			migration.Assessment{Unusable: unknown},
		},
		{
			"application-broker does not run: when it does, the deletion ends by itself", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", refused), drop("Pod application-broker-5d-x")}, migration.Assessment{Unusable: unknown},
		},
		{
			"a restart would let application-broker forget another provisioning", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", refused), provisions("class-1", "Provisioning")}, migration.Assessment{},
		},
		{
			"it keeps nothing from another broker", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", refused), provisions("class-of-another-broker", "Provisioning")}, migration.Assessment{Unusable: unknown, RemoveFinalizers: catalog},
		},
		{
			"its deprovisioning fails for a cause that may pass", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", strings.Replace(refused, "getting instance ext-1", "getting application", 1))}, migration.Assessment{},
		},
		{
			"its deprovisioning after a failed call is answered for even if it is forgotten", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", strings.Replace(lost, "status: {", "status: {orphanMitigationInProgress: true, ", 1))}, migration.Assessment{},
		},
		{
			"Service Catalog has stopped to deprovision it", "ServiceInstance orders",
			[]edit{patch("ServiceInstance orders", `status: {orphanMitigationInProgress: true, provisionStatus: NotProvisioned, deprovisionStatus: Failed, conditions: [{type: Ready, status: Unknown, reason: OrphanMitigationFailed}]}`)},
			migration.Assessment{Unusable: "Service Catalog does nothing about it any more: OrphanMitigationFailed", RemoveFinalizers: catalog},
		},
		{
			"nobody else is to keep what is of no use: it gets its finalizers again", "ServiceInstance orders",
			[]edit{failed, patch("ServiceInstance orders", "metadata: {finalizers: [kubernetes-incubator/service-catalog, example.com/audit]}")},
			migration.Assessment{Unusable: "its provisioning has failed permanently: ProvisionCallFailed: refused", RemoveFinalizers: []string{"example.com/audit"}},
		},
		{"a binding that works", "ServiceBinding orders-binding", nil, migration.Assessment{}},
		{
			"a binding that never will", "ServiceBinding orders-binding",
			[]edit{patch("ServiceBinding orders-binding", `status: {conditions: [{type: Failed, status: "True", reason: Refused}]}`)},
			migration.Assessment{Unusable: "its binding has failed permanently: Refused"},
		},
		{"a usage", "ServiceBindingUsage orders-usage", []edit{patch("ServiceBindingUsage orders-usage", "status: null")}, migration.Assessment{}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, tc.edits...)
			var live *unstructured.Unstructured
			for _, obj := range w.objects {
				if is(tc.object)(obj) {
					live = obj
				}
			}
			got, err := New().checks().judge(t.Context(), w, live)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestStalled(t *testing.T) {
	ch := step(t, migration.Delete, kyma.ServiceInstance.Kind, 0)
	blocked := patch("ServiceInstance orders", `{metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}, status: {conditions: [{type: Ready, status: "False", reason: DeprovisionBlockedByExistingCredentials}]}}`)
	for _, tc := range []struct {
		reason string
		edits  []edit
		want   migration.State
	}{
		{"it is not being deleted", nil, migration.Pending},
		{"it waits for its binding", []edit{blocked}, migration.Pending},
		{"it waits for nothing any more", []edit{blocked, withoutDependents}, migration.Met},
		{"it goes", []edit{withoutDependents, patch("ServiceInstance orders", `{metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}}`)}, migration.Pending},
	} {
		w := newWorld(t, tc.edits...)
		if got := New().Stuck(ch).Eval(view{w}).State; got != tc.want {
			t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
		}
	}
	if New().Stuck(step(t, migration.Delete, kyma.ServiceBinding.Kind, 0)) != nil {
		t.Error("a binding waits for nobody")
	}
}

// TestKeep holds that a rollback leaves alone what live events go through.
func TestKeep(t *testing.T) {
	posts := add(`
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: kyma-integration, name: store-event-service}
spec: {template: {spec: {containers: [{name: store-event-service, args: ["--eventMeshURL=http://store.kyma-integration"]}]}}}`)
	w := newWorld(t, posts)
	k, err := servedKinds(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	link, broker := k.link.Ref("kyma-integration", "brokersub-x"), k.broker.Ref("shop", "default")
	account := migration.Ref{Resource: serviceAccounts, Namespace: "shop", Name: kyma.BrokerFilterAccount}
	binding := migration.Ref{Resource: roleBindings, Namespace: kyma.EventingNamespace, Name: kyma.BrokerConfigBinding("shop", kyma.BrokerFilterAccount)}
	policy := k.policy.Ref("shop", kyma.BrokerPolicyName("shop"))
	refs := []migration.Ref{link, broker, account, binding, policy, k.policy.Ref("crm", kyma.BrokerPolicyName("crm")), k.activation.Ref("shop", "orders"), k.broker.Ref("crm", "default"), k.link.Ref("kyma-integration", "other")}
	const why = "carries live events: Deployment kyma-integration/store-event-service posts those of store to the mesh"
	got, err := keep(t.Context(), w, k, New().options, refs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[migration.Ref]string{link: why, broker: why, account: why, binding: why, policy: why}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, err = keep(t.Context(), newWorld(t), k, New().options, refs); err != nil || len(got) > 0 {
		t.Errorf("nothing posts to the mesh: %v, %v", got, err)
	}

	const trigger = `
apiVersion: eventing.knative.dev/v1alpha1
kind: Trigger
metadata: {namespace: shop, name: %s, annotations: {%s: %s}}
spec: {broker: %s}`
	converted := func(name string) edit {
		return add(fmt.Sprintf(trigger, name, kyma.OriginAnnotation, name, kyma.DefaultBroker))
	}
	theirs := add(fmt.Sprintf(trigger, "theirs", "a", "b", `""`))
	for name, tc := range map[string]struct {
		reason, why string
		edits       []edit
	}{
		"OfTriggerSync": {
			"The next undo deletes them: only then is the Broker nobody's.", "Trigger shop/a, Trigger shop/b, made by trigger-sync, get their events through it",
			[]edit{converted("b"), converted("a")},
		},
		"OfSomebodyElse": {"No undo deletes it.", "Trigger shop/theirs gets its events through it", []edit{theirs}},
		"OfBoth": {
			"A person has to decide, whatever an undo does.", "Trigger shop/theirs, Trigger shop/a, Trigger shop/b and 1 more get their events through it",
			[]edit{converted("a"), converted("b"), converted("c"), theirs},
		},
		"OtherBroker":  {"It does not use this one.", "", []edit{add(fmt.Sprintf(trigger, "other", "a", "b", "other"))}},
		"BeingDeleted": {"It is about to go.", "", []edit{theirs, patch("Trigger theirs", `{metadata: {deletionTimestamp: "2020-03-04T00:00:00Z"}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.edits...)
			w.twice = true
			want := map[migration.Ref]string{}
			if tc.why != "" {
				want = map[migration.Ref]string{broker: tc.why, account: tc.why, binding: tc.why, policy: tc.why}
			}
			got, err := keep(t.Context(), w, k, New().options, refs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	w = newWorld(t, theirs)
	if got, err := keep(t.Context(), w, k, New().options, []migration.Ref{link}); err != nil || len(got) > 0 {
		t.Errorf("a Knative Subscription belongs to no Broker: %v, %v", got, err)
	}
}

func TestValidate(t *testing.T) {
	if err := New().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	j := New()
	j.options.strategy, j.options.integrationNamespace, j.options.readyTimeout = "never", "No", 0
	err := j.Validate()
	for _, flag := range []string{"--strategy", "--integration-namespace", "--ready-timeout"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not complained about: %v", flag, err)
		}
	}
	j = New()
	w := newWorld(t)
	w.broken = []string{"ServiceInstance"}
	if _, err := j.plan(t.Context(), w, nil, false); err == nil {
		t.Error("a discovery that failed was taken for: not served")
	}
}
