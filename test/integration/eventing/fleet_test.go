package eventing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// longLease is for tests that are not about the leader: on a busy machine it loses a short one.
const longLease = "--lease-duration=15s"

// fleet starts controllers, the first of which leads, and waits until they know each other.
func (r *rig) fleet(n int) (all []*process.Process) {
	r.t.Helper()
	for i := range n {
		all = append(all, r.controller(fmt.Sprintf("pod-%d", i), longLease))
		if i == 0 {
			r.followed(r.t, "pod-0")
		}
	}
	// Each hello is one message to each: all of them are heard when that many came within a second.
	conn := r.as(r.t, "controller")
	heard := make(chan *nats.Msg, 100)
	hellos, err := conn.ChanSubscribe("controllers.hello", heard)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = hellos.Unsubscribe() }()
	pods := map[string]bool{}
	poll.Until(r.t, limit, "all controllers are heard", func(context.Context) error {
		for {
			select {
			case m := <-heard:
				pods[string(m.Data)[:20]] = true
			default:
				if len(pods) < n {
					return fmt.Errorf("%d of %d", len(pods), n)
				}
				return nil
			}
		}
	})
	time.Sleep(time.Second) // they have heard each other, too
	return all
}

// TestEachControllerDelivers: all processes deliver, together no more at the same time than the
// Subscription says; one event at a time stays in order; and while the leader is stopped the others
// go on.
func TestEachControllerDelivers(t *testing.T) {
	r := newRig(t, true)
	all := r.fleet(3)
	r.subscribe("bounded", "a.b", `, config: {maxInFlightMessages: "7"}`)
	r.subscribe("ordered", "a.b", `, config: {maxInFlightMessages: "1"}`)
	r.await("bounded", "ready", ready)
	r.await("ordered", "ready", ready)
	time.Sleep(3 * time.Second) // all have the Subscriptions
	var now, most atomic.Int32
	r.sinks.Answer("bounded", func(http.ResponseWriter, *http.Request) {
		is := now.Add(1)
		for was := most.Load(); is > was && !most.CompareAndSwap(was, is); was = most.Load() {
		}
		time.Sleep(50 * time.Millisecond)
		now.Add(-1)
	})
	ids := numbers("e", 300)
	r.publish("a.b", ids...)
	r.sinks.Await(t, "bounded", limit, ids...)
	r.sinks.Await(t, "ordered", limit, ids...)
	if most.Load() != 7 {
		t.Errorf("at most %d were posted at the same time, want 7: the parts of all controllers", most.Load())
	}
	if got := r.sinks.IDs("ordered"); !slices.Equal(got, ids) {
		t.Errorf("not in order, or there twice: %v", got)
	}

	all[0].Signal(syscall.SIGSTOP)
	began, more := time.Now(), numbers("stopped", 50)
	r.publish("a.b", more...)
	// The stopped one gets those that it has asked NATS for, which come again.
	r.sinks.Await(t, "bounded", limit, more...)
	t.Logf("without the leader, all were there after %s", time.Since(began))
	all[0].Signal(syscall.SIGCONT)
	r.sinks.Await(t, "ordered", limit, more...)
}

// TestNothingGoesToTheSinkOfBefore: when a Subscription is ready with another sink, nothing more
// goes to the one of before: not of any controller, and not of one that was stopped meanwhile.
func TestNothingGoesToTheSinkOfBefore(t *testing.T) {
	r := newRig(t, true)
	all := r.fleet(3)
	r.subscribe("before", "a.b", "")
	r.await("before", "ready", ready)
	for _, stopped := range []int{0, 2} { // that one, from 1 on
		if stopped > 0 {
			all[stopped].Signal(syscall.SIGSTOP)
		}
		for i := range 3 {
			to := fmt.Sprintf("after-%d-%d", stopped, i)
			began := time.Now()
			r.patch("before", fmt.Sprintf(`{"spec":{"sink":%q}}`, r.sinks.URL(to, r.namespace)))
			r.await("before", "ready with another sink", func(s *eventingv1alpha2.Subscription) string {
				if s.Status.Backends == nil || s.Status.Backends[0].ObservedGeneration != s.Generation {
					return "it is not looked at"
				}
				return ready(s)
			})
			t.Logf("ready after %s", time.Since(began))
			ids := numbers(to+"-", 60)
			r.publish("a.b", ids...)
			if stopped > 0 {
				all[stopped].Signal(syscall.SIGCONT)
			}
			r.sinks.Await(t, to, limit, ids...)
			// One that is stopped before NATS knows that an event was taken lets it come again.
			r.awaitEmpty(t)
		}
	}
	for name := range map[string]bool{"before": true} {
		if got := r.sinks.Of(name); len(got) > 0 {
			t.Errorf("%s has got %d events", name, len(got))
		}
	}
	for _, stopped := range []int{0, 2} {
		for i := range 3 {
			name := fmt.Sprintf("after-%d-%d", stopped, i)
			for _, q := range r.sinks.Of(name) {
				if len(q.ID) < len(name) || q.ID[:len(name)] != name {
					t.Errorf("%s has got %s", name, q.ID)
				}
			}
		}
	}
}

