//go:build bench

package eventing_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// counter is a sink that counts, and lets requests wait until it is opened.
type counter struct {
	*httptest.Server
	waiting, n atomic.Int64
	gate       atomic.Pointer[chan struct{}]
}

func startCounter(t *testing.T) *counter {
	c := &counter{}
	c.close()
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		c.waiting.Add(1)
		select {
		case <-*c.gate.Load():
			c.n.Add(1)
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(func() {
		c.CloseClientConnections() // requests may wait for the gate, and Close for them
		c.Server.Close()
	})
	return c
}

func (c *counter) close() {
	gate := make(chan struct{})
	c.gate.Store(&gate)
	c.waiting.Store(0)
	c.n.Store(0)
}

// TestBenchDelivery: the controller beside a bare loop that pulls, posts and acknowledges, in
// turns, over the same stream and for the same Subscriptions. What is reported is the median of the
// ratios of their throughputs.
func TestBenchDelivery(t *testing.T) {
	pairs, events := measure.Number(t, "EVENTING_BENCH_PAIRS", 9), measure.Number(t, "EVENTING_BENCH_EVENTS", 20_000)
	for _, subscribers := range []int{1, 100, 1000} {
		t.Run(strconv.Itoa(subscribers), func(t *testing.T) { benchDelivery(t, subscribers, pairs, events) })
	}
}

// benchDelivery compares the two with so many Subscriptions.
func benchDelivery(t *testing.T, subscribers, pairs, events int) {
	t.Helper()
	if subscribers == 1000 {
		pairs, events = min(pairs, 3), max(events, 50_000)
	}
	r := newRig(t, true)
	sink := startCounter(t)
	r.subscribeMany(t, subscribers, sink)
	create := r.controller("pod-1", "--lease-duration=1s")
	var consumers []string
	for i := range subscribers {
		name := fmt.Sprintf("s%d", i)
		r.await(name, "ready", ready)
		consumers = append(consumers, backend.ConsumerName(r.namespace, name))
	}
	create.Kill()
	r.awaitForgotten(t, consumers)
	start := [2]func() *process.Process{
		func() *process.Process {
			return process.Start(t, process.Program{Binary: process.Build(t, "./test/bench/eventing"), Args: []string{
				"--url=" + strings.Replace(r.URL, "127.0.0.1", "localhost", 1), "--seed=" + filepath.Join(r.files, "controller"),
				"--ca=" + filepath.Join(r.files, "ca.crt"), "--sink=" + sink.URL, "--consumers=" + strings.Join(consumers, ","),
			}})
		},
		func() *process.Process { return r.controller("pod-1", "--lease-duration=1s", "--log-level=warn") },
	}
	var ratios []float64
	for pair := range pairs {
		var took [2]float64
		for k := range 2 {
			which := (k + pair) % 2 // A B, B A, A B …
			r.fill(t, subscribers, events)
			sink.close()
			p := start[which]()
			// Processes start and connect as long as they like: the time begins when all that
			// may be in flight is.
			reach := func(what string, of *atomic.Int64, n int) {
				poll.Until(t, 2*time.Minute, fmt.Sprintf("%s: %s", p, what), func(context.Context) error {
					if is := of.Load(); is < int64(n) {
						return fmt.Errorf("%d of %d", is, n)
					}
					return nil
				})
			}
			reach("requests wait", &sink.waiting, min(10*subscribers, events, 4000)) // more have no room in the controller
			began := time.Now()
			close(*sink.gate.Load())
			reach("events are delivered", &sink.n, events)
			took[which] = float64(events) / time.Since(began).Seconds()
			r.awaitEmpty(t)
			p.Kill()
			r.awaitForgotten(t, consumers)
		}
		ratios = append(ratios, took[1]/took[0])
		t.Logf("%d Subscriptions, pair %d: bare loop %.0f/s, controller %.0f/s", subscribers, pair+1, took[0], took[1])
	}
	slices.Sort(ratios)
	t.Logf("%d Subscriptions: controller / bare loop: median %.2f (%.2f … %.2f)", subscribers, ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	r.clear()
}

// awaitForgotten waits until NATS has no request of a process that was killed. It would send events
// to it, and to the next process only when nobody has acknowledged them for long.
func (r *rig) awaitForgotten(t *testing.T, consumers []string) {
	t.Helper()
	for _, name := range consumers {
		poll.Until(t, limit, "NATS has no request for events of "+name, func(ctx context.Context) error {
			c, err := r.manager.Consumer(ctx, backend.Stream, name)
			if err == nil && c.CachedInfo().NumWaiting > 0 {
				err = fmt.Errorf("%d wait", c.CachedInfo().NumWaiting)
			}
			return err
		})
	}
}

// subscribeMany creates so many Subscriptions, each to a type of its own, with one sink and a
// Service each.
func (r *rig) subscribeMany(t *testing.T, n int, sink *counter) {
	t.Helper()
	_, port, _ := net.SplitHostPort(sink.Listener.Addr().String())
	for i := range n {
		// Without it, the status would say so until the first event is taken, and its change would
		// be measured, too.
		service := object(t, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s%d}, spec: {clusterIP: None, ports: [{port: %s}]}}", i, port))
		if _, err := r.client.Resource(corev1.SchemeGroupVersion.WithResource("services")).Namespace(r.namespace).Create(t.Context(), service, strict); err != nil {
			t.Fatal(err)
		}
		s := object(t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: s%d}, spec: {sink: 'http://s%d.%s.svc.cluster.local:%s/', source: commerce, types: [t%d.v1]}}", i, i, r.namespace, port, i))
		if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Create(t.Context(), s, strict); err != nil {
			t.Fatal(err)
		}
	}
}

