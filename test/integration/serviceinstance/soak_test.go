//go:build soak

package serviceinstance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

// brokerPods are those of application-broker.
var (
	deleteOptions = metav1.DeleteOptions{}
	brokerPods    = metav1.ListOptions{LabelSelector: "app=application-broker"}
)

// soakKills is how many kills it takes until nothing that is left is worth finding.
const soakKills = 500

// TestSoakSuite is the whole suite, with the kill loops of rollback and undo.
func TestSoakSuite(t *testing.T) {
	suite.All(t, on(t).repairs(), 8)
}

// TestSoakTwoHundred is the size of a large cluster.
func TestSoakTwoHundred(t *testing.T) { someOf(t, 200, 30) }

// TestSoakKill kills recreations at every write, before and after, and in every
// wait, with the cascade and without, until 500 runs have been killed. From the
// second round on, the runs that are to finish it are killed, too, up to three in a
// row. One further run brings back everything each time.
func TestSoakKill(t *testing.T) {
	for i, cascading := range []bool{true, false} {
		t.Run(fmt.Sprintf("CascadingDeletion=%t", cascading), func(t *testing.T) {
			w := on(t)
			w.check(w.catalog.SetCascadingDeletion(w.ctx, cascading))
			w.two()
			k := &killer{before: w.census(), random: rand.New(rand.NewPCG(2, uint64(i)))}
			for round := 0; k.kills < soakKills/2 && !t.Failed(); round++ {
				for n := 1; k.kills < soakKills/2 && w.killEverywhere(t, k, round, n); n++ {
				}
				t.Logf("round %d: %d kills so far, %d of them of runs that were to finish another", round, k.kills, k.again)
			}
			t.Logf("%d kills; lost objects: 0 unless it failed; Service Catalog crashed by itself %d times", k.kills, w.catalog.Crashes())
		})
	}
}

// killer counts kills.
type killer struct {
	before       map[string]any
	random       *rand.Rand
	kills, again int
}

// killEverywhere kills a run before its n-th write, one after it, and one in the
// wait that follows; false if there is no such write, or one was lost.
func (w *world) killEverywhere(t *testing.T, k *killer, round, n int) bool {
	alive := false
	for _, how := range []struct {
		name string
		kill func(*world, ...string) (string, bool)
	}{
		{"Before", func(w *world, args ...string) (string, bool) { return w.killedAt(n, faultproxy.Before, args...) }},
		{"After", func(w *world, args ...string) (string, bool) { return w.killedAt(n, faultproxy.After, args...) }},
		{"Wait", func(w *world, args ...string) (string, bool) { return w.killedAfter(int32(n), k.pause(), args...) }},
	} {
		held := t.Run(fmt.Sprintf("Round%d/Write%02d/%s", round, n, how.name), func(t *testing.T) {
			w := &world{plane: w.plane, t: t, ctx: t.Context()}
			at, killed := how.kill(w, "--strategy=always")
			alive = alive || !killed && how.name == "Before"
			for again := 0; killed; again++ {
				k.kills++
				if again > 0 {
					k.again++
				}
				t.Logf("killed %s", at)
				if round == 0 || again == k.random.IntN(4) {
					break
				}
				at, killed = w.killedSomewhere(k)
			}
			w.finish(k.before, "killed "+at, 1)
			w.isOnTheMesh("orders", orders)
			w.isOnTheMesh("stock", stock)
		})
		if !held {
			return false
		}
	}
	return !alive
}

// pause is some time of a wait.
func (k *killer) pause() time.Duration { return time.Duration(k.random.IntN(1000)) * time.Millisecond }

// killedSomewhere kills the run that comes next.
func (w *world) killedSomewhere(k *killer) (at string, killed bool) {
	n := 1 + k.random.IntN(10)
	if k.random.IntN(3) == 0 {
		return w.killedAfter(int32(n), k.pause())
	}
	return w.killedAt(n, faultproxy.When(k.random.IntN(2)))
}

// TestSoakChaos recreates while Service Catalog, its webhooks and application-broker
// are killed at random, 500 times in all: one run that is killed, too, and one that
// has to cope. When the chaos ends, at most two further runs bring back everything:
// the first may have to undo what failed.
func TestSoakChaos(t *testing.T) {
	kills, jobs := 0, 0
	codes := map[int]int{}
	for seed := uint64(0); kills < soakKills && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("Seed%03d", seed), func(t *testing.T) {
			w := on(t)
			random := rand.New(rand.NewPCG(seed, 1))
			w.check(w.catalog.SetCascadingDeletion(w.ctx, random.IntN(2) == 0))
			w.two()
			before := w.census()
			ctx, cancel := context.WithCancel(w.ctx)
			var chaos sync.WaitGroup
			often := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}[seed%3]
			chaos.Go(func() { kills += w.havoc(ctx, rand.New(rand.NewPCG(seed, 2)), often) })
			args := []string{"--strategy=always", "--ready-timeout=10s", "--activation-timeout=10s", "--delete-timeout=20s", "--rollback-timeout=40s"}
			at, killed := w.killedAfter(int32(2+random.IntN(20)), time.Duration(random.IntN(1500))*time.Millisecond, args...)
			report, code := w.run("run", args...)
			cancel()
			chaos.Wait()
			w.check(w.catalog.StartWebhook(w.ctx))
			w.check(w.catalog.StartController(w.ctx))
			if killed {
				jobs++
			}
			codes[code]++
			t.Logf("job killed: %t, %s; the next one: %s; %d kills of the others so far", killed, at, report.Result, kills)
			w.finish(before, "chaos", 3)
		})
	}
	t.Logf("%d kills of Service Catalog, its webhooks and application-broker, %d of the job; exit codes of runs amidst of it: %v; lost objects: 0 unless it failed",
		kills, jobs, codes)
}

// havoc kills one thing after the other until ctx ends, on average every half of
// often, and says how many.
func (w *world) havoc(ctx context.Context, random *rand.Rand, often time.Duration) (kills int) {
	for ; ; kills++ {
		select {
		case <-ctx.Done():
			return kills
		case <-time.After(100*time.Millisecond + time.Duration(random.Int64N(int64(often)))):
		}
		var err error
		switch random.IntN(4) {
		case 0:
			w.catalog.KillController()
			err = w.catalog.StartController(w.ctx)
		case 1:
			w.catalog.KillWebhook()
			err = w.catalog.StartWebhook(w.ctx)
		default:
			err = w.client.Resource(standin.Pods).Namespace(standin.IntegrationNamespace).DeleteCollection(w.ctx, deleteOptions, brokerPods)
		}
		if err != nil && ctx.Err() == nil {
			w.t.Errorf("cannot wreak havoc: %v", err)
			return kills
		}
	}
}
