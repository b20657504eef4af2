//go:build soak

package prober_test

import (
	"fmt"
	"testing"
	"time"
)

// soakEvents are to be accepted, over all combinations; there are rounds of those
// until they are.
const soakEvents = 100_000

// TestSoakUpgrade upgrades Kyma in every combination of orders and disturbances.
func TestSoakUpgrade(t *testing.T) {
	killed := []string{"pre-httpsource-sync", "pre-trigger-sync", "post-trigger-sync"}
	accepted, missing, duplicates, late, repeated := 0, 0, 0, 0, 0
	var longest time.Duration
	for round := 1; round == 1 || accepted < soakEvents; round++ {
		for _, order := range [][]string{installer, connectorFirst} {
			for _, o := range []combination{
				{}, {failing: true, killed: killed}, {killing: true}, {failing: true, killed: killed, killing: true},
			} {
				o.order, o.seed, o.interval = order, seed(), 5*time.Millisecond
				ok := t.Run(fmt.Sprintf("%s/%d", o, round), func(t *testing.T) {
					r := upgradeKyma(t, o)
					accepted += r.Accepted
					missing += len(r.Missing)
					duplicates += len(r.Duplicates)
					late += len(r.Late)
					repeated += r.Repeated
					longest = max(longest, r.LongestDelay)
				})
				t.Logf("until now: %d accepted, %d missing, %d twice, %d late, %d repetitions, longest delay %s",
					accepted, missing, duplicates, late, repeated, longest.Round(time.Millisecond))
				if !ok {
					t.FailNow()
				}
			}
		}
	}
}
