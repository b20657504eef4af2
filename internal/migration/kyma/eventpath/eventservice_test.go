package eventpath

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

const (
	integration = "kyma-integration"
	onMesh      = "--eventMeshURL=http://shop.kyma-integration"
)

// serviceOf is the event-service of shop, rolled out, with these arguments.
func serviceOf(t *testing.T, args string) *unstructured.Unstructured {
	t.Helper()
	return deploymentOf(t, fmt.Sprintf("[{name: shop-event-service, args: [/eventservice, %q]}]", args))
}

func deploymentOf(t *testing.T, containers string) *unstructured.Unstructured {
	t.Helper()
	return manifest.Object(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-integration, name: shop-event-service, generation: 2},
  spec: {replicas: 1, template: {spec: {containers: %s}}},
  status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, availableReplicas: 1}}`, containers))
}

func podOf(t *testing.T, name, metadata, args, phase string) *unstructured.Unstructured {
	t.Helper()
	return manifest.Object(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-integration, name: %s%s},
  spec: {containers: [{name: istio-proxy, args: [proxy]}, {name: shop-event-service, args: [/eventservice, %q]}]}, status: {phase: %s}}`, name, metadata, args, phase))
}

// words are what an Answer says; "" if it holds.
func words(a Answer) string {
	if a.OK() {
		return ""
	}
	return string(a.Defect) + ": " + a.Sentence()
}

