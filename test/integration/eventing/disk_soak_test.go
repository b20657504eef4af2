//go:build soak

package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestSoakDisk measures how much disk a stream takes, with all that its consumers write: random
// mixes of consumers that take events at once, late and never, and events of 100 bytes to 1 MiB,
// until the stream is full; with one server, and with three. The rule for the size of a stream
// (decision 1362) is twice its size; the reserve of the volume has more than one file. The logs of
// Raft are no part of it: three servers write each event there, too, and drop it at most every ten
// seconds, so that they follow the rate and not the size. What protects the volume from them is
// the reserve (TestFullVolumesOfThree).
func TestSoakDisk(t *testing.T) {
	const size = 32 << 20
	mixes := 6
	const file = 8 << 20 // the one that is being written
	for _, servers := range []int{1, 3} {
		worst := int64(0)
		for mix := range mixes {
			t.Run(fmt.Sprintf("%dServers/%d", servers, mix), func(t *testing.T) {
				most := fill(t, servers, uint64(mix), size) //nolint:gosec // never negative
				t.Logf("%.1f MiB on the disk for a stream of %d MiB: %.2f; logs of Raft: %.1f MiB", float64(most.stream)/(1<<20), size>>20, float64(most.stream)/size, float64(most.raft)/(1<<20))
				worst = max(worst, most.stream)
			})
		}
		if worst > 2*size+file {
			t.Errorf("%d servers: a stream of %d bytes takes %d: the rule in internal/eventing/decide says twice its size", servers, int64(size), worst)
		}
	}
}

