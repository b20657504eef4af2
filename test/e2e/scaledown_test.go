//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// eventBus puts the Event Bus in place, with pods that run. One of the publisher's programs does
// not want to end, as one with a long request: the kubelet ends it after the grace period.
func (c *cluster) eventBus(t *testing.T) {
	t.Helper()
	c.namespaces(t, standin.SystemNamespace)
	for _, d := range standin.EventBus() {
		if d.GetName() == standin.Publisher {
			c.create(t, c.runnable(t, d, "hang"))
		} else {
			c.create(t, c.runnable(t, d, "serve", ":8080"))
		}
	}
	if err := standin.ResetEventBus(t.Context(), c.Config()); err != nil {
		t.Fatal(err)
	}
	c.up(t)
}

// runnable has the pods of a Deployment run the program of these tests.
func (c *cluster) runnable(t *testing.T, d *unstructured.Unstructured, args ...any) *unstructured.Unstructured {
	t.Helper()
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	container := containers[0].(map[string]any)
	container["image"], container["args"] = c.image(t, workload), args
	for path, value := range map[string]any{"containers": containers, "terminationGracePeriodSeconds": int64(3)} {
		if err := unstructured.SetNestedField(d.Object, value, "spec", "template", "spec", path); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// up checks that the Event Bus has the replicas it began with, and waits until their pods run.
func (c *cluster) up(t *testing.T) {
	t.Helper()
	c.rolledOut(t, standin.SystemNamespace, standin.Publisher)
	c.rolledOut(t, standin.SystemNamespace, standin.SubscriptionController)
	if p, s := c.replicas(t, standin.Publisher), c.replicas(t, standin.SubscriptionController); p != 2 || s != 1 {
		t.Errorf("replicas %d and %d, want 2 and 1", p, s)
	}
	if pods := c.busPods(t); len(pods) != 3 {
		t.Errorf("%d pods of the Event Bus, want 3", len(pods))
	}
}

// down checks that nothing of the Event Bus runs.
func (c *cluster) down(t *testing.T) {
	t.Helper()
	if p, s := c.replicas(t, standin.Publisher), c.replicas(t, standin.SubscriptionController); p != 0 || s != 0 {
		t.Errorf("replicas %d and %d, want 0 and 0", p, s)
	}
	if pods := c.busPods(t); len(pods) != 0 {
		t.Errorf("%d pods of the Event Bus, want none", len(pods))
	}
}

func (c *cluster) replicas(t *testing.T, name string) int32 {
	t.Helper()
	d, err := c.client.AppsV1().Deployments(standin.SystemNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *d.Spec.Replicas
}

// busPods are the pods of the Event Bus, terminating ones among them.
func (c *cluster) busPods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods(standin.SystemNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=event-bus"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// hold puts finalizers on a pod, or takes them off.
func (c *cluster) hold(ctx context.Context, t *testing.T, pod, finalizers string) {
	t.Helper()
	_, err := c.client.CoreV1().Pods(standin.SystemNamespace).Patch(ctx, pod, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// scaleDown: the job ends when the last pod has ended, not when the Deployment says 0; what it did,
// undo undoes.
func scaleDown(t *testing.T) {
	c := node(t)
	c.eventBus(t)
	r, code := c.run(t, "./cmd/eventbus-scaledown", "run", "--pods-timeout=2m")
	want(t, r, code, migration.Succeeded, 0)
	c.down(t)
	r, code = c.run(t, "./cmd/eventbus-scaledown", "run")
	want(t, r, code, migration.NothingToDo, 0)
	if r.Requests.Writes != 0 {
		t.Errorf("a second run made %d writes", r.Requests.Writes)
	}
	r, code = c.run(t, "./cmd/eventbus-scaledown", "undo")
	want(t, r, code, migration.Succeeded, 0)
	c.up(t)
}

// scaleDownOfAStuckPod: a pod that hangs in its termination keeps the job waiting, fails it at the
// limit, and both Deployments come back as they were, twice in a row. Once the pod can end, the job
// succeeds. TestScaleDown of test/integration/eventbus shows it with a pod of either Deployment.
func scaleDownOfAStuckPod(t *testing.T) {
	c := node(t)
	c.eventBus(t)
	var stuck string
	for _, pod := range c.busPods(t) {
		if strings.HasPrefix(pod.Name, standin.Publisher) {
			stuck = pod.Name
		}
	}
	c.hold(t.Context(), t, stuck, `["example.com/hold"]`)
	t.Cleanup(func() {
		// It may be gone.
		_, _ = c.client.CoreV1().Pods(standin.SystemNamespace).Patch(context.WithoutCancel(t.Context()), stuck, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	const limit = 12 * time.Second
	start := time.Now()
	r, code := c.run(t, "./cmd/eventbus-scaledown", "run", "--pods-timeout="+limit.String())
	if waited := time.Since(start); waited < limit {
		t.Errorf("it waited for %s only, with the pod %s terminating", waited, stuck)
	}
	want(t, r, code, migration.RolledBack, 1)
	if !strings.Contains(problems(r), stuck) {
		t.Errorf("the pod %s is not named:\n%s", stuck, problems(r))
	}
	if p, s := c.replicas(t, standin.Publisher), c.replicas(t, standin.SubscriptionController); p != 2 || s != 1 {
		t.Errorf("replicas %d and %d after the rollback, want 2 and 1", p, s)
	}
	r, code = c.run(t, "./cmd/eventbus-scaledown", "run", "--pods-timeout=5s")
	want(t, r, code, migration.RolledBack, 1)
	c.hold(t.Context(), t, stuck, "null")
	c.up(t)
	r, code = c.run(t, "./cmd/eventbus-scaledown", "run", "--pods-timeout=2m")
	want(t, r, code, migration.Succeeded, 0)
	c.down(t)
}
