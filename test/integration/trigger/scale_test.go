//go:build soak

package trigger

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// TestFiveThousand: 5,000 Subscriptions in 50 namespaces, 40 % of which have
// their Trigger. What the job asks for besides the writes it has to make is under
// 5 % of them, with one watch for each kind.
func TestFiveThousand(t *testing.T) {
	p := on(t, kubernetes.KnativeV1)
	ctx := t.Context()
	p.load(ctx, t, false)
	p.scale(ctx, t, 0) // what the Event Bus makes of them is not looked at
	const all, in = 5000, 50
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	put := func(gvr schema.GroupVersionResource, u *unstructured.Unstructured) {
		group.Go(func() error {
			_, err := p.client.Resource(gvr).Namespace(u.GetNamespace()).Create(gctx, u, metav1.CreateOptions{})
			return err
		})
	}
	namespace := func(i int) string { return fmt.Sprintf("team-%02d", i%in) }
	for i := range in {
		put(standin.Namespaces, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace(i)}}})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i := range in {
			_ = p.client.Resource(standin.Namespaces).Delete(t.Context(), namespace(i), metav1.DeleteOptions{})
		}
	})
	group, gctx = errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range in {
		put(p.brokers(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": p.brokers().GroupVersion().String(), "kind": "Broker", "metadata": map[string]any{"name": "default", "namespace": namespace(i)}, "spec": map[string]any{},
		}})
	}
	for i := range all {
		sub := subscription(namespace(i), fmt.Sprintf("sub-%04d", i), "order.created")
		put(standin.KymaSubscriptions, sub)
		if i%5 < 2 {
			put(p.triggers(), p.trigger(sub))
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	p.wait(ctx, t, "every Trigger is ready", func(m *standin.Mesh) bool { return m.Has(p.triggers(), all*2/5) && standin.TriggersReady(m) })

	mark, err := p.Mark(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// A short lease would be renewed more often.
	r, code := p.run(t, "run", "--lease-duration=30s")
	want(t, r, code, migration.DeferredResult, 0)
	const creations = all * 3 / 5
	if got := len(writes(r)); got != creations {
		t.Errorf("%d changes, want %d", got, creations)
	}
	requests, err := p.Requests(ctx, mark, kubernetes.By("trigger-sync/"))
	if err != nil {
		t.Fatal(err)
	}
	beyond, watches := 0, map[string]int{}
	kinds := map[string]int{}
	for _, request := range requests {
		if request.Verb == "watch" {
			watches[request.Resource]++
		}
		if request.Verb != "create" || request.Resource != "eventing.knative.dev/triggers" {
			beyond++
			kinds[request.Verb+" "+request.Resource]++
		}
	}
	t.Logf("%.1f s, %d requests besides %d creations (%.1f %%): %v; watches %v; at most %.0f MiB resident",
		r.Seconds, beyond, creations, 100*float64(beyond)/creations, kinds, watches, p.last.PeakMiB)
	if beyond*20 >= creations {
		t.Errorf("%d requests besides %d creations: 5 %% or more", beyond, creations)
	}
	for resource, n := range watches {
		if n > 1 {
			t.Errorf("%d watches on %s", n, resource)
		}
	}
	if p.last.PeakMiB >= 96 {
		t.Errorf("%.0f MiB resident", p.last.PeakMiB)
	}

	again, code := p.run(t, "run")
	want(t, again, code, migration.DeferredResult, 0)
	if again.Requests.Writes != 0 {
		t.Errorf("a second run made %d writes", again.Requests.Writes)
	}
	t.Logf("again: %.1f s, %d reads, at most %.0f MiB resident", again.Seconds, again.Requests.Reads, p.last.PeakMiB)
	if p.last.PeakMiB >= 96 {
		t.Errorf("%.0f MiB resident", p.last.PeakMiB)
	}
}
