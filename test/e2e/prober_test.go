//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	product "github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// probed are the Applications that events are sent for, and who is subscribed.
var probed = []struct{ app, namespace, subscriber, eventType string }{
	{"commerce", "shop", "orders", "order.created"},
	{"customers", "crm", "changes", "customer.changed"},
}

// TestProber sends an event each 10 ms, unless a hundred are not accepted yet, while Kyma is
// upgraded by Helm in the order of its installer, with pods all the way: hooks, event-services,
// adapters, the real Channels, Brokers and Triggers, and subscribers behind Services. A hook is
// killed and repeated, and pods of event-services are killed all the time. None of the events that
// were accepted is lost.
//
// On the old path, the event-service of 1.10 is a pod that hands on to a stand-in,
// as are event-publish-service and the dispatcher; NATS Streaming is the real one.
func TestProber(t *testing.T) {
	inLane(t, &upgrades)
	u := newUpgrade(t, 3)
	components := []string{"cluster-essentials", "core", "event-bus", "application-connector"}
	for _, component := range components {
		u.must(t, component, "1.10")
	}
	var subscriber http.Handler
	var mu sync.Mutex
	c := &cluster{ControlPlane: u.ControlPlane, client: u.core, dynamic: u.dynamic, images: map[string]string{}}
	url := c.serveHere(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		to := subscriber
		mu.Unlock()
		if to == nil {
			http.Error(w, "nobody is here yet", http.StatusServiceUnavailable)
			return
		}
		to.ServeHTTP(w, r)
	}))
	path := u.flow(t, c, url)
	client, err := rest.HTTPClientFor(u.Config())
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 15 * time.Second
	var targets []prober.Target
	for _, a := range probed {
		targets = append(targets, prober.Target{
			Application: a.app, EventType: a.eventType,
			// As everything from outside, through somebody who knows the Service's endpoints.
			URL: fmt.Sprintf("%s/api/v1/namespaces/%s/services/http:%s-event-service:8081/proxy/%s/v1/events", u.Config().Host, standin.IntegrationNamespace, a.app, a.app),
		})
	}
	p := prober.New(targets, prober.Options{Client: client, MaxPending: 100})
	mu.Lock()
	subscriber = p
	mu.Unlock()

	sending, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	// Also when a step fails the test.
	defer func() {
		stop()
		<-done
	}()
	accepted := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := p.AwaitAccepted(ctx, 100); err != nil {
			t.Fatalf("%v\n%s", err, p.Report())
		}
	}
	accepted()
	calm := u.killPods(t, path)
	p.Step("core: a hook is killed")
	u.brokersStop(t)
	u.killing(t, "core", "1.11", "pre-trigger-sync", func() bool { return u.count(t, "eventing.knative.dev", "triggers") > 0 })
	u.brokersGoOn(t)
	accepted()
	u.operate(t, c)
	for _, component := range components[1:] {
		p.Step(component)
		u.repeated(t, component, calm)
		accepted()
	}
	calm()
	p.Step("Kyma 1.11")
	accepted()
	stop()
	<-done

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := p.Await(ctx); err != nil {
		t.Error(err)
	}
	r := p.Report()
	t.Logf("the prober's report:\n%s", r)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 {
		t.Errorf("events were lost:\n%s", r)
	}
	// It is the migration that was probed.
	if s := u.state(t); s.Subscriptions != 0 || s.Triggers != len(probed) || s.Publisher != 0 {
		t.Errorf("the cluster is not migrated: %+v", s)
	}
	for _, a := range probed {
		if !path.OnMesh(a.app) {
			t.Errorf("the event-service of %s is not on the mesh", a.app)
		}
	}
}

