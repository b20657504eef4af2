//go:build bench

package eventing_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

const (
	benchPairs    = 9
	benchClients  = 64
	benchEach     = 3 * time.Second
	publishedSize = 1024
	benchType     = "order.created.v1"
	// manyClients is how many clients the memory is measured with.
	manyClients = 256
)

// load sends events of 1 KiB to a URL, each with an id of its own, from so many clients, each as
// soon as it has its answer.
func load(t *testing.T, url, eventType string, clients int, each time.Duration) *eventservice.Load {
	t.Helper()
	client := eventservice.NewClient(clients)
	defer client.CloseIdleConnections()
	var (
		mu   sync.Mutex
		l    = &eventservice.Load{Statuses: map[int]int{}}
		all  sync.WaitGroup
		body = strings.Repeat("x", publishedSize)
		now  = time.Now()
	)
	for range clients {
		all.Go(func() {
			var latencies []time.Duration
			statuses := map[int]int{}
			for time.Since(now) < each {
				began := time.Now()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header = http.Header{
					"Ce-Specversion": {"1.0"}, "Ce-Id": {fmt.Sprintf("%d-%d", now.UnixNano(), number.Add(1))}, "Ce-Source": {"commerce"}, "Ce-Type": {eventType},
					"Content-Type": {"text/plain"},
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				statuses[resp.StatusCode]++
				latencies = append(latencies, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			l.Latencies = append(l.Latencies, latencies...)
			for status, n := range statuses {
				l.Statuses[status] += n
			}
		})
	}
	all.Wait()
	l.Took = time.Since(now)
	slices.Sort(l.Latencies)
	if len(l.Latencies) == 0 || l.Answered(http.StatusNoContent)+l.Answered(http.StatusAccepted) != len(l.Latencies) { // the Broker answers with 202
		t.Fatalf("not every event was accepted: %v", l.Statuses)
	}
	return l
}

var number atomic.Int64

// startBare starts the least that stores events in JetStream.
func startBare(t *testing.T, pub *publisher, url string) (string, int) {
	t.Helper()
	return startServer(t, "./test/bench/publisher", "-url="+url, "-subject="+backend.Subject("commerce", benchType), "-seed-file="+pub.seedFile, "-ca-file="+pub.file)
}

// startServer starts a program that writes its URL first, and returns that and the process.
func startServer(t *testing.T, program string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(process.Build(t, program), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var address string
	if _, err := fmt.Fscanln(out, &address); err != nil {
		t.Fatal(err)
	}
	return address, cmd.Process.Pid
}

// TestPublisherBench divides the publisher by a handler that only publishes: each a process, in
// turns, in front of the same server and stream.
func TestPublisherBench(t *testing.T) {
	for _, sync := range []string{"10s", "always"} {
		t.Run("sync "+sync, func(t *testing.T) {
			p := startNATSWith(t, sync)
			receiver(t, p, stream.Config(wide(), "e1", true))
			manager := js(t, p.as(t, "manager"))
			purge := func() {
				s, err := manager.Stream(t.Context(), backend.Stream)
				if err == nil {
					err = s.Purge(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			pub := startPublisher(t, p, nil)
			pub.awaitReady()
			bare, barePID := startBare(t, pub, p.backends().NATS.URL)
			for _, url := range []string{bare, pub.URL} {
				load(t, url+"/publish", benchType, benchClients, time.Second) // warm
				purge()
			}
			processes := map[string]int{bare: barePID, pub.URL: pub.PID()}
			var throughput, tail, effort []float64
			for i := range benchPairs {
				order := []string{bare, pub.URL}
				if i%2 == 1 {
					slices.Reverse(order)
				}
				loads, spent := map[string]*eventservice.Load{}, map[string]float64{}
				for _, url := range order {
					before := measure.CPU(processes[url])
					loads[url] = load(t, url+"/publish", benchType, benchClients, benchEach)
					spent[url] = (measure.CPU(processes[url]) - before) / float64(len(loads[url].Latencies))
					purge()
				}
				perSecond := func(l *eventservice.Load) float64 { return float64(len(l.Latencies)) / l.Took.Seconds() }
				a, b := loads[bare], loads[pub.URL]
				throughput = append(throughput, perSecond(b)/perSecond(a))
				tail = append(tail, float64(b.Percentile(99))/float64(a.Percentile(99)))
				effort = append(effort, spent[pub.URL]/spent[bare])
				t.Logf("handler %.0f/s p99 %s, publisher %.0f/s p99 %s: throughput %.2f, p99 %.2f, CPU for one event %.2f",
					perSecond(a), a.Percentile(99), perSecond(b), b.Percentile(99), throughput[i], tail[i], effort[i])
			}
			slices.Sort(throughput)
			slices.Sort(tail)
			slices.Sort(effort)
			t.Logf("medians of %d pairs, %d clients, %d bytes: throughput %.2f (at least 0.8), p99 %.2f (at most 1.5), CPU for one event %.2f",
				benchPairs, benchClients, publishedSize, throughput[benchPairs/2], tail[benchPairs/2], effort[benchPairs/2])
			t.Logf("bare nats.go with %d publishers: %.0f/s", benchClients, direct(t, p))
			purge()
		})
	}
}

// direct is how many events a second nats.go alone publishes.
func direct(t *testing.T, p *plane) float64 {
	t.Helper()
	publisher, body := js(t, p.as(t, "publisher")), []byte(strings.Repeat("x", publishedSize))
	ctx, cancel := context.WithTimeout(t.Context(), benchEach)
	defer cancel()
	began := time.Now()
	var n atomic.Int64
	var all sync.WaitGroup
	for range benchClients {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := publisher.Publish(t.Context(), backend.Subject("commerce", benchType), body, jetstream.WithMsgID(fmt.Sprint(number.Add(1)))); err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}

// TestPublisherMemory: with many clients, each sending as fast as it can.
func TestPublisherMemory(t *testing.T) {
	p := startNATS(t)
	receiver(t, p, stream.Config(wide(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	load(t, pub.URL+"/publish", benchType, manyClients, 2*benchEach)
	if peak := measure.Peak(pub.PID()); peak > 64 {
		t.Errorf("%d clients: %.0f MiB at most 64", manyClients, peak)
	} else {
		t.Logf("%d clients: %.0f MiB at its peak", manyClients, peak)
	}
}
