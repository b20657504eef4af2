//go:build bench

package takeover_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/takeover"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/measure"
)

// benchEach is how long events are published in a row, by benchClients one after the other.
const (
	benchEach    = 3 * time.Second
	benchClients = 4
	// benchBar is how much of the processor a publish on the way may take, divided by one after it.
	benchBar = 1.3
)

// published is what a publish costs.
type published struct {
	events    int
	p50, p99  time.Duration
	ticksEach float64 // of the processor, of all our publishers
}

func (p published) String() string {
	return fmt.Sprintf("%d events, p50 %s, p99 %s, %.0f µs of the processor for one", p.events, p.p50.Round(10*time.Microsecond), p.p99.Round(10*time.Microsecond), p.ticksEach*1e4)
}

// TestBenchPublish measures a publish on the way, to the bridge, and then after it, to our
// publisher, with nothing else published. An event is published once: who has accepted it stores
// it, and nobody copies it.
func TestBenchPublish(t *testing.T) {
	s := newSite(t, 1)
	before := s.cost()
	t.Logf("before the way, to the stand-in: %s", before)
	for s.step() != "stop Kyma's publisher" {
	}
	var onTheWay, after []published
	for range measure.Number(t, "EVENTING_BENCH_PAIRS", 5) {
		onTheWay = append(onTheWay, s.cost())
	}
	s.way(takeover.Over, unkilled)
	time.Sleep(2 * time.Second)
	for range measure.Number(t, "EVENTING_BENCH_PAIRS", 5) {
		after = append(after, s.cost())
	}
	for i := range onTheWay {
		t.Logf("on the way: %s; after it: %s", onTheWay[i], after[i])
	}
	ratio := func(of func(published) float64) float64 {
		median := func(all []published) float64 {
			var values []float64
			for _, p := range all {
				values = append(values, of(p))
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		return median(onTheWay) / median(after)
	}
	processor := ratio(func(p published) float64 { return p.ticksEach })
	t.Logf("on the way / after it, medians: p50 %.2f, p99 %.2f, processor %.2f",
		ratio(func(p published) float64 { return p.p50.Seconds() }), ratio(func(p published) float64 { return p.p99.Seconds() }), processor)
	if !(processor > 0 && processor <= benchBar) {
		t.Errorf("a publish on the way takes %.2f of the processor that it takes after it, want at most %.1f", processor, benchBar)
	}
}

// step makes the next step of the way there, and returns what it does.
func (s *site) step() string {
	s.t.Helper()
	for {
		report, _, _ := s.process(takeover.Over, 0, false)
		if report.Result == migration.Succeeded && len(report.Changes) > 0 {
			return report.Changes[0].Change.Why
		}
		if report.Result != migration.DeferredResult {
			s.t.Fatalf("%s: %s: %v", report.Result, report.Message, report.Findings)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// cost publishes for a while to one pod behind Kyma's Service.
func (s *site) cost() published {
	s.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: benchClients}}
	defer client.CloseIdleConnections()
	targets := *s.targets.Load()
	all := make(chan []time.Duration, benchClients)
	cpu, began := s.publishersCPU(), time.Now()
	for c := range benchClients {
		go func() {
			var took []time.Duration
			for i := 0; time.Since(began) < benchEach; i++ {
				q, _ := http.NewRequest(http.MethodPost, "http://"+targets[0]+"/publish", strings.NewReader(`{"n":1}`))
				for name, value := range map[string]string{"ce-specversion": "1.0", "ce-id": fmt.Sprintf("%d-%d-%d", began.UnixNano(), c, i), "ce-source": "commerce", "ce-type": "order.created.v0", "content-type": "application/json"} {
					q.Header.Set(name, value)
				}
				at := time.Now()
				if res, err := client.Do(q); err == nil {
					_ = res.Body.Close()
					if res.StatusCode == http.StatusNoContent {
						took = append(took, time.Since(at))
					}
				}
			}
			all <- took
		}()
	}
	var took []time.Duration
	for range benchClients {
		took = append(took, <-all...)
	}
	if len(took) == 0 {
		s.t.Fatal("no event was accepted")
	}
	slices.Sort(took)
	return published{events: len(took), p50: took[len(took)/2], p99: took[len(took)*99/100], ticksEach: (s.publishersCPU() - cpu) / float64(len(took))}
}

// publishersCPU is the time of the processor that all our publishers have had, in ticks.
func (s *site) publishersCPU() (ticks float64) {
	s.t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	s.check(err)
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		name, rest, _ := strings.Cut(string(raw), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && strings.Contains(name, "(eventing-publis") && fields[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(strings.Fields(name)[0])
			ticks += measure.CPU(pid)
		}
	}
	return ticks
}
