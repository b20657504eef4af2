//go:build e2e

package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/collector"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// kind is the cluster of these tests: a node with Knative Eventing. The programs of eventing are
// processes of this machine, beside it.
var kind = kubernetes.Knative()

// prepare installs Knative. Kyma's own kind Subscription has the name of ours.
func prepare(ctx context.Context) error {
	if err := cluster.InstallKnative(ctx); err != nil {
		return err
	}
	return cluster.RemoveCRD(ctx, "subscriptions.eventing.kyma-project.io")
}

// knativeRig is a rig with the real Broker, controllers that it can post to, and a publisher that
// posts to it.
type knativeRig struct {
	*meshRig
	core        clientset.Interface
	ingress     string // the URL of the Broker for processes of this machine
	controllers []*process.Process
	publisher   *publisher
	epoch       string
}

// newKnativeRig starts two controllers with more arguments.
func newKnativeRig(t *testing.T, args ...string) *knativeRig {
	t.Helper()
	ctx := t.Context()
	r := &knativeRig{meshRig: &meshRig{rig: newRig(t, true)}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	r.asInChart()
	r.core, err = clientset.NewForConfig(cluster.Config())
	check(err)
	name := backend.Names(backend.DefaultPrefix).Controller()
	r.createBroker(fmt.Sprintf("{delivery: {retry: 2, backoffPolicy: exponential, backoffDelay: PT0.2S, timeout: PT15S, deadLetterSink: {uri: 'http://%s.%s.svc.cluster.local%s'}}}",
		name, r.control, backend.DeadLetterPath))
	poll.Until(t, limit, "the Broker is ready", func(ctx context.Context) error {
		u, err := r.client.Resource(brokers).Namespace(r.control).Get(ctx, meshBroker, metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(u.Object["status"]), "status:True type:Ready") {
			err = fmt.Errorf("%v", u.Object["status"])
		}
		return err
	})

	// The node's port leads this machine to the ingress, and a Service without selector leads
	// Knative to the controllers.
	ingress, err := r.core.CoreV1().Services("knative-eventing").Patch(ctx, "broker-ingress", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{})
	check(err)
	server, err := url.Parse(cluster.Config().Host)
	check(err)
	for _, port := range ingress.Spec.Ports {
		if port.Port == 80 {
			r.ingress = fmt.Sprintf("http://%s/%s/%s", net.JoinHostPort(server.Hostname(), fmt.Sprint(port.NodePort)), r.control, meshBroker)
		}
	}
	_, err = r.core.CoreV1().Services(r.control).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http-deliver", Port: 80}}}}, metav1.CreateOptions{})
	check(err)
	for i := range 2 {
		at, p := r.listeningAt(fmt.Sprintf("pod-%d", i), cluster.Host, args...)
		r.controllers = append(r.controllers, p)
		r.endpoint(name, at, i)
	}
	r.url = r.ingress
	r.epoch = r.serveMesh(operatorv1alpha1.EventMesh)
	r.publisher = r.meshPublisher(r.ingress)
	return r
}

// endpoint lets a Service lead to a process of this machine.
func (r *knativeRig) endpoint(service, at string, n int) {
	r.t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		r.t.Fatal(err)
	}
	var port int32
	if _, err := fmt.Sscan(u.Port(), &port); err != nil {
		r.t.Fatal(err)
	}
	portName, yes := "http-deliver", true
	_, err = r.core.DiscoveryV1().EndpointSlices(r.control).Create(r.t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", service, n), Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{u.Hostname()}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
}

// send publishes an event to the type, and returns the status of the answer and how long it took.
func (r *knativeRig) send(eventType, id string) (status int, took time.Duration) {
	r.t.Helper()
	began := time.Now()
	got, err := ask(r.t.Context(), http.MethodPost, r.publisher.URL+"/publish", http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {"commerce"}, "Ce-Type": {eventType}, "Content-Type": {"text/plain"},
	}, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return got.status, time.Since(began)
}

func (r *knativeRig) count(sink, id string) (n int) {
	for _, is := range r.sinks.IDs(sink) {
		if is == id {
			n++
		}
	}
	return n
}

// TestKnativeContract: through the Broker of Knative, each request is answered as with NATS, and a
// sink gets the same event. Its spans are one behind the other.
func TestKnativeContract(t *testing.T) {
	to := collector.Start(t)
	r := newKnativeRig(t, "--otlp-endpoint="+to.URL)
	r.everyType("all")
	for _, name := range append(r.everySource("all"), "all") {
		r.await(name, "ready", onMesh(r.epoch, true))
	}
	keepsContract(t, r.publisher, r.atSink("all"), "traceparent", "tracestate", "b3")
	r.traced(t, to)
}

// traced sends an event whose client has a trace through the Broker.
func (r *knativeRig) traced(t *testing.T, to *collector.Collector) {
	t.Helper()
	p := r.meshPublisher(r.ingress, "--otlp-endpoint="+to.URL)
	const trace, client = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	header := http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"traced"}, "Ce-Source": {"commerce"}, "Ce-Type": {"order.created.v1"}, "Content-Type": {"text/plain"},
		"Traceparent": {"00-" + trace + "-" + client + "-01"},
	}
	if answer, err := ask(t.Context(), http.MethodPost, p.URL+"/publish", header, "1"); err != nil || answer.status != http.StatusNoContent {
		t.Fatal(answer, err)
	}
	poll.Until(t, limit, "each span is behind the one before it", func(context.Context) error {
		ids := map[string]string{"": client}
		spans := to.Of(trace)
		for _, s := range spans {
			ids[s.Name] = s.ID
		}
		behind := map[string]string{"accept event": "", "store event in EventMesh": "accept event", "deliver event": "store event in EventMesh"}
		for _, s := range spans {
			if before, known := behind[s.Name]; !known || s.Parent != ids[before] {
				return fmt.Errorf("%s in %v", s, spans)
			}
		}
		if len(ids) != 1+len(behind) {
			return fmt.Errorf("%v", spans)
		}
		return nil
	})
}

