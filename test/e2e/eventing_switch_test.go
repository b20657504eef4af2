//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/prober"
)

// TestEventingSwitch changes the backend to the mesh and back while an event is sent each 10 ms,
// with the real Knative Eventing and NATS, and with sinks that are slow, that refuse, and that
// answer with a body, and with a pod of each program that was evicted. No event that was accepted
// is lost.
func TestEventingSwitch(t *testing.T) {
	inLane(t, &others)
	s := startSwitching(t, full)
	s.accepted(t, 1000)
	for _, component := range []string{"publisher-proxy", "controller"} {
		s.fail(t, component)
		s.podsReady(t, component, 2)
	}
	for _, to := range []string{"EventMesh", "NATS"} {
		t.Logf("switched to %s in %.0f s", to, s.to(t, to).Seconds())
		s.prober.Step(to + " after the switch")
		s.accepted(t, 1000)
		s.kill(t, "publisher-proxy") // a pod that starts when the other backend is gone
		s.podsReady(t, "publisher-proxy", 2)
		s.accepted(t, 1000)
	}
	s.nothingLost(t)
	s.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "--all", "--timeout=60s")
	s.deleted(t, 0)
}

// load is what happens to a cluster while its backend is switched.
type load struct {
	// subscriptions have one type each. An event is sent in each interval, to one after the other.
	subscriptions int
	interval      time.Duration
	// direct sends events to a port of the node, and not through the API server.
	direct bool
	// servers are those of NATS, 0 is one.
	servers int
}

// full is the load of the tests that count events.
var full = load{subscriptions: 20, interval: 10 * time.Millisecond}

// switching is a cluster with Knative, an Eventing and Subscriptions with awkward sinks, to which
// events are sent.
type switching struct {
	*eventing
	load
	prober *prober.Prober
	// stop ends the sending, and returns when each event that was begun is accepted or given up.
	stop func()

	mu sync.Mutex
	// ids is how often a sink got an id.
	ids map[string]int
	// dead is the path of the sink that refuses everything.
	dead string
}

// startSwitching starts with the backend NATS. When it returns, events are sent, and each
// Subscription is ready.
func startSwitching(t *testing.T, of load) *switching {
	t.Helper()
	s := switchingCluster(t, of)
	s.thisVersion(t)
	s.begin(t)
	return s
}

// switchingCluster is what startSwitching starts, without any image of eventing.
func switchingCluster(t *testing.T, of load) *switching {
	t.Helper()
	return switchingOn(t, of, kubernetes.Knative())
}

// switchingOn is switchingCluster with another cluster.
func switchingOn(t *testing.T, of load, with kubernetes.Option) *switching {
	t.Helper()
	s := &switching{eventing: eventingCluster(t, with), load: of, ids: map[string]int{}}
	ctx := t.Context()
	if err := s.InstallKnative(ctx); err != nil {
		t.Fatal(err)
	}
	// Kyma's own has the name of ours.
	if err := s.RemoveCRD(ctx, "subscriptions.eventing.kyma-project.io"); err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 45 * time.Second // the mesh answers when the sink has
	service := s.Config().Host + "/api/v1/namespaces/" + eventingNamespace + "/services/http:eventing-publisher-proxy:80/proxy/commerce/v1/events"
	if of.direct {
		service = "http://" + s.fromOutside(t, "publisher-from-outside", "publisher-proxy", 8080) + "/commerce/v1/events"
	}
	var targets []prober.Target
	for i := range s.subscriptions {
		targets = append(targets, prober.Target{Application: "commerce", EventType: fmt.Sprintf("order.type%02d", i), URL: service})
	}
	s.prober = prober.New(targets, prober.Options{Client: client, Interval: of.interval, MaxPending: 100})
	sink := s.serveHere(t, s.sink())
	s.namespaces(t, "shop")
	s.relay(t, "shop", "sinks", 8080, sink)
	s.rolledOut(t, "shop", "sinks")
	return s
}

// fromOutside makes a Service for the pods of a component, and returns its address on the node.
func (s *switching) fromOutside(t *testing.T, name, component string, port int32) string {
	t.Helper()
	service, err := s.client.CoreV1().Services(eventingNamespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: port}},
			Selector: map[string]string{"app.kubernetes.io/name": component, backend.PodInstanceLabel: backend.DefaultPrefix},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := url.Parse(s.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(node.Hostname(), fmt.Sprint(service.Spec.Ports[0].NodePort))
}

