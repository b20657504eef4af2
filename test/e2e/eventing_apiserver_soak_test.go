//go:build e2e && soak

package e2e

import (
	"net/url"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestSoakWithoutAPIServer pauses the API server for 45 seconds, longer than any Lease is valid,
// while an event is sent each 50 ms. NATS carries them as if nothing had happened. The mesh takes
// events for 30 seconds, as long as a controller is sure that it knows all Subscriptions, and
// refuses them after that: docs/decisions/1211-one-trigger-and-the-roster.md.
func TestSoakWithoutAPIServer(t *testing.T) {
	const away = 45 * time.Second
	of := light
	of.direct = true
	s := startSwitching(t, of)
	s.moreVolumes(t, 1)
	server := s.apiServer(t)
	t.Cleanup(func() { _ = syscall.Kill(server, syscall.SIGCONT) }) // the end of the cluster needs it
	s.accepted(t, 500)
	for _, on := range []string{"NATS", "EventMesh"} {
		if on == "EventMesh" {
			s.to(t, on)
			s.accepted(t, 500)
		}
		step := on + " without the API server"
		s.prober.Step(step)
		before := s.prober.Report()
		if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var arrived []int // in each 5 seconds
		for range int(away / (5 * time.Second)) {
			time.Sleep(5 * time.Second)
			arrived = append(arrived, s.arrived())
		}
		if err := syscall.Kill(server, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		s.prober.Step(on + " with the API server again")
		s.accepted(t, 200)
		s.podsReady(t, "controller", 2)
		s.podsReady(t, "publisher-proxy", 2)
		s.switched(t, on, 2*time.Minute)
		for i := len(arrived) - 1; i > 0; i-- {
			arrived[i] -= arrived[i-1]
		}
		t.Logf("%s: %d events accepted from the pause until all was well again after %.0f s; arrived in each 5 seconds of it: %v",
			step, s.prober.Report().Accepted-before.Accepted, time.Since(began).Seconds(), arrived[1:])
		if least := slices.Min(arrived[1:]); on == "NATS" && least < 30 {
			t.Errorf("%s: %d events arrived in 5 seconds", step, least)
		}
		s.accepted(t, 200)
	}
	s.nothingLost(t)
}

// arrived is how many events the sinks have got.
func (s *switching) arrived() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

// apiServer is the process of the API server.
func (s *switching) apiServer(t *testing.T) int {
	t.Helper()
	at, err := url.Parse(s.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := findProcess("the API server at "+at.Host, func(_ string, command []string) bool {
		return filepath.Base(command[0]) == "kube-apiserver" && slices.Contains(command, "--secure-port="+at.Port())
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