// fill publishes events to all types in turns, many at a time.
func (r *rig) fill(t *testing.T, types, events int) {
	t.Helper()
	round := time.Now().UnixNano()
	var futures []jetstream.PubAckFuture
	for i := range events {
		f, err := r.publisher.PublishMsgAsync(event(fmt.Sprintf("t%d.v1", i%types), fmt.Sprintf("%d-%d", round, i), `{"order": 4711, "text": "`+string(bytes.Repeat([]byte("x"), 900))+`"}`), jetstream.WithStallWait(limit))
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			t.Fatal(err)
		}
	}
}

// TestBenchSubscriptions: how long 1,000 Subscriptions in 100 namespaces take to be ready, and the
// memory of the controller then.
func TestBenchSubscriptions(t *testing.T) {
	count := measure.Number(t, "EVENTING_BENCH_SUBSCRIPTIONS", 1000)
	r := newRig(t, true)
	var in []string
	for range max(count/10, 1) {
		in = append(in, r.newNamespace("scale"))
	}
	for i := range count {
		namespace := in[i%len(in)]
		s := object(t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: s%d}, spec: {sink: 'http://s%d.%s.svc.cluster.local/', source: commerce, types: [t%d.v1]}}", i, i, namespace, i))
		if _, err := r.client.Resource(subscriptions).Namespace(namespace).Create(t.Context(), s, strict); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	program := r.program("pod-1", "--log-level=warn")
	program.Measured = true
	p := process.Start(t, program)
	poll.Until(t, 5*time.Minute, "all Subscriptions have a consumer", func(ctx context.Context) error {
		s, err := r.manager.Stream(ctx, backend.Stream)
		if err == nil && s.CachedInfo().State.Consumers < count {
			err = fmt.Errorf("%d of %d", s.CachedInfo().State.Consumers, count)
		}
		return err
	})
	for i := range count {
		name, namespace := fmt.Sprintf("s%d", i), in[i%len(in)]
		(&rig{t: t, client: r.client, namespace: namespace}).await(name, "ready", ready)
	}
	took := time.Since(began)
	p.Kill()
	t.Logf("%d Subscriptions: ready after %s, at most %.0f MiB", count, took.Round(time.Millisecond), p.Usage().PeakMiB)
}

// TestBenchMemory: the most memory of the controller while it has work: 1,000 Subscriptions with
// 50,000 events that are stored when it starts, and one Subscription with 1,000 events of 1 MiB in
// flight whose sink takes its time. GOMEMLIMIT is what it would take of the limit of the chart.
func TestBenchMemory(t *testing.T) {
	const chart = 512 // MiB
	count := measure.Number(t, "EVENTING_BENCH_SUBSCRIPTIONS", 1000)
	for _, tc := range []struct {
		reason                      string
		subscribers, events, larger int
		more                        string
	}{
		{"many Subscriptions", count, 50 * count, 0, ""},
		{"large events", 1, 600, 1<<20 - 2000, `, config: {maxInFlightMessages: "1000"}`},
	} {
		r := newRig(t, true)
		sink := startCounter(t)
		_, port, _ := net.SplitHostPort(sink.Listener.Addr().String())
		for i := range tc.subscribers {
			s := object(t, fmt.Sprintf("{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: s%d}, spec: {sink: 'http://s%d.%s.svc.cluster.local:%s/', source: commerce, types: [t%d.v1]%s}}", i, i, r.namespace, port, i, tc.more))
			if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Create(t.Context(), s, strict); err != nil {
				t.Fatal(err)
			}
		}
		create := r.controller("pod-1", "--lease-duration=15s")
		poll.Until(t, 10*time.Minute, "all Subscriptions have a consumer", func(ctx context.Context) error {
			s, err := r.manager.Stream(ctx, backend.Stream)
			if err == nil && s.CachedInfo().State.Consumers < tc.subscribers {
				err = fmt.Errorf("%d of %d", s.CachedInfo().State.Consumers, tc.subscribers)
			}
			return err
		})
		create.Kill()
		if tc.larger == 0 {
			r.fill(t, tc.subscribers, tc.events)
		}
		for i := range tc.events {
			if tc.larger == 0 {
				break
			}
			if _, err := r.publisher.PublishMsg(t.Context(), event("t0.v1", strconv.Itoa(i), `"`+strings.Repeat("x", tc.larger)+`"`)); err != nil {
				t.Fatal(err)
			}
		}
		program := r.program("pod-1", "--lease-duration=15s", "--log-level=warn")
		program.Measured = true
		program.Env = append(program.Env, fmt.Sprintf("GOMEMLIMIT=%dMiB", chart*8/10))
		p := process.Start(t, program)
		poll.Until(t, 2*time.Minute, "events wait at the sink", func(context.Context) error {
			if n := sink.waiting.Load(); n < 50 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		time.Sleep(10 * time.Second) // the sink takes its time, and the rest comes meanwhile
		waited := sink.waiting.Load()
		began := time.Now()
		close(*sink.gate.Load())
		poll.Until(t, 10*time.Minute, "all events are taken", func(context.Context) error {
			if n := sink.n.Load(); n < int64(tc.events) {
				return fmt.Errorf("%d of %d", n, tc.events)
			}
			return nil
		})
		took := time.Since(began)
		p.Kill()
		t.Logf("%s: %d events at the sink at the same time, all %d taken after %s (%.0f/s), at most %.0f MiB of %d", tc.reason, waited, tc.events, took.Round(time.Millisecond),
			float64(tc.events)/took.Seconds(), p.Usage().PeakMiB, chart)
		if p.Usage().PeakMiB > chart*8/10 {
			t.Errorf("%s: at most %.0f MiB, want 80 %% of %d", tc.reason, p.Usage().PeakMiB, chart)
		}
		r.clear()
	}
}