// moreVolumes makes volumes for so many installations of NATS: nobody provisions them here, and one
// that was used is not used again.
func (s *switching) moreVolumes(t *testing.T, n int) {
	t.Helper()
	for range n * max(s.servers, 1) {
		if err := s.started.Volume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// begin installs the version whose manifest was built last, and begins to send events.
func (s *switching) begin(t *testing.T) {
	t.Helper()
	s.do(t, "", "apply", "-f", s.manifest)
	s.do(t, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/eventings.operator.kyma-project.io")
	s.install(t)
	s.prober.Step("NATS")
	s.send(t)
}

// install applies the Eventing and the Subscriptions, and waits until they are ready.
func (s *switching) install(t *testing.T) {
	t.Helper()
	object := fmt.Sprintf(eventingObject, "Delete")
	if s.servers > 1 {
		object = strings.Replace(object, "natsStreamReplicas: 1", fmt.Sprintf("natsStreamReplicas: %d", s.servers), 1)
		s.moreVolumes(t, 1)
	}
	s.do(t, object, "apply", "-f", "-")
	s.ready(t, 3*time.Minute)
	var all strings.Builder
	for i := range s.subscriptions {
		fmt.Fprintf(&all, "---\napiVersion: eventing.kyma-project.io/v1alpha2\nkind: Subscription\nmetadata: {name: sub-%02d, namespace: shop}\n"+
			"spec: {sink: \"http://sinks.shop.svc.cluster.local:8080/%02d\", source: commerce, types: [order.type%02d.v1]}\n", i, i, i)
	}
	s.do(t, all.String(), "apply", "-f", "-")
	s.do(t, "", "-n", "shop", "wait", "--for=jsonpath={.status.ready}=true", "--timeout=5m", "subscriptions.eventing.kyma-project.io", "--all")
}

// send begins to send events.
func (s *switching) send(t *testing.T) {
	t.Helper()
	sending, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.prober.Run(sending)
	}()
	s.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(s.stop)
}

// sink is that of all Subscriptions: one is slow, one refuses at times, one answers with a body.
func (s *switching) sink() http.Handler {
	var refusals atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		dead := s.dead != "" && strings.HasSuffix(r.URL.Path, s.dead)
		s.mu.Unlock()
		switch {
		case dead:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case strings.HasSuffix(r.URL.Path, "/00"):
			time.Sleep(200 * time.Millisecond)
		case strings.HasSuffix(r.URL.Path, "/01") && refusals.Add(1)%20 == 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s.mu.Lock()
		s.ids[r.Header.Get("Ce-Id")]++
		s.mu.Unlock()
		s.prober.ServeHTTP(w, r)
		if strings.HasSuffix(r.URL.Path, "/02") {
			_, _ = w.Write([]byte("200 ok"))
		}
	})
}

// accepted waits until so many more events are.
func (s *switching) accepted(t *testing.T, n int) {
	t.Helper()
	if err := s.prober.AwaitAccepted(t.Context(), n); err != nil {
		t.Fatalf("%v\n%s", err, s.prober.Report())
	}
}

// want writes the backend into the spec.
func (s *switching) want(t *testing.T, to string) {
	t.Helper()
	s.do(t, "", "-n", s.namespace, "patch", "eventings.operator.kyma-project.io", s.name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"backend":{"type":%q}}}`, to))
}

// to switches, and returns how long that took.
func (s *switching) to(t *testing.T, to string) time.Duration {
	t.Helper()
	s.prober.Step("switch to " + to)
	began := time.Now()
	s.want(t, to)
	s.switched(t, to, 5*time.Minute)
	return time.Since(began)
}

// nothingLost ends the sending. Each event that was accepted has to arrive, and one that arrives
// again has to have the same id.
func (s *switching) nothingLost(t *testing.T) *prober.Report {
	t.Helper()
	s.stop()
	waiting, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.prober.Await(waiting); err != nil {
		t.Error(err)
	}
	r := s.prober.Report()
	gap, until := s.prober.GapBefore()
	refused := ""
	if until.LastRefusal != "" {
		refused = fmt.Sprintf(" (its last refusal: %s)", until.LastRefusal)
	}
	t.Logf("longest time without an accepted event: %.1f s, until %s was accepted%s; the prober's report:\n%s", gap.Seconds(), &until, refused, r)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 {
		t.Errorf("events were lost:\n%s", r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range r.Duplicates {
		if e := &r.Duplicates[i]; s.ids[e.ID] != len(e.Arrived) {
			t.Errorf("%s arrived %d times, %d times of them with its id", e, len(e.Arrived), s.ids[e.ID])
		}
	}
	return r
}

// podsReady waits until there are n pods of a component, all of them ready.
func (e *eventing) podsReady(t *testing.T, component string, n int) {
	t.Helper()
	poll.Until(t, time.Minute, "the pods of "+component+" are ready", func(ctx context.Context) error {
		pods, err := e.podsOf(ctx, component)
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
func (e *eventing) switched(t *testing.T, to string, limit time.Duration) {
	t.Helper()
	poll.Until(t, limit, "the backend is "+to, func(ctx context.Context) error { return e.isSwitched(ctx, to) })
}

// isSwitched is nil if the Eventing as it is now has been switched to a backend.
func (e *eventing) isSwitched(ctx context.Context, to string) error {
	u, err := e.dynamic.Resource(eventings).Namespace(e.namespace).Get(ctx, e.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	active, _, _ := unstructured.NestedString(u.Object, "status", "activeBackend")
	serving, _, _ := unstructured.NestedStringSlice(u.Object, "status", "serving")
	state, _, _ := unstructured.NestedString(u.Object, "status", "state")
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	_, switching, _ := unstructured.NestedMap(u.Object, "status", "switch")
	if active != to || state != "Ready" || switching || len(serving) != 1 || observed != u.GetGeneration() {
		return fmt.Errorf("%v", u.Object["status"])
	}
	return nil
}