// TestSwitched: with --eventMeshURL empty, of another source or of the publisher, the
// name of the Deployment was taken for a proof before.
func TestSwitched(t *testing.T) {
	const (
		self = "Deployment kyma-integration/shop-event-service "
		not  = "eventservice-not-switched: " + self
		roll = "eventservice-rollout: " + self
		bus  = "does not carry --eventMeshURL, so it posts to the Event Bus"
	)
	with := func(path ...any) *unstructured.Unstructured {
		d := serviceOf(t, onMesh)
		fields := make([]string, len(path)-1)
		for i := range fields {
			fields[i] = path[i].(string)
		}
		if err := unstructured.SetNestedField(d.Object, path[len(path)-1], fields...); err != nil {
			t.Fatal(err)
		}
		return d
	}
	url := func(u string) *unstructured.Unstructured { return serviceOf(t, "--eventMeshURL="+u) }
	former := podOf(t, "old", "", "--sourceId=shop", "Running")
	for _, tc := range []struct {
		reason     string
		deployment *unstructured.Unstructured
		pods       []*unstructured.Unstructured
		optional   bool
		want       string
	}{
		{reason: "rolled out on the mesh", deployment: serviceOf(t, onMesh), pods: []*unstructured.Unstructured{podOf(t, "new", "", onMesh, "Running")}},
		{reason: "cluster DNS knows the adapter by this name", deployment: url("http://shop.kyma-integration.svc")},
		{reason: "and by its full one; a port may be named", deployment: url("http://shop.kyma-integration.svc.cluster.local:80/")},
		{reason: "the value is the next word", deployment: deploymentOf(t, `[{name: shop-event-service, command: [/eventservice, -eventMeshURL, "http://shop.kyma-integration"]}]`)},
		{reason: "a shell starts it", deployment: deploymentOf(t, `[{name: c, command: [sh, -c, "exec /eventservice --eventMeshURL='http://shop.kyma-integration' --x"]}]`)},
		{reason: "scaled to 0: nothing posts", deployment: func() *unstructured.Unstructured {
			d := with("spec", "replicas", int64(0))
			d.Object["status"] = map[string]any{"observedGeneration": int64(2)}
			return d
		}()},

		{reason: "that of Kyma 1.10", deployment: serviceOf(t, "--sourceId=shop"), want: not + bus},
		{reason: "an empty URL posts nowhere", deployment: url(""), want: not + "carries an empty --eventMeshURL, not http://shop.kyma-integration"},
		{reason: "the flag as the last word has no value", deployment: serviceOf(t, "--eventMeshURL"), want: not + "carries an empty --eventMeshURL, not http://shop.kyma-integration"},
		{reason: "no scheme, no URL", deployment: url("shop.kyma-integration"), want: not + "carries an --eventMeshURL that is no absolute URL, not http://shop.kyma-integration"},
		{reason: "what does not parse is not told: it may hold a password", deployment: url("http://u:secret%zz@x"), want: not + "carries an --eventMeshURL that is no absolute URL, not http://shop.kyma-integration"},
		{reason: "a variable cannot be resolved here", deployment: url("$(MESH)"), want: not + "carries an --eventMeshURL that is no absolute URL, not http://shop.kyma-integration"},
		{reason: "the adapter of another source", deployment: url("http://crm.kyma-integration"), want: not + `posts to the host "crm.kyma-integration" (--eventMeshURL), not to http://shop.kyma-integration`},
		{reason: "the publisher of the Event Bus", deployment: url("http://event-publish-service.kyma-system:8080/v1/events"), want: not + `posts to the host "event-publish-service.kyma-system:8080" (--eventMeshURL), not to http://shop.kyma-integration`},
		{reason: "the publisher, called as the source", deployment: url("http://shop.kyma-system"), want: not + `posts to the host "shop.kyma-system" (--eventMeshURL), not to http://shop.kyma-integration`},
		{reason: "a host that only begins like it", deployment: url("http://shop.kyma-integration.example.com"), want: not + `posts to the host "shop.kyma-integration.example.com" (--eventMeshURL), not to http://shop.kyma-integration`},
		{reason: "the host comes after the user", deployment: url("http://shop.kyma-integration@example.com"), want: not + `posts to the host "example.com" (--eventMeshURL), not to http://shop.kyma-integration`},
		{reason: "the adapter takes events at its root only", deployment: url("http://shop.kyma-integration/v1/events"), want: not + `posts to a path of the host "shop.kyma-integration" (--eventMeshURL), where its adapter takes no events`},
		{reason: "a flag that only ends like it", deployment: serviceOf(t, "--no-eventMeshURL=http://shop.kyma-integration"), want: not + bus},
		{reason: "the flag of another container proves nothing", deployment: deploymentOf(t, fmt.Sprintf("[{name: shop-event-service}, {name: other, args: [%q]}]", onMesh)), want: not + bus},
		{reason: "each flag must be right: Go takes the last", deployment: deploymentOf(t, fmt.Sprintf("[{name: shop-event-service, args: [%q, --eventMeshURL=]}]", onMesh)), want: not + "carries an empty --eventMeshURL, not http://shop.kyma-integration"},

		{reason: "it is going", deployment: with("metadata", "deletionTimestamp", "2020-03-04T00:00:00Z"), want: roll + "is being deleted"},
		{reason: "a status of before the change", deployment: with("metadata", "generation", int64(3)), want: roll + "has changed, and its controller has not caught up"},
		{reason: "no status", deployment: with("status", map[string]any{}), want: roll + "has changed, and its controller has not caught up"},
		{reason: "half way", deployment: with("status", "updatedReplicas", int64(0)), want: roll + "is being updated: 0 of 1 pods are new"},
		{reason: "half way, and paused there", deployment: func() *unstructured.Unstructured {
			d := with("spec", "paused", true)
			d.Object["status"].(map[string]any)["updatedReplicas"] = int64(0)
			return d
		}(), want: roll + "is being updated: 0 of 1 pods are new, and is paused"},
		{reason: "paused, and its only pod is not available: to end the pause would not help", deployment: func() *unstructured.Unstructured {
			d := with("spec", "paused", true)
			d.Object["status"].(map[string]any)["availableReplicas"] = int64(0)
			return d
		}(), want: roll + "is being updated: 0 of 1 pods are available"},
		{reason: "paused with nothing to replace", deployment: with("spec", "paused", true)},
		{reason: "one too many", deployment: with("status", "replicas", int64(2)), want: roll + "is being updated, and still has 1 of its old pods"},
		{reason: "the new one takes nothing yet", deployment: with("status", "availableReplicas", int64(0)), want: roll + "is being updated: 0 of 1 pods are available"},

		{
			reason: "an old pod that terminates posts until it has ended", deployment: serviceOf(t, onMesh),
			pods: []*unstructured.Unstructured{podOf(t, "new", "", onMesh, "Running"), podOf(t, "old", `, labels: {app: shop-event-service}, deletionTimestamp: "2020-03-04T00:00:00Z"`, "", "Running")},
			want: "eventservice-former-pod: Pod kyma-integration/old " + bus + "; it is terminating, and posts until it has ended",
		},
		{reason: "one whose label was removed is known by its container", deployment: serviceOf(t, onMesh), pods: []*unstructured.Unstructured{former}, want: "eventservice-former-pod: Pod kyma-integration/old " + bus},
		{
			reason: "a pod that posts for another source", deployment: serviceOf(t, onMesh), pods: []*unstructured.Unstructured{podOf(t, "odd", "", "--eventMeshURL=http://crm.kyma-integration", "Running")},
			want: `eventservice-former-pod: Pod kyma-integration/odd posts to the host "crm.kyma-integration" (--eventMeshURL), not to http://shop.kyma-integration`,
		},
		{reason: "one that was evicted does nothing", deployment: serviceOf(t, onMesh), pods: []*unstructured.Unstructured{podOf(t, "old", "", "", "Failed")}},

		{reason: "nothing says where the events go", want: "eventservice-missing: " + self + "does not exist, so that nothing says where the events go"},
		{reason: "nothing was ever installed", optional: true},
		{reason: "a pod outlives its Deployment", optional: true, pods: []*unstructured.Unstructured{former}, want: "eventservice-former-pod: Pod kyma-integration/old " + bus},
	} {
		if tc.deployment != nil {
			TrimWorkload(tc.deployment) // as the jobs read it
		}
		got := EventService{Application: "shop", Namespace: integration, Deployment: tc.deployment, Former: Former("shop", tc.pods), Optional: tc.optional}.Switched()
		if words(got) != tc.want {
			t.Errorf("%s:\n got %q\nwant %q", tc.reason, words(got), tc.want)
		}
		if !got.OK() && !strings.Contains(got.Command, "kubectl -n kyma-integration ") {
			t.Errorf("%s: no command on the object: %q", tc.reason, got.Command)
		}
	}
}

