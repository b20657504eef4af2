//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// straggler is a publisher that does not know of the switch: it follows a ConfigMap of its own, as
// one that has lost the API server follows what it read last. It has the credentials of the
// publisher. When it is deleted, it goes on for ten minutes.
const straggler = "straggler"

// switches are those of one cluster, with operators that lack safeguards.
type switches struct {
	*eventing
	operator, changed string // images of the operator
	sinks             struct {
		sync.Mutex
		away bool
		to   *prober.Prober // what the straggler sends
	}
}

// TestSoakWithoutFence: without the fence, an event that somebody stores after NATS was found
// drained is removed with NATS, although it was acknowledged. Without the wait for pods that end,
// the fence refuses what they store, and nothing is lost: R5 alone is backed by the fence, and the
// fence by R5 for pods that the operator sees. Without both, events are lost.
func TestSoakWithoutFence(t *testing.T) {
	s := &switches{eventing: startEventing(t, kubernetes.Knative())}
	s.install(t)
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 45 * time.Second // the mesh answers when the sink has
	service := s.Config().Host + "/api/v1/namespaces/" + eventingNamespace + "/services/http:eventing-publisher-proxy:80/proxy/commerce/v1/events"
	load := prober.New([]prober.Target{{Application: "commerce", EventType: "order.main", URL: service}}, prober.Options{Client: client, Interval: 20 * time.Millisecond, MaxPending: 50})
	s.subscribe(t, load)
	end := run(t, load)
	for _, tc := range []struct {
		without string
		seen    bool // the straggler is a pod of the publisher, and ends
		lost    bool
	}{
		{without: "R5,fence", seen: true, lost: true},
		{without: "R5", seen: true, lost: false},
		{without: "fence", seen: true, lost: false},
		{without: "fence", seen: false, lost: true},
		{without: "", seen: false, lost: false},
		{without: "", seen: true, lost: false},
	} {
		name := map[bool]string{false: "a publisher that does not know", true: "a pod that ends"}[tc.seen]
		if tc.without != "" {
			name += " without " + tc.without
		}
		load.Step(name)
		ok := t.Run(name, func(t *testing.T) {
			r := s.play(t, tc.without, tc.seen)
			t.Logf("the prober's report about the straggler:\n%s", r)
			if lost := len(r.Missing) > 0; lost != tc.lost {
				t.Errorf("events are lost: %v, want %v", lost, tc.lost)
			}
			s.want(t, "NATS") // with the same operator
		})
		if !ok {
			break
		}
	}
	end()
	waiting, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := load.Await(waiting); err != nil {
		t.Error(err)
	}
	// Safeguards are for what goes wrong: a publisher that follows the switch loses nothing without
	// them.
	r := load.Report()
	t.Logf("the prober's report about the publisher:\n%s", r)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 {
		t.Error("events of the publisher were lost")
	}
}

// run lets a prober send until the returned function is called, or the test ends.
func run(t *testing.T, p *prober.Prober) (end func()) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	t.Cleanup(stop)
	return func() {
		stop()
		<-done
	}
}

