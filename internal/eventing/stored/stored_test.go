package stored

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// TestLists: a list with one object that cannot be decoded has the others, and says which one it
// is. On f3299ef the whole list failed.
func TestLists(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	for _, tc := range []struct {
		reason, list string
		problems     map[string]bool
	}{
		{"a time in days", `{"apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "EventingList", "items": [
			{"metadata": {"name": "days"}, "spec": {"backend": {"config": {"deadLetterAfter": "1d"}}}, "status": {"state": "Ready"}},
			{"metadata": {"name": "exponent"}, "spec": {"backend": {"config": {"natsStreamMaxSize": "1e1.5"}}}},
			{"metadata": {"name": "good"}, "spec": {"backend": {"config": {"deadLetterAfter": "24h"}}}}]}`,
			map[string]bool{"days": true, "exponent": true, "good": false}},
		{"another shape", `{"apiVersion": "eventing.kyma-project.io/v1alpha2", "kind": "SubscriptionList", "items": [
			{"metadata": {"name": "text"}, "spec": {"types": "a.b"}},
			{"metadata": {"name": "status"}, "spec": {"types": ["a.b"]}, "status": {"conditions": [{"lastTransitionTime": "yesterday"}]}},
			{"metadata": {"name": "good"}, "spec": {"types": ["a.b"]}}]}`,
			map[string]bool{"text": true, "status": false, "good": false}},
	} {
		got, _, err := decoder.Decode([]byte(tc.list), nil, nil)
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		problems := map[string]bool{}
		switch list := got.DeepCopyObject().(type) {
		case *EventingList:
			for _, e := range list.Items {
				problems[e.Name] = e.Problem != nil
			}
		case *SubscriptionList:
			for _, s := range list.Items {
				problems[s.Name] = s.Problem != nil
			}
		}
		if diff := cmp.Diff(tc.problems, problems); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestWrites: what is written has the shape of the kind.
func TestWrites(t *testing.T) {
	var s Subscription
	const text = `{"kind":"Subscription","apiVersion":"eventing.kyma-project.io/v1alpha2","metadata":{"name":"orders"},"spec":{"sink":"s","source":"c","types":["a.b"]},"status":{"ready":true,"types":[],"backend":{}}}`
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Problem != nil {
		t.Fatal(err, s.Problem)
	}
	raw, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(raw)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
