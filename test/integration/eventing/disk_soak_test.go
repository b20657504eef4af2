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
// until the stream is full. The rule for the size of a stream (decision 1362) is twice its size;
// the reserve of the volume has more than one file.
func TestSoakDisk(t *testing.T) {
	const size = 32 << 20
	mixes := 6
	const file = 8 << 20 // the one that is being written
	worst := int64(0)
	for mix := range mixes {
		t.Run(fmt.Sprint(mix), func(t *testing.T) {
			peak := fill(t, uint64(mix), size) //nolint:gosec // never negative
			t.Logf("%.1f MiB on the disk for a stream of %d MiB: %.2f", float64(peak)/(1<<20), size>>20, float64(peak)/size)
			worst = max(worst, peak)
		})
	}
	if worst > 2*size+file {
		t.Errorf("a stream of %d bytes takes %d: the rule in internal/eventing/decide says twice its size", int64(size), worst)
	}
}

// fill fills a stream with a mix, and returns the most that its files had.
func fill(t *testing.T, seed uint64, size int64) (peak int64) {
	p := startNATS(t)
	ctx := t.Context()
	r := rand.New(rand.NewPCG(seed, 36)) //nolint:gosec // a mix is repeated by its number
	manager, controller, publisher := js(t, p.as(t, "manager")), js(t, p.as(t, "controller")), js(t, p.as(t, "publisher"))
	config := small()
	config.NATSStreamMaxSize, config.NATSMaxMsgsPerTopic = *resource.NewQuantity(size, resource.BinarySI), 10_000_000
	if _, err := manager.CreateStream(ctx, stream.Config(config, "e1", true)); err != nil {
		t.Fatal(err)
	}
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
	for n, ended := 0, false; !ended; n++ {
		i := r.IntN(len(kinds))
		_, err := publisher.PublishMsg(ctx, event(fmt.Sprintf("type%d.v1", i), fmt.Sprint(n), string(make([]byte, int(sizes[i])))), jetstream.WithRetryAttempts(0))
		var refused *jetstream.APIError
		if ended = errors.As(err, &refused); err != nil && !ended {
			t.Fatal(err)
		}
		if n%50 == 0 || ended {
			peak = max(peak, used(t, p.Data()))
		}
	}
	return peak
}

// used is what files have on the disk. One that is deleted meanwhile has nothing.
func used(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var is os.FileInfo
		if err == nil {
			is, err = os.Lstat(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			if stat, ok := is.Sys().(*syscall.Stat_t); ok {
				bytes += stat.Blocks * 512
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
