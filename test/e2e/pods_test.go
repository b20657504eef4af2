//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kyma-project/eventmesh-migration/test/relay"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// workload is the program of test/e2e/workload in an image.
const workload = relay.Workload

// await watches one object until it is as wanted.
func await(ctx context.Context, client rest.Interface, resource, namespace, name string, object runtime.Object, holds func(runtime.Object) bool) error {
	lw := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	_, err := watchtools.UntilWithSync(ctx, lw, object, nil, func(e watch.Event) (bool, error) {
		return e.Type != watch.Deleted && holds(e.Object), nil
	})
	if err != nil {
		return fmt.Errorf("cannot wait for %s %s/%s: %w", resource, namespace, name, err)
	}
	return nil
}

// rolledOut waits until a Deployment has its pods, all of its last version and available.
func (c *cluster) rolledOut(t *testing.T, namespace, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := await(ctx, c.client.AppsV1().RESTClient(), "deployments", namespace, name, &appsv1.Deployment{}, func(o runtime.Object) bool {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == *d.Spec.Replicas &&
			d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.AvailableReplicas == *d.Spec.Replicas
	}); err != nil {
		t.Fatalf("%v\n%s", err, c.describe(namespace))
	}
}

// describe tells, for messages, how the pods of a namespace are.
func (c *cluster) describe(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var said strings.Builder
	for i := range pods.Items {
		pod := &pods.Items[i]
		fmt.Fprintf(&said, "Pod %s/%s: %s\n", namespace, pod.Name, pod.Status.Phase)
		for _, status := range pod.Status.ContainerStatuses {
			fmt.Fprintf(&said, "  %s: ready %t, %d restarts, %+v\n", status.Name, status.Ready, status.RestartCount, status.State)
		}
	}
	return said.String()
}

// create creates objects of any kind that test/standin knows.
func (c *cluster) create(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	if err := standin.Load(t.Context(), c.Config(), objects...); err != nil {
		t.Fatal(err)
	}
}

// namespaces creates those that are not there.
func (c *cluster) namespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// service puts a Service in front of the pods of a label "app".
func (c *cluster) service(t *testing.T, namespace, name, app string, port, target int) {
	t.Helper()
	_, err := c.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app},
			Ports:    []corev1.ServicePort{{Name: "http", Port: int32(port), TargetPort: intstr.FromInt(target)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// relay runs a pod that hands on to a URL whatever comes to the Service of its name at the port.
func (c *cluster) relay(t *testing.T, namespace, name string, port int, url string) {
	t.Helper()
	deployment, service := relay.Relay(c.image(t, workload), namespace, name, int32(port), url)
	_, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{})
	if err == nil {
		_, err = c.client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// logs returns what the pods of a selector have said.
func logs(client kubernetes.Interface, namespace, selector string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err.Error()
	}
	var said strings.Builder
	for _, pod := range pods.Items {
		fmt.Fprintf(&said, "Pod %s/%s: %s\n", namespace, pod.Name, pod.Status.Phase)
		stream, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			fmt.Fprintln(&said, err)
			continue
		}
		if _, err := io.Copy(&said, stream); err != nil {
			fmt.Fprintln(&said, err)
		}
		_ = stream.Close()
	}
	return said.String()
}
