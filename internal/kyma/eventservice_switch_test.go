package kyma

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestNotSwitched(t *testing.T) {
	deployment := func(mesh bool, generation, observed, want, updated, all int64) *unstructured.Unstructured {
		args := []any{"--sourceId=shop"}
		if mesh {
			args = append(args, "--eventMeshURL=http://shop.kyma-integration")
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": "Deployment", "metadata": map[string]any{"namespace": "kyma-integration", "name": "shop-event-service", "generation": generation},
			"spec": map[string]any{"replicas": want, "template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{"name": "shop-event-service", "args": args}},
			}}},
			"status": map[string]any{"observedGeneration": observed, "updatedReplicas": updated, "replicas": all},
		}}
	}
	pod := func(name, phase string, mesh, terminating bool) *unstructured.Unstructured {
		obj := deployment(mesh, 0, 0, 0, 0, 0)
		template := MapAt(obj.Object, "spec", "template")
		metadata := map[string]any{"namespace": "kyma-integration", "name": name}
		if terminating {
			metadata["deletionTimestamp"] = "2020-03-04T00:00:00Z"
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": "Pod", "metadata": metadata, "spec": template["spec"], "status": map[string]any{"phase": phase},
		}}
	}
	done := deployment(true, 2, 2, 1, 1, 1)
	for _, tc := range []struct {
		reason     string
		deployment *unstructured.Unstructured
		pods       []*unstructured.Unstructured
		want       string
	}{
		{reason: "nothing posts anywhere"},
		{reason: "rolled out on the mesh", deployment: done, pods: []*unstructured.Unstructured{pod("new", "Running", true, false)}},
		{reason: "scaled to none", deployment: deployment(true, 2, 2, 0, 0, 0)},
		{reason: "the former version", deployment: deployment(false, 1, 1, 1, 1, 1), want: "it does not carry --eventMeshURL, so it posts to the Event Bus"},
		{reason: "status of before the change", deployment: deployment(true, 3, 2, 1, 1, 1), want: "its controller has not seen its last change yet (generation 3, observed 2)"},
		{reason: "half way", deployment: deployment(true, 2, 2, 2, 1, 2), want: "1 of its 2 pods are of the new version"},
		{reason: "one too many", deployment: deployment(true, 2, 2, 1, 1, 2), want: "1 of its pods are of the former version"},
		{
			reason: "its former pod has not ended", deployment: done, pods: []*unstructured.Unstructured{pod("new", "Running", true, false), pod("old", "Running", false, true)},
			want: "Pod kyma-integration/old, which posts to the Event Bus, is still terminating",
		},
		{reason: "evicted long ago", deployment: done, pods: []*unstructured.Unstructured{pod("old", "Failed", false, false)}},
		{
			reason: "a pod that outlives its Deployment", pods: []*unstructured.Unstructured{pod("old", "Running", false, false)},
			want: "Pod kyma-integration/old posts to the Event Bus",
		},
	} {
		if got := NotSwitched(tc.deployment, tc.pods); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestApplicationOf(t *testing.T) {
	pod := func(label, container string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": "Pod", "metadata": map[string]any{"name": "p", "labels": map[string]any{"app": label}},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "istio-proxy"}, map[string]any{"name": container}}},
		}}
	}
	deployment := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": name}}}
	}
	for _, tc := range []struct {
		reason string
		obj    *unstructured.Unstructured
		want   string
	}{
		{"a Deployment by its name", deployment("shop-event-service"), "shop"},
		{"another Deployment", deployment("shop-validator"), ""},
		{"a pod by its label", pod("shop-event-service", "x"), "shop"},
		{"a pod whose label was taken off, by its container", pod("", "shop-event-service"), "shop"},
		{"another pod", pod("shop", "shop"), ""},
	} {
		if got := ApplicationOf(tc.obj); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}

func TestMeshMigrationRuns(t *testing.T) {
	job := func(name, label, conditions string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":%q,"labels":{"app.kubernetes.io/name":%q}},"status":{"conditions":[%s]}}`, name, label, conditions)
		if err := u.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return u
	}
	const name = "event-bus-mesh-namespaces-migration-mesh-namespaces-migration"
	for _, tc := range []struct {
		reason string
		job    *unstructured.Unstructured
		want   bool
	}{
		{"the stock chart's Job at work", job(name, "mesh-namespaces-migration", ""), true},
		{"under another name", job("j", "mesh-namespaces-migration", ""), true},
		{"complete", job(name, "", `{"type":"Complete","status":"True"}`), false},
		{"failed", job(name, "", `{"type":"Failed","status":"True"}`), false},
		{"suspended is not ended", job(name, "", `{"type":"Suspended","status":"True"}`), true},
		{"another Job", job("event-bus-pre-upgrade", "event-bus", ""), false},
	} {
		if got := MeshMigrationRuns(tc.job); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}

func TestHTTPSourceProblem(t *testing.T) {
	object := func(kind, metadata, status string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(fmt.Sprintf(`{"apiVersion":"g/v1","kind":%q,"metadata":{"name":"shop","uid":"u"%s},"status":{%s}}`, kind, metadata, status))); err != nil {
			t.Fatal(err)
		}
		return u
	}
	const (
		ready     = `"conditions":[{"type":"Ready","status":"True"}]`
		addressed = ready + `,"address":{"url":"http://c"}`
		notReady  = `"conditions":[{"type":"Ready","status":"False","reason":"Why","message":"because"}]`
		deleted   = `,"deletionTimestamp":"2020-03-04T00:00:00Z"`
		former    = `,"ownerReferences":[{"apiVersion":"sources.kyma-project.io/v1alpha1","kind":"HTTPSource","name":"shop","uid":"former","controller":true}]`
	)
	source, channel, service := object("HTTPSource", "", ready), object("Channel", "", addressed), object("Service", "", ready)
	for _, tc := range []struct {
		reason                   string
		source, channel, service *unstructured.Unstructured
		want                     string
	}{
		{"all three ready", source, channel, service, ""},
		{"nothing there", nil, nil, nil, "it does not exist"},
		{"on its way out", object("HTTPSource", deleted, ready), channel, service, "it is being deleted"},
		{"no Channel, and a status that is stale", source, nil, service, "its adapter exists without a Channel to send to"},
		{"neither child", source, nil, nil, "its Channel does not exist"},
		{"a Channel that is not ready", source, object("Channel", "", notReady), service, "its Channel is not ready: Why: because"},
		{"a Channel without an address", source, object("Channel", "", ready), service, "its Channel has no address"},
		{"a Channel of a former HTTPSource", source, object("Channel", former, addressed), service, "its Channel belongs to an earlier HTTPSource and is about to be garbage-collected"},
		{"no adapter", source, channel, nil, "its adapter (the Knative Service of its name) does not exist"},
		{"an adapter without a status", source, channel, object("Service", "", ""), "its adapter (the Knative Service of its name) has no status yet"},
		{"its own word", object("HTTPSource", "", notReady), channel, service, "it is not ready: Why: because"},
	} {
		if got := HTTPSourceProblem(tc.source, tc.channel, tc.service); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}
