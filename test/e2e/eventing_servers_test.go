//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
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

// ofServers are three NATS servers, to which an event is sent each 10 ms.
type ofServers struct {
	*eventing
	*prober.Prober
	// stop ends the sending, and returns when each event that was begun is accepted or given up.
	stop func()
}

func startServers(t *testing.T) *ofServers {
	t.Helper()
	e := startEventing(t, kubernetes.Node())
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

	sending, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	s := &ofServers{e, p, func() {
		cancel()
		<-done
	}}
	t.Cleanup(s.stop)
	return s
}

func (s *ofServers) accepted(t *testing.T, n int) {
	t.Helper()
	if err := s.AwaitAccepted(t.Context(), n); err != nil {
		t.Fatalf("%v\n%s", err, s.Report())
	}
}

// nothingLost ends the sending, and fails if an event was lost.
func (s *ofServers) nothingLost(t *testing.T) {
	t.Helper()
	s.stop()
	waiting, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.Await(waiting); err != nil {
		t.Error(err)
	}
	r := s.Report()
	t.Logf("the prober's report:\n%s", r)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 {
		t.Error("events were lost")
	}
}

// TestSoakThreeServers evicts and kills the pods of three NATS servers, one after the other, while
// an event is sent each 10 ms. A second pod is not evicted while one is gone. Events are accepted
// again after 5 seconds at most, and none is lost. At the end, the Eventing is deleted while one
// server is not there.
func TestSoakThreeServers(t *testing.T) {
	const longest = 5 * time.Second
	s := startServers(t)
	ctx := t.Context()
	s.accepted(t, 500)
	before := s.LongestGap()
	for n := range servers {
		name := fmt.Sprintf("eventing-nats-%d", n)
		s.Step("evicted " + name)
		if err := s.evict(ctx, name); err != nil {
			t.Fatal(err)
		}
		// Of three servers two must run: the budget refuses the next one.
		if err := s.evict(ctx, fmt.Sprintf("eventing-nats-%d", (n+1)%servers)); !apierrors.IsTooManyRequests(err) {
			t.Errorf("a second pod is evicted while %s is gone: %v", name, err)
		}
		s.accepted(t, 500)
		s.awaitServers(t)
		s.accepted(t, 500)
	}
	evicted := s.LongestGap()
	for n := range servers {
		name := fmt.Sprintf("eventing-nats-%d", n)
		s.Step("killed " + name)
		if err := s.client.CoreV1().Pods(eventingNamespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		s.accepted(t, 500)
		s.awaitServers(t)
		s.accepted(t, 500)
	}
	s.nothingLost(t)
	gap := s.LongestGap()
	t.Logf("longest time without an accepted event: %.1f s before, %.1f s with evictions, %.1f s with kills", before.Seconds(), evicted.Seconds(), gap.Seconds())
	if gap > longest {
		t.Errorf("no event was accepted for %s, at most %s", gap, longest)
	}
	s.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "orders", "--timeout=30s")
	s.withoutServer(t)
	s.deleted(t, servers)
}

// TestSoakSilentPods: one pod after the other is not heard any more, as if its node had lost its
// power: no connection is closed, and no packet comes or goes. These are the three NATS servers,
// the controllers and the publishers. An event is sent each 10 ms. It stays so for a minute, which
// is about how long Kubernetes leads requests to a node that is gone.
func TestSoakSilentPods(t *testing.T) {
	// Up to 8 s until a server is given up, two tries of 2 s to connect to it again, and up to 9 s
	// until another one leads.
	const longest = 20 * time.Second
	s := startServers(t)
	s.accepted(t, 500)
	for n := range servers {
		s.silent(t, fmt.Sprintf("eventing-nats-%d", n), "/nats-server")
		s.awaitServers(t)
		s.accepted(t, 500)
	}
	for _, program := range []string{"eventing-controller", "eventing-publisher-proxy"} {
		list, err := s.client.CoreV1().Pods(eventingNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			pod := list.Items[i].Name
			if !strings.HasPrefix(pod, program+"-") {
				continue
			}
			s.silent(t, pod, "/"+program)
			s.ready(t, 3*time.Minute)
			s.accepted(t, 500)
		}
	}
	s.nothingLost(t)
	if gap := s.LongestGap(); gap > longest {
		t.Errorf("no event was accepted for %s, at most %s", gap, longest)
	}
}

// silent does not hear a pod for a minute.
func (s *ofServers) silent(t *testing.T, pod, program string) {
	t.Helper()
	s.Step("silent: " + pod)
	began := s.Report()
	heard := silence(t, pod, program)
	var rates []int
	for range 6 {
		before, at := s.Report().Accepted, time.Now()
		s.accepted(t, 100)
		select {
		case <-time.After(10*time.Second - time.Since(at)):
		case <-t.Context().Done():
		}
		rates = append(rates, int(float64(s.Report().Accepted-before)/time.Since(at).Seconds()))
	}
	heard()
	ended := s.Report()
	t.Logf("%s: %d accepted, %v a second, %d repeated; the longest time of all without an accepted one is %.1f s, the longest delay %.1f s",
		pod, ended.Accepted-began.Accepted, rates, ended.Repeated-began.Repeated, s.LongestGap().Seconds(), ended.LongestDelay.Seconds())
}

// silence drops all packets from and to a pod, until heard is called.
func silence(t *testing.T, pod, program string) (heard func()) {
	t.Helper()
	pid, err := processOf(pod, program)
	if err != nil {
		t.Fatal(err)
	}
	// The network is that of the pod, and outlives a container.
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	rule := func(what string) {
		for _, chain := range []string{"INPUT", "OUTPUT"} {
			command := exec.Command("nsenter", "--net=/proc/self/fd/3", "iptables", "-w", what, chain, "-j", "DROP")
			command.ExtraFiles = []*os.File{network}
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("iptables %s %s: %v\n%s", what, chain, err, out)
			}
		}
	}
	rule("-I")
	heard = sync.OnceFunc(func() {
		rule("-D")
		_ = network.Close()
	})
	t.Cleanup(heard)
	return heard
}

// TestSoakDeletedSecrets: somebody deletes each Secret of three NATS servers, twice, while an event
// is sent each 10 ms. The servers start one after the other with what came in its place. Those that
// have another authority than the others do not know each other meanwhile.
func TestSoakDeletedSecrets(t *testing.T) {
	s := startServers(t)
	s.accepted(t, 500)
	for range 2 {
		for _, name := range []string{"eventing-nats-users", "eventing-nats-ca", "eventing-nats-tls"} {
			s.Step("deleted " + name)
			began, before := time.Now(), s.Report().Accepted
			s.do(t, "", "-n", eventingNamespace, "delete", "secret", name)
			time.Sleep(5 * time.Second) // until the first server ends
			s.accepted(t, 500)
			s.awaitServers(t)
			s.ready(t, 5*time.Minute)
			s.accepted(t, 500)
			t.Logf("%s: %d accepted in %.0f s, the longest time without one of all is %.1f s", name, s.Report().Accepted-before, time.Since(began).Seconds(), s.LongestGap().Seconds())
		}
	}
	s.nothingLost(t)
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
