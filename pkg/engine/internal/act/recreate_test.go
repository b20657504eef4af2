package act

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// podsView shows pods.
type podsView []*unstructured.Unstructured

func (v podsView) Get(migration.Subject) *unstructured.Unstructured { return nil }

func (v podsView) List(schema.GroupKind, string) []*unstructured.Unstructured { return v }

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
		{"it is not ready yet", "", podsView{pod(ours, "False")}, migration.Status{Message: "0 of its 1 pod ready"}},
		{"another one's is", "", podsView{pod(", labels: {app: other}", "True")}, migration.Status{Message: "0 of its 1 pod ready"}},
		{"one that goes does not count", "", podsView{pod(ours+`, deletionTimestamp: "2020-03-04T00:00:00Z"`, "True")}, migration.Status{Message: "0 of its 1 pod ready"}},
		{"all have to be", "replicas: 2, ", podsView{pod(ours, "True")}, migration.Status{Message: "1 of its 2 pods ready"}},
	} {
		deployment := object("{apiVersion: apps/v1, kind: Deployment, metadata: {name: broker}, spec: {" + tc.replicas + "selector: {matchLabels: {app: broker}}}}")
		if diff := cmp.Diff(tc.want, replicasReady(tc.pods, "shop", deployment)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