// fill fills a stream with a mix, and returns the most that the files of one server had.
func fill(t *testing.T, servers int, seed uint64, size int64) (most disk) {
	p := startServers(t, servers, 0, "10s")
	ctx := t.Context()
	r := rand.New(rand.NewPCG(seed, 36)) //nolint:gosec // a mix is repeated by its number
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSStreamMaxSize, config.NATSMaxMsgsPerTopic = *resource.NewQuantity(size, resource.BinarySI), 10_000_000
	config.NATSStreamReplicas = int32(servers) //nolint:gosec // 1 or 3
	p.createStream(t, manager, stream.Config(config, "e1", true))
	p.purging(t, controller)
	kinds := []string{"dead", "live"} // the worst two are always there
	for range r.IntN(4) {
		kinds = append(kinds, []string{"dead", "live", "slow"}[r.IntN(3)])
	}
	largest := 100 * math.Pow(10_000, r.Float64()) // of this mix
	sizes := make([]float64, len(kinds))
	for i, kind := range kinds {
		sizes[i] = min(100*math.Pow(largest/100, r.Float64()), 1<<20)
		c, err := controller.CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", fmt.Sprint(kind, i), []string{backend.Filter("commerce", fmt.Sprintf("type%d.v1", i))}, false))
		if err != nil {
			t.Fatal(err)
		}
		if kind == "dead" {
			continue
		}
		taking, err := c.Consume(func(m jetstream.Msg) {
			if kind == "slow" {
				time.Sleep(5 * time.Millisecond)
			}
			_ = m.Ack()
		})
		if err != nil {
			t.Fatal(err)
		}
		defer taking.Stop()
	}
	t.Logf("consumers %v, events of %.0f bytes", kinds, sizes)
	for n, full := 0, false; !full; {
		var batch []jetstream.PubAckFuture
		for range 50 {
			i := r.IntN(len(kinds))
			sent, err := publisher.PublishMsgAsync(event(fmt.Sprintf("type%d.v1", i), fmt.Sprint(n), string(make([]byte, int(sizes[i])))), jetstream.WithRetryAttempts(0))
			if err != nil {
				t.Fatal(err)
			}
			batch = append(batch, sent)
			n++
		}
		for _, sent := range batch {
			select {
			case <-sent.Ok():
			case err := <-sent.Err():
				var refused *jetstream.APIError
				if full = errors.As(err, &refused); !full {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("NATS does not answer")
			}
		}
		for _, s := range p.servers {
			stream, raft := used(t, s.Data())
			most.stream, most.raft = max(most.stream, stream), max(most.raft, raft)
		}
	}
	return most
}

// disk is what files of one server have: those of the stream with its consumers, and the logs of
// Raft.
type disk struct{ stream, raft int64 }

// used is what files have on the disk. One that is deleted meanwhile has nothing.
func used(t *testing.T, dir string) (stream, raft int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var is os.FileInfo
		if err == nil {
			is, err = os.Lstat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if stat, ok := is.Sys().(*syscall.Stat_t); ok && strings.Contains(path, "/_js_/") {
			raft += stat.Blocks * 512
		} else if ok {
			stream += stat.Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream, raft
}

// TestSoakHangingDisk: the disk of one of three servers after the other answers nothing for 40
// seconds, beginning with the one that leads. No write fails. Meanwhile clients of each server
// publish, and a consumer takes the events. The others go on, and no accepted event is lost.
func TestSoakHangingDisk(t *testing.T) {
	// 10 s until the server ends, 8 until its clients give it up, and up to 9 until another one
	// leads, in part at the same time.
	const longest, hangs = 30 * time.Second, 40 * time.Second
	p := startPlane(t, 3, "always", func(config string, tls map[string][]byte) []*natsserver.Server {
		return natsserver.StartClusterOnDisks(t, 3, 256<<20, config, tls)
	})
	manager := js(t, p.as(t, "manager"))
	config := small()
	config.NATSStreamMaxSize, config.NATSMaxMsgsPerTopic, config.NATSStreamReplicas = resource.MustParse("64Mi"), 10_000, 3
	p.createStream(t, manager, stream.Config(config, "e1", true))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := &throughHangs{accepted: map[string]bool{}, arrived: map[string]int{}}
	all.take(t, js(t, p.as(t, "controller")))
	var clients sync.WaitGroup
	for i, s := range p.servers {
		clients.Go(func() { all.publish(ctx, t, p, s, strconv.Itoa(i)) })
	}
	for range 3 {
		time.Sleep(5 * time.Second)
		s, err := manager.Stream(ctx, backend.Stream)
		if err != nil {
			t.Fatal(err)
		}
		leader := s.CachedInfo().Cluster.Leader
		server := p.servers[slices.IndexFunc(p.servers, func(s *natsserver.Server) bool { return s.Name() == leader })]
		goOn := server.HangDisk()
		time.Sleep(hangs)
		goOn()
		select {
		case <-server.Exited():
			server.Launch() // as Kubernetes does it
		case <-time.After(5 * time.Second):
			t.Errorf("%s did not end", leader)
		}
		t.Logf("%s, which led, hung for %s: %s", leader, hangs, all)
	}
	cancel()
	clients.Wait()
	poll.Until(t, time.Minute, "all accepted events have arrived", func(context.Context) error {
		if lost := all.lost(); len(lost) > 0 {
			return fmt.Errorf("%d have not: %v", len(lost), lost[:min(len(lost), 10)])
		}
		return nil
	})
	t.Log(all)
	if len(all.accepted) < 1000 {
		t.Errorf("only %d events were accepted", len(all.accepted))
	}
	if all.longest > longest {
		t.Errorf("a client had no accepted event for %s", all.longest)
	}
}

// throughHangs are events that clients of several servers have published.
type throughHangs struct {
	mu       sync.Mutex
	accepted map[string]bool
	arrived  map[string]int
	longest  time.Duration
}

func (p *throughHangs) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d accepted, %d arrived; the longest time of a client without an accepted one is %.1f s", len(p.accepted), len(p.arrived), p.longest.Seconds())
}

func (p *throughHangs) lost() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.accepted {
		if p.arrived[id] == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// publish publishes an event each 50 ms through one server. It does not wait for the last one.
func (p *throughHangs) publish(ctx context.Context, t *testing.T, of *plane, s *natsserver.Server, name string) {
	c, err := natsutil.Connect(strings.Replace(s.URL, "127.0.0.1", "localhost", 1), natsutil.Account{Name: "publisher", Seed: of.seeds["publisher"], CA: of.ca.Certificate, Inbox: "_INBOX.publisher"})
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	publisher, err := jetstream.New(c)
	if err != nil {
		t.Error(err)
		return
	}
	last := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", name, n)
		one, end := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		_, err := publisher.PublishMsg(one, event("hanging.v1", id, id), jetstream.WithRetryAttempts(0))
		end()
		if err == nil {
			p.mu.Lock()
			p.accepted[id] = true
			p.longest = max(p.longest, time.Since(last))
			p.mu.Unlock()
			last = time.Now()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// take takes all events, until the test ends.
func (p *throughHangs) take(t *testing.T, controller jetstream.JetStream) {
	t.Helper()
	c, err := controller.CreateConsumer(t.Context(), backend.Stream, stream.Consumer("shop", "hanging", []string{backend.Filter("commerce", "hanging.v1")}, false))
	if err != nil {
		t.Fatal(err)
	}
	taking, err := c.Consume(func(m jetstream.Msg) {
		p.mu.Lock()
		p.arrived[string(m.Data())]++
		p.mu.Unlock()
		_ = m.Ack()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(taking.Stop)
}

// TestSoakSlowDisk: the disk of the only server answers nothing for most of the time, as that of a
// provider whose budget of operations is used up. Events of three Subscriptions, one of which is in
// order, are published by twenty clients; a Subscription and a controller come meanwhile. Each
// accepted event arrives, and none twice. The longer one is more than the publisher waits for.
func TestSoakSlowDisk(t *testing.T) {
	for _, hangs := range []time.Duration{2 * time.Second, 6 * time.Second} {
		t.Run(hangs.String(), func(t *testing.T) { slowDisk(t, hangs) })
	}
}

func slowDisk(t *testing.T, hangs time.Duration) {
	t.Helper()
	const works, long = 200 * time.Millisecond, 90 * time.Second
	r := newRigOn(t, startPlane(t, 1, "always", func(config string, tls map[string][]byte) []*natsserver.Server {
		return []*natsserver.Server{natsserver.StartOnDisk(t, 1<<30, config, tls)}
	}), true)
	r.fleet(2)
	names := []string{"one", "two", "ordered"}
	for _, name := range names {
		more := ""
		if name == "ordered" {
			more = `, config: {maxInFlightMessages: "1"}`
		}
		r.subscribe(name, "order.created.v1", more)
		r.await(name, "ready", ready)
	}
	pub := startPublisher(t, r.plane, nil)
	pub.awaitReady()

	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			goOn := r.servers[0].HangDisk()
			time.Sleep(hangs)
			goOn()
			time.Sleep(works)
		}
	})
	var mu sync.Mutex
	var accepted, promised []string // promised were sent when the later Subscription was ready
	var isReady atomic.Bool
	answers := map[int]int{}
	for client := range 20 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id, late := fmt.Sprintf("%02d-%05d", client, n), isReady.Load()
				got, err := pub.publish(t.Context(), id)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answers[got.status]++
				if got.status < 300 {
					accepted = append(accepted, id)
				}
				if got.status < 300 && late {
					promised = append(promised, id)
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(long / 3)
	began := time.Now()
	r.subscribe("later", "order.created.v1", "")
	r.await("later", "ready while the disk is slow", ready)
	isReady.Store(true)
	t.Logf("a Subscription was ready after %.1f s", time.Since(began).Seconds())
	r.controller("pod-later", longLease)
	all.Wait()
	began = time.Now()
	for _, name := range names {
		r.sinks.Await(t, name, limit, accepted...)
		seen, twice := map[string]bool{}, 0
		for _, id := range r.sinks.IDs(name) {
			if seen[id] {
				twice++
			}
			seen[id] = true
		}
		t.Logf("%s: %d events, %d twice", name, len(accepted), twice)
		if twice > 0 {
			t.Errorf("%s: %d events came twice", name, twice)
		}
	}
	r.sinks.Await(t, "later", limit, promised...)
	t.Logf("answers %v; all were there %.1f s after the disk was as before", answers, time.Since(began).Seconds())
	r.awaitEmpty(t)
}
