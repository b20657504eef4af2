package trigger

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestProofOfTheMesh: a Subscription stays as long as it is not proven that the mesh
// brings its events to its namespace (fails on the commit before: the Subscriptions
// were deleted although the link fed another namespace's Broker, --eventMeshURL was
// empty, or a former pod had lost its label).
func TestProofOfTheMesh(t *testing.T) {
	onEach(t, func(t *testing.T, p *plane) {
		ctx := t.Context()
		p.load(ctx, t, true,
			subscription("shop", "orders", "order.created"), subscription("crm", "orders", "order.created"),
			subscription("crm", "paid", "order.paid", from(otherApp)))
		link := "brokersub-" + app + "-shop"
		p.patch(ctx, t, p.links(), standin.IntegrationNamespace, link, `{"spec":{"subscriber":{"uri":"http://default-broker.crm"}}}`)
		// A list is replaced as a whole.
		empty := standin.EventService(otherApp, true)
		containers, _, _ := unstructured.NestedSlice(empty.Object, "spec", "template", "spec", "containers")
		args := containers[0].(map[string]any)["args"].([]any)
		args[len(args)-1] = "--eventMeshURL="
		deployments := p.client.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace)
		live, err := deployments.Get(ctx, empty.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(live.Object, containers, "spec", "template", "spec", "containers"); err != nil {
			t.Fatal(err)
		}
		if _, err := deployments.Update(ctx, live, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		p.patch(ctx, t, standin.Deployments, standin.IntegrationNamespace, empty.GetName(), `{"status":{"observedGeneration":2}}`, "status")

		left := func(want ...string) {
			t.Helper()
			if got := p.names(ctx, t, standin.KymaSubscriptions, ""); !slices.Equal(got, want) {
				t.Errorf("Subscriptions that are left: %q, want %q", got, want)
			}
		}
		r, code := p.run(t, "run")
		want(t, r, code, migration.DeferredResult, 0)
		left("crm/paid", "shop/orders")
		finds(t, r, migration.Deferred, "Subscription shop/orders", `Subscription kyma-integration/`+link+` brings the events of `+app+` to "default-broker.crm", not to the Broker of namespace shop`)
		finds(t, r, migration.Deferred, "Subscription crm/paid", "carries an empty --eventMeshURL")

		// Both are corrected; a pod of before is left, which no label tells any more.
		p.patch(ctx, t, p.links(), standin.IntegrationNamespace, link, `{"spec":{"subscriber":{"uri":"http://default-broker.shop"}}}`)
		p.eventService(ctx, t, otherApp, true)
		pod := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": standin.IntegrationNamespace, "name": "former"},
			"spec": map[string]any{"containers": []any{map[string]any{"name": otherApp + "-event-service", "image": "old", "args": []any{"/eventservice"}}}},
		}}
		p.create(ctx, t, standin.Pods, pod)
		gone := func() {
			none := int64(0)
			if err := p.client.Resource(standin.Pods).Namespace(pod.GetNamespace()).Delete(ctx, pod.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
				t.Error(err)
			}
		}
		r, code = p.run(t, "run")
		if code != 0 {
			gone()
		}
		want(t, r, code, migration.DeferredResult, 0)
		left("crm/paid")
		finds(t, r, migration.Deferred, "Subscription crm/paid", "Pod kyma-integration/former does not carry --eventMeshURL")
		gone()

		r, code = p.run(t, "run")
		want(t, r, code, migration.Succeeded, 0)
		left()
	})
}
