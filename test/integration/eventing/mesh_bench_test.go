//go:build e2e && bench

package eventing_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestBenchMeshSubscriptions: how long 1,000 Subscriptions in 100 namespaces take from NATS to the mesh, and what is written for that. The time
// until Knative says of the last Trigger that it is ready is that of Knative; what comes after is ours. The steps are those of the operator.
func TestBenchMeshSubscriptions(t *testing.T) {
	count := benchSize(t, "EVENTING_BENCH_SUBSCRIPTIONS", 1000)
	const most = 30 * time.Minute
	r := newKnativeRig(t)
	epoch := r.serveMesh(operatorv1alpha1.NATS)
	var in []string
	for range max(count/10, 1) {
		in = append(in, r.newNamespace("scale"))
	}
	for i := range count {
		s := object(t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: s%d}, spec: {sink: %q, source: commerce, types: [t%d.v1]}}",
			i, r.sinks.URL(fmt.Sprintf("s%d", i), in[i%len(in)]), i))
		if _, err := r.client.Resource(subscriptions).Namespace(in[i%len(in)]).Create(t.Context(), s, strict); err != nil {
			t.Fatal(err)
		}
	}
	r.awaitAll(most, "NATS", epoch, count)

	knative, began := r.readiness(t), time.Now()
	whole, err := cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, serving := range [][]operatorv1alpha1.BackendType{{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS}, {operatorv1alpha1.EventMesh}} {
		mark, err := cluster.Mark(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		step := time.Now()
		set := fmt.Sprint(serving)
		epoch = r.serveMesh(serving...)
		r.awaitAll(most, strings.Join(strings.Fields(strings.Trim(set, "[]")), ","), epoch, count)
		t.Logf("%d Subscriptions, %s: all ready after %s", count, set, time.Since(step).Round(100*time.Millisecond))
		r.writes(t, mark, count)
	}
	t.Logf("%d Subscriptions: Knative says after %s of %d Triggers that they are ready", count, knative(began).Round(100*time.Millisecond), count)
	if each := r.writes(t, whole, count); each > 5 {
		t.Errorf("%.2f writes for one Subscription, at most 5", each)
	}
}

// awaitAll waits until all Subscriptions are ready in an epoch.
func (r *knativeRig) awaitAll(most time.Duration, serving, epoch string, count int) {
	r.t.Helper()
	poll.Until(r.t, most, fmt.Sprintf("%d Subscriptions are ready on %s", count, serving), func(ctx context.Context) error {
		list, err := r.client.Resource(subscriptions).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			is, _, _ := unstructured.NestedBool(list.Items[i].Object, "status", "ready")
			backends, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "backends")
			for _, b := range backends {
				is = is && b.(map[string]any)["epoch"] == epoch
			}
			if is {
				ready++
			}
		}
		if ready == count {
			return nil
		}
		time.Sleep(time.Second) // a list of a thousand objects is work for the API server
		return fmt.Errorf("%d are", ready)
	})
}

// readiness follows the Triggers. What it returns says when Knative said of the last one that it is ready.
func (r *knativeRig) readiness(t *testing.T) func(began time.Time) time.Duration {
	t.Helper()
	in := r.client.Resource(triggers).Namespace(r.control)
	list, err := in.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := in.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ready := map[string]time.Time{}
	go func() {
		for e := range w.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			mu.Lock()
			switch is := kyma.ReadinessOf(u).OK(); {
			case !is:
				delete(ready, u.GetName())
			case ready[u.GetName()].IsZero():
				ready[u.GetName()] = time.Now()
			}
			mu.Unlock()
		}
	}()
	return func(began time.Time) time.Duration {
		w.Stop()
		mu.Lock()
		defer mu.Unlock()
		all := slices.SortedFunc(maps.Values(ready), time.Time.Compare)
		if len(all) == 0 {
			t.Fatal("no Trigger is ready")
		}
		t.Logf("half of the Triggers were ready after %s", all[len(all)/2].Sub(began).Round(100*time.Millisecond))
		return all[len(all)-1].Sub(began)
	}
}

// writes logs the requests of the controllers since a mark, and returns how many writes there were for one Subscription.
func (r *knativeRig) writes(t *testing.T, mark kubernetes.Mark, count int) float64 {
	t.Helper()
	requests, err := cluster.Requests(t.Context(), mark, kubernetes.All(kubernetes.By("eventing-controller"), func(q kubernetes.Request) bool {
		return strings.HasSuffix(q.Resource, "/subscriptions") || strings.HasSuffix(q.Resource, "/triggers")
	}))
	if err != nil {
		t.Fatal(err)
	}
	kinds, writes := map[string]int{}, 0
	for _, q := range requests {
		what := q.Verb + " " + q.Resource
		if q.Subresource != "" {
			what += "/" + q.Subresource
		}
		if q.Code >= 300 {
			what += fmt.Sprintf(" (%d)", q.Code)
		}
		kinds[what]++
		if kubernetes.IsWrite(q) {
			writes++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(kinds)) {
		t.Logf("  %s: %d", what, kinds[what])
	}
	t.Logf("  writes for one Subscription: %.2f", float64(writes)/float64(count))
	return float64(writes) / float64(count)
}
