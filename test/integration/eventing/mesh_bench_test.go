//go:build e2e && bench

package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// benchLease is that of pods: on a busy machine, a process with the short one of tests loses it.
const benchLease = "--lease-duration=15s"

// TestBenchMeshSubscriptions: how long 1,000 Subscriptions in 100 namespaces take from NATS to the
// mesh and back, and what is written for that. The steps are those of the operator, which goes on
// when the controller tells it that all Subscriptions are ready. Their statuses may come later.
func TestBenchMeshSubscriptions(t *testing.T) {
	count := measure.Number(t, "EVENTING_BENCH_SUBSCRIPTIONS", 1000)
	const most, bar = 10 * time.Minute, 30 * time.Second
	r := newKnativeRig(t, benchLease, "--log-level=warn")
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
	for _, way := range [][][]operatorv1alpha1.BackendType{
		{{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS}, {operatorv1alpha1.EventMesh}},
		{{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS}, {operatorv1alpha1.NATS}},
	} {
		var took time.Duration
		whole, err := cluster.Mark(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, serving := range way {
			step, set := time.Now(), fmt.Sprint(serving)
			epoch = r.serveMesh(serving...)
			told := r.awaitTold(most, serving, epoch)
			took += told
			r.awaitAll(most, strings.Join(strings.Fields(strings.Trim(set, "[]")), ","), epoch, count)
			t.Logf("%d Subscriptions, %s: the operator is told after %s, and all statuses say it after %s", count, set, told.Round(100*time.Millisecond), time.Since(step).Round(100*time.Millisecond))
		}
		if took > bar {
			t.Errorf("%d Subscriptions took %s to %v, at most %s", count, took.Round(100*time.Millisecond), way[1], bar)
		}
		if each := r.writes(t, whole, count); each > 5 {
			t.Errorf("%.2f writes for one Subscription, at most 5", each)
		}
	}
}

// awaitTold waits until the operator is told that all Subscriptions are ready in an epoch, and
// returns how long that took.
func (r *knativeRig) awaitTold(most time.Duration, serving backend.Set, epoch string) time.Duration {
	r.t.Helper()
	began := time.Now()
	poll.Until(r.t, most, fmt.Sprintf("all Subscriptions are ready on %s", serving), func(ctx context.Context) error {
		data, err := r.said(ctx, backend.Names(backend.DefaultPrefix).ControllerState())
		if err != nil {
			return err
		}
		state, err := backend.ParseControllerState(data)
		if err != nil {
			return err
		}
		if state.Epoch != epoch || len(state.Ready) != len(serving) {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	return time.Since(began)
}

// awaitAll waits until the statuses of all Subscriptions say that they are ready in an epoch.
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

// writes logs the requests of the controllers since a mark, and returns how many writes there were
// for one Subscription.
func (r *knativeRig) writes(t *testing.T, mark kubernetes.Mark, count int) float64 {
	t.Helper()
	requests, err := cluster.Requests(t.Context(), mark, kubernetes.All(kubernetes.By("eventing-controller"), func(q kubernetes.Request) bool {
		return strings.HasSuffix(q.Resource, "/subscriptions") || strings.HasSuffix(q.Resource, "/triggers") || strings.HasSuffix(q.Resource, "configmaps")
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

// TestBenchMesh: the whole way of an event, from the publisher over the Broker and the controller
// to its sink, beside a reverse proxy before the same Broker and a Trigger that leads to the same
// sink at once. In turns; what is reported is the median of the ratios. A third way has two reverse
// proxies, one where the publisher is and one where the controllers are: what two more programs on
// the way take at least, whatever they do.
func TestBenchMesh(t *testing.T) {
	const direct, relayed = "order.direct.v1", "order.relayed.v1"
	pairs, clients := measure.Number(t, "EVENTING_BENCH_PAIRS", benchPairs), measure.Number(t, "EVENTING_BENCH_CLIENTS", 32)
	r := newKnativeRig(t, benchLease, "--log-level=warn")
	var got atomic.Int64
	l, err := net.Listen("tcp", ":0") // pods reach it at the address of this machine, controllers at that of the loopback
	if err != nil {
		t.Fatal(err)
	}
	sink := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		got.Add(1)
	}))
	_ = sink.Listener.Close()
	sink.Listener = l
	sink.Start()
	t.Cleanup(sink.Close)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := object(t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: bench}, spec: {sink: 'http://bench.%s.svc.cluster.local:%s/', source: commerce, types: [%s], config: {maxInFlightMessages: '100'}}}",
		r.namespace, port, benchType))
	if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Create(t.Context(), s, strict); err != nil {
		t.Fatal(err)
	}
	r.await("bench", "ready", onMesh(r.epoch, true))
	proxy, proxyPID := startServer(t, "./test/bench/eventservice", "-role=proxy", "-target="+r.ingress)
	relay, relayPID := startServer(t, "./test/bench/eventservice", "-role=proxy", "-listen="+net.JoinHostPort(cluster.Host, "0"), "-target=http://"+net.JoinHostPort("127.0.0.1", port))
	for eventType, subscriber := range map[string]string{direct: "http://" + net.JoinHostPort(cluster.Host, port), relayed: relay} {
		name := strings.Split(eventType, ".")[1]
		u := object(t, fmt.Sprintf("{apiVersion: eventing.knative.dev/v1, kind: Trigger, metadata: {name: %s}, spec: {broker: %s, filter: {attributes: {type: %s}}, subscriber: {uri: '%s/'}}}",
			name, meshBroker, eventType, subscriber))
		if _, err := r.client.Resource(triggers).Namespace(r.control).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	way := map[string]string{direct: proxy, relayed: proxy, benchType: r.publisher.URL + "/publish"}
	for eventType := range way {
		poll.Until(t, limit, "events of "+eventType+" come to the sink", func(context.Context) error {
			before := got.Load()
			load(t, way[eventType], eventType, 1, 100*time.Millisecond)
			if got.Load() == before {
				return errors.New("none did")
			}
			return nil
		})
		load(t, way[eventType], eventType, clients, benchEach) // warm
	}
	processes := map[string][]int{direct: {proxyPID}, relayed: {proxyPID, relayPID}, benchType: {r.publisher.PID(), r.controllers[0].PID(), r.controllers[1].PID()}}
	cpu := func(eventType string) float64 {
		spent := 0.0
		for _, pid := range processes[eventType] {
			spent += measure.CPU(pid)
		}
		return spent
	}
	ratios := map[string][]float64{}
	for i := range pairs {
		order := []string{direct, relayed, benchType}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		loads, spent := map[string]*eventservice.Load{}, map[string]float64{}
		for _, eventType := range order {
			before, began := got.Load(), cpu(eventType)
			loads[eventType] = load(t, way[eventType], eventType, clients, benchEach)
			events := len(loads[eventType].Latencies)
			spent[eventType] = (cpu(eventType) - began) / float64(events)
			if came := got.Load() - before; came < int64(events) {
				t.Errorf("%s: %d of %d events came to the sink", eventType, came, events)
			}
		}
		perSecond := func(eventType string) float64 {
			return float64(len(loads[eventType].Latencies)) / loads[eventType].Took.Seconds()
		}
		tail := func(eventType string) float64 { return float64(loads[eventType].Percentile(99)) }
		for figure, ratio := range map[string]float64{
			"throughput":                perSecond(benchType) / perSecond(direct),
			"p99":                       tail(benchType) / tail(direct),
			"CPU":                       spent[benchType] / spent[direct],
			"throughput of two proxies": perSecond(relayed) / perSecond(direct),
			"CPU of two proxies":        spent[relayed] / spent[direct],
			"CPU, beside two proxies":   spent[benchType] / spent[relayed],
		} {
			ratios[figure] = append(ratios[figure], ratio)
		}
		t.Logf("events in a second: proxy and direct Trigger %.0f, two proxies %.0f, publisher and controller %.0f", perSecond(direct), perSecond(relayed), perSecond(benchType))
	}
	for _, figure := range slices.Sorted(maps.Keys(ratios)) {
		all := ratios[figure]
		slices.Sort(all)
		t.Logf("%s: median %.2f (%.2f … %.2f) of %d pairs with %d clients and %d bytes", figure, all[pairs/2], all[0], all[pairs-1], pairs, clients, publishedSize)
	}
}
