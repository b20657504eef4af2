package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// PodFault is what becomes of the pods of an Application's event-service.
type PodFault string

const (
	// CrashLooping: the container ends again and again.
	CrashLooping PodFault = "crash looping"
	// Unpullable: its image cannot be pulled.
	Unpullable PodFault = "unpullable"
	// Unschedulable: no node has room for the pod.
	Unschedulable PodFault = "unschedulable"
	// NeverReady: it runs, and its probe fails.
	NeverReady PodFault = "never ready"
)

// Kubelet stands in for scheduler and kubelet in one namespace of a cluster
// without nodes: it writes the status of pods, for the controller of Deployments
// to work with. Pods have no node, so that the API server deletes them at once.
type Kubelet struct {
	client    clientset.Interface
	namespace string
	stop      context.CancelFunc
	running   sync.WaitGroup

	mu     sync.Mutex
	faults map[string]PodFault
	slow   map[string]time.Duration
}

// StartKubelet starts it; Stop ends it.
func StartKubelet(ctx context.Context, cfg *rest.Config, namespace string) (*Kubelet, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	k := &Kubelet{client: client, namespace: namespace, faults: map[string]PodFault{}, slow: map[string]time.Duration{}}
	ctx, k.stop = context.WithCancel(ctx)
	pods := client.CoreV1().Pods(namespace)
	informer := cache.NewSharedIndexInformer(kubernetes.ListWatch(pods.List, pods.Watch), &corev1.Pod{}, 0, cache.Indexers{})
	see := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) == 0 {
			k.running.Go(func() { k.pod(ctx, pod) })
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see}); err != nil {
		return nil, fmt.Errorf("cannot watch pods: %w", err)
	}
	k.running.Go(func() { informer.RunWithContext(ctx) })
	return k, nil
}

// Stop ends the kubelet and returns when it has ended.
func (k *Kubelet) Stop() {
	k.stop()
	k.running.Wait()
}

// Break lets the pods of an Application's event-service fail that begin from now
// on.
func (k *Kubelet) Break(app string, fault PodFault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults[app] = fault
}

// Slow lets them take their time.
func (k *Kubelet) Slow(app string, delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow[app] = delay
}

func (k *Kubelet) pod(ctx context.Context, pod *corev1.Pod) {
	app := strings.TrimSuffix(pod.Labels["app"], "-event-service")
	k.mu.Lock()
	fault, delay := k.faults[app], k.slow[app]
	k.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
	patch, err := json.Marshal(map[string]any{"status": StatusOf(pod, fault)})
	if err != nil {
		panic(err) // it is our own
	}
	// The pod may be gone, and then there is nothing to do.
	_, _ = k.client.CoreV1().Pods(k.namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
}

// StatusOf is the status of a pod with a fault, "" for none.
func StatusOf(pod *corev1.Pod, fault PodFault) corev1.PodStatus {
	now := metav1.Now()
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: now}
	}
	if fault == Unschedulable {
		return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			condition(corev1.PodScheduled, corev1.ConditionFalse, "Unschedulable", "0/3 nodes are available: 3 Insufficient memory."),
		}}
	}
	container := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Started: new(true)}
	ready, phase := corev1.ConditionFalse, corev1.PodRunning
	switch fault {
	case CrashLooping:
		container.RestartCount = 6
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container"}
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 2, Reason: "Error", Message: "panic: flag provided but not defined: -eventMeshURL", StartedAt: now, FinishedAt: now,
		}
	case Unpullable:
		phase = corev1.PodPending
		container.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q", container.Image),
		}
	case NeverReady:
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
	default:
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		container.Ready, ready = true, corev1.ConditionTrue
	}
	return corev1.PodStatus{
		Phase: phase, StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{container},
		Conditions: []corev1.PodCondition{
			condition(corev1.PodScheduled, corev1.ConditionTrue, "", ""),
			condition(corev1.ContainersReady, ready, "", ""),
			condition(corev1.PodReady, ready, "", ""),
		},
	}
}

// WaitRolledOut returns once all pods of a Deployment are of its last version and
// available.
func (k *Kubelet) WaitRolledOut(ctx context.Context, deployment string) error {
	return waitRolledOut(ctx, k.client, k.namespace, deployment)
}

// WaitRolledOut returns once all pods of a Deployment are of its last version and
// available.
func (n *Node) WaitRolledOut(ctx context.Context, namespace, deployment string) error {
	return waitRolledOut(ctx, n.client, namespace, deployment)
}

func waitRolledOut(ctx context.Context, client clientset.Interface, namespace, deployment string) error {
	deployments := client.AppsV1().Deployments(namespace)
	selector := fields.OneTermEqualSelector("metadata.name", deployment).String()
	_, err := watchtools.UntilWithSync(ctx, kubernetes.ListWatch(deployments.List, deployments.Watch, func(opts *metav1.ListOptions) {
		opts.FieldSelector = selector
	}), &appsv1.Deployment{}, nil, func(event watch.Event) (bool, error) {
		d, ok := event.Object.(*appsv1.Deployment)
		if !ok {
			return false, nil
		}
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.Replicas == *d.Spec.Replicas && s.UpdatedReplicas == s.Replicas && s.AvailableReplicas == s.Replicas, nil
	})
	if err != nil {
		return fmt.Errorf("rollout of Deployment %s/%s did not end: %w", namespace, deployment, err)
	}
	return nil
}
