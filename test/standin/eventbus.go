package standin

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// The Event Bus.
const (
	Publisher              = "event-bus-event-publish-service"
	SubscriptionController = "event-bus-subscription-controller"
	// BusFinalizer holds EventActivations, SubscriptionFinalizer Kyma
	// Subscriptions and the Knative Subscriptions made of them.
	BusFinalizer          = "eventactivation.finalizers.kyma-project.io"
	SubscriptionFinalizer = "subscription.finalizers.kyma-project.io"
)

// Resources of the Event Bus.
var (
	KymaSubscriptions = schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha1", Resource: "subscriptions"}
	EventActivations  = schema.GroupVersionResource{Group: "applicationconnector.kyma-project.io", Version: "v1alpha1", Resource: "eventactivations"}
	Pods              = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// KymaSubscription returns a Subscription of the Event Bus as its controller
// leaves it.
func KymaSubscription(namespace, name, source, eventType string) *unstructured.Unstructured {
	u := object(KymaSubscriptions.GroupVersion().WithKind("Subscription"), namespace, name, map[string]any{
		"spec": map[string]any{
			"endpoint": "http://" + name + "." + namespace + ":8080/", "include_subscription_name_header": true,
			"event_type": eventType, "event_type_version": "v1", "source_id": source,
		},
	})
	u.SetFinalizers([]string{SubscriptionFinalizer})
	return u
}

// EventActivation returns an EventActivation as the subscription-controller
// leaves it.
func EventActivation(namespace, name, source string) *unstructured.Unstructured {
	u := object(EventActivations.GroupVersion().WithKind("EventActivation"), namespace, name, map[string]any{
		"spec": map[string]any{"displayName": name, "sourceId": source},
	})
	u.SetFinalizers([]string{BusFinalizer})
	return u
}

// EventBus returns the two Deployments of the release event-bus.
func EventBus() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		deployment(SystemNamespace, Publisher, 2, map[string]any{
			"app.kubernetes.io/name": "event-publish-service", "app.kubernetes.io/instance": "event-bus",
		}),
		deployment(SystemNamespace, SubscriptionController, 1, map[string]any{
			"app.kubernetes.io/name": "subscription-controller", "app.kubernetes.io/instance": "event-bus",
		}),
	}
}

// ResetEventBus puts the Event Bus as Kyma 1.10 deploys it into a cluster that
// has a controller of Deployments, with these EventActivations, from whatever
// state it is in, and returns when its pods exist. It removes all Kyma
// Subscriptions.
func ResetEventBus(ctx context.Context, cfg *rest.Config, activations ...*unstructured.Unstructured) error {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	// The finalizers are as they are.
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	namespaces := []string{SystemNamespace, IntegrationNamespace}
	for _, ea := range activations {
		namespaces = append(namespaces, ea.GetNamespace())
	}
	if err := ensureNamespaces(ctx, client, namespaces); err != nil {
		return err
	}
	if err := (collection{gvr: KymaSubscriptions}).clear(ctx, client); err != nil {
		return err
	}
	for _, ea := range activations {
		if err := ensure(ctx, client.Resource(EventActivations).Namespace(ea.GetNamespace()), ea, map[string]any{
			"metadata": map[string]any{"finalizers": ea.GetFinalizers()},
		}); err != nil {
			return err
		}
	}
	for _, d := range EventBus() {
		if err := ensure(ctx, client.Resource(Deployments).Namespace(SystemNamespace), d, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"eventmesh-migration.kyma-project.io/replicas": nil}},
			"spec":     map[string]any{"replicas": d.Object["spec"].(map[string]any)["replicas"]},
		}); err != nil {
			return err
		}
	}
	for _, d := range EventBus() {
		if err := awaitPods(ctx, client, d); err != nil {
			return err
		}
	}
	return nil
}

// ensure creates an object, or patches the one that exists.
func ensure(ctx context.Context, client dynamic.ResourceInterface, obj *unstructured.Unstructured, patch map[string]any) error {
	_, err := client.Create(ctx, obj, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, obj.GetName(), types.MergePatchType, raw, metav1.PatchOptions{})
	return err
}

// awaitPods removes finalizers from the pods of a Deployment, and waits until it has
// as many as it wants, none of them terminating.
func awaitPods(ctx context.Context, client dynamic.Interface, d *unstructured.Unstructured) error {
	want, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
	match, _, _ := unstructured.NestedStringMap(d.Object, "spec", "selector", "matchLabels")
	opts := metav1.ListOptions{LabelSelector: fields.SelectorFromSet(match).String()}
	pods := client.Resource(Pods).Namespace(d.GetNamespace())
	for {
		list, err := pods.List(ctx, opts)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if len(list.Items[i].GetFinalizers()) == 0 {
				continue
			}
			_, err := pods.Patch(ctx, list.Items[i].GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if kubernetes.IgnoreNotFound(err) != nil {
				return err
			}
		}
		good := int64(0)
		for i := range list.Items {
			if list.Items[i].GetDeletionTimestamp() == nil {
				good++
			}
		}
		seen, err := client.Resource(Deployments).Namespace(d.GetNamespace()).Get(ctx, d.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		replicas, _, _ := unstructured.NestedInt64(seen.Object, "status", "replicas")
		observed, _, _ := unstructured.NestedInt64(seen.Object, "status", "observedGeneration")
		if good == want && len(list.Items) == int(want) && replicas == want && observed == seen.GetGeneration() {
			return nil
		}
		// Any change to the Deployment or its pods is worth another look.
		w, err := client.Resource(Deployments).Namespace(d.GetNamespace()).Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + d.GetName(), ResourceVersion: seen.GetResourceVersion(), TimeoutSeconds: new(int64(1)),
		})
		if err != nil {
			return err
		}
		select {
		case <-w.ResultChan():
		case <-ctx.Done():
		}
		w.Stop()
		if ctx.Err() != nil {
			return fmt.Errorf("%s has %d pods of %d: %w", d.GetName(), good, want, ctx.Err())
		}
	}
}
