package eventbus

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

func obj(apiVersion, kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	if content == nil {
		content = map[string]any{}
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// controllerAt is the subscription-controller with so many replicas, and as many
// pods that are ready.
func controllerAt(n int) Controller {
	d := obj("apps/v1", "Deployment", "kyma-system", "event-bus-subscription-controller", map[string]any{
		"spec": map[string]any{"replicas": int64(n)}, "status": map[string]any{"observedGeneration": int64(1)},
	})
	d.SetUID("controller")
	d.SetGeneration(1)
	c := Controller{Deployment: d}
	for i := range n {
		c.Pods = append(c.Pods, controllerPod(fmt.Sprintf("pod-%d", i), "True", nil))
	}
	return c
}

// controllerPod is one of the subscription-controller; container is what its
// kubelet says besides.
func controllerPod(name, ready string, container map[string]any) *unstructured.Unstructured {
	status := map[string]any{"name": "controller", "restartCount": int64(0)}
	maps.Copy(status, container)
	return obj("v1", "Pod", "kyma-system", name, map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{"type": "Ready", "status": ready}}, "containerStatuses": []any{status},
	}})
}

var now = time.Date(2020, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

// crashed is a container that restarted so often, and ended last at that time.
func crashed(n int64, finished string) map[string]any {
	return map[string]any{"restartCount": n, "lastState": map[string]any{"terminated": map[string]any{"finishedAt": finished}}}
}

// TestControllerRuns: fails on the commit before, which looked at spec.replicas
// only.
func TestControllerRuns(t *testing.T) {
	terminating := controllerPod("old", "True", nil)
	terminating.Object["metadata"].(map[string]any)["deletionTimestamp"] = ago(0)
	for name, tc := range map[string]struct {
		reason string
		pods   []*unstructured.Unstructured
		want   string // words, "" if it runs
	}{
		"Ready":       {"a pod is ready", []*unstructured.Unstructured{controllerPod("a", "True", nil)}, ""},
		"NoPod":       {"nobody does its work", nil, "none of its pods exists"},
		"NotReady":    {"it does not work yet", []*unstructured.Unstructured{controllerPod("a", "False", nil)}, "none of its pods is ready (Pod kyma-system/a)"},
		"OneOfTwo":    {"one is enough", []*unstructured.Unstructured{controllerPod("a", "False", nil), controllerPod("b", "True", nil)}, ""},
		"Terminating": {"it will not go on", []*unstructured.Unstructured{terminating}, "none of its pods is ready"},
		"JustCrashed": {"it is ready between two crashes", []*unstructured.Unstructured{controllerPod("a", "True", crashed(3, ago(4*time.Minute)))}, "restarted 3 times, the last time less than 5m ago"},
		"LongAgo":     {"it has recovered", []*unstructured.Unstructured{controllerPod("a", "True", crashed(3, ago(6*time.Minute)))}, ""},
		"Started": {"the kubelet does not say when the last one ended", []*unstructured.Unstructured{controllerPod("a", "True", map[string]any{
			"restartCount": int64(1), "state": map[string]any{"running": map[string]any{"startedAt": ago(time.Minute)}},
		})}, "restarted 1 time,"},
		"FirstStart": {"a new pod has just started, and did not restart", []*unstructured.Unstructured{controllerPod("a", "True", map[string]any{
			"state": map[string]any{"running": map[string]any{"startedAt": ago(time.Second)}},
		})}, ""},
		"Another": {"one of two crashes, and takes the lead in between", []*unstructured.Unstructured{controllerPod("a", "True", nil), controllerPod("b", "False", crashed(9, ago(time.Second)))}, "Pod kyma-system/b restarted 9 times"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Controller{Deployment: controllerAt(1).Deployment, Pods: tc.pods}
			if got := c.Problem(now); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: got %q, want words %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestScaleDown: the patch keeps the former number, and insists on what was read.
func TestScaleDown(t *testing.T) {
	ch := controllerAt(2).ScaleDown("slow").Changes[0]
	if got, want := string(ch.Patch), `{"metadata":{"annotations":{"`+ReplicasAnnotation+`":"2"}},"spec":{"replicas":0}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": int64(2)},
		"metadata": map[string]any{"name": "event-bus-subscription-controller", "namespace": "kyma-system", "uid": "controller"},
	}
	if diff := cmp.Diff(want, ch.Object.Object); diff != "" {
		t.Errorf("basis (-want +got):\n%s", diff)
	}
	if !Stops(&ch) {
		t.Error("it does not count as a stop")
	}
}

func TestAtZero(t *testing.T) {
	labelled := func(c Controller) view.Of {
		match := map[string]any{"name": "subscription-controller"}
		v := view.Of{}
		if c.Deployment != nil {
			c.Deployment.Object["spec"].(map[string]any)["selector"] = map[string]any{"matchLabels": match}
			v = append(v, c.Deployment)
		}
		for _, pod := range c.Pods {
			pod.SetLabels(map[string]string{"name": "subscription-controller"})
			v = append(v, pod)
		}
		return v
	}
	kept := controllerAt(1)
	kept.Deployment.SetAnnotations(map[string]string{ReplicasAnnotation: "1"})
	unseen := controllerAt(0)
	unseen.Deployment.SetGeneration(2)
	ending := controllerAt(0)
	ending.Pods = []*unstructured.Unstructured{controllerPod("old", "True", nil)}
	for name, tc := range map[string]struct {
		reason string
		verb   migration.Verb
		views  []Controller
		want   migration.State
	}{
		"Zero":         {"nothing is left", migration.Await, []Controller{controllerAt(0)}, migration.Met},
		"Gone":         {"there is none", migration.Await, []Controller{{}}, migration.Met},
		"StillUp":      {"the view lags behind, or the patch is to come", migration.Await, []Controller{controllerAt(1)}, migration.Pending},
		"Unseen":       {"its controller has not seen it", migration.Await, []Controller{unseen}, migration.Pending},
		"Ending":       {"a pod may still write", migration.Await, []Controller{ending}, migration.Pending},
		"UpAgain":      {"somebody scaled it up", migration.Patch, []Controller{controllerAt(0), controllerAt(1)}, migration.Failed},
		"UpAgainAwait": {"the recheck says so, for one Subscription after the other", migration.Await, []Controller{kept}, migration.Met},
	} {
		t.Run(name, func(t *testing.T) {
			c := AtZero(&migration.Change{Verb: tc.verb, Ref: ControllerRef})
			var got migration.Status
			for _, v := range tc.views {
				got = c.Eval(labelled(v))
			}
			if got.State != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
