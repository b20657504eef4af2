//go:build slow || soak

package rbac

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// bus is a cluster with the Event Bus, one Application, and Kyma Subscriptions.
type bus struct {
	*plane
	mesh *standin.Mesh
}

func (b *bus) knative(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group + ".knative.dev", Version: string(b.version), Resource: resource}
}

func TestRolesOfTriggerSyncAreExact(t *testing.T) {
	for _, version := range []kubernetes.KnativeVersion{kubernetes.KnativeV1alpha1, kubernetes.KnativeV1} {
		t.Run(string(version), func(t *testing.T) {
			b := newBus(t, version)
			a := b.account(t, "trigger-sync")
			ctx := t.Context()

			// Before the switch: Triggers come, nothing goes. What Knative makes with a
			// label has no finalizers, or a rollback would watch them go.
			b.subscribe(t, "shop", "orders")
			labels := faultOnly{}
			if version == kubernetes.KnativeV1alpha1 {
				labels["watch serviceaccounts everywhere"] = "one had a finalizer"
				labels["watch rolebindings.rbac.authorization.k8s.io everywhere"] = "one had a finalizer"
			}
			a.refusesWithout(t, labels)
			a.many(t, migration.DeferredResult)
			b.mesh.Break(standin.TriggerNeverReady, "shop/"+b.trigger(t, a))
			a.run(t, migration.RolledBack, "run", "--ready-timeout=1s")
			a.killed(t, func() bool {
				list, err := b.dynamic.Resource(b.knative("eventing", "triggers")).Namespace("shop").List(ctx, metav1.ListOptions{})
				return err == nil && len(list.Items) > 0
			})
			b.mesh.HealAll()
			a.contended(t, func() { a.run(t, migration.DeferredResult, "run") })

			// An EventActivation without its Knative Subscription is waited for.
			b.subscribe(t, "crm", "customers")
			if err := standin.Load(ctx, b.Config(), standin.EventActivation("crm", "customers", "commerce")); err != nil {
				t.Fatal(err)
			}
			a.run(t, migration.RolledBack, "run", "--activation-timeout=1s")
			b.link(t, "crm")

			// The Trigger of a Subscription that is edited follows it.
			a.run(t, migration.DeferredResult, "run")
			b.edit(t, "crm", "customers", `{"spec":{"endpoint":"http://moved.crm:8080/"}}`)
			a.run(t, migration.DeferredResult, "run")

			// After the switch; what is in flight is asked, and not known.
			b.switched(t)
			a.run(t, migration.DeferredResult, "run", "--drain-timeout=0s")
			a.run(t, migration.Succeeded, "run", "--legacy-traffic=ignore")
			a.run(t, migration.Succeeded, "undo")

			// Without the subscription-controller the job cleans up itself.
			b.scale(t, 0)
			a.run(t, migration.Succeeded, "run", "--legacy-traffic=ignore")
			a.run(t, migration.Succeeded, "undo")

			faults := faultOnly{
				journal: "the answer to a creation was lost",
				"patch channels.messaging.knative.dev in kyma-system": "a webhook took finalizers off a Channel that was restored",
			}
			a.refusesWithout(t, faults, "--legacy-traffic=ignore")
			// The controller is at 0 already: nothing is scaled in this test.
			faults["patch deployments.apps event-bus-subscription-controller in kyma-system"] = "the subscription-controller crashed, or was too slow"
			maps.Copy(faults, labels)
			a.exactly(t, faults)
		})
	}
}

func newBus(t *testing.T, version kubernetes.KnativeVersion) *bus {
	t.Helper()
	ctx := t.Context()
	b := &bus{plane: start(t, version, kubernetes.Controllers("garbage-collector-controller", "namespace-controller", "serviceaccount-controller"))}
	var err error
	if b.mesh, err = standin.StartMesh(context.WithoutCancel(ctx), b.Config(), standin.Options{ControllerPods: true, Activated: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.mesh.Stop)
	const app = "commerce"
	if err := standin.Load(ctx, b.Config(), append(standin.EventBus(), standin.Application(app, false), standin.EventService(app, false))...); err != nil {
		t.Fatal(err)
	}
	if err := standin.PutHTTPSources(ctx, b.Config(), app); err != nil {
		t.Fatal(err)
	}
	if err := b.controllers.WaitReady(ctx, app); err != nil {
		t.Fatal(err)
	}
	b.scale(t, 1)
	b.status(t)
	b.link(t, "shop")
	// A pod with the monitoring port of NATS Streaming, which nothing answers on.
	_, err = b.core.CoreV1().Pods("natss").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nats-streaming-0"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 8222}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// edit changes a Kyma Subscription.
func (b *bus) edit(t *testing.T, namespace, name, patch string) {
	t.Helper()
	_, err := b.dynamic.Resource(standin.KymaSubscriptions).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// link brings the events of the Application to a namespace.
func (b *bus) link(t *testing.T, namespace string) {
	t.Helper()
	link := standin.Link(string(b.version), "commerce", namespace, "brokersub-"+namespace)
	if _, err := b.dynamic.Resource(b.knative("messaging", "subscriptions")).Namespace(standin.IntegrationNamespace).Create(t.Context(), link, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (b *bus) subscribe(t *testing.T, namespace, name string) {
	t.Helper()
	sub := standin.KymaSubscription(namespace, name, "commerce", "order.created")
	unstructured.RemoveNestedField(sub.Object, "spec", "include_subscription_name_header")
	sub.SetFinalizers(nil)
	if _, err := b.dynamic.Resource(standin.KymaSubscriptions).Namespace(namespace).Create(t.Context(), sub, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "the Event Bus knows the Subscriptions", standin.SubscriptionsReady)
}

func (b *bus) wait(t *testing.T, what string, holds func(*standin.Mesh) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := b.mesh.Wait(ctx, holds); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// trigger is the name of the Trigger that the job would make.
func (b *bus) trigger(t *testing.T, a *account) string {
	t.Helper()
	for _, ch := range a.run(t, migration.Planned, "plan").Changes {
		if ch.Kind == "Trigger" {
			return ch.Name
		}
	}
	t.Fatal("the plan has no Trigger")
	return ""
}

func (b *bus) scale(t *testing.T, replicas int) {
	t.Helper()
	_, err := b.core.AppsV1().Deployments(standin.SystemNamespace).Patch(t.Context(), standin.SubscriptionController, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.wait(t, "the controller is told", func(m *standin.Mesh) bool { return m.ControllerRuns() == (replicas > 0) })
}

// switched lets the event-service post to the mesh.
func (b *bus) switched(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	deployments := b.dynamic.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace)
	u := standin.EventService("commerce", true)
	if err := deployments.Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if _, err := deployments.Create(ctx, u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.status(t)
}

// status says that the event-service is rolled out: no controller does here.
func (b *bus) status(t *testing.T) {
	t.Helper()
	_, err := b.core.AppsV1().Deployments(standin.IntegrationNamespace).Patch(t.Context(), "commerce-event-service", types.MergePatchType,
		[]byte(`{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}
