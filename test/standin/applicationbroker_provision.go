package standin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// provision accepts an instance, or refuses it permanently. The operation is stored before it is
// known whether the instance can be: where it cannot, it stays in progress for ever
// (docs/migration/domain.md §4.3).
func (b *ApplicationBroker) provision(_ context.Context, m *memory, r request) (int, any, error) {
	if len(r.parameters) > 0 && !b.opts.APIPackages {
		return 0, nil, badRequest("application-broker does not support configuration options for provisioning")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.provisioned(r.instance) {
		return http.StatusOK, struct{}{}, nil
	}
	if op := m.pending(r.instance, true); op != nil {
		return http.StatusAccepted, map[string]any{"operation": op.id}, nil
	}
	op, err := m.begin(r.instance, true)
	if err != nil {
		return 0, nil, fmt.Errorf("while inserting instance operation to storage: %w", err)
	}
	s, err := b.find(r.class, r.plan)
	if err == nil && b.has(UnknownService, r.namespace, s.id) {
		err = errNotFound
	}
	if err != nil {
		// Service Catalog asks again; the operation stays in progress.
		return 0, nil, fmt.Errorf("while getting application: %w", err)
	}
	if m.instances[r.instance] != nil {
		return 0, nil, badRequest("while inserting instance to storage: %v", errExists)
	}
	m.instances[r.instance] = &storedInstance{id: r.instance, namespace: r.namespace, service: r.class, plan: r.plan, state: inProgress}
	b.running.Go(func() {
		err := b.takeTime(m, HangProvision, r.namespace, s.id)
		if err == nil {
			err = b.makeMesh(m, r, s)
		}
		if err == nil && b.has(FailProvision, r.namespace, s.id) {
			err = errors.New("provisioning failed: injected")
		}
		m.finish(r.instance, op, err, "provisioning succeeded")
	})
	return http.StatusAccepted, map[string]any{"operation": op.id}, nil
}

// takeTime takes as long as operations are to take.
func (b *ApplicationBroker) takeTime(m *memory, hang BrokerFault, namespace, service string) error {
	b.state.Lock()
	delay := b.delay
	b.state.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-m.ctx.Done():
			return m.ctx.Err()
		case <-timer.C:
		}
	}
	return b.await(m.ctx, func() bool { return !b.has(hang, namespace, service) })
}

// makeMesh makes what a service with events needs. Nothing is tried twice.
func (b *ApplicationBroker) makeMesh(m *memory, r request, s service) error {
	ctx, cancel := context.WithTimeout(m.ctx, b.opts.MappingTimeout)
	defer cancel()
	if b.await(ctx, func() bool { return b.mappings.get(r.namespace+"/"+s.app) != nil }) != nil {
		return fmt.Errorf("forbidden provisioning instance [%s] for application [name: %s, id: %s] in namespace: [%s]. "+
			"Reason: [ApplicationMapping does not exist in the [%s] namespace]", r.instance, s.app, s.id, r.namespace, r.namespace)
	}
	ctx = m.ctx
	if !b.opts.APIPackages && m.another(r.instance, r.namespace, func(other *storedInstance) bool {
		return other.service == r.class && other.state != failed
	}) {
		return fmt.Errorf("forbidden provisioning instance [%s] for application [name: %s, id: %s] in namespace: [%s]. "+
			"Reason: [already activated]", r.instance, s.app, s.id, r.namespace)
	}
	if !s.events {
		return nil
	}
	if err := b.activate(ctx, r, s); err != nil {
		return fmt.Errorf("provisioning failed while creating EventActivation on error: %w", err)
	}
	if b.has(SkipLink, r.namespace, s.id) {
		return nil
	}
	if err := b.link(ctx, r.namespace, s.app); err != nil {
		return fmt.Errorf("provisioning failed while persisting Knative Subscription for application: %s namespace: %s on error: %w", s.app, r.namespace, err)
	}
	if err := b.inject(ctx, r.namespace); err != nil {
		return fmt.Errorf("provisioning failed while enabling default Knative Broker for namespace: %s on error: %w", r.namespace, err)
	}
	if b.opts.Version == Broker111 {
		if err := b.permit(ctx, r.namespace); err != nil {
			return fmt.Errorf("provisioning failed while creating an istio policy for application: %s namespace: %s on error: %w", s.app, r.namespace, err)
		}
	}
	return nil
}

