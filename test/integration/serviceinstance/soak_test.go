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
	"github.com/kyma-project/eventmesh-migration/test/kyma"
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
// wait, with the cascade and without, until 500 runs have been killed. One further
// run brings back everything each time.
func TestSoakKill(t *testing.T) {
	kills := 0
	for round := 0; kills < soakKills; round++ {
		cascading := round%2 == 0
		t.Run(fmt.Sprintf("Round%02d", round), func(t *testing.T) {
			w := on(t)
			w.check(w.catalog.SetCascadingDeletion(w.ctx, cascading))
			w.two()
			before := w.census()
			for n := 1; kills < soakKills; n++ {
				alive := false
				for _, how := range []func() (string, bool){
					func() (string, bool) { return w.killedAt(n, faultproxy.Before, "--strategy=always") },
					func() (string, bool) { return w.killedAt(n, faultproxy.After, "--strategy=always") },
					func() (string, bool) {
						return w.killedAfter(int32(n), time.Duration(rand.IntN(800))*time.Millisecond, "--strategy=always")
					},
				} {
					at, killed := how()
					if !killed {
						alive = true
						continue
					}
					kills++
					w.finish(before, "killed "+at, 1)
				}
				if alive {
					break
				}
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d kills, cascade on and off; lost objects: 0 unless a round failed", kills)
}

// TestSoakChaos recreates while Service Catalog, its webhooks and application-broker
// are killed at random, and the job, too. When the chaos ends, at most two further
// runs bring back everything: the first may have to take back what failed.
func TestSoakChaos(t *testing.T) {
	const rounds = 40
	for seed := range uint64(rounds) {
		t.Run(fmt.Sprintf("Seed%02d", seed), func(t *testing.T) {
			w := on(t)
			w.two()
			before := w.census()
			random := rand.New(rand.NewPCG(seed, 1))
			ctx, cancel := context.WithCancel(w.ctx)
			var chaos sync.WaitGroup
			chaos.Go(func() { w.havoc(ctx, random) })
			at, killed := w.killedAfter(int32(2+random.IntN(14)), time.Duration(random.IntN(1500))*time.Millisecond,
				"--strategy=always", "--ready-timeout=10s", "--activation-timeout=10s", "--delete-timeout=20s", "--rollback-timeout=1m")
			cancel()
			chaos.Wait()
			w.check(w.catalog.StartWebhook(w.ctx))
			w.check(w.catalog.StartController(w.ctx))
			t.Logf("killed: %t, %s", killed, at)
			w.finish(before, "chaos", 3)
		})
	}
}

// havoc kills one thing after the other until ctx ends.
func (w *world) havoc(ctx context.Context, random *rand.Rand) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(100+random.IntN(900)) * time.Millisecond):
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
			err = w.client.Resource(kyma.Pods).Namespace(kyma.IntegrationNamespace).DeleteCollection(w.ctx, deleteOptions, brokerPods)
		}
		if err != nil && ctx.Err() == nil {
			w.t.Errorf("cannot wreak havoc: %v", err)
			return
		}
	}
}