// TestControllersKilled: controllers are killed at random. Nothing is lost, the others go on
// without a pause, and what the killed one had is there soon.
//
// It comes to another one after backend.AckWait, and that one is not killed at the same moment.
func TestControllersKilled(t *testing.T) { controllersKilled(t, 6, 0, killPause) }

// killPause is not a part of backend.AckWait.
const killPause = 3500 * time.Millisecond

// controllersKilled kills one of three controllers so many times, or stops it for a while instead.
// Between two of them lies a pause.
func controllersKilled(t *testing.T, kills int, stopped, pause time.Duration) {
	t.Helper()
	r := newRig(t, true)
	all := r.fleet(3)
	const subscriptions = 5
	for i := range subscriptions {
		r.subscribe(fmt.Sprintf("sink-%d", i), "a.b", "")
	}
	r.subscribe("ordered", "a.b", `, config: {maxInFlightMessages: "1"}`)
	for i := range subscriptions {
		r.await(fmt.Sprintf("sink-%d", i), "ready", ready)
	}
	r.await("ordered", "ready", ready)
	time.Sleep(3 * time.Second)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var ids []string
	var longest time.Duration // that publishing took
	at := map[string]time.Time{}
	var published sync.WaitGroup
	published.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			id := fmt.Sprintf("e-%d", n)
			began := time.Now()
			if _, err := r.publisher.PublishMsg(t.Context(), event("a.b", id, "{}")); err != nil {
				t.Error(err)
				return
			}
			at[id] = time.Now()
			longest = max(longest, at[id].Sub(began))
			ids = append(ids, id)
			time.Sleep(5 * time.Millisecond)
		}
	})
	for n := range kills {
		time.Sleep(pause)
		i := rand.IntN(len(all)) //nolint:gosec // any of them
		if stopped > 0 {
			all[i].Signal(syscall.SIGSTOP)
			time.Sleep(stopped)
			all[i].Signal(syscall.SIGCONT)
			continue
		}
		all[i].Signal(syscall.SIGKILL)
		all[i].Wait()
		all[i] = r.controller(fmt.Sprintf("pod-%d-%d", i, n), longLease)
	}
	time.Sleep(pause)
	stop()
	published.Wait()
	names := []string{"ordered"}
	for i := range subscriptions {
		names = append(names, fmt.Sprintf("sink-%d", i))
	}
	total, twice := 0, 0
	for _, name := range names {
		r.sinks.Await(t, name, limit, ids...)
		seen, silent, latest, late, last := map[string]bool{}, time.Duration(0), time.Duration(0), 0, time.Time{}
		got := r.sinks.Of(name)
		for _, q := range got {
			if seen[q.ID] {
				twice++
				continue
			}
			seen[q.ID] = true
			if after := q.At.Sub(at[q.ID]); after > 5*time.Second && name != "ordered" { // a killed one had it
				late++
				latest = max(latest, after)
				continue
			}
			if !last.IsZero() {
				silent = max(silent, q.At.Sub(last))
			}
			last = q.At
		}
		total += len(got)
		t.Logf("%s: %d events, longest silence %s, %d were with a killed one, and came after at most %s", name, len(got), silent.Round(time.Millisecond), late, latest.Round(time.Millisecond))
		// On an idle machine, less than a second. What a killed one had holds up all that comes
		// after it where there is an order.
		most := 4 * time.Second
		if name == "ordered" {
			most = backend.AckWait + 4*time.Second
		}
		if silent > most || latest > backend.AckWait+4*time.Second {
			t.Errorf("%s: nothing for %s, and one came after %s", name, silent, latest)
		}
	}
	if first := slices.Compact(r.sinks.IDs("ordered")); !slices.IsSortedFunc(firsts(first), func(a, b string) int { return numberOf(a) - numberOf(b) }) {
		t.Error("not in order")
	}
	t.Logf("%d events to %d Subscriptions, %d kills: %d deliveries, %d twice (%.2f %%); publishing took %s at most", len(ids), len(names), kills, total, twice, 100*float64(twice)/float64(total), longest)
}

// firsts leaves of each event only where it was first.
func firsts(ids []string) (all []string) {
	seen := map[string]bool{}
	for _, id := range ids {
		if !seen[id] {
			all = append(all, id)
		}
		seen[id] = true
	}
	return all
}

func numberOf(id string) (n int) {
	_, _ = fmt.Sscanf(id, "e-%d", &n)
	return n
}
