package eventingmanager_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// loosely does something while the definition of a kind accepts everything, as an older one may
// have. The objects stay as they are stored.
func (s *site) loosely(kind schema.GroupVersionResource, do func()) {
	s.t.Helper()
	of := s.client.Resource(crds)
	strict, err := of.Get(s.t.Context(), kind.GroupResource().String(), metav1.GetOptions{})
	s.check(err)
	write := func(schemaOf func(version map[string]any) any) {
		s.t.Helper()
		now, err := of.Get(context.WithoutCancel(s.t.Context()), strict.GetName(), metav1.GetOptions{})
		s.check(err)
		versions, _, err := unstructured.NestedSlice(now.Object, "spec", "versions")
		s.check(err)
		for i := range versions {
			version, _ := versions[i].(map[string]any)
			version["schema"] = map[string]any{"openAPIV3Schema": schemaOf(version)}
		}
		s.check(unstructured.SetNestedSlice(now.Object, versions, "spec", "versions"))
		_, err = of.Update(context.WithoutCancel(s.t.Context()), now, metav1.UpdateOptions{})
		s.check(err)
	}
	write(func(map[string]any) any {
		return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	})
	do()
	write(func(version map[string]any) any {
		versions, _, _ := unstructured.NestedSlice(strict.Object, "spec", "versions")
		for _, v := range versions {
			if v, _ := v.(map[string]any); v["name"] == version["name"] {
				is, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema")
				return is
			}
		}
		return nil
	})
}

// store creates an object under the loose definition, as soon as the API server uses it.
func (s *site) store(kind schema.GroupVersionResource, text string) {
	s.t.Helper()
	u := object(s.t, text)
	poll.Until(s.t, 30*time.Second, "the definition is used", func(ctx context.Context) error {
		_, err := s.client.Resource(kind).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
}

// TestObjectsThatCannotBeRead: an Eventing and a Subscription that no version of ours can decode
// are stored before the operator starts. Both say so, and everything else works. On f3299ef neither
// the operator nor the controller could list its objects, and did nothing for any. No object of
// ours without an owner has a label that a tool for deployments claims, so that a prune finds
// nothing: on f3299ef it deleted NATS with its volume.
func TestObjectsThatCannotBeRead(t *testing.T) {
	s := newSite(t, "unreadable")
	to := s.withSinks()
	s.create(eventings, one)
	s.loosely(eventings, func() {
		s.store(eventings, `{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: days, namespace: default}, spec: {backend: {type: NATS, config: {deadLetterAfter: 1d}}}}`)
	})
	s.loosely(subscriptions, func() {
		s.store(subscriptions, fmt.Sprintf(`{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: text, namespace: %[1]s}, spec: {sink: 'http://a.%[1]s.svc.cluster.local', id: 5, source: commerce, types: [a.b]}}`, s.namespace))
		s.store(subscriptions, fmt.Sprintf(`{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: list, namespace: %[1]s}, spec: {sink: 'http://a.%[1]s.svc.cluster.local', source: commerce, types: a.b}}`, s.namespace))
	})
	s.start()
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	s.await(90*time.Second, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionSpecApplied, operatorv1alpha1.ReasonApplied)
	s.awaitSubscription("orders")
	to.Await(t, "orders", time.Minute, s.post("n", 3)...)

	poll.Until(t, 10*time.Second, "the Eventing says that it cannot be read", func(context.Context) error {
		u, err := s.client.Resource(eventings).Namespace("default").Get(t.Context(), "days", metav1.GetOptions{})
		if err == nil && (!strings.Contains(fmt.Sprint(u.Object["status"]), operatorv1alpha1.ReasonSpecInvalid) || !strings.Contains(fmt.Sprint(u.Object["status"]), "1d")) {
			err = fmt.Errorf("%v", u.Object["status"])
		}
		return err
	})
	poll.Until(t, 10*time.Second, "the Subscription says that it cannot be read", func(context.Context) error {
		u, err := s.get(subscriptions, "text")
		if err == nil && !strings.Contains(fmt.Sprint(u.Object["status"]), "cannot be read") {
			err = fmt.Errorf("%v", u.Object["status"])
		}
		return err
	})
	// The API server takes no status of this one.
	poll.Until(t, 10*time.Second, "an Event names the field of the Subscription that takes no status", func(ctx context.Context) error {
		list, err := s.core.EventsV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=list"})
		if err == nil && !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Type == "Warning" && strings.Contains(e.Note, ".types") && strings.Contains(e.Note, "kubectl -n "+s.namespace+" edit subscriptions.eventing.kyma-project.io list")
		}) {
			err = fmt.Errorf("%+v", list.Items)
		}
		return err
	})
	for _, gvr := range []schema.GroupVersionResource{statefulSets, deployments, services, configMaps, secrets, budgets, claims} {
		list, err := s.client.Resource(gvr).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "eventing.kyma-project.io/plane"})
		s.check(err)
		for _, u := range list.Items {
			for key := range maps.Keys(u.GetLabels()) {
				if k8sobject.IsClaimed(key) && key != "app.kubernetes.io/managed-by" && len(u.GetOwnerReferences()) == 0 { // that one claims with the value Helm
					t.Errorf("%s %s has the label %s", u.GetKind(), u.GetName(), key)
				}
			}
		}
	}
}
