package kyma

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"knative.dev/pkg/apis"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
)

func fromYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestServicesOf(t *testing.T) {
	app := fromYAML(t, `{spec: {services: [{id: a, displayName: A, entries: [{type: API}, {type: Events}]}, {id: b, entries: [{type: API}]}, {id: c}]}}`)
	want := []AppService{{ID: "a", DisplayName: "A", Events: true}, {ID: "b"}, {ID: "c"}}
	if diff := cmp.Diff(want, ServicesOf(app)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEnables(t *testing.T) {
	for _, tc := range []struct {
		reason, mapping string
		want            bool
	}{
		{"no list enables all", `{spec: {}}`, true},
		{"null is no list", `{spec: {services: null}}`, true},
		{"an empty list enables none", `{spec: {services: []}}`, false},
		{"it is listed", `{spec: {services: [{id: x}, {id: a}]}}`, true},
		{"another one is", `{spec: {services: [{id: x}]}}`, false},
	} {
		if got := Enables(fromYAML(t, tc.mapping), "a"); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
}

func TestLost(t *testing.T) {
	began := time.Date(2020, 3, 1, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		reason string
		in     Instance
		broker time.Time
		want   bool
	}{
		{"its broker began later", Instance{Polling: true, Operation: "Provision", Since: began}, began.Add(time.Second), true},
		{"its broker has run since before", Instance{Polling: true, Operation: "Provision", Since: began}, began.Add(-time.Second), false},
		{"in the same second, there is no telling", Instance{Polling: true, Operation: "Provision", Since: began}, began, false},
		{"but by its answer", Instance{Polling: true, Operation: "Provision", Since: began, Ready: k8sobject.Condition{Condition: apis.Condition{Reason: ReasonPolling}}}, began, true},
		{"a removal that nobody knows of has succeeded", Instance{Polling: true, Operation: "Deprovision", Since: began}, began.Add(time.Second), false},
		{"nothing is asked for", Instance{Operation: "Provision", Since: began}, began.Add(time.Second), false},
		{"no broker runs", Instance{Polling: true, Operation: "Provision", Since: began}, time.Time{}, false},
	} {
		if got := tc.in.Lost(tc.broker); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
}

// TestUnknown holds which answers to a deprovisioning say that application-broker has
// no such instance, and never will.
func TestUnknown(t *testing.T) {
	for _, tc := range []struct {
		reason, status string
		operation      string
		want           bool
	}{
		{
			"1.10, after an error at the provisioning", `orphanMitigationInProgress: true, currentOperation: Provision,
  conditions: [{type: Ready, reason: DeprovisionCallFailed, message: "Status: 400; ErrorMessage: getting instance ext-1 from storage: x"}]`, "Deprovision", true,
		},
		{
			"1.11, and it is being deleted", `currentOperation: Deprovision,
  conditions: [{type: Ready, reason: DeprovisionCallFailed, message: "Status: 400; ErrorMessage: while getting instance ext-1 from storage: x"}]`, "Deprovision", true,
		},
		{
			"it is provisioned, and what is made for it has to go", `currentOperation: Deprovision, provisionStatus: Provisioned,
  conditions: [{type: Ready, reason: DeprovisionCallFailed, message: "getting instance ext-1 from storage"}]`, "Deprovision", false,
		},
		{
			"its provisioning went on, and failed", `orphanMitigationInProgress: true, currentOperation: Provision,
  conditions: [{type: Failed, status: "True"}, {type: Ready, reason: DeprovisionCallFailed, message: "getting instance ext-1 from storage"}]`, "Deprovision", false,
		},
		{
			"it is deprovisioned when its Application is known", `orphanMitigationInProgress: true, currentOperation: Provision,
  conditions: [{type: Ready, reason: DeprovisionCallFailed, message: "Status: 400; ErrorMessage: getting application with id orders from storage: x"}]`, "Deprovision", false,
		},
		{
			"the answer is about another instance", `orphanMitigationInProgress: true, currentOperation: Provision,
  conditions: [{type: Ready, reason: DeprovisionCallFailed, message: "getting instance ext-12 from storage"}]`, "Deprovision", false,
		},
		{"there is no answer yet", `orphanMitigationInProgress: true, currentOperation: Provision, conditions: [{type: Ready, reason: StartingInstanceOrphanMitigation}]`, "Deprovision", false},
		{"it is being provisioned", `currentOperation: Provision, conditions: [{type: Ready, reason: Provisioning}]`, "Provision", false},
	} {
		got := InstanceOf(fromYAML(t, "spec: {externalID: ext-1}\nstatus: {"+tc.status+"}"))
		if got.Unknown != tc.want || got.Operation != tc.operation {
			t.Errorf("%s: unknown %t in the operation %q, want %t in %q", tc.reason, got.Unknown, got.Operation, tc.want, tc.operation)
		}
	}
}

func TestApplicationBrokerVersion(t *testing.T) {
	for image, want := range map[string]string{
		"eu.gcr.io/kyma-project/application-broker:87fe96df": "1.10", "registry:5000/application-broker:ea60970f": "1.11", "application-broker": "",
	} {
		if got := ApplicationBrokerVersion(fromYAML(t, `{spec: {template: {spec: {containers: [{image: istio-proxy}, {image: "`+image+`"}]}}}}`)); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
	if got := ApplicationBrokerVersion(nil); got != "" {
		t.Errorf("no Deployment: %q", got)
	}
}

func TestOfApplicationBroker(t *testing.T) {
	for owner, want := range map[string]bool{"application-broker-5d8": true, "application-broker-ui-5d8": false, "application-broker-": false, "other-5d8": false} {
		if got := OfApplicationBroker(fromYAML(t, `{metadata: {ownerReferences: [{kind: ReplicaSet, controller: true, name: `+owner+`}]}}`)); got != want {
			t.Errorf("%s: %t", owner, got)
		}
	}
	if OfApplicationBroker(fromYAML(t, `{metadata: {name: application-broker-x}}`)) {
		t.Error("a pod without an owner")
	}
}
