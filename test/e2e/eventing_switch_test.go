//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/prober"
)

// TestEventingSwitch changes the backend to the mesh and back while an event is sent each 10 ms, with the real Knative Eventing and NATS, and
// with sinks that are slow, that refuse, and that answer with a body. No event that was accepted is lost.
func TestEventingSwitch(t *testing.T) {
	const subscribers = 20
	e := startEventing(t, kubernetes.Knative())
	ctx := t.Context()
	if err := e.InstallKnative(ctx); err != nil {
		t.Fatal(err)
	}
	// Kyma's own has the name of ours.
	if err := e.RemoveCRD(ctx, "subscriptions.eventing.kyma-project.io"); err != nil {
		t.Fatal(err)
	}
	e.do(t, "", "apply", "-f", e.manifest)
	e.do(t, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/eventings.operator.kyma-project.io")
	e.do(t, fmt.Sprintf(eventingObject, "Delete"), "apply", "-f", "-")
	e.ready(t, 2*time.Minute)

	client, err := rest.HTTPClientFor(e.Config())
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 45 * time.Second // the mesh answers when the sink has
	service := e.Config().Host + "/api/v1/namespaces/" + eventingNamespace + "/services/http:eventing-publisher-proxy:80/proxy/commerce/v1/events"
	var targets []prober.Target
	for i := range subscribers {
		targets = append(targets, prober.Target{Application: "commerce", EventType: fmt.Sprintf("order.type%02d", i), URL: service})
	}
	p := prober.New(targets, prober.Options{Client: client, MaxPending: 100})
	var refusals atomic.Int64
	url := e.serveHere(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/00"):
			time.Sleep(200 * time.Millisecond)
		case strings.HasSuffix(r.URL.Path, "/01") && refusals.Add(1)%20 == 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		p.ServeHTTP(w, r)
		if strings.HasSuffix(r.URL.Path, "/02") {
			_, _ = w.Write([]byte("200 ok"))
		}
	}))
	e.namespaces(t, "shop")
	e.relay(t, "shop", "sinks", 8080, url)
	e.rolledOut(t, "shop", "sinks")
	var all strings.Builder
	for i := range subscribers {
		fmt.Fprintf(&all, "---\napiVersion: eventing.kyma-project.io/v1alpha2\nkind: Subscription\nmetadata: {name: sub-%02d, namespace: shop}\n"+
			"spec: {sink: \"http://sinks.shop.svc.cluster.local:8080/%02d\", source: commerce, types: [order.type%02d.v1]}\n", i, i, i)
	}
	e.do(t, all.String(), "apply", "-f", "-")
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
	p.Step("NATS")
	accepted(1000)
	for _, to := range []string{"EventMesh", "NATS"} {
		p.Step("switch to " + to)
		began := time.Now()
		e.do(t, "", "-n", eventingNamespace, "patch", "eventings.operator.kyma-project.io", "eventing", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"backend":{"type":%q}}}`, to))
		e.switched(t, to)
		t.Logf("switched to %s in %.0f s", to, time.Since(began).Seconds())
		p.Step(to + " after the switch")
		accepted(1000)
		e.kill(t, "publisher-proxy") // a pod that starts when the other backend is gone
		e.podsReady(t, "publisher-proxy", 2)
		accepted(1000)
	}
	stop()
	<-done
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := p.Await(waiting); err != nil {
		t.Error(err)
	}
	r := p.Report()
	t.Logf("longest time without an accepted event %.1f s; the prober's report:\n%s", p.LongestGap().Seconds(), r)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 {
		t.Errorf("events were lost:\n%s", r)
	}
	e.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "--all", "--timeout=60s")
	e.deleted(t, 0)
}

// podsReady waits until there are n pods of a component, all of them ready.
func (e *eventing) podsReady(t *testing.T, component string, n int) {
	t.Helper()
	poll.Until(t, time.Minute, "the pods of "+component+" are ready", func(ctx context.Context) error {
		pods, err := e.client.CoreV1().Pods(eventingNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + component})
		if err != nil {
			return err
		}
		ready := 0
		for i := range pods.Items {
			for _, c := range pods.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != n || len(pods.Items) != n {
			return fmt.Errorf("%d pods, %d of them ready", len(pods.Items), ready)
		}
		return nil
	})
}

// switched waits until a backend is active, and nothing of the other one is left.
func (e *eventing) switched(t *testing.T, to string) {
	t.Helper()
	poll.Until(t, 5*time.Minute, "the backend is "+to, func(ctx context.Context) error {
		u, err := e.dynamic.Resource(eventings).Namespace(e.namespace).Get(ctx, e.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		active, _, _ := unstructured.NestedString(u.Object, "status", "activeBackend")
		serving, _, _ := unstructured.NestedStringSlice(u.Object, "status", "serving")
		state, _, _ := unstructured.NestedString(u.Object, "status", "state")
		_, switching := u.Object["status"].(map[string]any)["switch"]
		if active != to || state != "Ready" || switching || len(serving) != 1 {
			return fmt.Errorf("%v", u.Object["status"])
		}
		return nil
	})
}
