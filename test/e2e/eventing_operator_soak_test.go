//go:build e2e && soak

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// light is the load of the tests in which programs are killed and paused: there are many switches,
// and Triggers take long to be ready.
var light = load{subscriptions: 6, interval: 50 * time.Millisecond}

// outside is a cluster whose operators are processes of the test, which it can kill, pause, and
// stand in the way of.
type outside struct {
	*switching
	// nats is the address of NATS outside of the cluster.
	nats string
	log  operatorLog
}

// operatorLog is what operators wrote, one after the other. The log of each alone is that of its
// process.
type operatorLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *operatorLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// tail is the end of it.
func (l *operatorLog) tail() string {
	const most = 8 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text.Bytes()
	return string(text[max(0, len(text)-most):])
}

// count is how often they wrote a text.
func (l *operatorLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte(text))
}

// startOutside starts with the backend NATS, and ends the operator's own pod.
func startOutside(t *testing.T) *outside {
	t.Helper()
	const installations = 150
	o := &outside{switching: startSwitching(t, light)}
	o.moreVolumes(t, installations)
	o.do(t, "", "-n", eventingNamespace, "scale", "deployment/eventing-manager", "--replicas=0")
	o.do(t, "", "-n", eventingNamespace, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=operator", "--timeout=60s")
	o.nats = o.fromOutside(t, "nats-from-outside", "nats", 4222)
	poll.Until(t, 30*time.Second, "NATS can be reached from outside", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.nats)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of the operators:\n%s", o.log.tail())
		}
	})
	return o
}

