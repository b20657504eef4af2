package migration

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func ref(kind, name string) Ref {
	return Ref{Resource: Resource{Kind: kind, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: kind}}, Namespace: "shop", Name: name}
}

func TestRemakes(t *testing.T) {
	orders, other := ref("ServiceInstance", "orders"), ref("ServiceInstance", "other")
	u := Unit{Changes: []Change{
		{Verb: Patch, Ref: orders}, {Verb: Delete, Ref: other}, {Verb: Delete, Ref: orders}, {Verb: Await, Ref: orders}, {Verb: Create, Ref: orders}, {Verb: Patch, Ref: orders},
	}}
	type answers struct {
		RemadeBy []int
		Remakes  []bool
	}
	var got answers
	for i := range u.Changes {
		got.RemadeBy = append(got.RemadeBy, remadeBy(&u, i))
		got.Remakes = append(got.Remakes, remakes(&u, i))
	}
	want := answers{
		RemadeBy: []int{-1, -1, 4, -1, -1, -1},
		// What comes before the deletion is overtaken by it; what follows is not.
		Remakes: []bool{true, false, true, false, false, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestLateRestartIsData holds that a restart survives the journal: what it decides
// by is decided by another process.
func TestLateRestartIsData(t *testing.T) {
	orders := ref("ServiceInstance", "orders")
	want := Change{Verb: Restart, Ref: ref("Deployment", "broker"), Late: &LateRestart{
		Unless: &orders, After: time.Date(2020, 3, 1, 10, 0, 0, 0, time.UTC), Traces: &Traces{Ref: ref("Subscription", ""), LabelSelector: "a=b"},
	}}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Change
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// podsView shows pods.
type podsView []*unstructured.Unstructured

func (v podsView) Get(Ref) *unstructured.Unstructured                 { return nil }
func (v podsView) List(Resource, string) []*unstructured.Unstructured { return v }

func TestReplicasReady(t *testing.T) {
	object := func(text string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := obj.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	pod := func(more, ready string) *unstructured.Unstructured {
		return object(`{apiVersion: v1, kind: Pod, metadata: {name: p` + more + `}, status: {conditions: [{type: Ready, status: "` + ready + `"}]}}`)
	}
	const ours = ", labels: {app: broker}"
	for _, tc := range []struct {
		reason   string
		replicas string
		pods     podsView
		want     Status
	}{
		{"one pod is ready, and one is the default", "", podsView{pod(ours, "True")}, Status{State: Met}},
		{"it is not ready yet", "", podsView{pod(ours, "False")}, Status{Message: "0 of its 1 pods are ready"}},
		{"another one's is", "", podsView{pod(", labels: {app: other}", "True")}, Status{Message: "0 of its 1 pods are ready"}},
		{"one that goes does not count", "", podsView{pod(ours+`, deletionTimestamp: "2020-03-04T00:00:00Z"`, "True")}, Status{Message: "0 of its 1 pods are ready"}},
		{"all have to be", "replicas: 2, ", podsView{pod(ours, "True")}, Status{Message: "1 of its 2 pods are ready"}},
	} {
		deployment := object("{apiVersion: apps/v1, kind: Deployment, metadata: {name: broker}, spec: {" + tc.replicas + "selector: {matchLabels: {app: broker}}}}")
		if diff := cmp.Diff(tc.want, replicasReady(tc.pods, "shop", deployment)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
