package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func ref(kind, name string) migration.Ref {
	return migration.Ref{Resource: migration.Resource{Kind: kind, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: kind}}, Namespace: "shop", Name: name}
}

func TestRemakes(t *testing.T) {
	orders, other := ref("ServiceInstance", "orders"), ref("ServiceInstance", "other")
	u := migration.Unit{Changes: []migration.Change{
		{Verb: migration.Patch, Ref: orders}, {Verb: migration.Delete, Ref: other}, {Verb: migration.Delete, Ref: orders}, {Verb: migration.Await, Ref: orders}, {Verb: migration.Create, Ref: orders}, {Verb: migration.Patch, Ref: orders},
	}}
	type answers struct {
		RemadeBy []int
		Remakes  []bool
	}
	var got answers
	for i := range u.Changes {
		got.RemadeBy = append(got.RemadeBy, recreatedBy(&u, i))
		got.Remakes = append(got.Remakes, recreates(&u, i))
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
	want := migration.Change{Verb: migration.Restart, Ref: ref("Deployment", "broker"), Late: &migration.DeferredRestart{
		Unless: &orders, After: time.Date(2020, 3, 1, 10, 0, 0, 0, time.UTC), Leftovers: &migration.Leftovers{Ref: ref("Subscription", ""), LabelSelector: "a=b"},
	}}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got migration.Change
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// podsView shows pods.
type podsView []*unstructured.Unstructured

func (v podsView) Get(migration.Ref) *unstructured.Unstructured { return nil }

func (v podsView) List(migration.Resource, string) []*unstructured.Unstructured { return v }

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
		want     migration.Status
	}{
		{"one pod is ready, and one is the default", "", podsView{pod(ours, "True")}, migration.Status{State: migration.Met}},
		{"it is not ready yet", "", podsView{pod(ours, "False")}, migration.Status{Message: "0 of its 1 pods are ready"}},
		{"another one's is", "", podsView{pod(", labels: {app: other}", "True")}, migration.Status{Message: "0 of its 1 pods are ready"}},
		{"one that goes does not count", "", podsView{pod(ours+`, deletionTimestamp: "2020-03-04T00:00:00Z"`, "True")}, migration.Status{Message: "0 of its 1 pods are ready"}},
		{"all have to be", "replicas: 2, ", podsView{pod(ours, "True")}, migration.Status{Message: "1 of its 2 pods are ready"}},
	} {
		deployment := object("{apiVersion: apps/v1, kind: Deployment, metadata: {name: broker}, spec: {" + tc.replicas + "selector: {matchLabels: {app: broker}}}}")
		if diff := cmp.Diff(tc.want, replicasReady(tc.pods, "shop", deployment)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
