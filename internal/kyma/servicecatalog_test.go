package kyma

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
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
		{"but by its answer", Instance{Polling: true, Operation: "Provision", Since: began, Ready: CatalogCondition{Reason: ReasonPolling}}, began, true},
		{"a removal that nobody knows of has succeeded", Instance{Polling: true, Operation: "Deprovision", Since: began}, began.Add(time.Second), false},
		{"nothing is asked for", Instance{Operation: "Provision", Since: began}, began.Add(time.Second), false},
		{"no broker runs", Instance{Polling: true, Operation: "Provision", Since: began}, time.Time{}, false},
	} {
		if got := tc.in.Lost(tc.broker); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
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