// gaveUp: what a sink refuses goes to the dead letter sink of its Subscription, with the answer of
// the sink, and is accepted when that has taken it.
func (r *knativeRig) gaveUp() {
	r.t.Helper()
	r.subscribe("poisoned", "poisoned.v1", fmt.Sprintf(", deadLetterSink: %q", r.sinks.URL("letters", r.namespace)))
	r.await("poisoned", "ready", onMesh(r.epoch, true))
	r.sinks.Answer("poisoned", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	if status, _ := r.send("poisoned.v1", "bad"); status != 204 || r.count("poisoned", "bad") != 3 || r.count("letters", "bad") != 1 {
		r.t.Fatalf("an event that its sink refuses: %d, %d requests to the sink, %d to that of dead letters", status, r.count("poisoned", "bad"), r.count("letters", "bad"))
	}
	for name, want := range map[string]string{"Ce-Knativeerrordest": r.sinks.URL("poisoned", r.namespace), "Ce-Knativeerrorcode": "400", "Ce-Type": "poisoned.v1"} {
		if is := r.sinks.Of("letters")[0].Header.Get(name); is != want {
			r.t.Errorf("a dead letter has %s %q, want %q", name, is, want)
		}
	}
	r.sinks.Answer("letters", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	if status, _ := r.send("poisoned.v1", "neither"); status != 503 {
		r.t.Errorf("an event that neither sink takes: %d", status)
	}
	r.sinks.Answer("letters", func(http.ResponseWriter, *http.Request) {})
	// The breakers are open by now: the sink is not asked.
	if status, _ := r.send("poisoned.v1", "aside"); status != 204 || r.count("letters", "aside") != 1 {
		r.t.Errorf("an event whose sink is left alone: %d", status)
	}
}

// TestKnativeDelivers: what the publisher has accepted is at each sink, whatever the sinks, the
// Subscriptions and the controllers do.
func TestKnativeDelivers(t *testing.T) {
	r := newKnativeRig(t)
	began := time.Now()
	for _, name := range []string{"steady", "beside", "slow", "talking", "failing", "leaves"} {
		eventType := name + ".v1"
		if name == "beside" || name == "leaves" {
			eventType = "steady.v1"
		}
		r.subscribe(name, eventType, "")
	}
	for _, name := range []string{"steady", "beside", "slow", "talking", "failing", "leaves"} {
		r.await(name, "ready", onMesh(r.epoch, true))
	}
	t.Logf("6 Subscriptions are ready after %s", time.Since(began).Round(time.Millisecond))
	r.sinks.Answer("slow", func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) })
	r.sinks.Answer("talking", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	r.sinks.Answer("failing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })

	for _, tc := range []struct {
		reason, name string
		status       int
		least        time.Duration
		times        int
	}{
		{"an event", "steady", 204, 0, 1},
		{"a slow sink", "slow", 204, 3 * time.Second, 1},
		{"a sink that answers with a body gets an event once", "talking", 204, 0, 1},
		{"a sink that fails", "failing", 503, 0, 3},
	} {
		status, took := r.send(tc.name+".v1", "first")
		t.Logf("%s: %d after %s", tc.reason, status, took.Round(time.Millisecond))
		if n := r.count(tc.name, "first"); status != tc.status || took < tc.least || n != tc.times {
			t.Errorf("%s: %d after %s and %d requests to the sink, want %d and %d", tc.reason, status, took, n, tc.status, tc.times)
		}
	}
	r.await("failing", "the sink is told", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionDelivering, eventingv1alpha2.ReasonRetrying)
	})
	// The breakers of both controllers open, and then the sink is not asked.
	poll.Until(t, limit, "a sink that fails is left alone", func(context.Context) error {
		before := len(r.sinks.Of("failing"))
		if r.send("failing.v1", "again"); len(r.sinks.Of("failing")) != before {
			return errors.New("it is asked")
		}
		return nil
	})
	r.gaveUp()
	if status, _ := r.send("steady.v1", "beside-a-failing-sink"); status != 204 || r.count("steady", "beside-a-failing-sink") != 1 {
		t.Errorf("a failing sink of another type: %d", status)
	}

	// Events all the time, while a Subscription is deleted, and while the leader is killed.
	under := func(what string, act func()) {
		t.Helper()
		act()
		var refused, slowest int
		began, last := time.Now(), time.Duration(0)
		var lost []string
		n := 0
		for ; time.Since(began) < 10*time.Second; n++ {
			id := fmt.Sprintf("%s-%04d", strings.ReplaceAll(what, " ", "-"), n)
			status, took := r.send("steady.v1", id)
			slowest = max(slowest, int(took.Milliseconds()))
			switch {
			case status != 204:
				refused, last = refused+1, time.Since(began)
			case r.count("steady", id) == 0 || r.count("beside", id) == 0:
				lost = append(lost, id)
			}
		}
		t.Logf("%s: of %d events %d were refused, the last after %s; the slowest took %d ms", what, n, refused, last.Round(time.Millisecond), slowest)
		if len(lost) > 0 {
			t.Errorf("%s: accepted, and not at both sinks: %q", what, lost)
		}
		if last > 8*time.Second {
			t.Errorf("%s: events are still refused after %s", what, last)
		}
	}
	under("a Subscription is deleted", func() { r.delete("leaves") })
	under("a controller is killed", func() { r.controllers[0].Kill() })
	name := backend.Names(backend.DefaultPrefix).Controller()
	if err := r.core.DiscoveryV1().EndpointSlices(r.control).Delete(t.Context(), name+"-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The other one leads now.
	r.followed(t, "pod-1")
	r.subscribe("late", "late.v1", "")
	r.await("late", "ready with the other controller", onMesh(r.epoch, true))
	if status, _ := r.send("late.v1", "late"); status != 204 || r.count("late", "late") != 1 {
		t.Errorf("a Subscription of the other controller: %d", status)
	}
	u, err := r.client.Resource(brokers).Namespace(r.control).Get(t.Context(), meshBroker, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kind, _, _ := unstructured.NestedString(u.Object, "status", "annotations", "knative.dev/channelKind"); kind != "InMemoryChannel" {
		t.Errorf("the kind of Channel is %q", kind)
	}
}
