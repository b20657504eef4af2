//go:build soak

package takeover_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/takeover"
	"github.com/kyma-project/eventmesh-migration/test/measure"
)

const (
	// soakWays are ways, half of them in each direction, during which soakEvents are accepted at
	// least.
	soakWays, soakEvents, soakSubscriptions = 20, 50_000, 100
)

// TestSoakWays goes there and back again and again under load. EVENTING_SOAK_WAYS is the number of
// ways; with fewer of them, fewer events are awaited. EVENTING_SOAK_SUBSCRIPTIONS is the number of
// Subscriptions.
func TestSoakWays(t *testing.T) {
	ways, n := measure.Number(t, "EVENTING_SOAK_WAYS", soakWays), measure.Number(t, "EVENTING_SOAK_SUBSCRIPTIONS", soakSubscriptions)
	s := newSite(t, n)
	l := s.publish(n, 4, 20*time.Millisecond)
	took := map[takeover.Direction][]time.Duration{}
	for i := range ways {
		to := []takeover.Direction{takeover.Over, takeover.Back}[i%2]
		began, before := time.Now(), l.count()
		s.way(to, unkilled)
		took[to] = append(took[to], time.Since(began))
		t.Logf("way %d, %s: %.1f s; %d events accepted meanwhile", i+1, to, time.Since(began).Seconds(), l.count()-before)
		time.Sleep(2 * time.Second)
	}
	s.await(30*time.Minute, "enough events are accepted", func(context.Context) error {
		if want, is := soakEvents*ways/soakWays, l.count(); is < want {
			return fmt.Errorf("%d of %d", is, want)
		}
		return nil
	})
	accepted, twice := l.end()
	for to, all := range took {
		slices.Sort(all)
		t.Logf("%s: %d ways with %d Subscriptions, each in %.1f to %.1f s, median %.1f s", to, len(all), n, all[0].Seconds(), all[len(all)-1].Seconds(), all[len(all)/2].Seconds())
	}
	if twice*1000 > accepted {
		t.Errorf("%d of %d events arrived more than once", twice, accepted)
	}
	s.alone()
}
