//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const kymaSubscriptionKind = "subscriptions.eventing.kyma-project.io"

// leftovers tells what there is of all that the purge may touch, and on which finalizers it hangs.
func (c *cluster) leftovers(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, gvr := range []schema.GroupVersionResource{channels, links, standin.EventActivations, standin.KymaSubscriptions, crds} {
		list, err := c.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // the kind went
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			if gvr == crds && u.GetName() != kymaSubscriptionKind {
				continue
			}
			all = append(all, fmt.Sprintf("%s %s/%s %s %q", gvr.GroupResource(), u.GetNamespace(), u.GetName(), u.GetUID(), u.GetFinalizers()))
		}
	}
	slices.Sort(all)
	return all
}

// purge removes what the Event Bus has left beside the real Knative Eventing, at v1: its
// controllers let go what is deleted, and serve again what an undo brings back.
func purge(t *testing.T) {
	c := knative(t)
	ctx := t.Context()
	const leaving, staying = "leaving", "staying"
	c.namespaces(t, standin.SystemNamespace, leaving, staying)
	definition, err := c.dynamic.Resource(crds).Get(ctx, kymaSubscriptionKind, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Of the default kind of Channel: that of NATS Streaming is gone from Knative.
	channel := standin.BusChannel("v1", "commerce", "order.created")
	delete(channel.Object, "spec")
	link := standin.BusSubscription(channel, staying, "on-order")
	objects := []*unstructured.Unstructured{
		channel, link, standin.EventActivation(leaving, "orders", "commerce"), standin.EventActivation(staying, "orders", "commerce"),
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		for _, u := range objects {
			client := c.dynamic.Resource(u.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(u.GetKind()) + "s")).Namespace(u.GetNamespace())
			_, _ = client.Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			_ = client.Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		}
		// Other tests need the kind.
		if err := standin.ResetLeftovers(ctx, c.Config(), definition); err != nil {
			t.Error(err)
		}
	})
	if err := standin.ResetLeftovers(ctx, c.Config(), definition, objects...); err != nil {
		t.Fatal(err)
	}
	last := subscription(leaving, "last", "commerce", "order.created", "v1", "http://fn.leaving:8080/")
	subscriptions := c.dynamic.Resource(standin.KymaSubscriptions).Namespace(leaving)
	if _, err := subscriptions.Create(ctx, last, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	served := func() {
		t.Helper()
		c.awaitReady(t, channels, standin.SystemNamespace, 1)
		c.awaitReady(t, links, standin.SystemNamespace, 1)
	}
	served()

	// One Kyma Subscription is left: nothing is changed.
	before := c.leftovers(t)
	for _, args := range [][]string{{"run", "--yes"}, {"plan", "--fail-if-in-use"}} {
		r, code := c.run(t, "./cmd/eventbus-purge", args...)
		want(t, r, code, migration.Refused, 4)
		if said := problems(r); !strings.Contains(said, "Subscription leaving/last: it is a Kyma Subscription, which only the Event Bus serves") {
			t.Errorf("%q does not say what is in use:\n%s", args, said)
		}
		if diff := cmp.Diff(before, c.leftovers(t)); diff != "" {
			t.Errorf("%q changed (-before +after):\n%s", args, diff)
		}
	}
	// It goes with its namespace, which hangs: nobody takes the finalizers off.
	namespaces := c.client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, leaving, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitNamespace(t, leaving, func(ns *corev1.Namespace) bool {
		return ns != nil && slices.ContainsFunc(ns.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
			return condition.Type == corev1.NamespaceFinalizersRemaining && condition.Status == corev1.ConditionTrue &&
				strings.Contains(condition.Message, "eventactivation.finalizers.kyma-project.io") &&
				strings.Contains(condition.Message, "subscription.finalizers.kyma-project.io")
		})
	})

	r, code := c.run(t, "./cmd/eventbus-purge", "run", "--yes")
	want(t, r, code, migration.Succeeded, 0)
	c.awaitNamespace(t, leaving, func(ns *corev1.Namespace) bool { return ns == nil })
	activation, err := c.dynamic.Resource(standin.EventActivations).Namespace(staying).Get(ctx, "orders", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const none = "[]"
	if diff := cmp.Diff([]string{fmt.Sprintf("%s %s/orders %s %s", standin.EventActivations.GroupResource(), staying, activation.GetUID(), none)}, c.leftovers(t)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	r, code = c.run(t, "./cmd/eventbus-purge", "run", "--yes")
	want(t, r, code, migration.NothingToDo, 0)
	if r.Requests.Writes != 0 {
		t.Errorf("a second run made %d writes", r.Requests.Writes)
	}

	// Objects that were stuck are gone for good; all others are restored and work.
	r, code = c.run(t, "./cmd/eventbus-purge", "undo")
	want(t, r, code, migration.PartlyRestored, 3)
	for _, part := range []string{"EventActivation leaving/orders: not restored: ", "Subscription leaving/last: not restored: "} {
		if said := problems(r); !strings.Contains(said, part) {
			t.Errorf("not said: %s\n%s", part, said)
		}
	}
	served()
	if got := c.names(t, standin.KymaSubscriptions); len(got) != 0 {
		t.Errorf("Subscriptions after the undo: %q, want none", got)
	}
}

// awaitNamespace waits until a namespace is as wanted; nil stands for none.
func (c *cluster) awaitNamespace(t *testing.T, name string, holds func(*corev1.Namespace) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lw := cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "namespaces", "", fields.OneTermEqualSelector("metadata.name", name))
	gone := func(store cache.Store) (bool, error) { return len(store.List()) == 0 && holds(nil), nil }
	var last corev1.NamespaceStatus
	if _, err := watchtools.UntilWithSync(ctx, lw, &corev1.Namespace{}, gone, func(e watch.Event) (bool, error) {
		ns, ok := e.Object.(*corev1.Namespace)
		if !ok {
			return false, nil
		}
		if e.Type == watch.Deleted {
			return holds(nil), nil
		}
		last = ns.Status
		return holds(ns), nil
	}); err != nil {
		t.Fatalf("cannot wait for Namespace %s: %v; its status is %+v", name, err, last)
	}
}
