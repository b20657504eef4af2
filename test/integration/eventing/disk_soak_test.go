//go:build soak

package eventing_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
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
