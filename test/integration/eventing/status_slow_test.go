//go:build slow

package eventing_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestAThousandSinksThatFail: nobody listens at the sinks of 1,000 Subscriptions, and the backlog
// of each grows. The API server is written to at the pace of one program, and not of each event.
func TestAThousandSinksThatFail(t *testing.T) {
	const all, long = 1000, 3 * time.Minute
	r := newRig(t, true)
	start, err := cluster.Mark(t.Context())
	if err != nil {
		t.Skip(err)
	}
	began := time.Now()
	r.controller("pod-1", "--lease-duration=15s")
	for i := range all {
		s := object(t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: s%d}, spec: {sink: 'http://s%d.%s.svc.cluster.local:1/', source: commerce, types: [a.b]}}", i, i, r.namespace))
		if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Create(t.Context(), s, strict); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		r.await(fmt.Sprintf("s%d", i), "ready", ready)
	}
	t.Logf("all are ready after %s", time.Since(began))
	r.publish("a.b", "first")
	poll.Until(t, 5*time.Minute, "all sinks fail", func(ctx context.Context) error {
		list, err := r.client.Resource(subscriptions).Namespace(r.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for i := range list.Items {
			s := &eventingv1alpha2.Subscription{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, s); err != nil {
				return err
			}
			if strings.HasPrefix(message(s), "the sink refuses connections") {
				n++
			}
		}
		if n < all {
			return fmt.Errorf("%d of %d", n, all)
		}
		return nil
	})
	t.Logf("all sinks fail after %s", time.Since(began))
	mark, err := cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	for i := 1; time.Since(from) < long; i++ { // the backlog of each is doubled again and again
		r.publish("a.b", numbers(fmt.Sprintf("e%d-", i), 1<<min(i, 6))...)
		time.Sleep(10 * time.Second)
	}
	took := time.Since(from)
	count := func(since kubernetes.Mark, filter func(kubernetes.Request) bool) int {
		t.Helper()
		requests, err := cluster.Requests(t.Context(), since, kubernetes.All(kubernetes.By("eventing-controller"), kubernetes.IsWrite, filter))
		if err != nil {
			t.Fatal(err)
		}
		return len(requests)
	}
	status := func(q kubernetes.Request) bool { return q.Subresource == "status" }
	events := func(q kubernetes.Request) bool { return strings.HasSuffix(q.Resource, "events") }
	n, e := count(mark, status), count(start, events)
	t.Logf("%d writes of statuses in %s, %d Events in %s", n, took, e, time.Since(began))
	if most := 60 * (int(took/(12*time.Second)) + 2); n > most || n < 100 {
		t.Errorf("%d writes of statuses in %s, want at least 100 and at most %d", n, took, most)
	}
	if most := 25 + int(time.Since(began).Seconds()); e > most || e < 25 {
		t.Errorf("%d Events in %s, want at least 25 and at most %d", e, time.Since(began), most)
	}
}
