package httpsource

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func eventService(application string, args ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": application + "-event-service", "namespace": namespace},
		"spec":     map[string]any{"template": map[string]any{"spec": podSpec(application, args)}},
	}}
}

func eventServicePod(application, name string, args ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{"app": application + "-event-service"}},
		"spec":     podSpec(application, args),
	}}
}

func podSpec(application string, args []any) map[string]any {
	return map[string]any{"containers": []any{
		map[string]any{"name": "istio-proxy", "args": []any{"proxy"}},
		map[string]any{"name": application + "-event-service", "args": args},
	}}
}

func TestKeep(t *testing.T) {
	const mesh = "--eventMeshURL=http://a.kyma-integration"
	type list = []*unstructured.Unstructured
	a := assumedKinds().httpSource.Ref(namespace, "a")
	b := assumedKinds().httpSource.Ref(namespace, "b")
	byDeployment := map[migration.Ref]string{a: "carries live events: Deployment kyma-integration/a-event-service posts to the mesh"}
	reads := []string{`each deployments in "kyma-integration" `, `each pods in "kyma-integration" status.phase!=Succeeded,status.phase!=Failed`}
	cases := map[string]struct {
		reason  string
		refs    []migration.Ref
		objects list
		fail    map[string]error
		want    map[migration.Ref]string
		reads   []string
		err     bool
	}{
		"Live": {
			reason: "The Deployment posts for a, and b has none: a stays.",
			refs:   []migration.Ref{a, b}, objects: list{eventService("a", mesh)},
			want: byDeployment, reads: reads,
		},
		"Old": {
			reason: "An event-service of 1.10 posts to the Event Bus.",
			refs:   []migration.Ref{a, b}, objects: list{eventService("a", "--eventsTargetURLV1=http://x"), eventServicePod("a", "p", "--eventsTargetURLV1=http://x")},
			want: map[migration.Ref]string{}, reads: reads,
		},
		"LastPod": {
			reason: "A Deployment was set back, but a pod of the new revision still posts, if only until it ends.",
			refs:   []migration.Ref{a}, objects: list{
				eventService("a", "--eventsTargetURLV1=http://x"),
				eventServicePod("a", "p2", mesh), edited(eventServicePod("a", "p1", mesh).Object, []edit{deleting()}),
			},
			want:  map[migration.Ref]string{a: "carries live events: Pod kyma-integration/p1 posts to the mesh"},
			reads: reads,
		},
		"Both": {
			reason: "The Deployment is the better reason.",
			refs:   []migration.Ref{a}, objects: list{eventServicePod("a", "p", mesh), eventService("a", mesh)},
			want: byDeployment, reads: reads,
		},
		"Nothing": {
			reason: "Nothing to take away, nothing to read.",
			want:   map[migration.Ref]string{},
		},
		"OtherKinds": {
			reason: "Only HTTPSources are this job's.",
			refs:   []migration.Ref{assumedKinds().channel.Ref(namespace, "a")}, objects: list{eventService("a", mesh)},
			want: map[migration.Ref]string{},
		},
		"Unknown": {
			reason: "Whoever cannot tell takes nothing away.",
			refs:   []migration.Ref{a}, fail: map[string]error{"pods": errors.New("broken")},
			reads: reads, err: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &cluster{objects: tc.objects, fail: tc.fail}
			got, err := keep(t.Context(), c, tc.refs)
			if (err != nil) != tc.err {
				t.Fatalf("%s\nkeep(): error %v, want one: %t", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nkeep(): -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.reads, c.reads()); diff != "" {
				t.Errorf("%s\nreads: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