// install installs eventing on NATS, with storage in memory: what is removed is gone, and nobody
// finds it in a volume.
func (s *switches) install(t *testing.T) {
	t.Helper()
	if err := s.InstallKnative(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveCRD(t.Context(), "subscriptions.eventing.kyma-project.io"); err != nil { // Kyma's own has the name of ours
		t.Fatal(err)
	}
	var err error
	if s.changed, err = s.Push(t.Context(), "eventmesh/eventing-manager-without", "./cmd/eventing-manager", "-overlay", process.Overlay(t)); err != nil {
		t.Fatal(err)
	}
	s.do(t, "", "apply", "-f", s.manifest)
	s.do(t, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/eventings.operator.kyma-project.io")
	s.do(t, strings.Replace(fmt.Sprintf(eventingObject, "Delete"), "natsStreamReplicas: 1,", "natsStreamReplicas: 1, natsStreamStorageType: Memory,", 1), "apply", "-f", "-")
	s.ready(t, 3*time.Minute)
	d, err := s.client.AppsV1().Deployments(eventingNamespace).Get(t.Context(), "eventing-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.operator = d.Spec.Template.Spec.Containers[0].Image
	s.do(t, "", "-n", eventingNamespace, "create", "role", straggler, "--verb=list,watch", "--resource=configmaps")
	s.do(t, "", "-n", eventingNamespace, "create", "rolebinding", straggler, "--role="+straggler, "--serviceaccount="+eventingNamespace+":eventing-publisher-proxy")
}

// subscribe creates two Subscriptions: one for what the publisher takes, whose sink is slow, so
// that events are always on their way, and one for what the straggler takes.
func (s *switches) subscribe(t *testing.T, load *prober.Prober) {
	t.Helper()
	at := s.serveHere(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/main") {
			time.Sleep(100 * time.Millisecond)
			load.ServeHTTP(w, r)
			return
		}
		s.sinks.Lock()
		away, to := s.sinks.away, s.sinks.to
		s.sinks.Unlock()
		if away || to == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		to.ServeHTTP(w, r)
	}))
	s.namespaces(t, "shop")
	s.relay(t, "shop", "sinks", 8080, at)
	s.rolledOut(t, "shop", "sinks")
	var all strings.Builder
	for _, name := range []string{"main", straggler} {
		fmt.Fprintf(&all, "---\napiVersion: eventing.kyma-project.io/v1alpha2\nkind: Subscription\nmetadata: {name: %s, namespace: shop}\n"+
			"spec: {sink: \"http://sinks.shop.svc.cluster.local:8080/%s\", source: commerce, types: [order.%s.v1], config: {maxInFlightMessages: \"50\"}}\n", name, name, name)
	}
	s.do(t, all.String(), "apply", "-f", "-")
	s.do(t, "", "-n", "shop", "wait", "--for=jsonpath={.status.ready}=true", "--timeout=60s", "subscriptions.eventing.kyma-project.io", "--all")
}