// proxy stands between an operator and the API server. The operator may do there what its pod may.
func (o *outside) proxy(t *testing.T) (p *faultproxy.Proxy, kubeconfig string) {
	t.Helper()
	config := rest.CopyConfig(o.Config())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + eventingNamespace + ":eventing-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + eventingNamespace, "system:authenticated"},
	}
	p, err := faultproxy.Start(config)
	if err == nil {
		t.Cleanup(p.Close)
		kubeconfig, err = p.Kubeconfig(t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

// cut is a way from an operator to NATS, up to the n-th piece of data; 0: all of them.
func (o *outside) cut(t *testing.T, n int64) *faultproxy.Cut {
	t.Helper()
	c, err := faultproxy.StartCut(o.nats, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// operator starts one.
func (o *outside) operator(t *testing.T, kubeconfig string, nats *faultproxy.Cut) *process.Process {
	t.Helper()
	return process.Start(t, process.Program{Binary: process.Build(t, "./cmd/eventing-manager"), Stderr: &o.log, Args: []string{
		"--kubeconfig", kubeconfig, "--namespace", eventingNamespace, "--nats-url", "tls://" + nats.Address,
		"--nats-image", o.started.Repository + "/nats-server:e2e", "--publisher-image", o.started.Repository + "/eventing-publisher-proxy:e2e",
		"--controller-image", o.started.Repository + "/eventing-controller:e2e", "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
	}})
}

// supervised is an operator that is started again when it ends, as Kubernetes does: one that cannot
// renew its Lease in time ends.
type supervised struct {
	mu      sync.Mutex
	process *process.Process
	killed  bool
	ended   chan struct{}
}

// supervise starts one.
func (o *outside) supervise(t *testing.T, kubeconfig string, nats *faultproxy.Cut) *supervised {
	t.Helper()
	s := &supervised{process: o.operator(t, kubeconfig, nats), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for {
			s.mu.Lock()
			p := s.process
			s.mu.Unlock()
			<-p.Exited()
			s.mu.Lock()
			if s.killed || t.Context().Err() != nil {
				s.mu.Unlock()
				return
			}
			s.process = o.operator(t, kubeconfig, nats)
			s.mu.Unlock()
		}
	}()
	return s
}

// Kill ends the operator with SIGKILL, and for good. It is dead when Kill returns.
func (s *supervised) Kill() {
	s.mu.Lock()
	s.killed = true
	s.process.Kill()
	s.mu.Unlock()
	<-s.ended
}

// released removes the Lease, so that the next operator need not wait until that of a killed one
// ends.
func (o *outside) released(t *testing.T) {
	t.Helper()
	err := o.client.CoordinationV1().Leases(eventingNamespace).Delete(t.Context(), backend.Names(backend.DefaultPrefix).ManagerLease(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// acts selects the writes that an operator decides on.
func acts(r faultproxy.Request) bool { return !r.Renews && !strings.Contains(r.String(), "leases") }

// only fails the test if anything but the objects of one backend is there.
func (o *outside) only(t *testing.T, b string) {
	t.Helper()
	plane := map[string]string{"NATS": string(backend.PlaneNATS), "EventMesh": string(backend.PlaneMesh)}
	for _, gvr := range []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "statefulsets"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "persistentvolumeclaims"}, {Group: "eventing.knative.dev", Version: "v1", Resource: "brokers"}, {Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"},
	} {
		list, err := o.dynamic.Resource(gvr).Namespace(eventingNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: backend.PlaneLabel})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if is := list.Items[i].GetLabels()[backend.PlaneLabel]; is != string(backend.PlaneShared) && is != plane[b] {
				t.Errorf("with the backend %s, there is %s %s", b, list.Items[i].GetKind(), list.Items[i].GetName())
			}
		}
	}
}

// sampled is each how many writes something happens: each by default, each fifth with -short.
func sampled(t *testing.T) int {
	t.Helper()
	each := 1
	if testing.Short() {
		each = 5
	}
	return measure.Number(t, "EVENTING_SOAK_EACH", each)
}

// TestSoakKilledSwitch kills the operator after each write to the API server, and then at each
// piece of data that it sends to NATS, in switches to both backends. Each time, another one goes
// on.
func TestSoakKilledSwitch(t *testing.T) {
	each := sampled(t)
	o := startOutside(t)
	o.accepted(t, 500)
	for _, killed := range []struct {
		at    string
		lives func(*testing.T, string, int) []string
	}{{"writes", o.killedAtWrites}, {"data for NATS", o.killedAtData}} {
		for _, to := range []string{"EventMesh", "NATS"} {
			o.prober.Step("killed at " + killed.at + ", to " + to)
			began := time.Now()
			o.want(t, to)
			lives := killed.lives(t, to, each)
			o.only(t, to)
			t.Logf("to %s: killed %d times at %s, in %.0f s:\n%s", to, len(lives), killed.at, time.Since(began).Seconds(), strings.Join(lives, "\n"))
			if len(lives)*each < 10 {
				t.Errorf("killed %d times only", len(lives))
			}
			o.accepted(t, 500)
		}
	}
	o.nothingLost(t)
}

// killedAtWrites starts one operator after the other, and kills each after its n-th write, until
// all is done. It returns these writes.
func (o *outside) killedAtWrites(t *testing.T, to string, each int) (writes []string) {
	t.Helper()
	const most = 200
	nats := o.cut(t, 0)
	defer nats.Close()
	for range most {
		o.released(t)
		proxy, kubeconfig := o.proxy(t)
		running := make(chan *supervised, 1)
		kill := proxy.KillAmong(acts, each, faultproxy.After, func() { (<-running).Kill() })
		p := o.supervise(t, kubeconfig, nats)
		running <- p
		poll.Until(t, 5*time.Minute, "the operator writes, or all is done", func(ctx context.Context) error {
			if _, dead := kill.At(); !dead {
				return o.isSwitched(ctx, to)
			}
			return nil
		})
		at, dead := kill.At()
		if !dead {
			p.Kill()
		}
		proxy.Close()
		if !dead {
			return writes
		}
		writes = append(writes, at.String())
	}
	t.Fatalf("after %d writes nothing is reached: %q", most, writes)
	return nil
}

// killedAtData starts one operator after the other. The first is killed when it sends its first
// piece of data to NATS, the second at its second, and so on.
func (o *outside) killedAtData(t *testing.T, to string, each int) (lives []string) {
	t.Helper()
	const most = 200
	for n := int64(1); n <= most; n += int64(each) {
		o.released(t)
		proxy, kubeconfig := o.proxy(t)
		nats := o.cut(t, n)
		p := o.supervise(t, kubeconfig, nats)
		poll.Until(t, 5*time.Minute, "the operator sends, or all is done", func(ctx context.Context) error {
			if nats.Sent() < n {
				return o.isSwitched(ctx, to)
			}
			return nil
		})
		done := nats.Sent() < n
		p.Kill()
		nats.Close()
		proxy.Close()
		if done {
			return lives
		}
		lives = append(lives, fmt.Sprintf("piece %d", n))
	}
	t.Fatalf("killed at %d pieces of data, and nothing is reached", most)
	return nil
}

// TestSoakFlippedBack changes the backend in the spec back when the operator makes its first write
// of a switch, its second, and so on. Then the Eventing is deleted at some of these writes.
func TestSoakFlippedBack(t *testing.T) {
	each := sampled(t)
	o := startOutside(t)
	o.accepted(t, 500)
	was := "NATS"
	writes := map[string]int{}
	for _, to := range []string{"EventMesh", "NATS"} {
		for n, done := 1, false; !done; n += each {
			o.prober.Step(fmt.Sprintf("to %s, flipped back at write %d", to, n))
			began := time.Now()
			flip := func(ctx context.Context) error { return o.patch(ctx, was) }
			o.during(t, to, n, flip, func(at string) {
				if done = at == ""; done {
					return
				}
				o.switched(t, was, 5*time.Minute)
				writes[to] = n
				t.Logf("to %s: flipped back at write %d, %s: %.0f s", to, n, at, time.Since(began).Seconds())
			})
			if done {
				o.only(t, to)
			} else {
				o.only(t, was)
			}
		}
		was = to
	}
	o.nothingLost(t)
	for _, to := range []string{"EventMesh", "NATS"} {
		for _, third := range []int{1, 2} {
			o.deletedDuring(t, to, max(1, writes[to]*third/3))
		}
	}
}

// TestSoakFaults switches to both backends, deletes the Eventing and installs it again, while one
// in five requests of the operator fails at random.
func TestSoakFaults(t *testing.T) {
	const rate, limit = 0.2, 10 * time.Minute
	switches := measure.Number(t, "EVENTING_SOAK_FAULTY", 8)
	o := startOutside(t)
	o.accepted(t, 500)
	requests, faults := 0, 0
	faulty := func(seed uint64, do func(t *testing.T)) string {
		o.released(t)
		proxy, kubeconfig := o.proxy(t)
		defer proxy.Close()
		nats := o.cut(t, 0)
		defer nats.Close()
		dealt := proxy.RandomFaults(seed, rate)
		p := o.supervise(t, kubeconfig, nats)
		defer p.Kill()
		do(t)
		n, failed := dealt.Total()
		requests, faults = requests+n, faults+failed
		return dealt.String()
	}
	to := "NATS"
	for i := range switches {
		to = []string{"EventMesh", "NATS"}[i%2]
		o.prober.Step(fmt.Sprintf("faults, seed %d, to %s", i, to))
		began := time.Now()
		dealt := faulty(uint64(i), func(t *testing.T) { //nolint:gosec // it is not negative
			o.want(t, to)
			o.switched(t, to, limit)
		})
		o.only(t, to)
		t.Logf("to %s in %.0f s, seed %d: %s", to, time.Since(began).Seconds(), i, dealt)
		o.accepted(t, 200)
	}
	o.nothingLost(t)
	o.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "--all", "--timeout=60s")
	dealt := faulty(uint64(switches), func(t *testing.T) { //nolint:gosec // it is above 0
		o.deleted(t, 0)
		o.install(t)
	})
	t.Logf("deleted and installed, seed %d: %s", switches, dealt)
	t.Logf("%d switches, %d of %d requests failed", switches, faults, requests)
	if faults*10 < requests {
		t.Errorf("%d of %d requests failed", faults, requests)
	}
}

// deletedDuring deletes the Eventing at the n-th write of a switch. Then nobody publishes any more,
// the Subscriptions are deleted, and the Eventing goes. Everything is there again when it returns.
func (o *outside) deletedDuring(t *testing.T, to string, n int) {
	t.Helper()
	o.send(t)
	if from := map[string]string{"EventMesh": "NATS", "NATS": "EventMesh"}[to]; o.isSwitched(t.Context(), from) != nil {
		o.during(t, from, -1, nil, func(string) {})
	}
	o.prober.Step(fmt.Sprintf("to %s, deleted at write %d", to, n))
	remove := func(ctx context.Context) error {
		return o.dynamic.Resource(eventings).Namespace(o.namespace).Delete(ctx, o.name, metav1.DeleteOptions{})
	}
	began := time.Now()
	o.during(t, to, n, remove, func(at string) {
		if at == "" {
			t.Fatalf("the switch to %s has no write %d", to, n)
		}
		o.accepted(t, 200)
		o.nothingLost(t)
		o.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "--all", "--timeout=60s")
		o.deleted(t, 0)
		t.Logf("to %s: deleted at write %d, %s: %.0f s", to, n, at, time.Since(began).Seconds())
		o.install(t)
	})
}

// held is a write that was held up.
type held struct {
	request string
	err     error
}

// during switches, and does something while the n-th write is held up. Then it calls after, with
// that write; "" if the switch was done before. The operator ends when it returns.
func (o *outside) during(t *testing.T, to string, n int, do func(context.Context) error, after func(at string)) {
	t.Helper()
	o.released(t)
	proxy, kubeconfig := o.proxy(t)
	defer proxy.Close()
	nats := o.cut(t, 0)
	defer nats.Close()
	at := holdNth(proxy, n, do)
	o.want(t, to)
	p := o.supervise(t, kubeconfig, nats)
	defer p.Kill()
	var is held
	poll.Until(t, 5*time.Minute, fmt.Sprintf("the operator makes write %d, or all is done", n), func(ctx context.Context) error {
		select {
		case is = <-at:
			return nil
		default:
			return o.isSwitched(ctx, to)
		}
	})
	if is.err != nil {
		t.Fatal(is.err)
	}
	after(is.request)
}

// holdNth does something before the n-th write reaches the API server.
func holdNth(p *faultproxy.Proxy, n int, do func(context.Context) error) <-chan held {
	var writes atomic.Int64
	at := make(chan held, 1)
	p.Use(func(ctx context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
		if r.Writes() && acts(r) && writes.Add(1) == int64(n) {
			at <- held{r.String(), do(ctx)}
		}
		return next()
	})
	return at
}

// patch writes the backend into the spec.
func (o *outside) patch(ctx context.Context, to string) error {
	_, err := o.dynamic.Resource(eventings).Namespace(o.namespace).Patch(ctx, o.name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"backend":{"type":%q}}}`, to), metav1.PatchOptions{})
	return err
}
