//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/prober"
)

// TestSoakThreeServers evicts and kills the pods of three NATS servers, one after the other, while
// an event is sent each 10 ms. A second pod is not evicted while one is gone. Events are accepted
// again after 5 seconds at most, and none is lost. At the end, the Eventing is deleted while one
// server is not there.
func TestSoakThreeServers(t *testing.T) {
	const longest = 5 * time.Second
	e := startEventing(t, kubernetes.Node())
	ctx := t.Context()
	e.namespace, e.name = "kcp-system", "default-kyma-eventing"
	e.namespaces(t, e.namespace, "shop")
	e.do(t, "", "apply", "-f", e.manifest)
	e.do(t, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/eventings.operator.kyma-project.io")
	e.do(t, theirs, "apply", "-f", "-")
	e.ready(t, 3*time.Minute)
	e.podsReady(t, "nats", servers)

	client, err := rest.HTTPClientFor(e.Config())
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 15 * time.Second
	service := e.Config().Host + "/api/v1/namespaces/" + eventingNamespace + "/services/http:eventing-publisher-proxy:80/proxy/commerce/v1/events"
	p := prober.New([]prober.Target{{Application: "commerce", EventType: "order.created", URL: service}}, prober.Options{Client: client, MaxPending: 100})
	e.relay(t, "shop", "orders", 8080, e.serveHere(t, p))
	e.rolledOut(t, "shop", "orders")
	e.do(t, `apiVersion: eventing.kyma-project.io/v1alpha2
kind: Subscription
metadata: {name: orders, namespace: shop}
spec: {sink: "http://orders.shop.svc.cluster.local:8080/", source: commerce, types: [order.created.v1]}
`, "apply", "-f", "-")
	e.do(t, "", "-n", "shop", "wait", "--for=jsonpath={.status.ready}=true", "--timeout=60s", "subscriptions.eventing.kyma-project.io", "--all")

	sending, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	defer func() {
		stop()
		<-done
	}()
	accepted := func(n int) {
		t.Helper()
		if err := p.AwaitAccepted(ctx, n); err != nil {
			t.Fatalf("%v\n%s", err, p.Report())
		}
	}
	accepted(500)
	before := p.LongestGap()
	for n := range servers {
		name := fmt.Sprintf("eventing-nats-%d", n)
		p.Step("evicted " + name)
		if err := e.evict(ctx, name); err != nil {
			t.Fatal(err)
		}
		// Of three servers two must run: the budget refuses the next one.
		if err := e.evict(ctx, fmt.Sprintf("eventing-nats-%d", (n+1)%servers)); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a second pod is evicted while %s is gone: %v", name, err)
		}
		accepted(500)
		e.awaitServers(t)
		accepted(500)
	}
	evicted := p.LongestGap()
	for n := range servers {
		name := fmt.Sprintf("eventing-nats-%d", n)
		p.Step("killed " + name)
		if err := e.client.CoreV1().Pods(eventingNamespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		accepted(500)
		e.awaitServers(t)
		accepted(500)
	}
	stop()
	<-done
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := p.Await(waiting); err != nil {
		t.Error(err)
	}
	r := p.Report()
	gap := p.LongestGap()
	t.Logf("longest time without an accepted event: %.1f s before, %.1f s with evictions, %.1f s with kills; the prober's report:\n%s",
		before.Seconds(), evicted.Seconds(), gap.Seconds(), r)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 || gap > longest {
		t.Errorf("events were lost, or none was accepted for %s, at most %s:\n%s", gap, longest, r)
	}
	e.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "orders", "--timeout=30s")
	e.withoutServer(t)
	e.deleted(t, servers)
}

// withoutServer deletes the Eventing while one of three servers has no node to run on. What the
// other two say is not believed: nothing of NATS is removed, and the status names the server and
// its problem. Then the node takes pods again.
func (e *eventing) withoutServer(t *testing.T) {
	t.Helper()
	const name, nodes = "eventing-nats-2", "--selector=kubernetes.io/os=linux"
	e.do(t, "", "cordon", nodes)
	e.do(t, "", "-n", eventingNamespace, "delete", "pod", name)
	e.do(t, "", "-n", e.namespace, "delete", "--wait=false", "eventings.operator.kyma-project.io", e.name)
	poll.Until(t, 2*time.Minute, "the status names the server that is not there", func(ctx context.Context) error {
		var is operatorv1alpha1.Eventing
		u, err := e.dynamic.Resource(eventings).Namespace(e.namespace).Get(ctx, e.name, metav1.GetOptions{})
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &is)
		}
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(is.Status.Conditions, operatorv1alpha1.ConditionDeleted)
		if is.Status.State != operatorv1alpha1.StateWarning || c == nil || c.Reason != operatorv1alpha1.ReasonNATSUnreachable ||
			!strings.Contains(c.Message, "not up to date: "+name+". Pod "+name+" is not scheduled") || !strings.Contains(c.Message, "To delete it nevertheless: ") {
			return fmt.Errorf("%+v", is.Status)
		}
		t.Logf("the status says: %s", c.Message)
		return nil
	})
	set, err := e.client.AppsV1().StatefulSets(eventingNamespace).Get(t.Context(), "eventing-nats", metav1.GetOptions{})
	if err != nil || set.DeletionTimestamp != nil {
		t.Fatalf("NATS was removed: %v, %v", set, err)
	}
	e.do(t, "", "uncordon", nodes)
}

func (e *eventing) evict(ctx context.Context, name string) error {
	return e.client.PolicyV1().Evictions(eventingNamespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: eventingNamespace, Name: name}})
}

// awaitServers waits until all servers run, and the budget lets one go.
func (e *eventing) awaitServers(t *testing.T) {
	t.Helper()
	poll.Until(t, 3*time.Minute, "all servers run", func(ctx context.Context) error {
		b, err := e.client.PolicyV1().PodDisruptionBudgets(eventingNamespace).Get(ctx, "eventing-nats", metav1.GetOptions{})
		if err == nil && (b.Status.CurrentHealthy != servers || b.Status.DisruptionsAllowed != 1 || b.Status.ObservedGeneration != b.Generation || len(b.Status.DisruptedPods) > 0) {
			err = fmt.Errorf("%+v", b.Status)
		}
		return err
	})
}
