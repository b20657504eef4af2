package standin

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/test/node"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// ControllerFaults are ways in which the real subscription-controller differs from
// one that does all at once.
type ControllerFaults struct {
	// Requests is how many it may make in a second, as its client is limited; 0: any
	// number. The real one has 15 and deletes 1.5 Subscriptions with them.
	Requests float64
	// Crashes: a Subscription whose endpoint does not parse ends its process, at each
	// start. It is started again after a pause that doubles.
	Crashes bool
}

// requestsOfDeletion is how many requests the deletion of one Subscription takes, with
// the one that conflicts and what is repeated after it.
const requestsOfDeletion = 10

// busController is the process of the subscription-controller. Without pods it runs
// while its Deployment has replicas.
type busController struct {
	// pods: the stand-in plays controller of Deployments and kubelet for it.
	pods bool

	// turn is held by the goroutine that writes its pods.
	turn sync.Mutex

	mu     sync.Mutex
	faults ControllerFaults
	// tokens are requests it may make now, as of counted.
	tokens  float64
	counted time.Time
	// up: its process runs.
	up       bool
	restarts int64
	// restarting: the next start is on its way, unless the pod is another one by then.
	restarting bool
	started    int
}

// BreakController sets all faults of the subscription-controller.
func (m *Mesh) BreakController(f ControllerFaults) {
	c := &m.controller
	c.mu.Lock()
	c.faults, c.tokens, c.counted = f, requestsOfDeletion, time.Now()
	c.mu.Unlock()
	m.lookAgain()
	m.queue.Add(meshKey{"Deployment", SystemNamespace + "/" + SubscriptionController})
}

// mayDelete takes the requests for one deletion; if there are too few, it says how
// long it takes until there are enough.
func (c *busController) mayDelete() (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults.Requests == 0 {
		return 0
	}
	now := time.Now()
	c.tokens = math.Min(requestsOfDeletion, c.tokens+now.Sub(c.counted).Seconds()*c.faults.Requests)
	c.counted = now
	if c.tokens < requestsOfDeletion {
		return time.Duration((requestsOfDeletion - c.tokens) / c.faults.Requests * float64(time.Second))
	}
	c.tokens -= requestsOfDeletion
	return 0
}

