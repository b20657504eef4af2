package serviceinstance

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestRecheck decides once more right before a recreation begins. It fails on the
// commit before: what was decided once was deleted, minutes later.
func TestRecheck(t *testing.T) {
	broken := patch("EventActivation orders", "spec: {sourceId: other}")
	unit := &planOf(t, auto, broken).Units[0]
	const left = "deferred: ServiceInstance shop/orders: left as it is: "
	for _, tc := range []struct {
		reason string
		edits  []edit
		want   string
	}{
		{"nothing has changed", []edit{broken}, ""},
		{"its status is not what was decided on", []edit{broken, patch("ServiceInstance orders", `metadata: {resourceVersion: "8"}`)}, ""},
		{"somebody has repaired it", nil, left + "it need not be recreated any more (Run the job again. It decides on what is there then: eventmesh-migrate run --job=serviceinstance-recreate)"},
		{
			"another one of its name", []edit{broken, patch("ServiceInstance orders", "metadata: {uid: si-9}"), patch("EventActivation orders", "metadata: {ownerReferences: [{kind: ServiceInstance, name: orders, uid: si-9}]}")},
			left + "ServiceInstance shop/orders was created again after the plan (Run the job again. It decides on what is there then: eventmesh-migrate run --job=serviceinstance-recreate)",
		},
		{
			"a binding that was made since would be lost", []edit{broken, add(`{apiVersion: servicecatalog.k8s.io/v1beta1, kind: ServiceBinding, metadata: {namespace: shop, name: late, uid: sb-2}, spec: {instanceRef: {name: orders}}}`)},
			left + "ServiceBinding shop/late was made after the plan (Run the job again. It decides on what is there then: eventmesh-migrate run --job=serviceinstance-recreate)",
		},
		{
			"a usage that was deleted since would come back", []edit{broken, drop("ServiceBindingUsage orders-usage")},
			left + "ServiceBindingUsage shop/orders-usage was deleted after the plan, or belongs to it no more (Run the job again. It decides on what is there then: eventmesh-migrate run --job=serviceinstance-recreate)",
		},
		{
			"it could not come back any more", []edit{broken, drop("ApplicationMapping store")},
			left + "could not be provisioned again: there is no ApplicationMapping shop/store (Enable the service in ApplicationMapping shop/store. To leave the ServiceInstance out: kubectl -n shop label serviceinstance.servicecatalog.k8s.io/orders eventmesh-migration.kyma-project.io/skip=true)",
		},
		{
			"the Secret of its parameters is gone", []edit{broken, patch("ServiceBinding orders-binding", "spec: {parametersFrom: [{secretKeyRef: {name: params, key: json}}]}")},
			left + "could not come back: the Secret params, which the parameters of ServiceBinding orders-binding come from, does not exist (Create that Secret again. To leave the ServiceInstance out: kubectl -n shop label serviceinstance.servicecatalog.k8s.io/orders eventmesh-migration.kyma-project.io/skip=true)",
		},
		{
			"it was left out since", []edit{broken, patch("ServiceInstance orders", `metadata: {labels: {eventmesh-migration.kyma-project.io/skip: "true"}}`)},
			left + "skipped: it or its namespace carries the label eventmesh-migration.kyma-project.io/skip=true",
		},
		{
			"Knative is gone", []edit{broken, unserved("Broker")},
			left + "the API server serves no kind Broker (eventing.knative.dev), without which no event gets through the mesh (Install the component knative-eventing.)",
		},
	} {
		now, err := New().plan(t.Context(), newWorld(t, tc.edits...), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if f := recheck(now, unit); f != nil {
			got = string(f.Severity) + ": " + f.String()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestRecheckAccess: the label is set again where nobody else has.
func TestRecheckAccess(t *testing.T) {
	plan := planOf(t, always, patch("Namespace shop", "metadata: {labels: {accessLabel: store}}"))
	ch := &plan.Units[0].Changes[len(plan.Units[0].Changes)-1]
	if ch.Verb != migration.Patch || ch.UID != "ns-1" || string(ch.Patch) != `{"metadata":{"labels":{"accessLabel":"store"}}}` || !ch.Guard {
		t.Fatalf("%s of %s %s, guarded %t", ch.Verb, ch.UID, ch.Patch, ch.Guard)
	}
	for _, tc := range []struct{ reason, uid, label, want string }{
		{"application-broker has removed it", "ns-1", "", ""},
		{"application-broker was restarted, and has set it", "ns-1", "store", ""},
		{"somebody else has set it", "ns-1", "other", `info: Namespace shop: its label accessLabel is not set again: somebody has set it to "other"`},
		{"another namespace", "ns-2", "", "info: Namespace shop: its label accessLabel is not set again: the namespace is being deleted, or is another one"},
	} {
		ns := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "shop", "uid": tc.uid}}}
		if tc.label != "" {
			ns.SetLabels(map[string]string{"accessLabel": tc.label})
		}
		got := ""
		if f := recheckAccess(ns, ch); f != nil {
			got = string(f.Severity) + ": " + f.String()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
