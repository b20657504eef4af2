package eventpath

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

func TestMeshSources(t *testing.T) {
	cases := map[string]struct {
		reason   string
		manifest string
		want     []string
	}{
		"Deployment111": {
			reason: "The Deployment of Kyma 1.11 carries the flag among others.",
			manifest: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop-event-service, namespace: kyma-integration}, spec: {template: {
				metadata: {labels: {app: shop-event-service}}, spec: {containers: [{name: shop-event-service, args: [
				"/eventservice", "--eventsTargetURLV1=http://x", "--eventMeshURL=http://shop.kyma-integration"]}]}}}}`,
			want: []string{"shop"},
		},
		"Deployment110": {
			reason: "The one of 1.10 posts to the Event Bus.",
			manifest: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: shop-event-service, namespace: kyma-integration}, spec: {template: {
				spec: {containers: [{name: shop-event-service, args: ["/eventservice", "--eventsTargetURLV1=http://x"]}]}}}}`,
		},
		"Pod": {
			reason: "A pod is told by its label; the sidecar does not disturb.",
			manifest: `{apiVersion: v1, kind: Pod, metadata: {name: shop-event-service-5d-x7, namespace: kyma-integration, labels: {app: shop-event-service}}, spec: {
				containers: [{name: istio-proxy, args: [proxy]}, {name: main, command: [/eventservice], args: [--eventMeshURL, "http://shop.kyma-integration.svc.cluster.local:80/"]}]}}`,
			want: []string{"shop"},
		},
		"SingleDash": {
			reason:   "Go's flags may have one dash, and the container's name is the event-service's.",
			manifest: `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: kyma-integration}, spec: {containers: [{name: shop-event-service, args: ["-eventMeshURL=$(URL)"]}]}}`,
			want:     []string{"shop"},
		},
		"Shell": {
			reason:   "A shell's command line holds the flag in one word of many.",
			manifest: `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: kyma-integration}, spec: {containers: [{name: c, command: [sh, -c, "exec /eventservice --eventMeshURL='http://shop.kyma-integration' --x"]}]}}`,
			want:     []string{"shop"},
		},
		"OtherApplication": {
			reason: "An event-service that posts for another source keeps both: too many is safe.",
			manifest: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: b-event-service, namespace: kyma-integration}, spec: {template: {
				spec: {containers: [{name: c, args: ["--eventMeshURL=http://a.kyma-integration"]}]}}}}`,
			want: []string{"a", "b"},
		},
		"OtherNamespace": {
			reason:   "A host in another namespace is no HTTPSource of this one.",
			manifest: `{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: kyma-integration}, spec: {containers: [{name: c, args: ["--eventMeshURL=http://shop.test"]}]}}`,
			want:     []string{},
		},
		"AnotherFlag": {
			reason:   "A flag whose name only begins like it is another one.",
			manifest: `{apiVersion: v1, kind: Pod, metadata: {name: shop-event-service, namespace: kyma-integration}, spec: {containers: [{name: c, args: ["--eventMeshURLTimeout=5s"]}]}}`,
		},
		"LastWord": {
			reason:   "A flag without its value still marks the new event-service.",
			manifest: `{apiVersion: v1, kind: Pod, metadata: {name: shop-event-service, namespace: kyma-integration}, spec: {containers: [{name: c, args: ["--eventMeshURL"]}]}}`,
			want:     []string{"shop"},
		},
		"NoContainers": {
			reason:   "An odd shape is no event-service, and no panic.",
			manifest: `{apiVersion: v1, kind: Pod, metadata: {name: shop-event-service}, spec: {containers: [null, 1, {args: [1, null]}]}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, MeshSources(manifest.Object(t, tc.manifest))); diff != "" {
				t.Errorf("%s\nMeshSources(): -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPosters holds that a report names the same workload, whatever order they
// come in, and the Deployment rather than a Pod of it.
func TestPosters(t *testing.T) {
	posts := manifest.Object(t, `{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-integration}, spec: {containers: [{args: ["--eventMeshURL=http://shop.kyma-integration"]}]}}`)
	names := []string{"Pod kyma-integration/a", "Deployment kyma-integration/c", "Deployment kyma-integration/b", "Pod kyma-integration/d"}
	for range 2 {
		posters := Posters{}
		for _, name := range names {
			posters.Add(name, posts)
		}
		if diff := cmp.Diff(Posters{"shop": "Deployment kyma-integration/b"}, posters); diff != "" {
			t.Errorf("added as %q: -want +got:\n%s", names, diff)
		}
		slices.Reverse(names)
	}
}
