//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// eventService is an event-service that pods can run: Kyma's Deployment with a program that is in
// the registry. On the mesh it is the project's own; before, one that answers everything.
func (c *cluster) eventService(t *testing.T, app string, onMesh bool, edits ...func(container map[string]any)) *unstructured.Unstructured {
	t.Helper()
	u := standin.EventService(app, onMesh)
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	container := containers[0].(map[string]any)
	if onMesh {
		// Kyma's image has no entrypoint: the program is the first argument.
		container["image"], container["args"] = c.image(t, "./cmd/event-service"), container["args"].([]any)[1:]
	} else {
		container["image"], container["command"] = c.image(t, workload), []any{"/workload", "serve", ":8081"}
	}
	for _, edit := range edits {
		edit(container)
	}
	if err := unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	// None has state to lose, and tests need not wait for what it has in hand.
	if err := unstructured.SetNestedField(u.Object, int64(1), "spec", "template", "spec", "terminationGracePeriodSeconds"); err != nil {
		t.Fatal(err)
	}
	return u
}

// upgrade does to an Application's event-service what application-operator does.
func (c *cluster) upgrade(ctx context.Context, t *testing.T, fresh *unstructured.Unstructured) {
	t.Helper()
	// What the former container has more is taken away.
	containers, _, _ := unstructured.NestedSlice(fresh.Object, "spec", "template", "spec", "containers")
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}})
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := c.dynamic.Resource(standin.Deployments).Namespace(fresh.GetNamespace()).Patch(ctx, fresh.GetName(), types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// eventServiceVerify: one report names each event-service that is not right, and why, while the
// others are; and after all is mended, nothing. The pods are real: they crash, are slow, cannot be
// pulled and find no node.
func eventServiceVerify(t *testing.T) {
	c := node(t)
	ctx := t.Context()
	controllers, err := standin.Start(ctx, c.Config(), standin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controllers.Stop)
	if _, err := standin.Put(ctx, c.Config(), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standin.Clear(context.WithoutCancel(ctx), c.Config()); err != nil {
			t.Error(err)
		}
	})

	// Each as application-operator makes it of a release of 1.11.
	becomes := map[string]func(container map[string]any){
		"good": func(map[string]any) {},
		"slow": func(container map[string]any) {
			container["readinessProbe"].(map[string]any)["initialDelaySeconds"] = int64(15)
		},
		"crashing": func(container map[string]any) {
			container["image"], container["command"] = c.image(t, workload), []any{"/workload", "crash", "cannot bind the port"}
		},
		"talking": func(container map[string]any) {
			container["image"], container["command"] = c.image(t, workload), []any{"/workload", "crash", "cannot bind the port"}
			container["terminationMessagePolicy"] = "FallbackToLogsOnError"
		},
		"unpullable": func(container map[string]any) { container["image"] = "127.0.0.1:5000/event-service:never-pushed" },
		"unschedulable": func(container map[string]any) {
			container["resources"] = map[string]any{"requests": map[string]any{"memory": "1Ti"}}
		},
	}
	apps := []string{"missing"}
	for app := range becomes {
		apps = append(apps, app)
		c.create(t, c.eventService(t, app, false))
	}
	for _, app := range apps {
		c.create(t, standin.Application(app, false))
		if err := standin.PutHTTPSources(ctx, c.Config(), app); err != nil {
			t.Fatal(err)
		}
		c.service(t, standin.IntegrationNamespace, app+"-event-service", app+"-event-service", 8081, 8081)
		t.Cleanup(func() {
			_ = c.client.CoreV1().Services(standin.IntegrationNamespace).Delete(context.WithoutCancel(ctx), app+"-event-service", metav1.DeleteOptions{})
		})
	}
	for app := range becomes {
		c.rolledOut(t, standin.IntegrationNamespace, app+"-event-service")
	}
	if err := controllers.WaitReady(ctx, apps...); err != nil {
		t.Fatal(err)
	}

	// The operator begins when the job is at work already: its pod runs.
	fresh := map[string]*unstructured.Unstructured{}
	for app, edit := range becomes {
		fresh[app] = c.eventService(t, app, true, edit)
	}
	c.image(t, "./cmd/eventservice-verify")
	operator := make(chan struct{})
	go func() {
		defer close(operator)
		jobs := cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "pods", standin.SystemNamespace, fields.Everything())
		_, err := watchtools.UntilWithSync(ctx, jobs, &corev1.Pod{}, nil, func(e watch.Event) (bool, error) {
			pod, ok := e.Object.(*corev1.Pod)
			return ok && strings.HasPrefix(pod.Name, "eventservice-verify-") && pod.Status.Phase == corev1.PodRunning, nil
		})
		if err != nil {
			t.Error(err)
			return
		}
		for _, one := range fresh {
			c.upgrade(ctx, t, one)
		}
	}()
	r, code := c.run(t, "./cmd/eventservice-verify", "--per-application-timeout=1s", "--rollout-timeout=80s", "--timeout=5m", "--smoke")
	<-operator
	want(t, r, code, migration.FailedResult, 1)
	said := problems(r)
	for _, part := range []string{
		"Pod kyma-integration/crashing-event-service-",
		"container crashing-event-service crashed ",
		"the last time with exit code 1 (Error)",
		`saying "cannot bind the port`,
		"error: Deployment kyma-integration/unpullable-event-service: gave up after",
		"the image of container unpullable-event-service cannot be pulled (",
		"error: Deployment kyma-integration/unschedulable-event-service: gave up after",
		"it has no node (Unschedulable): 0/1 nodes are available: 1 Insufficient memory.",
		"error: Deployment kyma-integration/missing-event-service: gave up after",
		"it does not exist; application-operator has not upgraded the Application's release yet",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("not said: %s", part)
		}
	}
	for _, f := range r.Findings {
		if f.Severity == migration.Error && (strings.Contains(f.Object, "/good-") || strings.Contains(f.Object, "/slow-")) {
			t.Errorf("nothing is wrong with it: %s", f)
		}
	}

	// Mended, everything answers: the smoke requests are refused by the event-services themselves.
	for app := range becomes {
		c.upgrade(ctx, t, c.eventService(t, app, true))
	}
	c.create(t, c.eventService(t, "missing", true))
	r, code = c.run(t, "./cmd/eventservice-verify", "--timeout=5m", "--rollout-timeout=3m", "--smoke")
	want(t, r, code, migration.NothingToDo, 0)
	if said := problems(r); !strings.Contains(said, "info: 7 of 7 event-services answered a legacy request as they must") {
		t.Errorf("the smoke requests are not reported:\n%s", said)
	}
	start := time.Now()
	if r, code = c.run(t, "./cmd/eventservice-verify"); r.Result != migration.NothingToDo || code != 0 {
		t.Errorf("another run, of %s: %s, %d", time.Since(start), r.Result, code)
	}
}
