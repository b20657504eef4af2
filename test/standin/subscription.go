package standin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
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

// activatedBy says whether an EventActivation brings the events of a Kyma
// Subscription's source into its namespace.
func (m *Mesh) activatedBy(sub *unstructured.Unstructured) bool {
	if m.activated {
		return true
	}
	for _, obj := range m.activations.informer.GetStore().List() {
		ea := obj.(*unstructured.Unstructured)
		if ea.GetNamespace() == sub.GetNamespace() && ea.GetDeletionTimestamp() == nil && text(ea, "spec", "sourceId") == text(sub, "spec", "source_id") {
			return true
		}
	}
	return false
}

// firstOfEqual says whether a Kyma Subscription is the one by which the controller
// knows a Knative Subscription: it looks for its labels, which equal ones share, and
// takes the first of the namespace.
func (m *Mesh) firstOfEqual(sub *unstructured.Unstructured) bool {
	for _, obj := range m.subscriptions.informer.GetStore().List() {
		other := obj.(*unstructured.Unstructured)
		if other.GetNamespace() != sub.GetNamespace() || other.GetName() >= sub.GetName() {
			continue
		}
		if !slices.ContainsFunc([]string{"event_type", "event_type_version", "source_id"}, func(field string) bool {
			return text(other, "spec", field) != text(sub, "spec", field)
		}) {
			return false
		}
	}
	return true
}

// subscription is the subscription-controller's part.
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
		// The update has given it another version.
		sub = m.subscriptions.get(key)
		if sub == nil {
			return nil
		}
	}
	if !m.activatedBy(sub) {
		if err := m.disconnect(ctx, sub); err != nil {
			return err
		}
		return m.subscriptions.setStatus(ctx, sub, busStatus(false, false))
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
		endpoint := text(sub, "spec", "endpoint")
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
	return m.subscriptions.setStatus(ctx, sub, busStatus(true, m.firstOfEqual(sub)))
}

// busStatus is that of a Kyma Subscription.
func busStatus(activated, delivers bool) map[string]any {
	status := func(is bool) string {
		if is {
			return "True"
		}
		return "False"
	}
	return map[string]any{"conditions": []any{
		map[string]any{"type": "is-ready", "status": status(activated && delivers)},
		map[string]any{"type": "events-activated", "status": status(activated)},
		map[string]any{"type": "kn-subscription-ready", "status": status(delivers)},
	}}
}

// disconnect deletes the Knative Subscription of a Kyma Subscription, and the Channel
// if that has no other subscriber.
func (m *Mesh) disconnect(ctx context.Context, sub *unstructured.Unstructured) error {
	link := m.links.get(SystemNamespace + "/" + busName(sub))
	if link != nil && link.GetDeletionTimestamp() != nil {
		return unfinalize(ctx, m.links, link)
	}
	// The real one deletes the Knative Subscription first. Knative, which then removes
	// the subscriber from the Channel, is never as quick as this.
	channel := m.channels.get(SystemNamespace + "/" + busChannel(sub))
	last := channel != nil && m.lastSubscriber(channel, link)
	if link != nil {
		if err := remove(ctx, m.links, link); err != nil {
			return err
		}
		if err := unfinalize(ctx, m.links, link); err != nil {
			return err
		}
	}
	if last {
		return remove(ctx, m.channels, channel)
	}
	return nil
}

// lastSubscriber says whether the controller takes a Knative Subscription (nil if there
// is none) for the last one of a Channel: it goes by what the Channel lists.
func (m *Mesh) lastSubscriber(channel, link *unstructured.Unstructured) bool {
	if !m.old || m.realKnative {
		for _, obj := range m.links.informer.GetStore().List() {
			u := obj.(*unstructured.Unstructured)
			if u.GetNamespace() == SystemNamespace && text(u, "spec", "channel", "name") == channel.GetName() && u.GetDeletionTimestamp() == nil &&
				(link == nil || u.GetName() != link.GetName()) {
				return false
			}
		}
		return true
	}
	if _, listed, _ := unstructured.NestedMap(channel.Object, "spec", "subscribable"); !listed {
		return true
	}
	listed, _, _ := unstructured.NestedSlice(channel.Object, "spec", "subscribable", "subscribers")
	return len(listed) == 1 && link != nil && listed[0].(map[string]any)["subscriberURI"] == text(link, "spec", "subscriber", "uri")
}

// finalize does what the controller does before it lets a Kyma Subscription go: first
// it disconnects it and says so in its status, which makes its next write conflict, so
// that it removes its finalizer in a second turn. That waits until Knative has removed
// the subscriber from the Channel; the real one may be quicker, and then leaves the
// Channel, too.
func (m *Mesh) finalize(ctx context.Context, key string, sub *unstructured.Unstructured) error {
	if !slices.Contains(sub.GetFinalizers(), SubscriptionFinalizer) || m.has(NeverFinalized, key) {
		return nil
	}
	later := func(d time.Duration) { m.queue.AddAfter(meshKey{"KymaSubscription", key}, d) }
	released := sub.DeepCopy()
	released.SetFinalizers(slices.DeleteFunc(released.GetFinalizers(), func(f string) bool { return f == SubscriptionFinalizer }))
	if deactivated := busStatus(false, false); !equality.Semantic.DeepEqual(sub.Object["status"], any(deactivated)) {
		if wait := m.controller.mayDelete(); wait > 0 {
			later(wait)
			return nil
		}
		if err := m.disconnect(ctx, sub); err != nil {
			return err
		}
		if err := m.subscriptions.setStatus(ctx, sub, deactivated); err != nil {
			return err
		}
		return m.subscriptions.update(ctx, released)
	}
	if m.links.get(SystemNamespace+"/"+busName(sub)) != nil {
		later(subscriptionLag)
		return m.disconnect(ctx, sub)
	}
	if channel := m.channels.get(SystemNamespace + "/" + busChannel(sub)); channel != nil && m.old && !m.realKnative {
		if listed, now := m.subscribersOf(channel); !equality.Semantic.DeepEqual(listed, now) {
			later(subscriptionLag)
			return nil
		}
	}
	return kubernetes.IgnoreNotFound(errors.Unwrap(m.subscriptions.update(ctx, released)))
}

func remove(ctx context.Context, s *store, u *unstructured.Unstructured) error {
	err := s.resource.Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete %s %s: %w", s.gvk.Kind, keyOf(u), err)
	}
	return nil
}

// unfinalize removes the finalizer of the Event Bus.
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
	return kubernetes.IgnoreNotFound(err)
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
