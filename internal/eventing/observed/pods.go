package observed

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// The components that have pods: the values of NameLabel on them.
const (
	NameLabel  = "app.kubernetes.io/name"
	Publisher  = "publisher-proxy"
	Controller = "controller"
	// Servers are those of NATS.
	Servers = "nats"
)

// lingering is how long a pod may need to end beyond the time that it was given.
const lingering = 30 * time.Second

// Ended tells whether a pod has ended for ever and stays, such as one that was evicted, or whose
// node was shut down: nothing deletes it as long as its ReplicaSet exists. Before Kubernetes 1.24,
// a kubelet said that a pod had failed before its containers had ended
// (kubernetes/kubernetes#108366).
func Ended(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded) &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// PodsOf are the pods of a component, terminating ones included.
func (w *World) PodsOf(component string) (pods []corev1.Pod) {
	for _, p := range w.Pods {
		if p.Labels[NameLabel] == component {
			pods = append(pods, p)
		}
	}
	return pods
}

// Lingers tells whether a pod has not ended in the time that it was given.
func (w *World) Lingers(p corev1.Pod) bool {
	// The time of its deletion is that at which it is to be gone.
	return p.DeletionTimestamp != nil && w.Now.Sub(p.DeletionTimestamp.Time) > lingering
}

// Orphans are pods of NATS without a StatefulSet: it was to be replaced, and the next one was not
// created yet.
func (w *World) Orphans() (pods []corev1.Pod) {
	for _, p := range w.PodsOf(Servers) {
		if p.DeletionTimestamp == nil && metav1.GetControllerOf(&p) == nil {
			pods = append(pods, p)
		}
	}
	return pods
}

// SendsTo is the backend that the template of the publisher has; "" if there is no publisher.
func SendsTo(publisher *unstructured.Unstructured) operatorv1alpha1.BackendType {
	if publisher == nil {
		return ""
	}
	to, _, _ := unstructured.NestedString(publisher.Object, "spec", "template", "metadata", "labels", backend.BackendLabel)
	return operatorv1alpha1.BackendType(to)
}

// Destination is the backend that a pod of the publisher sends to.
func Destination(p corev1.Pod) operatorv1alpha1.BackendType {
	return operatorv1alpha1.BackendType(p.Labels[backend.BackendLabel])
}

// SendElsewhere are the pods of the publisher that send to another backend, terminating ones
// included.
func (w *World) SendElsewhere(target operatorv1alpha1.BackendType) []corev1.Pod {
	return slices.DeleteFunc(w.PodsOf(Publisher), func(p corev1.Pod) bool { return Destination(p) == target })
}
