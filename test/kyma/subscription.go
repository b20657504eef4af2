package kyma

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Link returns the Knative Subscription by which a namespace gets the events of
// an Application, as application-broker makes it; version is that of the group
// messaging.knative.dev.
func Link(version, app, namespace, name string) *unstructured.Unstructured {
	link := object(schema.GroupVersionKind{Group: "messaging.knative.dev", Version: version, Kind: "Subscription"}, IntegrationNamespace, name, map[string]any{
		"spec": map[string]any{
			"channel":    map[string]any{"apiVersion": "messaging.knative.dev/" + version, "kind": "Channel", "name": app},
			"subscriber": map[string]any{"uri": "http://default-broker." + namespace},
		},
	})
	link.SetLabels(map[string]string{"application-name": app, "broker-namespace": namespace})
	return link
}

// busName is the name of the Knative Subscription of a Kyma Subscription.
func busName(sub *unstructured.Unstructured) string {
	return sub.GetName() + "--" + strings.NewReplacer("-", "-d", ".", "-p").Replace(sub.GetNamespace())
}

// busChannel is the name of the Channel of a Kyma Subscription. The real one is
// generated, after the first letters of the event type.
func busChannel(sub *unstructured.Unstructured) string {
	labels := busLabels(sub)
	eventType := strings.NewReplacer(".", "").Replace(strings.ToLower(labels["kyma-event-type"]))
	return strings.ToLower(eventType[:min(len(eventType), 10)] + "-" + labels["kyma-source-id"] + "-" + labels["kyma-event-type-version"])
}

func busLabels(sub *unstructured.Unstructured) map[string]string {
	text := func(key string) string { s, _, _ := unstructured.NestedString(sub.Object, "spec", key); return s }
	return map[string]string{
		"kyma-source-id": text("source_id"), "kyma-event-type": text("event_type"), "kyma-event-type-version": text("event_type_version"),
	}
}

// controllerRuns says whether the Deployment of the subscription-controller has
// replicas.
func (m *Mesh) controllerRuns() bool {
	d := m.deployments.get(SystemNamespace + "/" + SubscriptionController)
	if d == nil {
		return false
	}
	n, ok, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
	return !ok || n > 0
}

// subscription is the subscription-controller's part. Whether an EventActivation
// exists is not looked at.
func (m *Mesh) subscription(ctx context.Context, key string) error {
	sub := m.subscriptions.get(key)
	if sub == nil || !m.acts() || m.crash() {
		return nil
	}
	if sub.GetDeletionTimestamp() != nil {
		return m.finalize(ctx, key, sub)
	}
	if !slices.Contains(sub.GetFinalizers(), SubscriptionFinalizer) {
		sub = sub.DeepCopy()
		sub.SetFinalizers(append(sub.GetFinalizers(), SubscriptionFinalizer))
		if err := m.subscriptions.update(ctx, sub); err != nil {
			return err
		}
	}
	labels := busLabels(sub)
	channel, name := busChannel(sub), busName(sub)
	if m.channels.get(SystemNamespace+"/"+channel) == nil {
		u := object(m.channels.gvk, SystemNamespace, channel, map[string]any{"spec": channelSpec(m.realKnative)})
		u.SetLabels(labels)
		if err := m.channels.create(ctx, u); err != nil {
			return err
		}
	}
	if link := m.links.get(SystemNamespace + "/" + name); link == nil {
		endpoint, _, _ := unstructured.NestedString(sub.Object, "spec", "endpoint")
		u := object(m.links.gvk, SystemNamespace, name, map[string]any{"spec": map[string]any{
			"channel":    map[string]any{"apiVersion": m.channels.gvk.GroupVersion().String(), "kind": "Channel", "name": channel},
			"subscriber": map[string]any{"uri": endpoint},
		}})
		labels["kyma-ns"] = sub.GetNamespace()
		u.SetLabels(labels)
		u.SetFinalizers([]string{SubscriptionFinalizer})
		if endpoint != "" {
			if err := m.links.create(ctx, u); err != nil {
				return err
			}
		}
	}
	return m.subscriptions.setStatus(ctx, sub, map[string]any{"conditions": []any{
		map[string]any{"type": "is-ready", "status": "True"},
		map[string]any{"type": "events-activated", "status": "True"},
		map[string]any{"type": "kn-subscription-ready", "status": "True"},
	}})
}

// finalize does what the controller does before it lets a Kyma Subscription go.
func (m *Mesh) finalize(ctx context.Context, key string, sub *unstructured.Unstructured) error {
	if !slices.Contains(sub.GetFinalizers(), SubscriptionFinalizer) || m.has(NeverFinalized, key) {
		return nil
	}
	if wait := m.controller.mayDelete(); wait > 0 {
		m.queue.AddAfter(meshKey{"KymaSubscription", key}, wait)
		return nil
	}
	if link := m.links.get(SystemNamespace + "/" + busName(sub)); link != nil {
		if link.GetDeletionTimestamp() == nil {
			if err := remove(ctx, m.links, link); err != nil {
				return err
			}
		}
		if err := unfinalize(ctx, m.links, link); err != nil {
			return err
		}
	}
	channel := busChannel(sub)
	last := true
	for _, other := range m.links.informer.GetStore().List() {
		u := other.(*unstructured.Unstructured)
		name, _, _ := unstructured.NestedString(u.Object, "spec", "channel", "name")
		last = last && (u.GetNamespace() != SystemNamespace || name != channel || u.GetName() == busName(sub) || u.GetDeletionTimestamp() != nil)
	}
	if ch := m.channels.get(SystemNamespace + "/" + channel); ch != nil && last && !m.controller.leaks() {
		if err := remove(ctx, m.channels, ch); err != nil {
			return err
		}
	}
	return unfinalize(ctx, m.subscriptions, sub)
}

func remove(ctx context.Context, s *store, u *unstructured.Unstructured) error {
	err := s.resource.Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete %s %s: %w", s.gvk.Kind, keyOf(u), err)
	}
	return nil
}

// unfinalize takes off the finalizer of the Event Bus.
func unfinalize(ctx context.Context, s *store, u *unstructured.Unstructured) error {
	live, err := s.resource.Namespace(u.GetNamespace()).Get(ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	live.SetFinalizers(slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == SubscriptionFinalizer }))
	_, err = s.resource.Namespace(u.GetNamespace()).Update(ctx, live, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// ControllerRuns says whether the subscription-controller does.
func (m *Mesh) ControllerRuns() bool { return m.acts() }

// Has is for Wait: there are n Kyma Subscriptions, or objects of another kind
// that these controllers know.
func (m *Mesh) Has(gvr schema.GroupVersionResource, n int) bool {
	s := map[string]*store{KymaSubscriptions.String(): m.subscriptions}[gvr.String()]
	switch {
	case s != nil:
	case gvr.Resource == "triggers":
		s = m.triggers
	case gvr.Resource == "brokers":
		s = m.brokers
	default:
		s = m.links
	}
	return len(s.informer.GetStore().ListKeys()) == n
}

// Empty is for Wait: there is nothing to control.
func (m *Mesh) Empty() bool {
	for _, s := range []*store{m.brokers, m.triggers, m.links, m.subscriptions} {
		if len(s.informer.GetStore().ListKeys()) > 0 {
			return false
		}
	}
	for _, key := range m.channels.informer.GetStore().ListKeys() {
		if namespace, _ := splitKey(key); namespace == SystemNamespace {
			return false
		}
	}
	return true
}
