package standin

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// BusChannel returns the Channel that the subscription-controller made for a kind
// of event.
func BusChannel(version, source, eventType string) *unstructured.Unstructured {
	u := object(schema.GroupVersionKind{Group: "messaging.knative.dev", Version: version, Kind: "Channel"}, SystemNamespace,
		strings.ReplaceAll(eventType[:min(len(eventType), 10)], ".", "-")+"-abcde", map[string]any{
			"spec": map[string]any{"channelTemplate": map[string]any{"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "NatssChannel"}},
		})
	u.SetLabels(leftoverLabels(source, eventType))
	return u
}

// BusSubscription returns the Knative Subscription that the subscription-controller
// made of a Kyma Subscription, to that Channel.
func BusSubscription(channel *unstructured.Unstructured, namespace, name string) *unstructured.Unstructured {
	labels := channel.GetLabels()
	u := object(channel.GroupVersionKind().GroupVersion().WithKind("Subscription"), SystemNamespace,
		name+"--"+strings.NewReplacer("-", "-d", ".", "-p").Replace(namespace), map[string]any{
			"spec": map[string]any{
				"channel":    map[string]any{"apiVersion": channel.GetAPIVersion(), "kind": "Channel", "name": channel.GetName()},
				"subscriber": map[string]any{"uri": "http://" + name + "." + namespace + ":8080/"},
			},
		})
	labels["kyma-ns"] = namespace
	u.SetLabels(labels)
	u.SetFinalizers([]string{SubscriptionFinalizer})
	return u
}

func leftoverLabels(source, eventType string) map[string]string {
	return map[string]string{"kyma-source-id": source, "kyma-event-type": eventType, "kyma-event-type-version": "v1"}
}

// ResetLeftovers puts in place what the Event Bus leaves behind when its release
// is removed, whatever of it is there already: these objects, and the definition
// of Kyma Subscriptions, which definition describes.
func ResetLeftovers(ctx context.Context, cfg *rest.Config, definition *unstructured.Unstructured, objects ...*unstructured.Unstructured) error {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS = UserAgent, -1
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	// Created again at the version at which it was read.
	definitions := definition.GroupVersionKind().GroupVersion().WithResource("customresourcedefinitions")
	if err := ensureDefinition(ctx, client.Resource(definitions), definition); err != nil {
		return err
	}
	for _, obj := range objects {
		if err := ensureNamespaces(ctx, client, []string{obj.GetNamespace()}); err != nil {
			return err
		}
		gvr := obj.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(obj.GetKind()) + "s")
		err := ensure(ctx, client.Resource(gvr).Namespace(obj.GetNamespace()), obj, map[string]any{
			"metadata": map[string]any{"finalizers": obj.GetFinalizers()},
		})
		if err != nil {
			return fmt.Errorf("cannot put %s %s in place: %w", obj.GetKind(), keyOf(obj), err)
		}
	}
	return nil
}

// ensureDefinition returns when the kind is served.
func ensureDefinition(ctx context.Context, client dynamic.ResourceInterface, definition *unstructured.Unstructured) error {
	w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + definition.GetName()})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		live, err := client.Get(ctx, definition.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			fresh := definition.DeepCopy()
			fresh.SetResourceVersion("")
			fresh.SetUID("")
			unstructured.RemoveNestedField(fresh.Object, "status")
			if _, err := client.Create(ctx, fresh, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		case err != nil:
			return err
		case live.GetDeletionTimestamp() == nil && isTrue(live, "Established"):
			return nil
		}
		select {
		case <-w.ResultChan():
		case <-ctx.Done():
			return fmt.Errorf("%s is not served: %w", definition.GetName(), ctx.Err())
		}
	}
}

func isTrue(u *unstructured.Unstructured, condition string) bool {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if m, _ := c.(map[string]any); m["type"] == condition {
			return m["status"] == "True"
		}
	}
	return false
}