// permit makes the Policy of a namespace, or corrects the one that exists.
func (b *ApplicationBroker) permit(ctx context.Context, namespace string) error {
	resource, want := b.client.Resource(Policies).Namespace(namespace), policy(namespace)
	_, err := resource.Create(ctx, want, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := resource.Get(ctx, want.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	existing.SetLabels(want.GetLabels())
	existing.Object["spec"] = want.Object["spec"]
	_, err = resource.Update(ctx, existing, metav1.UpdateOptions{})
	return err
}

// activate makes the EventActivation. In 1.10 the instance owns it, also one that exists already;
// in 1.11 one that exists is updated to what it is.
func (b *ApplicationBroker) activate(ctx context.Context, r request, s service) error {
	resource := b.client.Resource(EventActivations).Namespace(r.namespace)
	ea := object(EventActivations.GroupVersion().WithKind("EventActivation"), r.namespace, s.id, map[string]any{
		"spec": map[string]any{"displayName": s.displayName, "sourceId": s.app},
	})
	if b.opts.Version == Broker110 {
		owner, err := b.instance(ctx, r)
		if err != nil {
			return err
		}
		ea.SetOwnerReferences([]metav1.OwnerReference{ownerReference(owner)})
	}
	_, err := resource.Create(ctx, ea, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := resource.Get(ctx, s.id, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if b.opts.Version == Broker110 {
		existing.SetOwnerReferences(ea.GetOwnerReferences())
	}
	_, err = resource.Update(ctx, existing, metav1.UpdateOptions{})
	return err
}

// instance that is provisioned. The real broker looks into its cache alone, which a slow machine
// may not have filled yet.
func (b *ApplicationBroker) instance(ctx context.Context, r request) (*unstructured.Unstructured, error) {
	list, err := b.client.Resource(ServiceInstances).Namespace(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	for i := range list.Items {
		if text(&list.Items[i], "spec", "externalID") == r.instance {
			found = append(found, &list.Items[i])
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d service instances found [namespace: %q ExtID: %q]", len(found), r.namespace, r.instance)
	}
	return found[0], nil
}

func (b *ApplicationBroker) knative(resource string) dynamic.ResourceInterface {
	return b.client.Resource(schema.GroupVersionResource{Group: "messaging.knative.dev", Version: b.messaging, Resource: resource}).Namespace(IntegrationNamespace)
}

// links are the Knative Subscriptions of an Application in a namespace.
func (b *ApplicationBroker) links(ctx context.Context, namespace, app string) ([]unstructured.Unstructured, error) {
	selector := labels.SelectorFromSet(labels.Set{"application-name": app, "broker-namespace": namespace}).String()
	list, err := b.knative("subscriptions").List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	if len(list.Items) > 1 {
		return nil, fmt.Errorf("expected 1 Subscription with labels %s, found %d", selector, len(list.Items))
	}
	return list.Items, nil
}

// link makes or corrects the Knative Subscription: first it looks, then it creates, and nobody
// keeps another from doing so in between.
func (b *ApplicationBroker) link(ctx context.Context, namespace, app string) error {
	channels, err := b.knative("channels").List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"application-name": app}).String()})
	if err != nil {
		return err
	}
	if len(channels.Items) != 1 {
		return fmt.Errorf("getting the Knative channel for the application [%s]: expected 1 Channel, found %d", app, len(channels.Items))
	}
	want := Link(b.messaging, app, namespace, "")
	want.Object["spec"].(map[string]any)["channel"].(map[string]any)["name"] = channels.Items[0].GetName()
	existing, err := b.links(ctx, namespace, app)
	if err != nil {
		return err
	}
	if len(existing) == 0 {
		unstructured.RemoveNestedField(want.Object, "metadata", "name")
		want.SetGenerateName("brokersub-")
		_, err = b.knative("subscriptions").Create(ctx, want, metav1.CreateOptions{})
		return err
	}
	update := &existing[0]
	update.Object["spec"] = want.Object["spec"]
	update.SetLabels(want.GetLabels())
	_, err = b.knative("subscriptions").Update(ctx, update, metav1.UpdateOptions{})
	return err
}

// inject labels the namespace, by an update of the whole object.
func (b *ApplicationBroker) inject(ctx context.Context, namespace string) error {
	ns, err := b.client.Resource(Namespaces).Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	all := ns.GetLabels()
	if all["knative-eventing-injection"] == "enabled" {
		return nil
	}
	if all == nil {
		all = map[string]string{}
	}
	all["knative-eventing-injection"] = "enabled"
	ns.SetLabels(all)
	_, err = b.client.Resource(Namespaces).Update(ctx, ns, metav1.UpdateOptions{})
	return err
}

// deprovision takes an instance out of the store at once (1.10) or at the end (1.11), and what it
// brought out of the cluster in between. What is not known is gone.
func (b *ApplicationBroker) deprovision(_ context.Context, m *memory, r request) (int, any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.operations[r.instance]) == 0 {
		return 0, nil, errGone
	}
	if m.deprovisioned(r.instance) {
		return http.StatusOK, struct{}{}, nil
	}
	if op := m.pending(r.instance, false); op != nil {
		return http.StatusAccepted, map[string]any{"operation": op.id}, nil
	}
	stored := m.instances[r.instance]
	if stored == nil {
		return 0, nil, badRequest("getting instance %s from storage: %v", r.instance, errNotFound)
	}
	s, err := b.find(r.class, r.plan)
	if err != nil {
		return 0, nil, badRequest("getting application from storage: %v", err)
	}
	op, err := m.begin(r.instance, false)
	if err != nil {
		return 0, nil, fmt.Errorf("inserting instance operation to storage: %w", err)
	}
	if b.opts.Version == Broker111 {
		stored.state = pendingDeletion
	} else {
		delete(m.instances, r.instance)
	}
	b.running.Go(func() {
		err := b.takeTime(m, HangDeprovision, r.namespace, s.id)
		if err == nil && b.has(FailDeprovision, r.namespace, s.id) {
			err = errors.New("failed to deprovision Subscription: injected")
		}
		if err == nil {
			err = b.unmakeMesh(m, stored, s)
		}
		if err != nil && b.opts.Version == Broker110 && b.has(FailDeprovision, r.namespace, s.id) {
			// It is to fail again and again, not to be unknown the next time.
			m.mu.Lock()
			m.instances[r.instance] = stored
			m.mu.Unlock()
		}
		m.finish(r.instance, op, err, "deprovisioning succeeded")
	})
	return http.StatusAccepted, map[string]any{"operation": op.id}, nil
}

// unmakeMesh deletes the Knative Subscription, and in 1.11 then the EventActivation. Label, Broker
// and Policy stay.
func (b *ApplicationBroker) unmakeMesh(m *memory, stored *storedInstance, s service) error {
	last := !m.another(stored.id, stored.namespace, func(other *storedInstance) bool {
		return other.service == stored.service && other.plan == stored.plan && other.state == succeeded
	})
	if b.opts.Version == Broker111 && !last {
		return nil
	}
	links, err := b.links(m.ctx, stored.namespace, s.app)
	if err != nil {
		return fmt.Errorf("failed to deprovision Subscription: %w", err)
	}
	for i := range links {
		err := b.knative("subscriptions").Delete(m.ctx, links[i].GetName(), metav1.DeleteOptions{})
		if kubernetes.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to deprovision Subscription: %w", err)
		}
	}
	if b.opts.Version == Broker111 {
		err := b.client.Resource(EventActivations).Namespace(stored.namespace).Delete(m.ctx, s.id, metav1.DeleteOptions{})
		if kubernetes.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to deprovision EventActivation: %w", err)
		}
	}
	return nil
}