// without replaces the operator by one that lacks a safeguard; "" is the operator as it is.
func (s *switches) without(t *testing.T, safeguard string) {
	t.Helper()
	image, env := s.operator, "MUTANT-"
	if safeguard != "" {
		image, env = s.changed, process.Without(t, safeguard)
	}
	s.do(t, "", "-n", eventingNamespace, "set", "image", "deployment/eventing-manager", "manager="+image)
	s.do(t, "", "-n", eventingNamespace, "set", "env", "deployment/eventing-manager", env)
	s.rolledOut(t, eventingNamespace, "eventing-manager")
	poll.Until(t, 2*time.Minute, "the former operator is gone", func(ctx context.Context) error {
		all, err := s.client.CoreV1().Pods(eventingNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := 0
		for i := range all.Items {
			if strings.HasPrefix(all.Items[i].Name, "eventing-manager-") {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
}

// play switches to the mesh. The straggler is silent until NATS was found drained, and then stores
// events, whose sink is away. It also stores some while the operator waits for it.
func (s *switches) play(t *testing.T, without string, seen bool) *prober.Report {
	t.Helper()
	s.without(t, without)
	gate := s.startStraggler(t, seen)
	p := prober.New([]prober.Target{{Application: "commerce", EventType: "order." + straggler, URL: gate.url + "/commerce/v1/events"}},
		prober.Options{MaxPending: 20, GiveUpAfter: 10 * time.Second, Client: &http.Client{Timeout: 5 * time.Minute}})
	s.sinks.Lock()
	s.sinks.away, s.sinks.to = false, p
	s.sinks.Unlock()
	end := run(t, p)
	some := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		gate.open()
		if err := p.AwaitAccepted(ctx, 20); err != nil {
			t.Errorf("the straggler takes nothing: %v\n%s", err, p.Report())
		}
		gate.close()
	}
	p.Step("NATS")
	some()
	p.Step("the switch")
	s.patch(t, "EventMesh")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		if err := poll.For(t.Context(), 5*time.Minute, "NATS is drained", s.drained); err != nil {
			t.Error(err)
			return
		}
		p.Step("NATS was found drained")
		s.sinks.Lock()
		s.sinks.away = true
		s.sinks.Unlock()
		gate.open()
	}()
	if waits := seen && !strings.Contains(without, "R5"); waits {
		poll.Until(t, 3*time.Minute, "the operator waits for the straggler", func(ctx context.Context) error {
			if message := s.step(ctx, t); !strings.Contains(message, straggler) {
				return errors.New(message)
			}
			return nil
		})
		p.Step("the operator waits for the straggler")
		some()
		s.removeStraggler(t)
	}
	<-drained
	poll.Until(t, 2*time.Minute, "NATS is gone", func(ctx context.Context) error {
		_, err := s.client.CoreV1().Pods(eventingNamespace).Get(ctx, "eventing-nats-0", metav1.GetOptions{})
		return poll.Gone(err)
	})
	s.sinks.Lock()
	s.sinks.away = false
	s.sinks.Unlock()
	end()
	waiting, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_ = p.Await(waiting) // what is missing is in the report
	s.removeStraggler(t) // until then, the status does not say that the mesh is the active backend
	s.switched(t, "EventMesh", 5*time.Minute)
	return p.Report()
}

func (s *switches) patch(t *testing.T, to string) {
	t.Helper()
	s.do(t, "", "-n", eventingNamespace, "patch", "eventings.operator.kyma-project.io", "eventing", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"backend":{"type":%q}}}`, to))
}

func (s *switches) want(t *testing.T, to string) {
	t.Helper()
	s.patch(t, to)
	s.switched(t, to, 5*time.Minute)
}

// drained is nil when the operator has written that NATS is drained.
func (s *switches) drained(ctx context.Context) error {
	config, err := s.client.CoreV1().ConfigMaps(eventingNamespace).Get(ctx, "eventing-nats-config", metav1.GetOptions{})
	if err == nil && config.Data["drained"] == "" {
		err = errors.New("there is no mark")
	}
	return err
}

// step is the message of the switch that is under way.
func (s *switches) step(ctx context.Context, t *testing.T) string {
	t.Helper()
	u, err := s.dynamic.Resource(eventings).Namespace(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	message, _, _ := unstructured.NestedString(u.Object, "status", "switch", "message")
	return message
}

// gate lets requests to the straggler wait while it is closed.
type gate struct {
	url string
	mu  sync.Mutex
	way chan struct{} // closed while the gate is open
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
	default:
		close(g.way)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.way:
		g.way = make(chan struct{})
	default:
	}
}

func (g *gate) wait(ctx context.Context) bool {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	select {
	case <-way:
		return true
	case <-ctx.Done():
		return false
	}
}

// startStraggler runs a pod as those of the publisher. If it is to be seen, it has the labels by
// which the operator finds pods of the publisher, and is being deleted. It is never ready, so that
// the Service does not lead to it.
func (s *switches) startStraggler(t *testing.T, seen bool) *gate {
	t.Helper()
	ctx := t.Context()
	publisher, err := s.client.AppsV1().Deployments(eventingNamespace).Get(ctx, "eventing-publisher-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contract, err := s.client.CoreV1().ConfigMaps(eventingNamespace).Get(ctx, backend.Names(backend.DefaultPrefix).Backends(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: backend.Names(straggler).Backends()}, Data: contract.Data}
	if _, err := s.client.CoreV1().ConfigMaps(eventingNamespace).Create(ctx, own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const ending int64 = 600
	grace := ending + 30
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: straggler, Labels: map[string]string{"app": straggler}}, Spec: publisher.Spec.Template.Spec}
	if seen {
		pod.Labels = publisher.Spec.Template.Labels
	}
	pod.Spec.TerminationGracePeriodSeconds, pod.Spec.TopologySpreadConstraints = &grace, nil
	c := &pod.Spec.Containers[0]
	for i, arg := range c.Args {
		if strings.HasPrefix(arg, "--resource-prefix=") {
			c.Args[i] = "--resource-prefix=" + straggler
		}
	}
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: ending}}}
	c.LivenessProbe = nil
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/never", Port: intstr.FromString("http-metrics")}}}
	if _, err := s.client.CoreV1().Pods(eventingNamespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, time.Minute, "the straggler runs", func(ctx context.Context) error {
		is, err := s.client.CoreV1().Pods(eventingNamespace).Get(ctx, straggler, metav1.GetOptions{})
		if err == nil && (len(is.Status.ContainerStatuses) == 0 || is.Status.ContainerStatuses[0].State.Running == nil) {
			err = fmt.Errorf("%+v", is.Status)
		}
		return err
	})
	if seen {
		if err := s.client.CoreV1().Pods(eventingNamespace).Delete(ctx, straggler, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	at, err := url.Parse(s.Config().Host + "/api/v1/namespaces/" + eventingNamespace + "/pods/http:" + straggler + ":8080/proxy")
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{way: make(chan struct{})}
	proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.wait(r.Context()) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

// removeStraggler ends the straggler at once, if it is there.
func (s *switches) removeStraggler(t *testing.T) {
	t.Helper()
	s.do(t, "", "-n", eventingNamespace, "delete", "pod", straggler, "--grace-period=0", "--force", "--ignore-not-found", "--wait=true", "--timeout=60s")
	s.do(t, "", "-n", eventingNamespace, "delete", "configmap", backend.Names(straggler).Backends(), "--ignore-not-found")
}
