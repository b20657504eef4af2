//go:build e2e && soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/eventmesh-migration/test/measure"
)

const (
	// soakSwitches are switches, half of them to each backend, during which soakEvents are accepted
	// at least.
	soakSwitches, soakEvents = 20, 100_000
	// longestGap is how long no event at all may be accepted.
	longestGap = time.Second
)

// TestSoakSwitch switches again and again while an event is sent each 10 ms. EVENTING_SOAK_SWITCHES
// is the number of switches; with fewer of them, fewer events are awaited.
// EVENTING_SOAK_SUBSCRIPTIONS is the number of Subscriptions, and EVENTING_SOAK_SERVERS that of
// NATS servers.
func TestSoakSwitch(t *testing.T) {
	n := measure.Number(t, "EVENTING_SOAK_SWITCHES", soakSwitches)
	of := full
	of.subscriptions = measure.Number(t, "EVENTING_SOAK_SUBSCRIPTIONS", full.subscriptions)
	of.servers = measure.Number(t, "EVENTING_SOAK_SERVERS", 1)
	s := startSwitching(t, of)
	s.moreVolumes(t, n)
	s.accepted(t, 1000)
	var times []time.Duration
	for i := range n {
		to := []string{"EventMesh", "NATS"}[i%2]
		took := s.to(t, to)
		times = append(times, took)
		s.prober.Step(to + " after the switch")
		s.accepted(t, 500)
		t.Logf("switch %d, to %s: %.1f s; %d events begun", i+1, to, took.Seconds(), s.prober.Report().Sent)
	}
	if more := soakEvents*n/soakSwitches - s.prober.Report().Accepted; more > 0 {
		s.accepted(t, more)
	}
	r := s.nothingLost(t)
	slices.Sort(times)
	gap := s.prober.LongestGap()
	t.Logf("%d switches, each in %.1f to %.1f s, median %.1f s; %d events accepted, %d of them arrived twice; longest time without an accepted event %s",
		n, times[0].Seconds(), times[n-1].Seconds(), times[n/2].Seconds(), r.Accepted, len(r.Duplicates), gap.Round(time.Millisecond))
	if gap > longestGap {
		t.Errorf("no event was accepted for %s", gap)
	}
	if len(r.Duplicates)*1000 > r.Accepted {
		t.Errorf("%d of %d events arrived more than once", len(r.Duplicates), r.Accepted)
	}
}

// TestSoakSwitchServers switches again and again with three NATS servers, while an event is sent
// each 10 ms. In each switch one of the servers is killed, at some time. EVENTING_SOAK_SWITCHES is
// the number of switches.
func TestSoakSwitchServers(t *testing.T) {
	n := measure.Number(t, "EVENTING_SOAK_SWITCHES", 8)
	of := full
	of.servers = 3
	s := startSwitching(t, of)
	s.moreVolumes(t, n)
	s.accepted(t, 1000)
	chance := rand.New(rand.NewPCG(1, 2)) // the same times and servers again
	for i := range n {
		to := []string{"EventMesh", "NATS"}[i%2]
		after, victim := time.Duration(chance.IntN(20_000))*time.Millisecond, fmt.Sprintf("eventing-nats-%d", chance.IntN(of.servers))
		killed := make(chan error, 1)
		go func() {
			time.Sleep(after)
			err := s.client.CoreV1().Pods(eventingNamespace).Delete(t.Context(), victim, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
			killed <- client.IgnoreNotFound(err) // it may not be there yet, or any more
		}()
		took := s.to(t, to)
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		s.prober.Step(to + " after the switch")
		s.accepted(t, 500)
		s.switched(t, to, 3*time.Minute)
		t.Logf("switch %d, to %s, %s killed after %s: %.1f s; %d events begun", i+1, to, victim, after, took.Seconds(), s.prober.Report().Sent)
	}
	s.nothingLost(t)
}