func TestApplicationsOf(t *testing.T) {
	pod := func(metadata, container string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p%s}, spec: {containers: [{name: istio-proxy}, {name: %q}]}}`, metadata, container))
	}
	owner := func(kind, name string) string {
		return fmt.Sprintf(", ownerReferences: [{apiVersion: apps/v1, kind: %s, name: %s, uid: u, controller: true}]", kind, name)
	}
	deployment := func(name string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}}", name))
	}
	for _, tc := range []struct {
		reason string
		obj    *unstructured.Unstructured
		want   []string
	}{
		{"a Deployment by its name", deployment("shop-event-service"), []string{"shop"}},
		{"another Deployment", deployment("shop-validator"), nil},
		{"a name that is nothing but the suffix", deployment("-event-service"), nil},
		{"a pod by its label", pod(", labels: {app: shop-event-service}", "x"), []string{"shop"}},
		{"a pod whose label was removed, by its container", pod("", "shop-event-service"), []string{"shop"}},
		{"a pod by its ReplicaSet", pod(owner("ReplicaSet", "shop-event-service-5d9c"), "x"), []string{"shop"}},
		{"two signs that differ count both: it may post for either", pod(", labels: {app: crm-event-service}", "shop-event-service"), []string{"crm", "shop"}},
		{"another owner's name means nothing", pod(owner("Job", "shop-event-service-5d9c"), "x"), nil},
		{"another pod", pod(", labels: {app: shop}", "shop"), nil},
		{"no container at all", manifest.Object(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [null, 1]}}"), nil},
	} {
		if diff := cmp.Diff(tc.want, ApplicationsOf(tc.obj)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestOfEventBus(t *testing.T) {
	const deployment = "event-bus-subscription-controller"
	pod := func(name, metadata, container string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s%s}, spec: {containers: [{name: istio-proxy}, {name: %q}]}}`, name, metadata, container))
	}
	owner := func(kind, name string) string {
		return fmt.Sprintf(", ownerReferences: [{apiVersion: apps/v1, kind: %s, name: %s, uid: u, controller: true}]", kind, name)
	}
	const chart = ", labels: {app.kubernetes.io/name: subscription-controller, app.kubernetes.io/instance: event-bus}"
	for _, tc := range []struct {
		reason string
		pod    *unstructured.Unstructured
		want   bool
	}{
		{"by its ReplicaSet", pod("p", owner("ReplicaSet", deployment+"-5d9c"), "x"), true},
		{"without its labels it is released by its ReplicaSet, and known by its container", pod("p", "", "subscription-controller"), true},
		{"by its labels", pod("p", chart, "x"), true},
		{"by its name", pod(deployment+"-5d9c-x7", "", "x"), true},
		{"the publisher is another one", pod("event-bus-event-publish-service-5d9c-x7", "", "event-publish-service"), false},
		{"an owner says more than labels", pod("p", chart+owner("ReplicaSet", "other-5d9c"), "subscription-controller"), false},
		{"the hook of the chart has its labels", pod(deployment+"-pre-upgrade-x7", chart+owner("Job", deployment+"-pre-upgrade"), "x"), false},
	} {
		if got := OfEventBus(tc.pod, deployment); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
		TrimPod(tc.pod)
		if got := OfEventBus(tc.pod, deployment); got != tc.want {
			t.Errorf("%s: got %t of the trimmed pod", tc.reason, got)
		}
	}
}

// TestBusPods: a pod that its ReplicaSet has released goes on working (fails on the
// commit before: without a label and an owner it was nobody's).
func TestBusPods(t *testing.T) {
	pod := func(name, more string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: subscription-controller}]}, status: {phase: %s}}`, name, more))
	}
	owned, released, ended := pod("owned", "Running"), pod("released", "Running"), pod("ended", "Succeeded")
	var got []string
	for _, p := range BusPods("event-bus-subscription-controller", []*unstructured.Unstructured{owned}, []*unstructured.Unstructured{ended, released, owned}) {
		got = append(got, p.GetName())
	}
	if diff := cmp.Diff([]string{"owned", "released"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
