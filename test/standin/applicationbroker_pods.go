package standin

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/node"
)

// brokerPods selects the pods of application-broker, by the label of its chart.
const brokerPods = "app=" + ApplicationBrokerName

// deploy makes the Deployment, follows its pods and returns when one is ready.
func (b *ApplicationBroker) deploy(ctx context.Context) error {
	if err := ensureNamespaces(ctx, b.client, []string{IntegrationNamespace}); err != nil {
		return err
	}
	workload := deployment(IntegrationNamespace, ApplicationBrokerName, 1, map[string]any{"app": ApplicationBrokerName})
	if err := createAll(ctx, b.client, []*unstructured.Unstructured{workload}); err != nil {
		return err
	}
	pods := b.typed.CoreV1().Pods(IntegrationNamespace)
	informer := cache.NewSharedIndexInformer(kubernetes.ListWatch(pods.List, pods.Watch, func(opts *metav1.ListOptions) {
		opts.LabelSelector = brokerPods
	}), &corev1.Pod{}, 0, cache.Indexers{})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.podStarts(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { b.podStarts(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			b.forget(obj.(*corev1.Pod).UID)
		},
	}); err != nil {
		return fmt.Errorf("cannot watch pods: %w", err)
	}
	b.running.Go(func() { informer.RunWithContext(b.ctx) })
	if err := b.await(ctx, func() bool { return b.memory() != nil }); err != nil {
		return fmt.Errorf("no pod of Deployment %s/%s is ready: %w", IntegrationNamespace, ApplicationBrokerName, err)
	}
	return nil
}

// podStarts plays the kubelet: a new pod fills its memory, and then is ready. A pod that goes, goes
// with its memory.
func (b *ApplicationBroker) podStarts(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		b.forget(pod.UID)
		return
	}
	b.state.Lock()
	for _, m := range b.memories {
		if m.pod == pod.UID {
			b.state.Unlock()
			return
		}
	}
	b.state.Unlock()
	if err := b.remember(b.ctx, pod.UID); err != nil {
		b.log("%v", err)
		return
	}
	patch, err := json.Marshal(map[string]any{"status": node.StatusOf(pod, "")})
	if err != nil {
		panic(err) // it is our own
	}
	// The pod may be gone, and then there is nothing to do.
	_, _ = b.typed.CoreV1().Pods(IntegrationNamespace).Patch(b.ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
}

// restartPods deletes the pods, and returns when the Deployment has others.
func (b *ApplicationBroker) restartPods(ctx context.Context) error {
	pods := b.typed.CoreV1().Pods(IntegrationNamespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: brokerPods})
	if err != nil {
		return fmt.Errorf("cannot list pods: %w", err)
	}
	old := map[types.UID]bool{}
	for i := range list.Items {
		old[list.Items[i].UID] = true
		if err := pods.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); kubernetes.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete %s: %w", fields.OneTermEqualSelector("pod", list.Items[i].Name), err)
		}
	}
	if err := b.await(ctx, func() bool { m := b.memory(); return m != nil && !old[m.pod] }); err != nil {
		return fmt.Errorf("no new pod of Deployment %s/%s is ready: %w", IntegrationNamespace, ApplicationBrokerName, err)
	}
	return nil
}