// acts says whether the controller's process does anything now.
func (m *Mesh) acts() bool {
	c := &m.controller
	if !c.pods {
		return m.controllerRuns()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// crash ends the process if a Subscription has an endpoint that does not parse, and
// says so.
func (m *Mesh) crash() bool {
	c := &m.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pods || !c.faults.Crashes || !c.up {
		return false
	}
	for _, obj := range m.subscriptions.informer.GetStore().List() {
		endpoint, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", "endpoint")
		if _, err := url.Parse(endpoint); err != nil {
			c.up = false
			m.queue.Add(meshKey{"Deployment", SystemNamespace + "/" + SubscriptionController})
			return true
		}
	}
	return false
}

var (
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	setName     = SubscriptionController + "-7d9f"
)

// controllerPods is the part of the controllers of Deployments and ReplicaSets, and
// of a kubelet, for the one Deployment.
func (m *Mesh) controllerPods(ctx context.Context) error {
	c := &m.controller
	c.turn.Lock()
	defer c.turn.Unlock()
	d, err := m.deployments.resource.Namespace(SystemNamespace).Get(ctx, SubscriptionController, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		d, err = nil, nil
	}
	if err != nil {
		return err
	}
	want := int64(0)
	if d != nil && d.GetDeletionTimestamp() == nil {
		n, ok, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
		if want = n; !ok {
			want = 1
		}
	}
	pods := m.client.Resource(Pods).Namespace(SystemNamespace)
	pod, err := pods.Get(ctx, setName+"-0", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod, err = nil, nil
	}
	if err != nil {
		return err
	}
	if want == 0 {
		c.mu.Lock()
		c.up, c.restarts, c.restarting = false, 0, false
		c.started++
		c.mu.Unlock()
		if pod != nil {
			if err := pods.Delete(ctx, pod.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); kubernetes.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return m.countPods(ctx, d, 0, 0)
	}
	if pod == nil {
		// One, whatever the number: what it does is the same.
		if pod, err = m.startController(ctx, d); err != nil {
			return err
		}
		pod.Object["status"] = controllerStatus(pod, true, 0)
		if pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return err
		}
		c.mu.Lock()
		c.up, c.restarts = true, 0
		c.started++
		c.mu.Unlock()
	}
	m.crash()
	c.mu.Lock()
	up, restarts := c.up, c.restarts
	if !up && !c.restarting {
		c.restarting = true
		c.restarts++
		restarts = c.restarts
		after := min(node.RestartDelay<<min(restarts, 4), 5*time.Second)
		started := c.started
		time.AfterFunc(after, func() {
			c.mu.Lock()
			if c.started == started {
				c.up, c.restarting = true, false
			}
			c.mu.Unlock()
			m.lookAgain()
			m.queue.Add(meshKey{"Deployment", SystemNamespace + "/" + SubscriptionController})
		})
	}
	c.mu.Unlock()
	ready := int64(0)
	if up {
		ready = 1
	}
	pod = pod.DeepCopy()
	if status := controllerStatus(pod, up, restarts); status != nil {
		pod.Object["status"] = status
		if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); kubernetes.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return m.countPods(ctx, d, want, ready)
}

// startController makes the pod, and the ReplicaSet between it and its Deployment.
func (m *Mesh) startController(ctx context.Context, d *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	labels, _, _ := unstructured.NestedMap(d.Object, "spec", "template", "metadata", "labels")
	if labels == nil {
		labels = map[string]any{}
	}
	labels["pod-template-hash"] = "7d9f"
	spec := map[string]any{"containers": []any{map[string]any{"name": "subscription-controller", "image": "subscription-controller"}}}
	d.SetGroupVersionKind(m.deployments.gvk)
	sets := m.client.Resource(replicaSets).Namespace(SystemNamespace)
	set, err := sets.Get(ctx, setName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		u := object(replicaSets.GroupVersion().WithKind("ReplicaSet"), SystemNamespace, setName, map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{
				"replicas": int64(1), "selector": map[string]any{"matchLabels": labels},
				"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec},
			},
		})
		u.SetOwnerReferences([]metav1.OwnerReference{controlledBy(d)})
		set, err = sets.Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the ReplicaSet of %s: %w", SubscriptionController, err)
	}
	spec["automountServiceAccountToken"] = false
	pod := object(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, SystemNamespace, setName+"-0", map[string]any{
		"metadata": map[string]any{"labels": labels}, "spec": spec,
	})
	pod.SetOwnerReferences([]metav1.OwnerReference{controlledBy(set)})
	return m.client.Resource(Pods).Namespace(SystemNamespace).Create(ctx, pod, metav1.CreateOptions{})
}

// controllerStatus is what a kubelet says of the pod; nil if it has said so.
func controllerStatus(pod *unstructured.Unstructured, up bool, restarts int64) map[string]any {
	if has, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses"); len(has) == 1 {
		container, _ := has[0].(map[string]any)
		if container["ready"] == up && container["restartCount"] == restarts {
			return nil
		}
	}
	now := metav1.Now().UTC().Format(time.RFC3339)
	container := map[string]any{
		"name": "subscription-controller", "image": "subscription-controller", "imageID": "", "ready": up, "restartCount": restarts,
		"state": map[string]any{"running": map[string]any{"startedAt": now}},
	}
	if restarts > 0 {
		container["lastState"] = map[string]any{"terminated": map[string]any{
			"exitCode": int64(2), "reason": "Error", "startedAt": now, "finishedAt": now, "message": `panic: parse "http://[::1": missing ']' in host`,
		}}
	}
	ready := "True"
	if !up {
		ready = "False"
		container["state"] = map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff"}}
	}
	return map[string]any{
		"phase": "Running", "containerStatuses": []any{container},
		"conditions": []any{map[string]any{"type": "Ready", "status": ready, "lastTransitionTime": now}},
	}
}

// countPods writes the status of the Deployment.
func (m *Mesh) countPods(ctx context.Context, d *unstructured.Unstructured, pods, ready int64) error {
	if d == nil {
		return nil
	}
	status := map[string]any{"observedGeneration": d.GetGeneration()}
	if pods > 0 {
		status["replicas"], status["updatedReplicas"] = pods, pods
		if ready > 0 {
			status["readyReplicas"], status["availableReplicas"] = pods, pods
		} else {
			status["unavailableReplicas"] = pods
		}
	}
	return m.deployments.setStatus(ctx, d, status)
}