// flow puts Kyma 1.10 in place so that events flow, and the mesh beside it.
func (u *upgrade) flow(t *testing.T, c *cluster, subscriber string) *standin.EventPath {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// The relays are not as hardened as what is probed.
	for _, namespace := range []string{standin.SystemNamespace, standin.IntegrationNamespace} {
		_, err := u.core.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`), metav1.PatchOptions{})
		check(err)
	}
	u.eventually(t, "Kyma Subscriptions are served", u.subscriptionsServed)
	controllers, err := standin.Start(ctx, u.Config(), standin.Options{RealKnative: true})
	check(err)
	t.Cleanup(controllers.Stop)
	mesh, err := standin.StartMesh(ctx, u.Config(), standin.Options{RealKnative: true, Activated: true})
	check(err)
	t.Cleanup(mesh.Stop)
	path, err := standin.StartEventPath(ctx, u.Config(), standin.EventPathOptions{
		Subscriber: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			req, err := http.NewRequestWithContext(r.Context(), r.Method, subscriber, r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			_ = resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
		}),
		Address: func(types.UID) string { return "" }, // nobody comes by this way
		Host:    u.Host, RealKnative: true, Log: t.Logf,
	})
	check(err)
	t.Cleanup(path.Stop)
	u.relayNATS(t, path.MonitoringURL)

	for i, a := range probed {
		check(standin.Load(ctx, u.Config(), standin.Application(a.app, false), u.probedService(t, c, path, a.app, false)))
		check(standin.PutHTTPSources(ctx, u.Config(), a.app))
		c.service(t, standin.IntegrationNamespace, a.app+"-event-service", a.app+"-event-service", 8081, 8081)
		if i == 0 {
			// The other namespace gets its Broker from the migration.
			broker := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": map[string]any{"name": "default"},
			}}
			_, err := u.dynamic.Resource(brokers).Namespace(a.namespace).Create(ctx, broker, metav1.CreateOptions{})
			check(err)
		}
		// Kyma's Broker has an address of its own in its namespace; the one of today is shared by
		// all.
		c.relay(t, a.namespace, "default-broker", 80, "http://broker-ingress.knative-eventing.svc.cluster.local/"+a.namespace+"/default")
		c.relay(t, a.namespace, a.subscriber, 8080, subscriber)
		_, err := u.dynamic.Resource(links).Namespace(standin.IntegrationNamespace).Create(ctx, standin.Link("v1", a.app, a.namespace, "brokersub-"+a.app), metav1.CreateOptions{})
		check(err)
		sub := standin.KymaSubscription(a.namespace, a.subscriber, a.app, a.eventType)
		unstructured.RemoveNestedField(sub.Object, "spec", "include_subscription_name_header")
		sub.SetFinalizers(nil)
		_, err = u.dynamic.Resource(standin.KymaSubscriptions).Namespace(a.namespace).Create(ctx, sub, metav1.CreateOptions{})
		check(err)
	}
	for _, a := range probed {
		// The adapter, with an address that Knative chooses.
		address := ""
		u.eventually(t, "the Channel of "+a.app+" has an address", func(ctx context.Context) error {
			channel, err := u.dynamic.Resource(channels).Namespace(standin.IntegrationNamespace).Get(ctx, a.app, metav1.GetOptions{})
			if err != nil {
				return err
			}
			address, _, _ = unstructured.NestedString(channel.Object, "status", "address", "url")
			if ready := readiness(channel); ready != "True" || address == "" {
				return fmt.Errorf("Ready is %q, the address %q", ready, address)
			}
			return nil
		})
		c.relay(t, standin.IntegrationNamespace, a.app, 80, address)
		for _, name := range []string{a.app, a.app + "-event-service"} {
			c.rolledOut(t, standin.IntegrationNamespace, name)
		}
		for _, name := range []string{"default-broker", a.subscriber} {
			c.rolledOut(t, a.namespace, name)
		}
	}
	wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	check(controllers.WaitReady(wait, probed[0].app, probed[1].app))
	c.awaitReady(t, links, standin.IntegrationNamespace, len(probed))
	u.eventually(t, "the Event Bus delivers", func(context.Context) error {
		if ready, subscribed := standin.SubscriptionsReady(mesh), path.Subscribed(len(probed)); !ready || !subscribed {
			return fmt.Errorf("all Subscriptions ready: %t, all of them subscribed: %t", ready, subscribed)
		}
		return nil
	})
	return path
}

// probedService is an event-service: of 1.10, a pod that hands on to the stand-in;
// on the mesh, the real one.
func (u *upgrade) probedService(t *testing.T, c *cluster, path *standin.EventPath, app string, onMesh bool) *unstructured.Unstructured {
	t.Helper()
	d := c.eventService(t, app, onMesh, func(container map[string]any) {
		if !onMesh {
			container["command"] = []any{"/workload", "relay", path.OldURL(app), ":8081"}
			delete(container, "args")
			container["readinessProbe"] = map[string]any{"tcpSocket": map[string]any{"port": int64(8081)}}
		}
	})
	// Here it matters what becomes of that which it has in hand.
	if err := unstructured.SetNestedField(d.Object, int64(40), "spec", "template", "spec", "terminationGracePeriodSeconds"); err != nil {
		t.Fatal(err)
	}
	return d
}

// operate does application-operator's part once application-connector is of 1.11:
// one Application after the other.
func (u *upgrade) operate(t *testing.T, c *cluster) {
	t.Helper()
	var fresh []*unstructured.Unstructured
	for _, a := range probed {
		fresh = append(fresh, u.probedService(t, c, nil, a.app, true))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		err := await(ctx, u.core.CoreV1().RESTClient(), "configmaps", standin.IntegrationNamespace, "application-connector", &corev1.ConfigMap{}, func(o runtime.Object) bool {
			m, ok := o.(*corev1.ConfigMap)
			return ok && m.Data["version"] == "1.11"
		})
		for _, d := range fresh {
			var raw []byte
			if err == nil {
				raw, err = json.Marshal(map[string]any{"spec": d.Object["spec"]})
			}
			if err == nil {
				_, err = u.core.AppsV1().Deployments(standin.IntegrationNamespace).Patch(ctx, d.GetName(), types.MergePatchType, raw, metav1.PatchOptions{})
			}
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("application-operator: %v", err)
		}
	})
}

// repeated upgrades as Kyma's installer does, which makes six attempts. The slower a machine, the
// more of an upgrade is disturbed, and an attempt takes two minutes there: so the first alone is.
func (u *upgrade) repeated(t *testing.T, component string, calm func()) {
	t.Helper()
	var err error
	for i := range 6 {
		if i == 1 {
			calm()
		}
		if _, err = u.helmUpgrade(t, component, "1.11"); err == nil {
			return
		}
		t.Log(err)
	}
	t.Fatal(err)
}

// killPods deletes pods of event-services that serve, half of them without grace,
// until calm is called.
func (u *upgrade) killPods(t *testing.T, path *standin.EventPath) (calm func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			pause := time.NewTimer(5*time.Second + rand.N(10*time.Second)) //nolint:gosec // no secret
			select {
			case <-pause.C:
			case <-ctx.Done():
				return
			}
			a := probed[rand.IntN(len(probed))] //nolint:gosec // no secret
			pods := u.core.CoreV1().Pods(standin.IntegrationNamespace)
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + a.app + "-event-service"})
			if err != nil {
				continue
			}
			// On a slow machine, nothing would ever serve.
			list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
			if len(list.Items) == 0 || !path.Serving(a.app) {
				continue
			}
			var o metav1.DeleteOptions
			if rand.IntN(2) == 0 { //nolint:gosec // no secret
				o.GracePeriodSeconds = new(int64)
			}
			err = pods.Delete(ctx, list.Items[0].Name, o)
			u.progress(t, "killed Pod %s: %v", list.Items[0].Name, err)
		}
	})
	end := func() {
		stop()
		running.Wait()
	}
	t.Cleanup(end)
	return end
}

// relayNATS makes NATS Streaming's monitoring port that of a pod of its namespace.
func (u *upgrade) relayNATS(t *testing.T, url string) {
	t.Helper()
	_, err := u.core.CoreV1().Pods("natss").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nats-streaming-0"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "nats-streaming", Image: u.workload, Args: []string{"relay", url, ":8222"},
				Ports: []corev1.ContainerPort{{ContainerPort: product.NATSMonitoringPort}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.eventually(t, "NATS Streaming can be asked", func(ctx context.Context) error {
		pod, err := u.core.CoreV1().Pods("natss").Get(ctx, "nats-streaming-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("its pod is %s", pod.Status.Phase)
		}
		return nil
	})
}
